//! The functions of well-known event loops, by which a stack of Python calls shows that its thread
//! runs a loop, and what the loop runs.

use crate::profile::resolver::Frame;

/// A function in a file, by the ends of their names. A qualified name has its class before it.
type Known = (&'static str, &'static str);

/// Functions that return when the loop stops, and call all that it runs. gevent has none: its
/// greenlets have stacks of their own.
const RUNNERS: [Known; 6] = [
    ("asyncio/base_events.py", "run_forever"),
    ("asyncio/runners.py", "run"),
    ("uvloop/__init__.py", "run"),
    ("trio/_core/_run.py", "run"),
    ("trio/_core/_run.py", "unrolled_run"),
    ("twisted/internet/base.py", "mainLoop"),
];
/// Functions that call a callback, or the coroutine of a task.
const CALLERS: [Known; 6] = [
    ("asyncio/events.py", "_run"),
    ("asyncio/runners.py", "run"),
    ("uvloop/__init__.py", "run"),
    ("uvloop/__init__.py", "wrapper"),
    ("trio/_core/_run.py", "unrolled_run"),
    ("twisted/internet/base.py", "runUntilCurrent"),
];

/// Parts of loops that these call too, which are no callbacks.
const BETWEEN: [&str; 2] = ["asyncio/base_events.py", "trio/_core/"];

/// Whether a thread with these calls is in a loop of a known kind.
pub fn is_in_loop(stack: &[Frame]) -> bool {
    stack.iter().any(|frame| is_one_of(frame, &RUNNERS))
}

/// The function that the loop called: the outermost one of a coroutine or a callback.
pub fn callback(stack: &[Frame]) -> Option<&str> {
    let caller = stack.iter().rposition(|frame| is_one_of(frame, &CALLERS))?;
    // `Runner.run` calls a coroutine by way of a loop in C, and asyncio's own loop in Python.
    let is_between = |frame: &Frame| BETWEEN.iter().any(|part| frame.file.contains(part));
    let called = stack.get(caller + 1).filter(|frame| !is_between(frame))?;
    Some(&called.function)
}

fn is_one_of(frame: &Frame, known: &[Known]) -> bool {
    known.iter().any(|(file, function)| {
        let class = frame.function.strip_suffix(function);
        frame.file.ends_with(file)
            && class.is_some_and(|class| class.is_empty() || class.ends_with('.'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(calls: &[(&str, &str)]) -> Vec<Frame> {
        let frame = |(file, function): &(&str, &str)| Frame {
            function: (*function).into(),
            file: (*file).into(),
            line: 1,
        };
        calls.iter().map(frame).collect()
    }

    #[test]
    fn the_callback_is_what_the_innermost_caller_called() {
        let asyncio = stack(&[
            ("app.py", "<module>"),
            ("/lib/asyncio/runners.py", "run"),
            ("/lib/asyncio/runners.py", "Runner.run"),
            ("/lib/asyncio/base_events.py", "BaseEventLoop.run_forever"),
            ("/lib/asyncio/base_events.py", "BaseEventLoop._run_once"),
            ("/lib/asyncio/events.py", "Handle._run"),
            ("app.py", "main"),
            ("app.py", "crunch"),
        ]);
        assert!(is_in_loop(&asyncio));
        assert_eq!(callback(&asyncio), Some("main"));
        let uvloop = stack(&[
            ("/lib/uvloop/__init__.py", "run"),
            ("/lib/asyncio/runners.py", "Runner.run"),
            ("/lib/uvloop/__init__.py", "run.<locals>.wrapper"),
            ("app.py", "serve"),
        ]);
        assert!(is_in_loop(&uvloop));
        assert_eq!(callback(&uvloop), Some("serve"));
        let polls = stack(&[
            ("/lib/asyncio/runners.py", "Runner.run"),
            ("/lib/asyncio/base_events.py", "BaseEventLoop.run_until_complete"),
            ("/lib/selectors.py", "EpollSelector.select"),
        ]);
        assert!(is_in_loop(&polls));
        assert_eq!(callback(&polls), None);
        let trio = stack(&[
            ("/lib/trio/_core/_run.py", "unrolled_run"),
            ("/lib/trio/_core/_io_epoll.py", "EpollIOManager.process_events"),
        ]);
        assert!(is_in_loop(&trio));
        assert_eq!(callback(&trio), None);
        let client = stack(&[("app.py", "rerun"), ("/lib/selectors.py", "EpollSelector.select")]);
        assert!(!is_in_loop(&client));
        assert_eq!(callback(&client), None);
    }
}
