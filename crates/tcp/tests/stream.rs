//! The stream arrives completely, in order and once, over an impaired network.

use policy::cc::{Controller, by_name};
use proptest::prelude::*;
use tcp::{Config, Detection, Endpoint, Event};
use units::{Bytes, Span, SubflowId, Time};
use wire::tcp::{Flags, Segment};

/// The impairments of the network in thousandths of packets, and the delay.
#[derive(Clone, Debug)]
struct Weather {
    loss: u32,
    duplication: u32,
    reordering: u32,
    delay_ms: u64,
    seed: u64,
}

/// A run: the endpoints' configuration, the bytes they write, and a stall of the receiving
/// application.
#[derive(Clone, Debug)]
struct Case {
    detection: Detection,
    delays_acks: bool,
    paces: bool,
    controller: &'static str,
    buffer: u64,
    there: u64,
    back: u64,
    /// The receiver stops reading for this long at one time.
    stall_ms: u64,
    weather: Weather,
}

/// Uniform draws (`SplitMix64`), enough for a test.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn hits(&mut self, thousandths: u32) -> bool {
        self.next() % 1_000 < u64::from(thousandths)
    }
}

struct End {
    endpoint: Endpoint,
    controller: Box<dyn Controller>,
    written: u64,
    /// The model of received data: a flag for each position, and the length without a gap.
    arrived: Vec<bool>,
    complete: u64,
    finished: bool,
    closed: bool,
}

impl End {
    fn new(endpoint: Endpoint, case: &Case, written: u64) -> End {
        let controller = by_name(case.controller).expect("a known controller");
        End {
            endpoint,
            controller,
            written,
            arrived: Vec::new(),
            complete: 0,
            finished: false,
            closed: false,
        }
    }

    /// A segment arrives at the endpoint and at the model.
    fn receive(&mut self, now: Time, segment: &Segment) {
        let from = usize::try_from(segment.seq).expect("small") - usize::from(segment.seq > 0);
        let to = from + usize::from(segment.len);
        self.arrived.resize(self.arrived.len().max(to), false);
        self.arrived[from..to].fill(true);
        while self.arrived.get(usize::try_from(self.complete).expect("small")) == Some(&true) {
            self.complete += 1;
        }
        self.endpoint.handle_segment(now, segment, false, self.controller.as_mut());
        assert!(self.endpoint.received().0 <= self.complete, "more than arrived without a gap");
        self.listen();
    }

    fn listen(&mut self) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Finished => self.finished = true,
                Event::Closed => self.closed = true,
                Event::Established => {}
                Event::TimedOut => panic!("the connection was given up"),
            }
        }
    }
}

/// Runs until both ends have received everything, for at most ten minutes.
fn run(case: &Case) -> [End; 2] {
    let config = Config {
        detection: case.detection,
        delayed_ack: case.delays_acks.then(|| Span::from_millis(40)),
        pacing: case.paces,
        hystart: case.paces,
        receive_buffer: Bytes(case.buffer),
        timestamps: case.weather.seed.is_multiple_of(2),
        ..Config::default()
    };
    let id = SubflowId(3);
    let mut ends = [
        End::new(Endpoint::client(config.clone(), id), case, case.there),
        End::new(Endpoint::server(config, id), case, case.back),
    ];
    let mut dice = Dice(case.weather.seed);
    let mut air: Vec<(Time, u64, usize, Segment)> = Vec::new();
    let mut sent = 0;
    let End { endpoint, controller, .. } = &mut ends[0];
    endpoint.open(Time::ZERO, controller.as_mut());
    for end in &mut ends {
        end.endpoint.write(Bytes(end.written));
        end.endpoint.close();
    }
    let limit = Time::ZERO + Span::from_secs(600);
    let stall =
        (Time::ZERO + Span::from_millis(30), Time::ZERO + Span::from_millis(30 + case.stall_ms));
    let mut now = Time::ZERO;
    while now < limit && !ends.iter().all(|end| end.finished && end.closed) {
        let is_stalled = case.stall_ms > 0 && now >= stall.0 && now < stall.1;
        ends[1].endpoint.set_reading(!is_stalled);
        ends[1].listen();
        for (side, end) in ends.iter_mut().enumerate() {
            if end.endpoint.poll_deadline().is_some_and(|at| at <= now) {
                end.endpoint.handle_deadline(now, end.controller.as_mut());
            }
            let mut burst = 0;
            while let Some(transmit) = end.endpoint.poll_send(now, end.controller.as_mut()) {
                burst += 1;
                assert!(burst < 100_000, "an endpoint that never stops sending");
                if dice.hits(case.weather.loss) {
                    continue;
                }
                let copies = 1 + u32::from(dice.hits(case.weather.duplication));
                for _ in 0..copies {
                    let extra =
                        if dice.hits(case.weather.reordering) { dice.next() % 50 } else { 0 };
                    sent += 1;
                    air.push((
                        now + Span::from_millis(case.weather.delay_ms + extra),
                        sent,
                        1 - side,
                        transmit.segment,
                    ));
                }
            }
        }
        air.sort_by_key(|entry| (entry.0, entry.1));
        let deadlines = ends.iter().filter_map(|end| end.endpoint.poll_deadline());
        let stall_end = (case.stall_ms > 0 && now < stall.1).then_some(stall.1);
        let over = ends.iter().all(|end| end.finished && end.closed).then_some(now);
        let next =
            deadlines.chain(over).chain(air.first().map(|entry| entry.0)).chain(stall_end).min();
        now = next.expect("somebody waits for something").max(now);
        while air.first().is_some_and(|entry| entry.0 <= now) {
            let (_, _, side, segment) = air.remove(0);
            assert!(segment.flags.has(Flags::SYN) || segment.flags.has(Flags::ACK));
            ends[side].receive(now, &segment);
        }
    }
    ends
}

fn cases() -> impl Strategy<Value = Case> {
    let weather = (0..150u32, 0..100u32, 0..200u32, 1..60u64, any::<u64>()).prop_map(
        |(loss, duplication, reordering, delay_ms, seed)| Weather {
            loss,
            duplication,
            reordering,
            delay_ms,
            seed,
        },
    );
    let detection = prop::sample::select(vec![
        Detection::Reno,
        Detection::NewReno,
        Detection::Sack,
        Detection::Rack,
    ]);
    let controller = prop::sample::select(vec![
        "reno",
        "cubic",
        "vegas",
        "fast(alpha=20)",
        "lia",
        "olia",
        "balia",
    ]);
    let buffer = prop::sample::select(vec![3_000u64, 20_000, 1_000_000]);
    let sizes = (prop_oneof![Just(0u64), 1..200_000u64], prop_oneof![Just(0u64), 1..20_000u64]);
    (
        detection,
        any::<bool>(),
        any::<bool>(),
        controller,
        buffer,
        sizes,
        prop_oneof![Just(0u64), 1..3_000u64],
        weather,
    )
        .prop_map(
            |(
                detection,
                delays_acks,
                paces,
                controller,
                buffer,
                (there, back),
                stall_ms,
                weather,
            )| Case {
                detection,
                delays_acks,
                paces,
                controller,
                buffer,
                there,
                back,
                stall_ms,
                weather,
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn everything_arrives_in_order_and_once(case in cases()) {
        let ends = run(&case);
        for (end, other) in [(&ends[0], &ends[1]), (&ends[1], &ends[0])] {
            let stats = end.endpoint.stats();
            prop_assert!(end.finished && end.closed, "not closed after ten minutes: {stats:?}");
            prop_assert_eq!(end.endpoint.received(), Bytes(other.written));
            prop_assert_eq!(end.endpoint.acked(), Bytes(end.written));
            prop_assert_eq!(end.complete, other.written);
            prop_assert_eq!(end.endpoint.in_flight(), Bytes::ZERO);
        }
    }
}

fn calm(detection: Detection) -> Case {
    Case {
        detection,
        delays_acks: true,
        paces: false,
        controller: "reno",
        buffer: 1_000_000,
        there: 100_000,
        back: 0,
        stall_ms: 0,
        weather: Weather { loss: 0, duplication: 0, reordering: 0, delay_ms: 10, seed: 2 },
    }
}

#[test]
fn nothing_is_sent_twice_on_a_calm_network() {
    for detection in [Detection::Reno, Detection::NewReno, Detection::Sack, Detection::Rack] {
        let ends = run(&calm(detection));
        let stats = ends[0].endpoint.stats();
        assert_eq!(
            (stats.retransmitted, stats.timeouts, stats.probes),
            (0, 0, 0),
            "{detection:?}: {stats:?}"
        );
        // 100,000 bytes are 70 packets, and the FIN is one.
        assert_eq!(stats.sent, 71, "{detection:?}");
    }
}

#[test]
fn a_stalled_reader_stops_the_sender_without_a_timeout() {
    let case = Case { stall_ms: 2_500, buffer: 20_000, ..calm(Detection::Rack) };
    let ends = run(&case);
    assert!(ends[1].finished);
    assert_eq!(ends[0].endpoint.stats().timeouts, 0, "{:?}", ends[0].endpoint.stats());
}

#[test]
fn reordering_without_loss_is_detected() {
    let weather = Weather { reordering: 100, delay_ms: 20, ..calm(Detection::Rack).weather };
    let case = Case { weather, there: 2_000_000, ..calm(Detection::Rack) };
    let ends = run(&case);
    let stats = ends[0].endpoint.stats();
    assert!(stats.retransmitted * 20 < stats.sent, "{stats:?}");
}
