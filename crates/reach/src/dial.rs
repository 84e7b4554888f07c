//! Connections to targets: a name is resolved once, each address is checked, and the address that
//! was checked is dialed.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use wire::tunnel::{Answer, Code, Host, Target};

use crate::lookups::AskerLookups;
use crate::permit::Reach;

/// The time to find and reach a target.
pub const DIAL_PATIENCE: Duration = Duration::from_secs(10);

/// The least time for an address before the next one is tried.
const EACH: Duration = Duration::from_secs(2);
/// The most addresses of a name that are tried.
const MOST_ADDRESSES: usize = 8;

/// Whom this host dials for.
#[derive(Clone, Copy, Debug)]
pub enum For<'a> {
    /// Its own user, who named the target.
    Itself,
    /// A peer with these rights.
    Peer(&'a Reach),
}

/// Connects to a target, within [`DIAL_PATIENCE`].
///
/// # Errors
/// The answer that says why not.
pub async fn dial(
    target: &Target,
    whom: For<'_>,
    lookups: &AskerLookups,
) -> Result<TcpStream, Answer> {
    let dialing = reach(target, whom, lookups);
    timeout(DIAL_PATIENCE, dialing).await.unwrap_or_else(|_| {
        Err(Answer::failed(Code::TimedOut, &format!("{target} does not answer")))
    })
}

async fn reach(
    target: &Target,
    whom: For<'_>,
    lookups: &AskerLookups,
) -> Result<TcpStream, Answer> {
    let end = Instant::now() + DIAL_PATIENCE;
    let addresses = permitted(target, whom, lookups).await?;
    let mut why = None;
    for (at, address) in addresses.iter().enumerate() {
        let left = end.saturating_duration_since(Instant::now());
        let others = u32::try_from(addresses.len() - at).expect("a few");
        let until = (Instant::now() + EACH.max(left / others)).min(end);
        match timeout_at(until, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => why = Some(error),
            Err(_) => why = Some(io::ErrorKind::TimedOut.into()),
        }
    }
    let why = why.unwrap_or_else(|| io::ErrorKind::NotFound.into());
    Err(Answer::failed(code_of(&why), &format!("{target}: {why}")))
}

/// The addresses of a target that may be dialed: at least one, and a handful at most.
///
/// # Errors
/// The answer that says why there are none.
pub async fn permitted(
    target: &Target,
    whom: For<'_>,
    lookups: &AskerLookups,
) -> Result<Vec<SocketAddr>, Answer> {
    let forbidden = || Answer::failed(Code::Forbidden, &format!("{target} is not permitted here"));
    let may = |name: Option<&str>, address: IpAddr| match whom {
        For::Itself => true,
        For::Peer(reach) => reach.permits(name, address, target.port),
    };
    let name = match &target.host {
        Host::Address(address) => {
            let address = address.to_canonical();
            let permitted = may(None, address).then(|| SocketAddr::new(address, target.port));
            return permitted.map(|address| vec![address]).ok_or_else(forbidden);
        }
        Host::Name(name) => name,
    };
    if let For::Peer(reach) = whom
        && !reach.may_resolve(target.port, name)
    {
        return Err(forbidden());
    }
    let unresolved = |why: &dyn std::fmt::Display| {
        Answer::failed(Code::Unresolved, &format!("there is no host {name}: {why}"))
    };
    let found = lookups.find(name, target.port).await.map_err(|error| match code_of(&error) {
        Code::Busy => Answer::failed(Code::Busy, &error.to_string()),
        _ => unresolved(&error),
    })?;
    if found.is_empty() {
        return Err(unresolved(&"it has no address"));
    }
    let mut permitted: Vec<SocketAddr> =
        found.into_iter().filter(|address| may(Some(name), address.ip())).collect();
    permitted.truncate(MOST_ADDRESSES);
    if permitted.is_empty() { Err(forbidden()) } else { Ok(permitted) }
}

/// The code for a failure of the system.
#[must_use]
pub fn code_of(error: &io::Error) -> Code {
    const NO_DESCRIPTORS: [i32; 2] =
        [rustix::io::Errno::MFILE.raw_os_error(), rustix::io::Errno::NFILE.raw_os_error()];
    if error.raw_os_error().is_some_and(|number| NO_DESCRIPTORS.contains(&number)) {
        return Code::Busy;
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Code::Refused,
        io::ErrorKind::TimedOut => Code::TimedOut,
        io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::AddrNotAvailable => Code::Unreachable,
        io::ErrorKind::OutOfMemory => Code::Busy,
        _ => Code::Failed,
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::lookups::Lookups;

    fn target(text: &str) -> Target {
        crate::target::parse_target(text).expect(text)
    }

    async fn code(rights: &str, to: &str) -> Code {
        let rights: Reach = rights.parse().expect(rights);
        let lookups = Lookups::new().of([1; 32]);
        match dial(&target(to), For::Peer(&rights), &lookups).await {
            Ok(_) => Code::Done,
            Err(answer) => answer.code,
        }
    }

    #[tokio::test]
    async fn a_peer_reaches_what_it_may_and_nothing_else() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let at = |host: &str| format!("{host}:{port}");
        assert_eq!(code(&at("127.0.0.1"), &at("127.0.0.1")).await, Code::Done);
        assert_eq!(code(&at("127.0.0.1"), &at("localhost")).await, Code::Done, "by its address");
        assert_eq!(code(&at("localhost"), &at("localhost")).await, Code::Done);
        assert_eq!(code("*:*", &at("127.0.0.1")).await, Code::Forbidden);
        assert_eq!(code("*:*", &at("[::ffff:127.0.0.1]")).await, Code::Forbidden);
        assert_eq!(code("*:1", &at("127.0.0.1")).await, Code::Forbidden);
    }

    /// What an attacker's name leads to is checked where it is dialed: here, after the resolver.
    #[tokio::test]
    async fn a_name_that_leads_to_a_protected_address_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(code("*:*", &format!("localhost:{port}")).await, Code::Forbidden);
        // The resolver takes other ways to write 127.0.0.1, too.
        for name in ["2130706433", "127.1", "0x7f000001", "0"] {
            let found = code("*:*", &format!("{name}:{port}")).await;
            assert!(matches!(found, Code::Forbidden | Code::Unresolved), "{name}: {found:?}");
        }
    }

    #[tokio::test]
    async fn failures_have_reasons() {
        let port = {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            listener.local_addr().unwrap().port()
        };
        assert_eq!(code("127.0.0.1:*", &format!("127.0.0.1:{port}")).await, Code::Refused);
        assert_eq!(code("*:*", "no-such-host.invalid:80").await, Code::Unresolved);
        let busy = io::Error::from_raw_os_error(rustix::io::Errno::MFILE.raw_os_error());
        assert_eq!(code_of(&busy), Code::Busy);
    }
}
