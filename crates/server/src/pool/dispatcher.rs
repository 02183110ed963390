//! Which connections wait for events or for a thread, and which threads wait for them.

use crate::connection::table::{ConnectionTable, Owned};
use crate::net::epoll::{Epoll, Waker};
use crate::net::socket;
use crate::pool::idle::IdleList;
use crate::pool::monitor_waker::MonitorWaker;
use crate::pool::phase::Phase;
use crate::pool::ready::ReadyQueue;
use crate::pool::scheduling::{Load, TurnAverages};
use crate::stats::Counters;
use headway_measure::clock::now_ns;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// The epoll data of the waker: beyond that of any connection or listener.
pub const WAKER_DATA: u64 = u64::MAX;

pub struct Dispatcher {
    pub table: ConnectionTable,
    pub ready: ReadyQueue,
    pub epoll: Epoll,
    pub waker: Waker,
    pub idle: IdleList,
    pub monitor: MonitorWaker,
    pub phase: Phase,
    pub averages: TurnAverages,
    pub counters: Arc<Counters>,
    parallel: bool,
    /// True while one thread polls. Set with a swap by a thread that begins to poll, cleared by it;
    /// read by all threads. `SeqCst`: a thread that parks reads it after it is in the idle list, and a
    /// thread that polls looks for what is ready after it has set it.
    polling: AtomicBool,
}

impl Dispatcher {
    pub fn new(counters: Arc<Counters>, parallel: bool) -> std::io::Result<Self> {
        let (epoll, waker) = (Epoll::new()?, Waker::new()?);
        epoll.add(waker.fd(), WAKER_DATA)?;
        Ok(Self {
            table: ConnectionTable::default(),
            ready: ReadyQueue::default(),
            epoll,
            waker,
            idle: IdleList::default(),
            monitor: MonitorWaker::default(),
            phase: Phase::default(),
            averages: TurnAverages::default(),
            counters,
            parallel,
            polling: AtomicBool::new(false),
        })
    }

    pub fn load(&self) -> Load {
        Load {
            parallel: self.parallel,
            is_polled: self.is_polling(),
            has_parked: self.idle.has_parked(),
            has_several_awake: self.idle.has_several_awake(),
            turn_ns: self.averages.turn_ns(),
            parallel_ns: self.averages.parallel_ns(),
        }
    }

    /// False if another thread polls.
    pub fn begin_polling(&self) -> bool {
        !self.polling.swap(true, SeqCst)
    }

    pub fn end_polling(&self) {
        self.polling.store(false, SeqCst);
    }

    pub fn is_polling(&self) -> bool {
        self.polling.load(SeqCst)
    }

    /// Queues a connection from another thread than the one that polls.
    pub fn submit(&self, connection: Owned) {
        self.ready.push(connection.queue(), now_ns());
        if !self.idle.wake_one() {
            self.waker.wake();
        }
    }

    pub fn close(&self, connection: Owned) {
        let mut connection = connection.close();
        connection.close_tls_session_if_idle();
        self.epoll.remove(connection.socket.as_fd());
        socket::shut_down(connection.socket.as_fd());
        self.counters.note_closed();
    }

    pub fn is_over(&self) -> bool {
        self.phase.is_over(|| self.table.open())
    }

    pub fn keeps_idle(&self) -> bool {
        now_ns() < self.phase.keep_idle_until_ns()
    }

    pub fn wake_everyone(&self) {
        self.idle.wake_all();
        self.waker.wake();
        self.monitor.wake();
    }

    /// The calling thread took the GIL from another and may lose its core to it. False if that does not
    /// matter: among short requests the others drop the GIL soon. Otherwise another thread looks for
    /// requests meanwhile.
    pub fn prepare_for_preemption(&self) -> bool {
        if self.idle.has_other_short_turn(now_ns()) {
            return false;
        }
        if self.load().wakes_poller_before_preemption() {
            self.idle.wake_one();
        }
        true
    }
}
