//! The counters of a run, within the window from `begin_ns` to `end_ns`.

use serde::Serialize;

/// The number of quantiles that describe samples, from the least to the greatest.
const QUANTILES: usize = 1_001;

#[derive(Debug)]
pub struct Counters {
    begin_ns: u64,
    end_ns: u64,
    pub threads: Vec<ThreadCounters>,
    pub gils: Vec<GilCounters>,
}

#[derive(Debug, Default, Serialize)]
pub struct ThreadCounters {
    pub name: String,
    pub cpu_ns: u64,
    pub computed_ns: u64,
    pub held_ns: u64,
    pub takes: u64,
    pub contended_takes: u64,
    pub forced_drops: u64,
    pub voluntary_drops: u64,
    /// The number of drop requests that the thread made.
    pub asked: u64,
    /// The number of requests of the script. A request at an end of the window counts as a
    /// fraction.
    pub requests: f64,
    pub finished_ns: Option<u64>,
    pub wait_ns: Samples,
    pub hold_ns: Samples,
    pub request_ns: Samples,
    /// The times from the beginning of an `ask` until its answer.
    pub answer_ns: Samples,
}

#[derive(Debug, Default, Serialize)]
pub struct GilCounters {
    pub held_ns: u64,
    /// The time held while another thread waits.
    pub contended_ns: u64,
    /// The time free while a thread waits.
    pub handoff_ns: u64,
    pub switches: u64,
    pub drop_requests: u64,
    #[serde(skip)]
    contended_since_ns: u64,
    #[serde(skip)]
    free_since_ns: u64,
}

impl Counters {
    pub fn new(begin_ns: u64, end_ns: u64, names: Vec<String>, gils: usize) -> Self {
        let counters = |name| ThreadCounters { name, ..ThreadCounters::default() };
        Self {
            begin_ns,
            end_ns,
            threads: names.into_iter().map(counters).collect(),
            gils: (0..gils).map(|_| GilCounters::default()).collect(),
        }
    }

    pub fn is_open(&self, now_ns: u64) -> bool {
        (self.begin_ns..=self.end_ns).contains(&now_ns)
    }

    /// Returns the part of an interval that lies in the window.
    pub fn inside_ns(&self, from_ns: u64, to_ns: u64) -> u64 {
        to_ns.min(self.end_ns).saturating_sub(from_ns.max(self.begin_ns))
    }

    pub fn used(&mut self, thread: usize, from_ns: u64, to_ns: u64, computing: bool) {
        let ns = self.inside_ns(from_ns, to_ns);
        self.threads[thread].cpu_ns += ns;
        self.threads[thread].computed_ns += if computing { ns } else { 0 };
    }

    /// Counts a thread that begins to wait beside `others` waiters.
    pub fn contended(&mut self, gil: usize, others: usize, now_ns: u64) {
        if others == 0 {
            self.gils[gil].contended_since_ns = now_ns;
        }
    }

    /// Counts a take of a GIL. `waiters` includes the taker if it waited.
    pub fn taken(&mut self, gil: usize, waiters: usize, switched: bool, now_ns: u64) {
        let open = self.is_open(now_ns);
        let free_ns = self.inside_ns(self.gils[gil].free_since_ns, now_ns);
        let counters = &mut self.gils[gil];
        if waiters > 0 {
            counters.handoff_ns += free_ns;
            counters.contended_since_ns = now_ns;
        }
        counters.switches += u64::from(switched && open);
    }

    pub fn freed(&mut self, gil: usize, waiters: usize, now_ns: u64) {
        let contended_ns = self.inside_ns(self.gils[gil].contended_since_ns, now_ns);
        let counters = &mut self.gils[gil];
        counters.free_since_ns = now_ns;
        if waiters > 0 {
            counters.contended_ns += contended_ns;
        }
    }

    /// Counts the state of a GIL at the end of the run.
    pub fn ends(&mut self, gil: usize, held: bool, waiters: usize, ended_ns: u64) {
        if waiters > 0 && held {
            let contended_ns = self.inside_ns(self.gils[gil].contended_since_ns, ended_ns);
            self.gils[gil].contended_ns += contended_ns;
        } else if waiters > 0 {
            let free_ns = self.inside_ns(self.gils[gil].free_since_ns, ended_ns);
            self.gils[gil].handoff_ns += free_ns;
        }
    }

    pub fn took(&mut self, thread: usize, waited_since_ns: Option<u64>, now_ns: u64) {
        if self.is_open(now_ns) {
            let counters = &mut self.threads[thread];
            counters.takes += 1;
            if let Some(since_ns) = waited_since_ns {
                counters.contended_takes += 1;
                counters.wait_ns.push(now_ns - since_ns);
            }
        }
    }

    pub fn dropped(&mut self, thread: usize, gil: usize, taken_ns: u64, forced: bool, now_ns: u64) {
        let held_ns = self.inside_ns(taken_ns, now_ns);
        self.threads[thread].held_ns += held_ns;
        self.gils[gil].held_ns += held_ns;
        if self.is_open(now_ns) {
            let counters = &mut self.threads[thread];
            counters.hold_ns.push(now_ns - taken_ns);
            *if forced { &mut counters.forced_drops } else { &mut counters.voluntary_drops } += 1;
        }
    }

    pub fn asked(&mut self, thread: usize, gil: usize, now_ns: u64) {
        if self.is_open(now_ns) {
            self.threads[thread].asked += 1;
            self.gils[gil].drop_requests += 1;
        }
    }

    pub fn answered(&mut self, thread: usize, asked_ns: u64, now_ns: u64) {
        if self.is_open(now_ns) {
            self.threads[thread].answer_ns.push(now_ns - asked_ns);
        }
    }

    pub fn ended(&mut self, thread: usize, began_ns: u64, now_ns: u64) {
        let (inside_ns, ns) = (self.inside_ns(began_ns, now_ns), now_ns - began_ns);
        let open = self.is_open(now_ns);
        let counters = &mut self.threads[thread];
        if ns > 0 {
            counters.requests += inside_ns as f64 / ns as f64;
        } else if open {
            counters.requests += 1.0;
        }
        if open {
            counters.request_ns.push(ns);
        }
    }
}

/// The samples of one kind of time.
#[derive(Debug, Default)]
pub struct Samples(Vec<u64>);

impl Samples {
    fn push(&mut self, ns: u64) {
        self.0.push(ns);
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    pub fn sum_ns(&self) -> u64 {
        self.0.iter().sum()
    }

    pub fn max_ns(&self) -> u64 {
        self.0.iter().copied().max().unwrap_or(0)
    }
}

impl Serialize for Samples {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut ordered = self.0.clone();
        ordered.sort_unstable();
        let quantile = |place: usize| ordered[place * (ordered.len() - 1) / (QUANTILES - 1)];
        let quantiles: Vec<u64> = match ordered.len() {
            0 => Vec::new(),
            _ => (0..QUANTILES).map(quantile).collect(),
        };
        let mut fields = to.serialize_struct("Samples", 4)?;
        fields.serialize_field("count", &self.count())?;
        fields.serialize_field("sum_ns", &self.sum_ns())?;
        fields.serialize_field("max_ns", &self.max_ns())?;
        fields.serialize_field("quantiles_ns", &quantiles)?;
        fields.end()
    }
}
