//! `serve-tunnel`: dials targets for hosts that are allowed to reach them.

use std::sync::Arc;

use events::Event;
use files::Error;
use peer::host::{Carriers, Host, Meetings, Services};
use peer::striped::total_rate;
use peer::{ListenOptions, Timetable};
use reach::{ListenRights, Reach};
use tunnel::bounds::stripe_options;
use tunnel::{TunnelRights, TunnelService};

use super::{bounded, stopped};
use crate::background::{BackgroundArgs, step_back};
use crate::complete;
use crate::dirs::Dirs;
use crate::examples;
use crate::exit::Failure;
use crate::host_key::HostKey;
use crate::listen::{ListenFlags, TokenFlags};
use crate::peers::Authorized;
use crate::qlog::QlogArgs;
use crate::signals::Signals;
use crate::transfer;
use crate::via::{self, ViaSpec, invited_by, relays_to_wait_at};
use crate::watch::{DisplayArgs, PeerCommand};

/// Arguments of `serve-tunnel`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = examples::help("serve-tunnel"))]
pub(crate) struct ServeTunnelArgs {
    #[command(flatten)]
    listen: ListenFlags,
    #[command(flatten)]
    token: TokenFlags,
    /// A relay at which to wait too, for hosts in other networks; may be repeated
    #[arg(
        long,
        value_name = "HOST[:PORT][,FINGERPRINT][,token-file=FILE]",
        add = complete::receivers()
    )]
    via: Vec<ViaSpec>,
    /// What the token's holder may reach: HOST:PORTS with a name, *.DOMAIN, an address, a network
    /// or *; may be repeated
    #[arg(long, value_name = "HOST:PORTS")]
    permit: Vec<Reach>,
    /// The ports of this host at which the token's holder may listen (-R), on loopback unless an
    /// address is named; may be repeated
    #[arg(long, value_name = "[ADDR:]PORTS")]
    permit_listen: Vec<ListenRights>,
    /// The maximum rate of what is sent from here, to all hosts and over all paths together: a
    /// rate, or a timetable as for 'send'
    #[arg(long, value_name = "RATE|TIMETABLE")]
    max_rate: Option<Timetable>,
    #[command(flatten)]
    background: BackgroundArgs,
    #[command(flatten)]
    qlog: QlogArgs,
    #[command(flatten)]
    display: DisplayArgs,
}

impl ServeTunnelArgs {
    /// Whether events are written as JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.display.is_json()
    }
}

/// `anabranch serve-tunnel`.
///
/// # Errors
/// Errors of reading the lists and of listening.
pub(crate) fn run(args: ServeTunnelArgs) -> Result<(), Failure> {
    let dirs = Dirs::from_env();
    let authorized = Authorized::load(&dirs)?;
    let reach = args.permit.into_iter().fold(Reach::default(), Reach::and);
    let ports = args.permit_listen.into_iter().fold(ListenRights::default(), ListenRights::and);
    check(args.token.is_given(), &reach, &ports, &authorized)?;
    let (identity, token) = args.token.make(HostKey::load(&dirs)?)?;
    let relays = relays_to_wait_at(&args.via, &identity, &dirs)?;
    let effort = args.background.effort()?.unwrap_or_default();
    step_back(effort);
    let listen = ListenOptions {
        authorized: authorized.peers.clone(),
        qlog: args.qlog.open(None)?,
        effort,
        ..args.listen.options((&[], None), (identity, token.clone()))
    };
    let (display, table) = (args.display, args.max_rate);
    let total = table.as_ref().map(total_rate);
    let stripe = stripe::Options { max_rate: total.clone(), ..stripe_options() };
    let met_by = token.clone();
    let watcher = display.watcher(token, Some(PEER_COMMAND));
    transfer::serve(watcher, |events| async move {
        let mut signals = Signals::new()?;
        let host = Host::bind(listen, Carriers::Udp, &stripe, events.clone())?;
        let meeting = via::wait(relays, invited_by(met_by.as_ref()), &events)?;
        let host = host.meeting(meeting.clone().map(|meeting| meeting as Arc<dyn Meetings>));
        events.send(Event::Listening { addresses: host.addresses() });
        let service = TunnelService::new(TunnelRights { reach, listen: ports }, events.clone());
        let hosting = host.serve(Services::new().with(&service))?;
        let serving = authorized.follow(events.clone(), std::future::pending::<()>());
        let serving = bounded(table.as_ref(), total.as_ref(), &events, serving);
        let signal = tokio::select! {
            signal = signals.next() => signal,
            () = serving => unreachable!("it serves until it is dropped"),
        };
        hosting.close().await;
        // It waits until then.
        drop(meeting);
        Err(stopped(signal))
    })
}

/// What the other machine runs.
const PEER_COMMAND: PeerCommand =
    PeerCommand { before: "anabranch tunnel", after: " --socks 1080" };

/// Checks that somebody may reach something.
fn check(
    wants_token: bool,
    reach: &Reach,
    ports: &ListenRights,
    authorized: &Authorized,
) -> Result<(), Error> {
    let has_rights = |peer: &peer::Peer| !TunnelRights::of(peer).is_empty();
    let permits = !reach.is_empty() || !ports.is_empty();
    match (wants_token, permits) {
        (true, false) => Err(Error::usage(
            "the token's holder may reach nothing: add --permit '*:443', or --permit \
             db.internal:5432, or --permit-listen 2222",
        )),
        (false, true) => Err(Error::usage(
            "--permit and --permit-listen are for the holder of a token: add --token, or use \
             'anabranch keys trust sender' with --tunnel",
        )),
        (false, false) if !authorized.peers.any(has_rights) => Err(Error::usage(
            "no host may reach anything from here: 'anabranch keys trust sender FINGERPRINT NAME \
             --may none --tunnel HOST:PORT' allows the host with that key ('anabranch keys' prints \
             it there); or use --token and --permit",
        )),
        _ => Ok(()),
    }
}
