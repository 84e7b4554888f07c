//! A relay for the paths of a session: it is connected to once the first of them is planned.

use std::fmt;
use std::sync::{Arc, Mutex};

use peer::carrier::Carrier;
use peer::{Credential, Error, Leading, Relaying, Remote};
use reach::parse_target;
use wire::tunnel::Target;

use super::chain::ChainLeading;
use super::{Client, ClientOptions};

/// A relay in use by the paths of a session, whatever hosts these lead to.
pub struct RelayDialing {
    options: ClientOptions,
    /// The relays behind it, each a destination of the one before.
    further: Vec<(Remote, Credential)>,
    /// The connections to all of them, in this order.
    clients: Mutex<Vec<Arc<Client>>>,
}

impl RelayDialing {
    /// A relay that is not connected to yet.
    #[must_use]
    pub fn new(options: ClientOptions) -> RelayDialing {
        RelayDialing { options, further: Vec::new(), clients: Mutex::default() }
    }

    /// The last one of several relays, each behind the one before: none is connected to yet.
    #[must_use]
    pub fn through(first: ClientOptions, further: Vec<(Remote, Credential)>) -> RelayDialing {
        RelayDialing { further, ..RelayDialing::new(first) }
    }

    /// The connections to the relays, and what is the destination of each.
    fn hops(&self, to: &Remote) -> Result<Vec<(Arc<Client>, Target)>, Error> {
        let mut targets = Vec::new();
        for to in self.further.iter().map(|(relay, _)| relay).chain([to]) {
            let text = to.to_string();
            targets.push(parse_target(&text).map_err(|_| {
                Error::Usage(format!("a relay cannot reach {text}: it needs a name or an address"))
            })?);
        }
        let mut clients = self.clients.lock().expect("no panic while held");
        if clients.is_empty() {
            let mut all = vec![Client::start(self.options.clone())?];
            for ((_, credential), own) in self.further.iter().zip(&targets) {
                let before = all.last().expect("the first one");
                let (credential, identity) = (credential.clone(), self.options.identity.clone());
                let options = ClientOptions::behind(before, own, credential, identity);
                all.push(Client::start(options)?);
            }
            *clients = all;
        }
        Ok(clients.iter().cloned().zip(targets).collect())
    }
}

impl Relaying for RelayDialing {
    fn carrier(&self, to: &Remote) -> Result<Arc<dyn Carrier>, Error> {
        let (client, target) = self.hops(to)?.pop().expect("there is one");
        Ok(Arc::new(client.to(target)))
    }

    fn leading(&self, to: &Remote) -> Result<Arc<dyn Leading>, Error> {
        let hops = self.hops(to)?;
        let mut all = hops.into_iter().map(|(client, target)| client.associate(Some(target)));
        if self.further.is_empty() {
            return Ok(Arc::new(all.next().expect("there is one")));
        }
        let chain = ChainLeading::new(all.collect()).expect("new associations have room");
        Ok(Arc::new(chain))
    }
}

impl fmt::Debug for RelayDialing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RelayDialing").field(&self.options.dial).finish()
    }
}
