//! A relay for the paths of a session: it is connected to once the first of them is planned.

use std::fmt;
use std::sync::{Arc, Mutex};

use peer::carrier::Carrier;
use peer::{Error, Leading, Relaying, Remote};
use reach::parse_target;
use wire::tunnel::Target;

use super::{Client, ClientOptions};

/// A relay in use by the paths of a session, whatever hosts these lead to.
pub struct RelayDialing {
    options: ClientOptions,
    client: Mutex<Option<Arc<Client>>>,
}

impl RelayDialing {
    /// A relay that is not connected to yet.
    #[must_use]
    pub fn new(options: ClientOptions) -> RelayDialing {
        RelayDialing { options, client: Mutex::default() }
    }
}

impl RelayDialing {
    /// The connection to the relay, and a host as its destination.
    fn client(&self, to: &Remote) -> Result<(Arc<Client>, Target), Error> {
        let text = to.to_string();
        let target = parse_target(&text).map_err(|_| {
            Error::Usage(format!("a relay cannot reach {text}: it needs a name or an address"))
        })?;
        let mut client = self.client.lock().expect("no panic while held");
        let client = match &*client {
            Some(client) => Arc::clone(client),
            None => Arc::clone(client.insert(Client::start(self.options.clone())?)),
        };
        Ok((client, target))
    }
}

impl Relaying for RelayDialing {
    fn carrier(&self, to: &Remote) -> Result<Arc<dyn Carrier>, Error> {
        let (client, target) = self.client(to)?;
        Ok(Arc::new(client.to(target)))
    }

    fn leading(&self, to: &Remote) -> Result<Arc<dyn Leading>, Error> {
        let (client, target) = self.client(to)?;
        Ok(Arc::new(client.associate(Some(target))))
    }
}

impl fmt::Debug for RelayDialing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RelayDialing").field(&self.options.dial).finish()
    }
}
