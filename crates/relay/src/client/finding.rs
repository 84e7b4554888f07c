//! Finds out by relays what stands between this host and them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use net::Clock;
use net::interfaces::LocalPath;
use tokio::time::{sleep, timeout};
use wire::relay::SECRET;

use super::asking::{ask, open};
use super::leading::ClientLeading;
use super::translator::{Translator, TranslatorTest};
use super::{Client, ClientState};

/// The time for a relay to grant an association.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time between looks whether it has.
const LOOK: Duration = Duration::from_millis(10);

/// A relay that is asked, which this host may use.
#[derive(Debug)]
pub struct AskedRelay {
    client: Arc<Client>,
    /// Of no destination.
    leading: ClientLeading,
}

impl AskedRelay {
    /// The relay of a client.
    #[must_use]
    pub fn new(client: &Arc<Client>) -> AskedRelay {
        AskedRelay { client: Arc::clone(client), leading: client.associate(None) }
    }

    /// The number and the secret of an association.
    async fn granted(&self) -> Result<(u64, [u8; SECRET]), String> {
        loop {
            {
                let state = self.leading.0.state();
                if let Some(grant) = state.granted() {
                    return Ok((grant.id, grant.secret));
                }
                if let Some(why) = state.refusal() {
                    return Err(why.to_owned());
                }
            }
            match self.client.state() {
                ClientState::Connecting(Some(why)) | ClientState::Refused(why) => return Err(why),
                ClientState::Parting => return Err("it is being stopped".into()),
                ClientState::Connecting(None) | ClientState::Open => {}
            }
            sleep(LOOK).await;
        }
    }
}

/// Finds out what stands between a local address and relays, which this host may use, at these
/// addresses of one family: by the first one that answers, and by the others which address they
/// see.
///
/// # Errors
/// Why none of them tells, as text.
pub async fn find_translator(
    relays: &[(Arc<AskedRelay>, SocketAddr)],
    local: &LocalPath,
) -> Result<Translator, String> {
    let (mut found, mut socket, mut failures) = (None::<Translator>, None, Vec::new());
    let clock = Clock::start();
    for (asked, relay) in relays {
        let failed = |why: String| format!("{}: {why}", asked.client.dial());
        let (id, secret) = match timeout(PATIENCE, asked.granted()).await {
            Ok(Ok(grant)) => grant,
            Ok(Err(why)) => {
                failures.push(failed(why));
                continue;
            }
            Err(_) => {
                failures.push(failed("no answer".into()));
                continue;
            }
        };
        // All are asked from the same one.
        if socket.is_none() {
            let opened = open(*relay, local.address, local.device());
            socket = Some(opened.map_err(|error| failed(error.to_string()))?);
        }
        let socket = socket.as_ref().expect("it was opened");
        let own = socket.local_addr().map_err(|error| failed(error.to_string()))?;
        let grant = (id, &secret[..]);
        let mut test = match found {
            None => TranslatorTest::begin(clock.now(), grant, *relay),
            Some(_) => TranslatorTest::begin_short(clock.now(), grant, *relay),
        };
        ask(socket, clock, &mut test).await.map_err(|error| failed(error.to_string()))?;
        match (test.found(own), &mut found) {
            (Some(seen), Some(found)) => *found = found.seen_elsewhere(seen.outside),
            (Some(first), none) => *none = Some(first),
            (None, _) => failures.push(failed(
                "no answer over UDP by this interface: the port is closed to datagrams, or the \
                 relay is of an earlier version"
                    .into(),
            )),
        }
    }
    found.ok_or_else(|| failures.join("; "))
}
