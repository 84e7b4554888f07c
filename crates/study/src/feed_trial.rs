//! Runs of live sources over relays: what is to happen in one, and when all sources are served.
//!
//! [`FeedScript`] is a core without processes and clocks. A [`Testbed`](crate::Testbed) tells it
//! every [`STEP`] what has arrived, and does what it says.

use std::collections::VecDeque;

use overlay::{Choice, Reselect};
use units::{Bytes, Rate, Span};

/// The time between two samples: a control interval.
pub const STEP: Span = Span::from_millis(200);
/// The number of steps over which a source is to have what it demands.
pub(crate) const LASTING: usize = 20;
/// The share of a demand that may be missing.
pub(crate) const TOLERANCE: f64 = 0.03;
/// The time between the end of something and the next event.
pub(crate) const REST: Span = Span::from_secs(5);
/// The time for which a source that is to come is away.
const AWAY: Span = Span::from_secs(10);

/// A run of live sources, relays and a collector, each a process of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct FeedTrial {
    /// What each source has to send.
    pub demands: Vec<Rate>,
    /// What each relay can deliver, in payload.
    pub capacities: Vec<Rate>,
    /// The number of paths of a source, k.
    pub paths: usize,
    /// How sources draw relays.
    pub choice: Choice,
    /// What they draw anew while their demand is not met.
    pub reselect: Reselect,
    /// The round trip from a source over a relay to the collector, without queues.
    pub rtt: Span,
    /// The time after which the run ends if not all sources have been served.
    pub patience: Span,
    /// What happens then, one after the other.
    pub events: Vec<Happening>,
    /// The time after which an event is given up.
    pub within: Span,
}

/// Something that happens while all sources are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening {
    /// A relay is killed, and stays away.
    Killed(usize),
    /// A relay carries half of its capacity; afterwards all of it.
    Halved(usize),
    /// A source comes. It was away for some seconds before.
    Added(usize),
}

impl Happening {
    /// Its name in tables and pictures.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Happening::Killed(_) => "killed",
            Happening::Halved(_) => "halved",
            Happening::Added(_) => "added",
        }
    }
}

/// A source at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceSample {
    /// All that the collector has of it, with the length of each record.
    pub received: Bytes,
    /// Its draws.
    pub draws: u64,
}

/// All sources at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedSample {
    /// The time since the start of the run.
    pub at: Span,
    /// The sources.
    pub sources: Vec<SourceSample>,
}

impl FeedSample {
    /// Whether each source got what it demands from an earlier sample to this one.
    pub fn served_since<'a>(
        &'a self,
        before: &'a FeedSample,
        demands: &'a [Rate],
    ) -> impl Iterator<Item = bool> + 'a {
        self.rates_since(before)
            .zip(demands)
            .map(|(rate, demand)| rate.as_f64() >= (1.0 - TOLERANCE) * demand.as_f64())
    }

    /// The rate of each source from an earlier sample to this one.
    pub fn rates_since<'a>(&'a self, before: &'a FeedSample) -> impl Iterator<Item = Rate> + 'a {
        let span = self.at - before.at;
        let pairs = self.sources.iter().zip(&before.sources);
        pairs.map(move |(now, then)| Bytes(now.received.0.saturating_sub(then.received.0)) / span)
    }
}

/// The time of the sample from which on all sources have been served, up to the last sample; `None`
/// if they have not. Only samples from the index `from` on count.
#[must_use]
pub(crate) fn served_from(samples: &[FeedSample], from: usize, demands: &[Rate]) -> Option<Span> {
    let now = samples.len().checked_sub(1)?;
    let begin = now.checked_sub(LASTING).filter(|begin| *begin >= from)?;
    let before = &samples[begin];
    samples[now].served_since(before, demands).all(|is| is).then_some(before.at)
}

/// What the driver of a run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedAction {
    /// Starts a source.
    Start(usize),
    /// Ends a source.
    Stop(usize),
    /// Kills a relay.
    Kill(usize),
    /// Gives a relay this capacity.
    SetCapacity(usize, Rate),
    /// Ends the run.
    End,
}

/// The results of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FeedMeasured {
    /// All samples.
    pub samples: Vec<FeedSample>,
    /// The time from the start until all sources were served; `None` if that was never so.
    pub first: Option<Span>,
    /// The draws of each source until then.
    pub draws: Vec<u64>,
    /// The events that happened, each with the time from then until all sources were served again;
    /// `None` if that was given up.
    pub events: Vec<(Happening, Option<Span>)>,
    /// The number of runs, including those that did not count.
    pub attempts: u32,
}

/// A run as a core.
#[derive(Clone, Debug)]
pub struct FeedScript<'a> {
    trial: &'a FeedTrial,
    phase: ScriptPhase,
    /// The events that have begun.
    begun: usize,
    /// The first sample that counts.
    from: usize,
    measured: FeedMeasured,
    actions: VecDeque<FeedAction>,
}

#[derive(Clone, Copy, Debug)]
enum ScriptPhase {
    /// The sources have begun.
    First,
    /// All are served, until this time.
    Rest(Span),
    /// A source is away, until this time.
    Away(usize, Span),
    /// The last event was at this time.
    After(Span),
    /// It was given up: until this time all may be served all the same.
    GivenUp(Span),
    Over,
}

impl<'a> FeedScript<'a> {
    /// A run that begins with its first sample.
    #[must_use]
    pub fn new(trial: &'a FeedTrial) -> FeedScript<'a> {
        FeedScript {
            trial,
            phase: ScriptPhase::First,
            begun: 0,
            from: 0,
            measured: FeedMeasured { attempts: 1, ..FeedMeasured::default() },
            actions: (0..trial.demands.len()).map(FeedAction::Start).collect(),
        }
    }

    /// A sample was taken, of all sources.
    pub fn handle_sample(&mut self, sample: FeedSample) {
        let now = sample.at;
        self.measured.samples.push(sample);
        let served = served_from(&self.measured.samples, self.from, &self.trial.demands);
        match self.phase {
            ScriptPhase::First => match served {
                Some(at) => {
                    let draws = |sample: &FeedSample| {
                        sample.sources.iter().map(|source| source.draws).collect()
                    };
                    let is_it = |sample: &&FeedSample| sample.at == at;
                    self.measured.draws =
                        self.measured.samples.iter().find(is_it).map(draws).unwrap_or_default();
                    self.measured.first = Some(at);
                    self.phase = ScriptPhase::Rest(now + REST);
                }
                None if now >= self.trial.patience => self.end(),
                None => {}
            },
            ScriptPhase::Rest(until) if now >= until => self.begin_event(now),
            ScriptPhase::Away(source, until) if now >= until => {
                self.actions.push_back(FeedAction::Start(source));
                self.begin_wait(now);
            }
            ScriptPhase::After(since) => match served {
                Some(at) => {
                    self.end_event(Some(at - since));
                    self.phase = ScriptPhase::Rest(now + REST);
                }
                None if now >= since + self.trial.within => {
                    self.end_event(None);
                    self.from = self.measured.samples.len() - 1;
                    self.phase = ScriptPhase::GivenUp(now + self.trial.within);
                }
                None => {}
            },
            ScriptPhase::GivenUp(until) => match served {
                Some(_) => self.phase = ScriptPhase::Rest(now + REST),
                None if now >= until => self.end(),
                None => {}
            },
            ScriptPhase::Rest(_) | ScriptPhase::Away(..) | ScriptPhase::Over => {}
        }
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<FeedAction> {
        self.actions.pop_front()
    }

    /// The results.
    #[must_use]
    pub fn into_measured(self) -> FeedMeasured {
        self.measured
    }

    fn begin_event(&mut self, now: Span) {
        let Some(&event) = self.trial.events.get(self.begun) else { return self.end() };
        self.begun += 1;
        match event {
            Happening::Killed(relay) => self.actions.push_back(FeedAction::Kill(relay)),
            Happening::Halved(relay) => {
                let half = Rate::from_bits(self.trial.capacities[relay].as_bits() / 2);
                self.actions.push_back(FeedAction::SetCapacity(relay, half));
            }
            Happening::Added(source) => {
                self.actions.push_back(FeedAction::Stop(source));
                self.phase = ScriptPhase::Away(source, now + AWAY);
                return;
            }
        }
        self.begin_wait(now);
    }

    fn begin_wait(&mut self, now: Span) {
        self.from = self.measured.samples.len() - 1;
        self.phase = ScriptPhase::After(now);
    }

    /// The last event is over, and what it changed is as it was, but for a dead relay.
    fn end_event(&mut self, took: Option<Span>) {
        let event = self.trial.events[self.begun - 1];
        self.measured.events.push((event, took));
        if let Happening::Halved(relay) = event {
            let all = self.trial.capacities[relay];
            self.actions.push_back(FeedAction::SetCapacity(relay, all));
        }
    }

    fn end(&mut self) {
        self.phase = ScriptPhase::Over;
        self.actions.push_back(FeedAction::End);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEMAND: Rate = Rate::kbit(8);
    /// What a source demands in a step.
    const EACH: u64 = 200;

    fn trial(events: &[Happening]) -> FeedTrial {
        FeedTrial {
            demands: vec![DEMAND; 2],
            capacities: vec![Rate::mbit(1); 3],
            paths: 2,
            choice: Choice::Uniform,
            reselect: Reselect::Paths,
            rtt: Span::from_millis(20),
            patience: Span::from_secs(60),
            events: events.to_vec(),
            within: Span::from_secs(20),
        }
    }

    /// A script whose sources get what `rate` says, in bytes a step, until it ends or for so many
    /// seconds. Returns what it did, and when, and what it measured.
    fn play(
        trial: &FeedTrial,
        rate: impl Fn(usize, Span, &[(Span, FeedAction)]) -> u64,
    ) -> (Vec<(Span, FeedAction)>, FeedMeasured) {
        let mut script = FeedScript::new(trial);
        let mut done: Vec<(Span, FeedAction)> = Vec::new();
        let mut received = vec![0; trial.demands.len()];
        for step in 0..2_000_u64 {
            let at = STEP * step;
            for (source, received) in received.iter_mut().enumerate() {
                *received += rate(source, at, &done);
            }
            let sources = received
                .iter()
                .map(|octets| SourceSample { received: Bytes(*octets), draws: 1 + step / 60 })
                .collect();
            script.handle_sample(FeedSample { at, sources });
            while let Some(action) = script.poll_action() {
                done.push((at, action));
            }
            if done.last().is_some_and(|(_, action)| *action == FeedAction::End) {
                break;
            }
        }
        (done, script.into_measured())
    }

    fn is_done(done: &[(Span, FeedAction)], action: FeedAction) -> bool {
        done.iter().any(|(_, one)| *one == action)
    }

    #[test]
    fn all_are_served_from_the_moment_from_which_each_gets_97_percent_for_20_steps() {
        // The second one gets 96 % until 30 s, and then 97.
        let at_30 = Span::from_secs(30);
        let second = |at: Span| if at <= at_30 { 192 } else { 194 };
        let (done, measured) =
            play(&trial(&[]), |source, at, _| if source == 0 { EACH } else { second(at) });
        assert_eq!(measured.first, Some(at_30));
        assert_eq!(measured.draws, [3, 3]);
        let starts = [FeedAction::Start(0), FeedAction::Start(1)].map(|one| (Span::ZERO, one));
        assert_eq!(done[..2], starts);
        // 20 steps after that it is known, and five seconds later the run is over.
        assert_eq!(done[2..], [(Span::from_secs(39), FeedAction::End)]);
    }

    #[test]
    fn a_run_whose_sources_are_never_served_ends() {
        let (done, measured) =
            play(
                &trial(&[Happening::Killed(1)]),
                |source, _, _| if source == 0 { EACH } else { 193 },
            );
        assert_eq!((measured.first, measured.events.len()), (None, 0));
        assert_eq!(done.last(), Some(&(Span::from_secs(60), FeedAction::End)));
    }

    #[test]
    fn events_come_one_after_the_other_and_are_timed() {
        let events = [Happening::Halved(1), Happening::Added(0), Happening::Killed(2)];
        let trial = trial(&events);
        let half = FeedAction::SetCapacity(1, Rate::kbit(500));
        let (done, measured) = play(&trial, |source, at, done| {
            // For three seconds after each event one source has nothing.
            let last = done.iter().rfind(|(_, one)| {
                matches!(one, FeedAction::Kill(_) | FeedAction::Start(_)) || *one == half
            });
            let is_hit =
                last.is_some_and(|(then, _)| *then > Span::ZERO && at <= *then + STEP * 15);
            if source == 0 && is_hit { 0 } else { EACH }
        });
        let took = Some(Span::from_secs(3));
        assert_eq!(measured.events, events.map(|event| (event, took)));
        let order: Vec<FeedAction> = done[2..].iter().map(|(_, action)| *action).collect();
        let whole = FeedAction::SetCapacity(1, Rate::mbit(1));
        let (stop, start) = (FeedAction::Stop(0), FeedAction::Start(0));
        assert_eq!(order, [half, whole, stop, start, FeedAction::Kill(2), FeedAction::End]);
        let at = |action| done.iter().rfind(|(_, one)| *one == action).map(|(at, _)| *at);
        assert_eq!(at(start).zip(at(stop)).map(|(start, stop)| start - stop), Some(AWAY));
    }

    #[test]
    fn an_event_that_is_given_up_has_no_time_and_the_next_one_waits() {
        let trial = trial(&[Happening::Halved(0), Happening::Killed(2)]);
        // Half of the relay is not enough for one of them.
        let (half, all) = (Rate::kbit(500), Rate::mbit(1));
        let (done, measured) = play(&trial, |source, _, done| {
            let is_half = is_done(done, FeedAction::SetCapacity(0, half))
                && !is_done(done, FeedAction::SetCapacity(0, all));
            if source == 1 && is_half { 100 } else { EACH }
        });
        let [(_, halved), (_, killed)] = measured.events[..] else { panic!("{measured:?}") };
        assert_eq!((halved, killed), (None, Some(Span::ZERO)));
        assert!(is_done(&done, FeedAction::Kill(2)));
        // One that never recovers has no further event.
        let (done, measured) = play(&trial, |source, _, done| {
            if source == 1 && is_done(done, FeedAction::SetCapacity(0, half)) { 0 } else { EACH }
        });
        assert_eq!(measured.events, [(Happening::Halved(0), None)]);
        assert!(!is_done(&done, FeedAction::Kill(2)) && is_done(&done, FeedAction::End));
    }
}
