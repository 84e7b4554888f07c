//! The striped connections of a host, as a whole.

use std::sync::Arc;

use stripe::{Endpoint, Memory};

use crate::metrics::{Registry, Unit, register_budget, register_counter};
use crate::striped::UdpListener;

/// The endpoint of a host, and the memory of its connections.
pub(super) struct OverUdp {
    endpoint: Arc<Endpoint>,
    memory: Memory,
}

impl OverUdp {
    pub(super) fn of(listener: &UdpListener) -> OverUdp {
        OverUdp { endpoint: listener.endpoint(), memory: listener.memory() }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let memory = self.memory.clone();
        let (what, most) = ("Memory of striped connections", memory.most().0);
        let taken = move || memory.taken().0;
        register_budget(registry, "udp_memory", what, Some(Unit::Bytes), most, taken);
        let endpoint = Arc::downgrade(&self.endpoint);
        let help = "Handshakes over UDP that failed";
        register_counter(registry, "udp_failed_handshakes", help, move || {
            endpoint.upgrade().map_or(0, |endpoint| endpoint.failed_handshakes())
        });
    }

    /// Waits until the peers of all connections know that these have ended.
    pub(super) async fn wait_parted(&self) {
        self.endpoint.wait_parted().await;
    }
}
