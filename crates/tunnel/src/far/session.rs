//! One striped connection of a peer: admission, and its streams.

use std::sync::Arc;
use std::time::Instant;

use peer::listen::{TokenRefusal, refusal_text};
use peer::{Fingerprint, Peer};
use reach::{For, ListenRights, Reach, dial};
use stripe::{Connection, Stream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use wire::tunnel::{Answer, Code, Parting, Request, SECRET, Target};

use super::listen::listen;
use super::{Budget, FarShared};
use crate::bounds::PREAMBLE_PATIENCE;
use crate::event::Reports;
use crate::local::Local;
use crate::message::{read_request, write_answer};
use crate::relay::{Begin, relay};

/// What a session may do.
pub(super) struct Rights {
    pub(super) reach: Reach,
    pub(super) listen: ListenRights,
    /// The peer's name for people.
    pub(super) name: String,
}

/// Lets a peer in or not, and serves its streams until the connection ends.
pub(super) async fn serve(
    connection: Connection,
    key: Fingerprint,
    number: u64,
    shared: Arc<FarShared>,
) {
    let entry = shared.authorized.find(key);
    let (rights, control) = match admit(&connection, key, entry.as_ref(), &shared).await {
        Ok(admitted) => admitted,
        Err(parting) => {
            note_refused(&connection, key, parting, &shared);
            connection.close(parting.code());
            return;
        }
    };
    let budget = shared.budget(key);
    budget.enter(number, &connection);
    let name = rights.name.clone();
    shared.reports.notice(format!("{name} at {} is let in", connection.remote()));
    let ended = tokio::select! {
        ended = connection.ended() => ended,
        () = streams(&connection, Arc::new(rights), &budget, &shared.reports) => {
            connection.ended().await
        }
        () = shared.authorized.changed(key, entry.as_ref()) => {
            connection.close(Parting::Changed.code());
            connection.ended().await
        }
    };
    drop(control);
    budget.leave(number);
    shared.reports.notice(format!("{name} has left: {ended}"));
}

/// Reports that a peer was refused, unless many are.
fn note_refused(connection: &Connection, key: Fingerprint, parting: Parting, shared: &FarShared) {
    let reason = match parting {
        Parting::Stranger => "it showed no token, and may reach nothing from here by its key",
        Parting::WrongToken => "its token is not the one that this host printed",
        Parting::TakenToken => "its token is another host's",
        // It said nothing, or nothing that has a meaning.
        Parting::Changed | Parting::Replaced | Parting::Protocol | Parting::Stopped => return,
    };
    if let Some(unreported) = shared.refusals.note(Instant::now()) {
        let reason = format!("{reason}; its key is {key}");
        shared.reports.notice(refusal_text(connection.remote(), &reason, unreported));
    }
}

/// Reads the hello of a peer, and answers it if the peer is let in.
async fn admit(
    connection: &Connection,
    key: Fingerprint,
    entry: Option<&Peer>,
    shared: &FarShared,
) -> Result<(Rights, Stream), Parting> {
    let reading = async {
        let mut control = connection.accept_stream().await.map_err(|_| Parting::Protocol)?;
        let request = read_request(control.receiving_mut(), PREAMBLE_PATIENCE).await;
        match request {
            Ok(Request::Hello { secret }) => Ok((secret, control)),
            _ => Err(Parting::Protocol),
        }
    };
    let read = timeout(PREAMBLE_PATIENCE, reading).await.map_err(|_| Parting::Protocol)?;
    let (secret, mut control) = read?;
    let rights = rights(secret.as_ref(), key, entry, shared)?;
    (shared.admit)(connection);
    let answered = write_answer(control.sending_mut(), &Answer::done(0)).await;
    answered.map_err(|_| Parting::Protocol)?;
    Ok((rights, control))
}

/// The rights of a peer: those of its entry, and those of the token that it showed.
fn rights(
    secret: Option<&[u8; SECRET]>,
    key: Fingerprint,
    entry: Option<&Peer>,
    shared: &FarShared,
) -> Result<Rights, Parting> {
    let name = entry.map(|entry| entry.name.clone()).filter(|name| !name.is_empty());
    let name = name.unwrap_or_else(|| key.to_string());
    let own = entry.map(|entry| Rights {
        reach: entry.tunnel.clone(),
        listen: entry.listen.clone(),
        name: name.clone(),
    });
    let own = own.filter(|own| !own.reach.is_empty() || !own.listen.is_empty());
    let (reach, listen) = (shared.reach.clone(), shared.listen.clone());
    match (shared.check.admit_secret(secret, key), own) {
        (Ok(()), Some(own)) => {
            Ok(Rights { reach: own.reach.and(reach), listen: own.listen.and(listen), name })
        }
        (Ok(()), None) => Ok(Rights { reach, listen, name }),
        (Err(_), Some(own)) => Ok(own),
        (Err(TokenRefusal::NotShown), None) => Err(Parting::Stranger),
        (Err(TokenRefusal::Wrong), None) => Err(Parting::WrongToken),
        (Err(TokenRefusal::Taken), None) => Err(Parting::TakenToken),
    }
}

/// Serves streams until there are no more.
async fn streams(
    connection: &Connection,
    rights: Arc<Rights>,
    budget: &Arc<Budget>,
    reports: &Reports,
) {
    let mut tasks = JoinSet::new();
    while let Ok(stream) = connection.accept_stream().await {
        while tasks.try_join_next().is_some() {}
        budget.pace.lock().await.turn().await;
        let (rights, budget) = (Arc::clone(&rights), Arc::clone(budget));
        let reports = reports.clone();
        tasks.spawn(async move { serve_stream(stream, &rights, &budget, &reports).await });
    }
}

async fn serve_stream(mut stream: Stream, rights: &Rights, budget: &Budget, reports: &Reports) {
    match read_request(stream.receiving_mut(), PREAMBLE_PATIENCE).await {
        Ok(Request::Connect(target)) => connect(stream, &target, rights, budget, reports).await,
        Ok(Request::Listen(target)) => listen(stream, &target, rights, budget, reports).await,
        // The stream is dropped, and thereby reset.
        Ok(_) => reports.detail(|| format!("{}: a request that has no meaning", rights.name)),
        Err(error) => reports.detail(|| format!("{}: no request: {error}", rights.name)),
    }
}

/// Connects to a target, and copies.
async fn connect(
    mut stream: Stream,
    target: &Target,
    rights: &Rights,
    budget: &Budget,
    reports: &Reports,
) {
    let dialed = match Arc::clone(&budget.places).try_acquire_owned() {
        Ok(place) => {
            let dialed = dial(target, For::Peer(&rights.reach), &budget.lookups).await;
            dialed.map(|stream| (Local::tcp(stream), place))
        }
        Err(_) => Err(Answer::failed(Code::Busy, "this host has too many connections open")),
    };
    let answer = dialed.as_ref().map_or_else(Clone::clone, |_| Answer::done(0));
    let told = write_answer(stream.sending_mut(), &answer).await;
    let end = match (dialed, told) {
        (Ok((local, _place)), Ok(())) => {
            relay(local, stream, Begin::Bytes, Vec::new()).await.to_string()
        }
        (Ok(_), Err(error)) => error.to_string(),
        (Err(answer), _) => {
            let _ = stream.sending().finish();
            answer.text
        }
    };
    reports.detail(|| format!("{} to {target}: {end}", rights.name));
}
