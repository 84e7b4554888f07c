//! What a host counts of its own: connections, sessions, refusals and bytes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use wire::session::{AbortCode, Hello, PROBE, SessionId, VERSION};

use crate::Peer;
use crate::conn::Conn;
use crate::listen::traffic::Traffic;
use crate::metrics::{Counter, Family, Gauge, Held, Labels, Registry};

/// The service of refusals of a hello that names none of this host's.
pub(super) const NO_SERVICE: &str = "none";

/// Why a peer was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefusalKind {
    /// Its key is unknown, and it showed no token.
    Stranger,
    /// Its token does not let it in.
    Token,
    /// Its key is known, and may not do that.
    Rights,
    /// It speaks another version.
    Version,
    /// The host does not have the service.
    Service,
    /// There is no session of that id and key.
    Session,
    /// There is no room now.
    Busy,
    /// What it asked for is not there, or cannot be done.
    Other,
}

const KINDS: [RefusalKind; 8] = [
    RefusalKind::Stranger,
    RefusalKind::Token,
    RefusalKind::Rights,
    RefusalKind::Version,
    RefusalKind::Service,
    RefusalKind::Session,
    RefusalKind::Busy,
    RefusalKind::Other,
];

impl RefusalKind {
    fn name(self) -> &'static str {
        match self {
            RefusalKind::Stranger => "stranger",
            RefusalKind::Token => "token",
            RefusalKind::Rights => "rights",
            RefusalKind::Version => "version",
            RefusalKind::Service => "service",
            RefusalKind::Session => "session",
            RefusalKind::Busy => "busy",
            RefusalKind::Other => "other",
        }
    }

    /// The kind of a refusal of a peer that asks to be let in.
    pub(super) fn at_admission(
        code: AbortCode,
        hello: &Hello,
        known: Option<&Peer>,
    ) -> RefusalKind {
        if hello.version != VERSION {
            RefusalKind::Version
        } else if code == AbortCode::NoService {
            RefusalKind::Service
        } else if hello.secret.is_some() {
            RefusalKind::Token
        } else if known.is_some() {
            RefusalKind::Rights
        } else {
            RefusalKind::Stranger
        }
    }

    /// The kind of a refusal by a service, after admission.
    fn of(code: AbortCode) -> RefusalKind {
        match code {
            AbortCode::Busy | AbortCode::Crowded => RefusalKind::Busy,
            _ => RefusalKind::Other,
        }
    }
}

type ByService<M> = Family<Labels<1>, M>;

fn of_service(service: &'static str) -> Labels<1> {
    [("service", service)]
}

/// The figures of a host.
#[derive(Clone, Default)]
pub(super) struct HostMetrics {
    connections: ByService<Gauge>,
    connections_opened: ByService<Counter>,
    sessions: ByService<Gauge>,
    sessions_opened: ByService<Counter>,
    refusals: Family<Labels<2>, Counter>,
    incomplete: Counter,
    pub(super) traffic: Traffic,
    /// Open sessions, each with the number of its connections.
    members: Arc<Mutex<BTreeMap<SessionId, usize>>>,
}

impl HostMetrics {
    /// Nothing yet. Every row of these services is there from the begin on, so that somebody who
    /// watches sees the first of its kind as an increase.
    pub(super) fn new(services: impl Iterator<Item = &'static str>) -> HostMetrics {
        let metrics = HostMetrics::default();
        for service in services.chain([PROBE, NO_SERVICE]) {
            let labels = of_service(service);
            for kind in KINDS {
                metrics.refused(service, kind);
            }
            if service == NO_SERVICE {
                continue;
            }
            drop(metrics.connections.get_or_create(&labels));
            drop(metrics.connections_opened.get_or_create(&labels));
            if service != PROBE {
                drop(metrics.sessions.get_or_create(&labels));
                drop(metrics.sessions_opened.get_or_create(&labels));
            }
        }
        metrics
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let connections = "Authorized connections that are open";
        registry.register("connections", connections, self.connections.clone());
        let opened = "Authorized connections so far";
        registry.register("connections_opened", opened, self.connections_opened.clone());
        let sessions = "Sessions that have a connection";
        registry.register("sessions", sessions, self.sessions.clone());
        let opened = "Sessions so far";
        registry.register("sessions_opened", opened, self.sessions_opened.clone());
        let refusals = "Refusals so far";
        registry.register("refusals", refusals, self.refusals.clone());
        let incomplete = "Connections that ended, were displaced or took too long before their \
                          key was proven and their first frame read";
        registry.register("incomplete_handshakes", incomplete, self.incomplete.clone());
        registry.register_collector(Box::new(self.traffic.clone()));
    }

    /// An authorized connection for a service, until the result is dropped.
    pub(super) fn connection(&self, service: &'static str) -> Held {
        let labels = of_service(service);
        self.connections_opened.get_or_create(&labels).inc();
        Held::new(&self.connections.get_or_create(&labels))
    }

    /// A connection of a session, until the result is dropped.
    pub(super) fn member(&self, service: &'static str, id: SessionId) -> Member {
        let mut members = self.members.lock().expect("no panic while held");
        let count = members.entry(id).or_default();
        *count += 1;
        let labels = of_service(service);
        if *count == 1 {
            self.sessions.get_or_create(&labels).inc();
        }
        drop(members);
        Member { metrics: self.clone(), labels, id }
    }

    /// A session is opened.
    pub(super) fn session_opened(&self, service: &'static str) {
        self.sessions_opened.get_or_create(&of_service(service)).inc();
    }

    pub(super) fn refuse(&self, service: &'static str, kind: RefusalKind) {
        self.refused(service, kind).inc();
    }

    fn refused(&self, service: &'static str, kind: RefusalKind) -> Counter {
        let labels = [("service", service), ("kind", kind.name())];
        self.refusals.get_or_create_owned(&labels)
    }

    /// Counts the refusals of a service.
    pub(super) fn watch(&self, conn: &mut Conn, service: &'static str) {
        let metrics = self.clone();
        conn.on_refusal(move |code| metrics.refuse(service, RefusalKind::of(code)));
    }

    /// A handshake has begun.
    pub(super) fn handshake(&self) -> Handshake {
        Handshake { incomplete: self.incomplete.clone(), is_complete: false }
    }
}

/// A handshake: incomplete unless it is said to be complete before it is dropped.
pub(super) struct Handshake {
    incomplete: Counter,
    is_complete: bool,
}

impl Handshake {
    pub(super) fn complete(mut self) {
        self.is_complete = true;
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        if !self.is_complete {
            self.incomplete.inc();
        }
    }
}

/// A connection of a session.
pub(super) struct Member {
    metrics: HostMetrics,
    labels: Labels<1>,
    id: SessionId,
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut members = self.metrics.members.lock().expect("no panic while held");
        if let Some(count) = members.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                members.remove(&self.id);
                self.metrics.sessions.get_or_create(&self.labels).dec();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::text;

    fn encoded(metrics: &HostMetrics) -> String {
        let mut registry = Registry::with_prefix("anabranch");
        metrics.register(&mut registry);
        text(&registry)
    }

    #[test]
    fn every_row_is_there_before_anything_happens() {
        let text = encoded(&HostMetrics::new(["receive"].into_iter()));
        for line in [
            "anabranch_connections{service=\"probe\"} 0",
            "anabranch_connections_opened_total{service=\"receive\"} 0",
            "anabranch_sessions{service=\"receive\"} 0",
            "anabranch_refusals_total{service=\"none\",kind=\"stranger\"} 0",
            "anabranch_incomplete_handshakes_total 0",
            "# TYPE anabranch_path_bytes counter",
            "# UNIT anabranch_path_bytes bytes",
        ] {
            assert!(text.lines().any(|known| known == line), "no '{line}' in:\n{text}");
        }
        assert_eq!(text.lines().last(), Some("# EOF"));
    }

    #[test]
    fn a_session_is_open_as_long_as_it_has_a_connection() {
        let metrics = HostMetrics::new(["receive"].into_iter());
        let open = || metrics.sessions.get_or_create(&of_service("receive")).get();
        let first = metrics.member("receive", [1; 16]);
        let second = metrics.member("receive", [1; 16]);
        let other = metrics.member("receive", [2; 16]);
        assert_eq!(open(), 2);
        drop(first);
        assert_eq!(open(), 2);
        drop((second, other));
        assert_eq!(open(), 0);
        assert!(metrics.members.lock().unwrap().is_empty());
    }

    #[test]
    fn refusals_are_counted_by_why_and_not_by_what_a_peer_says() {
        let known = Peer::from(crate::Fingerprint::from([1; 32]));
        let kind = |code, hello: &Hello, known| RefusalKind::at_admission(code, hello, known);
        let (plain, showing) =
            (Hello::new("x", None, [0; 16]), Hello::new("x", Some([0; 16]), [0; 16]));
        let refused = AbortCode::Refused;
        assert_eq!(kind(refused, &plain, None), RefusalKind::Stranger);
        assert_eq!(kind(refused, &plain, Some(&known)), RefusalKind::Rights);
        assert_eq!(kind(refused, &showing, None), RefusalKind::Token);
        assert_eq!(kind(AbortCode::NoService, &plain, Some(&known)), RefusalKind::Service);
        let other = Hello { version: VERSION + 1, ..plain };
        assert_eq!(kind(refused, &other, None), RefusalKind::Version);
        for (code, kind) in [
            (AbortCode::Busy, RefusalKind::Busy),
            (AbortCode::Crowded, RefusalKind::Busy),
            (AbortCode::Source, RefusalKind::Other),
        ] {
            assert_eq!(RefusalKind::of(code), kind);
        }
    }

    #[test]
    fn a_handshake_counts_once_it_is_given_up() {
        let metrics = HostMetrics::default();
        metrics.handshake().complete();
        assert_eq!(metrics.incomplete.get(), 0);
        drop(metrics.handshake());
        assert_eq!(metrics.incomplete.get(), 1);
    }
}
