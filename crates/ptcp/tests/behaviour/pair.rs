//! Two ends, and paths between them with a fate for each packet.

use std::cell::RefCell;
use std::rc::Rc;

use policy::cc;
use policy::sched::packet;
use ptcp::{Config, Connection, Event};
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
pub(crate) use testnet::Fate;
use testnet::{Direction, Link, Network, Op};
use units::{Bytes, Rate, Span, SubflowId, Time};
use wire::ptcp::{Body, Packet, StreamData};

use crate::common::Peer;

/// A sent packet.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) at: Time,
    pub(crate) path: SubflowId,
    pub(crate) to_server: bool,
    pub(crate) packet: Packet,
    pub(crate) is_ecn_capable: bool,
    pub(crate) is_scalable: bool,
}

impl From<&testnet::Sent<ptcp::Transmit>> for Sent {
    fn from(sent: &testnet::Sent<ptcp::Transmit>) -> Sent {
        Sent {
            at: sent.at,
            path: sent.packet.path,
            to_server: sent.direction == Direction::Forward,
            packet: sent.packet.packet.clone(),
            is_ecn_capable: sent.packet.is_ecn_capable,
            is_scalable: sent.packet.is_scalable,
        }
    }
}

/// A client that opens all paths at once, and a server.
pub(crate) struct Pair {
    network: Network<Peer>,
    log: Rc<RefCell<Vec<Sent>>>,
}

pub(crate) fn ms(ms: u64) -> Span {
    Span::from_millis(ms)
}

/// A path with this delay one way in milliseconds and this rate in Mbit/s. Its queue holds a round
/// trip's worth, or 20 ms if that is more.
pub(crate) fn line(delay: u64, rate: u64) -> Link {
    Link {
        rate: Some(Rate::mbit(rate)),
        queue: Bytes(rate * 125 * (2 * delay).max(20)),
        ..Link::new(ms(delay))
    }
}

/// An end with Reno and the scheduler by the lowest round-trip time.
pub(crate) fn plain_end(config: &Config, is_client: bool) -> Connection {
    end(config, ("reno", "lowest-rtt"), is_client)
}

fn end(config: &Config, names: (&str, &str), is_client: bool) -> Connection {
    let tokens = Box::new(Xoshiro256PlusPlus::seed_from_u64(u64::from(is_client)));
    let controller = cc::by_name(names.0).expect("it is known");
    let scheduler = packet::by_name(names.1).expect("it is known");
    let make = if is_client { Connection::client } else { Connection::server };
    make(config.clone(), controller, scheduler, tokens)
}

impl Pair {
    pub(crate) fn new(config: &Config, names: (&str, &str), links: &[Link]) -> Pair {
        Pair::of([true, false].map(|is_client| end(config, names, is_client)), links)
    }

    /// These ends: client and server.
    pub(crate) fn of(ends: [Connection; 2], links: &[Link]) -> Pair {
        let network = Network::new(ends.map(Peer::new), links.iter().cloned(), 0);
        let mut pair = Pair { network, log: Rc::default() };
        pair.fates(|_| Fate::Arrives);
        for _ in links {
            pair.client().open_path(Time::ZERO);
        }
        pair
    }

    pub(crate) fn client(&mut self) -> &mut Connection {
        &mut self.network.ends[0].connection
    }

    pub(crate) fn server(&mut self) -> &mut Connection {
        &mut self.network.ends[1].connection
    }

    pub(crate) fn now(&self) -> Time {
        self.network.now()
    }

    /// The client wakes so much late each time. To be set at the beginning.
    pub(crate) fn wake_late(&mut self, late: Span) {
        self.network.ends[0].late = late;
    }

    /// All packets sent.
    pub(crate) fn log(&self) -> Vec<Sent> {
        self.log.borrow().clone()
    }

    /// The sizes of the datagrams that arrived at the server.
    pub(crate) fn datagrams(&self) -> &[u16] {
        &self.network.ends[1].datagrams
    }

    /// Paths and sizes of the raw datagrams that arrived at the server.
    pub(crate) fn raw(&self) -> &[(SubflowId, u16)] {
        &self.network.ends[1].raw
    }

    /// All events of the client.
    pub(crate) fn events(&mut self) -> &[Event] {
        self.network.ends[0].take_events();
        &self.network.ends[0].events
    }

    /// All events of the server.
    pub(crate) fn server_events(&mut self) -> &[Event] {
        self.network.ends[1].take_events();
        &self.network.ends[1].events
    }

    /// Sets the function that decides the fate of packets.
    pub(crate) fn fates(&mut self, mut fate: impl FnMut(&Sent) -> Fate + 'static) {
        let log = Rc::clone(&self.log);
        self.network.set_fates(move |sent| {
            let sent = Sent::from(sent);
            let fate = fate(&sent);
            log.borrow_mut().push(sent);
            fate
        });
    }

    /// Changes the rate of a path.
    pub(crate) fn set_rate(&mut self, path: usize, rate: Rate) {
        self.network.apply(Op::Rate { link: path, rate });
    }

    pub(crate) fn run_for(&mut self, span: Span) {
        self.network.run_for(span);
    }

    /// Opens a stream of the client and writes `bytes`.
    pub(crate) fn bulk(&mut self, bytes: Bytes) -> u32 {
        let stream = self.client().open_stream();
        self.client().write(stream, bytes);
        stream
    }

    /// The time until `bytes` of a stream have arrived in order; `None` after a minute.
    pub(crate) fn time_of(&mut self, stream: u32, bytes: Bytes) -> Option<Span> {
        let begin = self.now();
        let is_there = self.network.run_until(begin + Span::from_secs(60), |network| {
            network.ends[1].connection.received(stream) >= bytes
        });
        is_there.then(|| self.now() - begin)
    }

    /// The client's packets with data since `from`.
    pub(crate) fn data_since(&self, from: Time) -> impl Iterator<Item = (Sent, StreamData)> {
        let sent = self.log().into_iter().filter(move |sent| sent.to_server && sent.at >= from);
        sent.filter_map(|sent| match sent.packet.body {
            Body::Data(data) => Some((sent, data)),
            _ => None,
        })
    }
}
