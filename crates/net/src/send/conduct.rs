//! Conducts one session: starts a keeper for each path, turns the core's events into actions, and
//! knows when it is over.

mod progress;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};

use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep_until, timeout};
use transfer::{Reason, SenderEvent};
use units::{Bytes, PathId, Span, Time};

use progress::shown;

use super::keeper::{Keeper, Shop};
use super::limit::Limit;
use super::plan::{Plan, default_plans, guessed_plans, resolve};
use super::rates::Rates;
use super::session::{Agreement, Load, Report, Session};
use super::terms::Terms;
use super::way::Entrance;
use crate::clock::Clock;
use crate::tls::ClientTls;
use crate::{Error, Event, Events, PathEvent, Summary};

/// How a session ended without an error.
pub(crate) enum Ended {
    Complete(Summary),
    SessionGone,
}

/// Conducts one session.
pub(crate) struct Conductor {
    clock: Clock,
    events: Events,
    shop: Arc<Shop>,
    reports: mpsc::UnboundedReceiver<Report>,
    keepers: JoinSet<()>,
    plans: Vec<Arc<Plan>>,
    /// Rings for the stalled connection of each plan.
    stalled: Vec<Arc<Notify>>,
    stop: Vec<Arc<Notify>>,
    session: Option<Arc<Session>>,
    began: Time,
    resumed: Bytes,
    /// Each host's addresses, as it told them.
    announced: BTreeMap<usize, Vec<SocketAddr>>,
    /// Servers that nothing more is taken from.
    left: BTreeSet<usize>,
    /// Objects that the receiver has finished.
    done: BTreeSet<usize>,
    rates: Rates,
    /// When some path was last open or the session began.
    alive: Time,
}

/// Progress is told this often.
const TICK: Duration = Duration::from_millis(100);
/// How long to try where nobody ever answered.
const FIRST_CONTACT: Span = Span::from_secs(15);
/// Interfaces are looked at this often.
const LOOK_AROUND: Span = Span::from_secs(2);

impl Conductor {
    pub(crate) fn new(
        terms: Terms,
        entrance: Entrance,
        (reporting, reports): (mpsc::UnboundedSender<Report>, mpsc::UnboundedReceiver<Report>),
        tls: Vec<ClientTls>,
        clock: Clock,
        events: Events,
    ) -> Conductor {
        let total_limit =
            terms.options.max_rate.as_ref().map(|table| table.at(crate::wall::moment_of_week()));
        let total_limit = total_limit.map(|rate| Arc::new(Limit::new(rate)));
        let shop = Arc::new(Shop {
            terms,
            entrance,
            tls,
            reports: reporting,
            events: events.clone(),
            total_limit,
            next_path: AtomicU32::new(0),
            used_up: Mutex::default(),
            last_failure: Mutex::default(),
        });
        let now = clock.now();
        Conductor {
            clock,
            events,
            shop,
            reports,
            keepers: JoinSet::new(),
            plans: Vec::new(),
            stalled: Vec::new(),
            stop: Vec::new(),
            session: None,
            began: now,
            resumed: Bytes::ZERO,
            announced: BTreeMap::new(),
            left: BTreeSet::new(),
            done: BTreeSet::new(),
            rates: Rates::default(),
            alive: now,
        }
    }

    /// Runs until the transfer is complete, or cannot be. Then nothing of the session goes on, and
    /// what its interfaces carried is written down.
    pub(crate) async fn conduct(mut self, plans: Vec<Arc<Plan>>) -> Result<Ended, Error> {
        for plan in plans {
            self.hire(plan);
        }
        let ended = self.run().await;
        self.keepers.shutdown().await;
        let allowances: Vec<_> =
            self.plans.iter().filter_map(|plan| plan.allowance.clone()).collect();
        let closed = tokio::task::spawn_blocking(move || {
            allowances.iter().for_each(|allowance| allowance.close())
        });
        closed.await.expect("closing the books does not panic");
        ended
    }

    async fn run(&mut self) -> Result<Ended, Error> {
        let mut next_tick = Instant::now();
        let mut next_look = self.clock.now() + LOOK_AROUND;
        loop {
            let deadline = self
                .session
                .as_ref()
                .and_then(|session| session.core().poll_deadline(self.clock.now()));
            let wake = deadline.map_or(next_tick, |time| next_tick.min(self.clock.instant(time)));
            let kicked = async {
                match &self.session {
                    Some(session) => session.kick.notified().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                report = self.reports.recv() => {
                    let report = report.expect("the shop holds a sender");
                    if let Some(ended) = self.handle(report).await? {
                        return Ok(ended);
                    }
                }
                () = kicked => {}
                () = sleep_until(wake) => {}
            }
            self.drain_core();
            let now = self.clock.now();
            if Instant::now() >= next_tick {
                next_tick = Instant::now() + TICK;
                self.tick(now)?;
            }
            if now >= next_look {
                next_look = now + LOOK_AROUND;
                self.look_around().await;
            }
        }
    }

    fn hire(&mut self, plan: Arc<Plan>) {
        if plan.metered {
            let text = format!(
                "{name} looks metered (a modem, or a telephone on USB) and is a backup; --path \
                 {name} makes it a primary, --no-path {name} leaves it out",
                name = plan.name
            );
            let _ = self.events.send(Event::Notice { text });
        }
        let group = u32::try_from(self.plans.len()).expect("a handful of paths");
        let (stalled, stop) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let keeper = Keeper {
            shop: Arc::clone(&self.shop),
            plan: Arc::clone(&plan),
            group,
            stalled: Arc::clone(&stalled),
            stop: Arc::clone(&stop),
        };
        self.plans.push(plan);
        self.stalled.push(stalled);
        self.stop.push(stop);
        self.keepers.spawn(keeper.keep());
    }

    async fn handle(&mut self, report: Report) -> Result<Option<Ended>, Error> {
        match report {
            Report::Established(session, agreement) => {
                self.establish(session, &agreement);
                if self.is_rehearsal() {
                    return Ok(Some(Ended::Complete(Summary {
                        moved: Bytes::ZERO,
                        ..self.summary(Span::ZERO)
                    })));
                }
            }
            Report::ObjectDone(object, root) => self.object_done(object, root).await?,
            Report::Done(micros) => {
                let summary = self.summary(Span::from_micros(micros));
                // The receiver waits for it, whatever has become of the source.
                self.say_goodbye().await;
                if let Some(Load::Out(supply)) = self.session.as_ref().map(|session| &session.load)
                {
                    supply.check_unchanged()?;
                }
                return Ok(Some(Ended::Complete(summary)));
            }
            Report::Announced(server, addresses) => self.learn(server, addresses),
            Report::Rehearsed { peer, files, total, resumed } => {
                let _ = self.events.send(Event::Started { peer, files, total, resumed });
                let elapsed = self.clock.now() - self.began;
                return Ok(Some(Ended::Complete(Summary {
                    files,
                    total,
                    elapsed,
                    ..Summary::default()
                })));
            }
            Report::Left(server, error) => self.leave(server, error)?,
            Report::SessionGone => return Ok(Some(Ended::SessionGone)),
            Report::Fatal(error) => return Err(error),
        }
        Ok(None)
    }

    fn establish(&mut self, session: Arc<Session>, agreement: &Agreement) {
        let tree = session.load.tree();
        self.resumed = agreement.resumed;
        let _ = self.events.send(Event::Started {
            peer: agreement.peer,
            files: tree.file_count(),
            total: tree.data(),
            resumed: agreement.resumed,
        });
        if let Load::Out(_) = session.load {
            self.learn(0, agreement.addresses.clone());
        }
        self.session = Some(session);
    }

    /// A host has told its addresses.
    fn learn(&mut self, server: usize, addresses: Vec<SocketAddr>) {
        for plan in self.plans.iter().filter(|plan| plan.server == server) {
            plan.learn(&addresses);
        }
        for guess in guessed_plans(&self.plans, server, &addresses) {
            self.hire(Arc::new(guess));
        }
        self.announced.insert(server, addresses);
    }

    /// Takes nothing more from a server; the others go on, if there are any.
    fn leave(&mut self, server: usize, error: Error) -> Result<(), Error> {
        if !self.left.insert(server) {
            return Ok(());
        }
        if self.left.len() == self.shop.terms.to.len() {
            return Err(error);
        }
        for (plan, stop) in self.plans.iter().zip(&self.stop) {
            if plan.server == server {
                stop.notify_one();
            }
        }
        let why = match &error {
            Error::Integrity { what, detail } => {
                format!("{what} does not match its BLAKE3 hash ({detail})")
            }
            Error::Stopped { reason } => reason.clone(),
            error => error.to_string(),
        };
        let text = format!("{} is dropped, the others go on: {why}", self.shop.terms.label(server));
        let _ = self.events.send(Event::Notice { text });
        Ok(())
    }

    /// All that there is to move, as far as it is known.
    fn total(&self) -> Bytes {
        match (&self.session, &self.shop.entrance) {
            (Some(session), _) => session.load.tree().data(),
            (None, Entrance::Out(entrance)) => entrance.source.tree().data(),
            (None, Entrance::In(_)) => Bytes::ZERO,
        }
    }

    fn is_rehearsal(&self) -> bool {
        matches!(&self.shop.entrance, Entrance::Out(entrance) if entrance.options.transfer.dry_run)
    }

    /// Tells the paths what the core decided.
    fn drain_core(&mut self) {
        let Some(session) = self.session.clone() else { return };
        let now = self.clock.now();
        let mut core = session.core();
        if core.poll_deadline(now).is_some_and(|deadline| deadline <= now) {
            core.handle_deadline(now);
        }
        session.wake(&mut core);
        let mut changes = Vec::new();
        while let Some(event) = core.poll_event() {
            if let SenderEvent::PathState { path, state, why } = event {
                changes.push((path, state, why));
            }
        }
        drop(core);
        for (path, state, why) in changes {
            self.path_changed(&session, path, state, why);
        }
    }

    fn path_changed(
        &self,
        session: &Session,
        path: PathId,
        state: transfer::PathState,
        why: Reason,
    ) {
        let Some(facts) = session.paths().get(&path).cloned() else { return };
        if state == transfer::PathState::Stalled
            && let Some(plan) = self.plans.iter().position(|plan| Arc::ptr_eq(plan, &facts.plan))
        {
            self.stalled[plan].notify_one();
        }
        let event = PathEvent {
            path,
            name: facts.plan.name.clone(),
            state: shown(state),
            why: Self::in_words(session, why),
        };
        let _ = self.events.send(Event::Path(event));
    }

    /// The reason with the paths' names in place of their numbers.
    fn in_words(session: &Session, why: Reason) -> String {
        let text = why.to_string();
        let (Reason::TestingBottleneck(other)
        | Reason::SharedBottleneck(other, _)
        | Reason::OwnBottleneck(other)
        | Reason::PeerGone(other)) = why
        else {
            return text;
        };
        match session.paths().get(&other) {
            Some(facts) => text.replace(&other.to_string(), &facts.plan.name),
            None => text,
        }
    }

    fn tick(&mut self, now: Time) -> Result<(), Error> {
        let mut progress = self.progress(now);
        self.rates.apply(now, &mut progress);
        let open = self.session.as_ref().is_some_and(|session| !session.paths().is_empty());
        if open || self.shop.entrance.is_working() {
            self.alive = now;
        }
        let _ = self.events.send(Event::Progress(progress));
        self.follow_timetable(now);
        while self.keepers.try_join_next().is_some() {}
        // Nobody waits for a new month if there is nothing else to carry anything.
        if self.keepers.len() == self.closed().len() && self.nothing_may_come() {
            return Err(self.used_up(now));
        }
        let patience = match self.session {
            Some(_) => self.shop.terms.options.patience,
            None => self.shop.terms.options.patience.min(FIRST_CONTACT),
        };
        if now - self.alive > patience {
            return Err(self.interrupted(now));
        }
        Ok(())
    }

    /// Applies the rate that the timetable has for this time of the week.
    fn follow_timetable(&self, now: Time) {
        let (Some(table), Some(limit)) =
            (&self.shop.terms.options.max_rate, &self.shop.total_limit)
        else {
            return;
        };
        let rate = table.at(crate::wall::moment_of_week());
        if limit.set(now, rate) {
            let bound = rate
                .map_or_else(|| "there is no limit".into(), |rate| format!("the limit is {rate}"));
            let _ = self.events.send(Event::Notice {
                text: format!("from now on {bound}, as the timetable has it"),
            });
        }
    }

    /// Whether the paths are those that the caller named: no other one will turn up.
    fn nothing_may_come(&self) -> bool {
        !self.shop.terms.options.paths.is_empty()
    }

    /// The paths whose caps are used up, and why.
    fn closed(&self) -> Vec<String> {
        self.shop.used_up.lock().expect("no panic while held").values().cloned().collect()
    }

    fn used_up(&self, now: Time) -> Error {
        let why = self.closed().join("; ");
        let total = self.total();
        let acked =
            self.session.as_ref().map_or(Bytes::ZERO, |session| session.core().totals(now).acked);
        Error::UsedUp { why, done: self.resumed + acked, total }
    }

    fn interrupted(&self, now: Time) -> Error {
        let used_up = self.closed();
        let last = self.shop.last_failure.lock().expect("no panic while held").clone();
        let last = [used_up, vec![last]].concat().join("; ");
        let why = format!("none was open for {:.0} s; {last}", (now - self.alive).as_secs_f64());
        match &self.session {
            None => Error::NoPath { to: self.shop.terms.hosts(), why },
            Some(session) => {
                let total = self.total();
                let done = self.resumed + session.core().totals(now).acked;
                Error::Interrupted { why, done, total }
            }
        }
    }

    /// Takes in interfaces that came up since.
    async fn look_around(&mut self) {
        if !self.shop.terms.options.paths.is_empty() {
            return;
        }
        for server in 0..self.shop.terms.to.len() {
            if self.left.contains(&server) {
                continue;
            }
            let Ok(remotes) = resolve(&self.shop.terms.to[server].0).await else { continue };
            let Ok(found) = default_plans(&self.shop.terms, server, &remotes) else { continue };
            for plan in found {
                if self.plans.iter().all(|known| known.name != plan.name) {
                    let siblings: Vec<&Plan> = self.plans.iter().map(|plan| &**plan).collect();
                    let usage = self.shop.terms.options.usage.as_deref();
                    let Ok(plan) = plan.beside(siblings, None, usage) else { continue };
                    plan.learn(self.announced.get(&server).map_or(&[], |known| known));
                    self.hire(Arc::new(plan));
                }
            }
        }
    }

    /// Compares the receiver's hash of an object with ours.
    async fn object_done(&mut self, index: u32, root: [u8; 32]) -> Result<(), Error> {
        let (index, root) = (usize::try_from(index).expect("32 bits fit"), transfer::Cv(root));
        let Some(session) = self.session.clone() else { return Ok(()) };
        let (Load::Out(supply), Entrance::Out(entrance)) = (&session.load, &self.shop.entrance)
        else {
            return Ok(());
        };
        if index >= supply.packing().layout().objects() {
            return Err(Error::Protocol(format!(
                "object {index} is done, but there are not that many"
            )));
        }
        if !self.done.insert(index) {
            return Ok(());
        }
        let tree = supply.source().tree();
        let name = |file: usize| String::from_utf8_lossy(&tree.entries()[file].path).into_owned();
        let files = supply.files(index, root);
        let mut ours = supply.root(index);
        if ours.is_none() && entrance.options.transfer.verify {
            // An earlier attempt sent a part of it, as it was then: only reading all of it tells
            // whether it still is.
            let text = format!(
                "hashing all of {}, because a part of it was sent by an earlier attempt",
                name(files[0].0)
            );
            let _ = self.events.send(Event::Notice { text });
            let session = Arc::clone(&session);
            let hashed = tokio::task::spawn_blocking(move || match &session.load {
                Load::Out(supply) => supply.hash(index).map(Some),
                Load::In(_) => Ok(None),
            });
            let hashed = hashed.await;
            ours = hashed.expect("hashing does not panic")?;
        }
        if let Some(ours) = ours
            && ours != root
        {
            let detail = format!(
                "the receiver has BLAKE3 {root}, the source {ours}; the source changed between two \
                 attempts: send it again with --restart --overwrite"
            );
            return Err(Error::Integrity { what: name(files[0].0), detail });
        }
        for (file, blake3) in files {
            let size = Bytes(tree.file(file).expect("a file of the tree").size);
            let _ = self.events.send(Event::FileDone { name: name(file), size, blake3 });
        }
        Ok(())
    }

    /// Closes the connections in order, for a moment.
    async fn say_goodbye(&mut self) {
        self.stop.iter().for_each(|stop| stop.notify_one());
        let all = async { while self.keepers.join_next().await.is_some() {} };
        let _ = timeout(Duration::from_millis(100), all).await;
    }
}
