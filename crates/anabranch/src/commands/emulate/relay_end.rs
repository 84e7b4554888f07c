//! `anabranch relay-end`: the relay of one node of a scenario, which `emulate` starts in the node's
//! namespace, and the client of such relays. It is the service of `anabranch relay`; its peers come
//! from the emulator.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ::relay::rights::RIGHTS;
use ::relay::{ClientOptions, RelayDialing, RelayOptions, RelayRights, RelayService};
use events::Events;
use live::{Answer, Begin, Description, FlowKey, RELAY_PORT, RelayEnd, Side, messages};
use peer::host::{Carriers, Host, Hosting, Services};
use peer::{
    AuthorizedPeers, Credential, Fingerprint, Identity, ListenOptions, May, Peer, Relaying, Remote,
    Rights,
};
use sys::clock::Clock;
use units::Time;

use crate::exit::Failure;
use crate::threads;

/// Where connections may go: to the addresses of an emulated network.
const TARGETS: &str = "10.0.0.0/8:*";
/// The interval of looks at the clock.
const LOOK: Duration = Duration::from_millis(50);

/// Runs the relay that the emulator describes on standard input, until the end of the run.
///
/// # Errors
/// [`Failure::Code`] if it cannot; the emulator says why.
pub(crate) fn run() -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    serve(&mut output).map_err(|error| {
        // Without a listener there is nobody to tell.
        let _ = messages::write(&mut output, &Answer::NoRelay { error });
        Failure::Code(10)
    })
}

fn serve(output: &mut impl io::Write) -> Result<(), String> {
    let broken = |error: io::Error| format!("the messages of the emulator: {error}");
    let mut input = io::stdin().lock();
    let Description { relay, duration, .. } = messages::read(&mut input).map_err(broken)?;
    let end: RelayEnd = relay.ok_or("the description has no relay")?;
    let identity = Identity::generate().map_err(|error| error.to_string())?;
    let key = identity.fingerprint().to_string();
    let authorized = AuthorizedPeers::default();
    let runtime = threads::runtime().map_err(|error| error.to_string())?;
    let _inside = runtime.enter();
    let _hosting = start(identity, authorized.clone()).map_err(|error| error.to_string())?;
    messages::write(output, &Answer::Relaying { key }).map_err(broken)?;
    let Begin { at, keys, .. } = messages::read(&mut input).map_err(broken)?;
    authorized.replace(peers(&end, &keys)?);
    let clock = Clock::beginning_at(Time::from_nanos(at));
    // The clock shows zero until the run begins, and sleeps may end early.
    let ends = Time::from_nanos(duration);
    while clock.now() < ends {
        thread::sleep(LOOK.min(Duration::from(ends - clock.now())));
    }
    Ok(())
}

/// Starts the service, as `anabranch relay` does. To be called inside a runtime.
fn start(identity: Identity, authorized: AuthorizedPeers) -> Result<Hosting, peer::Error> {
    let events = Events::new();
    let service = RelayService::new(RelayOptions {
        authorized: authorized.clone(),
        of_token: RelayRights::default(),
        max_rate: None,
        usage: None,
        takes_guests: false,
        events: events.clone(),
    });
    let listening = ListenOptions { authorized, port: RELAY_PORT, ..ListenOptions::new(identity) };
    // The UDP socket of the port is the relay's own.
    let host = Host::bind(listening, Carriers::Tcp, &stripe::Options::default(), events)?;
    let (addresses, port) = host.place();
    service.open_udp(&addresses, port)?;
    let hosting = host.serve(Services::new().with(&service))?;
    tokio::spawn(async move { service.attend().await });
    Ok(hosting)
}

/// The senders of the flows that it carries.
fn peers(end: &RelayEnd, keys: &[FlowKey]) -> Result<Vec<Peer>, String> {
    let senders = keys.iter().filter(|key| key.side == Side::Sender);
    let peer = |own: &FlowKey| {
        let rights = Rights::from(May::Relay).with(&RIGHTS[0], TARGETS)?;
        Ok(Peer { fingerprint: own.key.parse()?, name: own.flow.clone(), rights })
    };
    senders.filter(|key| end.flows.contains(&key.flow)).map(peer).collect()
}

/// The client of relays in a row, for the process of a host.
pub(super) fn client(identity: Identity, row: Vec<(Remote, Fingerprint)>) -> Arc<dyn Relaying> {
    let known = |(at, key): (Remote, Fingerprint)| (at, Credential::Pinned(key));
    let mut row = row.into_iter().map(known);
    let (first, credential) = row.next().expect("a path over relays has one");
    let options = ClientOptions::new(first, credential, identity);
    Arc::new(RelayDialing::through(options, row.collect()))
}
