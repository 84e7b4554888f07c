//! Requests and answers at the beginning of streams.

use std::io;
use std::time::Duration;

use stripe::{ReceiveHalf, SendHalf};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use wire::tunnel::{Answer, Code, HEADER, Request, body_length};

/// Reads a whole message, and nothing behind it.
async fn read(receiving: &mut ReceiveHalf) -> io::Result<Vec<u8>> {
    let mut header = [0; HEADER];
    receiving.read_exact(&mut header).await?;
    let length = body_length(header).map_err(invalid)?;
    let mut message = vec![0; HEADER + length];
    message[..HEADER].copy_from_slice(&header);
    receiving.read_exact(&mut message[HEADER..]).await?;
    Ok(message)
}

/// Reads the request of a stream, for so long.
///
/// # Errors
/// If it does not come, or is none.
pub(crate) async fn read_request(
    receiving: &mut ReceiveHalf,
    patience: Duration,
) -> io::Result<Request> {
    let message = timeout(patience, read(receiving)).await.map_err(late)??;
    Request::parse(&message).map_err(invalid)
}

/// Reads the answer to a request, for so long. That there is none is a failure too.
pub(crate) async fn read_answer(receiving: &mut ReceiveHalf, patience: Duration) -> Answer {
    let message = timeout(patience, read(receiving)).await.map_err(late).and_then(|read| read);
    let answer = message.and_then(|message| Answer::parse(&message).map_err(invalid));
    answer.unwrap_or_else(|error| {
        let code =
            if error.kind() == io::ErrorKind::TimedOut { Code::TimedOut } else { Code::Failed };
        Answer::failed(code, &format!("the far side does not answer: {error}"))
    })
}

/// Writes a request, and what follows it.
///
/// # Errors
/// If the stream has failed.
pub(crate) async fn write_request(
    sending: &mut SendHalf,
    request: &Request,
    behind: &[u8],
) -> io::Result<()> {
    let mut message = Vec::new();
    request.emit(&mut message);
    message.extend(behind);
    sending.write_all(&message).await
}

/// Writes an answer.
///
/// # Errors
/// If the stream has failed.
pub(crate) async fn write_answer(sending: &mut SendHalf, answer: &Answer) -> io::Result<()> {
    let mut message = Vec::new();
    answer.emit(&mut message);
    sending.write_all(&message).await
}

fn invalid(error: wire::WireError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn late(_: tokio::time::error::Elapsed) -> io::Error {
    io::ErrorKind::TimedOut.into()
}
