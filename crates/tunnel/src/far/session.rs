//! One striped connection of a peer: admission, and its streams.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use peer::{Conn, Fingerprint};
use reach::{For, dial};
use stripe::{Connection, Stream};
use tokio::task::JoinSet;
use wire::tunnel::{Answer, Code, Request, Target};

use super::listen::listen;
use super::{Budget, TunnelService};
use crate::TunnelRights;
use crate::bounds::PREAMBLE_PATIENCE;
use crate::local::Local;
use crate::message::{read_request, write_answer};
use crate::relay::{Begin, relay};
use events::Events;

/// What a session may do.
pub struct PeerRights {
    pub(super) rights: TunnelRights,
    /// The peer's name for people.
    pub(super) name: String,
}

/// Serves the streams of a peer that was let in, until the connection ends. `control` is the stream
/// of its hello.
pub(super) async fn serve(
    connection: &Connection,
    control: Conn,
    key: Fingerprint,
    rights: PeerRights,
    shared: &TunnelService,
) {
    let number = shared.next.fetch_add(1, Ordering::Relaxed);
    let budget = shared.budget(key);
    budget.enter(number, connection);
    let name = rights.name.clone();
    let why = "its rights have changed".into();
    let mut leaving = Leaving { name: name.clone(), number, budget: &budget, shared, why };
    shared.events.notice(format!("{name} at {} is let in", connection.remote()));
    let ended = tokio::select! {
        ended = connection.ended() => ended,
        () = streams(connection, Arc::new(rights), &budget, &shared.events) => {
            connection.ended().await
        }
    };
    leaving.why = ended.to_string();
    drop(control);
}

/// Takes a session off the list however it ends: the host drops it when the peer's rights change.
struct Leaving<'a> {
    name: String,
    number: u64,
    budget: &'a Budget,
    shared: &'a TunnelService,
    why: String,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.budget.leave(self.number);
        self.shared.events.notice(format!("{} has left: {}", self.name, self.why));
    }
}

/// Serves streams until there are no more.
async fn streams(
    connection: &Connection,
    rights: Arc<PeerRights>,
    budget: &Arc<Budget>,
    events: &Events,
) {
    let mut tasks = JoinSet::new();
    while let Ok(stream) = connection.accept_stream().await {
        while tasks.try_join_next().is_some() {}
        budget.pace.lock().await.turn().await;
        let (rights, budget) = (Arc::clone(&rights), Arc::clone(budget));
        let events = events.clone();
        tasks.spawn(async move { serve_stream(stream, &rights, &budget, &events).await });
    }
}

async fn serve_stream(mut stream: Stream, rights: &PeerRights, budget: &Budget, events: &Events) {
    match read_request(stream.receiving_mut(), PREAMBLE_PATIENCE).await {
        Ok(Request::Connect(target)) => connect(stream, &target, rights, budget, events).await,
        Ok(Request::Listen(target)) => listen(stream, &target, rights, budget, events).await,
        // The stream is dropped, and thereby reset.
        Ok(_) => events.detail(format!("{}: a request that has no meaning", rights.name)),
        Err(error) => events.detail(format!("{}: no request: {error}", rights.name)),
    }
}

/// Connects to a target, and copies.
async fn connect(
    mut stream: Stream,
    target: &Target,
    rights: &PeerRights,
    budget: &Budget,
    events: &Events,
) {
    let dialed = match Arc::clone(&budget.places).try_acquire_owned() {
        Ok(place) => {
            let dialed = dial(target, For::Peer(&rights.rights.reach), &budget.lookups).await;
            dialed.map(|stream| (Local::tcp(stream), place, budget.metrics.dialed()))
        }
        Err(_) => Err(Answer::failed(Code::Busy, "this host has too many connections open")),
    };
    let answer = dialed.as_ref().map_or_else(Clone::clone, |_| Answer::done(0));
    let told = write_answer(stream.sending_mut(), &answer).await;
    let end = match (dialed, told) {
        (Ok((local, _place, _counted)), Ok(())) => {
            relay(local, stream, Begin::Bytes, Vec::new()).await.to_string()
        }
        (Ok(_), Err(error)) => error.to_string(),
        (Err(answer), _) => {
            budget.metrics.refused(answer.code);
            let _ = stream.sending().finish();
            answer.text
        }
    };
    events.detail(format!("{} to {target}: {end}", rights.name));
}
