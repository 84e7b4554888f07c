//! The listening side, for both directions of the data.
//!
//! [`receive`] has a sink, [`serve`] a source. Both are services behind a
//! [`peer::listen::Acceptor`].

mod receive;
mod serve;

use std::net::SocketAddr;

use peer::carrier::Listener;
use peer::listen::display_address;
use tokio::net::TcpListener;

use crate::Event;

pub use receive::receive;
pub use serve::serve;

/// The notice that a connection was refused.
fn refused(from: SocketAddr, reason: &str, unreported: u64) -> Event {
    let before = match unreported {
        0 => String::new(),
        count => format!(" ({count} others before it)"),
    };
    Event::Notice { text: format!("{} was refused: {reason}{before}", display_address(from)) }
}

/// Listening sockets as the acceptor takes them.
fn boxed(listeners: Vec<TcpListener>) -> Vec<Box<dyn Listener>> {
    listeners.into_iter().map(|listener| Box::new(listener) as Box<dyn Listener>).collect()
}
