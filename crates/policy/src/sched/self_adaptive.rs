//! The paper's own algorithm: tasks that are resized whenever one of them is nearly done.

use alloc::vec::Vec;

use units::{Bytes, PathId, Rate, Span, Time};

use super::start::StartPhase;
use super::{BlockScheduler, Mobility, Options, PathView, Plan, View, scale};

/// SAR (paper, section 3.2): after the start phase every path has a task in proportion to its
/// bandwidth (eq. 2). As soon as a path has carried β of its task, bandwidths are measured (eq. 3)
/// and, unless all would finish together (eq. 6), the remaining bytes are divided anew (eq. 7).
///
/// It differs from the paper in five points: a satisfied eq. 6 skips one adjustment instead of
/// ending them ([`Options::latch`] restores the paper's rule); adjustments are spaced in time; they
/// end when little is left; the loss of a path causes one at once; and a path without bandwidth
/// keeps one block of its task, so that it can return.
#[derive(Clone, Debug)]
pub struct SelfAdaptive {
    options: Options,
    mobility: Mobility,
    start: StartPhase,
    begun: Option<Time>,
    phase: Phase,
}

#[derive(Clone, Debug)]
enum Phase {
    Start,
    Adjust {
        since: Time,
        tasks: Vec<Task>,
    },
    /// Adjustments have ended (with [`Options::latch`] only).
    Latched,
}

/// A path's task in the current round.
#[derive(Clone, Copy, Debug)]
struct Task {
    id: PathId,
    /// `TSK_i(k)`.
    size: Bytes,
    /// Bytes that the path had carried when the round began.
    acked: Bytes,
    /// The smoothed bandwidth of former rounds.
    rate: Option<Rate>,
}

impl SelfAdaptive {
    /// A scheduler with these options; `blocks` and `least_block` belong to algorithm B and are
    /// unused.
    #[must_use]
    pub fn new(options: Options) -> SelfAdaptive {
        let start = StartPhase::new(&options);
        let mobility = Mobility::Recallable;
        SelfAdaptive { options, mobility, start, begun: None, phase: Phase::Start }
    }

    /// The same without the transfer core's help: only adjustments move data, as in the paper.
    #[must_use]
    pub fn by_plans(options: Options) -> SelfAdaptive {
        SelfAdaptive { mobility: Mobility::Planned, ..SelfAdaptive::new(options) }
    }

    /// Divides all remaining bytes in proportion to the rates (eq. 2 and eq. 7) and begins the next
    /// round.
    fn divide(&mut self, now: Time, view: &View<'_>, rates: &[Rate]) -> Plan {
        let sum: Rate = rates.iter().copied().sum();
        let rest = view.pool + view.paths.iter().map(|path| path.left).sum();
        let probe = self.start.block(view);
        let mut plan = Plan::default();
        let mut tasks = Vec::with_capacity(view.paths.len());
        for (path, rate) in view.paths.iter().zip(rates) {
            let size = if *rate == Rate::ZERO {
                path.left.min(probe)
            } else {
                scale(rest, rate.as_f64() / sum.as_f64())
            };
            plan.tasks.push((path.id, size));
            tasks.push(Task { id: path.id, size, acked: path.acked, rate: Some(*rate) });
        }
        self.phase = Phase::Adjust { since: now, tasks };
        plan
    }

    /// Begins a round in which every path keeps its task.
    fn keep(&mut self, now: Time, view: &View<'_>, rates: &[Rate]) {
        let tasks = view.paths.iter().zip(rates);
        let tasks = tasks.map(|(path, rate)| Task {
            id: path.id,
            size: path.left,
            acked: path.acked,
            rate: Some(*rate),
        });
        self.phase = Phase::Adjust { since: now, tasks: tasks.collect() };
    }

    /// The rate of eq. 3, averaged over rounds if configured.
    fn rate(&self, elapsed: Span, path: &PathView, task: Option<&Task>) -> Rate {
        let Some(task) = task else { return path.rate };
        let measured = (path.acked - task.acked) / elapsed;
        match task.rate {
            Some(before) if self.options.smoothing > Span::ZERO && before > Rate::ZERO => {
                let weight =
                    elapsed.as_secs_f64() / (elapsed + self.options.smoothing).as_secs_f64();
                Rate::from_bits_f64(measured.as_f64() * weight + before.as_f64() * (1.0 - weight))
            }
            _ => measured,
        }
    }
}

impl BlockScheduler for SelfAdaptive {
    fn name(&self) -> &'static str {
        match (self.mobility, self.options.latch) {
            (Mobility::Planned, true) => "sar-latch",
            (Mobility::Planned, false) => "sar",
            _ => "self-adaptive",
        }
    }

    fn mobility(&self) -> Mobility {
        self.mobility
    }

    fn handle_idle(&mut self, _now: Time, view: &View<'_>, _path: PathId) -> Bytes {
        self.start.block(view)
    }

    fn handle_progress(&mut self, now: Time, view: &View<'_>) -> Option<Plan> {
        let begun = *self.begun.get_or_insert(now);
        let (since, tasks) = match &self.phase {
            Phase::Latched => return None,
            Phase::Start => {
                if !self.start.is_over(now, view) {
                    return None;
                }
                let rates: Vec<Rate> =
                    view.paths.iter().map(|path| self.start.rate(now, path)).collect();
                return Some(self.divide(now, view, &rates));
            }
            Phase::Adjust { since, tasks } => (*since, tasks),
        };
        let task_of = |path: &PathView| tasks.iter().find(|task| task.id == path.id);
        let lost = tasks.iter().any(|task| view.path(task.id).is_none());
        let done = |path: &PathView| {
            let carried = |task: &Task| path.acked - task.acked;
            task_of(path).is_some_and(|task| {
                carried(task) > Bytes::ZERO
                    && carried(task) >= scale(task.size, self.options.trigger)
            })
        };
        let elapsed = now - since;
        let left: Bytes = view.pool + view.paths.iter().map(|path| path.left).sum();
        let paths = u64::try_from(view.paths.len()).unwrap_or(u64::MAX);
        if left < Bytes(self.options.floor.0.saturating_mul(paths))
            || !(lost || (elapsed >= self.options.spacing && view.paths.iter().any(done)))
        {
            return None;
        }
        let rates: Vec<Rate> = if elapsed >= self.options.spacing {
            view.paths.iter().map(|path| self.rate(elapsed, path, task_of(path))).collect()
        } else {
            view.paths.iter().map(|path| path.rate).collect()
        };
        if rates.iter().all(|rate| *rate == Rate::ZERO) {
            return None;
        }
        if !lost && view.pool == Bytes::ZERO && self.finish_together(now - begun, view, &rates) {
            if self.options.latch {
                self.phase = Phase::Latched;
            } else {
                self.keep(now, view, &rates);
            }
            return None;
        }
        Some(self.divide(now, view, &rates))
    }
}

impl SelfAdaptive {
    /// Whether all paths would finish together (eq. 5 and eq. 6).
    fn finish_together(&self, elapsed: Span, view: &View<'_>, rates: &[Rate]) -> bool {
        let times = view.paths.iter().zip(rates).map(|(path, rate)| path.left / *rate);
        let (least, most) = times.fold((None::<Span>, Span::ZERO), |(least, most), time| {
            (Some(least.map_or(time, |least| least.min(time))), most.max(time))
        });
        let by_elapsed = Span::from_secs_f64(elapsed.as_secs_f64() * self.options.tolerance);
        most - least.unwrap_or(most) <= by_elapsed.min(self.options.tolerance_span)
    }
}
