//! Datagrams through links: they are lost, duplicated, delayed and corrupted like packets.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use link::config::{Carry, Network};
use sys::poll::{Interest, Poller, Ready};
use units::Bytes;

use super::links::{LinkDirection, Links};
use crate::driver::Control;
use crate::report::Report;

/// IPv4 and UDP.
const HEADERS: usize = 28;
/// The largest number of clients; a further one replaces the oldest.
const MAX_FLOWS: usize = 1_024;
const BATCH: usize = 32;
const WAKER_KEY: u64 = u64::MAX;
const FIRST: u64 = 1 << 32;

pub(super) fn listen(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

pub(super) struct UdpProxy {
    links: Links<(u64, Box<[u8]>)>,
    sockets: Vec<UdpSocket>,
    /// By link: whether each direction carries datagrams.
    carries: Vec<[bool; 2]>,
    forward: SocketAddr,
    poller: Poller,
    flows: BTreeMap<u64, Flow>,
    by_client: HashMap<(usize, SocketAddr), u64>,
    next_id: u64,
    buffer: Vec<u8>,
}

/// The datagrams of one client on one link.
struct Flow {
    link: usize,
    client: SocketAddr,
    upstream: UdpSocket,
}

impl UdpProxy {
    pub(super) fn new(
        network: &Network,
        sockets: Vec<UdpSocket>,
        forward: SocketAddr,
    ) -> io::Result<UdpProxy> {
        let poller = Poller::new()?;
        for (key, socket) in (0..).zip(&sockets) {
            poller.add(socket, key, Interest { readable: true, writable: false })?;
        }
        let carries = |link: &link::config::LinkSpec| {
            let reaches = link.unreachable.is_none();
            [reaches && link.up.carry == Carry::All, reaches && link.down.carry == Carry::All]
        };
        Ok(UdpProxy {
            links: Links::new(network, Clone::clone),
            sockets,
            carries: network.links.iter().map(carries).collect(),
            forward,
            poller,
            flows: BTreeMap::new(),
            by_client: HashMap::new(),
            next_id: 0,
            buffer: vec![0; 65_536],
        })
    }

    pub(super) fn run(&mut self, control: &Arc<Control>) -> io::Result<Report> {
        self.links.enter_thread();
        self.poller.add(&control.waker, WAKER_KEY, Interest { readable: true, writable: false })?;
        let mut ready: Vec<Ready> = Vec::new();
        let mut woken = self.links.now();
        while !control.stop.load(Ordering::Acquire) {
            self.deliver();
            self.links.record_busy(woken);
            let timeout = self
                .links
                .poll_deadline()
                .map(|deadline| Duration::from(deadline - self.links.now()));
            self.poller.wait(&mut ready, timeout)?;
            woken = self.links.now();
            for event in &ready {
                match event.key {
                    WAKER_KEY => {}
                    key if key < FIRST => {
                        self.read_client(usize::try_from(key).expect("an index"))?;
                    }
                    key => self.read_upstream(key - FIRST),
                }
            }
        }
        Ok(self.links.report())
    }

    fn read_client(&mut self, link: usize) -> io::Result<()> {
        for _ in 0..BATCH {
            // An error belongs to an earlier datagram that was refused, or means that there is none
            // left.
            let Ok((len, client)) = self.sockets[link].recv_from(&mut self.buffer) else { break };
            let id = self.flow(link, client)?;
            self.send(id, LinkDirection { link, is_down: false }, len);
        }
        Ok(())
    }

    fn read_upstream(&mut self, id: u64) {
        for _ in 0..BATCH {
            let Some(flow) = self.flows.get(&id) else { return };
            let link = flow.link;
            let Ok(len) = flow.upstream.recv(&mut self.buffer) else { return };
            self.send(id, LinkDirection { link, is_down: true }, len);
        }
    }

    fn send(&mut self, id: u64, direction: LinkDirection, len: usize) {
        if self.carries[direction.link][usize::from(direction.is_down)] {
            let data = self.buffer[..len].into();
            self.links.enqueue(direction, Bytes((len + HEADERS) as u64), id, (id, data));
        }
    }

    fn deliver(&mut self) {
        while let Some(arrival) = self.links.poll_arrival() {
            let (id, mut data) = arrival.item;
            let Some(flow) = self.flows.get(&id) else { continue };
            if arrival.is_corrupted {
                let middle = data.len() / 2;
                if let Some(byte) = data.get_mut(middle) {
                    *byte ^= 0x10;
                }
            }
            // A datagram that the socket does not take is lost.
            let _ = if arrival.direction.is_down {
                self.sockets[flow.link].send_to(&data, flow.client)
            } else {
                flow.upstream.send(&data)
            };
        }
    }

    fn flow(&mut self, link: usize, client: SocketAddr) -> io::Result<u64> {
        if let Some(id) = self.by_client.get(&(link, client)) {
            return Ok(*id);
        }
        if self.flows.len() >= MAX_FLOWS
            && let Some((_, oldest)) = self.flows.pop_first()
        {
            self.by_client.remove(&(oldest.link, oldest.client));
        }
        let id = self.next_id;
        self.next_id += 1;
        let upstream = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        upstream.set_nonblocking(true)?;
        upstream.connect(self.forward)?;
        self.poller.add(&upstream, FIRST + id, Interest { readable: true, writable: false })?;
        self.flows.insert(id, Flow { link, client, upstream });
        self.by_client.insert((link, client), id);
        Ok(id)
    }
}
