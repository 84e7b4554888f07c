//! The sockets of a host that listens: TCP, and UDP at the same ports.

use std::io;
use std::net::SocketAddr;

use net::socket::listen;
use tokio::net::TcpListener;

use crate::striped::UdpListener;
use crate::{Error, ListenOptions};

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
                Err(error) if options.further_ports > 0 && is_taken(&error) => Err(error),
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

/// Opens something at the port of `options` or, while that is taken, at one of its further ports.
/// Returns a message for people if it is another one.
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
