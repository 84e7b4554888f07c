//! Ports at the far side whose connections come here.

use std::collections::HashMap;
use std::sync::Arc;

use reach::{AskerLookups, For, dial};
use stripe::{Connection, Stream};
use tokio::task::JoinSet;
use wire::tunnel::{Answer, Code, Request, Target};

use super::NearShared;
use crate::bounds::{ANSWER_PATIENCE, PREAMBLE_PATIENCE};
use crate::local::Local;
use crate::message::{read_answer, read_request, write_answer, write_request};
use crate::place::Forward;
use crate::relay::{Begin, relay};
use events::Events;

/// Asks for the ports, and serves their connections until the connection ends.
pub(super) async fn serve(connection: &Connection, forwards: &[Forward], shared: &NearShared) {
    let mut listening = HashMap::new();
    // A stream that is dropped would end what it asked for.
    let mut streams = Vec::new();
    for forward in forwards {
        if let Some(stream) = ask(connection, forward, &shared.events).await {
            listening.insert(stream.id(), forward.target.clone());
            streams.push(stream);
        }
    }
    let mut tasks = JoinSet::new();
    while let Ok(stream) = connection.accept_stream().await {
        while tasks.try_join_next().is_some() {}
        let Ok(place) = Arc::clone(&shared.places).try_acquire_owned() else { continue };
        let (targets, lookups) = (listening.clone(), shared.lookups.clone());
        let events = shared.events.clone();
        tasks.spawn(async move {
            let _place = place;
            arrived(stream, &targets, &lookups, &events).await;
        });
    }
}

/// Has the far side listen.
async fn ask(connection: &Connection, forward: &Forward, events: &Events) -> Option<Stream> {
    let target = forward.place.target()?;
    let mut stream = connection.open_stream().await.ok()?;
    let request = Request::Listen(target);
    let written = write_request(stream.sending_mut(), &request, &[]).await;
    let answer = match written {
        Ok(()) => read_answer(stream.receiving_mut(), ANSWER_PATIENCE).await,
        Err(error) => Answer::failed(Code::Failed, &error.to_string()),
    };
    if answer.code != Code::Done {
        let (place, target) = (&forward.place, &forward.target);
        let text = format!("-R {place}:{target}: the far side does not listen: {}", answer.text);
        events.notice(text);
        return None;
    }
    let mut place = forward.place.target()?;
    place.port = answer.port;
    events.accepting("the far side", place);
    Some(stream)
}

/// A connection that the far side has accepted.
async fn arrived(
    mut stream: Stream,
    targets: &HashMap<u32, Target>,
    lookups: &AskerLookups,
    events: &Events,
) {
    let request = read_request(stream.receiving_mut(), PREAMBLE_PATIENCE).await;
    let Ok(Request::Arrived { listener, from }) = request else { return };
    let Some(target) = targets.get(&listener) else { return };
    let local = dial(target, For::Itself, lookups).await.map(Local::tcp);
    let answer = local.as_ref().map_or_else(Clone::clone, |_| Answer::done(0));
    let told = write_answer(stream.sending_mut(), &answer).await;
    let end = match (local, told) {
        (Ok(local), Ok(())) => relay(local, stream, Begin::Bytes, Vec::new()).await.to_string(),
        (Ok(_), Err(error)) => error.to_string(),
        (Err(answer), _) => {
            let _ = stream.sending().finish();
            answer.text
        }
    };
    events.detail(format!("{from} to {target}: {end}"));
}
