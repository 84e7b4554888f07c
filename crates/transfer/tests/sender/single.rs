//! Single rules.

use super::*;

fn only_path() -> (World, Extent) {
    let mut world = World::new(NAMES[0], &[]);
    world.open(Class::Primary, 0);
    assert!(world.transmit(0, 65_536));
    let first = world.paths[0].data[0];
    (world, first)
}

#[test]
fn what_was_never_sent_cannot_be_acknowledged() {
    let (mut world, first) = only_path();
    let unsent = Extent::new(first.end(), 4_096);
    let mut acked = |extent| world.sender.handle_acked(world.now, PathId(0), extent);
    assert_eq!(acked(unsent), Err(PeerError::NeverSent(unsent)));
    let both = Extent::new(first.start, first.len + 4_096);
    assert_eq!(acked(both), Err(PeerError::NeverSent(both)));
    assert_eq!(acked(Extent::new(0, 0)), Err(PeerError::Empty(0)));
    let far = Extent::new(1 << 50, 4_096);
    assert_eq!(acked(far), Err(PeerError::Outside(far)));
    assert_eq!(acked(first), Ok(Bytes(first.len)));
    assert_eq!(acked(first), Ok(Bytes::ZERO));
    assert_eq!(world.sender.totals(world.now).acked, Bytes(first.len));
}

#[test]
fn an_unproven_path_gets_little() {
    let (mut world, _) = only_path();
    while world.transmit(0, 65_536) {}
    let sent: u64 = world.paths[0].data.iter().map(|extent| extent.len).sum();
    assert_eq!(sent, 64 * 1024);
}

#[test]
fn a_backup_is_used_only_while_nobody_else_is_alive() {
    let (mut world, _) = only_path();
    world.open(Class::Backup, 1);
    assert!(!world.transmit(1, 65_536));
    assert_eq!(world.sender.paths(world.now)[1].state, PathState::Standby);
    world.apply(&Op::Lose { path: 0 });
    assert!(world.transmit(0, 65_536), "the backup is alone");
    world.open(Class::Primary, 2);
    assert!(!world.transmit(0, 65_536), "a primary is back");
}

#[test]
fn a_silent_path_stalls_and_recovers() {
    let (mut world, first) = only_path();
    while world.sender.poll_event().is_some() {}
    let deadline = world.sender.poll_deadline(world.now).expect("something is outstanding");
    world.now = deadline;
    world.sender.handle_deadline(deadline);
    let Some(SenderEvent::PathState { state, why, .. }) = world.sender.poll_event() else {
        panic!("no event")
    };
    assert_eq!((state, why.to_string().as_str()), (PathState::Stalled, "no progress for 600 ms"));
    assert!(!world.transmit(0, 65_536));
    world.sender.handle_acked(world.now, PathId(0), first).expect("it was sent");
    assert_eq!(world.sender.paths(world.now)[0].state, PathState::Active);
    assert!(world.transmit(0, 65_536));
}

/// Three extents in flight on two connections of a path.
fn two_connections() -> (World, [Extent; 3]) {
    let (mut world, first) = only_path();
    assert!(world.deliver(0) && world.deliver_back(0, 0));
    for _ in 0..3 {
        assert!(world.transmit(0, 65_536));
    }
    let data = &world.paths[0].data;
    let extents = [data[0], data[1], data[2]];
    assert!(extents.iter().all(|extent| extent.intersection(first).is_empty()));
    (world, extents)
}

#[test]
fn a_lost_connections_data_are_sent_again_and_the_others_stay() {
    let (mut world, [a, b, c]) = two_connections();
    let lost = |world: &mut World, extents: &[Extent]| {
        world.sender.handle_connection_lost(world.now, PathId(0), extents.iter().copied());
        world.check();
    };
    lost(&mut world, &[a, c]);
    let totals = world.sender.totals(world.now);
    assert_eq!(totals.in_flight, Bytes(b.len), "the other connection's are still in flight");
    assert_eq!(world.sender.paths(world.now)[0].in_flight, Bytes(b.len));
    // Its acknowledgement was under way: it counts, and nothing is sent twice for it.
    world.sender.handle_acked(world.now, PathId(0), a).expect("it was sent");
    world.sender.handle_acked(world.now, PathId(0), b).expect("it was sent");
    assert_eq!(world.sender.paths(world.now)[0].in_flight, Bytes::ZERO, "nothing is awaited");
    assert_eq!(world.sender.poll_deadline(world.now), None, "and so it cannot stall");
    world.paths[0].data.clear();
    while world.transmit(0, 65_536) {}
    let again: ExtentSet = world.paths[0].data.iter().copied().collect();
    assert!(again.contains(c) && !again.intersects(a) && !again.intersects(b));
    assert_eq!(world.sender.totals(world.now).duplicates, Bytes(c.len));
}

#[test]
fn what_a_path_does_not_have_in_flight_is_not_lost_with_it() {
    let (mut world, extents) = two_connections();
    let before = world.sender.totals(world.now);
    let unsent = Extent::new(extents[2].end(), 4_096);
    world.sender.handle_connection_lost(world.now, PathId(0), [unsent]);
    world.sender.handle_connection_lost(world.now, PathId(7), extents);
    assert_eq!(world.sender.totals(world.now), before);
}

#[test]
fn nothing_of_what_is_left_out_is_sent() {
    let layout = Layout::new([Bytes(4 * BLOCK), Bytes(BLOCK)]).expect("good");
    let scheduler = by_name("self-adaptive", Options::default()).expect("a scheduler");
    let now = Time::ZERO;
    let mut sender = Sender::new(&layout, &ExtentSet::new(), scheduler, SenderConfig::default());
    let [one, two] = [PathId(0), PathId(1)];
    let traits = PathTraits { class: Class::Primary, group: 0, rtt: None, known: None };
    for path in [one, two] {
        sender.handle_path_open(now, path, traits);
    }
    let Transmit::Data(sent) = sender.poll_transmit(now, one, Bytes(BLOCK)) else {
        panic!("there is data");
    };
    sender.handle_left_out(now, 0);
    sender.handle_left_out(now, 0);
    // What was in flight may be acknowledged, and even what was not.
    assert_eq!(sender.handle_acked(now, one, sent), Ok(Bytes::ZERO));
    let last = Extent::new(4 * BLOCK, BLOCK);
    let mut left = last;
    while !left.is_empty() {
        let Transmit::Data(extent) = sender.poll_transmit(now, two, Bytes(BLOCK)) else {
            panic!("{left} is left");
        };
        assert_eq!(extent.start, left.start);
        sender.handle_acked(now, two, extent).expect("it was sent");
        left = Extent::between(extent.end(), last.end());
    }
    assert!(sender.is_complete());
    assert_eq!(sender.poll_transmit(now, one, Bytes(BLOCK)), Transmit::Complete);
}

#[test]
fn an_empty_layout_is_complete_at_once() {
    let layout = Layout::new([]).expect("nothing");
    let scheduler = by_name(NAMES[0], Options::default()).expect("a known name");
    let mut sender = Sender::new(&layout, &ExtentSet::new(), scheduler, SenderConfig::default());
    assert!(sender.is_complete());
    assert_eq!(sender.poll_event(), Some(SenderEvent::Complete));
    assert_eq!(sender.poll_transmit(Time::ZERO, PathId(0), Bytes(1)), Transmit::Complete);
}

/// Found by `every_byte_once_whatever_happens`: a small rest in the task of a path whose driver
/// never polls again.
#[test]
fn a_task_whose_driver_never_asks_is_taken() {
    let (mut world, _) = only_path();
    world.open(Class::Primary, 1);
    assert!(world.transmit(1, 4_096));
    assert!(world.deliver(1) && world.deliver_back(1, 1));
    assert!(world.sender.paths(world.now)[1].task > Bytes::ZERO);
    world.finish();
}

/// A million extents and a gigabyte per second: the state machine takes a small part of a
/// processor.
#[test]
fn many_extents_are_no_burden() {
    let size = 100_000 * BLOCK;
    let layout = Layout::new([Bytes(size)]).expect("a good size");
    let have: ExtentSet =
        (0..100_000).step_by(2).map(|block| Extent::new(block * BLOCK, BLOCK)).collect();
    let scheduler = by_name(NAMES[0], Options::default()).expect("a known name");
    let mut sender = Sender::new(&layout, &have, scheduler, SenderConfig::default());
    let mut now = Time::ZERO;
    for path in 0..4 {
        sender.handle_path_open(
            now,
            PathId(path),
            PathTraits { group: path, ..PathTraits::default() },
        );
    }
    let begun = std::time::Instant::now();
    let mut frames = 0u32;
    let mut flying = VecDeque::new();
    while !sender.is_complete() {
        now += Span::from_micros(50);
        let before = flying.len();
        for path in 0..4 {
            if let Transmit::Data(extent) = sender.poll_transmit(now, PathId(path), Bytes::kib(64))
            {
                flying.push_back((PathId(path), extent));
            }
        }
        // Forty frames in flight, or as many as the paths accept.
        while flying.len() > 40 || (flying.len() == before && !flying.is_empty()) {
            let (path, extent) = flying.pop_front().expect("not empty");
            sender.handle_acked(now, path, extent).expect("it was sent");
            frames += 1;
        }
    }
    let each = begun.elapsed() / frames;
    println!("{each:?} a frame, {frames} frames");
    assert!(each < std::time::Duration::from_micros(200), "{each:?} a frame");
}

/// Found by `every_byte_once_whatever_happens`: everything is in flight on a stalled path, and the
/// only other one is still proving.
#[test]
fn a_new_path_rescues_what_hangs() {
    let (mut world, _) = only_path();
    assert!(world.deliver(0) && world.deliver_back(0, 0));
    while world.transmit(0, 262_144) {}
    world.pass(1_300);
    assert_eq!(world.sender.paths(world.now)[0].state, PathState::Stalled);
    world.finish();
}

/// Found by `every_byte_once_whatever_happens`: the acknowledgement of a delivered extent went by a
/// path that died.
#[test]
fn a_lost_acknowledgement_is_made_up_for() {
    let (mut world, _) = only_path();
    assert!(world.transmit(0, 65_536));
    assert!(world.deliver(0) && world.deliver(0));
    world.paths[0].messages.pop_front();
    assert!(world.deliver_back(0, 0));
    world.finish();
}

/// A word of the receiver on another matter shows that the path lives, and postpones the verdict.
#[test]
fn an_answer_keeps_a_path_from_stalling() {
    let stalls = |is_answered: bool| {
        let (mut world, _) = only_path();
        world.now += Span::from_millis(500);
        if is_answered {
            world.sender.handle_answer(world.now, PathId(0));
        }
        world.pass(200);
        world.sender.paths(world.now)[0].state == PathState::Stalled
    };
    assert!(stalls(false));
    assert!(!stalls(true));
}

/// A path that is back is known by its rate, and has to prove itself all the same: until then it
/// takes no more from another one than it may have outstanding.
#[test]
fn a_path_that_is_back_takes_little_at_first() {
    let mut world = World::new(NAMES[0], &[]);
    world.open(Class::Primary, 0);
    world.open(Class::Primary, 1);
    for _ in 0..15 {
        for path in 0..2 {
            assert!(world.transmit(path, 16_384));
            assert!(world.deliver(path) && world.deliver_back(path, path));
        }
        world.pass(20);
    }
    world.apply(&Op::Lose { path: 1 });
    world.pass(20);
    assert!(world.transmit(0, 16_384));
    while world.sender.poll_event().is_some() {}
    world.open(Class::Primary, 1);
    assert!(world.transmit(1, 16_384));
    let mut stolen = Vec::new();
    while let Some(event) = world.sender.poll_event() {
        if let SenderEvent::Stolen { bytes, .. } = event {
            stolen.push(bytes);
        }
    }
    let [stolen] = stolen[..] else { panic!("{stolen:?}") };
    assert!(stolen > Bytes::kib(32) && stolen <= Bytes::kib(64), "{stolen:?}");
}
