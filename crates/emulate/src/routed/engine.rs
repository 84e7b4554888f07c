//! A routed mesh as a state machine: packets in and out by devices, no clock.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use link::{Amendment, Counters};
use units::Time;

use super::description::{Description, NodeRole};
use super::routes::{Course, Routes};
use crate::driver::{Forward, Transmit};
use crate::fabric::{Fabric, Parcel};
use crate::packet::View;
use crate::router::{self, Complaint};
use crate::translator::{Refusal, Translator};

/// A change of a mesh while it runs, or a question.
#[derive(Debug)]
pub(super) enum Order {
    /// Changes one direction of a link: twice its number, and one more for the way back.
    Amend { direction: usize, amendment: Amendment },
    /// Nodes have other addresses.
    Replace { mesh: Arc<Description>, routes: Routes },
    /// The translator at this node forgets its flows.
    Forget { node: usize },
    /// Asks for the counters.
    Count(Sender<MeshCounters>),
}

/// What a mesh counted.
#[derive(Clone, Debug, Default)]
pub(super) struct MeshCounters {
    /// Both directions of each link.
    pub(super) links: Vec<[Counters; 2]>,
    /// The nodes.
    pub(super) nodes: Vec<NodeCounters>,
}

/// What a router or a translator counted.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeCounters {
    /// Packets to addresses to which there is no route.
    pub(super) unrouted: u64,
    /// Packets whose hop limit was used up.
    pub(super) expired: u64,
    /// Packets too large for the next link.
    pub(super) too_large: u64,
    /// Packets that a translator dropped.
    pub(super) refused: BTreeMap<Refusal, u64>,
    /// The flows that a translator knows.
    pub(super) flows: usize,
}

/// An end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) link: usize,
    pub(super) end: usize,
}

impl Place {
    /// The direction that begins here.
    fn direction(self) -> usize {
        2 * self.link + self.end
    }
}

/// The links, routers and translators of a mesh.
#[derive(Debug)]
pub(super) struct RoutedEngine {
    mesh: Arc<Description>,
    routes: Routes,
    fabric: Fabric<()>,
    /// By node.
    translators: Vec<Option<Translator>>,
    /// By node.
    counters: Vec<NodeCounters>,
    /// The size that every link of the node carries, by node.
    least_mtu: Vec<usize>,
    /// The end at each device.
    places: Vec<Place>,
    device_at: HashMap<Place, usize>,
    outbox: VecDeque<Transmit>,
    orders: Receiver<Order>,
}

impl RoutedEngine {
    /// A mesh that carries packets from [`Time::ZERO`] on.
    pub(super) fn new(
        mesh: Arc<Description>,
        routes: Routes,
        orders: Receiver<Order>,
    ) -> RoutedEngine {
        let directions = mesh.links.iter().flat_map(|link| {
            let profiles = link.profiles.iter().zip(["up", "down"]);
            profiles.map(|(profile, way)| {
                let seed = mesh.seed.stream(&format!("link/{}/{way}", link.name));
                (profile.clone().into(), seed)
            })
        });
        let mut fabric = Fabric::new(directions);
        fabric.start(Time::ZERO);
        let translators = mesh.nodes.iter().enumerate().map(|(index, node)| match &node.role {
            NodeRole::Translator { behaviour, .. } => {
                let seed = mesh.seed.stream(&format!("translator/{}", node.name));
                Some(Translator::new(behaviour.clone(), external(&mesh, index), seed))
            }
            _ => None,
        });
        RoutedEngine {
            translators: translators.collect(),
            counters: vec![NodeCounters::default(); mesh.nodes.len()],
            least_mtu: (0..mesh.nodes.len())
                .map(|node| {
                    let links = mesh.links_of(node).map(|(link, _)| mesh.links[link].mtu as usize);
                    links.min().unwrap_or(usize::MAX)
                })
                .collect(),
            device_at: places(&mesh).into_iter().zip(0..).collect(),
            places: places(&mesh),
            outbox: VecDeque::new(),
            fabric,
            routes,
            mesh,
            orders,
        }
    }

    /// What was counted up to `now`.
    pub(super) fn counters(&self, now: Time) -> MeshCounters {
        let links: Vec<Counters> =
            self.fabric.links().iter().map(|link| *link.counters()).collect();
        let nodes = self.counters.iter().zip(&self.translators).map(|(counters, translator)| {
            let flows = translator.as_ref().map_or(0, |translator| translator.flows(now));
            NodeCounters { flows, ..counters.clone() }
        });
        MeshCounters {
            links: links.chunks_exact(2).map(|both| [both[0], both[1]]).collect(),
            nodes: nodes.collect(),
        }
    }

    /// Carries out all that happens until `now`, and then what was ordered.
    fn advance(&mut self, now: Time) {
        while let Some((at, direction)) = self.fabric.next().filter(|(at, _)| *at <= now) {
            let to = Place { link: direction / 2, end: 1 - direction % 2 };
            for arrived in self.fabric.take_arrived(at, direction) {
                self.arrive(at, to, arrived.parcel);
            }
        }
        while let Ok(order) = self.orders.try_recv() {
            self.carry_out(now, order);
        }
    }

    fn carry_out(&mut self, now: Time, order: Order) {
        match order {
            Order::Amend { direction, amendment } => self.fabric.amend(now, direction, amendment),
            Order::Replace { mesh, routes } => {
                (self.mesh, self.routes) = (mesh, routes);
                for (index, translator) in self.translators.iter_mut().enumerate() {
                    let external = external(&self.mesh, index);
                    if let Some(translator) = translator.as_mut()
                        && translator.external() != external
                    {
                        translator.set_external(external);
                    }
                }
            }
            Order::Forget { node } => {
                if let Some(translator) = &mut self.translators[node] {
                    translator.forget();
                }
            }
            Order::Count(answer) => {
                // Who asked may have gone.
                let _ = answer.send(self.counters(now));
            }
        }
    }

    /// A packet arrives at an end of a link.
    fn arrive(&mut self, now: Time, at: Place, mut parcel: Parcel<()>) {
        if let Some(device) = self.device_at.get(&at) {
            self.outbox.push_back(Transmit { device: *device, at: now, data: parcel.data });
            return;
        }
        let node = self.mesh.links[at.link].ends[at.end].node;
        let Some(to) = router::destination(&parcel.data) else { return };
        // Kernels speak to their neighbours by themselves.
        if to.is_multicast() || to.is_unspecified() {
            return;
        }
        let mut visit = Visit { now, at, node, to, original: None };
        match router::use_hop(&mut parcel.data) {
            Some(true) => {}
            Some(false) => {
                self.counters[node].expired += 1;
                self.complain(&visit, &parcel.data, Complaint::Expired);
                return;
            }
            None => return,
        }
        let mut data = parcel.data;
        let translated = match self.translators[node].take() {
            None => Ok(None),
            Some(mut translator) => {
                let is_large = data.len() > self.least_mtu[node];
                visit.original = is_large.then(|| data.clone());
                let translated = self.translate(&mut visit, &mut translator, &mut data);
                self.translators[node] = Some(translator);
                translated
            }
        };
        match translated {
            Ok(Some(link)) => self.leave(&visit, link, data),
            Ok(None) => self.forward(&visit, data),
            Err(refusal) => *self.counters[node].refused.entry(refusal).or_default() += 1,
        }
    }

    /// What a translator does to a packet. Returns the link by which it leaves, if its routes do
    /// not say that.
    fn translate(
        &self,
        visit: &mut Visit,
        translator: &mut Translator,
        data: &mut [u8],
    ) -> Result<Option<usize>, Refusal> {
        let Visit { now, at, node, to, .. } = *visit;
        let NodeRole::Translator { outside, .. } = self.mesh.nodes[node].role else {
            return Ok(None);
        };
        let course = self.routes.of(node).course(to);
        let is_external = translator.external() == Some(to);
        let is_own = is_external || course == Course::Here;
        if is_own && (router::is_echo_request(data) || !is_external) {
            return Ok(None);
        }
        if at.link == outside {
            if to.is_ipv4() && !is_external {
                // Nobody outside sends to an address inside.
                return Err(Refusal::Unsolicited);
            }
            translator.handle_inbound(now, data)?;
        } else if is_external {
            translator.handle_hairpin(now, data)?;
        } else {
            // Of IPv4, what is not known inside is outside.
            let leaves = match course {
                Course::Link(link) => link == outside,
                Course::Unknown => to.is_ipv4(),
                Course::Here => false,
            };
            if leaves {
                translator.handle_outbound(now, data)?;
            }
            return Ok(leaves.then_some(outside));
        }
        visit.to = router::destination(data).unwrap_or(to);
        Ok(None)
    }

    /// Sends a packet on by the routes of a node.
    fn forward(&mut self, visit: &Visit, data: Box<[u8]>) {
        match self.routes.of(visit.node).course(visit.to) {
            Course::Link(link) => self.leave(visit, link, data),
            Course::Here => {
                if let Some(answer) = router::echo_reply(&data) {
                    self.answer(visit, answer);
                }
            }
            Course::Unknown => {
                self.counters[visit.node].unrouted += 1;
                self.complain(visit, &data, Complaint::Unreachable);
            }
        }
    }

    /// Sends a packet out of a node by a link.
    fn leave(&mut self, visit: &Visit, link: usize, data: Box<[u8]>) {
        let next = &self.mesh.links[link];
        if data.len() > next.mtu as usize {
            self.counters[visit.node].too_large += 1;
            let mtu = next.mtu;
            self.complain(visit, &data, Complaint::TooLarge { mtu });
            return;
        }
        let end = usize::from(next.ends[1].node == visit.node);
        self.fabric.offer(visit.now, Place { link, end }.direction(), parcel(data));
    }

    /// Tells the sender of a packet why it goes no further.
    fn complain(&mut self, visit: &Visit, data: &[u8], complaint: Complaint) {
        let data = visit.original.as_deref().unwrap_or(data);
        let own = &self.mesh.links[visit.at.link].ends[visit.at.end].addresses;
        let is_v6 = matches!(data, [0x60..=0x6f, ..]);
        let from = own.iter().map(|(address, _)| *address).find(|own| own.is_ipv6() == is_v6);
        if let Some(answer) = router::complaint(data, from, complaint) {
            self.answer(visit, answer);
        }
    }

    /// Sends a packet back by the link by which another one came.
    fn answer(&mut self, visit: &Visit, data: Vec<u8>) {
        self.fabric.offer(visit.now, visit.at.direction(), parcel(data.into()));
    }
}

/// A packet at a router or a translator.
#[derive(Debug)]
struct Visit {
    now: Time,
    /// Where it came in.
    at: Place,
    node: usize,
    to: IpAddr,
    /// The packet before it was translated, if it may be too large.
    original: Option<Box<[u8]>>,
}

impl Forward for RoutedEngine {
    fn handle_packet(&mut self, now: Time, device: usize, data: &[u8]) {
        self.advance(now);
        self.fabric.offer(now, self.places[device].direction(), parcel(data.into()));
    }

    fn poll_deadline(&self) -> Option<Time> {
        if let Some(transmit) = self.outbox.front() {
            return Some(transmit.at);
        }
        self.fabric.next().map(|(at, _)| at)
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Transmit> {
        if self.outbox.is_empty() {
            self.advance(now);
        }
        self.outbox.pop_front()
    }
}

fn parcel(data: Box<[u8]>) -> Parcel<()> {
    Parcel { tag: (), flow: View::of(&data).as_ref().map_or(0, View::flow), data }
}

/// The ends that have devices, in the order of the devices: those of hosts.
pub(super) fn places(mesh: &Description) -> Vec<Place> {
    let ends = (0..mesh.nodes.len()).flat_map(|node| {
        let is_host = matches!(mesh.nodes[node].role, NodeRole::Host { .. });
        mesh.links_of(node).filter(move |_| is_host).map(|(link, end)| Place { link, end })
    });
    ends.collect()
}

/// The IPv4 address of a translator outside.
fn external(mesh: &Description, node: usize) -> Option<IpAddr> {
    let NodeRole::Translator { outside, .. } = mesh.nodes[node].role else { return None };
    let end = mesh.links[outside].ends.iter().find(|end| end.node == node)?;
    end.addresses.iter().map(|(address, _)| *address).find(IpAddr::is_ipv4)
}
