//! What the sessions of a gateway share.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use events::Events;
use peer::{AuthorizedPeers, Error, Fingerprint, Identity, Peer, RelayOptions, RelaySpec};
use reach::Network;
use stripe::{Connection, Endpoint};
use tokio::sync::{Notify, watch};
use wire::closing::CloseCode;

use crate::config::{Background, SiteConfig};
use crate::device::{Device, LEAST_V6};
use crate::guest::SharedPlane;
use crate::plane::SiteId;
use crate::present::{Present, permitted};
use crate::rights::GatewayRights;
use crate::sites::{Sites, SitesChange};

/// What opens paths over the relays of a site.
pub type FindRelays = Box<dyn Fn(&[RelaySpec]) -> Result<Vec<RelayOptions>, Error> + Send + Sync>;

/// What sessions share.
pub(crate) struct Shared {
    pub(crate) plane: SharedPlane,
    pub(crate) device: Device,
    /// The networks behind this gateway.
    pub(crate) networks: watch::Sender<Vec<Network>>,
    /// The bit that marks packets and connections.
    pub(crate) mark: u32,
    /// What is background, as it was read last.
    pub(crate) background: watch::Sender<Vec<Background>>,
    pub(crate) events: Events,
    /// This host's key.
    pub(crate) own: Fingerprint,
    pub(crate) identity: Identity,
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) sites: Mutex<Sites>,
    /// Counts the times that the sites of the file have changed.
    pub(crate) sites_changed: watch::Sender<u64>,
    pub(crate) authorized: AuthorizedPeers,
    pub(crate) find_relays: FindRelays,
    pub(crate) present: Mutex<Vec<Option<Present>>>,
    /// Rings when a session has ended.
    pub(crate) left: Notify,
}

impl Shared {
    /// A session takes the place of its site; `false`: the present one stays.
    pub(crate) fn enter(&self, site: SiteId, session: Present) -> bool {
        let mut present = self.present.lock().expect("no panic while held");
        let Some(place) = present.get_mut(site.0) else { return false };
        if place.as_ref().is_some_and(|present| !present.gives_way_to(&session)) {
            return false;
        }
        if let Some(before) = place.replace(session) {
            before.connection.close(CloseCode::Replaced.number());
        }
        true
    }

    /// A session has ended; `false`: another one has its place already.
    pub(crate) fn leave(&self, site: SiteId, connection: &Connection) -> bool {
        let mut present = self.present.lock().expect("no panic while held");
        let Some(place) = present.get_mut(site.0) else { return false };
        let is_own = place.as_ref().is_some_and(|present| present.connection == *connection);
        if is_own {
            *place = None;
            self.left.notify_waiters();
        }
        is_own
    }

    /// The networks of an announcement that a site may speak for; the others are told.
    pub(crate) fn permitted(
        &self,
        site: SiteId,
        peer: &Peer,
        announced: &[(IpAddr, u8)],
    ) -> Vec<Network> {
        let configured = self.sites.lock().expect("no panic while held").networks(site);
        let own = self.networks.borrow().clone();
        let (taken, refused) = permitted(announced, &GatewayRights::of(peer), &configured, &own);
        if !refused.is_empty() {
            let (name, all) = (peer.label(), refused.join(", "));
            self.events.notice(format!(
                "{name} announces {all}, for which it may not speak: its entry among the \
                 authorized peers and its [[site]] have to name them, and they are not behind \
                 this gateway"
            ));
        }
        taken
    }

    /// Fits the device to the least room of all sites' paths.
    pub(crate) fn fit_device(&self) {
        let least = {
            let plane = self.plane.lock();
            let count = self.present.lock().expect("no panic while held").len();
            (0..count).filter_map(|site| plane.room(SiteId(site))).min()
        };
        let Some(least) = least else { return };
        let said = match self.device.set_mtu(least) {
            Ok(None) => return,
            Ok(Some(true)) => "IPv6 goes to the gateways of sites again".to_owned(),
            Ok(Some(false)) => format!(
                "IPv6 takes the normal route: it needs packets of {LEAST_V6} octets, and the paths \
                 carry {least} at present"
            ),
            Err(error) => format!("the device does not take packets of {least} octets: {error}"),
        };
        self.events.notice(said);
    }

    /// The site of an authorized peer.
    pub(crate) fn site_of(&self, peer: &Peer) -> Option<SiteId> {
        let key = peer.fingerprint.to_string();
        let sites = self.sites.lock().expect("no panic while held");
        let mut present = sites.present();
        let found = present.find(|(_, site)| site.name == key || site.name == peer.name);
        found.map(|(site, _)| site)
    }

    /// Takes over the sites of a file: sessions of those that are gone end, others hear of it.
    pub(crate) fn update_sites(&self, sites: Vec<SiteConfig>) {
        let mut known = self.sites.lock().expect("no panic while held");
        let SitesChange { added, ended } = known.update(sites);
        let further = added.len();
        let mut plane = self.plane.lock();
        for name in added {
            plane.add(name);
        }
        drop(plane);
        let mut present = self.present.lock().expect("no panic while held");
        present.extend((0..further).map(|_| None));
        for site in ended {
            if let Some(present) = &present[site.0] {
                present.connection.close(CloseCode::Stopped.number());
            }
        }
        drop((known, present));
        self.sites_changed.send_modify(|count| *count += 1);
    }

    /// The entry of a site's gateway among the authorized peers.
    pub(crate) fn peer_of(&self, name: &str) -> Result<Peer, Error> {
        let all = self.authorized.all();
        let found =
            all.into_iter().find(|peer| peer.name == name || peer.fingerprint.to_string() == name);
        found.ok_or_else(|| {
            Error::Usage(format!(
                "no authorized peer has the name '{name}': 'anabranch keys trust sender \
                 FINGERPRINT {name} --gateway NETWORKS' adds the gateway of that site"
            ))
        })
    }
}
