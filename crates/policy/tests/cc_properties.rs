//! For any sequence of events, a controller does not panic, and its windows stay within their
//! bounds.

use policy::cc::{
    Acked, Congestion, Controller, Lost, MAX_WINDOW, NAMES, Sent, Signal, Start, by_name,
};
use proptest::prelude::*;
use units::{Bytes, Rate, Span, SubflowId, Time};

#[derive(Clone, Debug)]
enum Op {
    Add {
        mss: u64,
        initial: u64,
        rtt: Option<Span>,
    },
    Remove {
        of: u32,
    },
    Sent {
        of: u32,
        bytes: u64,
    },
    Acked {
        of: u32,
        acked: Acked,
    },
    /// A number of ordinary acknowledgements, to build up state.
    Progress {
        of: u32,
        packets: u16,
        rtt: Span,
    },
    Lost {
        of: u32,
        bytes: u64,
    },
    Congestion {
        of: u32,
        signal: Signal,
        in_flight: u64,
    },
    Timeout {
        of: u32,
        in_flight: u64,
    },
    Undo {
        of: u32,
    },
    IdleRestart {
        of: u32,
    },
    SlowStartEnd {
        of: u32,
    },
    Bottleneck {
        of: u32,
        bottleneck: Option<u16>,
    },
    Wait {
        span: Span,
    },
}

fn amount() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1), Just(1_448), 0..2_000_000_u64, any::<u64>()]
}

fn span() -> impl Strategy<Value = Span> {
    prop_oneof![Just(0), Just(1), 0..400_000_000_u64, any::<u64>()].prop_map(Span::from_nanos)
}

fn acked() -> impl Strategy<Value = Acked> {
    let rate = proptest::option::of(amount().prop_map(Rate::from_bits));
    let numbers = (amount(), amount(), amount(), amount(), 0..20_u64, rate);
    let delays = (proptest::option::of(span()), span(), span(), proptest::option::of(span()));
    (numbers, delays, any::<(bool, bool)>(), 0..5_u32).prop_map(
        |(numbers, delays, flags, slow_start_divisor)| Acked {
            bytes: Bytes(numbers.0),
            in_flight: Bytes(numbers.1),
            sent_at: Time::from_nanos(numbers.2),
            window_at_sending: Some(Bytes(numbers.3)),
            rtt: delays.0,
            smoothed_rtt: delays.1,
            min_rtt: delays.2,
            one_way_delay: delays.3,
            ack_delay: None,
            delivery_rate: numbers.5,
            round: numbers.4,
            ce_packets: 0,
            ce_bytes: Bytes::ZERO,
            is_app_limited: flags.0,
            in_recovery: flags.1,
            slow_start_divisor,
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    let signal = prop_oneof![Just(Signal::Loss), Just(Signal::Mark)];
    // One more than the number of subflows, so that some are unknown.
    let of = 0..5_u32;
    prop_oneof![
        2 => (prop_oneof![amount(), Just(1_448)], amount(), proptest::option::of(span()))
            .prop_map(|(mss, initial, rtt)| Op::Add { mss, initial, rtt }),
        1 => of.clone().prop_map(|of| Op::Remove { of }),
        1 => (of.clone(), amount()).prop_map(|(of, bytes)| Op::Sent { of, bytes }),
        4 => (of.clone(), acked()).prop_map(|(of, acked)| Op::Acked { of, acked }),
        4 => (of.clone(), 1..200_u16, span())
            .prop_map(|(of, packets, rtt)| Op::Progress { of, packets, rtt }),
        1 => (of.clone(), amount()).prop_map(|(of, bytes)| Op::Lost { of, bytes }),
        3 => (of.clone(), signal, amount())
            .prop_map(|(of, signal, in_flight)| Op::Congestion { of, signal, in_flight }),
        2 => (of.clone(), amount()).prop_map(|(of, in_flight)| Op::Timeout { of, in_flight }),
        2 => of.clone().prop_map(|of| Op::Undo { of }),
        1 => of.clone().prop_map(|of| Op::IdleRestart { of }),
        1 => of.clone().prop_map(|of| Op::SlowStartEnd { of }),
        2 => (of, proptest::option::of(0..2_u16))
            .prop_map(|(of, bottleneck)| Op::Bottleneck { of, bottleneck }),
        2 => span().prop_map(|span| Op::Wait { span }),
    ]
}

struct World {
    controller: Box<dyn Controller>,
    /// Subflows with their floors.
    live: Vec<(SubflowId, Bytes)>,
    added: u16,
    now: Time,
    round: u64,
    /// Whether the controller gets the state at the time of sending.
    has_snapshots: bool,
}

impl World {
    fn new(controller: &str) -> World {
        let controller = by_name(controller).expect("a name of the table");
        World {
            controller,
            live: Vec::new(),
            added: 0,
            now: Time::ZERO,
            round: 0,
            has_snapshots: true,
        }
    }

    fn add(&mut self, mss: Bytes, initial_window: Bytes, rtt: Option<Span>) {
        let id = SubflowId(self.added);
        self.added += 1;
        self.controller.handle_add(self.now, id, &Start { mss, initial_window, rtt });
        let least = match self.controller.name() {
            "vegas" | "wvegas" | "fast" | "ledbat" | "ledbat++" => {
                mss.0.saturating_mul(2).clamp(2, MAX_WINDOW.0 / 4)
            }
            "harp" => mss.0.min(MAX_WINDOW.0 / 4) / 16,
            "nice" => mss.0.min(MAX_WINDOW.0 / 4) / 48,
            _ => mss.0.clamp(1, MAX_WINDOW.0 / 4),
        };
        self.live.push((id, Bytes(least)));
    }

    /// The `of`-th live subflow, or an unknown one.
    fn id(&self, of: u32) -> SubflowId {
        self.live.get(of as usize).map_or(SubflowId(u16::MAX), |(id, _)| *id)
    }

    fn apply(&mut self, op: &Op) {
        let now = self.now;
        match *op {
            Op::Add { mss, initial, rtt } if self.live.len() < 4 => {
                self.add(Bytes(mss), Bytes(initial), rtt);
            }
            Op::Add { .. } => {}
            Op::Remove { of } => {
                let id = self.id(of);
                self.live.retain(|(other, _)| *other != id);
                self.controller.handle_remove(now, id);
            }
            Op::Sent { of, bytes } => {
                let sent =
                    Sent { bytes: Bytes(bytes), in_flight: Bytes(bytes), is_retransmission: false };
                self.controller.handle_sent(now, self.id(of), &sent);
            }
            Op::Acked { of, acked } => self.acked(self.id(of), acked),
            Op::Progress { of, packets, rtt } => self.progress(of, packets, rtt),
            Op::Lost { of, bytes } => {
                let known = if self.has_snapshots { bytes } else { 0 };
                let lost = Lost {
                    bytes: Bytes(bytes),
                    in_flight_at_sending: Some(Bytes(known)),
                    sent_at: now,
                };
                self.controller.handle_lost(now, self.id(of), &lost);
            }
            Op::Congestion { of, signal, in_flight } => {
                let congestion = Congestion { signal, in_flight: Bytes(in_flight) };
                self.controller.handle_congestion(now, self.id(of), &congestion);
            }
            Op::Timeout { of, in_flight } => {
                self.controller.handle_timeout(now, self.id(of), Bytes(in_flight));
            }
            Op::Undo { of } => self.controller.handle_undo(now, self.id(of)),
            Op::IdleRestart { of } => self.controller.handle_idle_restart(now, self.id(of)),
            Op::SlowStartEnd { of } => self.controller.handle_slow_start_end(now, self.id(of)),
            Op::Bottleneck { of, bottleneck } => {
                let bottleneck = bottleneck.map(SubflowId);
                self.controller.handle_bottleneck(now, self.id(of), bottleneck);
            }
            Op::Wait { span } => self.now += span,
        }
    }

    fn progress(&mut self, of: u32, packets: u16, rtt: Span) {
        let id = self.id(of);
        for i in 0..packets {
            if i % 10 == 0 {
                self.round += 1;
            }
            self.now += Span::from_millis(1);
            let window = self.controller.allowance(id).window;
            let sent = Sent { bytes: Bytes(1_448), in_flight: window, is_retransmission: false };
            self.controller.handle_sent(self.now - rtt, id, &sent);
            let acked = Acked {
                bytes: Bytes(1_448),
                in_flight: window,
                sent_at: self.now - rtt,
                window_at_sending: Some(window),
                rtt: Some(rtt),
                smoothed_rtt: rtt,
                min_rtt: rtt,
                one_way_delay: None,
                ack_delay: None,
                delivery_rate: Some(Rate::mbit(10 + u64::from(i) % 7)),
                round: self.round,
                ce_packets: 0,
                ce_bytes: Bytes::ZERO,
                is_app_limited: false,
                in_recovery: false,
                slow_start_divisor: 1,
            };
            self.acked(id, acked);
        }
    }

    fn acked(&mut self, id: SubflowId, mut acked: Acked) {
        if !self.has_snapshots {
            acked = Acked { window_at_sending: None, delivery_rate: None, ..acked };
        }
        self.controller.handle_acked(self.now, id, &acked);
    }

    /// The state of the controller, as text.
    fn state(&self) -> String {
        format!("{:?}", self.controller)
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let controller = &self.controller;
        for (id, floor) in &self.live {
            let window = controller.allowance(*id).window;
            prop_assert!(window >= *floor, "{id}: {window:?} below {floor:?}: {controller:?}");
            prop_assert!(window <= MAX_WINDOW, "{id}: {window:?}: {controller:?}");
            if let Some(pacing) = controller.allowance(*id).pacing {
                prop_assert!(pacing > Rate::ZERO, "{id} stands still: {controller:?}");
            }
            if let Some(threshold) = controller.threshold(*id) {
                prop_assert!(
                    threshold >= *floor && threshold <= MAX_WINDOW,
                    "{id}: {threshold:?}: {controller:?}"
                );
            }
        }
        let text = format!("{controller:?}");
        prop_assert!(!text.contains("NaN"), "{text}");
        prop_assert_eq!(controller.allowance(SubflowId(u16::MAX)).window, Bytes::ZERO);
        Ok(())
    }
}

proptest! {
    #[test]
    fn windows_stay_within_bounds(ops in proptest::collection::vec(op(), 1..60)) {
        for known in NAMES {
            let mut world = World::new(known.signature.name);
            world.add(Bytes(1_448), Bytes(14_480), None);
            world.add(Bytes(1_448), Bytes(14_480), None);
            for op in &ops {
                world.apply(op);
                world.check()?;
            }
        }
    }

    /// A controller that does not want snapshots behaves the same with and without them.
    #[test]
    fn unwanted_snapshots_are_not_used(ops in proptest::collection::vec(op(), 1..60)) {
        for known in NAMES {
            if World::new(known.signature.name).controller.wants_snapshots() {
                continue;
            }
            let mut with = World::new(known.signature.name);
            let mut without = World { has_snapshots: false, ..World::new(known.signature.name) };
            for world in [&mut with, &mut without] {
                world.add(Bytes(1_448), Bytes(14_480), None);
            }
            for op in &ops {
                with.apply(op);
                without.apply(op);
                let states = [with.state(), without.state()];
                prop_assert_eq!(&states[0], &states[1]);
            }
        }
    }

    /// A copy is independent of the original and behaves the same.
    #[test]
    fn copies_behave_alike(
        before in proptest::collection::vec(op(), 1..20),
        after in proptest::collection::vec(op(), 1..20),
    ) {
        for known in NAMES {
            let mut world = World::new(known.signature.name);
            world.add(Bytes(1_448), Bytes(14_480), None);
            for op in &before {
                world.apply(op);
            }
            let frozen = world.state();
            let controller = world.controller.boxed_clone();
            let mut copy = World { controller, live: world.live.clone(), ..world };
            for op in &after {
                copy.apply(op);
            }
            prop_assert_eq!(frozen, world.state());
            for op in &after {
                world.apply(op);
            }
            prop_assert_eq!(copy.state(), world.state());
        }
    }
}
