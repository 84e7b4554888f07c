//! The side that listens: it prints its addresses and token, and then what it measured.

use std::sync::Arc;

use diagnose::measure::Measuring;
use files::Error;
use peer::host::{Carriers, Host, Services, Tell};
use peer::{DEFAULT_PORT, ListenOptions, Peer, Token};
use serde_json::json;
use tokio::sync::mpsc;

use super::PerfArgs;
use super::show::VERSION;
use crate::commands::paths::runtime;
use crate::dirs::Dirs;
use crate::exit::Failure;
use crate::host_key::HostKey;
use crate::listen::{further_ports, socket_addresses};
use crate::peers::Authorized;
use crate::sanitize::clean_lines;

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
    runtime()?.block_on(async {
        let (events, mut heard) = mpsc::unbounded_channel::<String>();
        // The other end lasts as long as the host.
        let tell: Tell = Arc::new(move |text| drop(events.send(text)));
        let stripe = stripe::Options::default();
        let host = Host::bind(options, Carriers::Both, &stripe, Arc::clone(&tell))?;
        announce(args.json, &host, token.as_ref());
        let _hosting = host.serve(Services::new().with(&Measuring::new(tell)))?;
        let (changes, mut notices) = mpsc::unbounded_channel();
        let listening = async {
            loop {
                tokio::select! {
                    Some(text) = heard.recv() => say(args.json, &text),
                    Some(event) = notices.recv() => {
                        if let files::Event::Notice { text } = event {
                            say(args.json, &text);
                        }
                    }
                    else => return,
                }
            }
        };
        authorized.follow(changes, listening).await;
        Ok(())
    })
}

fn announce(is_json: bool, host: &Host, token: Option<&Token>) {
    let addresses: Vec<String> = host.addresses().iter().map(ToString::to_string).collect();
    if is_json {
        if let Some(token) = token {
            outln!("{}", json!({ "v": VERSION, "event": "token", "token": token.reveal() }));
        }
        let listening = json!({ "v": VERSION, "event": "listening", "addresses": addresses });
        outln!("{listening}");
        return;
    }
    for address in addresses {
        outln!("listening {address}");
    }
    if let Some(token) = token {
        outln!("\non the other host, 'anabranch perf HOST' asks for this token:\n");
        outln!("{}", token.reveal());
    }
}

fn say(is_json: bool, text: &str) {
    if is_json {
        outln!("{}", json!({ "v": VERSION, "event": "notice", "text": text }));
    } else {
        outln!("{}", clean_lines(text));
    }
}
