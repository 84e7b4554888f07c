//! Sender and receiver against each other under any order of deliveries, acknowledgements, losses
//! and deaths of paths. A failing case prints its operations and the seed file to replay it.
#![allow(missing_docs)]

mod single;

use std::collections::VecDeque;

use policy::sched::{NAMES, Options, by_name};
use proptest::prelude::*;
use transfer::{
    BLOCK, Class, Cv, Extent, ExtentSet, Layout, PathState, PathTraits, PeerError, Receiver,
    Sample, Sender, SenderConfig, SenderEvent, Transmit, Verdict,
};
use units::{Bytes, PathId, Span, Time};

#[derive(Clone, Debug)]
enum Op {
    Open {
        class: Class,
        group: u32,
    },
    Lose {
        path: usize,
    },
    /// One of two connections of a path is gone, with every second extent and acknowledgement.
    LoseConnection {
        path: usize,
        one: usize,
    },
    Transmit {
        path: usize,
        max: u64,
    },
    /// The next data of a path reaches the receiver, which acknowledges it.
    Deliver {
        path: usize,
    },
    /// Data of a path overtakes other data of it, on another connection.
    DeliverEarly {
        path: usize,
        ahead: usize,
    },
    /// The receiver's next message on that path reaches the sender.
    DeliverBack {
        path: usize,
    },
    /// The same, but the message arrives on another path.
    DeliverBackElsewhere {
        path: usize,
        by: usize,
    },
    /// The last acknowledgement arrives again.
    RepeatAck {
        path: usize,
    },
    Sample {
        path: usize,
        timeouts: u32,
        moved: bool,
    },
    /// The next complete block has a wrong hash.
    Corrupt,
    Pass {
        millis: u64,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let path = 0usize..6;
    prop_oneof![
        1 => (0u32..8, 0u32..3).prop_map(|(class, group)| Op::Open {
            class: match class { 0 => Class::Overflow, 1 => Class::Backup, _ => Class::Primary },
            group,
        }),
        1 => path.clone().prop_map(|path| Op::Lose { path }),
        1 => (path.clone(), 0usize..2).prop_map(|(path, one)| Op::LoseConnection { path, one }),
        2 => (path.clone(), 1usize..9)
            .prop_map(|(path, ahead)| Op::DeliverEarly { path, ahead }),
        8 => (path.clone(), 0u64..300_000).prop_map(|(path, max)| Op::Transmit { path, max }),
        8 => path.clone().prop_map(|path| Op::Deliver { path }),
        8 => path.clone().prop_map(|path| Op::DeliverBack { path }),
        1 => (path.clone(), path.clone())
            .prop_map(|(path, by)| Op::DeliverBackElsewhere { path, by }),
        1 => path.clone().prop_map(|path| Op::RepeatAck { path }),
        2 => (path, 0u32..4, any::<bool>())
            .prop_map(|(path, timeouts, moved)| Op::Sample { path, timeouts, moved }),
        1 => Just(Op::Corrupt),
        4 => (0u64..900).prop_map(|millis| Op::Pass { millis }),
    ]
}

/// A message of the receiver.
#[derive(Clone, Copy, Debug)]
enum Message {
    Acked(Extent),
    Refused(Extent),
}

/// A path, with the data and the messages in flight on it.
#[derive(Debug)]
struct InTransit {
    id: PathId,
    data: VecDeque<Extent>,
    messages: VecDeque<Message>,
    kernel_acked: u64,
}

struct World {
    now: Time,
    layout: Layout,
    sender: Sender,
    receiver: Receiver,
    paths: Vec<InTransit>,
    opened: u32,
    last_ack: Option<Extent>,
    corrupt: bool,
    /// Positions handed to the application, less those refused.
    delivered: ExtentSet,
    /// Refusals that the sender may not have received: repeated on every path that opens.
    refusals: Vec<Extent>,
}

fn layout() -> Layout {
    Layout::new([5 * BLOCK + 5_000, 3, 0, BLOCK, 2 * BLOCK - 1].map(Bytes)).expect("good sizes")
}

impl World {
    fn new(scheduler: &str, had: &[u64]) -> World {
        let layout = layout();
        let have: ExtentSet = had.iter().filter_map(|&block| layout.block_extent(block)).collect();
        let scheduler = by_name(scheduler, Options::default()).expect("a known name");
        World {
            now: Time::ZERO,
            sender: Sender::new(&layout, &have, scheduler, SenderConfig::default()),
            receiver: Receiver::new(&layout, &have),
            layout,
            paths: Vec::new(),
            opened: 0,
            last_ack: None,
            corrupt: false,
            delivered: have,
            refusals: Vec::new(),
        }
    }

    fn open(&mut self, class: Class, group: u32) {
        let id = PathId(self.opened);
        self.opened += 1;
        self.sender.handle_path_open(
            self.now,
            id,
            PathTraits { class, group, ..PathTraits::default() },
        );
        let messages = self.refusals.iter().map(|&extent| Message::Refused(extent)).collect();
        self.paths.push(InTransit { id, data: VecDeque::new(), messages, kernel_acked: 0 });
    }

    fn apply(&mut self, op: &Op) {
        let count = self.paths.len();
        let pick = |path: usize| (count > 0).then(|| path % count.max(1));
        match *op {
            Op::Open { class, group } if count < 6 => self.open(class, group),
            Op::Open { .. } => {}
            Op::Lose { path } => {
                if let Some(path) = pick(path) {
                    let path = self.paths.remove(path);
                    self.sender.handle_path_lost(self.now, path.id);
                }
            }
            Op::LoseConnection { path, one } => {
                if let Some(path) = pick(path) {
                    self.lose_connection(path, one);
                }
            }
            Op::DeliverEarly { path, ahead } => {
                if let Some(path) = pick(path) {
                    let data = &mut self.paths[path].data;
                    if let Some(extent) = data.remove(ahead) {
                        data.push_front(extent);
                        self.deliver(path);
                    }
                }
            }
            Op::Transmit { path, max } => {
                if let Some(path) = pick(path) {
                    self.transmit(path, max);
                }
            }
            Op::Deliver { path } => {
                if let Some(path) = pick(path) {
                    self.deliver(path);
                }
            }
            Op::DeliverBack { path } => {
                if let Some(path) = pick(path) {
                    self.deliver_back(path, path);
                }
            }
            Op::DeliverBackElsewhere { path, by } => {
                // Refusals must stay behind the acknowledgements of their path, so only those are
                // moved.
                if let (Some(path), Some(by)) = (pick(path), pick(by))
                    && self.refusals.is_empty()
                {
                    self.deliver_back(path, by);
                }
            }
            Op::RepeatAck { path } => {
                if let (Some(path), Some(extent)) = (pick(path), self.last_ack)
                    && self.refusals.is_empty()
                {
                    self.sender
                        .handle_acked(self.now, self.paths[path].id, extent)
                        .expect("it was sent");
                }
            }
            Op::Sample { path, timeouts, moved } => {
                if let Some(path) = pick(path) {
                    let path = &mut self.paths[path];
                    path.kernel_acked += u64::from(moved) * 1_448;
                    let sample = Sample {
                        rtt: Span::from_millis(30),
                        min_rtt: Span::from_millis(20),
                        kernel_acked: Bytes(path.kernel_acked),
                        timeouts,
                        ..Sample::default()
                    };
                    self.sender.handle_sample(self.now, path.id, sample);
                }
            }
            Op::Corrupt => self.corrupt = true,
            Op::Pass { millis } => self.pass(millis),
        }
        self.check();
    }

    fn pass(&mut self, millis: u64) {
        self.now += Span::from_millis(millis);
        if self.sender.poll_deadline(self.now).is_some_and(|deadline| deadline <= self.now) {
            self.sender.handle_deadline(self.now);
            let next = self.sender.poll_deadline(self.now);
            assert!(
                next.is_none_or(|next| next > self.now),
                "the deadline {next:?} stays in the past at {}",
                self.now
            );
        }
    }

    fn lose_connection(&mut self, path: usize, one: usize) {
        let InTransit { id, data, messages, .. } = &mut self.paths[path];
        let mut number = one;
        let mut is_lost = || {
            number += 1;
            number.is_multiple_of(2)
        };
        let mut lost = Vec::new();
        messages.retain(|message| match *message {
            Message::Acked(extent) if is_lost() => {
                lost.push(extent);
                false
            }
            Message::Acked(_) | Message::Refused(_) => true,
        });
        data.retain(|&extent| {
            let gone = is_lost();
            lost.extend(gone.then_some(extent));
            !gone
        });
        self.sender.handle_connection_lost(self.now, *id, lost);
    }

    fn transmit(&mut self, path: usize, max: u64) -> bool {
        let Transmit::Data(extent) =
            self.sender.poll_transmit(self.now, self.paths[path].id, Bytes(max))
        else {
            return false;
        };
        self.layout.check_data(extent).expect("the receiver accepts what the sender sends");
        assert!(extent.len <= max.max(4_096), "{} bytes where {max} were asked for", extent.len);
        self.paths[path].data.push_back(extent);
        true
    }

    fn deliver(&mut self, path: usize) -> bool {
        let Some(extent) = self.paths[path].data.pop_front() else { return false };
        let fresh = self.receiver.handle_data(extent).expect("a good extent");
        for piece in fresh.pieces {
            assert_eq!(self.delivered.insert(piece), [piece], "{piece} was delivered twice");
            self.receiver.handle_written(piece).expect("a good piece");
        }
        self.paths[path].messages.push_back(Message::Acked(extent));
        self.receiver.handle_hash(extent.start / BLOCK, Cv([1; 32])).expect("a good hash");
        while let Some(block) = self.receiver.poll_verify() {
            let ok = !core::mem::take(&mut self.corrupt);
            match self.receiver.handle_verified(block.index, ok) {
                Verdict::Verified { .. } => assert!(ok),
                Verdict::Refuse(extent) => {
                    assert!(!ok);
                    self.delivered.remove(extent);
                    self.refusals.push(extent);
                    self.paths
                        .iter_mut()
                        .for_each(|path| path.messages.push_back(Message::Refused(extent)));
                }
            }
        }
        true
    }

    fn deliver_back(&mut self, path: usize, by: usize) -> bool {
        let Some(message) = self.paths[path].messages.pop_front() else { return false };
        let id = self.paths[by].id;
        match message {
            Message::Acked(extent) => {
                self.sender.handle_acked(self.now, id, extent).expect("it was sent");
                self.last_ack = Some(extent);
            }
            Message::Refused(extent) => {
                self.sender.handle_refused(self.now, extent).expect("a good extent");
            }
        }
        true
    }

    fn check(&mut self) {
        let totals = self.sender.totals(self.now);
        let sum = totals.pool + totals.tasks + totals.in_flight + totals.acked;
        assert_eq!(sum, totals.total, "bytes appeared or vanished: {totals:?}");
        while self.sender.poll_event().is_some() {}
        while self.sender.poll_wake().is_some() {}
    }

    /// A good path opens, and everything must come through.
    fn finish(&mut self) {
        self.open(Class::Primary, 9);
        let good = self.paths.len() - 1;
        for _ in 0..5_000 {
            if self.receiver.is_complete() && self.sender.is_complete() {
                assert_eq!(self.delivered.total(), self.layout.total());
                return;
            }
            while self.transmit(good, 65_536) {}
            while self.deliver(good) {}
            while self.deliver_back(good, good) {}
            self.check();
            self.pass(20);
        }
        panic!(
            "the transfer hangs: {:?} {:?}",
            self.sender.totals(self.now),
            self.sender.paths(self.now)
        );
    }
}

proptest! {
    #[test]
    fn every_byte_once_whatever_happens(
        ops in proptest::collection::vec(op(), 0..250),
        had in proptest::collection::vec(0u64..10, 0..3),
    ) {
        let mut world = World::new(NAMES[0], &had);
        for op in &ops {
            world.apply(op);
        }
        world.finish();
    }

    /// The other schedulers never move data off a living path: everything comes through once the
    /// bad paths are dead.
    #[test]
    fn fixed_tasks_come_through_when_bad_paths_die(
        name in 1usize..3,
        ops in proptest::collection::vec(op(), 0..150),
    ) {
        let mut world = World::new(NAMES[name], &[]);
        for op in &ops {
            world.apply(op);
        }
        while !world.paths.is_empty() {
            world.apply(&Op::Lose { path: 0 });
        }
        world.finish();
    }
}
