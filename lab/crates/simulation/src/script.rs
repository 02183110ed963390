//! The steps of a script and the messages between threads: what a thread does after each stage.

use std::collections::VecDeque;

use crate::Simulation;
use crate::scenario::Step;
use crate::task::{AfterDrop, Run, Stage, StepId, TaskId};
use crate::timeline::Moment;

/// The messages that no thread has received, each with its sender if that waits for an answer, and
/// the threads that wait for a message.
#[derive(Debug, Default)]
pub struct Channel {
    messages: VecDeque<Option<TaskId>>,
    receivers: VecDeque<TaskId>,
}

impl Simulation {
    /// Advances the current thread of a core, which has used up the time of its stage.
    pub(super) fn advance(&mut self, id: TaskId) {
        while self.tasks[id].run == Run::Running && self.tasks[id].left_ns == 0 {
            self.next_stage(id);
        }
        if self.tasks[id].run == Run::Running {
            self.plan_core(self.tasks[id].core);
        }
    }

    fn next_stage(&mut self, id: TaskId) {
        match self.tasks[id].stage {
            Stage::Next => self.next_step(id),
            Stage::Compute if self.tasks[id].compute_left_ns == 0 => {
                self.tasks[id].stage = Stage::Next;
            }
            Stage::Compute => self.check(id),
            Stage::Call => self.after_call(id),
            Stage::Answering => {
                self.answer(id);
                self.after_call(id);
            }
            Stage::Take | Stage::WaitForGil => self.try_take(id),
            Stage::Taken => self.after_take(id),
            Stage::SpinForGil => self.sleep_for_gil(id),
            Stage::Drop => self.drop_gil(id),
            Stage::Dropped => self.after_drop(id),
            Stage::SpinForSwitch => self.sleep_for_switch(id),
            Stage::WaitForSwitch => self.run_errand(id),
            Stage::Away | Stage::Back | Stage::WaitForAnswer => self.begin_take(id),
            Stage::WaitForMessage => self.received(id),
            Stage::Asking => self.send(id),
            Stage::Replying => self.replied(id),
        }
    }

    fn next_step(&mut self, id: TaskId) {
        let this = self.tasks[id].next_step;
        let length = self.tasks[id].setting.script.len();
        if this == length {
            return self.begin_drop(id, AfterDrop::End);
        }
        let task = &mut self.tasks[id];
        task.next_step = this + 1;
        if this + 1 == length && !task.setting.once {
            task.next_step = 0;
        }
        match &task.setting.script[this] {
            Step::Compute(ns) => {
                task.compute_left_ns = ns.sample_ns(&mut self.random);
                task.until_ns = None;
                task.stage = Stage::Compute;
                self.plan_compute(id);
            }
            Step::ComputeUntil(ns) => {
                let since_ns = task.began_ns.unwrap_or(self.now_ns);
                let until_ns = since_ns + ns.sample_ns(&mut self.random);
                task.compute_left_ns = until_ns.saturating_sub(self.now_ns);
                task.until_ns = Some(until_ns);
                task.stage = Stage::Compute;
                self.plan_compute(id);
            }
            Step::Call(ns) => {
                task.left_ns = ns.sample_ns(&mut self.random);
                task.stage = Stage::Call;
            }
            Step::Answer(ns) => {
                task.left_ns = ns.sample_ns(&mut self.random);
                task.stage = Stage::Answering;
            }
            Step::Begin => {
                task.began_ns = Some(self.now_ns);
                self.note(id, Moment::Begin);
            }
            Step::End => {
                if let Some(began_ns) = task.began_ns.take() {
                    self.counters.ended(id, began_ns, self.now_ns);
                    self.note(id, Moment::End);
                }
            }
            _ => self.begin_drop(id, AfterDrop::Step(this)),
        }
    }

    /// Begins the step for which the thread dropped the GIL.
    pub(super) fn begin_step_without_gil(&mut self, id: TaskId, step: StepId) {
        let random = &mut self.random;
        let task = &mut self.tasks[id];
        let (stage, ns) = match &task.setting.script[step] {
            Step::System(ns) => (Stage::Away, ns),
            Step::Reply(ns) => (Stage::Replying, ns),
            Step::Ask(_, ns) | Step::Send(_, ns) => (Stage::Asking, ns),
            Step::Sleep(ns) => {
                let until_ns = self.now_ns + ns.sample_ns(random);
                task.stage = Stage::Back;
                self.block(id);
                return self.start_timer(id, until_ns);
            }
            Step::Receive(channel, _) => {
                let channel = &mut self.channels[*channel];
                task.stage = Stage::WaitForMessage;
                match channel.messages.pop_front() {
                    Some(asked_by) => task.asked_by = asked_by,
                    None => {
                        channel.receivers.push_back(id);
                        self.block(id);
                    }
                }
                return;
            }
            _ => unreachable!("other steps need no drop"),
        };
        task.stage = stage;
        task.asked_since_ns = self.now_ns;
        task.left_ns = ns.sample_ns(random);
        self.add_cold_ns(id);
    }

    /// Adds the time by which a thread's first system call takes longer after an absence. A call
    /// that has waited has it after its wait.
    fn add_cold_ns(&mut self, id: TaskId) {
        let task = &mut self.tasks[id];
        let coldness = std::mem::take(&mut task.coldness);
        if coldness > 0.0 {
            let cold_ns = self.scenario.machine.cold_ns.sample_ns(&mut self.random);
            task.left_ns += (cold_ns as f64 * coldness) as u64;
        }
    }

    fn received(&mut self, id: TaskId) {
        if let Some(Step::Receive(_, ns)) = self.step_of_errand(id) {
            let ns = ns.sample_ns(&mut self.random);
            self.tasks[id].left_ns = ns;
            self.add_cold_ns(id);
        }
        self.tasks[id].stage = Stage::Back;
    }

    /// Finishes a thread whose script has ended and that has dropped the GIL.
    pub(super) fn end_script(&mut self, id: TaskId) {
        self.counters.threads[id].finished_ns = Some(self.now_ns);
        self.unfinished -= 1;
        self.finish(id);
    }

    fn step_of_errand(&self, id: TaskId) -> Option<Step> {
        match self.tasks[id].after_drop {
            AfterDrop::Step(step) => Some(self.tasks[id].setting.script[step].clone()),
            _ => None,
        }
    }

    /// Sends the message of the present step.
    fn send(&mut self, id: TaskId) {
        let (channel, answer) = match self.step_of_errand(id) {
            Some(Step::Ask(channel, _)) => (channel, Some(id)),
            Some(Step::Send(channel, _)) => (channel, None),
            _ => unreachable!("only these steps send"),
        };
        let receiver = self.channels[channel].receivers.pop_front();
        match receiver {
            Some(receiver) => {
                self.tasks[receiver].asked_by = answer;
                let cost_ns = self.wake(receiver, Some(self.tasks[id].core), true);
                // A thread that waits for the answer has no other work meanwhile, so the cost of
                // the wakeup delays nothing.
                self.tasks[id].left_ns = if answer.is_some() { 0 } else { cost_ns };
            }
            None => self.channels[channel].messages.push_back(answer),
        }
        if answer.is_some() {
            self.tasks[id].stage = Stage::WaitForAnswer;
            self.block(id);
        } else {
            self.tasks[id].stage = Stage::Back;
        }
    }

    fn replied(&mut self, id: TaskId) {
        self.tasks[id].stage = Stage::Back;
        self.answer(id);
    }

    /// Wakes the thread that waits for an answer to the message that was received last.
    fn answer(&mut self, id: TaskId) {
        if let Some(asker) = self.tasks[id].asked_by.take() {
            self.counters.answered(asker, self.tasks[asker].asked_since_ns, self.now_ns);
            let cost_ns = self.wake(asker, Some(self.tasks[id].core), true);
            self.tasks[id].left_ns += cost_ns;
        }
    }
}
