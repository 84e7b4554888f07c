//! What a proxy's client says before its connection begins: SOCKS5 or HTTP. The parsers have no
//! sockets: bytes in, steps out.

mod http;
mod login;
mod socks;

pub use login::Login;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use wire::tunnel::{Answer, Target};
use zeroize::Zeroizing;

use crate::bounds::{MOST_PREAMBLE, PREAMBLE_PATIENCE};

pub use http::Http;
pub use socks::Socks;

/// What to do after some bytes of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read more.
    More,
    /// Send this, and read on.
    Say(Vec<u8>),
    /// Connect to the target, and tell the client by [`Proxy::answer`].
    Connect(Target),
    /// Send this, and close the connection.
    Refuse(Vec<u8>),
}

/// A protocol in which clients name their targets.
pub trait Proxy {
    /// Looks at what the client has sent and nobody has consumed: how many bytes are consumed, and
    /// the next step.
    fn handle(&mut self, input: &[u8]) -> (usize, Step);

    /// The answer to the client, once the far side has answered.
    fn answer(&self, answer: &Answer) -> Vec<u8>;
}

/// Reads the target that a client names, and what the client sent behind it. `None`: it named none
/// in the time and the bytes that it has, or in a way that was refused.
pub(crate) async fn greet<S>(socket: &mut S, proxy: &mut impl Proxy) -> Option<(Target, Vec<u8>)>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let greeted = timeout(PREAMBLE_PATIENCE, exchange(socket, proxy)).await;
    greeted.ok()?
}

async fn exchange<S>(socket: &mut S, proxy: &mut impl Proxy) -> Option<(Target, Vec<u8>)>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    // It may hold a password.
    let mut input = Zeroizing::new(Vec::with_capacity(MOST_PREAMBLE));
    let mut total = 0;
    loop {
        let (consumed, step) = proxy.handle(&input);
        input.drain(..consumed);
        match step {
            Step::Say(answer) => socket.write_all(&answer).await.ok()?,
            Step::Connect(target) => return Some((target, input.to_vec())),
            Step::Refuse(answer) => {
                socket.write_all(&answer).await.ok()?;
                // What is unread would turn the end into a reset, and the answer be lost.
                let _ = socket.shutdown().await;
                let mut rest = [0; 512];
                while total < MOST_PREAMBLE {
                    match socket.read(&mut rest).await {
                        Ok(read) if read > 0 => total += read,
                        _ => break,
                    }
                }
                return None;
            }
            Step::More => {
                let mut chunk = Zeroizing::new([0; 1_024]);
                let most = chunk.len().min(MOST_PREAMBLE - total);
                let read = socket.read(&mut chunk[..most]).await.ok().filter(|read| *read > 0)?;
                total += read;
                input.extend(&chunk[..read]);
            }
        }
    }
}

#[cfg(test)]
mod tests;
