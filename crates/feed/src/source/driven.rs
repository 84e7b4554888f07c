//! The driver of an [`overlay::Source`]: which paths there are, what each may send, and why they
//! change. Without sockets; `control.rs` shares it between the connections.

mod path;

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use events::{FeedDemand, FeedPath};
use overlay::{
    Bucket, Choice, Demand, Output, Pace, PathReport, ReportError, Reselect, Source, SourceConfig,
};
use units::{Bytes, PathId, Rate, Seed, Span, Time};
use wire::feed::{ArrivalReport, Watch};

use path::DrivenPath;
pub(super) use path::PathState;

/// Octets of records in a packet.
const PACKET: Bytes = Bytes(1_448);
/// The most that is handed to a path at a time.
const PIECE: Bytes = Bytes(64 << 10);
/// The production of this time is told at once, if a demand bounds it.
const BURST: Span = Span::from_millis(500);
/// A path that has had no connection for so long has failed.
const CONNECTING: Span = Span::from_secs(3);
/// The time in which fewer candidates than paths may become more.
const SETTLING: Span = Span::from_secs(3);
/// The time until a path looks again whether it is its turn.
const STEP: Span = Span::from_millis(1);
/// The rate of production until one is known, without a demand.
const FIRST: Rate = Rate::mbit(1);

/// How a source chooses its paths and their rates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ControlOptions {
    /// What it has to send in a second; `None`: what it turns out to produce.
    pub demand: Option<Rate>,
    /// How many paths it uses; `None`: all that there are.
    pub paths: Option<usize>,
    /// How it draws them.
    pub choice: Choice,
    /// What it draws anew while its demand is not met.
    pub reselect: Reselect,
}

/// A way to the collector that may be chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CandidateWay {
    /// The number of its plan.
    pub(super) plan: PathId,
    /// For people.
    pub(super) name: String,
    /// Its relay, as all sources call it.
    pub(super) relay: Option<NonZeroU32>,
}

/// Whether a path may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// About so many octets.
    Now(usize),
    /// After this time, if nothing has changed.
    After(Span),
    /// Not until something has changed.
    Waits,
    /// It is over.
    Over,
}

/// What a source drives.
pub(super) struct Driven {
    options: ControlOptions,
    /// Whether data comes as it is produced, and not at any time.
    is_produced: bool,
    core: Option<Source>,
    seed: Seed,
    began: Time,
    candidates: Vec<CandidateWay>,
    /// Whether something connects over each of them.
    dialed: Vec<bool>,
    paths: BTreeMap<PathId, DrivenPath>,
    /// No path has had this number.
    next_path: PathId,
    /// The bucket of all while data goes in turns.
    bucket: Bucket,
    is_in_turns: bool,
    /// Production that was told, and until when.
    told: u64,
    credit: f64,
    told_at: Time,
    /// The path over which reports come.
    reporter: Option<PathId>,
    judged: Option<(bool, Time)>,
    /// What people are to be told.
    said: Vec<String>,
}

impl Driven {
    pub(super) fn new(options: ControlOptions, is_produced: bool, seed: Seed, now: Time) -> Driven {
        Driven {
            options,
            is_produced,
            core: None,
            seed,
            began: now,
            candidates: Vec::new(),
            dialed: Vec::new(),
            paths: BTreeMap::new(),
            next_path: PathId(0),
            bucket: Bucket::new(PACKET),
            is_in_turns: false,
            told: 0,
            credit: 0.0,
            told_at: now,
            reporter: None,
            judged: None,
            said: Vec::new(),
        }
    }

    /// There are these ways to the collector; those that were there before come first. Starts once
    /// there are enough.
    pub(super) fn handle_candidates(&mut self, now: Time, candidates: Vec<CandidateWay>) {
        let further = candidates.into_iter().skip(self.candidates.len());
        let before = self.candidates.len();
        self.candidates.extend(further);
        self.dialed.resize(self.candidates.len(), false);
        if self.candidates.len() > before {
            match &mut self.core {
                // All are to be used.
                Some(_) if self.options.paths.is_none() => self.restart(now),
                Some(core) => {
                    for _ in before..self.candidates.len() {
                        core.handle_candidate(Rate::ZERO);
                    }
                }
                None => {}
            }
        }
        self.begin(now);
    }

    /// Begins if there are candidates for all paths, or no more come.
    fn begin(&mut self, now: Time) {
        let there = self.candidates.len();
        let wanted = self.options.paths.unwrap_or(there);
        if self.core.is_some() || there == 0 || there < wanted && now - self.began < SETTLING {
            return;
        }
        if there < wanted {
            let some = if there == 1 { "path is".into() } else { format!("{there} paths are") };
            self.said.push(format!("{wanted} paths are to be used, and {some} possible"));
        }
        let paths = wanted.min(there);
        let capacities: Vec<Rate> = self.candidates.iter().map(|_| Rate::ZERO).collect();
        let config = self.config(paths);
        let core = Source::new(config, &capacities, self.seed);
        let mut core = core.expect("there are as many candidates as paths");
        self.seed = self.seed.stream("next");
        core.number_from(self.next_path);
        core.handle_start(now);
        self.core = Some(core);
        (self.told_at, self.credit) = (now, 0.0);
        self.obey(now, "");
    }

    fn restart(&mut self, now: Time) {
        self.core = None;
        self.paths.clear();
        (self.reporter, self.judged, self.is_in_turns) = (None, None, false);
        self.begin(now);
    }

    fn config(&self, paths: usize) -> SourceConfig {
        let ControlOptions { demand, choice, reselect, .. } = self.options;
        let live = SourceConfig::live(demand.unwrap_or(FIRST));
        // All that there are need no choice.
        let chooses = paths < self.candidates.len() || self.options.paths.is_some();
        SourceConfig {
            demand: match demand {
                Some(rate) if !self.is_produced => Demand::Fixed(rate),
                _ => live.demand,
            },
            paths,
            choice,
            reselect: chooses.then_some(reselect),
            packet: PACKET,
            ..live
        }
    }

    /// The plans over which connections are to be opened, and those that are to be closed.
    pub(super) fn poll_dialing(&mut self) -> (Vec<PathId>, Vec<PathId>) {
        let (mut open, mut close) = (Vec::new(), Vec::new());
        for (at, candidate) in self.candidates.iter().enumerate() {
            let is_wanted = self.paths.values().any(|path| path.candidate == at);
            if is_wanted != self.dialed[at] {
                self.dialed[at] = is_wanted;
                if is_wanted { &mut open } else { &mut close }.push(candidate.plan);
            }
        }
        (open, close)
    }

    /// Nothing connects over a plan any more.
    pub(super) fn handle_ended(&mut self, plan: PathId) {
        let at = self.candidates.iter().position(|candidate| candidate.plan == plan);
        let Some(at) = at else { return };
        // Another connection may be the path by now.
        if !self.paths.values().any(|path| path.candidate == at && path.is_attached) {
            self.dialed[at] = false;
        }
    }

    /// A connection over a plan is there. Returns the path that it is; `None`, if none is wanted.
    pub(super) fn attach(&mut self, now: Time, plan: PathId) -> Option<PathId> {
        let is_it =
            |path: &DrivenPath| !path.is_attached && self.candidates[path.candidate].plan == plan;
        let (id, path) = self.paths.iter_mut().find(|(_, path)| is_it(path))?;
        (path.is_attached, path.since) = (true, now);
        path.state.is_alive = true;
        let id = *id;
        self.restart_turns();
        self.choose_reporter();
        Some(id)
    }

    /// The connection of a path is over.
    pub(super) fn handle_lost(&mut self, now: Time, path: PathId, why: &str) {
        if self.paths.contains_key(&path)
            && let Some(core) = &mut self.core
        {
            core.handle_path_failed(now, path);
            self.obey(now, why);
        }
    }

    /// It is time to look at what waits.
    pub(super) fn handle_tick(&mut self, now: Time) {
        self.begin(now);
        let is_overdue = |path: &DrivenPath| !path.is_attached && now - path.since >= CONNECTING;
        let overdue = self.paths.iter().find(|(_, path)| is_overdue(path)).map(|(id, _)| *id);
        if let Some(overdue) = overdue {
            self.handle_lost(now, overdue, "there is no connection");
        }
        if let Some(core) = &mut self.core {
            core.handle_deadline(now);
            self.obey(now, "");
        }
    }

    /// A path stands so; whether it may send.
    pub(super) fn turn(&mut self, now: Time, id: PathId, state: PathState) -> Turn {
        let Some(core) = &mut self.core else { return Turn::Over };
        let Some(path) = self.paths.get_mut(&id) else { return Turn::Over };
        if path.state.rtt != state.rtt && state.rtt > Span::ZERO {
            core.handle_rtt(id, state.rtt);
        }
        let is_other = path.state.is_alive != state.is_alive || path.state.rtt != state.rtt;
        path.state = state;
        let drains = path.drains;
        if is_other {
            self.obey(now, "");
            self.choose_reporter();
        }
        if !state.has_room || drains {
            return Turn::Waits;
        }
        match self.core.as_ref().map_or(Pace::Nothing, Source::pace) {
            Pace::Nothing => Turn::Waits,
            Pace::Turns(_) => self.turn_in_turns(now, id),
            Pace::Rates => self.turn_by_rates(now, id),
        }
    }

    /// The path that has had least is next.
    fn turn_in_turns(&mut self, now: Time, id: PathId) -> Turn {
        self.bucket.fill(now);
        if !self.bucket.has_packet() {
            return due(now, &self.bucket);
        }
        let others = self.paths.values().filter(|path| path.state.has_room && !path.drains);
        let least = others.map(|path| path.in_turns).min().unwrap_or_default();
        if self.paths[&id].in_turns > least + PACKET {
            return Turn::After(STEP);
        }
        // What there is for all is not for one.
        let room = octets(self.bucket.room().min(PIECE)) / self.paths.len();
        Turn::Now(room.max(octets(PACKET)))
    }

    /// The probed path is to have what it may have before others.
    fn turn_by_rates(&mut self, now: Time, id: PathId) -> Turn {
        let probed = self.core.iter().flat_map(Source::paths).find(|path| path.is_probed);
        let probed = probed.map(|path| path.path).filter(|probed| *probed != id);
        let path = self.paths.get_mut(&id).expect("it was found");
        path.bucket.fill(now);
        if !path.bucket.has_packet() {
            return due(now, &path.bucket);
        }
        let room = path.bucket.room();
        if let Some(probed) = probed.and_then(|probed| self.paths.get_mut(&probed)) {
            probed.bucket.fill(now);
            if probed.state.has_room && probed.bucket.has_packet() {
                return Turn::After(STEP);
            }
        }
        Turn::Now(octets(PACKET.max(room.min(PIECE))))
    }

    /// So much is written to a path; `produced` in all until now.
    pub(super) fn handle_written(&mut self, now: Time, id: PathId, bytes: Bytes, produced: u64) {
        self.produce(now, produced);
        let (Some(core), Some(path)) = (&mut self.core, self.paths.get_mut(&id)) else { return };
        core.handle_written(now, id, bytes);
        // What goes in turns is no debt of the path's own rate.
        if self.is_in_turns {
            path.in_turns += bytes;
            self.bucket.spend(bytes);
        } else {
            path.bucket.spend(bytes);
        }
    }

    /// A path could send, and nothing is left.
    pub(super) fn handle_lack(&mut self, now: Time, produced: u64) {
        self.produce(now, produced);
        if let Some(core) = &mut self.core {
            core.handle_backlog(now, Bytes::ZERO);
        }
    }

    /// Tells the core what was produced: no more than the demand, if there is one.
    fn produce(&mut self, now: Time, produced: u64) {
        let Some(core) = &mut self.core else { return };
        let mut new = produced.saturating_sub(self.told);
        if let Some(demand) = self.options.demand {
            let octets = demand.as_f64() / 8.0;
            let most = octets * BURST.as_secs_f64();
            self.credit += octets * (now - self.told_at).as_secs_f64();
            self.credit = self.credit.min(most.max(PACKET.as_f64()));
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let allowed = self.credit.max(0.0) as u64;
            new = new.min(allowed);
            self.credit -= Bytes(new).as_f64();
        }
        self.told_at = now;
        self.told += new;
        if new > 0 {
            core.handle_produced(now, Bytes(new));
        }
    }

    /// The collector reports; `produced` in all, of which `unsent` waits.
    ///
    /// # Errors
    /// [`ReportError`].
    pub(super) fn handle_report(
        &mut self,
        now: Time,
        report: &ArrivalReport,
        (produced, unsent): (u64, Bytes),
    ) -> Result<(), ReportError> {
        self.produce(now, produced);
        let Some(core) = &mut self.core else { return Ok(()) };
        for &(tag, kbit) in &report.relays {
            let is_it = |way: &CandidateWay| way.relay.map(NonZeroU32::get) == Some(tag);
            for at in (0..self.candidates.len()).filter(|at| is_it(&self.candidates[*at])) {
                core.handle_capacity(now, at, Rate::kbit(kbit.into()));
            }
        }
        let entries = report.paths.iter();
        let entries: Vec<PathReport> = entries
            .map(|&(path, received)| PathReport { path: PathId(path), received: Bytes(received) })
            .collect();
        for entry in &entries {
            if let Some(path) = self.paths.get_mut(&entry.path) {
                path.show(report.stamp, entry.received.0);
            }
        }
        // Until all paths can carry something, a report says nothing of their rates.
        let connects = |path: &&DrivenPath| !path.is_attached && now - path.since < CONNECTING;
        if self.paths.values().find(connects).is_some() {
            return Ok(());
        }
        core.handle_backlog(now, unsent);
        let stamp = Time::ZERO + Span::from_nanos(report.stamp);
        core.handle_report(now, stamp, &entries)?;
        self.obey(now, "");
        Ok(())
    }

    /// What the connection of a path is to tell the collector; `None`, if it is over.
    pub(super) fn watch(&self, id: PathId) -> Option<Watch> {
        let (core, path) = (self.core.as_ref()?, self.paths.get(&id)?);
        let millis = core.interval().as_nanos() / 1_000_000;
        let interval = NonZeroU32::new(u32::try_from(millis).unwrap_or(u32::MAX));
        Some(Watch {
            path: id.0,
            interval: interval.filter(|_| self.reporter == Some(id)),
            relay: self.candidates[path.candidate].relay,
        })
    }

    /// The rate that a path's socket is paced at: above what it is to have, since one that is paced
    /// at exactly that never makes up for a pause.
    pub(super) fn pacing(&self, id: PathId) -> Option<Rate> {
        let core = self.core.as_ref()?;
        let rate = match core.pace() {
            Pace::Nothing => return None,
            Pace::Turns(rate) => rate,
            Pace::Rates => core.paths().find(|path| path.path == id)?.rate,
        };
        // A packet each 10 ms at least: a rate near zero would hold up what is on its way.
        let least = PACKET / Span::from_millis(10);
        Some(Rate::from_bits_f64(rate.as_f64() * 1.25).max(least))
    }

    /// How the demand is met, for people; `None` before it begins.
    pub(super) fn show(&self, now: Time) -> Option<FeedDemand> {
        let core = self.core.as_ref()?;
        let is_controlled = core.pace() == Pace::Rates;
        let show = |view: overlay::PathView| {
            let path = self.paths.get(&view.path)?;
            Some(FeedPath {
                name: self.candidates[path.candidate].name.clone(),
                set: is_controlled.then_some(view.rate),
                received: path.rate,
            })
        };
        Some(FeedDemand {
            rate: core.demand(),
            satisfied: self.judged.map(|(is_met, _)| is_met),
            since: self.judged.map_or(Span::ZERO, |(_, since)| now - since),
            draws: core.draws(),
            paths: core.paths().filter_map(show).collect(),
        })
    }

    /// What people are to be told.
    pub(super) fn take_said(&mut self) -> Vec<String> {
        std::mem::take(&mut self.said)
    }

    /// Does what the core wants; `why`: what has happened, if that is all that it knows.
    fn obey(&mut self, now: Time, why: &str) {
        let Some(core) = &mut self.core else { return };
        let mut why = why.to_string();
        let (mut opened, mut left) = (Vec::new(), Vec::new());
        let is_first = core.draws() <= 1 && self.paths.is_empty();
        let (mut is_paced, mut is_resumed) = (false, false);
        while let Some(output) = core.poll_output() {
            match output {
                Output::Open { path, candidate } => {
                    self.next_path = PathId(path.0 + 1);
                    opened.push(candidate);
                    self.paths.insert(path, DrivenPath::new(candidate, now));
                }
                Output::Resume(path) => {
                    if let Some(path) = self.paths.get_mut(&path) {
                        path.drains = false;
                        opened.push(path.candidate);
                        is_resumed = true;
                    }
                }
                Output::Drain(path) => {
                    if let Some(path) = self.paths.get_mut(&path) {
                        path.drains = true;
                        left.push(path.candidate);
                    }
                }
                Output::Close(path) => {
                    if let Some(path) = self.paths.remove(&path)
                        && !path.drains
                    {
                        left.push(path.candidate);
                    }
                }
                Output::Pace => is_paced = true,
                Output::Interval => {}
                Output::Judged { satisfied } => {
                    let since = self.judged.filter(|(before, _)| *before == satisfied);
                    self.judged = Some((satisfied, since.map_or(now, |(_, since)| since)));
                    if !satisfied && why.is_empty() {
                        why = "the demand was not met".into();
                    }
                }
                Output::TakenBack => why = "they brought most of the last draws".into(),
                Output::Silent => {
                    self.said.push("the collector has not said for 10 s what arrives".into());
                }
            }
        }
        if is_paced {
            self.set_rates(now);
        }
        if is_resumed {
            self.restart_turns();
        }
        if !opened.is_empty() || !left.is_empty() {
            self.choose_reporter();
        }
        if !is_first && opened != left && !opened.is_empty() {
            let why = if why.is_empty() { "nothing arrived over it" } else { &why };
            let (now, before) = (self.names(&opened), self.names(&left));
            let instead =
                if left.is_empty() { String::new() } else { format!(" instead of {before}") };
            self.said.push(format!("records go over {now}{instead}: {why}"));
        }
    }

    fn names(&self, candidates: &[usize]) -> String {
        let names = candidates.iter().map(|at| &*self.candidates[*at].name);
        names.collect::<Vec<_>>().join(" and ")
    }

    /// Sets the rates of a new interval; unused tokens expire.
    fn set_rates(&mut self, now: Time) {
        let Some(pace) = self.core.as_ref().map(Source::pace) else { return };
        let was_in_turns = self.is_in_turns;
        self.is_in_turns = matches!(pace, Pace::Turns(_));
        if let Pace::Turns(rate) = pace {
            self.bucket.set(now, rate);
            if !was_in_turns {
                self.restart_turns();
            }
        }
        for view in self.core.iter().flat_map(Source::paths) {
            if let Some(path) = self.paths.get_mut(&view.path) {
                path.bucket.set(now, view.rate);
            }
        }
    }

    /// All paths have had equally much: one that comes later does not first get what others have
    /// had meanwhile, while those wait.
    fn restart_turns(&mut self) {
        self.paths.values_mut().for_each(|path| path.in_turns = Bytes::ZERO);
    }

    /// Reports come over the path with the lowest round trip; another one has to be better by a
    /// quarter. One that drains is closed soon: any other one takes its place.
    fn choose_reporter(&mut self) {
        let is_fit = |path: &DrivenPath| path.is_attached && path.state.is_alive && !path.drains;
        let fit = self.paths.iter().filter(|(_, path)| is_fit(path));
        let best = fit.min_by_key(|(id, path)| (path.usual_rtt(), **id));
        let present = self.reporter.and_then(|id| self.paths.get(&id)).filter(|path| is_fit(path));
        let Some((best, found)) = best else { return };
        let rtt = found.usual_rtt();
        let is_better = |present: &DrivenPath| rtt + rtt / 4 < present.usual_rtt();
        if present.is_none_or(is_better) {
            self.reporter = Some(*best);
        }
    }
}

fn due(now: Time, bucket: &Bucket) -> Turn {
    bucket.due().map_or(Turn::Waits, |at| Turn::After(at - now))
}

fn octets(bytes: Bytes) -> usize {
    usize::try_from(bytes.0).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
