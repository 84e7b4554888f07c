//! The relay's end of a control connection: tickets for wishes, and news.

use std::sync::Arc;
use std::time::Duration;

use peer::conn::{Conn, ConnError};
use peer::listen::admission::refuse;
use peer::{Fingerprint, random};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use wire::meet::Place;
use wire::relay::{Issued, LabelPair, Reason, RelayFrame, Wish};
use wire::session::{AbortCode, SessionFrame};
use wire::tunnel::{Code, Target};

use crate::associations::Associations;
use crate::bounds::{DRAIN, NAMEPLATE_TIME, NO_GUESTS, WISHES_A_SECOND};
use crate::keys::KeyState;
use crate::meetings::{Guest, Registrations};
use crate::state::{Destination, Permit, RelayGrant, RelayState};
use crate::tickets::LIFETIME;
use crate::told::Told;

/// Serves a control connection until it ends.
pub(crate) async fn serve(relay: &RelayState, mut conn: Conn, key: Fingerprint, grant: RelayGrant) {
    if let Some(guest) = grant.guest {
        serve_guest(relay, conn, (key, guest), &grant).await;
        return;
    }
    let state = match relay.prepare(key, &grant).await {
        Ok(state) => state,
        Err(why) => {
            tracing::warn!(label = grant.label, why, "a key with a cap is refused");
            let text = "it cannot count what it moves for this host";
            let _ = refuse(&mut conn, AbortCode::Refused, text.into()).await;
            return;
        }
    };
    let (tell, told) = relay.enter(key);
    if let Err(error) = answer(relay, &mut conn, (key, state), &grant, (&tell, told)).await {
        if let ConnError::Wire(_) | ConnError::Unexpected(_) = error {
            let _ = refuse(&mut conn, AbortCode::Protocol, error.to_string()).await;
        }
        tracing::debug!(label = grant.label, %error, "a control connection has ended");
    }
}

/// The same for a guest: what it moves is its host's.
async fn serve_guest(
    relay: &RelayState,
    mut conn: Conn,
    (key, guest): (Fingerprint, Guest),
    grant: &RelayGrant,
) {
    let host = match relay.meetings.find(&guest.place) {
        Ok(host) => host,
        Err(reason) => {
            let _ = refuse(&mut conn, AbortCode::Refused, reason.text).await;
            return;
        }
    };
    let Some(_place) = relay.meetings.guests.try_take(host.key.fingerprint()) else {
        let text = "the host that waits at the relay has as many guests as it may";
        let _ = refuse(&mut conn, AbortCode::Crowded, text.into()).await;
        return;
    };
    let (tell, told) = relay.enter(key);
    let serving = answer(relay, &mut conn, (key, host.key), grant, (&tell, told));
    let ended = match guest.place {
        Place::Invited(_) | Place::Key(_) => serving.await,
        Place::Nameplate(_) => match timeout(NAMEPLATE_TIME, serving).await {
            Ok(ended) => ended,
            Err(_) => return,
        },
    };
    if let Err(error) = ended {
        tracing::debug!(label = grant.label, %error, "a guest has left");
    }
}

/// What wakes a control connection up.
enum Event {
    Wish(Wish),
    Associate(u32, Target),
    Labels(u32, Vec<LabelPair>),
    Retire(u32, Vec<u64>),
    Register(u32, Place),
    Withdraw(u32),
    Await(u32),
    Ping(u64),
    /// A sign of life that needs no answer.
    Alive,
    Told(Told),
    /// The key may move nothing more in this month, and why.
    UsedUp(String),
    Draining,
}

async fn answer(
    relay: &RelayState,
    conn: &mut Conn,
    (key, state): (Fingerprint, Arc<KeyState>),
    grant: &RelayGrant,
    (tell, mut told): (&mpsc::Sender<Told>, mpsc::Receiver<Told>),
) -> Result<(), ConnError> {
    let (mut draining, mut is_draining) = (relay.draining(), false);
    let mut turn = Instant::now();
    let mut associations = Associations::new(relay, (&state, key), grant);
    let of_key = (grant.known.clone(), grant.rights.clone());
    let to_wait = (&relay.meetings, relay.datagrams.get());
    let mut registrations = Registrations::new(to_wait, &state, of_key, tell);
    // One attempt at a code has one connection.
    let mut has_knocked = false;
    loop {
        conn.flush_to_reader().await?;
        let heard = conn.receive(|frame| match RelayFrame::try_from(frame)? {
            RelayFrame::Wish(wish) => Ok(Event::Wish(wish)),
            RelayFrame::Associate(number, target) => Ok(Event::Associate(number, target)),
            RelayFrame::Labels(number, pairs) => Ok(Event::Labels(number, pairs)),
            RelayFrame::Retire(number, labels) => Ok(Event::Retire(number, labels)),
            RelayFrame::Register(number, place) => Ok(Event::Register(number, place)),
            RelayFrame::Withdraw(number) => Ok(Event::Withdraw(number)),
            RelayFrame::Await(number) => Ok(Event::Await(number)),
            RelayFrame::Session(SessionFrame::Ping(number)) => Ok(Event::Ping(number)),
            RelayFrame::Session(SessionFrame::Pong(_)) => Ok(Event::Alive),
            other => Err(ConnError::unexpected(&other)),
        });
        let event = tokio::select! {
            heard = heard => heard?,
            Some(told) = told.recv() => Event::Told(told),
            why = state.until_used_up(), if !associations.is_empty() => Event::UsedUp(why),
            _ = draining.wait_for(|stops| *stops), if !is_draining => Event::Draining,
        };
        if !relay.is_current(key, tell) {
            let text = "this host has opened further control connections to the relay";
            return Err(refuse(conn, AbortCode::Crowded, text.into()).await);
        }
        if matches!(
            event,
            Event::Wish(_)
                | Event::Associate(..)
                | Event::Labels(..)
                | Event::Register(..)
                | Event::Await(_)
        ) {
            sleep_until(turn).await;
            turn = turn.max(Instant::now()) + Duration::from_secs(1) / WISHES_A_SECOND;
        }
        match event {
            Event::Register(number, _) if grant.guest.is_some() || !relay.options.takes_guests => {
                let reason = Reason::new(Code::Forbidden, NO_GUESTS);
                conn.push(&RelayFrame::Unregistered(number, reason));
            }
            Event::Register(number, place) => {
                conn.push(&registrations.register(number, place));
                registrations.await_datagrams(associations.awaiting());
            }
            Event::Await(number) => {
                conn.push(&associations.make_awaiting(number, is_draining));
                registrations.await_datagrams(associations.awaiting());
            }
            Event::Withdraw(number) => registrations.withdraw(number),
            Event::Associate(number, target) => {
                conn.push(&associations.make(number, &target, is_draining).await);
            }
            Event::Labels(number, pairs) => conn.push(&associations.register(number, &pairs)),
            Event::Retire(number, labels) => associations.retire(number, &labels),
            Event::Wish(wish) => {
                let number = wish.number;
                let is_numbered = matches!(grant.guest, Some(Guest { place: Place::Nameplate(_) }));
                if is_numbered && std::mem::replace(&mut has_knocked, true) {
                    let text = "a code is for one connection at a time";
                    conn.push(&RelayFrame::Denied(number, Reason::new(Code::Busy, text)));
                    continue;
                }
                match issue(relay, (key, &state), grant, (wish, tell), is_draining)? {
                    Ok(issued) => conn.push(&RelayFrame::Tickets(issued)),
                    Err(reason) => {
                        state.refuse();
                        conn.push(&RelayFrame::Denied(number, reason));
                    }
                }
            }
            Event::UsedUp(why) => {
                for ended in associations.end(&why) {
                    conn.push(&ended);
                }
            }
            Event::Ping(number) => conn.push(&SessionFrame::Pong(number)),
            Event::Alive => {}
            Event::Told(Told::Failed(ticket, reason)) => {
                conn.push(&RelayFrame::Failed(ticket, reason));
            }
            Event::Told(Told::Meet(number, ticket)) => {
                conn.push(&RelayFrame::Meet(number, ticket));
            }
            Event::Draining => {
                is_draining = true;
                let seconds = u16::try_from(DRAIN.as_secs()).expect("half a minute");
                conn.push(&RelayFrame::Parting(seconds));
            }
        }
    }
}

/// Tickets for a wish, or why there are none.
fn issue(
    relay: &RelayState,
    (peer, state): (Fingerprint, &Arc<KeyState>),
    grant: &RelayGrant,
    (wish, tell): (Wish, &mpsc::Sender<Told>),
    is_draining: bool,
) -> Result<Result<Issued, Reason>, ConnError> {
    let denied = |code, text: &str| Ok(Err(Reason::new(code, text)));
    let Wish { number, count, target } = wish;
    if is_draining {
        return denied(Code::Busy, "the relay is being stopped");
    }
    if let Some(why) = state.used_up() {
        return denied(Code::Forbidden, &why);
    }
    let (key, control) = (Arc::clone(state), tell.clone());
    let (owner, permit) = if let Some(Guest { place }) = grant.guest {
        let host = match relay.meetings.find(&place) {
            Ok(host) => host,
            Err(reason) => return Ok(Err(reason)),
        };
        let (destination, rights) = (Destination::Waiting(place), host.rights.of_guests());
        // Its host may have come back with another entry.
        let (key, known) = (host.key, host.known);
        (peer, Permit { destination, rights, known, key, control })
    } else {
        if !grant.rights.may_permit(&target) {
            return denied(Code::Forbidden, &format!("{target} is not permitted there"));
        }
        let destination = Destination::Target(target);
        let (rights, known) = (grant.rights.clone(), grant.known.clone());
        (state.fingerprint(), Permit { destination, rights, known, key, control })
    };
    let (count, permit) = match permit.destination {
        Destination::Waiting(Place::Nameplate(_)) => (1, Arc::new(permit)),
        _ => (count.into(), Arc::new(permit)),
    };
    let draw = || random().map_err(std::io::Error::other);
    let now = relay.clock.now();
    let tickets = relay.tickets().issue(now, owner, &permit, count, draw)?;
    if tickets.is_empty() {
        return denied(Code::Busy, "too many tickets of this host are not used yet");
    }
    let seconds = u16::try_from(LIFETIME.as_millis() / 1_000).expect("a minute");
    Ok(Ok(Issued { number, seconds, tickets }))
}
