//! How a connection comes in: its handshake, what it asks for, and whether it may.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use wire::effort::Effort;
use wire::session::{AbortCode, Hello, PROBE, SessionFrame, SessionId, VERSION, Welcome};

use super::counted::{CountedStream, Tally};
use super::metrics::{NO_SERVICE, RefusalKind};
use super::service::{Asking, Hosted, Open, OpenRequest};
use super::{Entered, Entering, HostState, Joining};
use crate::carrier::Stream;
use crate::conn::{Conn, ConnError};
use crate::listen::admission::{First, greet, refuse};
use crate::listen::admitted::label_of;
use crate::listen::by_peer::PeerPlace;
use crate::listen::connections::Holding;
use crate::listen::predecessor::other_version;
use crate::listen::traffic::CarrierKind;
use crate::listen::{further_addresses, refusal_text};
use crate::{Fingerprint, Peer, random};

impl HostState {
    /// Runs the handshake, reads the first frame, and checks the peer's permission. The addresses
    /// of this host are the answer to a hello: no stranger learns them.
    pub(super) async fn enter(
        &self,
        stream: Box<dyn Stream>,
        from: SocketAddr,
    ) -> Result<Entered, ConnError> {
        let handshake = self.metrics.handshake();
        let tally = Arc::<Tally>::default();
        let is_counted_apart = CarrierKind::of(&*stream) == CarrierKind::Udp;
        let stream = if is_counted_apart {
            stream
        } else {
            Box::new(CountedStream { stream, tally: Arc::clone(&tally) })
        };
        let (mut conn, peer, first) = greet(&self.tls, stream).await?;
        handshake.complete();
        // Before it decides anything: a later change ends the connection.
        let known = self.authorized.find(peer);
        let (entry, service, place) = match first {
            First::Join(id) => {
                let joining = self.join(&mut conn, id, peer).await?;
                let service = joining.service;
                let place = self.place(&mut conn, peer, service).await?;
                (Entering::Join(joining), service, place)
            }
            First::Hello(hello) => {
                let service = self.service_of(&hello);
                let open = match self.authorize(&hello, (peer, from), known.as_ref()) {
                    Ok(open) => open,
                    Err((code, reason)) => {
                        let kind = RefusalKind::at_admission(code, &hello, known.as_ref());
                        self.metrics.refuse(service, kind);
                        return Err(self.turn_away(&mut conn, peer, from, code, reason).await);
                    }
                };
                let place = self.place(&mut conn, peer, service).await?;
                let entry = self.welcome(&mut conn, peer, hello, open).await?;
                (entry, service, place)
            }
        };
        self.admitted.insert(peer, known.clone());
        if !is_counted_apart {
            let label = label_of(peer, known.as_ref());
            tally.belongs_to(self.metrics.traffic.row(&label, from.ip(), CarrierKind::Tcp));
        }
        Ok(Entered { conn, entry, service, peer, known, place })
    }

    /// The place of a connection of `peer` among all.
    async fn place(
        &self,
        conn: &mut Conn,
        peer: Fingerprint,
        service: &'static str,
    ) -> Result<PeerPlace, ConnError> {
        let is_small = self.services.has_small_connections(service);
        let holding = if is_small { Holding::Little } else { Holding::Usual };
        if let Some(place) = self.connections.enter(peer, holding) {
            return Ok(place);
        }
        self.metrics.refuse(service, RefusalKind::Busy);
        Err(refuse(conn, AbortCode::Crowded, self.connections.no_place(holding)).await)
    }

    /// The session of that id for a connection that joins it. Its peer may know of the session
    /// before this host has opened it.
    pub(super) async fn join(
        &self,
        conn: &mut Conn,
        id: SessionId,
        peer: Fingerprint,
    ) -> Result<Joining, ConnError> {
        let find = || {
            self.services.all.iter().find_map(|service| {
                let join = service.find(id, peer)?;
                Some(Joining { join, service: service.name(), session: id })
            })
        };
        let mut found = find();
        if found.is_none() {
            self.opening.settled(id, peer).await;
            found = find();
        }
        if let Some(joining) = found {
            conn.push(&SessionFrame::Joined);
            conn.agree_on_effort(self.effort_of(joining.service));
            return Ok(joining);
        }
        self.metrics.refuse(NO_SERVICE, RefusalKind::Session);
        let text = "this host knows no such session";
        Err(refuse(conn, AbortCode::NoSession, text.into()).await)
    }

    /// How a service stands to others: it is in the background if it is itself, or the host.
    fn effort_of(&self, service: &str) -> Effort {
        self.effort.with(self.services.effort(service))
    }

    /// The service of a hello, of those that this host has: peers name what they like.
    fn service_of(&self, hello: &Hello) -> &'static str {
        if hello.service == PROBE {
            return PROBE;
        }
        self.services.named(&hello.service).map_or(NO_SERVICE, Hosted::name)
    }

    /// Who may open what its hello names; `None` for a measurement of a path.
    fn authorize(
        &self,
        hello: &Hello,
        (peer, from): (Fingerprint, SocketAddr),
        known: Option<&Peer>,
    ) -> Result<Option<Open>, (AbortCode, String)> {
        if hello.version != VERSION {
            return Err((AbortCode::Refused, other_version(hello.version)));
        }
        let asking = Asking { hello, peer, from, known, token: &self.token };
        let refused = |reason| (AbortCode::Refused, reason);
        if hello.service == PROBE {
            // Whoever may anything here may know how fast.
            let mut reason = "this host has no services".to_string();
            for service in &self.services.all {
                match service.authorize(&asking) {
                    Ok(_) => return Ok(None),
                    Err(why) => reason = why,
                }
            }
            return Err(refused(reason));
        }
        let Some(service) = self.services.named(&hello.service) else {
            // A stranger is not told what this host does.
            let any = |service: &dyn Hosted| service.authorize(&asking);
            let mut all = self.services.all.iter().map(|service| any(service.as_ref()));
            return Err(match all.find_map(Result::ok) {
                Some(_) => (AbortCode::NoService, format!("this host {}", self.services.do_what())),
                None => refused(
                    "its key may not do that on this host, and it showed no token that lets it"
                        .into(),
                ),
            });
        };
        service.authorize(&asking).map(Some).map_err(refused)
    }

    /// Answers the hello of a peer that is let in.
    async fn welcome(
        &self,
        conn: &mut Conn,
        peer: Fingerprint,
        hello: Hello,
        open: Option<Open>,
    ) -> Result<Entering, ConnError> {
        let session = random().map_err(std::io::Error::other)?;
        let takes_whole = self.services.named(&hello.service).is_some_and(Hosted::takes_whole);
        let whole = if takes_whole {
            let Some(whole) = conn.stream().claim() else {
                self.metrics.refuse(self.service_of(&hello), RefusalKind::Other);
                let text = "this service runs over UDP alone";
                return Err(refuse(conn, AbortCode::Refused, text.into()).await);
            };
            Some(whole)
        } else {
            None
        };
        let tells = self.services.named(&hello.service).is_none_or(Hosted::tells_addresses);
        let addresses =
            if tells { further_addresses(conn.stream(), &self.named) } else { Vec::new() };
        conn.push(&SessionFrame::Welcome(Welcome { version: VERSION, session, addresses }));
        let Some(open) = open else { return Ok(Entering::Probe) };
        // Only now it is known what the connection is for.
        conn.agree_on_effort(self.effort_of(&hello.service));
        let opening = self.opening.begin(session, peer);
        Ok(Entering::Open(open, OpenRequest { hello, peer, session, whole, opening }))
    }

    /// Refuses a peer, and reports it.
    async fn turn_away(
        &self,
        conn: &mut Conn,
        peer: Fingerprint,
        from: SocketAddr,
        code: AbortCode,
        reason: String,
    ) -> ConnError {
        tracing::info!(%peer, reason, "refused");
        if let Some(unreported) = self.refusals.note(Instant::now()) {
            self.events.notice(refusal_text(from, &reason, unreported));
        }
        refuse(conn, code, reason).await
    }
}
