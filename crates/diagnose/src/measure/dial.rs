//! The side that dials: it opens the streams, starts them together, and samples their counts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use events::Events;
use peer::Error;
use peer::conn::{Conn, ConnError};
use peer::dial::{Connector, Keeper, Opened, Plan, PlanKind, Terms, with_remedy};
use peer::striped::stream::StripedStream;
use peer::striped::{Striped, connect_over};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use units::{Bytes, Span};
use wire::measure::{self, Measure, MeasureFrame, Measured};
use wire::session::{AbortCode, Hello, SessionFrame};

use super::flow::{Counts, Flow};
use super::{Over, PathCount, Results, Sample, Wish, cpu};

/// The time that a path may take to open, and the other side to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Plans the paths to the first host of `terms` that a transfer would have: the addresses that the
/// host announces are asked for first, over any path that opens.
///
/// # Errors
/// Those of planning paths. That no path opens is none yet.
pub async fn plan_paths(terms: &Terms) -> Result<Arc<Keeper>, Error> {
    let keeper = Keeper::plan(terms, &[PlanKind::Tcp], Events::new()).await?;
    let connector = Connector::new(terms, 0, terms.tls()?.swap_remove(0));
    for plan in keeper.plans() {
        if plan.used_up().is_some() || plan.best().is_none() {
            continue;
        }
        let opening = timeout(PATIENCE, connector.open(&plan, Some(2), |_| {}));
        let Ok(Ok(Opened { conn, .. })) = opening.await else { continue };
        let Ok((mut conn, addresses)) = greet(conn, terms).await else { break };
        count_towards_cap(&plan, &conn);
        conn.close();
        keeper.learn(0, addresses);
        keeper.look().await;
        break;
    }
    Ok(keeper)
}

/// Measures what the paths of `keeper` to the first host carry together. `observe` is told the
/// counts of each interval.
///
/// # Errors
/// [`Error::Refused`] and [`Error::WrongPeer`]; [`Error::NoPath`] if no path carries data. The
/// failure of one path over TCP is in its [`PathCount`].
pub async fn measure(
    keeper: &Arc<Keeper>,
    wish: &Wish,
    mut observe: impl FnMut(&Sample),
) -> Result<Results, Error> {
    let (terms, plans) = (keeper.terms(), keeper.plans());
    let mut streams = match &wish.over {
        Over::Tcp => Streams::over_tcp(terms, &plans, wish.streams).await?,
        Over::Udp(options) => {
            Streams::over_udp(keeper, &plans, wish.streams, (**options).clone()).await?
        }
    };
    let (begin, before) = (Instant::now(), cpu());
    let end = begin + wish.time;
    streams.baseline = streams.routes().await;
    let mut running = streams.start(wish, end);
    let mut last = Sample::default();
    let mut tick = begin;
    while tick < end {
        tick = (tick + wish.interval).min(end);
        sleep_until(tick).await;
        last = streams.sample(Span::from(begin.elapsed())).await;
        observe(&last);
    }
    let mut results = Results { local_cpu: cpu() - before, ..Results::default() };
    let mut failures = Vec::new();
    while let Some(done) = running.join_next().await {
        let (place, ended) = done.expect("measuring does not panic");
        match ended {
            Ok(Some(measured)) => {
                let cpu = Span::from_nanos(measured.cpu_micros.saturating_mul(1_000));
                results.remote_cpu = Some(results.remote_cpu.map_or(cpu, |known| known.max(cpu)));
                let known = results.remote_sent_again.unwrap_or(0);
                // The streams of one striped connection have the same count.
                let sent_again = match wish.over {
                    Over::Tcp => known + measured.sent_again,
                    Over::Udp(_) => known.max(measured.sent_again),
                };
                results.remote_sent_again = Some(sent_again);
            }
            Ok(None) => {}
            Err(error) => failures.push((place, error.to_string())),
        }
    }
    streams.close().await;
    for (place, why) in failures {
        let path = last.paths.get_mut(if streams.striped.is_some() { 0 } else { place });
        if let Some(path) = path {
            path.failure.get_or_insert(why);
        }
    }
    if last.sent + last.received == Bytes::ZERO {
        let why = last.paths.iter().find_map(|path| path.failure.clone());
        let to = terms.to[0].0.to_string();
        return Err(Error::NoPath { to, why: why.unwrap_or_else(|| "nothing arrived".into()) });
    }
    results.last = last;
    Ok(results)
}

/// The streams of a measurement.
struct Streams {
    /// The paths, with the reason why one has no stream.
    paths: Vec<(Arc<Plan>, Option<String>)>,
    /// Each stream with the place of its path.
    ready: Vec<(usize, Conn)>,
    counts: Vec<(usize, Arc<Counts>)>,
    striped: Option<Striped>,
    /// The counts of routes at the begin.
    baseline: Vec<PathCount>,
}

impl Streams {
    async fn over_tcp(terms: &Terms, plans: &[Arc<Plan>], each: u16) -> Result<Streams, Error> {
        let tls = terms.tls()?.swap_remove(0);
        let connector = Connector::new(terms, 0, tls);
        let mut streams = Streams::of(plans);
        for place in 0..streams.paths.len() {
            let (plan, failure) = &mut streams.paths[place];
            if let Some(why) = plan.used_up() {
                *failure = Some(why);
                continue;
            }
            if plan.best().is_none() {
                *failure = Some("its interface reaches no address of the host".into());
                continue;
            }
            for _ in 0..each {
                let mut why = format!("no answer within {PATIENCE:?}");
                let opening = connector.open(plan, Some(2), |error| why = error.to_string());
                let opened = match timeout(PATIENCE, opening).await {
                    Ok(Ok(Opened { conn, .. })) => greet(conn, terms).await.map(|met| met.0),
                    Ok(Err(Error::NoPath { why, .. })) => Err(Failed::Path(why)),
                    Ok(Err(error)) => return Err(error),
                    Err(_) => Err(Failed::Path(why)),
                };
                match opened {
                    Ok(conn) => streams.ready.push((place, conn)),
                    Err(Failed::All(error)) => return Err(error),
                    Err(Failed::Path(why)) => {
                        *failure = Some(why);
                        break;
                    }
                }
            }
        }
        if streams.ready.is_empty() {
            let failures = streams.paths.iter();
            let why: Vec<String> = failures
                .filter_map(|(plan, why)| Some(format!("{}: {}", plan.name, why.as_ref()?)))
                .collect();
            return Err(Error::NoPath { to: terms.to[0].0.to_string(), why: why.join("; ") });
        }
        Ok(streams)
    }

    async fn over_udp(
        keeper: &Arc<Keeper>,
        plans: &[Arc<Plan>],
        all: u16,
        options: stripe::Options,
    ) -> Result<Streams, Error> {
        let mut streams = Streams::of(plans);
        let terms = keeper.terms();
        let striped = connect_over(Arc::clone(keeper), 0, options).await?;
        for _ in 0..all {
            let opened = striped.connection().open_stream().await;
            let stream = StripedStream::new(opened.map_err(|error| lost(terms, &error))?);
            let key = stream.key();
            let conn = Conn::over_carrier(Box::new(stream), key);
            match greet(conn, terms).await {
                Ok((conn, _)) => streams.ready.push((0, conn)),
                Err(Failed::All(error)) => return Err(error),
                Err(Failed::Path(why)) => return Err(lost(terms, &why)),
            }
        }
        streams.striped = Some(striped);
        Ok(streams)
    }

    fn of(plans: &[Arc<Plan>]) -> Streams {
        Streams {
            paths: plans.iter().map(|plan| (Arc::clone(plan), None)).collect(),
            ready: Vec::new(),
            counts: Vec::new(),
            striped: None,
            baseline: Vec::new(),
        }
    }

    /// Starts all streams.
    fn start(
        &mut self,
        wish: &Wish,
        end: Instant,
    ) -> JoinSet<(usize, Result<Option<Measured>, ConnError>)> {
        let mut running = JoinSet::new();
        let micros = u64::try_from(wish.time.as_micros()).unwrap_or(u64::MAX);
        let (sends, is_reverse) = (wish.direction.sends(), wish.direction.receives());
        for (place, mut conn) in self.ready.drain(..) {
            let counts = Arc::<Counts>::default();
            self.counts.push((place, Arc::clone(&counts)));
            let plan = Arc::clone(&self.paths[place].0);
            running.spawn(async move {
                conn.push(&MeasureFrame::Measure(Measure { micros, sends: is_reverse }));
                let ended = run(&mut conn, &counts, sends, end).await;
                count_towards_cap(&plan, &conn);
                conn.close();
                (place, ended)
            });
        }
        running
    }

    async fn sample(&self, elapsed: Span) -> Sample {
        let mut sample = Sample { elapsed, ..Sample::default() };
        let path = |(plan, failure): &(Arc<Plan>, Option<String>)| PathCount {
            name: plan.name.clone(),
            failure: failure.clone(),
            ..PathCount::default()
        };
        sample.paths = self.paths.iter().map(path).collect();
        for (place, counts) in &self.counts {
            let load = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
            let (sent, received) =
                (Bytes(load(&counts.acknowledged)), Bytes(load(&counts.received)));
            sample.sent += sent;
            sample.received += received;
            if self.striped.is_none() {
                let path = &mut sample.paths[*place];
                path.sent += sent;
                path.received += received;
                path.sent_again += load(&counts.sent_again);
                let nanos = load(&counts.round_trip_nanos);
                path.round_trip = path.round_trip.or((nanos > 0).then(|| Span::from_nanos(nanos)));
            }
        }
        if self.striped.is_some() {
            let routes = self.routes().await;
            for path in &mut sample.paths {
                let of_path = |all: &[PathCount]| all.iter().find(|r| r.name == path.name).cloned();
                let Some(now) = of_path(&routes) else { continue };
                let before = of_path(&self.baseline).unwrap_or_default();
                path.sent = Bytes(now.sent.0.saturating_sub(before.sent.0));
                path.received = Bytes(now.received.0.saturating_sub(before.received.0));
                path.sent_again = now.sent_again.saturating_sub(before.sent_again);
                path.round_trip = now.round_trip;
            }
        }
        sample
    }

    /// The counters of the routes of a striped connection, by the names of their plans.
    async fn routes(&self) -> Vec<PathCount> {
        let Some(striped) = &self.striped else { return Vec::new() };
        let mut all: Vec<PathCount> = Vec::new();
        for route in striped.connection().stats().await.routes {
            let place = all.iter().position(|known| known.name == route.name);
            let place = place.unwrap_or_else(|| {
                all.push(PathCount { name: route.name.clone(), ..PathCount::default() });
                all.len() - 1
            });
            let count = &mut all[place];
            count.sent += route.sent;
            count.received += route.received;
            count.sent_again += route.lost;
            count.round_trip = count.round_trip.or(route.round_trip);
        }
        all
    }

    async fn close(&self) {
        if let Some(striped) = &self.striped {
            striped.close().await;
        }
    }
}

/// Sends and receives until the end, and waits for the answer of the other side.
async fn run(
    conn: &mut Conn,
    counts: &Counts,
    sends: bool,
    end: Instant,
) -> Result<Option<Measured>, ConnError> {
    let mut flow = Flow::new(conn, counts);
    if let Some(measured) = flow.run(sends, end).await? {
        return Ok(Some(measured));
    }
    flow.run(false, end + PATIENCE).await
}

pub(crate) fn count_towards_cap(plan: &Plan, conn: &Conn) {
    // Routes of striped connections are counted by their upkeep.
    let is_ipv6 = conn.stream().peer_addr().is_some_and(|peer| peer.is_ipv6());
    if let Some(mut account) = plan.account(is_ipv6)
        && conn.stream().peer_key().is_none()
        && let Ok(info) = conn.counters()
    {
        account.count(&info, Bytes::ZERO);
    }
}

/// Why a stream did not open.
enum Failed {
    /// None will.
    All(Error),
    /// Those of this path will not.
    Path(String),
}

/// Shows the credential, and waits until this host is welcome; returns what the other one announces
/// of its addresses as well.
async fn greet(mut conn: Conn, terms: &Terms) -> Result<(Conn, Vec<SocketAddr>), Failed> {
    let hello = Hello::new(measure::SERVICE, terms.to[0].1.secret(), terms.run);
    conn.push(&SessionFrame::Hello(hello));
    let welcome = async {
        conn.flush().await?;
        loop {
            let is_welcome = conn.receive(|frame| match SessionFrame::try_from(frame)? {
                SessionFrame::Welcome(welcome) => Ok(Ok(Some(welcome.addresses))),
                SessionFrame::Ping(_) => Ok(Ok(None)),
                SessionFrame::Abort(AbortCode::Refused, reason) => {
                    Ok(Err(Error::Refused { reason: with_remedy(reason) }))
                }
                SessionFrame::Abort(AbortCode::NoService, does) => Ok(Err(Error::Refused {
                    reason: format!("{does}; 'anabranch perf --listen' there measures"),
                })),
                SessionFrame::Abort(_, reason) => Ok(Err(Error::Busy { reason })),
                other => Err(ConnError::unexpected(&other)),
            });
            match is_welcome.await? {
                Ok(Some(addresses)) => return Ok(Ok(addresses)),
                Ok(None) => {}
                Err(error) => return Ok(Err(error)),
            }
        }
    };
    let welcome: Result<Result<Vec<SocketAddr>, Error>, ConnError> =
        timeout(PATIENCE, welcome).await.unwrap_or(Err(ConnError::Silent(PATIENCE)));
    match welcome {
        Ok(Ok(addresses)) => Ok((conn, addresses)),
        Ok(Err(error)) => Err(Failed::All(error)),
        Err(error) => Err(Failed::Path(error.to_string())),
    }
}

fn lost(terms: &Terms, why: &impl ToString) -> Error {
    Error::NoPath { to: terms.to[0].0.to_string(), why: format!("over UDP: {}", why.to_string()) }
}
