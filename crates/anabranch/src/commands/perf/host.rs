//! The side that listens: it prints its addresses and token, and then what it measured.

use std::future::pending;

use diagnose::measure::Measuring;
use events::Event;
use files::Error;
use peer::host::{Carriers, Host, Services};
use peer::{DEFAULT_PORT, ListenOptions, Peer, Token};

use super::PerfArgs;
use crate::dirs::Dirs;
use crate::exit::Failure;
use crate::host_key::HostKey;
use crate::listen::{further_ports, socket_addresses};
use crate::peers::Authorized;
use crate::transfer;
use crate::watch::{DisplayArgs, PeerCommand};

/// Listens until it is killed.
pub(super) fn run(args: &PerfArgs) -> Result<(), Failure> {
    let dirs = Dirs::from_env();
    let key = HostKey::load(&dirs)?;
    let authorized = Authorized::load(&dirs)?;
    if args.no_token && !authorized.peers.any(Peer::may_send) {
        let text = "--no-token, but no sender is trusted: add one with 'anabranch keys trust \
                    sender FINGERPRINT'";
        return Err(Error::usage(text).into());
    }
    let identity = if args.no_token { key.lasting() } else { key.or_temporary_with_notice() }?;
    let token = if args.no_token { None } else { Some(Token::generate(&identity)?) };
    let port = args.port.unwrap_or(DEFAULT_PORT);
    let options = ListenOptions {
        addresses: socket_addresses(&args.address, port),
        port,
        further_ports: further_ports(args.port, &args.address),
        token: token.clone(),
        authorized: authorized.peers.clone(),
        qlog: args.qlog.open(None)?,
        ..ListenOptions::new(identity)
    };
    let watcher = DisplayArgs::of(args.json).watcher(token, Some(PEER_COMMAND));
    transfer::serve(watcher, |events| async move {
        let stripe = stripe::Options::default();
        let host = Host::bind(options, Carriers::Both, &stripe, events.clone())?;
        events.send(Event::Listening { addresses: host.addresses() });
        let _hosting = host.serve(Services::new().with(&Measuring::new(events.clone())))?;
        authorized.follow(events, pending()).await
    })
}

/// What the other machine runs.
const PEER_COMMAND: PeerCommand = PeerCommand { before: "anabranch perf", after: "" };
