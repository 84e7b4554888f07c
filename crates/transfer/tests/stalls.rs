//! When a path counts as stalled: silence of one path says something about the path, silence of all
//! paths may be the receiver's.

use policy::sched::{Options, by_name};
use transfer::{
    Class, Extent, ExtentSet, Layout, PathState, PathTraits, Sample, Sender, SenderConfig,
    SenderEvent, Transmit,
};
use units::{Bytes, PathId, Span, Time};

/// A sender with two proven paths.
struct World {
    now: Time,
    sender: Sender,
    /// In flight, by path.
    sent: [Vec<Extent>; 2],
    stalls: Vec<(PathId, Time)>,
}

const FRAME: Bytes = Bytes::kib(16);

impl World {
    /// A transfer of this size, with this much in flight on each path.
    fn new(size: Bytes, in_flight: Bytes) -> World {
        let layout = Layout::new([size]).expect("a good size");
        let scheduler = by_name("self-adaptive", Options::default()).expect("a known name");
        let sender = Sender::new(&layout, &ExtentSet::new(), scheduler, SenderConfig::default());
        let (sent, stalls) = ([vec![], vec![]], Vec::new());
        let mut world = World { now: Time::ZERO, sender, sent, stalls };
        for group in [0, 1] {
            let traits =
                PathTraits { group, rtt: Some(Span::from_millis(20)), ..PathTraits::default() };
            world.sender.handle_path_open(world.now, PathId(group), traits);
        }
        for path in [0, 1] {
            assert!(world.send(path));
        }
        world.pass(20);
        for path in [0, 1] {
            world.ack(path);
            while world.in_flight(path) < in_flight && world.send(path) {}
        }
        world
    }

    fn in_flight(&self, path: usize) -> Bytes {
        Bytes(self.sent[path].iter().map(|extent| extent.len).sum())
    }

    fn send(&mut self, path: usize) -> bool {
        let id = PathId(u32::try_from(path).expect("small"));
        let Transmit::Data(extent) = self.sender.poll_transmit(self.now, id, FRAME) else {
            return false;
        };
        self.sent[path].push(extent);
        true
    }

    /// The receiver acknowledges the oldest extent of a path on it.
    fn ack(&mut self, path: usize) {
        if self.sent[path].is_empty() {
            return;
        }
        let id = PathId(u32::try_from(path).expect("small"));
        let extent = self.sent[path].remove(0);
        self.sender.handle_acked(self.now, id, extent).expect("it was sent");
    }

    fn pass(&mut self, millis: u64) {
        self.now += Span::from_millis(millis);
        if self.sender.poll_deadline(self.now).is_some_and(|deadline| deadline <= self.now) {
            self.sender.handle_deadline(self.now);
        }
        while let Some(event) = self.sender.poll_event() {
            if let SenderEvent::PathState { path, state: PathState::Stalled, .. } = event {
                self.stalls.push((path, self.now));
            }
        }
    }

    /// The carrier of a path, which repeats what it loses, says for how long nothing got through.
    fn say(&mut self, path: u32, silence: Span) {
        let sample = Sample { silence: Some(silence), ..Sample::default() };
        self.sender.handle_sample(self.now, PathId(path), sample);
    }

    fn repeated(&self) -> Bytes {
        self.sender.totals(self.now).duplicates
    }
}

/// Found with 50,000 files: the receiver's disk paused for more than 600 ms, and each path sent
/// copies of what the other one had in flight.
#[test]
fn a_receiver_that_pauses_gets_nothing_twice() {
    for pause in [700, 900, 1_050] {
        let mut world = World::new(Bytes::mib(16), Bytes::kib(512));
        for _ in 0..pause / 20 {
            world.pass(20);
            for path in [0, 1] {
                world.send(path);
            }
        }
        // The first path is heard of a while before the second.
        for step in 0..60 {
            world.pass(5);
            for path in [0, 1] {
                if step >= 20 * path {
                    world.ack(path);
                }
                world.send(path);
            }
        }
        assert_eq!(world.repeated(), Bytes::ZERO, "after a pause of {pause} ms");
        assert_eq!(world.stalls, [], "after a pause of {pause} ms");
    }
}

/// Once all that is left is in flight, a path whose own data wait sends no copies of another's.
#[test]
fn a_receiver_that_pauses_at_the_end_gets_nothing_twice() {
    let mut world = World::new(Bytes::kib(800), Bytes::kib(384));
    // The first path is twice as fast, and so it is done first, but for the last frame.
    for step in 0..46 {
        world.pass(10);
        world.ack(0);
        if step % 2 == 0 {
            world.ack(1);
        }
        if world.in_flight(0) == FRAME {
            break;
        }
    }
    assert!(world.in_flight(1) > Bytes::kib(128) && world.repeated() == Bytes::ZERO);
    for _ in 0..100 {
        world.pass(20);
        for path in [0, 1] {
            world.send(path);
        }
    }
    assert!(world.repeated() <= Bytes::kib(64), "{}", world.repeated());
}

/// A copy of what waits for the receiver's disk waits as long. When the path has stalled for all
/// that, copies help.
#[test]
fn what_waits_for_the_disk_is_not_copied() {
    let mut world = World::new(Bytes::kib(800), Bytes::kib(384));
    // The first path is done, and copies what the slower one has in flight, until it hears.
    let mut before = Bytes::ZERO;
    for step in 0..60 {
        world.pass(10);
        world.ack(0);
        if step < 20 && step % 2 == 0 {
            world.ack(1);
        }
        if step >= 20 {
            world.sender.handle_alive(world.now, PathId(1));
        } else {
            before = world.repeated();
        }
        world.send(0);
    }
    assert!(world.in_flight(1) > Bytes::kib(128), "{}", world.in_flight(1));
    assert!(world.repeated() <= before + FRAME, "{before} before, then {}", world.repeated());
    for _ in 0..1_500 {
        world.pass(10);
        world.send(0);
        world.ack(0);
    }
    assert!(world.repeated() > before + Bytes::kib(64), "{}", world.repeated());
}

/// Found with a relay of 1 Mbit/s beside a path of 20 Mbit/s: an answer to a ping was taken for a
/// word of the receiver's disk, and the end waited for the slow path, for up to a second.
#[test]
fn what_a_slow_path_carries_is_copied_also_behind_an_answer_to_a_ping() {
    let mut world = World::new(Bytes::kib(800), Bytes::kib(384));
    for step in 0..60 {
        world.pass(10);
        world.ack(0);
        if step < 20 && step % 2 == 0 {
            world.ack(1);
        }
        world.sender.handle_answer(world.now, PathId(1));
        world.send(0);
    }
    assert!(world.in_flight(1) > Bytes::kib(128), "{}", world.in_flight(1));
    assert!(world.repeated() >= world.in_flight(1), "{}", world.repeated());
    assert!(world.sender.is_complete());
}

/// Found with a relay of 1 Mbit/s, over which a second connection was opened: what the slower one
/// had was taken for delivered once the other one's later data were, and nobody copied it.
#[test]
fn what_a_slower_connection_of_a_path_carries_is_copied() {
    let mut world = World::new(Bytes::kib(800), Bytes::kib(384));
    // All of the second path arrives by one connection, but for its oldest extent.
    while world.in_flight(0) > Bytes::ZERO || world.in_flight(1) > FRAME {
        world.pass(10);
        world.ack(0);
        if world.in_flight(1) > FRAME {
            let oldest = world.sent[1].remove(0);
            world.ack(1);
            world.sent[1].insert(0, oldest);
        }
        while world.sender.paths(world.now)[0].in_flight < FRAME && world.send(0) {}
    }
    let waits = world.sent[1][0];
    for _ in 0..10 {
        world.pass(10);
        world.send(0);
        world.ack(0);
    }
    assert!(world.sender.is_acked(waits), "{waits} waits for the slower connection");
    assert!(world.sender.is_complete());
}

#[test]
fn a_path_that_is_silent_beside_another_one_stalls_soon() {
    let mut world = World::new(Bytes::mib(16), Bytes::kib(512));
    let silent_since = world.now;
    for _ in 0..200 {
        world.pass(5);
        world.ack(0);
        world.send(0);
    }
    let [(path, at)] = world.stalls[..] else { panic!("{:?}", world.stalls) };
    assert_eq!(path, PathId(1));
    let waited = at - silent_since;
    assert!(waited >= Span::from_millis(600) && waited < Span::from_millis(620), "{waited}");
}

/// All paths may be dead: then others, such as backups, must be tried.
#[test]
fn paths_that_are_all_silent_stall_in_the_end() {
    let mut world = World::new(Bytes::mib(16), Bytes::kib(512));
    let silent_since = world.now;
    for _ in 0..1_000 {
        world.pass(5);
    }
    let [(_, first), (_, second)] = world.stalls[..] else { panic!("{:?}", world.stalls) };
    assert_eq!(first, second);
    let waited = first - silent_since;
    assert!(waited >= Span::from_millis(1_200) && waited < Span::from_millis(1_220), "{waited}");
}

/// A receiver whose disk pauses says so: neither the path nor what it carries is given up, however
/// long that takes.
#[test]
fn a_path_that_says_that_the_receiver_lives_does_not_stall() {
    let mut world = World::new(Bytes::mib(16), Bytes::kib(512));
    for _ in 0..100 {
        world.pass(200);
        for path in [PathId(0), PathId(1)] {
            world.sender.handle_alive(world.now, path);
        }
    }
    assert_eq!(world.stalls, []);
    world.sender.handle_alive(world.now, PathId(7));
    for _ in 0..200 {
        world.pass(5);
        world.ack(0);
        world.send(0);
        world.sender.handle_alive(world.now, PathId(0));
    }
    assert_eq!(world.stalls.len(), 1, "the other path says nothing any more");
}

/// Over UDP a stream waits for what one slow route has, and the mover took it for dead: it sent all
/// that was in flight once more over new streams.
#[test]
fn a_stream_that_waits_for_a_slow_route_is_not_dead() {
    let mut world = World::new(Bytes::mib(16), Bytes::kib(512));
    for _ in 0..100 {
        world.pass(100);
        world.say(1, Span::ZERO);
        world.ack(0);
        world.send(0);
    }
    assert_eq!(world.stalls, []);
    assert_eq!(world.repeated(), Bytes::ZERO);
}

/// Another carrier, or another host, takes over while none of its routes carries.
#[test]
fn a_carrier_that_gets_nothing_through_is_stalled_until_it_does() {
    let mut world = World::new(Bytes::mib(16), Bytes::kib(512));
    let silent_since = world.now;
    for _ in 0..20 {
        world.pass(50);
        let silence = world.now - silent_since;
        world.say(1, silence);
        world.pass(0);
        world.ack(0);
        world.send(0);
    }
    let [(path, at)] = world.stalls[..] else { panic!("{:?}", world.stalls) };
    assert_eq!((path, at - silent_since), (PathId(1), Span::from_millis(600)));
    world.say(1, Span::ZERO);
    let state = |world: &World| world.sender.paths(world.now)[1].state;
    assert_eq!(state(&world), PathState::Active);
}

/// Neither the path in use nor the one in reserve, until one of them has another role.
#[test]
fn held_paths_get_nothing_and_what_they_have_in_flight_arrives() {
    let mut world = World::new(Bytes::mib(16), Bytes::kib(256));
    world.sender.set_class(world.now, PathId(1), Class::Backup);
    for path in [1, 0] {
        world.sender.set_class(world.now, PathId(path), Class::Held);
    }
    for step in 0..60 {
        world.pass(10);
        for path in [0, 1] {
            if step > 10 {
                world.ack(path);
            }
            assert!(!world.send(path), "path {path} after {step} looks");
        }
    }
    assert_eq!(world.in_flight(0) + world.in_flight(1), Bytes::ZERO);
    assert_eq!((world.repeated(), &*world.stalls), (Bytes::ZERO, [].as_slice()));
    world.sender.set_class(world.now, PathId(1), Class::Primary);
    assert!(world.send(1) && !world.send(0));
    world.sender.set_class(world.now, PathId(0), Class::Backup);
    assert!(world.send(1) && !world.send(0));
    world.sender.handle_path_lost(world.now, PathId(1));
    assert!(world.send(0));
}
