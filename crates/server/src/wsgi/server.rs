//! A server as Python holds it: opened, worked by Python's own threads, stopped, asked.

use super::adapter::{Adapter, WorkerThread};
use super::object::{Object, PyResult};
use crate::record::PathTable;
use crate::worker::watch::Interruption;
use crate::worker::{Pool, PoolSettings};
use std::io;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

pub struct ServerSettings {
    pub application: Object,
    pub report: Object,
    pub pool: PoolSettings,
}

/// Made and dropped with a thread state attached. The worker threads are Python's
/// (`threading.Thread`), so that their states, names and thread-locals are as anywhere in Python.
pub struct Server {
    pool: Arc<Pool<Adapter>>,
    /// Joined on drop.
    monitor: Mutex<Option<JoinHandle<()>>>,
}

/// Why a server could not be opened.
pub enum OpenError {
    /// A Python exception is set.
    Raised,
    System(io::Error),
}

impl From<super::object::Raised> for OpenError {
    fn from(super::object::Raised: super::object::Raised) -> Self {
        Self::Raised
    }
}

impl Server {
    pub fn open(settings: ServerSettings) -> Result<Self, OpenError> {
        let adapter = Adapter::new(settings.application, settings.report)?;
        let pool = Arc::new(Pool::new(adapter, settings.pool).map_err(OpenError::System)?);
        let monitored = Arc::clone(&pool);
        let monitor = std::thread::Builder::new()
            .name("headway-monitor".into())
            .spawn(move || monitored.monitor())
            .map_err(OpenError::System)?;
        Ok(Self { pool, monitor: Mutex::new(Some(monitor)) })
    }

    /// Serves on the calling thread until the server has stopped. Called attached; detaches.
    pub fn work(&self, template: Object) -> PyResult<()> {
        let mut thread = WorkerThread::new(template, self.pool.application())?;
        thread.detached(|thread| self.pool.work(thread));
        Ok(())
    }

    /// Stops accepting; `work` returns when the requests in flight are answered, and connections
    /// without one, which are kept for up to `keep_idle_ns`, are closed.
    pub fn stop(&self, keep_idle_ns: u64) {
        self.pool.stop(keep_idle_ns);
    }

    /// Lets `work` return as soon as the application does.
    pub fn abort(&self) {
        self.pool.abort();
    }

    /// Waits for a request that is to be interrupted; `None` once the server is over.
    pub fn next_interruption(&self) -> Option<Interruption> {
        self.pool.next_interruption()
    }

    pub fn requests(&self) -> PathTable {
        self.pool.requests()
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
