//! What a transfer asks of its paths, whichever way the data flow.

use crate::tls::ClientTls;
use crate::{Credential, Error, FetchOptions, Remote, SendOptions, TransferOptions};

/// What the conductor of a transfer and its paths go by.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    /// The hosts to connect to: the receiver, or the servers.
    pub(crate) to: Vec<(Remote, Credential)>,
    pub(crate) options: TransferOptions,
}

impl From<&SendOptions> for Terms {
    fn from(options: &SendOptions) -> Terms {
        Terms {
            to: vec![(options.to.clone(), options.credential.clone())],
            options: options.transfer.clone(),
        }
    }
}

impl From<&FetchOptions> for Terms {
    fn from(options: &FetchOptions) -> Terms {
        let to =
            options.from.iter().map(|server| (server.remote.clone(), server.credential.clone()));
        Terms { to: to.collect(), options: options.transfer.clone() }
    }
}

impl Terms {
    /// Checks what does not depend on the network.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub(crate) fn check(&self) -> Result<(), Error> {
        if policy::sched::by_name(&self.options.scheduler, policy::sched::Options::default())
            .is_none()
        {
            let names = policy::sched::NAMES.join(", ");
            return Err(Error::Usage(format!(
                "there is no scheduler '{}'; there are {names}",
                self.options.scheduler
            )));
        }
        Ok(())
    }

    /// What makes connections to each of the hosts.
    pub(crate) fn tls(&self) -> Result<Vec<ClientTls>, Error> {
        self.to
            .iter()
            .map(|(_, credential)| ClientTls::new(&self.options.identity, credential.pin()))
            .collect()
    }

    /// What a person calls one of the hosts: its name, with the port where that tells it from
    /// another one.
    pub(crate) fn label(&self, server: usize) -> String {
        let remote = &self.to[server].0;
        let alone = self.to.iter().filter(|(other, _)| other.host == remote.host).count() == 1;
        if alone { remote.host.clone() } else { remote.to_string() }
    }

    /// The hosts' names, for messages.
    pub(crate) fn hosts(&self) -> String {
        self.to.iter().map(|(remote, _)| remote.to_string()).collect::<Vec<_>>().join(", ")
    }
}
