//! The process of one host: it runs the ends of flows that a [`Description`] names.
//!
//! It reads the description and the begin from its standard input, and answers with [`Answer`]s on
//! its standard output.

mod clock;
mod striped;
mod tcp;
mod udp;

use std::io::{self, BufRead, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use peer::{Fingerprint, Identity, Relaying, Remote};
use scenario::Registry;
use sys::clock::Clock;
use thiserror::Error;
use units::Time;

use crate::describe::{Answer, Begin, Description, FlowEnd, Side, Traffic};
use crate::messages::{read, write};
use clock::sleep_until;
use striped::Keys;

/// Why a host's process ended early.
#[derive(Debug, Error)]
pub enum FlowEndError {
    /// The other side of the standard streams is gone, or writes what this does not understand.
    #[error("the messages of the emulator: {0}")]
    Messages(#[from] io::Error),
    /// A flow failed; the emulator has been told.
    #[error("flow {flow}: {error}")]
    Flow {
        /// The flow.
        flow: String,
        /// The error.
        error: io::Error,
    },
}

/// The part of a flow that runs on a thread of its own, once the clock is known.
type Task = Box<dyn FnOnce(Clock) -> io::Result<()> + Send>;

/// Makes the client of relays that stand in a row, in the order from this host on, of the holder of
/// a key: it is the front end's.
pub type RelayClient = fn(Identity, Vec<(Remote, Fingerprint)>) -> Arc<dyn Relaying>;

/// What an end of a flow counts, shared with its threads.
#[derive(Debug)]
struct Tally {
    /// By path: what arrived.
    received: Vec<AtomicU64>,
    /// When the last byte of a source with an end had arrived; zero if it has not.
    completed: AtomicU64,
    /// What a sender sent again, of connections that have ended, and of UDP.
    retransmitted: AtomicU64,
    /// A sender's connections.
    connections: Mutex<Vec<std::net::TcpStream>>,
    /// A sender's striped connection.
    striped: Mutex<Option<stripe::Connection>>,
}

impl Tally {
    fn new(end: &FlowEnd) -> Arc<Tally> {
        let rows = match end.traffic {
            Traffic::Striped { .. } => 1,
            Traffic::Tcp { .. } | Traffic::Udp { .. } => end.paths.len(),
        };
        Arc::new(Tally {
            received: (0..rows).map(|_| AtomicU64::new(0)).collect(),
            completed: AtomicU64::new(0),
            retransmitted: AtomicU64::new(0),
            connections: Mutex::default(),
            striped: Mutex::default(),
        })
    }

    fn received(&self) -> u64 {
        self.received.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum()
    }

    /// Notes what arrived over a path; `size` is what the source has altogether.
    fn receive(&self, path: usize, bytes: u64, size: Option<u64>, clock: Clock) {
        self.received[path].fetch_add(bytes, Ordering::Relaxed);
        if size.is_some_and(|size| self.received() >= size) {
            let now = clock.now().as_nanos().max(1);
            // Only the first one counts.
            let _ = self.completed.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    fn set_striped(&self, connection: stripe::Connection) {
        *self.striped.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection);
    }

    /// What was sent again, as of now.
    fn retransmitted(&self) -> u64 {
        let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let open: u64 = connections
            .iter()
            .filter_map(|connection| sys::sockopt::tcp_info(connection).ok())
            .map(|info| info.retransmits)
            .sum();
        let striped = self.striped.lock().unwrap_or_else(PoisonError::into_inner);
        let stats = striped.as_ref().map(stripe::Connection::recent_stats);
        let lost: u64 = stats.iter().flat_map(|stats| &stats.routes).map(|route| route.lost).sum();
        open + lost + self.retransmitted.load(Ordering::Relaxed)
    }
}

/// Runs the ends of flows. Controllers and schedulers of striped connections are those of the
/// registry, and paths over relays those of `relays`.
///
/// # Errors
/// If a flow fails, or the emulator is gone.
pub fn run(
    registry: &Registry,
    relays: RelayClient,
    mut input: impl BufRead,
    mut output: impl Write,
) -> Result<(), FlowEndError> {
    let description: Description = read(&mut input)?;
    let mut tallies = Vec::new();
    let keys = Keys::default();
    let mut tasks: Vec<(String, Task)> = Vec::new();
    for end in &description.flows {
        let tally = Tally::new(end);
        match prepare(end, &tally, &keys, (registry, relays)) {
            Ok(some) => tasks.extend(some.into_iter().map(|task| (end.flow.clone(), task))),
            Err(error) => return fail(&mut output, &end.flow, error),
        }
        tallies.push(tally);
    }
    write(&mut output, &Answer::Ready { keys: keys.own() })?;
    let Begin { at, keys: all, relays: of_relays } = read(&mut input)?;
    keys.learn(all, of_relays);
    let clock = Clock::beginning_at(Time::from_nanos(at));
    let (failed, failures) = mpsc::channel();
    let ends = description.duration;
    for (flow, task) in tasks {
        let failed = failed.clone();
        let run = move || {
            // Once the run is over the other end may be gone, which is no failure.
            if let Err(error) = task(clock)
                && clock.now().as_nanos() < ends
            {
                // The receiver is gone only when the process ends.
                let _ = failed.send((flow, error));
            }
        };
        thread::Builder::new().spawn(run)?;
    }
    let mut readings = vec![Vec::new(); tallies.len()];
    for edge in &description.edges {
        if let Some((flow, error)) = wait(clock, *edge, &failures) {
            return fail(&mut output, &flow, error);
        }
        for (readings, tally) in readings.iter_mut().zip(&tallies) {
            let bytes = tally.received.iter().map(|bytes| bytes.load(Ordering::Relaxed));
            readings.push(bytes.collect::<Vec<u64>>());
        }
    }
    if let Some((flow, error)) = wait(clock, description.duration, &failures) {
        return fail(&mut output, &flow, error);
    }
    for ((end, tally), readings) in description.flows.iter().zip(&tallies).zip(&readings) {
        let flow = end.flow.clone();
        let answer = match end.side {
            Side::Sender => Answer::Sent { flow, retransmitted: tally.retransmitted() },
            Side::Receiver => Answer::Received {
                flow,
                bytes: (0..tally.received.len())
                    .map(|path| readings.iter().map(|bytes| bytes[path]).collect())
                    .collect(),
                completed: Some(tally.completed.load(Ordering::Relaxed)).filter(|at| *at > 0),
            },
        };
        write(&mut output, &answer)?;
    }
    Ok(())
}

/// Waits until a time of the run; a flow that fails ends it early.
fn wait(
    clock: Clock,
    until: u64,
    failures: &mpsc::Receiver<(String, io::Error)>,
) -> Option<(String, io::Error)> {
    loop {
        let left = Duration::from_nanos(until.saturating_sub(clock.now().as_nanos()));
        match failures.recv_timeout(left) {
            Ok(failure) => return Some(failure),
            Err(_) if clock.now().as_nanos() >= until => return None,
            // All threads have ended.
            Err(mpsc::RecvTimeoutError::Disconnected) => sleep_until(clock, until),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Opens what has to be open before the run begins.
fn prepare(
    end: &FlowEnd,
    tally: &Arc<Tally>,
    keys: &Keys,
    (registry, relays): (&Registry, RelayClient),
) -> io::Result<Vec<Task>> {
    match (&end.traffic, end.side) {
        (Traffic::Tcp { controller, pacing, mss, source }, Side::Sender) => {
            tcp::senders(end, controller, (*pacing, *mss), source, tally)
        }
        (Traffic::Tcp { source, .. }, Side::Receiver) => tcp::receivers(end, source, tally),
        (Traffic::Udp { packet, rate, size }, Side::Sender) => {
            udp::sender(end, *packet, *rate, *size, tally)
        }
        (Traffic::Udp { size, .. }, Side::Receiver) => udp::receiver(end, *size, tally),
        (Traffic::Striped { controller, scheduler, settings, source }, _) => {
            let controller = registry.make_controller(controller).map_err(io::Error::other)?;
            let scheduler = registry.make_scheduler(scheduler).map_err(io::Error::other)?;
            let options = stripe::Options::of(controller, scheduler);
            let options = striped::options(options, *settings, end.stop.is_some());
            striped::end(end, (options, relays), source, tally, keys)
        }
    }
}

/// Tells the emulator that a flow failed.
fn fail(output: &mut impl Write, flow: &str, error: io::Error) -> Result<(), FlowEndError> {
    let answer = Answer::Failed { flow: flow.to_owned(), error: error.to_string() };
    write(output, &answer)?;
    Err(FlowEndError::Flow { flow: flow.to_owned(), error })
}
