//! The names of calls in reports: of lines, of stacks in ticks, and of the stacks that threads
//! write. They are those of a profile (`headway.profile.sides`).

use headway_gil::Frame;

/// A longer name is cut. Of a path, the end says more.
pub const MAX_NAME_BYTES: usize = 120;
/// The call of a stack that has no Python code.
pub const NO_PYTHON: &str = "(no Python code)";
/// The outermost call of a stack whose outer calls were not kept.
pub const CUT: &str = "(deeper calls not kept)";

/// faulthandler writes so many calls, and does not mark that there are more on all versions.
const FAULTHANDLER_CALLS: usize = 100;

/// A call of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Call {
    pub function: String,
    /// FILE:NUMBER, or "" for no code.
    pub place: String,
}

impl Call {
    /// A call that stands for no code.
    pub fn named(name: &str) -> Self {
        Self { function: name.into(), place: String::new() }
    }

    /// A call with the names of a frame, cut to `MAX_NAME_BYTES`.
    pub fn of_frame(frame: &Frame) -> Self {
        let place = match (frame.file.as_str(), frame.line) {
            ("", _) => String::new(),
            (file, 0) => end_of(file).into(),
            (file, line) => format!("{}:{line}", end_of(file)),
        };
        Self { function: cut(&frame.function).into(), place }
    }

    /// FUNCTION (FILE:NUMBER), as far as they are known.
    pub fn label(&self) -> String {
        match self.place.as_str() {
            "" => self.function.clone(),
            place => format!("{} ({place})", self.function),
        }
    }
}

/// The stack that faulthandler wrote, the innermost call first, each call as `Call::label` has it
/// on a line of its own. faulthandler knows a method's name without its class. `None` if there is
/// no call.
pub fn labels_of(faulthandler: &str, max_bytes: usize) -> Option<String> {
    let lines = faulthandler.lines().filter_map(|line| line.strip_prefix("  "));
    let labels = lines.filter(|line| *line != "...").map(|line| {
        parse(line).map_or_else(|| line.to_owned(), |frame| Call::of_frame(&frame).label())
    });
    let mut labels: Vec<String> = labels.collect();
    if labels.len() >= FAULTHANDLER_CALLS {
        labels.push(CUT.into());
    }
    (!labels.is_empty()).then(|| innermost_of(labels.join("\n"), max_bytes))
}

/// As many calls of a stack as `max_bytes` have room for, and `CUT` if there are more.
pub fn innermost_of(mut stack: String, max_bytes: usize) -> String {
    if stack.len() > max_bytes {
        let room = max_bytes.saturating_sub(CUT.len());
        let end = stack.as_bytes()[..room].iter().rposition(|byte| *byte == b'\n');
        stack.truncate(end.map_or(0, |end| end + 1));
        stack.push_str(CUT);
    }
    stack
}

/// The frame of a line such as `File "/srv/app.py", line 12 in page`; parts that faulthandler does
/// not know are `???`.
fn parse(line: &str) -> Option<Frame> {
    let (file, rest) = line.strip_prefix("File ")?.rsplit_once(", line ")?;
    let (number, function) = rest.split_once(" in ")?;
    let file = file.strip_prefix('"').and_then(|file| file.strip_suffix('"')).unwrap_or_default();
    Some(Frame {
        function: if function == "???" { "?".into() } else { unescaped(function) },
        file: unescaped(file),
        line: number.parse().unwrap_or(0),
    })
}

/// A text in which faulthandler has written characters beyond ASCII as \xE9, \u4E2D or \U0001F600.
fn unescaped(text: &str) -> String {
    let mut found = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        let digits = match escape.as_bytes().get(1) {
            Some(b'x') => 2,
            Some(b'u') => 4,
            Some(b'U') => 8,
            _ => 0,
        };
        let code = escape.get(2..2 + digits).and_then(|code| u32::from_str_radix(code, 16).ok());
        let (character, length) = match code.and_then(char::from_u32) {
            Some(character) if digits != 0 => (character, 2 + digits),
            _ => ('\\', 1),
        };
        found.push_str(before);
        found.push(character);
        rest = &escape[length..];
    }
    found + rest
}

pub fn cut(text: &str) -> &str {
    let mut end = text.len().min(MAX_NAME_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn end_of(path: &str) -> &str {
    let mut start = path.len().saturating_sub(MAX_NAME_BYTES);
    while !path.is_char_boundary(start) {
        start += 1;
    }
    &path[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITTEN: &str = "Stack (most recent call first):\n  \
        File \"/srv/shop/app.py\", line 12 in page\n  \
        File \"/srv/a, line 3 in b.py\", line 4 in <module>\n  \
        File ???, line ??? in ???\n";

    #[test]
    fn calls_have_the_names_of_a_profile() {
        let expected = "page (/srv/shop/app.py:12)\n<module> (/srv/a, line 3 in b.py:4)\n?";
        assert_eq!(labels_of(WRITTEN, 1_000).as_deref(), Some(expected));
        assert_eq!(labels_of("Stack (most recent call first):\n", 1_000), None);
        let line = "  File \"app.py\", line 1 in f\n";
        for (count, mark) in [(99, ""), (100, "\n(deeper calls not kept)")] {
            let expected = ["f (app.py:1)"; 100][..count].join("\n") + mark;
            assert_eq!(labels_of(&(line.repeat(count) + "  ...\n"), 9_000), Some(expected));
        }
        let frame = Frame { function: "f".into(), file: "app.py".into(), line: 0 };
        assert_eq!(Call::of_frame(&frame).label(), "f (app.py)");
    }

    #[test]
    fn a_long_stack_is_cut_between_calls() {
        let line = "  File \"/site/app.py\", line 10 in answer\n";
        let found = labels_of(&line.repeat(200), 3_000).unwrap();
        assert!(found.len() <= 3_000 && found.len() > 2_900);
        assert!(found.ends_with("answer (/site/app.py:10)\n(deeper calls not kept)"));
    }

    #[test]
    fn escapes_become_characters_again_and_long_names_are_cut() {
        assert_eq!(unescaped(r"m\xe9thode_\u4e2d\U0001f600"), "m\u{e9}thode_\u{4e2d}\u{1f600}");
        for odd in [r"a\b", r"\x", r"\ud800", r"\U00110000", r"\", r"\x\u{e9}"] {
            assert_eq!(unescaped(odd), odd);
        }
        let path = "/long".repeat(50);
        let written = format!("  File \"{path}/app.py\", line 1 in {}", "f".repeat(200));
        let label = labels_of(&written, 1_000).unwrap();
        assert_eq!(label.len(), 2 * MAX_NAME_BYTES + " (:1)".len());
        assert!(label.ends_with("/app.py:1)"));
    }
}
