//! The description of a simulation: a machine, its GILs, and threads that follow scripts. Times are
//! in nanoseconds.
//!
//! The names are those of `lab/headway_lab/simulated/scenario.py`, which documents them.

use serde::Deserialize;

use crate::distribution::{Distribution, LONGEST_NS};
use crate::policies::PolicyName;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    pub machine: Machine,
    #[serde(default)]
    pub gils: Vec<GilSetting>,
    pub threads: Vec<ThreadSetting>,
    pub end_ns: f64,
    #[serde(default)]
    pub begin_ns: f64,
    #[serde(default = "one")]
    pub seed: u64,
    #[serde(default)]
    pub timeline_events: usize,
}

/// The cores, the operating system, and the costs of the parts of a switch.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    pub cores: usize,
    /// The time from a wakeup until the thread runs, on a core that was idle.
    pub wake_idle_ns: Distribution,
    /// As `wake_idle_ns`, on a core that had been idle for `long_idle_ns` or longer, and so is in a
    /// deeper sleep state.
    #[serde(default)]
    pub wake_idle_long_ns: Option<Distribution>,
    #[serde(default = "never")]
    pub long_idle_ns: f64,
    /// The cost of putting another thread on a core.
    pub switch_ns: Distribution,
    /// The additional time of the first system call of a thread that was on no core for
    /// `long_idle_ns`; a shorter absence has the corresponding part of it.
    #[serde(default = "none")]
    pub cold_ns: Distribution,
    /// The cost of waking a thread on an idle core, for the thread that wakes it.
    pub call_ns: Distribution,
    /// As `call_ns`, if the core is in a deeper sleep state.
    #[serde(default)]
    pub call_long_ns: Option<Distribution>,
    /// The time that a thread runs before another runnable thread has its turn (EEVDF's base
    /// slice).
    pub slice_ns: f64,
    /// The period at which the kernel checks whether a slice has ended.
    #[serde(default = "tick_ns")]
    pub tick_ns: f64,
    /// A thread that ran on a core less than this time ago is not moved from it
    /// (`sched_migration_cost_ns`).
    #[serde(default = "hot_ns")]
    pub hot_ns: f64,
    /// Interrupts or a hypervisor steal each core at intervals of this mean length, for
    /// `stolen_ns`.
    #[serde(default = "never")]
    pub stolen_every_ns: f64,
    #[serde(default = "none")]
    pub stolen_ns: Distribution,
    /// The delay of timed waits and sleeps by Linux's timer slack.
    pub timer_slack_ns: f64,
    /// The time from a drop request until a thread that runs Python code sees it.
    pub check_ns: Distribution,
    pub take_ns: Distribution,
    pub drop_ns: Distribution,
    /// Under a live policy: the additional time of a take after a wait or while others wait, and of
    /// a drop while others wait.
    #[serde(default = "none")]
    pub contended_ns: Distribution,
    /// As `check_ns`, for a request under a live policy.
    #[serde(default)]
    pub answer_ns: Option<Distribution>,
    /// The time for which the next waiter under a policy spins before it sleeps.
    #[serde(default = "spin_ns")]
    pub spin_ns: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GilSetting {
    #[serde(deserialize_with = "policy_name")]
    pub policy: PolicyName,
    pub switch_interval_ns: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadSetting {
    pub name: String,
    pub script: Vec<Step>,
    #[serde(default)]
    pub gil: Option<usize>,
    #[serde(default)]
    pub once: bool,
    #[serde(default)]
    pub starts_ns: f64,
    /// The cores that the thread may run on; an empty list allows all.
    #[serde(default)]
    pub cores: Vec<usize>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    Compute(Distribution),
    ComputeUntil(Distribution),
    Call(Distribution),
    System(Distribution),
    Sleep(Distribution),
    Receive(usize, Distribution),
    Reply(Distribution),
    Answer(Distribution),
    Ask(usize, Distribution),
    Send(usize, Distribution),
    Begin,
    End,
}

fn one() -> u64 {
    1
}

fn tick_ns() -> f64 {
    4e6
}

fn never() -> f64 {
    LONGEST_NS
}

fn none() -> Distribution {
    Distribution::Always(0.0)
}

fn hot_ns() -> f64 {
    5e5
}

/// The value of `crates/gil`.
fn spin_ns() -> f64 {
    2e4
}

fn policy_name<'de, D: serde::Deserializer<'de>>(from: D) -> Result<PolicyName, D::Error> {
    let name = String::deserialize(from)?;
    PolicyName::named(&name).ok_or_else(|| {
        let known = PolicyName::ALL.map(PolicyName::as_str).join(", ");
        serde::de::Error::custom(format!("policy {name:?}: there are {known}"))
    })
}

/// The shortest period of a recurring event.
const SHORTEST_NS: f64 = 1e3;
/// The limit of list lengths. A longer list is a mistake.
const MOST: usize = 1_000;

impl Scenario {
    /// Checks whether the scenario is valid. The error names the first invalid part and the reason.
    pub fn check(&self) -> Result<(), String> {
        let machine = &self.machine;
        within("machine.cores", machine.cores as f64, 1.0, 64.0)?;
        within("machine.slice_ns", machine.slice_ns, 1.0, LONGEST_NS)?;
        within("machine.tick_ns", machine.tick_ns, SHORTEST_NS, LONGEST_NS)?;
        within("machine.hot_ns", machine.hot_ns, 0.0, LONGEST_NS)?;
        within("machine.stolen_every_ns", machine.stolen_every_ns, SHORTEST_NS, LONGEST_NS)?;
        within("machine.timer_slack_ns", machine.timer_slack_ns, 0.0, LONGEST_NS)?;
        within("machine.spin_ns", machine.spin_ns, 0.0, LONGEST_NS)?;
        within("machine.long_idle_ns", machine.long_idle_ns, 0.0, LONGEST_NS)?;
        let wake_idle_long_ns = machine.wake_idle_long_ns.as_ref().unwrap_or(&machine.wake_idle_ns);
        let call_long_ns = machine.call_long_ns.as_ref().unwrap_or(&machine.call_ns);
        for (name, distribution) in [
            ("wake_idle_ns", &machine.wake_idle_ns),
            ("wake_idle_long_ns", wake_idle_long_ns),
            ("call_long_ns", call_long_ns),
            ("switch_ns", &machine.switch_ns),
            ("stolen_ns", &machine.stolen_ns),
            ("cold_ns", &machine.cold_ns),
            ("call_ns", &machine.call_ns),
            ("check_ns", &machine.check_ns),
            ("take_ns", &machine.take_ns),
            ("drop_ns", &machine.drop_ns),
            ("contended_ns", &machine.contended_ns),
            ("answer_ns", machine.answer_ns.as_ref().unwrap_or(&machine.check_ns)),
        ] {
            distribution.check().map_err(|why| format!("machine.{name}: {why}"))?;
        }
        within("end_ns", self.end_ns, 1.0, LONGEST_NS)?;
        within("begin_ns", self.begin_ns, 0.0, self.end_ns)?;
        within("gils", self.gils.len() as f64, 0.0, MOST as f64)?;
        within("threads", self.threads.len() as f64, 1.0, MOST as f64)?;
        for (index, gil) in self.gils.iter().enumerate() {
            let name = format!("gils[{index}].switch_interval_ns");
            within(&name, gil.switch_interval_ns, 1.0, LONGEST_NS)?;
        }
        for (index, thread) in self.threads.iter().enumerate() {
            self.check_thread(thread).map_err(|why| format!("threads[{index}].{why}"))?;
        }
        Ok(())
    }

    fn check_thread(&self, thread: &ThreadSetting) -> Result<(), String> {
        if thread.gil.is_some_and(|gil| gil >= self.gils.len()) {
            return Err(format!("gil: there are {}", self.gils.len()));
        }
        if thread.cores.iter().any(|core| *core >= self.machine.cores) {
            return Err(format!("cores: there are {}", self.machine.cores));
        }
        within("starts_ns", thread.starts_ns, 0.0, LONGEST_NS)?;
        let mut takes_time = thread.once;
        for (index, step) in thread.script.iter().enumerate() {
            let within_step = |why| format!("script[{index}]: {why}");
            if let Some(distribution) = step.distribution() {
                distribution.check().map_err(within_step)?;
                takes_time |= distribution.takes_time();
            }
            if step.channel().is_some_and(|channel| channel >= MOST) {
                return Err(within_step(format!("there may be {MOST} channels")));
            }
        }
        match takes_time {
            true => Ok(()),
            false => Err("script: it takes no time and would be repeated without end".into()),
        }
    }
}

impl Step {
    fn distribution(&self) -> Option<&Distribution> {
        match self {
            Self::Compute(ns)
            | Self::ComputeUntil(ns)
            | Self::Call(ns)
            | Self::System(ns)
            | Self::Sleep(ns)
            | Self::Receive(_, ns)
            | Self::Reply(ns)
            | Self::Answer(ns)
            | Self::Ask(_, ns)
            | Self::Send(_, ns) => Some(ns),
            Self::Begin | Self::End => None,
        }
    }

    pub fn channel(&self) -> Option<usize> {
        match self {
            Self::Receive(channel, _) | Self::Ask(channel, _) | Self::Send(channel, _) => {
                Some(*channel)
            }
            _ => None,
        }
    }
}

fn within(name: &str, value: f64, least: f64, most: f64) -> Result<(), String> {
    match value.is_finite() && (least..=most).contains(&value) {
        true => Ok(()),
        false => Err(format!("{name}: found {value}; it is from {least} to {most}")),
    }
}
