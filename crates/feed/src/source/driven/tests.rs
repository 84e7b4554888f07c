//! A source in virtual time, over ways that carry so much and no more.

use super::*;

/// A way from the source to the collector, with a queue.
struct Pipe {
    rate: Rate,
    queue: Bytes,
    received: Bytes,
}

/// A source, its ways, and the collector.
struct Net {
    driven: Driven,
    now: Time,
    pipes: Vec<Pipe>,
    /// The path that is over each way, if a connection is.
    open: Vec<Option<PathId>>,
    /// What is produced in a second; nothing for data at any time.
    production: Rate,
    produced: u64,
    unsent: u64,
    said: Vec<String>,
    /// The reports that no connection was to bring.
    unasked: u64,
}

/// The most that waits in the queue of a way.
const QUEUE: Bytes = Bytes(30_000);

impl Net {
    fn new(options: ControlOptions, production: Rate, rates: &[u64]) -> Net {
        let is_produced = production > Rate::ZERO;
        let pipe = |&kbit: &u64| Pipe {
            rate: Rate::kbit(kbit),
            queue: Bytes::ZERO,
            received: Bytes::ZERO,
        };
        let mut net = Net {
            driven: Driven::new(options, is_produced, Seed(7), Time::ZERO),
            now: Time::ZERO,
            pipes: rates.iter().map(pipe).collect(),
            open: vec![None; rates.len()],
            production,
            produced: 0,
            unsent: 0,
            said: Vec::new(),
            unasked: 0,
        };
        net.driven.handle_candidates(net.now, ways(rates.len()));
        net
    }

    /// Goes on for so many milliseconds.
    fn run(&mut self, millis: u64) {
        for _ in 0..millis {
            self.now += Span::from_millis(1);
            let millis = (self.now - Time::ZERO).as_nanos() / 1_000_000;
            self.produced += (self.production * Span::from_millis(1)).0;
            self.unsent += (self.production * Span::from_millis(1)).0;
            self.dial();
            for at in 0..self.pipes.len() {
                self.send(at);
                let Pipe { rate, queue, received } = &mut self.pipes[at];
                let gone = (*rate * Span::from_millis(1)).min(*queue);
                *queue -= gone;
                *received += gone;
            }
            if millis.is_multiple_of(200) {
                self.report();
            }
            if millis.is_multiple_of(500) {
                self.driven.handle_tick(self.now);
            }
            self.said.extend(self.driven.take_said());
        }
    }

    fn dial(&mut self) {
        let (open, close) = self.driven.poll_dialing();
        for plan in close {
            self.open[plan.0 as usize] = None;
        }
        for plan in open {
            let at = plan.0 as usize;
            if self.pipes[at].rate > Rate::ZERO {
                self.open[at] = self.driven.attach(self.now, plan);
                (self.pipes[at].queue, self.pipes[at].received) = (Bytes::ZERO, Bytes::ZERO);
            }
        }
    }

    fn send(&mut self, at: usize) {
        let Some(path) = self.open[at] else { return };
        loop {
            let has_room = self.pipes[at].queue < QUEUE;
            let rtt = Span::from_millis(10 + at as u64);
            let state = PathState { rtt, has_room, is_alive: true };
            let piece = match self.driven.turn(self.now, path, state) {
                Turn::Now(piece) => piece as u64,
                Turn::Over => {
                    self.open[at] = None;
                    return self.driven.handle_ended(PathId(u32::try_from(at).expect("few")));
                }
                Turn::After(_) | Turn::Waits => return,
            };
            let is_produced = self.production > Rate::ZERO;
            let piece = if is_produced { piece.min(self.unsent) } else { piece };
            if piece == 0 {
                return self.driven.handle_lack(self.now, self.produced);
            }
            self.unsent = self.unsent.saturating_sub(piece);
            self.driven.handle_written(self.now, path, Bytes(piece), self.produced);
            self.pipes[at].queue += Bytes(piece);
        }
    }

    /// A report comes over the connection that asks for it.
    fn report(&mut self) {
        let asks =
            |path: &PathId| self.driven.watch(*path).is_some_and(|watch| watch.interval.is_some());
        if !self.open.iter().flatten().any(asks) {
            self.unasked += 1;
            return;
        }
        let open = self.open.iter().zip(&self.pipes);
        let entry =
            |(path, pipe): (&Option<PathId>, &Pipe)| Some((path.as_ref()?.0, pipe.received.0));
        let paths = open.filter_map(entry).collect();
        let stamp = (self.now - Time::ZERO).as_nanos();
        let report = ArrivalReport { stamp, paths, relays: Vec::new() };
        let unsent = Bytes(self.unsent);
        self.driven.handle_report(self.now, &report, (self.produced, unsent)).expect("the truth");
    }

    fn received(&self) -> Bytes {
        self.pipes.iter().map(|pipe| pipe.received).sum()
    }

    fn is_satisfied(&self) -> Option<bool> {
        self.driven.show(self.now).expect("it has begun").satisfied
    }
}

fn ways(count: usize) -> Vec<CandidateWay> {
    let way = |number: u32| CandidateWay {
        plan: PathId(number),
        name: format!("way {number}"),
        relay: NonZeroU32::new(number),
    };
    (0..u32::try_from(count).expect("a few")).map(way).collect()
}

fn demand(rate: Rate, paths: Option<usize>) -> ControlOptions {
    let (choice, reselect) = (Choice::Uniform, Reselect::Paths);
    ControlOptions { demand: Some(rate), paths, choice, reselect }
}

#[test]
fn what_is_produced_arrives_over_ways_that_carry_it_together() {
    // The first way carries a fourth; an equal division would not do.
    let mut net = Net::new(demand(Rate::mbit(4), None), Rate::mbit(4), &[1_500, 4_000]);
    net.run(40_000);
    assert_eq!(net.is_satisfied(), Some(true));
    let (before, unsent) = (net.received(), net.unsent);
    net.run(20_000);
    let rate = (net.received() - before) / Span::from_secs(20);
    assert!((3.88e6..4.2e6).contains(&rate.as_f64()), "{rate}");
    assert!(net.unsent < unsent.max(100_000), "it does not fall behind: {}", net.unsent);
    assert_eq!(net.said, [""; 0], "there is nothing to choose");
}

#[test]
fn a_demand_for_data_that_is_there_is_the_rate() {
    let mut net = Net::new(demand(Rate::mbit(3), None), Rate::ZERO, &[9_000, 9_000]);
    net.run(30_000);
    let rate = net.received() / Span::from_secs(30);
    assert!((2.9e6..3.05e6).contains(&rate.as_f64()), "{rate}");
}

#[test]
fn what_is_produced_beyond_the_demand_waits() {
    let mut net = Net::new(demand(Rate::mbit(2), None), Rate::mbit(6), &[20_000]);
    net.run(30_000);
    let rate = net.received() / Span::from_secs(30);
    // With what clears the backlog.
    assert!(rate.as_f64() < 1.10 * 2e6, "{rate}");
    assert_eq!(net.is_satisfied(), Some(false), "it falls behind");
}

#[test]
fn ways_that_carry_too_little_are_left_for_others_and_that_is_said() {
    let mut net =
        Net::new(demand(Rate::mbit(4), Some(2)), Rate::mbit(4), &[500, 400, 3_000, 3_000]);
    net.run(200_000);
    assert_eq!(net.is_satisfied(), Some(true), "{:?}", net.said);
    let shown = net.driven.show(net.now).expect("it has begun").paths;
    assert!(shown.iter().any(|path| ["way 2", "way 3"].contains(&&*path.name)), "{shown:?}");
    assert!(net.said.iter().all(|text| text.contains("the demand was not met")), "{:?}", net.said);
}

/// No two ways carry the demand; of the last draws the best ones do most of the time.
#[test]
fn the_best_ways_of_the_last_draws_are_used_again_and_that_is_said() {
    let rates = [500, 500, 500, 500, 2_000, 1_500];
    let mut net = Net::new(demand(Rate::mbit(4), Some(2)), Rate::mbit(4), &rates);
    net.run(12_000 * 40);
    let again =
        net.said.iter().filter(|text| text.ends_with(": they brought most of the last draws"));
    assert!(again.count() > 0, "{:?}", net.said);
}

#[test]
fn a_way_that_dies_is_replaced_at_once_and_one_that_never_opens_soon() {
    let mut net = Net::new(demand(Rate::mbit(1), Some(1)), Rate::mbit(1), &[5_000, 5_000]);
    net.run(20_000);
    let first = net.open.iter().position(Option::is_some).expect("one is open");
    let path = net.open[first].take().expect("it is open");
    net.driven.handle_lost(net.now, path, "the relay is gone");
    net.run(10);
    assert!(net.open[1 - first].is_some());
    let text =
        format!("records go over way {} instead of way {first}: the relay is gone", 1 - first);
    assert_eq!(net.said, [text]);
    let draws = net.driven.show(net.now).expect("it has begun").draws;
    assert_eq!(draws, 2, "the first choice and this one");
    // The other one dies too, and the first is no more.
    net.pipes[first].rate = Rate::ZERO;
    let path = net.open[1 - first].take().expect("it is open");
    net.driven.handle_lost(net.now, path, "the relay is gone");
    net.run(10);
    assert!(net.open.iter().all(Option::is_none), "the first is tried");
    net.run(4_000);
    assert!(net.open[1 - first].is_some(), "{:?}", net.said);
}

#[test]
fn a_connection_that_nobody_wants_is_none() {
    let mut net = Net::new(demand(Rate::mbit(1), Some(1)), Rate::mbit(1), &[5_000, 5_000]);
    net.run(10);
    let unused = net.open.iter().position(Option::is_none).expect("one is not open");
    let plan = PathId(u32::try_from(unused).expect("few"));
    assert_eq!(net.driven.attach(net.now, plan), None);
    net.driven.handle_ended(plan);
    assert_eq!(net.driven.poll_dialing(), (Vec::new(), Vec::new()));
}

#[test]
fn reports_come_over_the_path_with_the_shortest_round_trip() {
    let mut net = Net::new(demand(Rate::mbit(1), None), Rate::mbit(1), &[5_000, 5_000]);
    net.run(1_000);
    let [first, second] = [net.open[0], net.open[1]].map(|path| path.expect("it is open"));
    let asks = |net: &Net, path| net.driven.watch(path).expect("a path").interval.is_some();
    assert!(asks(&net, first) && !asks(&net, second));
    let dead = PathState { rtt: Span::from_millis(10), has_room: false, is_alive: false };
    net.driven.turn(net.now, first, dead);
    assert!(!asks(&net, first) && asks(&net, second), "it is not heard of");
}

/// The path over which they come is left for another one, drains and is closed.
#[test]
fn reports_go_on_when_the_path_of_reports_has_drained() {
    // The way that is drawn first carries too little.
    let mut net = Net::new(demand(Rate::mbit(2), Some(1)), Rate::mbit(2), &[6_000, 400]);
    net.run(60_000);
    let is_left = |text: &String| text.contains("way 0 instead of way 1");
    assert!(net.said.iter().any(is_left), "{:?}", net.said);
    assert!(net.unasked <= 1, "{} reports have no path: {:?}", net.unasked, net.said);
    assert_eq!(net.is_satisfied(), Some(true));
}

/// One of two ways never opens, and what the other one has had in turns meanwhile counts neither
/// against its later turns nor against its rate.
#[test]
fn a_way_that_comes_late_does_not_keep_others_from_sending() {
    let mut net = Net::new(demand(Rate::mbit(4), Some(2)), Rate::mbit(4), &[500, 0, 6_000]);
    net.run(3_600);
    let late = ["records go over way 0 instead of way 1: there is no connection"];
    assert_eq!(net.said, late);
    let before = net.pipes[2].received;
    net.run(1_000);
    let rate = (net.pipes[2].received - before) / Span::from_secs(1);
    assert!(rate > Rate::mbit(2), "{rate}");
}

#[test]
fn a_source_with_too_few_ways_uses_those_after_a_while() {
    let mut net = Net::new(demand(Rate::mbit(1), Some(3)), Rate::mbit(1), &[5_000, 5_000]);
    net.run(2_900);
    assert!(net.driven.show(net.now).is_none(), "more may come");
    net.run(1_000);
    assert!(net.open.iter().all(Option::is_some));
    assert_eq!(net.said, ["3 paths are to be used, and 2 paths are possible"]);
}

#[test]
fn a_way_more_is_used_where_all_are() {
    let mut net = Net::new(demand(Rate::mbit(6), None), Rate::mbit(6), &[4_000]);
    net.run(20_000);
    assert_eq!(net.is_satisfied(), Some(false));
    net.pipes.push(Pipe { rate: Rate::mbit(4), queue: Bytes::ZERO, received: Bytes::ZERO });
    net.open.push(None);
    net.driven.handle_candidates(net.now, ways(2));
    net.run(60_000);
    assert_eq!(net.is_satisfied(), Some(true));
}

#[test]
fn a_collector_that_has_more_than_was_sent_is_not_believed() {
    let mut net = Net::new(demand(Rate::mbit(1), None), Rate::mbit(1), &[5_000]);
    net.run(10_000);
    let rates = |net: &Net| net.driven.show(net.now).expect("it has begun").paths;
    let before = rates(&net);
    let path = net.open[0].expect("it is open");
    let stamp = u64::MAX / 2;
    let report = ArrivalReport { stamp, paths: vec![(path.0, u64::MAX)], relays: Vec::new() };
    let taken = net.driven.handle_report(net.now, &report, (net.produced, Bytes::ZERO));
    assert!(matches!(taken, Err(ReportError::Beyond { .. })), "{taken:?}");
    let set = |paths: Vec<FeedPath>| paths.into_iter().map(|path| path.set).collect::<Vec<_>>();
    assert_eq!(set(rates(&net)), set(before));
    // Paths that are not its own, and relays that nobody uses, change nothing.
    let stamp = (net.now - Time::ZERO).as_nanos() + 1;
    let report = ArrivalReport { stamp, paths: vec![(999, 1)], relays: vec![(77, u32::MAX)] };
    let taken = net.driven.handle_report(net.now, &report, (net.produced, Bytes::ZERO));
    assert_eq!(taken, Ok(()));
}
