//! The stream arrives completely, in order and once, over an impaired network.

mod common;

use common::{Action, Host};
use policy::cc::by_name;
use proptest::prelude::*;
use tcp::{Config, Detection, Endpoint, Event};
use testnet::{Link, Network, Op};
use units::{Bytes, Span, SubflowId, Time};

/// The impairments of the network in thousandths of packets, and the delays.
#[derive(Clone, Debug)]
struct Weather {
    loss: u64,
    duplication: u64,
    reordering: u64,
    /// The additional delay of packets that are held back.
    lateness_ms: u64,
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

/// How a run ended.
struct Outcome {
    /// Client and server.
    ends: Vec<Host>,
    is_over: bool,
}

/// Whether an end has read everything, and knows that the other one has.
fn is_over(host: &Host) -> bool {
    host.events.contains(&Event::Finished) && host.events.contains(&Event::Closed)
}

/// Runs until both ends have received everything, for at most ten minutes.
fn run(case: &Case) -> Outcome {
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
    let host = |endpoint, written| {
        let controller = by_name(case.controller).expect("a known controller");
        let mut host = Host::new(endpoint, controller);
        host.endpoint.write(Bytes(written));
        host.endpoint.close();
        host
    };
    let ends = [
        host(Endpoint::client(config.clone(), id), case.there),
        host(Endpoint::server(config, id), case.back),
    ];
    let Weather { loss, duplication, reordering, lateness_ms, delay_ms, seed } = case.weather;
    let link = Link {
        loss,
        duplication,
        reordering,
        lateness: Span::from_millis(lateness_ms),
        ..Link::new(Span::from_millis(delay_ms))
    };
    let mut network = Network::new(ends, [link], seed);
    network.ends[0].open();
    if case.stall_ms > 0 {
        for (at, is_reading) in [(30, false), (30 + case.stall_ms, true)] {
            let action = Action::SetReading { is_reading };
            network.schedule(Time::ZERO + Span::from_millis(at), Op::Act { end: 1, action });
        }
    }
    let limit = Time::ZERO + Span::from_secs(600);
    let is_over = network.run_until(limit, |network| {
        let mut events = network.ends.iter().flat_map(|host| &host.events);
        assert!(events.all(|event| *event != Event::TimedOut), "the connection was given up");
        network.ends.iter().all(is_over)
    });
    Outcome { ends: network.ends, is_over }
}

fn cases() -> impl Strategy<Value = Case> {
    let weather = (0..150u64, 0..100u64, 0..200u64, 1..=50u64, 1..60u64, any::<u64>()).prop_map(
        |(loss, duplication, reordering, lateness_ms, delay_ms, seed)| Weather {
            loss,
            duplication,
            reordering,
            lateness_ms,
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
        let Outcome { ends, is_over } = run(&case);
        let written = [case.there, case.back];
        for (side, end) in ends.iter().enumerate() {
            prop_assert!(is_over, "not over after ten minutes: {:?}", end.endpoint.stats());
            prop_assert_eq!(end.endpoint.received(), Bytes(written[1 - side]));
            prop_assert_eq!(end.endpoint.acked(), Bytes(written[side]));
            prop_assert_eq!(end.complete, written[1 - side]);
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
        weather: Weather {
            loss: 0,
            duplication: 0,
            reordering: 0,
            lateness_ms: 50,
            delay_ms: 10,
            seed: 2,
        },
    }
}

#[test]
fn nothing_is_sent_twice_on_a_calm_network() {
    for detection in [Detection::Reno, Detection::NewReno, Detection::Sack, Detection::Rack] {
        let Outcome { ends, .. } = run(&calm(detection));
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
    let Outcome { ends, .. } = run(&case);
    assert!(ends[1].events.contains(&Event::Finished));
    assert_eq!(ends[0].endpoint.stats().timeouts, 0, "{:?}", ends[0].endpoint.stats());
}

#[test]
fn reordering_without_loss_is_detected() {
    let weather = Weather { reordering: 100, delay_ms: 20, ..calm(Detection::Rack).weather };
    let case = Case { weather, there: 2_000_000, ..calm(Detection::Rack) };
    let Outcome { ends, .. } = run(&case);
    let stats = ends[0].endpoint.stats();
    assert!(stats.retransmitted * 20 < stats.sent, "{stats:?}");
}
