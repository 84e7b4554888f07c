//! Losses of lines and of full queues under CUBIC, as `policy::line_loss` sees them from samples of
//! a sender's counters.

use policy::cc::{Acked, Allowance, Congestion, Cubic, SinglePath, Start, Uncoupled};
use policy::line_loss::{Counters, LineLoss};
use tcp::{Config, Endpoint};
use testnet::{Arrival, Dice, Fate, Link, Network, Transmit};
use units::{Bytes, Rate, Span, SubflowId, Time};
use wire::tcp::Segment;

/// The interval of samples.
const SAMPLE_EVERY: Span = Span::from_millis(25);
const HEADERS: u64 = 52;
const MSS: u64 = 1_448;
const SENDER: SubflowId = SubflowId(0);

/// CUBIC, and the round-trip times as a kernel keeps them: each acknowledgement is a sample with
/// the gain 1/8.
#[derive(Clone, Debug, Default)]
struct Watched {
    cubic: Cubic,
    smoothed: Option<Span>,
    shortest: Option<Span>,
}

impl SinglePath for Watched {
    const NAME: &'static str = "cubic";

    fn handle_start(&mut self, now: Time, start: &Start) {
        self.cubic.handle_start(now, start);
    }

    fn handle_acked(&mut self, now: Time, acked: &Acked) {
        self.cubic.handle_acked(now, acked);
        if let Some(rtt) = acked.rtt {
            self.smoothed = Some(self.smoothed.map_or(rtt, |smoothed| smoothed / 8 * 7 + rtt / 8));
        }
        self.shortest = Some(acked.min_rtt);
    }

    fn handle_congestion(&mut self, now: Time, congestion: &Congestion) {
        self.cubic.handle_congestion(now, congestion);
    }

    fn handle_timeout(&mut self, now: Time, in_flight: Bytes) {
        self.cubic.handle_timeout(now, in_flight);
    }

    fn handle_undo(&mut self, now: Time) {
        self.cubic.handle_undo(now);
    }

    fn handle_slow_start_end(&mut self, now: Time) {
        self.cubic.handle_slow_start_end(now);
    }

    fn allowance(&self) -> Allowance {
        self.cubic.allowance()
    }

    fn threshold(&self) -> Option<Bytes> {
        self.cubic.threshold()
    }
}

/// An endpoint with its controller.
struct Host {
    endpoint: Endpoint,
    controller: Uncoupled<Watched>,
}

impl Host {
    fn new(endpoint: Endpoint) -> Host {
        Host { endpoint, controller: Uncoupled::new(Watched::default()) }
    }

    /// The counters, if there was a round trip. `timeouts`: those before the last sample.
    fn sample(&self, timeouts: u64) -> Option<Counters> {
        let stats = self.endpoint.stats();
        let packets = |bytes: Bytes| u32::try_from(bytes.0 / MSS).expect("small");
        let watched = self.controller.get(SENDER)?;
        Some(Counters {
            rtt: watched.smoothed?,
            min_rtt: watched.shortest?,
            window: packets(watched.allowance().window),
            threshold: watched.threshold().map(packets),
            in_flight: packets(self.endpoint.in_flight()),
            retransmits: stats.retransmitted,
            spurious: 0,
            sent: stats.sent,
            has_timed_out: stats.timeouts > timeouts,
        })
    }
}

impl testnet::Endpoint for Host {
    type Packet = Segment;
    type Action = ();

    fn act(&mut self, _now: Time, (): ()) {}

    fn handle_packet(&mut self, now: Time, arrival: Arrival<Segment>) {
        self.endpoint.handle_segment(now, &arrival.packet, false, &mut self.controller);
        while self.endpoint.poll_event().is_some() {}
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Transmit<Segment>> {
        let packet = self.endpoint.poll_send(now, &mut self.controller)?.segment;
        let bytes = Bytes(HEADERS + u64::from(packet.len));
        Some(Transmit { link: 0, bytes, packet })
    }

    fn poll_deadline(&self) -> Option<Time> {
        self.endpoint.poll_deadline()
    }

    fn handle_deadline(&mut self, now: Time) {
        self.endpoint.handle_deadline(now, &mut self.controller);
    }
}

/// A line, and what is sent over it.
#[derive(Clone, Copy, Debug)]
struct Case {
    mbit: u64,
    round_trip_ms: u64,
    /// The queue in hundredths of the bandwidth-delay product.
    queue: u64,
    /// Lost packets in a hundred thousand.
    loss: u64,
    hystart: bool,
    /// The bytes that the application writes at every sample; `None`: all at once.
    writes: Option<u64>,
    seconds: u64,
}

const LINE: Case = Case {
    mbit: 20,
    round_trip_ms: 100,
    queue: 100,
    loss: 0,
    hystart: true,
    writes: None,
    seconds: 20,
};

impl Case {
    /// When the losses were found to be the line's.
    fn run(self, seed: u64) -> Option<Time> {
        let product = self.mbit * self.round_trip_ms * 125;
        let link = Link {
            rate: Some(Rate::mbit(self.mbit)),
            queue: Bytes((product * self.queue / 100).max(15_000)),
            ..Link::new(Span::from_micros(self.round_trip_ms * 500))
        };
        let config = Config { hystart: self.hystart, ..Config::default() };
        let mut client = Endpoint::client(config.clone(), SENDER);
        client.write(Bytes(self.writes.unwrap_or(1 << 40)));
        let server = Endpoint::server(config, SubflowId(1));
        let mut network = Network::new([Host::new(client), Host::new(server)], [link], seed);
        let (mut dice, loss) = (Dice::new(seed), self.loss);
        network.set_fates(move |sent| {
            let is_lost = sent.packet.len > 0 && dice.below(100_000) < loss;
            if is_lost { Fate::Lost } else { Fate::Arrives }
        });
        let Host { endpoint, controller, .. } = &mut network.ends[0];
        endpoint.open(Time::ZERO, controller);
        let (mut watch, mut timeouts) = (LineLoss::default(), 0);
        while network.now() < Time::ZERO + Span::from_secs(self.seconds) {
            network.run_for(SAMPLE_EVERY);
            let sender = &mut network.ends[0];
            if let Some(bytes) = self.writes {
                sender.endpoint.write(Bytes(bytes));
            }
            let Some(sample) = sender.sample(timeouts) else { continue };

            timeouts = sender.endpoint.stats().timeouts;
            if watch.look(network.now(), &sample).is_some() {
                return Some(network.now());
            }
        }
        None
    }
}

/// The latest verdict of some seeds; `None` if one of them had none.
fn latest(case: Case, seeds: u64) -> Option<Time> {
    (0..seeds).map(|seed| case.run(seed)).collect::<Option<Vec<_>>>()?.into_iter().max()
}

#[test]
fn full_queues_are_not_the_line() {
    for queue in [30, 100, 300] {
        for round_trip_ms in [12, 60, 150] {
            for hystart in [false, true] {
                let case = Case { round_trip_ms, queue, hystart, seconds: 10, ..LINE };
                assert_eq!(case.run(0), None, "{case:?}");
            }
        }
    }
}

#[test]
fn losses_of_a_long_line_are_found_within_seconds() {
    // Up to two seconds are slow start, and a queue that was filled takes some to drain.
    for (loss, seconds) in [(1_000, 2), (100, 6), (10, 15)] {
        for round_trip_ms in [60, 100] {
            let case = Case { round_trip_ms, loss, queue: 30, seconds, ..LINE };
            assert!(latest(case, 4).is_some(), "{case:?}");
        }
    }
}

#[test]
fn losses_that_a_window_survives_do_not_matter() {
    for seed in 0..4 {
        let case = Case { round_trip_ms: 12, loss: 10, seconds: 10, ..LINE };
        assert_eq!(case.run(seed), None, "{case:?}, seed {seed}");
    }
}

#[test]
fn losses_of_an_application_that_leaves_the_line_idle_do_not_matter() {
    // Half a megabit of 20.
    for seed in 0..4 {
        let case = Case { writes: Some(MSS), loss: 100, seconds: 10, ..LINE };
        assert_eq!(case.run(seed), None, "{case:?}, seed {seed}");
    }
}
