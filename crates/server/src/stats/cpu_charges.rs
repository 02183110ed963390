//! The CPU time of a thread, divided among its requests.

use headway_measure::clock::thread_cpu_ns;

/// The CPU time of one thread, divided among the requests that it runs.
///
/// Reading the CPU clock needs a system call, which is expensive compared with a request of
/// microseconds. Therefore a short request is charged its elapsed time. After each long request,
/// and after a number of short ones, the clock is read and the difference is charged or credited.
/// All charges add up to the CPU time of the thread, polling included.
#[derive(Debug)]
pub struct CpuCharges {
    read_ns: u64,
    /// The charges since that reading, plus the excess of earlier charges that is not yet credited.
    charged_ns: u64,
    unread: u32,
}

impl CpuCharges {
    /// The elapsed time from which a request may have been waiting instead of computing.
    const LONG_NS: u64 = 200_000;
    const MAX_UNREAD: u32 = 16;

    /// Begins the account of the calling thread.
    pub fn of_this_thread() -> Self {
        Self { read_ns: thread_cpu_ns(), charged_ns: 0, unread: 0 }
    }

    /// Returns the CPU time charged to a request of this thread that has just ended after
    /// `elapsed_ns`.
    pub fn charge(&mut self, elapsed_ns: u64) -> u64 {
        self.unread += 1;
        if elapsed_ns < Self::LONG_NS && self.unread < Self::MAX_UNREAD {
            self.charged_ns += elapsed_ns;
            return elapsed_ns;
        }
        self.settle(thread_cpu_ns())
    }

    fn settle(&mut self, now_ns: u64) -> u64 {
        let used_ns = now_ns - std::mem::replace(&mut self.read_ns, now_ns);
        self.unread = 0;
        let charge_ns = used_ns.saturating_sub(self.charged_ns);
        self.charged_ns = self.charged_ns.saturating_sub(used_ns);
        charge_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_add_up_to_the_cpu_time() {
        let mut charges = CpuCharges { read_ns: 1_000, charged_ns: 0, unread: 0 };
        let mut sum_ns = charges.charge(300) + charges.charge(500);
        assert_eq!(sum_ns, 800);
        sum_ns += charges.settle(2_500);
        assert_eq!(sum_ns, 1_500, "polling between requests is charged too");
        // Ten times as much time passed as CPU time was used: the thread was preempted.
        sum_ns += charges.charge(1_000);
        sum_ns += charges.settle(2_600);
        sum_ns += charges.settle(4_000);
        assert_eq!(sum_ns, 3_000);
    }
}
