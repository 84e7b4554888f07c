//! Which of many paths a transfer uses: the driver of [`overlay::Trials`].

use std::sync::Arc;

use events::Progress;
use overlay::{Delivered, TrialConfig, Trials};
use peer::PathClass;
use peer::dial::{Plan, PlanKind};
use units::{Seed, Time};

/// The paths of a transfer that uses some of them.
pub(super) struct Picking {
    trials: Trials,
    /// The plans that are candidates, in the order in which they came.
    candidates: Vec<Arc<Plan>>,
}

/// A change of the paths.
pub(super) struct Picked {
    pub(super) open: Vec<Arc<Plan>>,
    pub(super) close: Vec<Arc<Plan>>,
    /// What happened, for people.
    pub(super) text: String,
}

impl Picking {
    pub(super) fn new(paths: usize, seed: Seed) -> Picking {
        let trials = Trials::new(TrialConfig::files(paths), seed);
        Picking { trials, candidates: Vec::new() }
    }

    /// Takes in further plans, and what paths have delivered. Returns what is to change.
    pub(super) fn look(
        &mut self,
        now: Time,
        plans: &[Arc<Plan>],
        progress: &Progress,
    ) -> Vec<Picked> {
        let is_candidate = |plan: &&Arc<Plan>| {
            plan.kind == PlanKind::Tcp
                && plan.guessed_beside.is_none()
                && plan.class != PathClass::Backup
        };
        let further = plans.iter().filter(is_candidate).skip(self.candidates.len());
        self.candidates.extend(further.cloned());
        self.trials.handle_candidates(now, self.candidates.len());
        let delivered: Vec<Delivered> =
            self.trials.used().map(|at| self.delivered(at, progress)).collect();
        self.trials.handle_delivered(now, &delivered);
        let mut picked = Vec::new();
        while let Some(exchange) = self.trials.poll_exchange() {
            let plans = |of: &[usize]| -> Vec<Arc<Plan>> {
                of.iter().map(|at| Arc::clone(&self.candidates[*at])).collect()
            };
            let text = self.trials.text(&exchange, |at| &self.candidates[at].name);
            let (open, close) = (plans(&exchange.open), plans(&exchange.close));
            picked.push(Picked { open, close, text });
        }
        picked
    }

    fn delivered(&self, candidate: usize, progress: &Progress) -> Delivered {
        let plan = self.candidates[candidate].id;
        let path = progress.paths.iter().find(|path| path.path == plan);
        let open = path.filter(|path| path.connections.is_some_and(|count| count > 0));
        Delivered { candidate, bytes: open.map(|path| path.done) }
    }
}
