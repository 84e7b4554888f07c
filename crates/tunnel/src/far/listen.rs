//! Ports at which the far side listens on behalf of a peer.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use reach::{DIAL_PATIENCE, code_of};
use stripe::{Connection, Stream};
use tokio::io::AsyncReadExt;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use wire::tunnel::{Answer, Code, Request, Target};

use super::Budget;
use super::metrics::TunnelMetrics;
use super::session::PeerRights;
use crate::local::{Door, Local};
use crate::message::{write_answer, write_request};
use crate::place::Place;
use crate::relay::{Begin, relay};
use events::Events;

/// How often, and after which times, the ports of a connection that was closed are tried again.
const LEAVING_TRIES: usize = 50;
const LEAVING: Duration = Duration::from_millis(20);

/// Listens as long as the peer keeps the stream open.
pub(super) async fn listen(
    mut stream: Stream,
    target: &Target,
    rights: &PeerRights,
    budget: &Budget,
    events: &Events,
) {
    let Ok(_place) = Arc::clone(&budget.listeners).try_acquire_owned() else {
        let busy = Answer::failed(Code::Busy, "this host listens at too many ports already");
        budget.metrics.refused(busy.code);
        refuse(stream, &busy).await;
        return;
    };
    let doors = match open_or_take_over(target, rights, stream.connection(), budget).await {
        Ok(doors) => doors,
        Err(answer) => {
            budget.metrics.refused(answer.code);
            events.detail(format!("{}: {}", rights.name, answer.text));
            refuse(stream, &answer).await;
            return;
        }
    };
    let port = doors.iter().find_map(Door::address).map_or(0, |address| address.port());
    if write_answer(stream.sending_mut(), &Answer::done(port)).await.is_err() {
        return;
    }
    let _listening = budget.metrics.listening();
    for door in &doors {
        events.detail(format!("{}: listening at {door}", rights.name));
    }
    let (listener, connection) = (stream.id(), stream.connection().clone());
    let mut accepting = JoinSet::new();
    for door in doors {
        let (connection, places) = (connection.clone(), Arc::clone(&budget.places));
        let metrics = budget.metrics.clone();
        accepting.spawn(accept(door, listener, connection, (places, metrics)));
    }
    // The peer says nothing there; that it ends the stream ends the ports.
    let mut octet = [0];
    let _ = stream.read(&mut octet).await;
}

/// Opens the places that a peer asks for, if it may. A connection of that peer of which nothing is
/// heard any more gives up what it holds.
async fn open_or_take_over(
    target: &Target,
    rights: &PeerRights,
    own: &Connection,
    budget: &Budget,
) -> Result<Vec<Door>, Answer> {
    let (mut opened, mut is_taken) = open(target, rights);
    if is_taken && budget.close_dead(own).await {
        // The tasks of what was closed leave the ports.
        for _ in 0..LEAVING_TRIES {
            (opened, is_taken) = open(target, rights);
            if !is_taken {
                break;
            }
            sleep(LEAVING).await;
        }
    }
    opened
}

/// Opens the places that a peer asks for, if it may, and says whether another program has one.
fn open(target: &Target, rights: &PeerRights) -> (Result<Vec<Door>, Answer>, bool) {
    let mut is_taken = false;
    let opened = open_doors(target, rights, &mut is_taken);
    (opened, is_taken)
}

fn open_doors(
    target: &Target,
    rights: &PeerRights,
    is_taken: &mut bool,
) -> Result<Vec<Door>, Answer> {
    let forbidden = || {
        let text = format!("this host may not be asked to listen at {target}");
        Answer::failed(Code::Forbidden, &text)
    };
    let place = Place::of_target(target).ok_or_else(forbidden)?;
    let may =
        |address: &std::net::SocketAddr| rights.rights.listen.permits(address.ip(), address.port());
    if !place.addresses().iter().all(may) {
        return Err(forbidden());
    }
    Door::open(&place, false).map_err(|(at, error)| {
        *is_taken = error.kind() == io::ErrorKind::AddrInUse;
        Answer::failed(code_of(&error), &format!("listen at {at}: {error}"))
    })
}

async fn refuse(mut stream: Stream, answer: &Answer) {
    // A stream that has failed has nobody to tell.
    let _ = write_answer(stream.sending_mut(), answer).await;
    let _ = stream.sending().finish();
}

/// Accepts connections, and hands each to the peer.
async fn accept(
    door: Door,
    listener: u32,
    connection: Connection,
    (places, metrics): (Arc<tokio::sync::Semaphore>, TunnelMetrics),
) {
    let mut tasks = JoinSet::new();
    loop {
        let place = Arc::clone(&places).acquire_owned().await.expect("never closed");
        let local = door.accept().await;
        while tasks.try_join_next().is_some() {}
        let connection = connection.clone();
        let counted = metrics.accepted();
        tasks.spawn(async move {
            let (_place, _counted) = (place, counted);
            hand_over(local, listener, &connection).await;
        });
    }
}

async fn hand_over(local: Local, listener: u32, connection: &Connection) {
    let Some(from) = local.peer_address() else { return };
    let opening = async {
        let mut stream = connection.open_stream().await.ok()?;
        let request = Request::Arrived { listener, from };
        write_request(stream.sending_mut(), &request, &[]).await.ok()?;
        Some(stream)
    };
    match timeout(DIAL_PATIENCE, opening).await.ok().flatten() {
        Some(stream) => {
            relay(local, stream, Begin::Answer, Vec::new()).await;
        }
        None => local.reset(),
    }
}
