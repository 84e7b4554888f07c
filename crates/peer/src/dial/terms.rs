//! The hosts of a session, and the conditions of its paths.

use std::collections::BTreeMap;
use std::sync::Arc;

use wire::session::RunId;

use crate::carrier::{Carrier, Tcp};
use crate::tls::ClientTls;
use crate::{Credential, DialOptions, Error, RelayOptions, Remote, random};

/// The hosts of a session, and the conditions of its paths.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The hosts to connect to, at least one, and the credential of each.
    pub to: Vec<(Remote, Credential)>,
    /// The own key, the paths, and the bound of the rate.
    pub options: DialOptions,
    /// The transport of the paths.
    pub carrier: Arc<dyn Carrier>,
    /// The transport of paths that have several routes, by the number of their host.
    pub striped: BTreeMap<usize, Arc<dyn Carrier>>,
    /// The transport of paths over relays, by the number of their host and that of the relay.
    pub relayed: BTreeMap<(usize, usize), Arc<dyn Carrier>>,
    /// The name of this run, by which hosts tell its sessions from those of other runs.
    pub run: RunId,
}

impl Terms {
    /// Paths to these hosts over kernel TCP.
    ///
    /// # Errors
    /// [`Error::System`] if the system has no random numbers.
    pub fn new(to: Vec<(Remote, Credential)>, options: DialOptions) -> Result<Terms, Error> {
        let (carrier, striped, relayed) = (Arc::new(Tcp), BTreeMap::new(), BTreeMap::new());
        Ok(Terms { to, options, carrier, striped, relayed, run: random()? })
    }

    /// The same with the relays of its options in use; without this they are not. Needs a Tokio
    /// runtime.
    ///
    /// # Errors
    /// Those of [`Relaying::carrier`](crate::Relaying::carrier).
    pub fn over_relays(mut self) -> Result<Terms, Error> {
        for (host, (to, _)) in self.to.iter().enumerate() {
            for (number, relay) in self.options.relays.iter().enumerate() {
                self.relayed.insert((host, number), relay.relaying.carrier(to)?);
            }
        }
        Ok(self)
    }

    /// The same over other relays, in use. Needs a Tokio runtime.
    ///
    /// # Errors
    /// Those of [`Terms::over_relays`].
    pub fn with_relays(mut self, relays: Vec<RelayOptions>) -> Result<Terms, Error> {
        self.options.relays = relays;
        self.relayed.clear();
        self.over_relays()
    }

    /// The same over another carrier.
    #[must_use]
    pub fn over(self, carrier: Arc<dyn Carrier>) -> Terms {
        Terms { carrier, ..self }
    }

    /// The same for the host of that number alone.
    #[must_use]
    pub fn to_one(&self, host: usize) -> Terms {
        let relayed = self.relayed.iter().filter(|((of, _), _)| *of == host);
        let relayed = relayed.map(|((_, relay), carrier)| ((0, *relay), Arc::clone(carrier)));
        Terms {
            to: vec![self.to[host].clone()],
            striped: BTreeMap::new(),
            relayed: relayed.collect(),
            ..self.clone()
        }
    }

    /// The name of the host of that number for people; with its port if another host differs in
    /// that alone.
    #[must_use]
    pub fn label(&self, host: usize) -> String {
        let remote = &self.to[host].0;
        let alone = self.to.iter().filter(|(other, _)| other.name() == remote.name()).count() == 1;
        if alone { remote.name().into_owned() } else { remote.to_string() }
    }

    /// The names of all hosts with their ports, separated by commas.
    #[must_use]
    pub fn hosts(&self) -> String {
        self.to.iter().map(|(remote, _)| remote.to_string()).collect::<Vec<_>>().join(", ")
    }

    /// TLS to each of the hosts, in their order.
    ///
    /// # Errors
    /// [`Error::System`] if the library refuses the own key.
    pub fn tls(&self) -> Result<Vec<ClientTls>, Error> {
        let hosts = self.to.iter();
        hosts.map(|(_, known)| ClientTls::new(&self.options.identity, known.pin())).collect()
    }
}
