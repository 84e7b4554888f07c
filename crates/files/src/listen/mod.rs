//! The listening side, for both directions of the data.
//!
//! [`receive`] has a sink, [`serve`] a source. Both are services behind a
//! [`peer::listen::Acceptor`].

mod receive;
mod serve;

use peer::carrier::Listener;
use tokio::net::TcpListener;

pub use receive::receive;
#[cfg(test)]
pub(crate) use receive::{Stalls, receive_unless_stalled};
pub use serve::serve;

/// Listening sockets as the acceptor takes them.
fn boxed(listeners: Vec<TcpListener>) -> Vec<Box<dyn Listener>> {
    listeners.into_iter().map(|listener| Box::new(listener) as Box<dyn Listener>).collect()
}
