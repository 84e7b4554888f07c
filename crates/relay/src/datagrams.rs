//! The relay's UDP side: a thread that passes datagrams on by their labels.
//!
//! The thread receives many datagrams a call, and sends those of one path that came together with
//! one call too. They leave as they came, with the codepoint of their congestion marks, and are not
//! fragmented: what a line does not carry is lost here as it would be in a router. Within a rate
//! they wait in a queue of their key and direction, which drops what it has no room for.
//!
//! Where an endpoint of striped connections has the port, that one receives, tells of what it does
//! not know, and lends its sockets; the thread sends what has waited.

mod sockets;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake};
use std::time::Duration;

use net::Clock;
use net::interfaces::own_addresses;
use peer::metrics::Counter;
use peer::{Error, Fingerprint, random};
use stripe::{Arrivals, Arrived, EcnCodepoint, Outgoing, Passing, UdpSocket};
use sys::datagram::{mapped, unmapped};
use sys::poll::{Interest, Poller, Ready, Waker};
use units::{Rate, Span, Time};
use wire::datagram::Outer;
use wire::meet::Place;
use wire::relay::{Associated, LabelPair, SECRET};

use crate::keys::{KeyState, OpenPath};
use crate::labels::{DatagramPlace, DatagramsTo, LabelError, Labels, Step};
use crate::meter::{Divider, PathMeter};
use sockets::Sockets;

/// Bytes of a key that wait in one direction; what comes on top is dropped.
const MOST_WAITING: usize = 256 << 10;
/// Calls of receive for one socket before others get their turn.
const TURN: usize = 4;
/// The time between looks at what has lapsed.
const LOOK: Duration = Duration::from_secs(1);
/// The key of the waker; those of sockets are below.
const WAKER: u64 = u64::MAX;

/// The UDP side of a relay; its thread ends with this.
pub(crate) struct Datagrams(Arc<DatagramsShared>);

/// What the thread and control connections share.
struct DatagramsShared {
    clock: Clock,
    sockets: Sockets,
    /// What divides the rate, if there may be one.
    divider: (Arc<Divider>, bool),
    waker: Waker,
    has_ended: AtomicBool,
    state: Mutex<DatagramsState>,
    figures: DatagramFigures,
}

/// What became of datagrams that were not passed on.
#[derive(Clone, Default)]
pub(crate) struct DatagramFigures {
    /// They led nowhere: their label is not known, or their source not bound.
    pub(crate) unknown: Counter,
    /// There was no room for them.
    pub(crate) dropped: Counter,
}

struct DatagramsState {
    labels: Labels<Fingerprint>,
    keys: HashMap<Fingerprint, Member>,
    /// What counts the associations.
    open: HashMap<u64, OpenPath>,
}

/// A key that has associations.
struct Member {
    state: Arc<KeyState>,
    is_used_up: bool,
    have_guests_used_up: bool,
    /// What waits for a grant, to destinations and from there; `None`: nothing has to.
    queues: Option<[Queue; 2]>,
}

/// What waits in one direction.
struct Queue {
    meter: PathMeter,
    waiting: VecDeque<Waiting>,
    bytes: usize,
    /// Bytes that were granted and not sent.
    credit: usize,
}

/// A datagram that waits.
struct Waiting {
    to: DatagramPlace,
    ecn: Option<EcnCodepoint>,
    bytes: Vec<u8>,
}

/// Wakes the thread when there is a grant.
struct Granted(Arc<DatagramsShared>);

impl Wake for Granted {
    fn wake(self: Arc<Self>) {
        self.0.wake();
    }
}

impl DatagramsShared {
    fn state(&self) -> MutexGuard<'_, DatagramsState> {
        self.state.lock().expect("no panic while held")
    }

    /// Whether one of its sockets has this port.
    fn has_port(&self, port: u16) -> bool {
        self.sockets.all().iter().any(|socket| socket.local().port() == port)
    }

    fn wake(&self) {
        // It fails only where it is woken already.
        let _ = self.waker.wake();
    }
}

impl Datagrams {
    /// Begins to pass datagrams on, within the shares of a rate if there may be one: those that it
    /// receives from these sockets, or, if it `receives` nothing and only sends from them, those
    /// that [`Datagrams::passing`] is told of.
    ///
    /// # Errors
    /// If the system has no descriptors, threads or random numbers left.
    pub(crate) fn start(
        (sockets, receives): (Vec<UdpSocket>, bool),
        clock: Clock,
        (divider, has_rate): (&Arc<Divider>, bool),
    ) -> Result<Datagrams, Error> {
        let failed = |source| Error::System { action: "relay over UDP".into(), source };
        let sockets = Sockets::beside(sockets);
        let labels = Labels::new(&secret()?).beside(sockets.other_ports());
        let (keys, open) = (HashMap::new(), HashMap::new());
        let shared = Arc::new(DatagramsShared {
            clock,
            sockets,
            divider: (Arc::clone(divider), has_rate),
            waker: Waker::new().map_err(failed)?,
            has_ended: AtomicBool::new(false),
            state: Mutex::new(DatagramsState { labels, keys, open }),
            figures: DatagramFigures::default(),
        });
        let poller = Poller::new().map_err(failed)?;
        let read = Interest { readable: true, writable: false };
        poller.add(&shared.waker, WAKER, read).map_err(failed)?;
        let all = shared.sockets.all().iter().enumerate();
        for (number, socket) in all.filter(|(one, _)| receives || shared.sockets.is_other(*one)) {
            poller.add(socket, number as u64, read).map_err(failed)?;
        }
        let own = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("relay-udp".into())
            .spawn(move || run(&own, &poller))
            .map_err(failed)?;
        Ok(Datagrams(shared))
    }

    /// What passes on datagrams that arrive at the sockets of others.
    pub(crate) fn passing(&self) -> Box<dyn Passing> {
        Box::new(PassedDatagrams(Arc::clone(&self.0)))
    }

    /// What was not passed on.
    pub(crate) fn figures(&self) -> DatagramFigures {
        self.0.figures.clone()
    }

    /// The associations of all keys.
    pub(crate) fn count(&self) -> usize {
        self.0.state().labels.counts().0
    }

    /// The first of a destination's addresses that a socket reaches.
    ///
    /// # Errors
    /// That no socket reaches it, as text.
    pub(crate) fn destination(&self, addresses: &[SocketAddr]) -> Result<DatagramsTo, String> {
        let own = own_addresses();
        let found = addresses.iter().find_map(|address| {
            // What it sends to itself would come back as the destination's.
            let is_itself = self.0.has_port(address.port()) && own.contains(&address.ip());
            if is_itself || address.ip().is_multicast() || address.ip().is_unspecified() {
                return None;
            }
            let socket = self.socket_for(*address)?;
            Some(DatagramPlace { address: *address, local: None, socket })
        });
        let found = found.ok_or("the relay's UDP reaches no such address")?;
        Ok(DatagramsTo::Address(found))
    }

    /// Associates a number with a destination, for the host with the key `owner`: that of `key`, or
    /// a guest of it.
    ///
    /// # Errors
    /// [`LabelError`], as text; the system's.
    pub(crate) fn associate(
        &self,
        (key, owner, bound): (&Arc<KeyState>, Fingerprint, Option<Rate>),
        number: u32,
        destination: DatagramsTo,
    ) -> Result<Associated, String> {
        let secret = secret().map_err(|error| error.to_string())?;
        let octets = random().map_err(|error| error.to_string())?;
        let id = u64::from_be_bytes(*octets.first_chunk().expect("it has 16"));
        let fingerprint = key.fingerprint();
        let mut state = self.0.state();
        let associated = state.labels.associate((fingerprint, owner), (id, &secret), destination);
        associated.map_err(|error| error.to_string())?;
        state.open.insert(id, key.open());
        let member = state.keys.entry(fingerprint).or_insert_with(|| Member {
            state: Arc::clone(key),
            is_used_up: false,
            have_guests_used_up: false,
            queues: None,
        });
        let (divider, has_rate) = &self.0.divider;
        if member.queues.is_none() && (bound.is_some() || *has_rate) {
            let queue = |is_up| Queue {
                meter: PathMeter::new(key, is_up).within(divider, bound),
                waiting: VecDeque::new(),
                bytes: 0,
                credit: 0,
            };
            member.queues = Some([queue(true), queue(false)]);
        }
        Ok(Associated { number, id, secret })
    }

    /// As [`Labels::register`].
    pub(crate) fn register(&self, id: u64, pairs: &[LabelPair]) -> Result<(), LabelError> {
        self.0.state().labels.register(id, pairs)
    }

    /// As [`Labels::retire`].
    pub(crate) fn retire(&self, id: u64, to: &[u64]) {
        self.0.state().labels.retire(id, to);
    }

    /// Ends an association.
    pub(crate) fn dissociate(&self, id: u64) {
        let mut state = self.0.state();
        state.labels.dissociate(id);
        state.forget();
    }

    /// As [`Labels::wait_at`].
    pub(crate) fn wait_at(&self, place: Place, id: u64) {
        self.0.state().labels.wait_at(place, id);
    }

    /// As [`Labels::leave`].
    pub(crate) fn leave(&self, place: &Place, id: u64) {
        self.0.state().labels.leave(place, id);
    }

    /// The association ends after this time.
    pub(crate) fn end_after(&self, id: u64, time: Span) {
        let end = self.0.clock.now() + time;
        self.0.state().labels.end_at(id, end);
    }

    /// As [`Labels::handle_orphaned`].
    pub(crate) fn orphan(&self, id: u64) {
        let now = self.0.clock.now();
        self.0.state().labels.handle_orphaned(now, id);
    }

    /// The number of a socket that reaches an address.
    fn socket_for(&self, address: SocketAddr) -> Option<usize> {
        self.0.sockets.main().iter().position(|socket| {
            // One of IPv6 at all addresses has both families.
            let local = socket.local();
            local.is_ipv4() == address.is_ipv4() || local.is_ipv6() && local.ip().is_unspecified()
        })
    }
}

/// What an endpoint at the relay's port tells of datagrams.
struct PassedDatagrams(Arc<DatagramsShared>);

impl Passing for PassedDatagrams {
    fn pass(&mut self, socket: usize, arrived: &Arrived<'_>) -> bool {
        let first = &arrived.bytes[..arrived.segment.min(arrived.bytes.len())];
        let Some(label) = Outer::label(first) else { return false };
        let mut state = self.0.state();
        let is_own = state.labels.knows(label);
        if is_own {
            state.pass(&self.0, socket, arrived);
        }
        is_own
    }
}

impl fmt::Debug for PassedDatagrams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PassedDatagrams")
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Ordering::Relaxed);
        self.0.wake();
    }
}

impl DatagramsState {
    /// Forgets what belonged to associations that have ended.
    fn forget(&mut self) {
        let DatagramsState { labels, keys, open } = self;
        open.retain(|id, _| labels.has(*id));
        keys.retain(|key, _| labels.count_of(key) > 0);
    }
}

fn secret() -> Result<[u8; SECRET], Error> {
    let mut secret = [0; SECRET];
    secret[..16].copy_from_slice(&random()?);
    secret[16..].copy_from_slice(&random()?);
    Ok(secret)
}

/// The thread.
fn run(shared: &Arc<DatagramsShared>, poller: &Poller) {
    sys::poll::set_precise_timers();
    let waker = Arc::new(Granted(Arc::clone(shared))).into();
    let mut arrivals = Arrivals::default();
    let mut ready = Vec::new();
    let mut next_look = Time::ZERO;
    while !shared.has_ended.load(Ordering::Relaxed) {
        if let Err(error) = poller.wait(&mut ready, Some(LOOK)) {
            tracing::error!(%error, "the relay cannot wait for datagrams");
            return;
        }
        for Ready { key, .. } in ready.drain(..) {
            if key == WAKER {
                shared.waker.clear();
            } else if let Ok(number) = usize::try_from(key) {
                receive(shared, number, &mut arrivals);
            }
        }
        let mut state = shared.state();
        let now = shared.clock.now();
        if next_look <= now {
            next_look = now + Span::from(LOOK);
            state.look(now);
        }
        for member in state.keys.values_mut() {
            for queue in member.queues.iter_mut().flatten() {
                queue.send(shared, &mut Context::from_waker(&waker));
            }
        }
    }
}

/// Receives from a socket, and passes on what arrived.
fn receive(shared: &DatagramsShared, number: usize, arrivals: &mut Arrivals) {
    for _ in 0..TURN {
        let (is_more, error) = arrivals.receive(&shared.sockets.all()[number]);
        if let Some(error) = error {
            tracing::debug!(%error, "a datagram could not be received");
        }
        let mut state = shared.state();
        for arrived in arrivals.drain() {
            state.pass(shared, number, &arrived);
        }
        if !is_more {
            return;
        }
    }
}

impl DatagramsState {
    /// Ends what has lapsed, and notes whose cap is used up.
    fn look(&mut self, now: Time) {
        self.labels.handle_deadline(now);
        self.forget();
        for member in self.keys.values_mut() {
            member.is_used_up = member.state.used_up().is_some();
            member.have_guests_used_up = member.state.guests_used_up().is_some();
        }
    }

    /// Passes on what came together.
    fn pass(&mut self, shared: &DatagramsShared, socket: usize, arrived: &Arrived<'_>) {
        let Arrived { bytes, segment, from, to, ecn, .. } = arrived;
        let address = unmapped(*from);
        let from = DatagramPlace { address, local: *to, socket };
        let now = shared.clock.now();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (run, others) = rest.split_at(run_of(rest, *segment));
            rest = others;
            let step = if shared.sockets.is_other(socket) {
                self.labels.handle_other(now, from, &run[..run.len().min(*segment)])
            } else {
                self.labels.handle_datagrams(now, from, run, *segment)
            };
            match step {
                Step::Forward { to, key, is_up, is_guests } => {
                    if self.may_forward(key, is_guests, run.len()) {
                        self.forward(shared, (to, key, is_up), (run, *segment, *ecn));
                    }
                }
                Step::Answer(answer) => send(shared, from, (&answer, answer.len(), None)),
                Step::Tell(answer) => {
                    send(shared, from, (&answer, answer.len(), None));
                    if let Some(socket) = shared.sockets.other_of(socket) {
                        let place = DatagramPlace { socket, ..from };
                        send(shared, place, (&answer, answer.len(), None));
                    }
                }
                Step::Drop => {
                    shared.figures.unknown.inc();
                }
            }
        }
    }

    /// Whether so much of a key, or of its guests, is passed on; theirs is counted.
    fn may_forward(&self, key: Fingerprint, is_guests: bool, bytes: usize) -> bool {
        let Some(member) = self.keys.get(&key).filter(|member| !member.is_used_up) else {
            return false;
        };
        if is_guests {
            member.state.count_of_guest(bytes);
        }
        !is_guests || !member.have_guests_used_up
    }

    /// Passes on datagrams of one size that go the same way.
    fn forward(
        &mut self,
        shared: &DatagramsShared,
        (to, key, is_up): (DatagramPlace, Fingerprint, bool),
        (run, segment, ecn): (&[u8], usize, Option<EcnCodepoint>),
    ) {
        let Some(member) = self.keys.get_mut(&key) else { return };
        let Some(queues) = &mut member.queues else {
            member.state.count(is_up, run.len());
            send(shared, to, (run, segment, ecn));
            return;
        };
        let queue = &mut queues[usize::from(!is_up)];
        for bytes in run.chunks(segment) {
            if queue.bytes + bytes.len() > MOST_WAITING {
                shared.figures.dropped.inc();
                continue;
            }
            queue.bytes += bytes.len();
            queue.waiting.push_back(Waiting { to, ecn, bytes: bytes.to_vec() });
        }
    }
}

/// The octets of the datagrams at the front that have one label.
fn run_of(bytes: &[u8], segment: usize) -> usize {
    let mut all = bytes.chunks(segment);
    let first = all.next().unwrap_or_default();
    let label = Outer::label(first);
    let same = all.take_while(|next| Outer::label(next) == label);
    first.len() + same.map(<[u8]>::len).sum::<usize>()
}

impl Queue {
    /// Sends what was granted.
    fn send(&mut self, shared: &DatagramsShared, cx: &mut Context<'_>) {
        while let Some(first) = self.waiting.front() {
            if self.credit < first.bytes.len() {
                let Poll::Ready(granted) = self.meter.poll_grant(cx, self.bytes - self.credit)
                else {
                    return;
                };
                self.meter.handle_moved(granted);
                self.credit += granted;
                continue;
            }
            let Waiting { to, ecn, bytes } = self.waiting.pop_front().expect("it is there");
            self.bytes -= bytes.len();
            self.credit -= bytes.len();
            send(shared, to, (&bytes, bytes.len(), ecn));
        }
    }
}

/// Sends datagrams of one size; what there is no room for is dropped.
fn send(
    shared: &DatagramsShared,
    to: DatagramPlace,
    (bytes, segment, ecn): (&[u8], usize, Option<EcnCodepoint>),
) {
    let socket = &shared.sockets.all()[to.socket];
    let is_of_both = socket.local().is_ipv6();
    let address = if is_of_both { mapped(to.address) } else { to.address };
    for bytes in bytes.chunks(segment.saturating_mul(socket.most_segments())) {
        let outgoing =
            Outgoing { to: address, source: to.local, ecn, is_lower_effort: false, bytes, segment };
        match socket.send(&outgoing) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                shared.figures.dropped.inc();
            }
            Err(error) => tracing::debug!(%error, %address, "a datagram could not be passed on"),
        }
    }
}
