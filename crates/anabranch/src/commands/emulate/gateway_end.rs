//! `anabranch gateway-end`: the background gateway of one node of a scenario, which `emulate`
//! starts in the node's namespace. It is the service of `anabranch gateway` under the rules of
//! `gateway rules --install`; its file and its peers come from the emulator.

use std::fmt::Write as _;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ::gateway::{GatewayConfig, GatewayOptions, GatewayService, Rules, SiteFigures};
use ::gateway::{rights, stripe_options};
use events::Events;
use live::{
    Answer, Begin, Description, GatewayEnd, GatewayPath, GatewayResult, GatewaySite, Meet,
    WaitCount, messages,
};
use peer::host::{Carriers, Host, Hosting, Services};
use peer::{AuthorizedPeers, Identity, ListenOptions, Peer, Rights};
use sys::clock::Clock;
use units::{Span, Time};

use crate::exit::Failure;
use crate::threads;

/// The time in which every path has to be there.
const READY_LIMIT: Duration = Duration::from_secs(20);
/// The interval of looks at what is there.
const LOOK: Duration = Duration::from_millis(50);

/// Runs the gateway that the emulator describes on standard input, until the end of the run.
///
/// # Errors
/// [`Failure::Code`] if it cannot; the emulator says why.
pub(crate) fn run() -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    serve(&mut output).map_err(|error| {
        // Without a listener there is nobody to tell.
        let _ = messages::write(&mut output, &Answer::NoGateway { error });
        Failure::Code(10)
    })
}

fn serve(output: &mut impl io::Write) -> Result<(), String> {
    let broken = |error: io::Error| format!("the messages of the emulator: {error}");
    let mut input = io::stdin().lock();
    let Description { gateway, duration, .. } = messages::read(&mut input).map_err(broken)?;
    let end: GatewayEnd = gateway.ok_or("the description has no gateway")?;
    let identity = Identity::generate().map_err(|error| error.to_string())?;
    let key = identity.fingerprint().to_string();
    messages::write(output, &Answer::Listening { key }).map_err(broken)?;
    let Meet { keys } = messages::read(&mut input).map_err(broken)?;
    let config: GatewayConfig = file(&end).parse()?;
    Rules::new(&config).install()?;
    let peers = peers(&end, &keys)?;
    let runtime = threads::runtime().map_err(|error| error.to_string())?;
    let started = runtime.block_on(start(config, identity, peers));
    let (service, _hosting) = started.map_err(|error| error.to_string())?;
    wait_for_paths(&service, &end)?;
    messages::write(output, &Answer::Ready { keys: Vec::new() }).map_err(broken)?;
    let Begin { at, .. } = messages::read(&mut input).map_err(broken)?;
    let clock = Clock::beginning_at(Time::from_nanos(at));
    // The clock shows zero until the run begins, and sleeps may end early.
    let ends = Time::from_nanos(duration);
    while clock.now() < ends {
        thread::sleep(LOOK.min(Duration::from(ends - clock.now())));
    }
    for site in service.figures() {
        messages::write(output, &Answer::Carried(result(&site))).map_err(broken)?;
    }
    Ok(())
}

/// Starts the service, as `anabranch gateway` does.
async fn start(
    config: GatewayConfig,
    identity: Identity,
    authorized: AuthorizedPeers,
) -> Result<(Arc<GatewayService>, Hosting), peer::Error> {
    let events = Events::new();
    let listening =
        ListenOptions { authorized: authorized.clone(), ..ListenOptions::new(identity.clone()) };
    let host = Host::bind(listening, Carriers::Udp, &stripe_options(), events.clone())?;
    let endpoint = host.endpoint().expect("it listens with UDP");
    let service = GatewayService::start(GatewayOptions {
        config,
        identity,
        authorized,
        endpoint,
        events,
        // Paths of a scenario are links; it has no relays to ask.
        relays: Box::new(|_| Ok(Vec::new())),
    })
    .await?;
    let hosting = host.serve(Services::new().with(&service))?;
    let dialing = Arc::clone(&service);
    tokio::spawn(async move { dialing.attend().await });
    Ok((service, hosting))
}

/// The file of the gateway. Connections between hosts of flows are background, and go nowhere while
/// the other gateway does not answer: there is no usual route.
fn file(end: &GatewayEnd) -> String {
    let mut text = format!("fail = \"closed\"\nnetworks = [{}]\n", list(&end.hosts));
    for GatewaySite { gateway, hosts, at, .. } in &end.sites {
        let far = list(hosts);
        write!(text, "[[site]]\nname = {gateway:?}\nnetworks = [{far}]\n").expect("a string");
        if let Some(at) = at {
            writeln!(text, "at = \"{at}\"").expect("a string");
        }
    }
    for GatewaySite { hosts, .. } in &end.sites {
        let far = list(hosts);
        writeln!(text, "[[background]]\nto = [{far}]").expect("a string");
    }
    text
}

/// Addresses as a list of TOML.
fn list(addresses: &[Ipv4Addr]) -> String {
    let quoted: Vec<String> = addresses.iter().map(|address| format!("\"{address}/32\"")).collect();
    quoted.join(", ")
}

/// The gateways at the other ends, each with the right to speak for what is behind it.
fn peers(end: &GatewayEnd, keys: &[String]) -> Result<AuthorizedPeers, String> {
    let peer = |(site, key): (&GatewaySite, &String)| {
        let networks: Vec<String> = site.hosts.iter().map(|host| format!("{host}/32")).collect();
        let rights = Rights::default().with(&rights::RIGHTS[0], &networks.join(","))?;
        Ok(Peer { fingerprint: key.parse()?, name: site.gateway.clone(), rights })
    };
    end.sites.iter().zip(keys).map(peer).collect::<Result<_, String>>().map(AuthorizedPeers::new)
}

/// Waits until every path to every other end is there, and packets are led to them.
fn wait_for_paths(service: &GatewayService, end: &GatewayEnd) -> Result<(), String> {
    let limit = Instant::now() + READY_LIMIT;
    loop {
        let figures = service.figures();
        let Some(why) = end.sites.iter().find_map(|site| missing(site, &figures)) else {
            return Ok(());
        };
        if Instant::now() >= limit {
            return Err(format!("{why} after {} s", READY_LIMIT.as_secs()));
        }
        thread::sleep(LOOK);
    }
}

/// What is not there yet for a pair.
fn missing(site: &GatewaySite, figures: &[SiteFigures]) -> Option<String> {
    let name = &site.gateway;
    let Some(known) = figures.iter().find(|known| known.name == *name && known.is_answering) else {
        return Some(format!("the other gateway of '{name}' does not answer"));
    };
    let (paths, wanted) = (known.paths.len(), site.paths);
    if paths != wanted {
        return Some(format!("'{name}' has {paths} paths of {wanted}"));
    }
    (!known.is_led).then(|| format!("packets are not led to '{name}'"))
}

fn result(site: &SiteFigures) -> GatewayResult {
    let counters = site.counters();
    let counter =
        |name: &str| counters.iter().find(|(own, _)| *own == name).map_or(0, |(_, value)| *value);
    GatewayResult {
        gateway: site.name.clone(),
        node: String::new(),
        sent: [counter("sent_packets"), counter("sent_octets")],
        received: [counter("received_packets"), counter("received_octets")],
        arrived: site.arrivals.packets,
        reordered: site.arrivals.waited,
        gaps: site.arrivals.lost,
        waits: site
            .arrivals
            .waits
            .buckets()
            .map(|(below, packets)| WaitCount { below_us: below.map(Span::as_micros), packets })
            .collect(),
        expired: site.arrivals.waits.expired(),
        paths: site
            .paths
            .iter()
            .map(|path| GatewayPath {
                window: path.window,
                round_trip_us: path.round_trip.map(Span::as_micros),
                decreases: path.falls.decreases,
                chokes: path.falls.chokes,
            })
            .collect(),
    }
}
