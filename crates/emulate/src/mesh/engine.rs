//! The links of a mesh as a state machine: packets in, packets out, no devices and no clock.
//!
//! It is a simulation in step with real time: a packet enters its next link at the moment when it
//! leaves the one before, however late the driver comes, so that lateness does not add up over the
//! links of a route.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::net::Ipv4Addr;
use std::sync::{Arc, OnceLock};

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use units::{Span, Time};

use super::measure::Measurer;
use super::{DeviceAt, Plan, RoutePlan};
use crate::driver::{Forward, Transmit};
use crate::fabric::{Arrived, Fabric, Parcel};
use crate::packet::View;

/// A mesh. Until it starts, links have their first rate and no blackouts.
#[derive(Debug)]
pub(crate) struct MeshEngine {
    links: Fabric<Position>,
    routes: Vec<Route>,
    route_by_ends: HashMap<RouteKey, usize>,
    lanes: Vec<Lane>,
    held: BinaryHeap<Reverse<Held>>,
    numbered: u64,
    outbox: VecDeque<Transmit>,
    /// Set by another thread: when to start.
    start: Arc<OnceLock<Time>>,
    started: Option<Time>,
    measurer: Measurer,
    /// Packets between addresses without a route.
    unrouted: u64,
}

/// What decides the route of a packet: the device where it enters, and its addresses.
type RouteKey = (usize, Ipv4Addr, Ipv4Addr);

#[derive(Debug)]
struct Route {
    links: Box<[usize]>,
    /// The device at the end.
    device: usize,
    lane: Option<usize>,
}

/// Where a packet is: its route, and the position on it.
#[derive(Clone, Copy, Debug)]
struct Position {
    route: usize,
    place: usize,
}

/// Delays packets before their first link.
#[derive(Debug)]
struct Lane {
    most: Span,
    last: Time,
    rng: Xoshiro256PlusPlus,
}

impl Lane {
    /// The release of a packet that came in at `now`.
    fn draw(&mut self, now: Time) -> Time {
        let range = u128::from(self.most.as_nanos()) + 1;
        let drawn = u64::try_from((u128::from(self.rng.next_u64()) * range) >> 64)
            .expect("below the range");
        self.last = self.last.max(now + Span::from_nanos(drawn));
        self.last
    }
}

/// A packet in a lane.
#[derive(Debug)]
struct Held {
    at: Time,
    number: u64,
    carried: Parcel<Position>,
}

impl PartialEq for Held {
    fn eq(&self, other: &Held) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Held) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Held) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// What happens next. Of what is due at the same time, the first of these comes first: a window
/// ends with all that arrives at its last moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Start,
    Release,
    Link(usize),
    Edge,
}

impl MeshEngine {
    /// The engine of a plan, which starts once `start` is set.
    ///
    /// # Panics
    /// If a route of the plan has no links, or has an address that no device has.
    pub(crate) fn new(plan: &Plan, start: Arc<OnceLock<Time>>) -> MeshEngine {
        let devices = plan.hosts.iter().flat_map(|host| &host.devices);
        let device_by_address: HashMap<Ipv4Addr, usize> = devices
            .enumerate()
            .flat_map(|(index, device)| device.addresses.iter().map(move |at| (*at, index)))
            .collect();
        let number = |at: DeviceAt| {
            let before = plan.hosts[..at.host].iter().map(|host| host.devices.len());
            before.sum::<usize>() + at.device
        };
        let mut routes = Vec::with_capacity(plan.routes.len());
        let mut route_by_ends = HashMap::with_capacity(plan.routes.len());
        for (index, RoutePlan { from, to, links, lane, between }) in plan.routes.iter().enumerate()
        {
            assert!(!links.is_empty(), "a route has links");
            let [enters, device] = between.map_or_else(
                || [from, to].map(|address| device_by_address[address]),
                |between| between.map(number),
            );
            routes.push(Route { links: links.clone().into(), device, lane: *lane });
            route_by_ends.insert((enters, *from, *to), index);
        }
        MeshEngine {
            links: Fabric::new(plan.links.iter().map(|link| (link.profile.clone(), link.seed))),
            routes,
            route_by_ends,
            lanes: plan
                .lanes
                .iter()
                .map(|lane| Lane {
                    most: lane.most,
                    last: Time::ZERO,
                    rng: Xoshiro256PlusPlus::seed_from_u64(lane.seed.0),
                })
                .collect(),
            held: BinaryHeap::new(),
            numbered: 0,
            outbox: VecDeque::new(),
            start,
            started: None,
            measurer: Measurer::new(plan.windows.clone(), plan.links.len()),
            unrouted: 0,
        }
    }

    /// When it started.
    pub(crate) fn started(&self) -> Option<Time> {
        self.started
    }

    /// The packets between addresses without a route.
    pub(crate) fn unrouted(&self) -> u64 {
        self.unrouted
    }

    /// What was measured.
    pub(crate) fn measurer(&self) -> &Measurer {
        &self.measurer
    }

    /// What happens next, and when.
    fn next_event(&self) -> Option<(Time, Event)> {
        let start = self.start.get().filter(|_| self.started.is_none());
        let start = start.map(|at| (*at, Event::Start));
        let release = self.held.peek().map(|Reverse(held)| (held.at, Event::Release));
        let link = self.links.next().map(|(at, index)| (at, Event::Link(index)));
        let edge = self.started.and_then(|start| self.measurer.next_edge(start));
        let edge = edge.map(|at| (at, Event::Edge));
        [start, release, link, edge].into_iter().flatten().min()
    }

    /// Carries out all that happens until `now`.
    fn advance(&mut self, now: Time) {
        while let Some((at, event)) = self.next_event().filter(|(at, _)| *at <= now) {
            match event {
                Event::Start => {
                    self.started = Some(at);
                    self.links.start(at);
                }
                Event::Release => {
                    let Some(Reverse(held)) = self.held.pop() else { return };
                    self.enter(at, held.carried);
                }
                Event::Link(index) => self.deliver(at, index),
                Event::Edge => {
                    let Some(start) = self.started else { return };
                    let measurer = &mut self.measurer;
                    self.links.read(at, |links| measurer.pass_edge(start, at, links));
                }
            }
        }
    }

    /// Takes out the packets that arrive at the end of a link.
    fn deliver(&mut self, at: Time, index: usize) {
        for Arrived { at: arrival, waited, parcel } in self.links.take_arrived(at, index) {
            if let Some(start) = self.started {
                self.measurer.note_wait(index, start, arrival, waited);
            }
            let Parcel { tag: Position { route, place }, flow, data } = parcel;
            if place + 1 == self.routes[route].links.len() {
                let device = self.routes[route].device;
                self.outbox.push_back(Transmit { device, at: arrival, data });
            } else {
                self.enter(at, Parcel { tag: Position { route, place: place + 1 }, flow, data });
            }
        }
    }

    /// Offers a packet to the link at its place.
    fn enter(&mut self, now: Time, carried: Parcel<Position>) {
        let Position { route, place } = carried.tag;
        self.links.offer(now, self.routes[route].links[place], carried);
    }
}

/// Whether a packet is of TCP or UDP. Kernels send others on their own, to routers and neighbours,
/// and about ports that are closed.
fn is_of_flow(data: &[u8]) -> bool {
    const TCP_OR_UDP: [u8; 2] = [6, 17];
    let protocol_at = match data.first().map(|first| first >> 4) {
        Some(4) => 9,
        Some(6) => 6,
        _ => return false,
    };
    data.get(protocol_at).is_some_and(|protocol| TCP_OR_UDP.contains(protocol))
}

impl Forward for MeshEngine {
    fn handle_packet(&mut self, now: Time, device: usize, data: &[u8]) {
        self.advance(now);
        let route =
            addresses(data).and_then(|(from, to)| self.route_by_ends.get(&(device, from, to)));
        let Some(&route) = route else {
            self.unrouted += u64::from(is_of_flow(data));
            return;
        };
        let flow = View::of(data).as_ref().map_or(0, View::flow);
        let carried = Parcel { tag: Position { route, place: 0 }, flow, data: data.into() };
        match self.routes[route].lane {
            Some(lane) => {
                let at = self.lanes[lane].draw(now);
                self.numbered += 1;
                self.held.push(Reverse(Held { at, number: self.numbered, carried }));
            }
            None => self.enter(now, carried),
        }
    }

    fn poll_deadline(&self) -> Option<Time> {
        if let Some(transmit) = self.outbox.front() {
            return Some(transmit.at);
        }
        self.next_event().map(|(at, _)| at)
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Transmit> {
        if self.outbox.is_empty() {
            self.advance(now);
        }
        self.outbox.pop_front()
    }
}

/// The addresses of an IPv4 packet.
fn addresses(data: &[u8]) -> Option<(Ipv4Addr, Ipv4Addr)> {
    let header: &[u8; 20] = data.first_chunk()?;
    let address = |at: usize| Ipv4Addr::from([0, 1, 2, 3].map(|byte| header[at + byte]));
    (header[0] >> 4 == 4).then(|| (address(12), address(16)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::{DevicePlan, HostPlan, LanePlan, LinkPlan, LinkWindow, WindowSpan};
    use crate::packet::tests::udp;
    use link::{Profile, SharedProfile};
    use units::{Rate, Seed};

    const A: [u8; 4] = [10, 1, 1, 1];
    const B: [u8; 4] = [10, 2, 1, 1];

    fn ms(n: u64) -> Span {
        Span::from_millis(n)
    }

    fn at(n: u64) -> Time {
        Time::ZERO + ms(n)
    }

    /// Two hosts behind a bottleneck of 12 Mbit/s, and an access link of 120 Mbit/s before it.
    fn plan() -> Plan {
        let link = |name: &str, rate: u64, delay: u64| LinkPlan {
            name: name.into(),
            profile: SharedProfile::from(Profile::new(Rate::mbit(rate), ms(delay))),
            seed: Seed(1),
        };
        let host = |name: &str| HostPlan {
            name: name.into(),
            devices: vec![DevicePlan { name: "tun1".into(), ..DevicePlan::default() }],
            ..HostPlan::default()
        };
        let mut plan = Plan {
            hosts: vec![host("a"), host("b")],
            links: vec![link("access", 120, 1), link("bottleneck", 12, 10)],
            windows: vec![WindowSpan { from: ms(5), to: ms(1_000) }],
            ..Plan::default()
        };
        let (from, to) = (plan.add_address(0, 0), plan.add_address(1, 0));
        let (from, to) = (from.expect("free"), to.expect("free"));
        plan.routes.push(RoutePlan { from, to, links: vec![0, 1], lane: None, between: None });
        plan.routes.push(RoutePlan {
            from: to,
            to: from,
            links: vec![1],
            lane: None,
            between: None,
        });
        plan
    }

    fn engine(plan: &Plan) -> MeshEngine {
        MeshEngine::new(plan, Arc::new(OnceLock::from(at(0))))
    }

    fn drain(engine: &mut MeshEngine) -> Vec<(usize, u64)> {
        std::iter::from_fn(|| engine.poll_transmit(at(10_000)))
            .map(|transmit| (transmit.device, (transmit.at - Time::ZERO).as_micros()))
            .collect()
    }

    #[test]
    fn a_packet_goes_from_link_to_link() {
        let mut engine = engine(&plan());
        engine.handle_packet(at(0), 0, &udp((A, 1), (B, 2), &[0; 1_472]));
        assert_eq!(engine.poll_deadline(), Some(Time::ZERO + Span::from_micros(1_100)));
        // 0.1 ms and 1 ms on the wires, 1 ms and 10 ms of propagation.
        assert_eq!(drain(&mut engine), [(1, 12_100)]);
        engine.handle_packet(at(20_000), 1, &udp((B, 2), (A, 1), &[0; 1_472]));
        let back = engine.poll_transmit(at(30_000)).expect("it has a route");
        assert_eq!((back.device, back.at), (0, at(20_011)));
    }

    #[test]
    fn a_host_that_forwards_has_packets_of_others() {
        let mut plan = plan();
        let forwarder = HostPlan {
            name: "forwarder".into(),
            devices: vec![DevicePlan::default(), DevicePlan::default()],
            forwards: true,
            ..HostPlan::default()
        };
        plan.hosts.push(forwarder);
        let at_host = |host, device| DeviceAt { host, device };
        let [from, to] = [A, B].map(Ipv4Addr::from);
        plan.routes = vec![
            RoutePlan {
                from,
                to,
                links: vec![0],
                lane: None,
                between: Some([at_host(0, 0), at_host(2, 0)]),
            },
            RoutePlan {
                from,
                to,
                links: vec![1],
                lane: None,
                between: Some([at_host(2, 1), at_host(1, 0)]),
            },
        ];
        let mut engine = engine(&plan);
        let packet = udp((A, 1), (B, 2), &[0; 1_472]);
        engine.handle_packet(at(0), 0, &packet);
        assert_eq!(drain(&mut engine), [(2, 1_100)], "to the device of the one that forwards");
        engine.handle_packet(at(20_000), 3, &packet);
        assert_eq!(engine.poll_transmit(at(30_000)).expect("a route").device, 1);
        // Nobody has a route for it by the device that it came to.
        engine.handle_packet(at(30_000), 2, &packet);
        assert_eq!(engine.unrouted(), 1);
    }

    #[test]
    fn lateness_does_not_add_up() {
        let mut engine = engine(&plan());
        engine.handle_packet(at(0), 0, &udp((A, 1), (B, 2), &[0; 1_472]));
        // Nobody came when the packet left its first link.
        engine.handle_packet(at(8), 0, &udp((A, 1), (B, 2), &[0; 1_472]));
        assert_eq!(drain(&mut engine), [(1, 12_100), (1, 20_100)]);
    }

    #[test]
    fn packets_without_a_route_are_counted() {
        let mut engine = engine(&plan());
        engine.handle_packet(at(0), 0, &udp((A, 1), ([10, 9, 9, 9], 2), b"x"));
        let mut v6 = [0x60; 40];
        v6[6] = 17;
        engine.handle_packet(at(0), 0, &v6);
        // A kernel's own: ICMPv6.
        v6[6] = 58;
        engine.handle_packet(at(0), 0, &v6);
        assert_eq!((engine.unrouted(), drain(&mut engine).len()), (2, 0));
    }

    #[test]
    fn a_lane_keeps_the_order() {
        let mut plan = plan();
        plan.lanes.push(LanePlan { most: ms(30), seed: Seed(7) });
        plan.routes[0].lane = Some(0);
        let mut engine = engine(&plan);
        for number in 0..50u8 {
            engine.handle_packet(at(u64::from(number)), 0, &udp((A, 1), (B, 2), &[number; 100]));
        }
        let packets: Vec<Transmit> =
            std::iter::from_fn(|| engine.poll_transmit(at(10_000))).collect();
        let order: Vec<u8> = packets.iter().map(|packet| packet.data[40]).collect();
        assert!(order.iter().copied().eq(0..50), "{order:?}");
        let delays: Vec<u64> =
            (0..).zip(&packets).map(|(n, p)| (p.at - at(n)).as_millis()).collect();
        assert!(delays.iter().all(|delay| (11..42).contains(delay)), "{delays:?}");
        assert!(delays.iter().max() > delays.iter().min(), "{delays:?}");
    }

    #[test]
    fn schedules_begin_with_the_start() {
        let mut plan = plan();
        let profile = Profile {
            blackouts: vec![link::Blackout { from: ms(0), to: Some(ms(100)), every: None }],
            ..Profile::new(Rate::mbit(12), ms(10))
        };
        plan.links[1].profile = profile.into();
        let start = Arc::new(OnceLock::new());
        let mut engine = MeshEngine::new(&plan, Arc::clone(&start));
        engine.handle_packet(at(0), 0, &udp((A, 1), (B, 2), &[0; 1_472]));
        assert_eq!(drain(&mut engine).len(), 1);
        start.set(at(20_000)).expect("it is not set yet");
        engine.handle_packet(at(20_050), 0, &udp((A, 1), (B, 2), &[0; 1_472]));
        engine.handle_packet(at(20_150), 0, &udp((A, 1), (B, 2), &[0; 1_472]));
        let arrived: Vec<Transmit> =
            std::iter::from_fn(|| engine.poll_transmit(at(30_000))).collect();
        assert_eq!(arrived.len(), 1, "the other one fell into the blackout");
        assert_eq!(engine.started(), Some(at(20_000)));
    }

    /// Found with a run that a signal cut short: counters at its beginning were subtracted from
    /// none.
    #[test]
    fn a_window_that_has_not_ended_has_nothing() {
        let mut plan = plan();
        plan.windows.insert(0, WindowSpan { from: ms(5), to: ms(20) });
        let mut engine = engine(&plan);
        for millis in [0, 6] {
            engine.handle_packet(at(millis), 0, &udp((A, 1), (B, 2), &[0; 1_472]));
        }
        while engine.poll_transmit(at(50)).is_some() {}
        let links = engine.measurer().reports(&plan);
        assert_eq!(links[0].windows[0].packets, 1);
        assert!(!engine.measurer().is_complete());
        assert!(links.iter().all(|link| link.windows[1] == LinkWindow::default()));
    }

    #[test]
    fn measures_are_of_the_window() {
        let mut engine = engine(&plan());
        // The first one arrives before the window, and the others wait for 0, 1 and 2 ms less what
        // the access link takes.
        engine.handle_packet(at(0), 1, &udp((B, 2), (A, 1), &[0; 12]));
        for millis in [100, 100, 100] {
            engine.handle_packet(at(millis), 0, &udp((A, 1), (B, 2), &[0; 1_472]));
        }
        assert_eq!(drain(&mut engine).len(), 4);
        let plan = plan();
        let reports = engine.measurer().reports(&plan);
        let window = &reports[1].windows[0];
        assert_eq!((window.packets, window.bytes), (4, 4_540));
        let rounded = |value: Option<f64>| value.map(|value| (value * 1e3).round() / 1e3);
        // The packet that began before the window waited for nothing.
        assert_eq!(rounded(window.queue_ms), Some(0.9));
        assert_eq!(rounded(window.queue_p50_ms), Some(0.0));
        assert_eq!(rounded(window.queue_max_ms), Some(1.8));
        assert_eq!((window.drops, window.losses, window.marks), (0, 0, 0));
    }
}
