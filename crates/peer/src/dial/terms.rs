//! What a session asks of its paths, whatever it carries.

use std::sync::Arc;

use crate::carrier::{Carrier, Tcp};
use crate::tls::ClientTls;
use crate::{Credential, DialOptions, Error, Remote};

/// The hosts of a session, and how they are dialled.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The hosts to connect to, and how each is known.
    pub to: Vec<(Remote, Credential)>,
    /// As whom, over which paths, and how fast.
    pub options: DialOptions,
    /// What the paths are made of.
    pub carrier: Arc<dyn Carrier>,
}

impl Terms {
    /// Paths to these hosts over kernel TCP.
    #[must_use]
    pub fn new(to: Vec<(Remote, Credential)>, options: DialOptions) -> Terms {
        Terms { to, options, carrier: Arc::new(Tcp) }
    }

    /// The same over another carrier.
    #[must_use]
    pub fn over(self, carrier: Arc<dyn Carrier>) -> Terms {
        Terms { carrier, ..self }
    }

    /// A host's name for people, with the port where that tells it from another one.
    #[must_use]
    pub fn label(&self, host: usize) -> String {
        let remote = &self.to[host].0;
        let alone = self.to.iter().filter(|(other, _)| other.host == remote.host).count() == 1;
        if alone { remote.host.clone() } else { remote.to_string() }
    }

    /// The hosts' names, for messages.
    #[must_use]
    pub fn hosts(&self) -> String {
        self.to.iter().map(|(remote, _)| remote.to_string()).collect::<Vec<_>>().join(", ")
    }

    /// TLS towards each of the hosts.
    ///
    /// # Errors
    /// [`Error::System`] if the library refuses the host's key.
    pub fn tls(&self) -> Result<Vec<ClientTls>, Error> {
        let hosts = self.to.iter();
        hosts.map(|(_, known)| ClientTls::new(&self.options.identity, known.pin())).collect()
    }
}
