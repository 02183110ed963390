//! A server as Python holds it: opened, worked by Python's own threads, stopped, asked.

use crate::interpreters::interpreter::Interpreter;
use crate::interpreters::mounts::ApplicationGroups;
use crate::limits::inbox::Received;
use crate::limits::{Interruption, SlowRequests, Threads, note_journal};
use crate::pool::{Pool, PoolSettings};
use crate::stats::{Books, PathTables};
use headway_python::object::PyResult;
use headway_reporter::stacks;
use pyo3_ffi::*;
use std::io;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Made and dropped with a thread state attached. The worker threads are Python's
/// (`threading.Thread`), so that their states, names and thread-locals are as anywhere in Python.
pub struct Server {
    pool: Arc<Pool<ApplicationGroups>>,
    /// Joined on drop.
    monitor: Mutex<Option<JoinHandle<()>>>,
}

impl Server {
    pub fn open(groups: ApplicationGroups, settings: PoolSettings) -> io::Result<Self> {
        note_journal();
        let pool = Arc::new(Pool::new(groups, settings)?);
        let monitored = Arc::clone(&pool);
        let monitor = std::thread::Builder::new()
            .name("headway-monitor".into())
            .spawn(move || monitored.monitor())?;
        Ok(Self { pool, monitor: Mutex::new(Some(monitor)) })
    }

    pub fn groups(&self) -> &ApplicationGroups {
        self.pool.application()
    }

    /// Serves on the calling thread until the server has stopped. Called attached; detaches.
    pub fn work(&self) -> PyResult<()> {
        // SAFETY: attached on entry (a Python thread called), so attached on exit: what this thread keeps
        // in its own interpreter is made and dropped so.
        unsafe {
            let mut thread = self.groups().join(PyThreadState_Get())?;
            let state = PyEval_SaveThread();
            let present = cfg!(not(Py_3_12)).then(stacks::join);
            self.pool.work(&mut thread);
            self.groups().leave(&mut thread);
            present.iter().for_each(stacks::leave);
            PyEval_RestoreThread(state);
        }
        Ok(())
    }

    /// A place in `groups` that needs an interpreter, waited for until the server is over.
    pub fn next_wanted(&self, patience: Duration) -> Received<usize> {
        self.groups().wanted.wait(patience, || self.pool.is_over())
    }

    /// See `Interpreter::retire`.
    pub fn retire(&self, interpreter: &Interpreter, patience: Duration) -> bool {
        interpreter.retire(patience, || {
            self.groups().call_out();
            self.pool.call_everyone();
        })
    }

    /// Stops accepting; `work` returns when the requests in flight are answered, and connections
    /// without one, which are kept for up to `keep_idle_ns`, are closed.
    pub fn stop(&self, keep_idle_ns: u64) {
        self.pool.stop(keep_idle_ns);
    }

    /// Lets `work` return as soon as the application does.
    pub fn abort(&self) {
        self.groups().end();
        self.pool.abort();
    }

    /// Waits for a request that is to be interrupted; `None` once the server is over.
    pub fn next_interruption(&self) -> Option<Interruption> {
        self.pool.next_interruption()
    }

    pub fn requests(&self) -> PathTables {
        self.pool.requests()
    }

    /// The threads that serve, and what they serve; holds nothing of Python's.
    pub fn threads(&self) -> &Arc<Threads> {
        &self.pool.watch().threads
    }

    /// Those that run for long, if they are told of; likewise.
    pub fn slow_requests(&self) -> Option<&Arc<SlowRequests>> {
        self.pool.watch().slow_requests.as_ref()
    }

    /// What is counted of requests; holds nothing of Python's.
    pub fn books(&self) -> &Arc<Books> {
        self.pool.books()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.pool.abort();
        // The monitor never touches Python, so it may be waited for with the GIL held. It holds
        // a reference to the pool; joined, it cannot be the one who drops Python's objects.
        let monitor = self.monitor.lock().expect("no panic under this lock").take();
        if let Some(monitor) = monitor {
            let _ = monitor.join();
        }
    }
}
