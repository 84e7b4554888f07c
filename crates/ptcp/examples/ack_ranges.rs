//! What a sender does not learn although an acknowledgement names up to 32 older ranges:
//! `ack_ranges`.
//!
//! A file of 20 MiB over one path of 50 Mbit/s and 40 ms that loses and reorders packets in both
//! directions, and in some cases loses all acknowledgements for 100 ms in each second, six times.
//! Prints a line for each case: controller, packets lost and reordered by the link (per thousand),
//! whether acknowledgements fail, packets sent, packets declared lost that had arrived, those of
//! them that no later acknowledgement corrected, the time on average (ms), and the octets of an
//! acknowledgement on average.
#![expect(
    clippy::print_stdout,
    clippy::expect_used,
    reason = "a command that prints, and fails by panicking"
)]

use std::collections::BTreeSet;

use policy::cc;
use policy::sched::packet;
use ptcp::{Config, Connection, Transmit};
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use testnet::{Arrival, Direction, Endpoint, Link, Network, Op};
use units::{Bytes, Rate, Span, SubflowId, Time};
use wire::ptcp::Body;

const FILE: Bytes = Bytes::mib(20);
const SEEDS: u64 = 6;

/// A connection, the numbers of the ack-eliciting packets that arrived, and the number of
/// acknowledgements that it sent and their octets of datagram together.
struct End {
    connection: Connection,
    arrived: BTreeSet<u64>,
    acks: [u64; 2],
}

impl Endpoint for End {
    type Packet = Transmit;
    type Action = ();

    fn act(&mut self, _now: Time, (): ()) {}

    fn handle_packet(&mut self, now: Time, arrival: Arrival<Transmit>) {
        let Transmit { path, packet, .. } = arrival.packet;
        if packet.is_eliciting() {
            self.arrived.insert(packet.number);
        }
        self.connection.handle_packet(now, path, &packet, false).expect("both ends are honest");
    }

    fn poll_transmit(&mut self, now: Time) -> Option<testnet::Transmit<Transmit>> {
        let packet = self.connection.poll_send(now)?;
        if let Body::Ack(_) = packet.packet.body {
            self.acks[0] += 1;
            self.acks[1] += packet.packet.datagram_len() as u64;
        }
        Some(testnet::Transmit { link: 0, bytes: packet.packet.wire_len(), packet })
    }

    fn poll_deadline(&self) -> Option<Time> {
        self.connection.poll_deadline()
    }

    fn handle_deadline(&mut self, now: Time) {
        self.connection.handle_deadline(now);
    }
}

/// What was sent, declared lost though it had arrived, and not corrected; the time that it took;
/// the acknowledgements and their octets.
fn run(controller: &str, (loss, reordering): (u64, u64), fails: bool, seed: u64) -> [u64; 6] {
    let config = Config {
        receive_buffer: Bytes::mib(8),
        max_receive_buffer: Bytes::mib(16),
        ..Config::default()
    };
    let ends = [true, false].map(|is_client| {
        let tokens = Box::new(Xoshiro256PlusPlus::seed_from_u64(u64::from(is_client) + 2 * seed));
        let controller = cc::by_name(controller).expect("it is known");
        let scheduler = packet::by_name("lowest-rtt").expect("it is known");
        let make = if is_client { Connection::client } else { Connection::server };
        let connection = make(config.clone(), controller, scheduler, tokens);
        End { connection, arrived: BTreeSet::new(), acks: [0; 2] }
    });
    let link = Link {
        rate: Some(Rate::mbit(50)),
        queue: Bytes(500_000),
        loss,
        reordering,
        lateness: Span::from_millis(20),
        ..Link::new(Span::from_millis(20))
    };
    let mut network = Network::new(ends, [link], seed);
    network.ends[0].connection.open_path(Time::ZERO);
    network.run_for(Span::from_secs(3));
    let begin = network.now();
    for second in 0..(if fails { 300 } else { 0 }) {
        let (link, direction) = (0, Direction::Backward);
        let at = begin + Span::from_millis(1_000 * second + 500);
        network.schedule(at, Op::Cut { link, direction });
        network.schedule(at + Span::from_millis(100), Op::Restore { link, direction });
    }
    let client = &mut network.ends[0].connection;
    let stream = client.open_stream();
    client.write(stream, FILE);
    let is_over = network.run_until(begin + Span::from_secs(600), |network| {
        network.ends[1].connection.received(stream) == FILE
    });
    assert!(is_over, "the file has not arrived");
    let took = network.now() - begin;
    // Until nothing is in flight.
    network.run_for(Span::from_secs(5));
    let stats = *network.ends[0].connection.stats(SubflowId(0)).expect("the path is open");
    let missing = stats.sent - network.ends[1].arrived.len() as u64;
    let wrongly = stats.lost.saturating_sub(missing);
    let uncorrected = wrongly.saturating_sub(stats.spurious);
    let [acks, octets] = network.ends[1].acks;
    [stats.sent, wrongly, uncorrected, took.as_micros() / 1_000, acks, octets]
}

fn main() {
    for controller in ["cubic", "bbr"] {
        for fails in [false, true] {
            for (loss, reordering) in [(0, 0), (10, 0), (50, 0), (0, 100), (10, 100), (100, 300)] {
                let mut sums = [0; 6];
                for seed in 0..SEEDS {
                    let run = run(controller, (loss, reordering), fails, seed);
                    sums.iter_mut().zip(run).for_each(|(sum, of_run)| *sum += of_run);
                }
                let [sent, wrongly, uncorrected, took, acks, octets] = sums;
                println!(
                    "{controller:5} {loss:3} {reordering:3} {fails:5} {sent:6} {wrongly:5} \
                     {uncorrected:5} {:6} {:4}",
                    took / SEEDS,
                    octets / acks
                );
            }
        }
    }
}
