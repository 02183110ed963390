//! Carries out interrupt-timeout: sets an exception in the thread whose request takes too long.

use crate::interpreters::server::Server;
use crate::wsgi::interruption::interrupt;
use headway_python::attached::Attached;

/// Waits for a request that exceeds interrupt-timeout, and sets an exception in its thread. False
/// once the server is over. Called by a thread of its own.
pub fn interrupt_next(py: Attached, server: &Server) -> bool {
    // A sub-interpreter is entered without being attached to the caller's interpreter first: up to
    // CPython 3.12 a thread that waits for a GIL which interpreters share asks only threads of its
    // own interpreter to drop it.
    let in_main = py.detach(|| {
        let interruption = server.next_interruption()?;
        let interpreter = server.groups().interpreter(interruption.interpreter_number());
        Some(interpreter.and_then(|interpreter| {
            if interpreter.is_main() {
                return interpreter.adapter().map(|adapter| (interruption, adapter));
            }
            interpreter.visit(|py, adapter| interrupt(py, &interruption, adapter.interruption()));
            None
        }))
    });
    let Some(in_main) = in_main else { return false };
    if let Some((interruption, adapter)) = in_main {
        interrupt(py, &interruption, adapter.interruption());
    }
    true
}
