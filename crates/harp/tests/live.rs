//! What gateways between real hosts need: connections that were open before, and a silence of their
//! choice.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use harp::{Carried, Config, Edits, Gateway, Message, Output, Scale, Sharing};
use units::{Span, Time};
use wire::harp::{PathReport, Report, Stamp};
use wire::tcp::{Flags, Meta};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Packet(Meta);

impl Carried for Packet {
    fn meta(&self) -> Meta {
        self.0
    }
}

const FLOW: u32 = 7;
/// An acknowledgement of the host on the other side, with a window of 60,000 units.
const ACK: Meta =
    Meta { seq: 1, ack: 1, window: 60_000, len: 0, flags: Flags::ACK, scale: None, mss: None };
const DATA: Meta = Meta { len: 1_000, window: 500, ..ACK };

fn gateway() -> Gateway<Packet> {
    Gateway::new(Time::ZERO, &Config::modern(1))
}

/// What becomes of the window of an acknowledgement.
fn told(gateway: &mut Gateway<Packet>) -> Edits {
    gateway.handle_inside(Time::ZERO, FLOW, Packet(DATA));
    gateway.handle_outside(Time::ZERO, FLOW, Message::Return(Packet(ACK)), false);
    let outputs = std::iter::from_fn(|| gateway.poll_output());
    let edits = outputs.filter_map(|output| match output {
        Output::Inside(_, _, edits) => Some(edits),
        _ => None,
    });
    edits.last().unwrap()
}

fn syn(scale: Option<u8>, answers: bool) -> Packet {
    let flags = if answers { Flags::SYN.with(Flags::ACK) } else { Flags::SYN };
    Packet(Meta { flags, scale, mss: Some(1_000), ..ACK })
}

#[test]
fn windows_change_only_where_both_syns_are_known() {
    let mut unseen = gateway();
    assert_eq!(told(&mut unseen), Edits::default());
    assert!(!unseen.is_governed(FLOW) && unseen.knows(FLOW));
    let mut half = gateway();
    half.handle_inside(Time::ZERO, FLOW, syn(Some(7), false));
    assert_eq!(told(&mut half), Edits::default());
    // Without the option in one of them windows are not scaled: 1,000 octets are 1,000 units.
    for (own, other, units) in
        [(Some(7), Some(3), 125), (Some(7), None, 1_000), (None, Some(3), 1_000)]
    {
        let mut seen = gateway();
        seen.handle_inside(Time::ZERO, FLOW, syn(own, false));
        seen.handle_outside(Time::ZERO, FLOW, Message::Return(syn(other, true)), false);
        while seen.poll_output().is_some() {}
        assert_eq!(told(&mut seen).window, Some(units), "{own:?} {other:?}");
        assert!(seen.is_governed(FLOW));
    }
}

#[test]
fn a_connection_that_another_knows_is_restored() {
    let mut restored = gateway();
    restored.restore(Time::ZERO, FLOW, [Scale::Shift(7), Scale::Shift(3)]);
    assert_eq!(told(&mut restored).window, Some(125));
    // What the gateway has seen itself counts for more.
    let mut seen = gateway();
    seen.handle_inside(Time::ZERO, FLOW, syn(None, false));
    seen.restore(Time::ZERO, FLOW, [Scale::Shift(7), Scale::Shift(3)]);
    while seen.poll_output().is_some() {}
    assert_eq!(told(&mut seen).window, Some(1_000));
}

#[test]
fn silence_counts_after_the_time_of_the_configuration() {
    for (dead, asks) in [(1_000, 300), (3_000, 1_000)] {
        let config = Config {
            dead_after: Span::from_millis(dead),
            asks_after: Span::from_millis(asks),
            ..Config::modern(1)
        };
        let mut gateway = Gateway::new(Time::ZERO, &config);
        gateway.handle_inside(Time::ZERO, FLOW, syn(Some(7), false));
        while gateway.poll_output().is_some() {}
        let at = |millis| Time::ZERO + Span::from_millis(millis);
        assert_eq!(gateway.poll_deadline(), Some(at(asks)));
        gateway.handle_deadline(at(asks));
        let asked = std::iter::from_fn(|| gateway.poll_output());
        assert_eq!(
            asked.filter(|one| matches!(one, Output::Outside(_, 0, Message::Probe(_)))).count(),
            1
        );
        assert!(!gateway.is_dead(at(dead - 1)));
        assert!(gateway.is_dead(at(dead)));
        gateway.handle_inside(at(dead), FLOW, Packet(DATA));
        assert_eq!(gateway.poll_output(), Some(Output::Normal(FLOW, Packet(DATA))));
    }
}

/// Found between real hosts: of the first two packets of a connection, one over each of two paths,
/// the second one was read first. It was reported as a loss, which halves all windows.
#[test]
fn the_first_packets_over_two_paths_are_no_loss_in_another_order() {
    let mut gateway = Gateway::new(Time::ZERO, &Config::modern(2));
    gateway.set_paths(Time::ZERO, 0b11);
    gateway.handle_outside(Time::ZERO, FLOW, Message::Return(syn(Some(7), false)), false);
    while gateway.poll_output().is_some() {}
    let mut arrive = |millis: u64, path: u8, seq: u32| {
        let stamp = Stamp { path, sent: 0, srtt: 40_000, is_paired: false };
        let data = Packet(Meta { seq, ..DATA });
        let now = Time::ZERO + Span::from_millis(millis);
        gateway.handle_outside(now, FLOW, Message::Data(stamp, data), false);
        let lost = |one| match one {
            Output::Outside(_, _, Message::Report(report)) => report.lost.1,
            _ => 0,
        };
        std::iter::from_fn(|| gateway.poll_output()).map(lost).sum::<u32>()
    };
    let mut next = 2;
    // At first, and after a pause for which no path is remembered.
    for begin in [0, 60_000] {
        assert_eq!(arrive(begin, 1, next + 1_000), 0, "{begin}");
        assert_eq!(arrive(begin, 0, next), 0, "{begin}");
        next += 2_000;
    }
    // Both have delivered beyond a gap: it is one after a quarter of the round trip of 40 ms. Where
    // one of them is silent, it is one once half of the wait of 30 ms is over.
    assert_eq!(arrive(60_001, 0, next + 1_000) + arrive(60_001, 1, next + 2_000), 0);
    assert_eq!(arrive(60_010, 1, next + 3_000), 0);
    assert_eq!(arrive(60_011, 1, next + 4_000), 1_000);
    // The host sends it again.
    assert_eq!(arrive(60_050, 0, next), 0);
    next += 5_000;
    assert_eq!(arrive(90_000, 0, next), 0);
    next += 1_000;
    assert_eq!(arrive(90_001, 0, next + 1_000) + arrive(90_010, 0, next + 2_000), 0);
    assert_eq!(arrive(90_016, 0, next + 3_000), 1_000);
}

/// Over a path of 20 s packets wait for those before them for a second, and never more than 8,192.
#[test]
fn how_long_and_how_many_packets_wait_is_bounded() {
    for (packets, waits_at, leaves_at) in [(1, 990, 1_010), (8_192, 0, 1_010), (8_193, 0, 0)] {
        let mut gateway = gateway();
        gateway.handle_outside(Time::ZERO, FLOW, Message::Return(syn(Some(7), false)), false);
        let mut arrive = |seq| {
            let stamp = Stamp { path: 0, sent: 0, srtt: 20_000_000, is_paired: false };
            let data = Message::Data(stamp, Packet(Meta { seq, ..DATA }));
            gateway.handle_outside(Time::ZERO, FLOW, data, false);
        };
        arrive(2);
        for packet in 0..packets {
            arrive(2 + 1_000 * (packet + 2));
        }
        let mut inside_at = |millis| {
            let end = Time::ZERO + Span::from_millis(millis);
            while let Some(due) = gateway.poll_deadline().filter(|due| *due <= end) {
                gateway.handle_deadline(due);
            }
            let outputs = std::iter::from_fn(|| gateway.poll_output());
            outputs.filter(|output| matches!(output, Output::Inside(..))).count()
        };
        let before = inside_at(waits_at);
        assert_eq!(before > 2, leaves_at == 0, "{packets}: {before} are inside");
        let all = before + inside_at(leaves_at);
        assert_eq!(all, 2 + usize::try_from(packets).unwrap(), "{packets}");
    }
}

/// Packets arrive in the order 1, 3, 2, the second one 30 ms late, and later one beyond a gap. One
/// that is late alone is not counted as late; one with nobody in time before it for long is.
#[test]
fn what_arrives_late_or_in_another_order_is_counted() {
    let mut gateway = gateway();
    let mut arrive = |seq: u32, sent: u64, at: u64| {
        let packet = Packet(Meta { seq, ..DATA });
        let sent = u32::try_from(sent * 1_000).unwrap();
        let stamp = Stamp { path: 0, sent, srtt: 10_000, is_paired: false };
        let now = Time::ZERO + Span::from_millis(at);
        gateway.handle_outside(now, FLOW, Message::Data(stamp, packet), false);
    };
    arrive(1, 0, 10);
    arrive(2_001, 2, 12);
    arrive(1_001, 1, 41);
    arrive(5_001, 60, 70);
    arrive(3_001, 20_000, 20_035);
    arrive(4_001, 20_036, 20_046);
    let arrivals = gateway.arrivals();
    assert_eq!((arrivals.packets, arrivals.late, arrivals.waited), (6, 1, 2));
    let [queue] = gateway.queues()[..] else { panic!("a path") };
    assert_eq!(queue.longest, Span::from_millis(30));
    assert_eq!(queue.latest, Span::ZERO);
}

/// With a round trip of 20 ms packets wait for 15 ms at most. One comes 4 ms late; another one
/// never comes, and the two that follow it leave when the first of them has waited for that long.
#[test]
fn waits_and_those_that_expire_are_counted() {
    let mut gateway = gateway();
    let at = |millis| Time::ZERO + Span::from_millis(millis);
    let mut arrive = |number: u32, now: Time| {
        let packet = Packet(Meta { seq: 1 + 1_000 * number, ..DATA });
        let sent = u32::try_from((now - Time::ZERO).as_micros()).unwrap();
        let stamp = Stamp { path: 0, sent, srtt: 20_000, is_paired: false };
        while let Some(due) = gateway.poll_deadline().filter(|due| *due <= now) {
            gateway.handle_deadline(due);
        }
        gateway.handle_outside(now, FLOW, Message::Data(stamp, packet), false);
        while gateway.poll_output().is_some() {}
        gateway.arrivals()
    };
    for (number, millis) in [(0, 10), (2, 11), (1, 15), (4, 21), (5, 24), (7, 30)] {
        arrive(number, at(millis));
    }
    let arrivals = arrive(6, at(40));
    assert_eq!((arrivals.packets, arrivals.waited), (7, 4));
    let found: Vec<(Option<Span>, u64)> =
        arrivals.waits.buckets().filter(|(_, packets)| *packets > 0).collect();
    let millis = |millis| Some(Span::from_millis(millis));
    // 4 and 10 ms until what was missing came; 15 ms, and 12 ms behind that.
    assert_eq!(found, [(millis(5), 1), (millis(15), 2), (millis(20), 1)]);
    assert_eq!(arrivals.waits.expired(), 2);
}

/// Only one way carries: the side at which nothing arrives tells the other one, whose hosts would
/// else send into nowhere for as long as anything comes from there.
#[test]
fn a_gateway_at_which_nothing_arrives_says_so() {
    let config = Config { probes_answer: false, ..Config::modern(1) };
    let mut pair = [Gateway::new(Time::ZERO, &config), Gateway::new(Time::ZERO, &config)];
    for gateway in &mut pair {
        gateway.set_paths(Time::ZERO, 1);
    }
    let [deaf, other] = &mut pair;
    other.handle_inside(Time::ZERO, FLOW, Packet(DATA));
    deaf.handle_inside(Time::ZERO, FLOW, Packet(DATA));
    let mut now = Time::ZERO;
    let mut told_at = None;
    while now < Time::ZERO + Span::from_secs(6) {
        now = deaf.poll_deadline().expect("it asks").max(now + Span::from_millis(1));
        deaf.handle_deadline(now);
        while let Some(output) = deaf.poll_output() {
            if let Output::Outside(flow, _, message) = output {
                if matches!(&message, Message::Report(report) if report.is_deaf) {
                    told_at.get_or_insert(now);
                }
                other.handle_outside(now, flow, message, false);
            }
        }
        while other.poll_output().is_some() {}
    }
    let told_at = told_at.expect("it says so");
    assert!(told_at >= Time::ZERO + config.dead_after, "{told_at:?}");
    assert!(other.is_dead(now), "it knows");
    assert_eq!([deaf.take_doubted(), other.take_doubted()], [1, 1]);
    other.handle_outside(now, FLOW, Message::Return(Packet(ACK)), false);
    assert!(!other.is_dead(now), "something was said that is no question");
}

/// A connection that is open on both sides and silent is forgotten after five minutes.
#[test]
fn an_idle_connection_is_forgotten() {
    let mut gateway = gateway();
    gateway.handle_inside(Time::ZERO, FLOW, syn(Some(7), false));
    gateway.handle_outside(Time::ZERO, FLOW, Message::Return(syn(Some(7), true)), false);
    gateway.handle_inside(Time::ZERO, FLOW, Packet(DATA));
    let mut is_known_at = |secs| {
        let end = Time::ZERO + Span::from_secs(secs);
        while let Some(due) = gateway.poll_deadline().filter(|due| *due <= end) {
            gateway.handle_deadline(due);
            while gateway.poll_output().is_some() {}
        }
        gateway.knows(FLOW)
    };
    assert!(is_known_at(299));
    assert!(!is_known_at(301));
}

/// Nothing tells that what goes over the second path arrives, whatever comes over it.
#[test]
fn a_path_that_seems_to_deliver_nothing_is_doubted() {
    let mut gateway = Gateway::new(Time::ZERO, &Config::modern(2));
    gateway.set_paths(Time::ZERO, 0b11);
    let at = |millis| Time::ZERO + Span::from_millis(millis);
    let mut seq = 1;
    let mut second = Vec::new();
    for millis in (0..2_000).step_by(10) {
        gateway.handle_inside(at(millis), FLOW, Packet(Meta { seq, ..DATA }));
        seq += 1_000;
        while let Some(due) = gateway.poll_deadline().filter(|due| *due <= at(millis)) {
            gateway.handle_deadline(due);
        }
        let mut over = [false; 2];
        while let Some(output) = gateway.poll_output() {
            if let Output::Outside(_, path, Message::Data(..)) = output {
                over[usize::from(path)] = true;
            }
        }
        let now = at(millis + 5);
        if over[0] {
            let echo = u32::try_from(millis * 1_000).unwrap();
            let mut report = Report { count: 1, ..Report::default() };
            report.entries[0] = PathReport { path: 0, weight: 0, echo, capacity: 0 };
            gateway.handle_outside(now, FLOW, Message::Report(report), false);
        }
        let ack = Packet(Meta { ack: seq, ..ACK });
        gateway.handle_outside(now, FLOW, Message::Return(ack), false);
        let doubted = gateway.take_doubted();
        assert_eq!(doubted & 1, 0, "the first one is heard of");
        if doubted != 0 {
            second.push(millis);
        }
    }
    assert!(second.first().is_some_and(|millis| *millis >= 300), "{second:?}");
    // It is choked, and open again when the other gateway has had a probe over it in time.
    let mut is_choked_after = |open| {
        let report = Report { open, ..Report::default() };
        gateway.handle_outside(at(2_000), FLOW, Message::Report(report), false);
        gateway.paths().iter().map(|path| path.is_choked).collect::<Vec<_>>()
    };
    assert_eq!(is_choked_after(0b01), [false, true]);
    assert_eq!(is_choked_after(0b10), [false, false]);
}

/// Both are heard of for two seconds, with a round trip of 200 ms, and then the first one alone.
#[test]
fn a_path_is_silent_and_doubted_after_four_round_trips() {
    for sharing in [Sharing::Connection, Sharing::Site] {
        let (choked, doubted) = silent_at(&Config { sharing, ..Config::modern(2) });
        assert!((2_600..3_100).contains(&choked), "{sharing:?}: {choked}");
        assert_eq!(doubted, 0b10, "{sharing:?}");
    }
}

/// After how many milliseconds the second path is choked, and what is doubted then.
fn silent_at(config: &Config) -> (u64, u8) {
    let mut gateway = Gateway::new(Time::ZERO, config);
    gateway.set_paths(Time::ZERO, 0b11);
    let at = |millis| Time::ZERO + Span::from_millis(millis);
    let mut seq = 1;
    let choked = (0..6_000).step_by(10).find(|millis| {
        gateway.handle_inside(at(*millis), FLOW, Packet(Meta { seq, ..DATA }));
        seq += 1_000;
        while let Some(due) = gateway.poll_deadline().filter(|due| *due <= at(*millis)) {
            gateway.handle_deadline(due);
        }
        while gateway.poll_output().is_some() {}
        let mut report = Report { count: if *millis < 2_000 { 2 } else { 1 }, ..Report::default() };
        for (path, entry) in (0..).zip(&mut report.entries[..2]) {
            let echo = u32::try_from(millis.saturating_sub(195) * 1_000).unwrap();
            *entry = PathReport { path, weight: 0, echo, capacity: 0 };
        }
        gateway.handle_outside(at(millis + 5), FLOW, Message::Report(report), false);
        let ack = Packet(Meta { ack: seq, ..ACK });
        gateway.handle_outside(at(millis + 5), FLOW, Message::Return(ack), false);
        gateway.paths()[1].is_choked
    });
    (choked.expect("it is choked"), gateway.take_doubted())
}

/// A gateway that says so with each packet makes the other one ask no more often.
#[test]
fn what_another_gateway_says_is_doubted_now_and_then() {
    let config = Config { asks_after: Span::from_millis(200), ..Config::modern(2) };
    let mut gateway: Gateway<Packet> = Gateway::new(Time::ZERO, &config);
    gateway.set_paths(Time::ZERO, 0b101);
    let deaf = Report { is_deaf: true, ..Report::default() };
    let doubted = (0..1_000).filter_map(|millis| {
        let now = Time::ZERO + Span::from_millis(millis);
        gateway.handle_outside(now, FLOW, Message::Report(deaf), false);
        Some(gateway.take_doubted()).filter(|doubted| *doubted != 0)
    });
    assert_eq!(doubted.collect::<Vec<_>>(), [0b101; 5]);
}

/// Acknowledgements went over the first path for a second after it had died, which is longer than
/// the other gateway waits: its hosts' packets took the usual route. And they took the path with
/// the number that the other gateway has for what it delivers over, whatever this side has for it.
#[test]
fn what_returns_takes_a_path_that_delivers() {
    let mut gateway = Gateway::new(Time::ZERO, &Config::modern(3));
    gateway.set_paths(Time::ZERO, 0b111);
    let at = |millis| Time::ZERO + Span::from_millis(1_000 + millis);
    let mut returns = |delivered: u8, millis: u64| {
        let stamp = Stamp { path: 2, sent: 0, srtt: 10_000, is_paired: false };
        gateway.handle_delivery(at(millis), delivered);
        gateway.handle_outside(at(millis), FLOW, Message::Probe(stamp), false);
        while gateway.poll_output().is_some() {}
        gateway.handle_inside(at(millis), FLOW, Packet(ACK));
        let outputs = std::iter::from_fn(|| gateway.poll_output());
        let mut paths = outputs.filter_map(|output| match output {
            Output::Outside(_, path, Message::Return(_)) => Some(path),
            _ => None,
        });
        paths.next().expect("it returns")
    };
    let found = [(0, 0), (1, 299), (1, 300), (1, 301), (2, 302), (0, 303), (1, 603), (1, 604)]
        .map(|(path, millis)| returns(path, millis));
    assert_eq!(found, [0, 0, 0, 1, 2, 0, 0, 1]);
}

/// The segments with payload that leave now.
fn leaving(gateway: &mut Gateway<Packet>) -> u32 {
    let outputs = std::iter::from_fn(|| gateway.poll_output());
    let is_data =
        |output: &Output<Packet>| matches!(output, Output::Outside(_, _, Message::Data(..)));
    u32::try_from(outputs.filter(is_data).count()).unwrap()
}

/// At a window of 32 packets and a round trip of 10 ms the pace lets a packet leave each 250 us.
#[test]
fn a_burst_leaves_at_once_and_the_rest_by_the_pace() {
    for burst in [0, 1_000, 10_000] {
        let config = Config { burst: Span::from_micros(burst), ..Config::modern(1) };
        let mut gateway = Gateway::new(Time::ZERO, &config);
        let (mut now, mut seq) = (Time::ZERO, 1_u32);
        for round in 0..6 {
            for _ in 0..1_u32 << round {
                gateway.handle_inside(now, FLOW, Packet(Meta { seq, ..DATA }));
                seq += 1_000;
            }
            let end = now + Span::from_millis(10);
            while let Some(at) = gateway.poll_deadline().filter(|at| *at < end) {
                gateway.handle_deadline(at);
            }
            let echo = u32::try_from(now.as_nanos() / 1_000).unwrap();
            now = end;
            let mut report = Report { count: 1, ..Report::default() };
            report.entries[0] = PathReport { path: 0, weight: 0, echo, capacity: 0 };
            gateway.handle_outside(now, FLOW, Message::Report(report), false);
            let ack = Packet(Meta { ack: seq, ..ACK });
            gateway.handle_outside(now, FLOW, Message::Return(ack), false);
            leaving(&mut gateway);
        }
        let window = gateway.paths()[0].window.0;
        assert!((32_000..=64_000).contains(&window), "{window}");
        now += Span::from_millis(20);
        for _ in 0..16 {
            gateway.handle_inside(now, FLOW, Packet(Meta { seq, ..DATA }));
            seq += 1_000;
        }
        let pace = 32_000 * 250 / window;
        let at_once = leaving(&mut gateway);
        assert_eq!(u64::from(at_once), (burst / pace + 1).min(16), "{burst} {window}");
    }
}

/// Windows are full and nothing returns: what the host sends again may be what all wait for. Found
/// in simulations, where it waited for room, at most two seconds.
#[test]
fn what_the_host_sends_again_waits_for_no_window() {
    for comes_and_goes in [false, true] {
        let mut gateway = Gateway::new(Time::ZERO, &Config::modern(2));
        if comes_and_goes {
            gateway.set_paths(Time::ZERO, 0b11);
        }
        let mut send = |millis: u64, numbers: core::ops::Range<u32>| {
            let begin = Time::ZERO + Span::from_millis(millis);
            for number in numbers {
                let seq = 1 + 1_000 * number;
                gateway.handle_inside(begin, FLOW, Packet(Meta { seq, ..DATA }));
            }
            let end = begin + Span::from_millis(100);
            while let Some(at) = gateway.poll_deadline().filter(|at| *at < end) {
                gateway.handle_deadline(at);
            }
            let outputs = std::iter::from_fn(|| gateway.poll_output());
            let number = |output: Output<Packet>| match output {
                Output::Outside(_, _, Message::Data(_, packet)) => Some(packet.0.seq / 1_000),
                _ => None,
            };
            outputs.filter_map(number).collect::<Vec<u32>>()
        };
        let first = send(0, 0..40);
        assert!((1..40).contains(&first.len()), "{first:?}");
        assert!(send(100, 40..41).is_empty());
        let again = send(200, 0..1);
        assert!(again.contains(&0), "{comes_and_goes} {again:?}");
    }
}
