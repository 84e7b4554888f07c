//! What the side that dials targets counts.

use peer::metrics::{Counter, Family, Gauge, Held, Labels, Registry};
use wire::tunnel::Code;

/// The figures of the service. Clones share them.
#[derive(Clone, Default)]
pub(super) struct TunnelMetrics {
    streams: Gauge,
    ports: Gauge,
    dialed: Counter,
    accepted: Counter,
    refused: Family<Labels<1>, Counter>,
}

const REASONS: [Code; 7] = [
    Code::Forbidden,
    Code::Unresolved,
    Code::Unreachable,
    Code::Refused,
    Code::TimedOut,
    Code::Busy,
    Code::Failed,
];

impl TunnelMetrics {
    /// Nothing yet; each reason of a refusal has its row.
    pub(super) fn new() -> TunnelMetrics {
        let metrics = TunnelMetrics::default();
        for code in REASONS {
            drop(metrics.refused.get_or_create(&labels(code)));
        }
        metrics
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let streams = "Connections that are being carried";
        registry.register("streams", streams, self.streams.clone());
        let ports = "Requests of peers to listen that are being fulfilled";
        registry.register("listening", ports, self.ports.clone());
        let dialed = "Connections to targets so far";
        registry.register("dialed", dialed, self.dialed.clone());
        let accepted = "Connections accepted at ports of peers so far";
        registry.register("accepted", accepted, self.accepted.clone());
        let refused = "Requests to dial or to listen that were not fulfilled so far";
        registry.register("refused", refused, self.refused.clone());
    }

    /// A target was dialed: a connection is carried until the result is dropped.
    pub(super) fn dialed(&self) -> Held {
        self.dialed.inc();
        Held::new(&self.streams)
    }

    /// A connection was accepted at a port of a peer: it is carried until the result is dropped.
    pub(super) fn accepted(&self) -> Held {
        self.accepted.inc();
        Held::new(&self.streams)
    }

    /// A peer has this host listen until the result is dropped.
    pub(super) fn listening(&self) -> Held {
        Held::new(&self.ports)
    }

    pub(super) fn refused(&self, code: Code) {
        self.refused.get_or_create(&labels(code)).inc();
    }
}

fn labels(code: Code) -> Labels<1> {
    let reason = match code {
        // It is none.
        Code::Done => "none",
        Code::Forbidden => "forbidden",
        Code::Unresolved => "unresolved",
        Code::Unreachable => "unreachable",
        Code::Refused => "refused",
        Code::TimedOut => "timeout",
        Code::Busy => "busy",
        Code::Failed => "failed",
    };
    [("reason", reason)]
}
