//! A server as Python holds it: Python opens it, runs its worker threads, stops it and reads its
//! counters.

use crate::interpreters::interpreter::Interpreter;
use crate::interpreters::mounts::ApplicationGroups;
use crate::limits::inbox::Received;
use crate::limits::{SlowRequests, Threads};
use crate::pool::{Pool, PoolSettings};
use crate::stats::{PathTables, ServerStats};
use crate::stderr::note_journal;
use crate::wsgi::interruption::interrupt;
use headway_python::attached::Attached;
use headway_python::object::PyResult;
use headway_reporter::stacks;
use headway_threads::internal_thread::{self, InternalThread};
use headway_threads::lock::Lock;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The worker threads are Python's (`threading.Thread`), so that their thread states, names and
/// thread-locals are as anywhere in Python.
pub struct Server {
    pool: Arc<Pool<ApplicationGroups>>,
    /// Joined on drop.
    monitor: Lock<Option<InternalThread>>,
}

impl Server {
    pub fn open(groups: ApplicationGroups, settings: PoolSettings) -> io::Result<Self> {
        note_journal();
        let pool = Arc::new(Pool::new(groups, settings)?);
        let monitored = Arc::clone(&pool);
        let monitor = internal_thread::spawn("headway-monitor", move || monitored.monitor())?;
        Ok(Self { pool, monitor: Lock::new(Some(monitor)) })
    }

    pub fn groups(&self) -> &ApplicationGroups {
        self.pool.application()
    }

    /// Serves in the calling thread until the server has stopped.
    pub fn work(&self, py: Attached) -> PyResult<()> {
        let mut thread = self.groups().join(py)?;
        py.detach(|| {
            let present = cfg!(not(Py_3_12)).then(stacks::join);
            self.pool.work(&mut thread);
            self.groups().leave(&mut thread);
            present.iter().for_each(stacks::leave);
        });
        // Dropped attached, so that its objects give their references back.
        drop(thread);
        Ok(())
    }

    /// Waits for an interpreter slot that needs an interpreter, until the server is over.
    pub fn next_wanted(&self, timeout: Duration) -> Received<usize> {
        self.groups().wanted.wait(timeout, || self.pool.is_over())
    }

    /// See `Interpreter::retire`.
    pub fn retire(&self, interpreter: &Interpreter, timeout: Duration) -> bool {
        interpreter.retire(timeout, || {
            self.groups().drain();
            self.pool.request_quiesce();
        })
    }

    /// Stops accepting. `work` returns when the requests in flight are answered and the idle
    /// connections are closed, which are kept for up to `keep_idle_ns`.
    pub fn stop(&self, keep_idle_ns: u64) {
        self.pool.stop(keep_idle_ns);
    }

    /// Makes `work` return as soon as the application does, which is asked for no more of a
    /// stream.
    pub fn abort(&self) {
        self.groups().end();
        self.pool.abort();
    }

    /// The requests that `abort` has cut off, once `work` has returned in all threads.
    pub fn cut_off(&self) -> u32 {
        self.pool.cut_off()
    }

    /// Waits for a request that exceeds interrupt-timeout, and sets an exception in its thread.
    /// False once the server is over. Called by a thread of its own.
    pub fn interrupt_next(&self, py: Attached) -> bool {
        // A sub-interpreter is entered without being attached to the caller's interpreter first: up
        // to CPython 3.12 a thread that waits for a GIL which interpreters share asks only threads
        // of its own interpreter to drop it.
        let in_main = py.detach(|| {
            let interruption = self.pool.next_interruption()?;
            let interpreter = self.groups().interpreter(interruption.interpreter_number());
            Some(interpreter.and_then(|interpreter| {
                if interpreter.is_main() {
                    return interpreter.adapter().map(|adapter| (interruption, adapter));
                }
                interpreter
                    .visit(|py, adapter| interrupt(py, &interruption, adapter.interruption()));
                None
            }))
        });
        let Some(in_main) = in_main else { return false };
        if let Some((interruption, adapter)) = in_main {
            interrupt(py, &interruption, adapter.interruption());
        }
        true
    }

    pub fn stats(&self) -> &ServerStats {
        self.pool.stats()
    }

    pub fn requests(&self) -> PathTables {
        self.pool.requests()
    }

    /// The worker threads and their requests; holds no Python objects.
    pub fn threads(&self) -> &Arc<Threads> {
        &self.pool.limits().threads
    }

    /// Slow requests, if they are reported; holds no Python objects.
    pub fn slow_requests(&self) -> Option<&Arc<SlowRequests>> {
        self.pool.limits().slow_requests.as_ref()
    }

    /// The counters of requests; holds no Python objects.
    pub fn counters(&self) -> &Arc<ServerStats> {
        self.pool.stats()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.pool.abort();
        // The monitor uses no Python objects, so it can be joined with the GIL held. It has a
        // reference to the pool: joined first, it cannot be the thread that drops the pool's
        // objects.
        let monitor = self.monitor.lock().take();
        if let Some(monitor) = monitor {
            monitor.join();
        }
    }
}
