//! The rate control of a source, as its connections share it: the paths and the rates that an
//! [`overlay::Source`] wants.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard};

use events::FeedDemand;
use net::Clock;
use overlay::ReportError;
use peer::PathClass;
use peer::dial::{Keeper, Plan, PlanKind, Terms, Via};
use tokio::sync::Notify;
use units::{Bytes, PathId, Rate, Seed, Time};
use wire::feed::{ArrivalReport, Watch};

use super::SourceShared;
use super::driven::{CandidateWay, ControlOptions, Driven, PathState, Turn};

/// The rate control of a source towards one collector.
pub(super) struct Control {
    clock: Clock,
    driven: Mutex<Driven>,
    /// Rings when paths are to be opened or closed.
    pub(super) changed: Notify,
}

/// A connection that is a path, until it is dropped.
pub(super) struct Attached {
    control: Arc<Control>,
    shared: Arc<SourceShared>,
    pub(super) path: PathId,
}

impl Control {
    /// `is_produced`: whether data comes as it is produced, and not at any time.
    pub(super) fn new(
        options: ControlOptions,
        is_produced: bool,
        seed: Seed,
        clock: Clock,
    ) -> Arc<Control> {
        let driven = Driven::new(options, is_produced, seed, clock.now());
        Arc::new(Control { clock, driven: Mutex::new(driven), changed: Notify::new() })
    }

    /// Takes in the plans of paths; those that are a backup are for when there is no other.
    pub(super) fn follow_plans(&self, shared: &SourceShared, terms: &Terms, keeper: &Keeper) {
        let plans = keeper.plans();
        let is_candidate = |plan: &&Arc<Plan>| {
            plan.kind == PlanKind::Tcp
                && plan.guessed_beside.is_none()
                && plan.class != PathClass::Backup
        };
        let way = |plan: &Arc<Plan>| CandidateWay {
            plan: plan.id,
            name: plan.name.clone(),
            relay: match plan.via {
                Via::Direct => None,
                Via::Relay(relay) => tag(terms.options.relays[relay].key),
            },
        };
        let candidates = plans.iter().filter(is_candidate).map(way).collect();
        self.change(shared, |driven, now| driven.handle_candidates(now, candidates));
    }

    /// It is time to look at what waits.
    pub(super) fn tick(&self, shared: &SourceShared) {
        self.change(shared, Driven::handle_tick);
    }

    /// The plans over which connections are to be opened, and those that are to be closed.
    pub(super) fn poll_dialing(&self) -> (Vec<PathId>, Vec<PathId>) {
        self.driven().poll_dialing()
    }

    /// A connection over a plan is there. `None`, if none is wanted.
    pub(super) fn attach(
        self: &Arc<Control>,
        shared: &Arc<SourceShared>,
        plan: PathId,
    ) -> Option<Attached> {
        let path = self.driven().attach(self.clock.now(), plan);
        if path.is_none() {
            self.handle_ended(plan);
        }
        let (control, shared) = (Arc::clone(self), Arc::clone(shared));
        path.map(|path| Attached { control, shared, path })
    }

    /// Nothing connects over a plan any more.
    pub(super) fn handle_ended(&self, plan: PathId) {
        self.driven().handle_ended(plan);
        self.changed.notify_one();
    }

    /// Whether a path may send.
    pub(super) fn turn(&self, shared: &SourceShared, path: PathId, state: PathState) -> Turn {
        self.with(shared, |driven, now| driven.turn(now, path, state))
    }

    /// So much is written to a path.
    pub(super) fn note_written(&self, shared: &SourceShared, path: PathId, octets: Bytes) {
        let produced = shared.totals.produced();
        self.driven().handle_written(self.clock.now(), path, octets, produced);
    }

    /// A path could send, and nothing is left.
    pub(super) fn note_lack(&self, shared: &SourceShared) {
        let produced = shared.totals.produced();
        self.driven().handle_lack(self.clock.now(), produced);
    }

    /// The collector says what has arrived.
    ///
    /// # Errors
    /// [`ReportError`], if that cannot be.
    pub(super) fn handle_report(
        &self,
        shared: &SourceShared,
        report: &ArrivalReport,
    ) -> Result<(), ReportError> {
        let amounts = (shared.totals.produced(), shared.channels.unsent());
        self.change(shared, |driven, now| driven.handle_report(now, report, amounts))
    }

    /// What the connection of a path is to tell the collector, and the rate at which its socket is
    /// paced; `None`, if the path is over.
    pub(super) fn terms(&self, path: PathId) -> Option<(Watch, Option<Rate>)> {
        let driven = self.driven();
        driven.watch(path).map(|watch| (watch, driven.pacing(path)))
    }

    /// How the demand is met, for people; `None` before it begins.
    pub(super) fn show(&self) -> Option<FeedDemand> {
        self.driven().show(self.clock.now())
    }

    /// Changes something that connections look at.
    fn change<R>(&self, shared: &SourceShared, change: impl FnOnce(&mut Driven, Time) -> R) -> R {
        let result = self.with(shared, change);
        self.changed.notify_one();
        shared.channels.wake();
        result
    }

    fn with<R>(&self, shared: &SourceShared, act: impl FnOnce(&mut Driven, Time) -> R) -> R {
        let (result, said) = {
            let mut driven = self.driven();
            (act(&mut driven, self.clock.now()), driven.take_said())
        };
        for text in said {
            shared.events.notice(text);
        }
        result
    }

    fn driven(&self) -> MutexGuard<'_, Driven> {
        self.driven.lock().expect("no panic while held")
    }
}

impl Attached {
    /// The control that the path is of.
    pub(super) fn control(&self) -> &Control {
        &self.control
    }

    /// Whether the source uses it no more.
    pub(super) fn is_left(&self) -> bool {
        self.control.terms(self.path).is_none()
    }

    /// The connection has failed.
    pub(super) fn handle_lost(&self, why: &str) {
        self.control.change(&self.shared, |driven, now| driven.handle_lost(now, self.path, why));
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.handle_lost("its connection was closed");
    }
}

/// A relay as all sources call it.
fn tag(key: peer::Fingerprint) -> Option<NonZeroU32> {
    let first = key.as_bytes().first_chunk().expect("it has 32 octets");
    NonZeroU32::new(u32::from_be_bytes(*first))
}
