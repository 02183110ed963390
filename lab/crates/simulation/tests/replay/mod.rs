//! A replay of a run from its timeline. Each moment must be possible after the moments before it,
//! and the sums over the moments must equal the counters of the outcome.
#![allow(dead_code)] // Each test file is a separate crate and uses only a part of this module.

use std::collections::BTreeSet;

use headway_simulation::{Moment, Outcome, Scenario};

#[derive(Clone, Debug, Default)]
pub struct GilReplay {
    holder: Option<usize>,
    last_holder: Option<usize>,
    waiters: BTreeSet<usize>,
    pub held_ns: u64,
    pub contended_ns: u64,
    pub handoff_ns: u64,
    /// The longest uninterrupted time in which the GIL was free while a thread waited.
    pub longest_handoff_ns: u64,
    pub switches: u64,
    free_since_ns: u64,
}

#[derive(Clone, Debug, Default)]
pub struct ThreadReplay {
    runs_since_ns: Option<u64>,
    pub waits_since_ns: Option<u64>,
    in_forced_wait: bool,
    pub on_core_ns: u64,
    pub held_ns: u64,
    pub takes: u64,
    pub contended_takes: u64,
    pub wait_ns: u64,
    /// The longest wait, including a wait that has not ended when the run ends.
    pub longest_wait_ns: u64,
    pub drops: u64,
    pub asked: u64,
}

#[derive(Debug)]
pub struct Replay<'a> {
    scenario: &'a Scenario,
    now_ns: u64,
    pub gils: Vec<GilReplay>,
    pub threads: Vec<ThreadReplay>,
}

impl<'a> Replay<'a> {
    /// Replays a run. Panics at the first moment that is impossible. The window must begin with the
    /// run.
    pub fn of(scenario: &'a Scenario, outcome: &Outcome) -> Self {
        assert_eq!((scenario.begin_ns, outcome.timeline_lost), (0.0, 0), "moments are missing");
        let mut replay = Self {
            scenario,
            now_ns: 0,
            gils: vec![GilReplay::default(); scenario.gils.len()],
            threads: vec![ThreadReplay::default(); scenario.threads.len()],
        };
        for (at_ns, thread, moment) in &outcome.timeline {
            replay.pass(*at_ns);
            replay.follow(*thread, *moment);
        }
        replay.pass(outcome.ended_ns);
        replay
    }

    pub fn holder(&self, gil: usize) -> Option<usize> {
        self.gils[gil].holder
    }

    fn pass(&mut self, at_ns: u64) {
        assert!(at_ns >= self.now_ns, "time runs back from {} to {at_ns}", self.now_ns);
        let ns = at_ns - self.now_ns;
        self.now_ns = at_ns;
        for gil in &mut self.gils {
            let contended = !gil.waiters.is_empty();
            match gil.holder {
                Some(holder) => {
                    gil.held_ns += ns;
                    self.threads[holder].held_ns += ns;
                    gil.contended_ns += if contended { ns } else { 0 };
                }
                None if contended => {
                    gil.handoff_ns += ns;
                    let free_ns = at_ns - gil.free_since_ns;
                    gil.longest_handoff_ns = gil.longest_handoff_ns.max(free_ns);
                }
                None => {}
            }
        }
        for thread in &mut self.threads {
            let waited_ns = thread.waits_since_ns.map_or(0, |since_ns| at_ns - since_ns);
            thread.longest_wait_ns = thread.longest_wait_ns.max(waited_ns);
            thread.on_core_ns += if thread.runs_since_ns.is_some() { ns } else { 0 };
        }
    }

    fn follow(&mut self, id: usize, moment: Moment) {
        let (now_ns, place) = (self.now_ns, (self.now_ns, id, moment));
        let thread = &mut self.threads[id];
        match moment {
            Moment::Run => {
                assert!(thread.runs_since_ns.replace(now_ns).is_none(), "{place:?}: it runs");
                return self.check_cores();
            }
            Moment::Stop => {
                assert!(thread.runs_since_ns.take().is_some(), "{place:?}: does not run");
                return;
            }
            Moment::ForcedWaitOver => {
                assert!(std::mem::take(&mut thread.in_forced_wait), "{place:?}: no forced wait");
                return;
            }
            _ => assert!(thread.runs_since_ns.is_some(), "{place:?}: not on a core"),
        }
        assert!(!thread.in_forced_wait, "{place:?}: in a forced wait");
        let Some(gil) = self.scenario.threads[id].gil else {
            assert!(matches!(moment, Moment::Begin | Moment::End), "{place:?}: without a GIL");
            return;
        };
        let gil = &mut self.gils[gil];
        match moment {
            Moment::Wait => {
                assert!(gil.holder.is_some_and(|holder| holder != id), "{place:?}: not held");
                assert!(thread.waits_since_ns.replace(now_ns).is_none(), "{place:?}: it waits");
                gil.waiters.insert(id);
            }
            Moment::Take => {
                assert_eq!(gil.holder, None, "{place:?}: two threads hold");
                gil.holder = Some(id);
                gil.waiters.remove(&id);
                gil.switches += u64::from(gil.last_holder.replace(id) != Some(id));
                thread.takes += 1;
                if let Some(since_ns) = thread.waits_since_ns.take() {
                    thread.contended_takes += 1;
                    thread.wait_ns += now_ns - since_ns;
                }
            }
            Moment::Drop | Moment::ForcedDrop => {
                assert_eq!(gil.holder.take(), Some(id), "{place:?}: does not hold");
                gil.free_since_ns = now_ns;
                thread.drops += 1;
            }
            Moment::Ask => {
                assert!(gil.holder.is_some(), "{place:?}: no thread holds");
                assert!(thread.waits_since_ns.is_some(), "{place:?}: does not wait");
                thread.asked += 1;
            }
            Moment::ForcedWait => thread.in_forced_wait = true,
            Moment::Begin | Moment::End => {
                assert_eq!(gil.holder, Some(id), "{place:?}: Python code without the GIL");
            }
            Moment::Run | Moment::Stop | Moment::ForcedWaitOver => unreachable!(),
        }
    }

    /// Checks that no more threads run than there are cores, and that no more threads run that are
    /// restricted to a set of cores than the set contains.
    fn check_cores(&self) {
        let threads = &self.scenario.threads;
        let runs = |id: &usize| self.threads[*id].runs_since_ns.is_some();
        let running: Vec<usize> = (0..threads.len()).filter(runs).collect();
        let cores = self.scenario.machine.cores;
        assert!(running.len() <= cores, "{running:?} run on {cores} cores at {}", self.now_ns);
        for some in threads.iter().map(|thread| &thread.cores).filter(|some| !some.is_empty()) {
            let within = |id: &&usize| {
                let mine = &threads[**id].cores;
                !mine.is_empty() && mine.iter().all(|core| some.contains(core))
            };
            let count = running.iter().filter(within).count();
            assert!(count <= some.len(), "{count} run on {some:?} at {}", self.now_ns);
        }
    }
}
