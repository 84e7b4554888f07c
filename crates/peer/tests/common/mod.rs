//! One host over UDP and what dials it, over loopback.

use std::net::SocketAddr;
use std::sync::Arc;

use events::Events;
use peer::dial::Terms;
use peer::host::{Carriers, Host, Hosting, Service, Services};
use peer::{Credential, DialOptions, Fingerprint, Identity, ListenOptions};

/// A host with this service alone, its address and its key.
pub(crate) fn host(service: &Arc<impl Service>) -> (Hosting, SocketAddr, Fingerprint) {
    let identity = Identity::generate().unwrap();
    let key = identity.fingerprint();
    let at = vec!["127.0.0.1:0".parse().unwrap()];
    let options = ListenOptions { addresses: at, ..ListenOptions::new(identity) };
    let stripe = stripe::Options::default();
    let host = Host::bind(options, Carriers::Udp, &stripe, Events::new()).unwrap();
    let address = host.addresses()[0];
    (host.serve(Services::new().with(service)).unwrap(), address, key)
}

/// Terms of a new identity that dials a host at this address.
pub(crate) fn terms(to: SocketAddr, key: Fingerprint) -> Terms {
    let mut options = DialOptions::new(Identity::generate().unwrap());
    options.paths = vec!["lo".parse().unwrap()];
    Terms::new(vec![(to.into(), Credential::Pinned(key))], options).unwrap()
}
