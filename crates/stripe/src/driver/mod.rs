//! The thread: it waits for sockets, timers and commands, and serves the connections that they
//! concern.

mod arrival;
mod carried;
mod classes;
mod dialing;
mod entrusted;
mod guests;
mod holdings;
mod leading;
mod leavings;
mod link;
mod listening;
mod logging;
mod places;
mod preambles;
mod reached;
mod routes;
mod sending;
mod signs;
mod sockets;
mod standings;
mod streams;
mod turns;
mod upkeep;
#[cfg(test)]
mod virtual_time;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::Arc;

use secure::address_block;
use sys::poll::{Interest, Poller};
use tokio::sync::watch;
use units::{Bytes, Time};
use wire::datagram::Outer;

use crate::Rations;
use crate::arrivals::{Arrivals, Arrived};
use crate::clock::StampedClock;
use crate::connection::inbox::{Command, Connect, Inbox, Key};
use crate::guest::Guest;
use crate::passing::Passing;
use crate::tokens::SystemTokens;
use dialing::Dialing;
use leavings::Leavings;
use link::Link;
pub(crate) use listening::Listener;
use places::{NoPlace, Places};
use sockets::{Datagram, Owner, SocketKey, Sockets, datagrams};

/// The key of the inbox's waker; those of sockets are below.
const WAKER: u64 = u64::MAX;
/// That of the guest's descriptor.
const GUEST: u64 = u64::MAX - 1;
/// Calls of receive for one socket before the others get their turn.
const TURN: usize = 4;
/// Connections of the side that listens that are closed and wait for late packets; those that are
/// closed beyond it do not.
const MOST_LATE: usize = 64;

/// Everything of one endpoint.
pub(crate) struct Driver {
    inbox: Arc<Inbox>,
    clock: StampedClock,
    sockets: Sockets,
    listener: Option<Listener>,
    /// The connections of the side that listens.
    places: Places,
    dialing: HashMap<Key, Dialing>,
    links: HashMap<Key, Link>,
    /// When each connection is due, soonest first.
    due: BTreeSet<(Time, Key)>,
    /// Connections that something has happened to.
    touched: Vec<Key>,
    next_key: u64,
    tokens: SystemTokens,
    count: watch::Sender<Remaining>,
    leavings: Leavings,
    guest: Option<Box<dyn Guest>>,
    passing: Option<Box<dyn Passing>>,
    /// Since when nobody uses the endpoint any more.
    ended_at: Option<Time>,
}

/// The connections of an endpoint that are left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Remaining {
    /// All of them.
    pub(crate) all: usize,
    /// Whether one of them is open, or its peer does not know yet of its end.
    pub(crate) has_peers: bool,
}

impl Driver {
    fn remaining(&self) -> Remaining {
        let all = self.links.len() + self.dialing.len();
        // One that is open, the usual case, is found at once.
        let has_peers = !self.dialing.is_empty() || !self.links.values().all(Link::has_parted);
        Remaining { all, has_peers }
    }

    pub(crate) fn new(
        inbox: Arc<Inbox>,
        mut listener: Option<Listener>,
        clock: StampedClock,
        count: watch::Sender<Remaining>,
    ) -> io::Result<Driver> {
        let poller = Poller::new()?;
        poller.add(&*inbox, WAKER, Interest { readable: true, writable: false })?;
        let mut sockets = Sockets::new(poller);
        if let Some(listener) = &mut listener {
            listener.register(&mut sockets)?;
        }
        let places = listener.as_ref().map_or(Places::new(0, 0, 0), |listener| {
            let Rations { strangers, admitted, each, .. } = listener.rations();
            Places::new(*strangers, *admitted, *each)
        });
        Ok(Driver {
            inbox,
            clock,
            sockets,
            listener,
            places,
            dialing: HashMap::new(),
            links: HashMap::new(),
            due: BTreeSet::new(),
            touched: Vec::new(),
            next_key: 0,
            tokens: SystemTokens::default(),
            count,
            leavings: Leavings::default(),
            guest: None,
            passing: None,
            ended_at: None,
        })
    }

    fn key(&mut self) -> Key {
        self.next_key += 1;
        Key(self.next_key)
    }

    fn handle_command(&mut self, command: Command) {
        let now = self.clock.now();
        match command {
            Command::Connect(wish) => self.dial(*wish),
            Command::End => {
                self.ended_at = Some(now);
                (self.guest, self.passing) = (None, None);
                if let Some(listener) = &mut self.listener {
                    listener.stop();
                }
            }
            Command::Touched { key, stream } => self.with(key, |link, _| {
                link.handle_touched(now, stream);
            }),
            Command::OpenStream { key, reply } => match self.links.get_mut(&key) {
                Some(link) => {
                    link.open_stream(reply);
                    self.touched.push(key);
                }
                // The program learns the reason from the connection.
                None => drop(reply),
            },
            Command::SendDatagram { key, bytes } => self.with(key, |link, _| {
                link.send_datagram(bytes);
            }),
            Command::AddRoute { key, route, reply } => match self.links.get_mut(&key) {
                Some(link) => {
                    let _ = reply.send(link.add_route(now, route, &mut self.sockets));
                    self.touched.push(key);
                }
                None => drop(reply),
            },
            Command::RemoveRoute { key, route } => self.with(key, |link, sockets| {
                link.remove_route(now, route, sockets);
            }),
            Command::SetClass { key, route, class } => self.with(key, |link, _| {
                link.set_class(route, class);
            }),
            Command::SetRate { key, route, rate } => self.with(key, |link, _| {
                link.set_rate(route, rate);
            }),
            Command::SetEffort { key, effort } => self.with(key, |link, _| {
                link.set_effort(now, effort);
            }),
            Command::FollowStandings { key, standings } => self.with(key, |link, _| {
                link.follow_standings(now, standings);
            }),
            Command::SetReceiveBuffer { key, most } => self.admit(now, key, most),
            Command::Ask { key, heard } => self.with(key, |link, _| link.ask(heard)),
            Command::UpdateKeys { key } => self.with(key, |link, _| link.update_keys(now)),
            Command::Stats { key, reply } => {
                if let Some(link) = self.links.get(&key) {
                    let _ = reply.send(link.stats(&self.sockets));
                }
            }
            Command::ListenOver { leads } => {
                if let Some(listener) = &mut self.listener {
                    listener.reached.set(leads);
                    self.serve_listener(now);
                }
            }
            Command::PassOn { make, reply } => {
                let Some(listener) = &self.listener else { return };
                let made = listener.clones(&self.sockets).and_then(make);
                let _ = reply.send(made.map(|passing| self.passing = Some(passing)));
            }
            Command::SendListening { to, source, bytes } => {
                if let Some(listener) = &self.listener {
                    listener.send_to((to, source), &bytes, &self.sockets);
                }
            }
            Command::Attach { guest, reply } => {
                let _ = reply.send(self.attach(guest));
            }
            // It is looked at in each turn.
            Command::WakeGuest => {}
            Command::Entrust { key } => self.with(key, |link, _| {
                link.entrusted.is_guests = true;
            }),
            Command::Close { key, code } => self.with(key, |link, _| link.close(now, code)),
        }
    }

    /// Does something with a connection, unless it has ended, and serves it afterwards.
    fn with(&mut self, key: Key, act: impl FnOnce(&mut Link, &mut Sockets)) {
        if let Some(link) = self.links.get_mut(&key) {
            act(link, &mut self.sockets);
            self.touched.push(key);
        }
    }

    /// The program welcomes the peer of a connection.
    fn admit(&mut self, now: Time, key: Key, most: Bytes) {
        let Some(link) = self.links.get_mut(&key).filter(|link| !link.is_abandoned()) else {
            return;
        };
        self.touched.push(key);
        if !link.holdings.is_strangers() {
            link.admit(now, most, None);
            return;
        }
        let peer = Arc::clone(&link.peer_key);
        match self.places.admit(key, &peer) {
            Ok(displaced) => {
                link.admit(now, most, Some(peer));
                self.refuse(now, displaced);
            }
            Err(NoPlace) => self.refuse(now, Some(key)),
        }
    }

    /// Closes a connection for want of room.
    fn refuse(&mut self, now: Time, key: Option<Key>) {
        if let Some(key) = key
            && let Some(link) = self.links.get_mut(&key)
        {
            link.refuse(now);
            self.touched.push(key);
        }
    }

    /// While connections hold more than the memory of the host, that which holds the most of the
    /// peer that holds the most is closed.
    fn keep_to_memory(&mut self) {
        let Some(listener) = &self.listener else { return };
        let Some(peer) = listener.rations().memory.to_give_way() else { return };
        let taken = |key: &Key| self.links.get(key).map_or(0, |link| link.holdings.taken());
        let most = self.places.of_peer(&peer).max_by_key(taken);
        tracing::info!("a connection is closed: those of its peer hold too much");
        self.refuse(self.clock.now(), most);
        self.serve_touched();
    }

    fn dial(&mut self, wish: Connect) {
        let key = self.key();
        let now = self.clock.now();
        let label = self.tokens.draw();
        if let Some(dialing) = Dialing::begin(now, key, label, wish, &mut self.sockets) {
            self.dialing.insert(key, dialing);
            self.touched.push(key);
        }
    }

    /// Serves what is due.
    fn fire(&mut self) {
        let now = self.clock.now();
        self.fire_guest(now);
        while let Some((at, key)) = self.due.first().copied()
            && at <= now
        {
            self.due.pop_first();
            if let Some(dialing) = self.dialing.get_mut(&key) {
                dialing.due = None;
                dialing.handle_deadline(now);
            }
            if let Some(link) = self.links.get_mut(&key) {
                link.due = None;
                link.handle_deadline(now, &mut self.sockets);
            }
            self.touched.push(key);
        }
        if let Some(listener) = &mut self.listener
            && listener.poll_deadline().is_some_and(|at| at <= now)
        {
            listener.handle_deadline(now);
            self.serve_listener(now);
        }
        if self.leavings.handle_deadline(now) {
            sys::memory::give_back();
        }
    }

    /// Sends what the connections have to send, and notes when each is due again.
    fn serve_touched(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        for key in touched.drain(..) {
            self.serve(key);
        }
        // What was touched meanwhile is served in the next turn.
        touched.append(&mut self.touched);
        self.touched = touched;
    }

    fn serve(&mut self, key: Key) {
        let now = self.clock.now();
        if let Some(dialing) = self.dialing.get_mut(&key) {
            dialing.serve(now, &mut self.sockets);
            if dialing.is_over() {
                let dialing = self.dialing.remove(&key).expect("it was there");
                self.unschedule(dialing.due, key);
                let inbox = Arc::clone(&self.inbox);
                if let Some(link) = dialing.finish(now, &inbox, &mut self.sockets) {
                    self.links.insert(key, link);
                }
            } else {
                let at = dialing.poll_deadline(now);
                let before = std::mem::replace(&mut dialing.due, at);
                self.reschedule(before, at, key);
                return;
            }
        }
        let Some(link) = self.links.get_mut(&key) else { return };
        link.serve(&self.clock, &mut self.sockets);
        if let Some(listener) = &mut self.listener {
            link.tell_listener(listener);
        }
        if link.is_abandoned() {
            self.places.leave(key);
        }
        self.tell_guest(key);
        // What is closed waits a while for late packets; too many do not.
        let is_crowded =
            self.listener.is_some() && self.links.len() > self.places.most() + MOST_LATE;
        let Some(link) = self.links.get_mut(&key) else { return };
        if link.is_over() || is_crowded && link.is_abandoned() {
            let mut link = self.links.remove(&key).expect("it was there");
            self.unschedule(link.due, key);
            link.end(&mut self.sockets);
            self.tell_guest_of_end(&link);
            self.leavings.handle_ended(self.clock.now());
            if let Some(listener) = &mut self.listener {
                listener.forget(&link);
            }
            return;
        }
        let at = link.poll_deadline();
        let before = std::mem::replace(&mut link.due, at);
        self.reschedule(before, at, key);
    }

    fn unschedule(&mut self, at: Option<Time>, key: Key) {
        if let Some(at) = at {
            self.due.remove(&(at, key));
        }
    }

    fn reschedule(&mut self, before: Option<Time>, at: Option<Time>, key: Key) {
        if before != at {
            self.unschedule(before, key);
            self.due.extend(at.map(|at| (at, key)));
        }
    }

    /// A socket has room again.
    fn handle_writable(&mut self, socket: SocketKey) {
        match self.sockets.owner(socket) {
            Some(Owner::Link { key, .. }) => {
                self.sockets.set_writable(socket, false);
                self.touched.push(key);
            }
            Some(Owner::Listening) => {
                self.sockets.set_writable(socket, false);
                let waiting = self.links.iter().filter(|(_, link)| link.is_blocked());
                self.touched.extend(waiting.map(|(key, _)| *key));
            }
            None => {}
        }
    }

    /// Receives what has arrived at a socket.
    fn receive(&mut self, socket: SocketKey, arrivals: &mut Arrivals) {
        for _ in 0..TURN {
            let Some(owner) = self.sockets.owner(socket) else { return };
            let Some(open) = self.sockets.get(socket) else { return };
            let (is_more, error) = arrivals.receive(open);
            if let Some(error) = error
                && let Owner::Link { key, route } = owner
            {
                if let Some(dialing) = self.dialing.get_mut(&key) {
                    dialing.handle_socket_error(route, &error);
                } else if let Some(link) = self.links.get_mut(&key) {
                    link.handle_socket_error(self.clock.now(), route, &error);
                }
                self.touched.push(key);
            }
            let now = self.clock.now();
            for arrived in arrivals.drain() {
                if owner == Owner::Listening && self.pass_on(socket, &arrived) {
                    continue;
                }
                for mut datagram in datagrams(arrived) {
                    datagram.at = self.clock.arrival(now, datagram.stamp);
                    (datagram.taken, datagram.socket) = (now, socket);
                    self.take(now, owner, datagram);
                }
            }
            if let Some(guest) = &mut self.guest {
                guest.handle_batch();
            }
            self.touched.sort_unstable();
            self.touched.dedup();
            for key in &self.touched {
                if let Some(link) = self.links.get_mut(key) {
                    link.handle_batch(&self.sockets);
                }
            }
            if !is_more {
                return;
            }
        }
    }

    /// Whether datagrams at a listening socket are those of others, and were passed on. The
    /// endpoint's own labels come first: whoever has seen one may have told it to a relay.
    fn pass_on(&mut self, socket: SocketKey, arrived: &Arrived<'_>) -> bool {
        let (Some(listener), Some(passing)) = (&self.listener, &mut self.passing) else {
            return false;
        };
        let first = &arrived.bytes[..arrived.segment.min(arrived.bytes.len())];
        let is_own = Outer::label(first).is_none_or(|label| listener.has_label(label));
        let number = listener.number_of(socket).filter(|_| !is_own);
        number.is_some_and(|number| passing.pass(number, arrived))
    }

    /// A datagram arrived at a socket.
    fn take(&mut self, now: Time, owner: Owner, mut datagram: Datagram<'_>) {
        match owner {
            Owner::Link { key, route } => {
                self.touched.push(key);
                if let Some(dialing) = self.dialing.get_mut(&key) {
                    dialing.handle_datagram(now, route, (datagram.from, datagram.bytes));
                } else if let Some(link) = self.links.get_mut(&key) {
                    link.handle_datagram(route, datagram, &mut self.guest);
                }
            }
            Owner::Listening => {
                let Some(listener) = &mut self.listener else { return };
                match listener.handle_datagram(&mut datagram) {
                    Some((key, path)) => {
                        if let Some(link) = self.links.get_mut(&key) {
                            link.handle_packet(path, datagram, &mut self.guest);
                            self.touched.push(key);
                        }
                    }
                    // Packets of a connection that this begins may be next.
                    None => self.serve_listener(now),
                }
            }
        }
    }

    /// Sends what handshakes have to send, and begins the connections that they yield.
    fn serve_listener(&mut self, now: Time) {
        let Some(listener) = &mut self.listener else { return };
        listener.send(now, &self.sockets);
        let mut displaced = Vec::new();
        while let Some(accepted) = listener.poll_accepted() {
            self.next_key += 1;
            let key = Key(self.next_key);
            let block = address_block(accepted.from.ip());
            if let Some(link) = listener.begin(now, key, accepted, (&self.inbox, &self.sockets)) {
                self.links.insert(key, link);
                self.touched.push(key);
                displaced.extend(self.places.enter(key, block));
            }
        }
        for key in displaced {
            self.refuse(now, Some(key));
        }
    }
}
