//! A door of the near side: each connection that it accepts becomes a stream.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

use reach::DIAL_PATIENCE;
use stripe::Stream;
use tokio::io::AsyncWriteExt;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use wire::tunnel::{Answer, Code, Request, Target};

use super::NearShared;
use crate::bounds::ANSWER_PATIENCE;
use crate::greetings::GreetingPlace;
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

/// Accepts connections. Clients of proxies have places of their own until they have named a target;
/// what has a target from the beginning is accepted as long as there are places.
pub(super) async fn serve(door: Door, purpose: Purpose, shared: Arc<NearShared>) {
    loop {
        let shared = Arc::clone(&shared);
        match &purpose {
            Purpose::Socks => {
                let (local, proxy) = (door.accept().await, Socks::new(shared.login.clone()));
                let greeting = shared.greetings.enter().await;
                tokio::spawn(by_proxy(local, proxy, greeting, shared));
            }
            Purpose::Http => {
                let (local, proxy) = (door.accept().await, Http::new(shared.login.clone()));
                let greeting = shared.greetings.enter().await;
                tokio::spawn(by_proxy(local, proxy, greeting, shared));
            }
            Purpose::Forward(target) => {
                let (place, local) = accept(&door, &shared).await;
                tokio::spawn(at_once(local, target.clone(), place, shared));
            }
            Purpose::Transparent => {
                let (place, local) = accept(&door, &shared).await;
                let far = shared.link.borrow().as_ref().map(|link| link.remote().ip());
                let target = door.address().and_then(|door| destination(&local, door, far));
                let from = local.peer_address();
                let counted = from.and_then(|from| shared.intercepted.enter(from.ip()));
                match target.zip(counted) {
                    Some((target, counted)) => {
                        tokio::spawn(at_once(local, target.into(), (place, counted), shared));
                    }
                    None => local.reset(),
                }
            }
        }
    }
}

async fn accept(door: &Door, shared: &NearShared) -> (OwnedSemaphorePermit, Local) {
    let place = Arc::clone(&shared.places).acquire_owned().await.expect("never closed");
    (place, door.accept().await)
}

/// Where an intercepted connection was going; `None` if it would come back here: it was made to the
/// door itself, or by the far side, for which this host is on the way to its targets.
fn destination(local: &Local, door: SocketAddr, far: Option<IpAddr>) -> Option<SocketAddr> {
    let (target, from) = (local.local_address()?, local.peer_address()?);
    let is_door = target.port() == door.port()
        && (target.ip() == door.ip() || door.ip().is_unspecified() && is_own(target.ip()));
    (!is_door && far != Some(from.ip())).then_some(target)
}

/// Whether this host has an address: only then can a socket have it.
fn is_own(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// A connection of a proxy's client, which waits for the far side's answer.
async fn by_proxy(
    mut local: Local,
    mut proxy: impl Proxy,
    greeting: GreetingPlace,
    shared: Arc<NearShared>,
) {
    let greeted = greeting.hold(async {
        match &mut local {
            Local::Tcp(stream) => greet(stream, &mut proxy).await,
            Local::Unix(stream) => greet(stream, &mut proxy).await,
        }
    });
    let Some((target, early)) = greeted.await.flatten() else { return };
    let place = Arc::clone(&shared.places).try_acquire_owned();
    let opened = match &place {
        Ok(_) => open(&target, &early, &shared).await,
        Err(_) => Err(Answer::failed(Code::Busy, "this host has too many connections open")),
    };
    let (answer, stream) = match opened {
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
    shared.events.detail(format!("{target}: {end}"));
}

/// A connection to a target that was known before: it need not wait.
async fn at_once(local: Local, target: Target, _places: impl Send, shared: Arc<NearShared>) {
    let end = match open(&target, &[], &shared).await {
        Ok(stream) => relay(local, stream, Begin::Answer, Vec::new()).await,
        Err(answer) => {
            local.reset();
            End::Refused(answer)
        }
    };
    shared.events.detail(format!("{target}: {end}"));
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

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    /// Where a connection from an address to another was going, for a door and a far side.
    async fn going(from: &str, to: &str, door: &str, far: Option<&str>) -> Option<SocketAddr> {
        let listener = TcpListener::bind((to, 0)).await.unwrap();
        let target = listener.local_addr().unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((from.parse::<IpAddr>().unwrap(), 0).into()).unwrap();
        let _client = socket.connect(target).await.unwrap();
        let accepted = Local::tcp(listener.accept().await.unwrap().0);
        let port = if door.ends_with(":same") { target.port() } else { 1 };
        let door = (door.split(':').next().unwrap().parse::<IpAddr>().unwrap(), port).into();
        destination(&accepted, door, far.map(|far| far.parse().unwrap()))
    }

    /// Each of these would be a connection that calls forth the next one, without an end.
    #[tokio::test]
    async fn what_would_come_back_here_is_not_intercepted() {
        let is_carried = async |from, to, door, far| going(from, to, door, far).await.is_some();
        assert!(is_carried("127.0.0.1", "127.0.0.9", "127.0.0.1:1", None).await);
        assert!(is_carried("127.0.0.1", "127.0.0.9", "127.0.0.1:same", Some("127.0.0.2")).await);
        assert!(!is_carried("127.0.0.1", "127.0.0.9", "127.0.0.9:same", None).await);
        assert!(!is_carried("127.0.0.1", "127.0.0.9", "0.0.0.0:same", None).await);
        assert!(!is_carried("127.0.0.2", "127.0.0.9", "127.0.0.1:1", Some("127.0.0.2")).await);
    }

    #[test]
    fn own_addresses_are_those_that_a_socket_can_have() {
        assert!(is_own("127.0.0.1".parse().unwrap()));
        assert!(!is_own("192.0.2.7".parse().unwrap()) && !is_own("2001:db8::7".parse().unwrap()));
    }
}
