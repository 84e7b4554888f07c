//! The driver of one session: it turns the core's events into actions until the session ends.

mod activity;
mod carriers;
mod choice;
mod picking;
mod progress;

use std::sync::Arc;

use events::{
    DryRun, Event, Events, PathEvent, PathState, Progress, Reported, Standstill, Summary,
};
use net::Clock;
use net::clock::timer;
use peer::carrier::RouteReport;
use peer::dial::{Dialer, Keeper, PlanKind, Remaining, Terms};
use peer::striped::carrier::StripedCarrier;
use peer::tls::ClientTls;
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant, sleep_until, timeout};
use transfer::{Reason, SenderEvent};
use units::{Bytes, PathId, Span, Time};
use wire::files::Archived;

use activity::{Activity, Seen};
use choice::Choice;
use picking::{Picked, Picking};
use progress::shown;

use super::opener::{Joining, SessionOpener};
use super::session::{Agreement, Report, Session};
use crate::rates::Rates;
use crate::{CarrierChoice, Error, Stop, TransferOptions};

/// How a session ended without an error.
pub(super) enum DialEnd {
    /// Everything is complete.
    Complete(Summary),
    /// Everything is complete but for files that changed meanwhile, which are to be sent once more.
    ButForChanges(Summary),
    /// The other side was busy, for a while: both sides must agree again.
    Busy,
    /// The other side no longer knows the session: both sides must agree again.
    SessionGone,
}

/// Drives one session.
struct SessionDriver<O: SessionOpener> {
    clock: Clock,
    events: Events,
    stop: Stop,
    reported: Arc<Reported>,
    joining: Arc<Joining<O>>,
    dialer: Dialer<Joining<O>>,
    reports: mpsc::UnboundedReceiver<Report>,
    session: Option<Arc<Session>>,
    agreement: Option<Agreement>,
    /// What became of owners and attributes, as the sink reported it.
    archived: Option<Archived>,
    began: Time,
    rates: Rates,
    /// The choice between the carriers, if there are two.
    choice: Option<Choice>,
    picking: Option<Picking>,
    activity: Activity,
    /// Whether people know that nothing arrives.
    is_still: bool,
}

/// The interval of reports.
const TICK: Duration = Duration::from_millis(100);
/// After this time without anything that arrives, people are told.
const STANDSTILL: Span = Span::from_secs(3);
/// The patience with the first connection; later ones have the caller's.
const FIRST_CONTACT: Span = Span::from_secs(15);
/// The time for closing all connections after completion: the summary must not wait for a path
/// that died just then.
const GOODBYE: Duration = Duration::from_millis(100);
/// The time for counting what each route has carried.
const COUNTING: Duration = Duration::from_millis(100);
/// The time for telling the other side that the transfer was stopped, behind what is in flight.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// What to know where nothing arrives over UDP: full packets may be too large for a line.
const NARROW: &str = "over UDP a line needs an MTU of 1,228 octets, or 1,248 with IPv6: --carrier \
                      tcp passes smaller ones";

/// The paths of all sessions of a transfer, one session after the other.
pub(super) struct Dialing {
    terms: Terms,
    tls: Vec<ClientTls>,
    keeper: Arc<Keeper>,
    /// The striped connections to the hosts.
    striped: Vec<StripedCarrier>,
    clock: Clock,
    events: Events,
    stop: Stop,
    /// How many of all paths are used; `None`: all.
    use_paths: Option<usize>,
}

impl Dialing {
    /// Plans the paths that `terms` ask for.
    ///
    /// # Errors
    /// Those of planning paths, and of the host's key.
    pub(super) async fn plan(
        mut terms: Terms,
        options: &TransferOptions,
        events: Events,
    ) -> Result<Dialing, Error> {
        let tls = terms.tls()?;
        terms = terms.over_relays()?;
        let (kinds, choice): (&[PlanKind], _) = match &options.carrier {
            CarrierChoice::Tcp => (&[PlanKind::Tcp], None),
            CarrierChoice::Udp(choice) => (&[PlanKind::Udp], Some(choice)),
            CarrierChoice::Auto(choice) => (&[PlanKind::Tcp, PlanKind::Udp], Some(choice)),
        };
        let keeper = Keeper::plan(&terms, kinds, events.clone()).await?;
        let mut striped = Vec::new();
        if let Some(choice) = choice {
            for host in (0..terms.to.len()).filter(|host| !keeper.routes(*host).is_empty()) {
                keeper.add_striped(host);
                let (keeper, events) = (Arc::clone(&keeper), events.clone());
                let carrier = StripedCarrier::new(keeper, host, choice.clone(), events);
                terms.striped.insert(host, Arc::new(carrier.clone()));
                striped.push(carrier);
            }
        }
        let (clock, stop) = (Clock::start(), options.stop.clone());
        let use_paths = options.use_paths;
        Ok(Dialing { terms, tls, keeper, striped, clock, events, stop, use_paths })
    }

    /// Ends what outlives a session: the last words over UDP are delivered.
    pub(super) async fn close(&self) {
        for carrier in &self.striped {
            carrier.close().await;
        }
    }

    /// Conducts one session to its end; `open` gets the channel for reports, and the clock.
    ///
    /// # Errors
    /// Anything of [`Error`].
    pub(super) async fn conduct<O: SessionOpener>(
        &self,
        open: impl FnOnce(mpsc::UnboundedSender<Report>, Clock) -> O,
    ) -> Result<DialEnd, Error> {
        let (sender, reports) = mpsc::unbounded_channel();
        let (events, reported) = self.events.of_session();
        let opener = open(sender.clone(), self.clock);
        let joining = Arc::new(Joining { opener, reports: sender, events: events.clone() });
        let now = self.clock.now();
        let picking = match self.use_paths {
            Some(paths) => Some(Picking::new(paths, peer::random_seed()?)),
            None => None,
        };
        let start = if picking.is_some() { Dialer::choosing } else { Dialer::start };
        let dialer = start(
            self.terms.clone(),
            self.tls.clone(),
            Arc::clone(&self.keeper),
            Arc::clone(&joining),
            self.clock,
            events.clone(),
        );
        let driver = SessionDriver {
            clock: self.clock,
            events,
            stop: self.stop.clone(),
            reported,
            joining,
            dialer,
            reports,
            session: None,
            agreement: None,
            archived: None,
            began: now,
            rates: Rates::default(),
            choice: None,
            picking,
            activity: Activity::new(now),
            is_still: false,
        };
        driver.run().await
    }
}

impl<O: SessionOpener> SessionDriver<O> {
    /// Drives the session to its end.
    ///
    /// # Errors
    /// Anything of [`Error`].
    async fn run(mut self) -> Result<DialEnd, Error> {
        let ended = self.conduct().await;
        self.reported.close();
        self.dialer.close().await;
        ended
    }

    async fn conduct(&mut self) -> Result<DialEnd, Error> {
        let mut next_tick = Instant::now();
        loop {
            let deadline = self
                .session
                .as_ref()
                .and_then(|session| session.core().poll_deadline(self.clock.now()));
            let wake = deadline.map_or(next_tick, |time| next_tick.min(timer(self.clock, time)));
            let kicked = async {
                match &self.session {
                    Some(session) => session.kick.notified().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                report = self.reports.recv() => {
                    let report = report.expect("the driver holds a sender");
                    if let Some(ended) = self.handle(report).await? {
                        return Ok(ended);
                    }
                }
                () = kicked => {}
                () = self.stop.called() => return Err(self.abandon().await),
                () = sleep_until(wake) => {}
            }
            self.drain_core();
            let now = self.clock.now();
            if Instant::now() >= next_tick {
                next_tick = Instant::now() + TICK;
                self.tick(now)?;
            }
        }
    }

    /// Waits for the acknowledgements of the last data: the end may have come sooner, by another
    /// connection.
    async fn acknowledged(&self) {
        let Some(session) = &self.session else { return };
        let is_whole = || session.core().totals(self.clock.now()).rest() == Bytes::ZERO;
        while !is_whole() {
            sleep_until(Instant::now() + Duration::from_millis(1)).await;
        }
    }

    /// Handles a report of a path. Returns the end of the session, if the report ends it.
    async fn handle(&mut self, report: Report) -> Result<Option<DialEnd>, Error> {
        match report {
            Report::Established(session, agreement) => {
                self.establish(session, agreement);
            }
            Report::ObjectDone(object, root) => {
                self.joining.opener.object_done(object, root).await?;
            }
            Report::Archived(archived) => {
                // Every path says it.
                if self.archived.replace(archived).is_none() {
                    self.joining.opener.note_archived(archived);
                }
            }
            Report::Done(micros) => {
                self.joining.opener.note_complete();
                let _ = timeout(COUNTING, self.acknowledged()).await;
                // A short transfer may be over before anything was counted.
                for carrier in self.dialer.terms().striped.values() {
                    let _ = timeout(COUNTING, carrier.refresh()).await;
                }
                let summary = self.summary(Span::from_micros(micros));
                self.reported.close();
                if self.joining.opener.goes_on() {
                    return Ok(Some(DialEnd::ButForChanges(summary)));
                }
                // The receiver waits for the goodbye, even if the source has changed.
                if let Some(session) = &self.session {
                    session.note_complete();
                }
                self.dialer.say_goodbye(GOODBYE).await;
                self.joining.opener.check_unchanged()?;
                return Ok(Some(DialEnd::Complete(summary)));
            }
            Report::Announced(host, addresses) => self.dialer.keeper().learn(host, addresses),
            Report::DryRun(agreement, dry_run) => {
                let dry_run = DryRun { transfer: self.events.transfer(), ..dry_run };
                return Ok(Some(self.end_without_data(&agreement, Event::DryRun(dry_run))));
            }
            Report::Listing(agreement, listing) => {
                return Ok(Some(self.end_without_data(&agreement, Event::Listing(listing))));
            }
            Report::HostFailed(host, error) => self.drop_host(host, error)?,
            Report::DiskBusy => self.excuse_paths(),
            Report::SessionGone => return Ok(Some(DialEnd::SessionGone)),
            // Another connection opened the session.
            Report::Fatal(Error::Peer(peer::Error::Busy { .. })) if self.session.is_some() => {}
            Report::Fatal(error) => return Err(error),
        }
        Ok(None)
    }

    fn establish(&mut self, session: Arc<Session>, agreement: Agreement) {
        tracing::info!(?session, peer = %agreement.peer, "session established");
        self.report_started(&agreement);
        self.agreement = Some(agreement);
        self.session = Some(session);
        self.activity.handle_work(self.clock.now());
    }

    /// The end of a session that has found what was asked for, and moves nothing.
    fn end_without_data(&self, agreement: &Agreement, found: Event) -> DialEnd {
        let elapsed = self.clock.now() - self.began;
        let &Agreement { files, total, left_out, .. } = agreement;
        self.report_started(agreement);
        self.events.send(found);
        DialEnd::Complete(Summary { files, total, elapsed, left_out, ..Summary::default() })
    }

    fn report_started(&self, agreement: &Agreement) {
        let &Agreement { peer, files, total, resumed, .. } = agreement;
        let (peer, transfer) = (peer.to_string(), self.events.transfer());
        self.events.send(Event::Started { transfer, peer, files, total, resumed });
    }

    /// Drops a host; the transfer continues if another one is left.
    fn drop_host(&mut self, host: usize, error: Error) -> Result<(), Error> {
        match self.dialer.drop_host(host) {
            Remaining::Unchanged => return Ok(()),
            Remaining::None => return Err(error),
            Remaining::Some => {}
        }
        let why = match &error {
            Error::Integrity { what, detail } => {
                format!("{what} does not match its BLAKE3 hash ({detail})")
            }
            Error::Stopped { reason } => reason.clone(),
            error => error.to_string(),
        };
        let label = self.dialer.terms().label(host);
        let text = format!("{label} is dropped, the others go on: {why}");
        self.events.notice(text);
        Ok(())
    }

    /// The size of the transfer.
    fn total(&self) -> Bytes {
        let agreed = self.agreement.as_ref().map(|agreement| agreement.total);
        // A stream grows beyond what was agreed on.
        let known = |session: &Arc<Session>| session.core().layout().total();
        let known = self.session.as_ref().map_or(Bytes::ZERO, known);
        agreed.unwrap_or_else(|| self.joining.opener.offered()).max(known)
    }

    /// Bytes that were at the sink before the session.
    fn resumed(&self) -> Bytes {
        self.agreement.as_ref().map_or(Bytes::ZERO, |agreement| agreement.resumed)
    }

    /// The caller has stopped the transfer: the other side is told.
    async fn abandon(&mut self) -> Error {
        if let Some(session) = &self.session {
            session.abandon();
            self.dialer.say_goodbye(LAST_WORDS).await;
            self.stop.note_told();
        }
        Error::Stopped { reason: "it was interrupted".into() }
    }

    /// The silence of the paths is the disk's.
    fn excuse_paths(&mut self) {
        let now = self.clock.now();
        self.activity.handle_work(now);
        let Some(session) = &self.session else { return };
        let mut core = session.core();
        for path in session.paths().keys() {
            core.handle_alive(now, *path);
        }
    }

    /// Wakes paths and reports state changes as the core decided.
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
        // Further streams of a striped connection would wait for the same routes.
        if state == transfer::PathState::Stalled && facts.path.plan.kind != PlanKind::Striped {
            self.dialer.note_stalled(&facts.path.plan);
        }
        let plan = &facts.path.plan;
        if plan.guessed_beside.is_some() || plan.kind == PlanKind::Striped {
            return;
        }
        let event = PathEvent {
            path: plan.id,
            name: plan.name.clone(),
            state: shown(state),
            why: Self::in_words(session, why),
        };
        self.events.path(event);
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
            Some(facts) => text.replace(&other.to_string(), &facts.path.plan.name),
            None => text,
        }
    }

    fn tick(&mut self, now: Time) -> Result<(), Error> {
        if self.picking.is_none() {
            self.dialer.follow_plans();
        }
        self.choose_carrier(now);
        self.tell_rest(now);
        self.look_for_progress(now);
        let mut progress = self.progress(now);
        self.pick_paths(now, &progress);
        progress.standstill = self.standstill(now);
        self.rates.apply(now, &mut progress);
        self.events.send(Event::Progress(progress));
        self.dialer.follow_bounds(now);
        // Without another path there is no point in waiting for a new month.
        let used_up = self.routes_used_up();
        if used_up.is_some() || self.dialer.is_used_up() {
            let why = used_up.unwrap_or_else(|| self.dialer.used_up().join("; "));
            let done = self.session.as_ref().map(|_| self.done(now));
            return Err(Error::UsedUp { why, done, total: self.total() });
        }
        let patience = self.dialer.terms().options.patience;
        let patience = match self.session {
            Some(_) => patience,
            None => patience.min(FIRST_CONTACT),
        };
        if now - self.activity.at() > patience {
            return Err(self.interrupted(now));
        }
        Ok(())
    }

    /// Opens and closes paths, where some of them are chosen.
    fn pick_paths(&mut self, now: Time, progress: &Progress) {
        let Some(picking) = &mut self.picking else { return };
        for Picked { open, close, text } in
            picking.look(now, &self.dialer.keeper().plans(), progress)
        {
            self.events.notice(text);
            for plan in close {
                self.dialer.end(plan.id);
                let (path, name, why) = (plan.id, plan.name.clone(), "others are used".into());
                self.events.path(PathEvent { path, name, state: PathState::Dropped, why });
            }
            for plan in open {
                self.dialer.open(plan);
            }
        }
    }

    /// Says once that nothing arrives, and that data arrive again.
    fn standstill(&mut self, now: Time) -> Option<Standstill> {
        let patience = self.dialer.terms().options.patience;
        let since = now - self.activity.at();
        let is_still = self.session.is_some() && since > STANDSTILL;
        if is_still != std::mem::replace(&mut self.is_still, is_still) {
            let text = if is_still {
                format!(
                    "nothing has arrived for {} s; the transfer waits up to {} s (--patience)",
                    STANDSTILL.as_secs_f64(),
                    patience.as_secs_f64()
                )
            } else {
                "data arrive again".into()
            };
            self.events.notice(text);
        }
        is_still.then_some(Standstill { since, patience })
    }

    fn look_for_progress(&mut self, now: Time) {
        if self.joining.opener.is_working() {
            self.activity.handle_work(now);
        }
        let Some(session) = &self.session else { return };
        let totals = session.core().totals(now);
        let seen = Seen {
            acked: totals.acked,
            is_awaited: totals.in_flight > Bytes::ZERO,
            moved_at: session.signs.moved_at(),
            heard_at: session.signs.heard_at(),
        };
        self.activity.look(now, seen);
    }

    /// Tells carriers with several routes what is still to be moved, and within what bound.
    fn tell_rest(&self, now: Time) {
        let Some(session) = &self.session else { return };
        let rest = session.core().totals(now).rest();
        let bound = self.dialer.bound();
        for carrier in self.dialer.terms().striped.values() {
            carrier.handle_rest(rest, bound);
        }
    }

    /// Why no route over UDP may carry more in this month, where there is nothing but those.
    fn routes_used_up(&self) -> Option<String> {
        let carriers = &self.dialer.terms().striped;
        if carriers.is_empty() || self.has_tcp() {
            return None;
        }
        let routes = carriers.values().filter_map(|carrier| carrier.routes()).flatten();
        let why = |route: RouteReport| route.used_up.map(|why| format!("{}: {why}", route.name));
        let all: Option<Vec<String>> = routes.map(why).collect();
        all.map(|all| all.join("; "))
    }

    /// Bytes that are safe at the receiver.
    fn done(&self, now: Time) -> Bytes {
        let acked = |session: &Arc<Session>| session.core().totals(now).acked;
        self.resumed() + self.session.as_ref().map_or(Bytes::ZERO, acked)
    }

    /// How many paths have a connection, whether or not anything passes.
    fn open_paths(&self, now: Time) -> usize {
        let is_open =
            |state| matches!(state, PathState::Active | PathState::Standby | PathState::Stalled);
        match &self.session {
            Some(session) if !session.paths().is_empty() => {
                let paths = self.progress(now).paths;
                paths.iter().filter(|path| is_open(path.state)).count()
            }
            _ => 0,
        }
    }

    fn interrupted(&self, now: Time) -> Error {
        let seconds = (now - self.activity.at()).as_secs_f64();
        let seen = match self.open_paths(now) {
            0 => format!("none was open for {seconds:.0} s"),
            1 => format!("1 path is open, nothing arrived for {seconds:.0} s"),
            open => format!("{open} paths are open, nothing arrived for {seconds:.0} s"),
        };
        let last = Some(self.dialer.last_failure()).filter(|failure| !failure.is_empty());
        // The packets of a handshake are full ones: where they vanish there is never an answer.
        let may_be_narrow =
            !self.has_tcp() && !last.as_ref().is_some_and(|why| why.contains("refused"));
        let remedy = may_be_narrow.then(|| NARROW.to_string());
        let parts = [seen].into_iter().chain(self.dialer.used_up()).chain(last).chain(remedy);
        let why = parts.collect::<Vec<_>>().join("; ");
        match &self.session {
            None => {
                let why = format!("{why}; does anabranch listen there, and is its port open?");
                peer::Error::NoPath { to: self.dialer.terms().hosts(), why }.into()
            }
            Some(_) => Error::Interrupted { why, done: self.done(now), total: self.total() },
        }
    }
}
