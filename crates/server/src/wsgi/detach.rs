//! Runs parts of a request without the GIL.

use crate::request::RequestContext;
use headway_python::attached::Attached;

/// Runs `act` on the context with the thread state detached.
pub fn detach<T: Send>(
    py: Attached,
    context: &mut RequestContext,
    act: impl FnOnce(&mut RequestContext) -> T + Send,
) -> T {
    let context = OnThisThread(context);
    py.detach(move || act(context.take()))
}

struct OnThisThread<'a, 'b>(&'a mut RequestContext<'b>);

// SAFETY: `Attached::detach` demands `Send` to refuse Python's objects, of which an context holds
// none. It calls the closure on the same thread.
unsafe impl Send for OnThisThread<'_, '_> {}

impl<'a, 'b> OnThisThread<'a, 'b> {
    /// A method, so that closures capture the whole wrapper.
    fn take(self) -> &'a mut RequestContext<'b> {
        self.0
    }
}
