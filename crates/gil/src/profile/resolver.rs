//! Stacks and frames of what a store has.

use std::collections::HashMap;
use std::sync::atomic::Ordering::*;

use super::frames::{self, NO_OFFSET};
use super::layout::LineFormat;
use super::lines::line_of;
use super::store::{COLLECTOR, CUT, EMPTY_STACK, Store};

/// A call: the function's name, the file and the line; 0 for an unknown line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    pub function: String,
    pub file: String,
    pub line: u32,
}

/// In place of a frame's index: outer calls were not kept.
pub const CUT_FRAME: u32 = u32::MAX;

/// A code object: its name, its file, its line table and its first line.
type CodeText = (String, String, Vec<u8>, u32);

/// Turns nodes into stacks of frames.
pub struct Resolver<'a> {
    store: &'a Store,
    format: LineFormat,
    pub frames: Vec<Frame>,
    pub stacks: Vec<Vec<u32>>,
    frame_of_call: HashMap<(u32, u32), u32>,
    stack_of_node: HashMap<u32, u32>,
    codes: HashMap<u32, Option<CodeText>>,
}

impl<'a> Resolver<'a> {
    pub fn new(store: &'a Store) -> Self {
        let format = LineFormat::from_number(store.line_format.load(Relaxed));
        Self {
            store,
            format: format.unwrap_or(LineFormat::Locations),
            frames: Vec::new(),
            stacks: Vec::new(),
            frame_of_call: HashMap::new(),
            stack_of_node: HashMap::new(),
            codes: HashMap::new(),
        }
    }

    pub fn index_of(&mut self, node: u32) -> u32 {
        if let Some(index) = self.stack_of_node.get(&node) {
            return *index;
        }
        let stack = self.stack_of(node);
        self.stacks.push(stack);
        let index = self.stacks.len() as u32 - 1;
        self.stack_of_node.insert(node, index);
        index
    }

    /// The frames of a stack, the outermost call first.
    pub fn stack_of(&mut self, mut node: u32) -> Vec<u32> {
        let mut stack = Vec::new();
        if node == EMPTY_STACK {
            return stack;
        }
        while stack.len() < frames::DEPTH {
            let Some((parent, code, offset)) = self.store.node(node) else { break };
            stack.push(self.frame_of(code, offset));
            node = parent;
        }
        if node == CUT {
            stack.push(CUT_FRAME);
        }
        stack.reverse();
        stack
    }

    fn frame_of(&mut self, code: u32, offset: u32) -> u32 {
        if let Some(frame) = self.frame_of_call.get(&(code, offset)) {
            return *frame;
        }
        let (store, format) = (self.store, self.format);
        let found = self.codes.entry(code).or_insert_with(|| store.code(code));
        let frame = match found {
            None if code == COLLECTOR => {
                Frame { function: "(garbage collection)".into(), file: String::new(), line: 0 }
            }
            None => Frame { function: "?".into(), file: String::new(), line: 0 },
            Some((function, file, lines, first_line)) => {
                let line = Some(offset).filter(|offset| *offset != NO_OFFSET);
                let line = line.and_then(|offset| line_of(format, lines, *first_line, offset));
                Frame {
                    function: function.clone(),
                    file: file.clone(),
                    line: line.unwrap_or(*first_line),
                }
            }
        };
        self.frames.push(frame);
        let index = self.frames.len() as u32 - 1;
        self.frame_of_call.insert((code, offset), index);
        index
    }
}
