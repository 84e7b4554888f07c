//! A benchmark of the event loop: N senders with a fixed window over one bottleneck.
//!
//!     cargo run --release -p anabranch-netsim --example hops -- [N] [SECONDS] [trace]
//!
//! Access links of 1 Gbit/s, a bottleneck of 100 Mbit/s with a drop-tail queue of 168 packets, 20
//! ms of round trip, data packets of 1500 bytes and an acknowledgement of 40 bytes for each. All
//! windows together are 300 packets, so that the bottleneck is always busy and nothing is lost.
//! With `trace`, every event goes through a sink that counts it. Prints one line of JSON.

use std::time::Instant;

use link::{Limit, Profile};
use netsim::{Event, Host, Out, Packet, Route, Sim, Topology, TopologyError};
use units::{Bytes, Rate, Seed, Span, Time};

/// About the size of the headers of a TCP segment.
#[derive(Clone, Copy)]
struct Segment {
    sequence: u64,
    acknowledged: u64,
    sent_at: Time,
    size: u32,
    flags: u32,
}

impl Packet for Segment {
    fn size(&self) -> Bytes {
        Bytes(u64::from(self.size))
    }

    fn digest(&self) -> u64 {
        self.sequence ^ self.acknowledged.rotate_left(32) ^ u64::from(self.flags)
    }
}

/// A sender without acknowledgements for this long starts again from the last one.
const TIMEOUT: Span = Span::from_millis(200);

enum End {
    Sender { route: Route, window: u64, next: u64, acknowledged: u64, deadline: Time },
    Receiver { route: Route, expected: u64 },
}

impl Host<Segment> for End {
    fn handle_packet(&mut self, now: Time, packet: Segment, out: &mut Out<Segment>) {
        match self {
            End::Sender { route, window, next, acknowledged, deadline } => {
                *acknowledged = packet.acknowledged.max(*acknowledged);
                *deadline = now + TIMEOUT;
                fill(*route, *window, next, *acknowledged, now, out);
            }
            End::Receiver { route, expected } => {
                *expected = packet.sequence.max(*expected) + 1;
                let Segment { sequence, sent_at, .. } = packet;
                out.send(
                    *route,
                    Segment { sequence, acknowledged: *expected, sent_at, size: 40, flags: 1 },
                );
            }
        }
    }

    fn poll_deadline(&self) -> Option<Time> {
        match self {
            End::Sender { deadline, .. } => Some(*deadline),
            End::Receiver { .. } => None,
        }
    }

    fn handle_deadline(&mut self, now: Time, out: &mut Out<Segment>) {
        if let End::Sender { route, window, next, acknowledged, deadline } = self {
            *next = *acknowledged;
            *deadline = now + TIMEOUT;
            fill(*route, *window, next, *acknowledged, now, out);
        }
    }
}

fn fill(
    route: Route,
    window: u64,
    next: &mut u64,
    acknowledged: u64,
    now: Time,
    out: &mut Out<Segment>,
) {
    while *next < acknowledged + window {
        out.send(
            route,
            Segment { sequence: *next, acknowledged: 0, sent_at: now, size: 1_500, flags: 0 },
        );
        *next += 1;
    }
}

fn dumbbell(senders: u64) -> Result<Sim<Segment, End>, TopologyError> {
    let mut net = Topology::new();
    let queue = Limit::Packets(168);
    let access = Profile {
        queue: Limit::Packets(1_000),
        ..Profile::new(Rate::mbit(1_000), Span::from_micros(1_000))
    };
    let bottleneck = Profile { queue, ..Profile::new(Rate::mbit(100), Span::from_millis(8)) };
    net.add_router("left")?;
    net.add_router("right")?;
    net.duplex("bottleneck", "left", "right", &bottleneck)?;
    let mut routes = Vec::new();
    for n in 0..senders {
        let (sender, receiver) = (format!("sender {n}"), format!("receiver {n}"));
        net.add_host(sender.as_str())?;
        net.add_host(receiver.as_str())?;
        net.duplex(&format!("sender {n}"), &sender, "left", &access)?;
        net.duplex(&format!("receiver {n}"), "right", &receiver, &access)?;
        routes.push((net.route(&sender, &receiver)?, net.route(&receiver, &sender)?));
    }
    let window = (300 / senders).max(1);
    let mut flows = (0..).zip(routes);
    let mut receiver = None;
    // Senders and receivers alternate.
    net.build(Seed(1), |_| {
        if let Some(route) = receiver.take() {
            return End::Receiver { route, expected: 0 };
        }
        let (n, (there, back)) = flows.next().expect("a flow for each pair");
        receiver = Some(back);
        let deadline = Time::ZERO + Span::from_secs(1) * n / senders;
        End::Sender { route: there, window, next: 0, acknowledged: 0, deadline }
    })
}

/// The CPU time of this process in seconds and its peak memory in KiB, as reported by the kernel.
fn usage() -> (Option<f64>, Option<u64>) {
    let schedule = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanos = schedule.split(' ').next().and_then(|n| n.parse().ok());
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|text| text.trim().trim_end_matches(" kB").parse().ok());
    (nanos.map(|nanos| Span::from_nanos(nanos).as_secs_f64()), kib)
}

#[expect(clippy::cast_precision_loss, reason = "counts below 2^53")]
fn main() {
    let mut arguments = std::env::args().skip(1);
    let senders: u64 = arguments.next().map_or(10, |n| n.parse().expect("N, a number of senders"));
    let seconds: u64 = arguments.next().map_or(60, |n| n.parse().expect("SECONDS, a number"));
    let traced = arguments.next().is_some_and(|word| word == "trace");
    let mut sim = dumbbell(senders.max(1)).expect("the dumbbell is right");
    let until = Time::ZERO + Span::from_secs(seconds);
    let start = Instant::now();
    let mut recorded = 0u64;
    if traced {
        sim.run_traced(until, &mut |_: Time, _: Event<'_, Segment>| recorded += 1);
    } else {
        sim.run_until(until);
    }
    let wall = start.elapsed().as_secs_f64();
    let (cpu, peak) = usage();
    let (cpu, totals) = (cpu.unwrap_or(wall), sim.totals());
    let drops: u64 = sim.all_counters().map(|counters| counters.dropped()).sum();
    println!(
        "{{\"senders\": {senders}, \"seconds\": {seconds}, \"hops\": {}, \"events\": {}, \
         \"drops\": {drops}, \"delivered\": {}, \"recorded\": {recorded}, \"cpu_s\": {cpu:.4}, \
         \"rss_kib\": {}, \"mhops_per_cpu_s\": {:.2}, \"digest\": \"{}\"}}",
        totals.hops,
        totals.events,
        totals.delivered,
        peak.unwrap_or(0),
        totals.hops as f64 / cpu / 1e6,
        sim.digest(),
    );
}
