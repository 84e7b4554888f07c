//! The runs of a file: real ones, and those beside them.

use overlay::Reselect;
use units::{Seed, Span};

use super::super::settings::{Case, Settings};
use crate::cache::RunCache;
use crate::error::StudyError;
use crate::feed_trial::{FeedTrial, Happening};
use crate::figure::{Context, Figure, Lab};
use crate::parallel::parallel;
use crate::testbed::Estimate;
use crate::wang2007::LIVE;

/// The number of real runs of each case, unless the context has another one.
const RUNS: u32 = 1;
/// The round trip of the networks, and of the simulator's live sources.
pub(super) const RTT: Span = Span::from_millis(20);
/// Above this supply recovery is a matter of a draw or two.
const AMPLE: f64 = 1.4;
/// Keys, namespaces and programs of a run, in seconds.
const ASIDE: f64 = 10.0;

/// The runs of a file.
#[derive(Clone, Debug)]
pub(super) struct LivePlan {
    pub(super) settings: Settings,
    /// The number of real runs of each case.
    pub(super) runs: u32,
}

impl LivePlan {
    /// Reads the file of the figure.
    pub(super) fn read(lab: &Lab<'_>) -> Result<LivePlan, StudyError> {
        let (file, text) = &lab.files[0];
        let mut settings = Settings::read(text, file)?;
        if settings.cases.iter().any(|case| case.search.setting.relays < 4) {
            let missing = "it has fewer than four relays".to_owned();
            return Err(StudyError::Lacks { file: file.clone(), missing });
        }
        if lab.context.experiment.quick {
            settings.cases.truncate(1);
        }
        Ok(LivePlan { settings, runs: lab.context.seeds.unwrap_or(RUNS) })
    }

    /// The real runs, round by round: changes on the machine then affect all cases alike.
    pub(super) fn trials(&self) -> Vec<FeedTrial> {
        let round: Vec<FeedTrial> =
            self.settings.cases.iter().map(|case| trial(case, self.settings.seed)).collect();
        (0..self.runs).flat_map(|_| round.iter().cloned()).collect()
    }

    /// Of the results of real runs, in their order, those of a case.
    pub(super) fn of_case<'a, M>(&self, all: &'a [M], case: usize) -> Vec<&'a M> {
        all.iter().skip(case).step_by(self.settings.cases.len()).collect()
    }

    /// The results of `run` for every case and every seed of the file, case by case.
    pub(super) fn beside<R: Send>(
        &self,
        lab: &Lab<'_>,
        run: impl Fn(&Case, Seed) -> R + Sync,
    ) -> Vec<Vec<R>> {
        let seeds = self.settings.runs as usize;
        let cases = &self.settings.cases;
        let all = parallel(lab.context.jobs, cases.len() * seeds, lab.progress, |index| {
            let seed = self.settings.seed + (index % seeds) as u64;
            run(&cases[index / seeds], Seed(seed))
        });
        let mut all = all.into_iter();
        cases.iter().map(|_| all.by_ref().take(seeds).collect()).collect()
    }
}

/// The events of a case: with k-reselection one relay carries half, a source comes, and a relay
/// dies.
pub(super) fn happenings(case: &Case) -> Vec<Happening> {
    let last = case.search.setting.sources - 1;
    match case.search.rule {
        Reselect::Paths => vec![Happening::Halved(1), Happening::Added(last), Happening::Killed(3)],
        Reselect::Least | Reselect::Everything => Vec::new(),
    }
}

/// The time within which all sources are to be served again after an event.
pub(super) fn within(case: &Case) -> Span {
    Span::from_secs(if is_ample(case) { 60 } else { 150 })
}

/// The time after which a run is given up whose sources were never all served.
pub(super) fn patience(case: &Case) -> Span {
    Span::from_secs(if is_ample(case) { 120 } else { 240 })
}

fn is_ample(case: &Case) -> bool {
    case.search.setting.supply >= AMPLE
}

fn trial(case: &Case, seed: u64) -> FeedTrial {
    let setting = &case.search.setting;
    let instance = setting.instance(Seed(seed));
    FeedTrial {
        demands: instance.demands,
        capacities: instance.capacities,
        paths: setting.paths,
        choice: setting.choice,
        reselect: case.search.rule,
        rtt: RTT,
        patience: patience(case),
        events: happenings(case),
        within: within(case),
    }
}

/// What real runs took in earlier measurements. The figures share them.
pub(in crate::wang2007) fn estimate(
    context: &Context,
    figures: &[&'static Figure],
) -> Result<Estimate, StudyError> {
    let Some(figure) = figures.first() else { return Ok(Estimate::default()) };
    let cache = RunCache::default();
    let plan = LivePlan::read(&Lab::new(context, &LIVE, figure, &|_, _| {}, &cache)?)?;
    let seconds = |case: &Case| {
        let (first, event) = if is_ample(case) { (25.0, 20.0) } else { (90.0, 55.0) };
        let events: f64 = happenings(case).iter().map(|_| event).sum();
        ASIDE + first + events
    };
    let round: f64 = plan.settings.cases.iter().map(seconds).sum();
    Ok(Estimate {
        runs: plan.settings.cases.len() * plan.runs as usize,
        seconds: round * f64::from(plan.runs),
    })
}

#[cfg(test)]
mod tests {
    use units::Rate;

    use super::*;

    fn plan() -> LivePlan {
        let text = LIVE.figures[0].files[0].text;
        LivePlan { settings: Settings::read(text, "sources.toml").unwrap(), runs: 2 }
    }

    #[test]
    fn cases_with_k_reselection_have_events() {
        let plan = plan();
        let trials = plan.trials();
        assert_eq!(trials.len(), 8);
        assert_eq!(trials[..4], trials[4..]);
        let wanted = [
            (Reselect::Paths, 3),
            (Reselect::Least, 0),
            (Reselect::Paths, 3),
            (Reselect::Least, 0),
        ];
        for (trial, (rule, events)) in trials.iter().zip(wanted) {
            assert_eq!((trial.reselect, trial.events.len()), (rule, events));
            assert_eq!((trial.demands.len(), trial.paths), (8, 2));
        }
        let total = |trial: &FeedTrial| trial.capacities.iter().copied().sum::<Rate>().as_f64();
        assert!((total(&trials[0]) - 64e6).abs() < 10.0 && (total(&trials[2]) - 48e6).abs() < 10.0);
        assert_eq!(trials[2].events[1], Happening::Added(7));
        assert_eq!(trials[2].within, Span::from_secs(150));
    }

    #[test]
    fn runs_of_a_case_are_found_among_all() {
        let plan = plan();
        let all: Vec<usize> = (0..8).collect();
        assert_eq!(plan.of_case(&all, 1), [&1, &5]);
    }
}
