//! Where CPython keeps frames, code objects and text. The caller of
//! [`begin`](super::control::begin) knows it: from `_Py_DebugOffsets` from CPython 3.13 on, from
//! the headers of 3.10 to 3.12.

/// Offsets in bytes, and a few constants, of one build of CPython.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// In a thread state: the current frame, or the place that has it.
    pub state_frame: usize,
    /// In a thread state: the thread pointer of its thread.
    pub state_thread: usize,
    /// In the place that `state_frame` points to: the current frame. `None` if `state_frame` is the
    /// current frame itself.
    pub place_frame: Option<usize>,
    pub frame_code: usize,
    pub frame_previous: usize,
    pub frame_instruction: usize,
    /// True if `frame_instruction` is an index in units of two bytes; false if it is an address.
    pub instruction_is_index: bool,
    /// In a frame: the index of its thread's copy of the instructions. In a code object: where the
    /// array of the copies is. `None` if all threads run the same instructions.
    pub thread_instructions: Option<(usize, usize)>,
    /// Where a frame's owner is, and the lowest owner whose frames have no code.
    pub frame_owner: Option<(usize, u8)>,
    pub code_name: usize,
    pub code_file: usize,
    pub code_lines: usize,
    pub code_first_line: usize,
    pub code_instructions: usize,
    /// A number that identifies a code object among those of its interpreter, unless it is 0.
    pub code_version: Option<usize>,
    pub object_type: usize,
    /// The address of `PyCode_Type`.
    pub code_type: usize,
    pub text_length: usize,
    pub text_state: usize,
    /// The bit of `text_state` at which the kind begins: three bits with the bytes of a character.
    /// The next bits are `compact` and `ascii`.
    pub text_kind_shift: u32,
    pub text_ascii: usize,
    pub text_other: usize,
    pub bytes_length: usize,
    pub bytes_data: usize,
    /// How a line table is encoded.
    pub lines: LineFormat,
}

/// The encoding of `co_linetable`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum LineFormat {
    /// CPython 3.10 (`Objects/lnotab_notes.txt`).
    Pairs = 1,
    /// CPython 3.11 and later (`Objects/locations.md`).
    Locations = 2,
}

impl LineFormat {
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::Pairs, Self::Locations].into_iter().find(|format| *format as u32 == number)
    }
}

/// The low bits of a pointer to a code object that CPython 3.14 and later use as tags.
pub const TAG_BITS: usize = 7;
