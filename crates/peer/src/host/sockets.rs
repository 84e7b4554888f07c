//! The sockets of a host that listens: TCP, and UDP at the same ports.

use std::io;
use std::net::SocketAddr;

use net::socket::listen;
use tokio::net::TcpListener;

use crate::striped::UdpListener;
use crate::{Error, ListenOptions};

/// How often the system is asked for a port that is free with both carriers: it gives one that is
/// so with TCP, and programs with many sockets have thousands of UDP's.
const MOST_ASKED: usize = 16;

/// The sockets of a host that listens.
#[derive(Debug)]
pub struct Sockets {
    /// Those of TCP.
    pub tcp: Vec<TcpListener>,
    /// That of UDP, or why there is none: another program may have its port.
    pub udp: Result<UdpListener, Error>,
    /// What to tell people of a port that another one took the place of.
    pub notice: Option<String>,
}

impl Sockets {
    /// Opens the sockets of `options`; UDP with those of a striped connection. Where a further port
    /// may be taken, one counts as free if it is so with both carriers.
    ///
    /// # Errors
    /// [`Error::System`], with the address that the kernel refused and, if it is taken, by whom.
    pub fn open(options: &ListenOptions, stripe: &stripe::Options) -> Result<Sockets, Error> {
        let ((tcp, udp), notice) = at_free_port(options, |options| {
            let tcp = listen(&options.addresses, options.port)?;
            let (addresses, port) = place_of(options, &tcp);
            let at = ListenOptions { addresses, port, ..options.clone() };
            match UdpListener::bind(&at, stripe.clone()) {
                Err(error) if has_choice(options) && is_taken(&error) => Err(error),
                udp => Ok((tcp, udp)),
            }
        })?;
        Ok(Sockets { tcp, udp, notice })
    }
}

/// The addresses and the port of `options` as these sockets have them: port 0, or one that was
/// taken, has become theirs.
pub(super) fn place_of(options: &ListenOptions, tcp: &[TcpListener]) -> (Vec<SocketAddr>, u16) {
    let bound = tcp.iter().filter_map(|tcp| tcp.local_addr().ok());
    let mut bound: Vec<SocketAddr> = bound.collect();
    let port = bound.first().map_or(options.port, SocketAddr::port);
    if options.addresses.is_empty() {
        bound.clear();
    }
    (bound, port)
}

/// Whether the system chooses the port.
fn is_any(options: &ListenOptions) -> bool {
    let named = options.addresses.iter().map(SocketAddr::port);
    if options.addresses.is_empty() { options.port == 0 } else { named.max() == Some(0) }
}

/// Whether another port does as well.
fn has_choice(options: &ListenOptions) -> bool {
    options.further_ports > 0 || is_any(options)
}

/// Opens something at the port of `options` or, while that is taken, at one of its further ports,
/// or at another one that the system chooses, if it does. Returns a message for people if it is not
/// the one that was asked for.
///
/// # Errors
/// Those of opening; that of the first port, if all are taken.
pub fn at_free_port<T>(
    options: &ListenOptions,
    open: impl Fn(&ListenOptions) -> Result<T, Error>,
) -> Result<(T, Option<String>), Error> {
    let first = match open(options) {
        Err(error) if is_taken(&error) => error,
        opened => return Ok((opened?, None)),
    };
    for _ in 1..if is_any(options) { MOST_ASKED } else { 1 } {
        match open(options) {
            Err(error) if is_taken(&error) => {}
            opened => return Ok((opened?, None)),
        }
    }
    for more in 1..=options.further_ports {
        let Some(port) = options.port.checked_add(more) else { break };
        match open(&ListenOptions { port, ..options.clone() }) {
            Err(error) if is_taken(&error) => {}
            opened => {
                let text = format!("{first}; this host listens at port {port} in its place");
                return Ok((opened?, Some(text)));
            }
        }
    }
    Err(advised(first))
}

fn is_taken(error: &Error) -> bool {
    matches!(error, Error::System { source, .. } if source.kind() == io::ErrorKind::AddrInUse)
}

/// The error for a port that is taken, with what to do.
fn advised(error: Error) -> Error {
    let Error::System { action, source } = error else { return error };
    let text = format!("{source}; stop that program, or name another port");
    Error::System { action, source: io::Error::new(source.kind(), text) }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::Identity;

    /// Opens at the third try; how often it was tried.
    fn tried(options: &ListenOptions) -> (Result<u16, Error>, u32) {
        let tries = Cell::new(0);
        let opened = at_free_port(options, |options| {
            tries.set(tries.get() + 1);
            let source = io::ErrorKind::AddrInUse.into();
            let taken = Error::System { action: "listen".into(), source };
            if tries.get() < 3 { Err(taken) } else { Ok(options.port) }
        });
        (opened.map(|(port, _)| port), tries.get())
    }

    /// One of 600 receivers beside programs with many sockets had a port with TCP alone, and
    /// whoever came over UDP was refused.
    #[test]
    fn the_system_is_asked_again_for_a_port_that_is_taken_with_udp() {
        let mut options = ListenOptions::new(Identity::generate().unwrap());
        options.port = 0;
        assert!(matches!(tried(&options), (Ok(0), 3)));
        options.addresses = vec![([127, 0, 0, 1], 0).into()];
        assert!(matches!(tried(&options), (Ok(0), 3)));
        options.addresses = vec![([127, 0, 0, 1], 7).into()];
        assert!(matches!(tried(&options), (Err(_), 1)));
        (options.addresses, options.port, options.further_ports) = (Vec::new(), 7, 5);
        assert!(matches!(tried(&options), (Ok(9), 3)));
    }
}
