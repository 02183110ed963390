//! Runs parts of a request without the GIL.

use crate::request::RequestContext;
use headway_python::attached::Attached;

/// Runs `act` on the exchange with the thread state detached.
pub fn detach<T: Send>(
    py: Attached,
    exchange: &mut RequestContext,
    act: impl FnOnce(&mut RequestContext) -> T + Send,
) -> T {
    let exchange = OnThisThread(exchange);
    py.detach(move || act(exchange.take()))
}

struct OnThisThread<'a, 'b>(&'a mut RequestContext<'b>);

// SAFETY: `Attached::detach` demands `Send` to refuse Python's objects, of which an exchange holds
// none. It calls the closure on the same thread.
unsafe impl Send for OnThisThread<'_, '_> {}

impl<'a, 'b> OnThisThread<'a, 'b> {
    /// A method, so that closures capture the whole wrapper.
    fn take(self) -> &'a mut RequestContext<'b> {
        self.0
    }
}
