//! What translates and filters addresses in front of this host, as relays see it: for `paths` and
//! `doctor`.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use files::Error;
use net::interfaces::{LocalPath, discover_remote};
use peer::DEFAULT_PORT;
use peer::dial::resolve;
use relay::{AskedRelay, Client, ClientOptions, Translator, find_translator};
use tokio::task::JoinSet;

/// What stands in front of one local address.
pub(crate) struct Front {
    pub(crate) interface: String,
    pub(crate) local: IpAddr,
    /// Why it is not known, otherwise.
    pub(crate) found: Result<Translator, String>,
}

impl Front {
    /// What would open a way for all, where there is none.
    pub(crate) fn remedy(&self) -> Option<String> {
        self.found.as_ref().ok()?.remedy(SocketAddr::new(self.local, DEFAULT_PORT))
    }
}

/// What relays say.
pub(crate) struct Fronts {
    /// For each local address that reaches the first relay of its family.
    pub(crate) fronts: Vec<Front>,
    /// Relays whose names lead nowhere, and why.
    pub(crate) unreached: Vec<(String, String)>,
}

/// Asks relays, which this host may use.
///
/// # Errors
/// [`Error::System`] if the kernel cannot be asked, or the library refuses the own key.
pub(crate) async fn find(relays: Vec<ClientOptions>) -> Result<Fronts, Error> {
    let mut reached: Vec<(Arc<AskedRelay>, Vec<SocketAddr>)> = Vec::new();
    let mut unreached = Vec::new();
    for options in relays {
        match resolve(&options.dial).await {
            Ok(addresses) => {
                let asked = AskedRelay::new(&Client::start(options)?);
                reached.push((Arc::new(asked), addresses));
            }
            Err(error) => unreached.push((options.dial.to_string(), error.to_string())),
        }
    }
    let mut asking = JoinSet::new();
    for is_v4 in [true, false] {
        let of_family = |(asked, addresses): &(Arc<AskedRelay>, Vec<SocketAddr>)| {
            let first = addresses.iter().find(|address| address.is_ipv4() == is_v4)?;
            Some((Arc::clone(asked), *first))
        };
        let relays: Vec<_> = reached.iter().filter_map(of_family).collect();
        let Some((_, first)) = relays.first() else { continue };
        let locals = discover_remote(*first).map_err(peer::Error::from)?.usable;
        for local in locals {
            asking.spawn(front(relays.clone(), local));
        }
    }
    let mut fronts = asking.join_all().await;
    fronts.sort_by_key(|(index, front)| (*index, front.local));
    let fronts = fronts.into_iter().map(|(_, front)| front).collect();
    Ok(Fronts { fronts, unreached })
}

async fn front(relays: Vec<(Arc<AskedRelay>, SocketAddr)>, local: LocalPath) -> (u32, Front) {
    let found = find_translator(&relays, &local).await;
    let LocalPath { interface, index, address, .. } = local;
    (index, Front { interface, local: address, found })
}
