//! A run of live sources: what each of them has, and gets, over time.

use netsim::{Digest, TopologyError, Totals};
use units::{Bytes, Rate, Seed, Span, Time};

use super::{Feeds, Network};

/// A source at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Course {
    /// All that it has produced.
    pub produced: Bytes,
    /// All that has been received of it, as it knows.
    pub received: Bytes,
    /// What it has produced and not written.
    pub backlog: Bytes,
    /// Its draws.
    pub draws: u64,
    /// The last judgement of its present draw.
    pub satisfied: Option<bool>,
}

/// The results of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct FeedOutcome {
    /// The time between two samples.
    pub step: Span,
    /// The sources at each sample, the first one at `step`.
    pub samples: Vec<Vec<Course>>,
    /// A hash over all events; the same on every machine.
    pub digest: Digest,
    /// Counts of packets and events.
    pub totals: Totals,
}

impl FeedOutcome {
    /// The time after `from` at which all of these sources are satisfied with their draws.
    #[must_use]
    pub fn satisfied_after(&self, from: Span, sources: &[usize]) -> Option<Span> {
        let first = from.as_nanos() / self.step.as_nanos();
        let are = |sample: &&Vec<Course>| {
            sources.iter().all(|&source| sample[source].satisfied == Some(true))
        };
        let samples = (1..).map(|number: u64| self.step * number).zip(&self.samples);
        samples
            .skip(usize::try_from(first).unwrap_or(usize::MAX))
            .find(|(_, sample)| are(sample))
            .map(|(at, _)| at - from)
    }

    /// What a source received between two times, as a rate.
    #[must_use]
    pub fn rate(&self, source: usize, from: Span, to: Span) -> Rate {
        self.over(from, to, |sample| sample[source].received)
    }

    /// What a source produced between two times, as a rate.
    #[must_use]
    pub fn produced(&self, source: usize, from: Span, to: Span) -> Rate {
        self.over(from, to, |sample| sample[source].produced)
    }

    fn over(&self, from: Span, to: Span, of: impl Fn(&[Course]) -> Bytes) -> Rate {
        let at = |span: Span| {
            let number = usize::try_from(span.as_nanos() / self.step.as_nanos()).unwrap_or(0);
            let sample = number.checked_sub(1).and_then(|index| self.samples.get(index));
            sample.map_or(Bytes::ZERO, |sample| of(sample))
        };
        (at(to) - at(from)) / (to - from)
    }
}

/// Runs live sources, and looks at them every `step`. The run ends early when `ends` says so of a
/// sample.
///
/// # Errors
///
/// If there are more sources and relays than a simulation holds.
pub fn follow(
    feeds: &Feeds,
    seed: Seed,
    step: Span,
    mut ends: impl FnMut(Span, &[Course]) -> bool,
) -> Result<FeedOutcome, TopologyError> {
    let mut network = Network::feeds(feeds, seed)?;
    let mut samples = Vec::new();
    let mut now = Span::ZERO;
    while now < feeds.duration {
        now += step;
        network.sim.run_until(Time::ZERO + now);
        let look = |source: &super::Source| Course {
            produced: source.produced(),
            received: source.core().received(),
            backlog: source.core().backlog(),
            draws: source.core().draws(),
            satisfied: source.core().is_satisfied(),
        };
        let sample: Vec<Course> = network.sources().map(look).collect();
        let is_end = ends(now, &sample);
        samples.push(sample);
        if is_end {
            break;
        }
    }
    Ok(FeedOutcome { step, samples, digest: network.sim.digest(), totals: network.sim.totals() })
}

/// The draws until all sources are satisfied at once, if their draws are of one length and begin
/// together; `None` if the run ends before.
///
/// # Errors
///
/// As [`follow`].
pub fn draws(feeds: &Feeds, seed: Seed) -> Result<Option<u64>, TopologyError> {
    let Some(core) = feeds.sources.first().map(|feed| feed.core) else { return Ok(None) };
    let (step, draw) = (core.interval, core.interval * core.judged);
    let are_satisfied =
        |sample: &[Course]| sample.iter().all(|course| course.satisfied == Some(true));
    let outcome = follow(feeds, seed, step, |_, sample| are_satisfied(sample))?;
    let all: Vec<usize> = (0..feeds.sources.len()).collect();
    // Draws begin within the first interval, and end at a report.
    let number = |at: Span| ((at - step).as_nanos() / draw.as_nanos()).max(1);
    Ok(outcome.satisfied_after(Span::ZERO, &all).map(number))
}
