//! Rates of paths, measured with data.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use events::Events;
use net::CongestionControl;
use peer::Error;
use peer::conn::{Conn, ConnError};
use peer::dial::{Candidate, Connector, Keeper, Opened, Plan, PlanKind, Terms};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use units::{Bytes, Rate, Span};
use wire::session::{Hello, PROBE, SessionFrame};

use crate::measure::count_towards_cap;

/// The measurement of one path.
#[derive(Clone, Debug)]
pub struct PathProbe {
    /// The path's name for people.
    pub name: String,
    /// The local end, if the path opened.
    pub local: Option<SocketAddr>,
    /// The interface that it leaves by.
    pub interface: String,
    /// The remote end; `None` if its interface reaches no known address of the host.
    pub remote: Option<SocketAddr>,
    /// The addresses between which the path may open, best guess first; those that the host
    /// announced are among them if any path carried data.
    pub candidates: Vec<Candidate>,
    /// Whether data passed in small segments only: larger packets are dropped without an ICMP
    /// message. Only [`examine`](crate::doctor::examine) checks it.
    pub small_segments_only: bool,
    /// Whether nothing was sent because the cap of its interface is reached.
    pub used_up: bool,
    /// The result, or the reason why there is none, as a clause.
    pub carries: Result<Carries, String>,
}

/// The measured properties of a path.
#[derive(Clone, Copy, Debug)]
pub struct Carries {
    /// The minimum round-trip time.
    pub rtt: Span,
    /// The longest queue: the largest smoothed round trip less the least one.
    pub queue: Span,
    /// The goodput in the second half of the measurement.
    pub rate: Rate,
    /// The share of retransmitted TCP segments; 0 to 1.
    pub loss: f64,
    /// The share of the time for which this host's send buffer was too small; 0 to 1.
    pub held_by_send_buffer: f64,
    /// The share of the time for which the receiver's buffer was full; 0 to 1.
    pub held_by_receiver: f64,
}

/// The length of a measurement.
const LENGTH: Duration = Duration::from_secs(2);
/// The part of it that does not count, for slow start.
const SETTLED: Duration = Duration::from_secs(1);
/// The time that a path may take to open, and to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time that a path may take to open if another attempt follows.
const SOON: Duration = Duration::from_secs(4);
/// Bytes of one frame, and bytes that the kernel may hold unsent.
const CHUNK: usize = 32 * 1024;
const UNSENT: u64 = 128 * 1024;

/// Measures each path of `terms` to its first host alone, one after the other, two seconds each.
///
/// # Errors
/// Those of planning paths; [`Error::WrongPeer`] if a host with another key answers. The failure of
/// one path is in its [`PathProbe`].
pub async fn probe(terms: &Terms) -> Result<Vec<PathProbe>, Error> {
    let connector = connector(terms)?;
    let keeper = Keeper::plan(terms, &[PlanKind::Tcp], Events::new()).await?;
    let mut announced = Vec::new();
    let mut probes = Vec::new();
    for plan in &keeper.plans() {
        probes.push(probe_path(plan, &connector, terms, &mut announced).await?);
    }
    let plans = with_announced(&keeper, &announced).await;
    for plan in &plans[probes.len()..] {
        probes.push(probe_path(plan, &connector, terms, &mut announced).await?);
    }
    // Some paths reach other addresses of the host only, which it announces over a path that works.
    for (plan, found) in plans.iter().zip(&mut probes) {
        if found.carries.is_err() && !announced.is_empty() {
            *found = probe_path(plan, &connector, terms, &mut announced).await?;
        }
        plan.learn(&announced);
        found.candidates = plan.candidates();
    }
    Ok(probes)
}

/// The paths of a transfer to a host that has announced these addresses: those that were planned
/// first, and behind them those over interfaces that reach other addresses of the host only.
async fn with_announced(keeper: &Keeper, announced: &[SocketAddr]) -> Vec<Arc<Plan>> {
    keeper.learn(0, announced.to_vec());
    keeper.look().await;
    // To people a guess is a part of another path.
    keeper.plans().into_iter().filter(|plan| plan.guessed_beside.is_none()).collect()
}

/// Connections to the first host, with the default congestion control.
fn connector(terms: &Terms) -> Result<Connector, Error> {
    let mut terms = terms.clone();
    terms.options.congestion_control = CongestionControl::Auto;
    let tls = terms.tls()?.swap_remove(0);
    Ok(Connector::new(&terms, 0, tls))
}

async fn probe_path(
    plan: &Arc<Plan>,
    connector: &Connector,
    terms: &Terms,
    announced: &mut Vec<SocketAddr>,
) -> Result<PathProbe, Error> {
    plan.learn(announced);
    let mut why = format!("no answer within {PATIENCE:?}");
    let mut found = unmeasured(plan);
    if found.used_up || found.remote.is_none() {
        return Ok(found);
    }
    let opening = connector.open(plan, Some(2), |error| why = error.to_string());
    let opened = timeout(PATIENCE, opening).await;
    found.carries = match opened {
        Ok(Ok(Opened { mut conn, local, remote })) => {
            (found.local, found.remote) = (local, Some(remote));
            measure(plan, &mut conn, terms, announced).await
        }
        Ok(Err(error @ Error::WrongPeer { .. })) => return Err(error),
        Ok(Err(_)) | Err(_) => Err(why),
    };
    Ok(found)
}

fn unmeasured(plan: &Plan) -> PathProbe {
    PathProbe {
        name: plan.name.clone(),
        interface: plan.interface.clone(),
        local: None,
        remote: plan.best().map(|best| best.remote),
        candidates: plan.candidates(),
        small_segments_only: false,
        used_up: plan.used_up().is_some(),
        carries: Err(plan.used_up().unwrap_or_else(|| {
            let unreached = plan.unreached.clone().filter(|_| plan.best().is_none());
            unreached.unwrap_or_else(|| "no answer".into())
        })),
    }
}

/// Measures each path of `terms` alone, with segments of its interface's MTU and, where those do
/// not pass, with small ones; then all paths that passed data at the same time. Returns the
/// measurements, and the rate of each path while all sent.
///
/// # Errors
/// As [`probe`].
pub(crate) async fn probe_each_and_all(
    terms: &Terms,
) -> Result<(Vec<PathProbe>, Vec<Rate>), Error> {
    let connector = connector(terms)?;
    let keeper = Keeper::plan(terms, &[PlanKind::Tcp], Events::new()).await?;
    let mut announced = Vec::new();
    let mut probes = Vec::new();
    for plan in &keeper.plans() {
        probes.push(probe_segments(plan, &connector, terms, &mut announced).await?);
    }
    let plans = with_announced(&keeper, &announced).await;
    for plan in &plans[probes.len()..] {
        probes.push(probe_segments(plan, &connector, terms, &mut announced).await?);
    }
    for (plan, found) in plans.iter().zip(&mut probes) {
        if found.carries.is_err() && !announced.is_empty() {
            *found = probe_segments(plan, &connector, terms, &mut announced).await?;
        }
    }
    let mut together = vec![Rate::ZERO; plans.len()];
    let mut measuring = JoinSet::new();
    for (index, (plan, found)) in plans.into_iter().zip(&probes).enumerate() {
        if found.carries.is_ok() {
            let (connector, terms, small) =
                (connector.clone(), terms.clone(), found.small_segments_only);
            measuring.spawn(async move {
                let best = plan.best()?;
                let mut conn = connector.open_once(&plan, best, small).await.ok()?.conn;
                let carries = measure(&plan, &mut conn, &terms, &mut Vec::new()).await.ok()?;
                Some((index, carries.rate))
            });
        }
    }
    while let Some(measured) = measuring.join_next().await {
        if let Some((index, rate)) = measured.expect("measuring does not panic") {
            together[index] = rate;
        }
    }
    Ok((probes, together))
}

/// Tries each address of a path with large segments, then with small ones, until data passes.
async fn probe_segments(
    plan: &Plan,
    connector: &Connector,
    terms: &Terms,
    announced: &mut Vec<SocketAddr>,
) -> Result<PathProbe, Error> {
    plan.learn(announced);
    let mut found = unmeasured(plan);
    let Some(candidate) = plan.best().filter(|_| !found.used_up) else { return Ok(found) };
    for small_segments_only in [false, true] {
        let carries =
            match timeout(SOON, connector.open_once(plan, candidate, small_segments_only)).await {
                Ok(Ok(Opened { mut conn, local, .. })) => {
                    plan.prefer(candidate);
                    found.local = local;
                    measure(plan, &mut conn, terms, announced).await
                }
                Ok(Err(error @ Error::WrongPeer { .. })) => return Err(error),
                Ok(Err(Error::NoPath { why, .. })) => Err(why),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err(format!("no answer within {SOON:?}")),
            };
        if carries.is_ok() || !small_segments_only {
            found.carries = carries;
        }
        if found.carries.is_ok() {
            found.small_segments_only = small_segments_only;
            break;
        }
    }
    Ok(found)
}

/// Measures a path over `conn`, and counts the bytes towards its caps.
async fn measure(
    plan: &Plan,
    conn: &mut Conn,
    terms: &Terms,
    announced: &mut Vec<SocketAddr>,
) -> Result<Carries, String> {
    let measured = timeout(PATIENCE, flow(conn, terms, announced)).await;
    count_towards_cap(plan, conn);
    measured.unwrap_or(Err(ConnError::Silent(PATIENCE))).map_err(|error| error.to_string())
}

/// Sends for [`LENGTH`], and takes the rate from the peer's acknowledgements.
async fn flow(
    conn: &mut Conn,
    terms: &Terms,
    announced: &mut Vec<SocketAddr>,
) -> Result<Carries, ConnError> {
    let hello = Hello::new(PROBE, terms.to[0].1.secret(), terms.run);
    conn.push(&SessionFrame::Hello(hello));
    conn.flush().await?;
    let addresses = conn.receive(|frame| match SessionFrame::try_from(frame)? {
        SessionFrame::Welcome(welcome) => Ok(welcome.addresses),
        SessionFrame::Abort(_, text) => Err(ConnError::Io(std::io::Error::other(text))),
        other => Err(ConnError::unexpected(&other)),
    });
    *announced = addresses.await?;
    let payload = vec![0; CHUNK];
    let start = Instant::now();
    let mut settled: Option<(Instant, u64)> = None;
    let mut last = (start, 0);
    let mut longest = Duration::ZERO;
    while start.elapsed() < LENGTH {
        if conn.try_flush()? && conn.unsent()? < UNSENT {
            conn.push(&SessionFrame::Probe(&payload));
            continue;
        }
        tokio::select! {
            ready = conn.ready() => ready?,
            () = sleep(Duration::from_millis(2)) => {}
        }
        longest = longest.max(conn.counters()?.rtt);
        conn.try_fill(CHUNK)?;
        while let Some(frame) = conn.next_frame()? {
            if let SessionFrame::Pong(bytes) = SessionFrame::try_from(frame)? {
                last = (Instant::now(), bytes);
            }
        }
        if settled.is_none() && start.elapsed() >= SETTLED {
            settled = Some(last);
        }
        if conn.is_closed() {
            return Err(ConnError::Closed);
        }
    }
    let info = conn.counters()?;
    let (since, before) = settled.unwrap_or((start, 0));
    let span = Span::from(last.0.saturating_duration_since(since));
    conn.close();
    if span == Span::ZERO {
        return Err(ConnError::Silent(LENGTH.saturating_sub(SETTLED)));
    }
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let loss = info.retransmits as f64 / info.data_segments_out.max(1) as f64;
    let share = |held: Duration| held.as_secs_f64() / info.busy.as_secs_f64().max(1e-3);
    Ok(Carries {
        rtt: Span::from(info.min_rtt),
        queue: Span::from(longest.saturating_sub(info.min_rtt)),
        rate: Bytes(last.1 - before) / span,
        loss,
        held_by_send_buffer: share(info.held_by_send_buffer),
        held_by_receiver: share(info.held_by_receiver),
    })
}
