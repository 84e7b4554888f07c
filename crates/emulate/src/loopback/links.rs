//! The links of a network between sockets, with their clock and their statistics.

use std::io;
use std::time::Duration;

use link::config::Network;
use link::{Link, Offer, Outcome, Profile, Tally};
use sys::clock::Clock;
use sys::poll::thread_cpu_time;
use units::{Bytes, Time};

use crate::report::{DirectionReport, Drops, Histogram, LinkReport, Report, seconds};

/// A direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LinkDirection {
    pub(super) link: usize,
    pub(super) is_down: bool,
}

impl LinkDirection {
    fn index(self) -> usize {
        2 * self.link + usize::from(self.is_down)
    }
}

#[derive(Debug)]
pub(super) struct Links<T> {
    network: Network,
    directions: Vec<DirectionState<T>>,
    clock: Clock,
    cpu: Duration,
    started: Option<Time>,
    busy: Histogram,
}

#[derive(Debug)]
struct DirectionState<T> {
    link: Link<Item<T>>,
    through: usize,
    delivered: Tally,
    late: Histogram,
    first: Option<Time>,
    last: Option<Time>,
}

#[derive(Clone, Debug)]
struct Item<T> {
    direction: LinkDirection,
    item: T,
}

/// An item that arrived at the other end.
#[derive(Debug)]
pub(super) struct Arrival<T> {
    pub(super) direction: LinkDirection,
    pub(super) is_corrupted: bool,
    pub(super) item: T,
}

impl<T: Clone> Links<T> {
    /// The links, each with its profile passed through `adapt`.
    pub(super) fn new(network: &Network, adapt: impl Fn(&Profile) -> Profile) -> Links<T> {
        let mut directions = Vec::new();
        for (index, link) in network.links.iter().enumerate() {
            for (side, direction, name) in [(0, &link.up, "up"), (1, &link.down, "down")] {
                directions.push(DirectionState {
                    link: Link::unstarted(adapt(&direction.profile), network.stream(link, name)),
                    through: 2 * link.shares.unwrap_or(index) + side,
                    delivered: Tally::default(),
                    late: Histogram::new(),
                    first: None,
                    last: None,
                });
            }
        }
        Links {
            network: network.clone(),
            directions,
            clock: Clock::start(),
            cpu: Duration::ZERO,
            started: None,
            busy: Histogram::new(),
        }
    }

    /// Notes the thread's processor time; call it first on the thread that runs the links.
    pub(super) fn enter_thread(&mut self) {
        self.cpu = thread_cpu_time();
    }

    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Starts the schedule, if it has not started.
    pub(super) fn start(&mut self, now: Time) {
        if self.started.is_none() {
            self.started = Some(now);
            for direction in &mut self.directions {
                direction.link.start(now);
            }
        }
    }

    pub(super) fn profile(&self, direction: LinkDirection) -> &Profile {
        self.directions[self.directions[direction.index()].through].link.profile()
    }

    pub(super) fn has_room(&mut self, direction: LinkDirection, bytes: Bytes) -> bool {
        let now = self.now();
        let through = self.directions[direction.index()].through;
        self.directions[through].link.has_room(now, bytes)
    }

    /// When the direction's queue gets shorter.
    pub(super) fn next_departure(&self, direction: LinkDirection) -> Option<Time> {
        self.directions[self.directions[direction.index()].through].link.next_departure()
    }

    /// Puts an item into the direction's queue. `flow` is its number for queues that separate
    /// flows.
    pub(super) fn enqueue(
        &mut self,
        direction: LinkDirection,
        bytes: Bytes,
        flow: u64,
        item: T,
    ) -> Outcome {
        let now = self.now();
        self.start(now);
        let state = &mut self.directions[direction.index()];
        state.first.get_or_insert(now);
        let through = state.through;
        self.directions[through].link.offer(
            now,
            Offer { bytes, is_ecn_capable: false, is_scalable: false, flow },
            Item { direction, item },
        )
    }

    pub(super) fn poll_deadline(&self) -> Option<Time> {
        self.directions.iter().filter_map(|direction| direction.link.poll_deadline()).min()
    }

    pub(super) fn poll_arrival(&mut self) -> Option<Arrival<T>> {
        let now = self.now();
        for index in 0..self.directions.len() {
            let link = &mut self.directions[index].link;
            if link.poll_deadline().is_none_or(|deadline| deadline > now) {
                continue;
            }
            let Some(delivery) = link.poll_deliver(now) else { continue };
            let Item { direction, item } = delivery.packet;
            let state = &mut self.directions[direction.index()];
            state.delivered.packets += 1;
            state.delivered.bytes += delivery.bytes;
            state.late.record(now - delivery.at);
            state.last = Some(delivery.at);
            return Some(Arrival { direction, is_corrupted: delivery.is_corrupted, item });
        }
        None
    }

    /// Notes how long the thread was busy before it waits again.
    pub(super) fn record_busy(&mut self, since: Time) {
        let now = self.now();
        self.busy.record(now - since);
    }

    pub(super) fn report(&self) -> Report {
        let cpu = thread_cpu_time().saturating_sub(self.cpu);
        let direction = |link, is_down| self.direction(LinkDirection { link, is_down });
        let links = self.network.links.iter().enumerate().map(|(index, link)| LinkReport {
            name: link.name.clone(),
            up: direction(index, false),
            down: direction(index, true),
        });
        let mut report = Report {
            network: self.network.name.clone(),
            seconds: seconds(self.started, Some(self.now())).unwrap_or(0.0),
            first_payload_s: seconds(
                self.started,
                self.directions.iter().filter_map(|direction| direction.first).min(),
            ),
            last_payload_s: seconds(
                self.started,
                self.directions.iter().filter_map(|direction| direction.last).max(),
            ),
            cpu_share: cpu.as_secs_f64() / self.now().as_secs_f64().max(1e-9),
            busy_us: self.busy.quantiles(),
            links: links.collect(),
            ..Report::default()
        };
        report.judge();
        report
    }

    fn direction(&self, direction: LinkDirection) -> DirectionReport {
        let state = &self.directions[direction.index()];
        let counters = state.link.counters();
        DirectionReport {
            packets: state.delivered.packets,
            bytes: state.delivered.bytes.0,
            dropped: Drops::from(counters),
            duplicated: counters.duplicated,
            reordered: counters.reordered,
            corrupted: counters.corrupted,
            marked: counters.marked,
            max_queue_bytes: counters.max_queue.0,
            late_us: state.late.quantiles(),
            first_payload_s: seconds(self.started, state.first),
            last_payload_s: seconds(self.started, state.last),
        }
    }
}

/// Whether an error on a socket only says "later".
pub(super) fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
