//! Threads that move the bytes of paths.
//!
//! Each has a runtime of its own, in which the thread that hears of a socket is the one that moves
//! its bytes. The runtime of the host wakes a second thread to look for further work whenever a
//! first one finds some: a round trip over a relay that was idle took 20 us longer.

use std::io;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, available_parallelism};

use net::Clock;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::bounds::MOVERS;
use crate::meter::PathMeter;
use crate::path::carry;

/// The threads, which begin with their first paths and end with this.
#[derive(Default)]
pub(crate) struct Movers {
    threads: Mutex<Vec<Mover>>,
}

struct Mover {
    runtime: Handle,
    /// The paths that it has.
    paths: Arc<AtomicUsize>,
    /// The thread ends when this is dropped.
    _lives: oneshot::Sender<()>,
}

/// A path's place in a thread.
struct Place {
    runtime: Handle,
    paths: Arc<AtomicUsize>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.paths.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Movers {
    /// As [`carry`], in the thread that has the fewest paths; here, if there is none to be had.
    ///
    /// # Errors
    /// Those of [`carry`], and of handing the sockets over.
    pub(crate) async fn carry(
        &self,
        sockets: [TcpStream; 2],
        meters: [PathMeter; 2],
        clock: Clock,
        answered: impl Send + 'static,
    ) -> io::Result<()> {
        let Some(place) = self.place() else {
            return carry(sockets, meters, clock, answered).await;
        };
        let [peer, destination] = sockets;
        let sockets = [peer.into_std()?, destination.into_std()?];
        // Ends with this call.
        let mut task = JoinSet::new();
        let carried = async move {
            let [peer, destination] = sockets;
            let sockets = [TcpStream::from_std(peer)?, TcpStream::from_std(destination)?];
            carry(sockets, meters, clock, answered).await
        };
        task.spawn_on(carried, &place.runtime);
        match task.join_next().await.expect("it has one task") {
            Ok(carried) => carried,
            Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
            Err(ended) => Err(io::Error::other(ended)),
        }
    }

    fn place(&self) -> Option<Place> {
        let mut threads = self.threads.lock().expect("no panic while held");
        let most = available_parallelism().map_or(1, NonZero::get).min(MOVERS);
        let is_busy = threads.iter().all(|mover| mover.paths.load(Ordering::Relaxed) > 0);
        if is_busy && threads.len() < most {
            // Those that there are do for all.
            threads.extend(Mover::start().ok());
        }
        let mover = threads.iter().min_by_key(|mover| mover.paths.load(Ordering::Relaxed))?;
        mover.paths.fetch_add(1, Ordering::Relaxed);
        Some(Place { runtime: mover.runtime.clone(), paths: Arc::clone(&mover.paths) })
    }
}

impl Mover {
    fn start() -> io::Result<Mover> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (lives, ended) = oneshot::channel::<()>();
        let handle = runtime.handle().clone();
        thread::Builder::new().name("relay".into()).spawn(move || {
            // The sender says nothing: it is dropped.
            let _ = runtime.block_on(ended);
        })?;
        Ok(Mover { runtime: handle, paths: Arc::default(), _lives: lives })
    }
}
