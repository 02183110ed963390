//! The stacks that a reader keeps between two reports, each once, in bounded memory.

use std::collections::HashMap;
use std::sync::Arc;

use super::resolver::{CUT_FRAME, Frame};

/// Of further stacks only the innermost call is kept.
const MAX_STACKS: usize = 8_192;
/// Stacks with further frames are not kept.
const MAX_FRAMES: usize = 16_384;

#[derive(Default)]
pub struct KeptStacks {
    frames: Vec<Frame>,
    frame_numbers: HashMap<Frame, u32>,
    stacks: Vec<Arc<[u32]>>,
    stack_numbers: HashMap<Arc<[u32]>, u32>,
}

impl KeptStacks {
    /// The number of a stack, which has indices of `frames`; `None` if there is no room for it.
    pub fn number_of(&mut self, mut stack: Vec<u32>, frames: &[Frame]) -> Option<u32> {
        let frame_of = |index: u32| frames.get(index as usize);
        if self.stacks.len() >= MAX_STACKS {
            // Frames that are not known are not kept for a stack that is not.
            let numbers = stack.iter().map(|index| match frame_of(*index) {
                Some(frame) => self.frame_numbers.get(frame).copied(),
                None => Some(*index),
            });
            let known = numbers.collect::<Option<Vec<u32>>>();
            if let Some(number) = known.and_then(|known| self.stack_numbers.get(&known[..])) {
                return Some(*number);
            }
            if let Some(innermost) = stack.pop() {
                stack = vec![CUT_FRAME, innermost];
            }
        }
        for index in &mut stack {
            if let Some(frame) = frame_of(*index) {
                *index = self.number_of_frame(frame)?;
            }
        }
        if let Some(number) = self.stack_numbers.get(&stack[..]) {
            return Some(*number);
        }
        let (number, stack) = (self.stacks.len() as u32, Arc::from(stack));
        self.stacks.push(Arc::clone(&stack));
        self.stack_numbers.insert(stack, number);
        Some(number)
    }

    fn number_of_frame(&mut self, frame: &Frame) -> Option<u32> {
        if let Some(number) = self.frame_numbers.get(frame) {
            return Some(*number);
        }
        let number = self.frames.len() as u32;
        (self.frames.len() < MAX_FRAMES).then(|| {
            self.frames.push(frame.clone());
            self.frame_numbers.insert(frame.clone(), number);
            number
        })
    }

    /// The numbers of the frames of a stack, or `CUT_FRAME`.
    pub fn stack(&self, number: u32) -> &[u32] {
        self.stacks.get(number as usize).map_or(&[], |stack| stack)
    }

    pub fn frame(&self, number: u32) -> Option<&Frame> {
        self.frames.get(number as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: String) -> Frame {
        Frame { function, file: "app.py".into(), line: 1 }
    }

    #[test]
    fn a_stack_has_one_number_however_its_frames_are_numbered() {
        let mut kept = KeptStacks::default();
        let (main, work) = (frame("main".into()), frame("work".into()));
        let first = kept.number_of(vec![0, 1], &[main.clone(), work.clone()]);
        assert_eq!(kept.number_of(vec![1, 0], &[work.clone(), main.clone()]), first);
        let cut = kept.number_of(vec![CUT_FRAME, 0], std::slice::from_ref(&work));
        assert_ne!(cut, first);
        assert_eq!(kept.stack(cut.unwrap()), [CUT_FRAME, 1]);
        assert_eq!(kept.frame(1), Some(&work));
        let empty = kept.number_of(vec![], &[]).unwrap();
        assert!(kept.stack(empty).is_empty());
    }

    #[test]
    fn stacks_and_frames_are_bounded_and_those_that_are_kept_stay() {
        let mut kept = KeptStacks::default();
        let main = frame("main".into());
        let mut refused = 0;
        for number in 0..40_000 {
            let found = kept.number_of(vec![0, 1], &[main.clone(), frame(format!("f{number}"))]);
            refused += usize::from(found.is_none());
            assert!(kept.stacks.len() <= MAX_STACKS + MAX_FRAMES);
            assert!(kept.frames.len() <= MAX_FRAMES);
            assert_eq!(kept.number_of(vec![0, 1], &[main.clone(), frame("f0".into())]), Some(0));
        }
        assert!(refused > 0 && refused < 40_000);
        assert_eq!(kept.stack(MAX_STACKS as u32)[0], CUT_FRAME);
    }
}
