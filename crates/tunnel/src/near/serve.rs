//! A door of the near side: each connection that it accepts becomes a stream.

use std::sync::Arc;

use stripe::Stream;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;
use wire::tunnel::{Answer, Code, Request, Target};

use super::NearShared;
use crate::bounds::{ANSWER_PATIENCE, DIAL_PATIENCE};
use crate::local::{Door, Local};
use crate::message::{read_answer, write_request};
use crate::preamble::{Http, Proxy, Socks, greet};
use crate::relay::{Begin, End, relay};

/// What becomes of a door's connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Socks,
    Http,
    Forward(Target),
    Transparent,
}

impl Purpose {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Purpose::Socks => "SOCKS",
            Purpose::Http => "HTTP",
            Purpose::Forward(_) => "forward",
            Purpose::Transparent => "transparent",
        }
    }
}

/// Accepts connections as long as there are places.
pub(super) async fn serve(door: Door, purpose: Purpose, shared: Arc<NearShared>) {
    loop {
        let place = Arc::clone(&shared.places).acquire_owned().await.expect("never closed");
        let local = door.accept().await;
        let own = door.address();
        let (purpose, shared) = (purpose.clone(), Arc::clone(&shared));
        tokio::spawn(async move {
            let _place = place;
            match purpose {
                Purpose::Socks => {
                    let proxy = Socks::new(shared.login.clone());
                    by_proxy(local, proxy, &shared).await;
                }
                Purpose::Http => {
                    let proxy = Http::new(shared.login.clone());
                    by_proxy(local, proxy, &shared).await;
                }
                Purpose::Forward(target) => at_once(local, target, &shared).await,
                Purpose::Transparent => match local.local_address() {
                    // Who connects to the door itself wants nobody else.
                    Some(target) if Some(target) != own => {
                        at_once(local, target.into(), &shared).await;
                    }
                    _ => local.reset(),
                },
            }
        });
    }
}

/// A connection of a proxy's client, which waits for the far side's answer.
async fn by_proxy(mut local: Local, mut proxy: impl Proxy, shared: &NearShared) {
    let greeted = match &mut local {
        Local::Tcp(stream) => greet(stream, &mut proxy).await,
        Local::Unix(stream) => greet(stream, &mut proxy).await,
    };
    let Some((target, early)) = greeted else { return };
    let (answer, stream) = match open(&target, &early, shared).await {
        Ok(mut stream) => {
            let answer = read_answer(stream.receiving_mut(), ANSWER_PATIENCE).await;
            (answer, Some(stream))
        }
        Err(answer) => (answer, None),
    };
    let said = proxy.answer(&answer);
    let told = match &mut local {
        Local::Tcp(stream) => stream.write_all(&said).await,
        Local::Unix(stream) => stream.write_all(&said).await,
    };
    let accepted = stream.filter(|_| answer.code == Code::Done && told.is_ok());
    let end = if let Some(stream) = accepted {
        relay(local, stream, Begin::Bytes, Vec::new()).await
    } else {
        // The client reads the answer, and then the end.
        let _ = local.shutdown_write();
        End::Refused(answer)
    };
    shared.reports.detail(|| format!("{target}: {end}"));
}

/// A connection to a target that was known before: it need not wait.
async fn at_once(local: Local, target: Target, shared: &NearShared) {
    let end = match open(&target, &[], shared).await {
        Ok(stream) => relay(local, stream, Begin::Answer, Vec::new()).await,
        Err(answer) => {
            local.reset();
            End::Refused(answer)
        }
    };
    shared.reports.detail(|| format!("{target}: {end}"));
}

/// Opens a stream to a target, and sends what the program has sent already.
async fn open(target: &Target, early: &[u8], shared: &NearShared) -> Result<Stream, Answer> {
    let opening = async {
        let mut link = shared.link.clone();
        let connection = link.wait_for(Option::is_some).await.ok().and_then(|link| link.clone());
        let gone = |why: &dyn std::fmt::Display| {
            Answer::failed(Code::Failed, &format!("the tunnel has ended: {why}"))
        };
        let connection = connection.ok_or_else(|| gone(&"it is stopped"))?;
        let mut stream = connection.open_stream().await.map_err(|error| gone(&error))?;
        let request = Request::Connect(target.clone());
        let written = write_request(stream.sending_mut(), &request, early).await;
        written.map_err(|error| gone(&error))?;
        Ok(stream)
    };
    let late = |_| Err(Answer::failed(Code::Busy, "there is no tunnel at the moment"));
    timeout(DIAL_PATIENCE, opening).await.unwrap_or_else(late)
}
