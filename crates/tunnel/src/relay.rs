//! Copies the bytes of a connection in both directions, with their ends and resets.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use stripe::{ReceiveHalf, SendHalf, Stream, StreamError};
use wire::closing::CloseCode;
use wire::tunnel::{Answer, Code};

use crate::bounds::ANSWER_PATIENCE;
use crate::local::Local;
use crate::message::read_answer;

/// The code of streams whose connection was reset.
pub(crate) const RESET: u32 = CloseCode::Reset.number();
/// Bytes that are copied at a time.
const CHUNK: usize = 64 << 10;

thread_local! {
    /// Connections share a buffer, in which nothing stays: thousands of them are idle.
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; CHUNK].into_boxed_slice());
}

/// How a connection ended.
#[derive(Debug)]
pub(crate) enum End {
    /// Both directions came to their end.
    Whole,
    /// The local program's socket failed.
    Local(io::Error),
    /// The stream failed.
    Far(io::Error),
    /// The far side did not connect.
    Refused(Answer),
}

/// What the peer says first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// The answer to the request, which is yet to come.
    Answer,
    /// Bytes of the connection.
    Bytes,
}

/// Copies until both directions have ended or one has failed; then both are reset. `early` was read
/// of the local program before.
pub(crate) async fn relay(local: Local, stream: Stream, begin: Begin, early: Vec<u8>) -> End {
    let (sending, mut receiving) = stream.split();
    let end = copy(&local, &sending, &mut receiving, begin, early).await;
    if !matches!(end, End::Whole) {
        sending.reset(RESET);
        receiving.stop(RESET);
        local.reset();
    }
    end
}

async fn copy(
    local: &Local,
    sending: &SendHalf,
    receiving: &mut ReceiveHalf,
    begin: Begin,
    early: Vec<u8>,
) -> End {
    let (mut up, mut down) = (pin!(up(local, sending, early)), pin!(down(local, receiving, begin)));
    let (mut is_up_over, mut is_down_over) = (false, false);
    while !(is_up_over && is_down_over) {
        let ended = tokio::select! {
            ended = &mut up, if !is_up_over => ended.map(|()| is_up_over = true),
            ended = &mut down, if !is_down_over => ended.map(|()| is_down_over = true),
            error = local.failed(), if is_up_over => Err(End::Local(error)),
        };
        if let Err(end) = ended {
            return end;
        }
    }
    End::Whole
}

/// Copies from the local program to the stream.
async fn up(local: &Local, sending: &SendHalf, mut left: Vec<u8>) -> Result<(), End> {
    // The peer may read no further while there is nothing to write.
    let mut failed = pin!(sending.delivered());
    loop {
        let copied = poll_fn(|cx| poll_up(cx, local, sending, &mut left));
        tokio::select! {
            biased;
            copied = copied => if copied? == 0 {
                return sending.finish().map_err(far);
            },
            failed = &mut failed => {
                return Err(End::Far(failed.err().unwrap_or(StreamError::Ended).into()));
            }
        }
    }
}

/// Copies a chunk; zero bytes at the end.
fn poll_up(
    cx: &mut Context<'_>,
    local: &Local,
    sending: &SendHalf,
    left: &mut Vec<u8>,
) -> Poll<Result<usize, End>> {
    if !left.is_empty() {
        let sent = ready!(sending.poll_send(cx, left)).map_err(far)?;
        left.drain(..sent);
        if left.is_empty() {
            // Most connections never need it again.
            *left = Vec::new();
        }
        return Poll::Ready(Ok(sent));
    }
    ready!(sending.poll_writable(cx));
    BUFFER.with_borrow_mut(|buffer| {
        let read = ready!(local.poll_read(cx, buffer)).map_err(End::Local)?;
        let mut sent = 0;
        while sent < read {
            match sending.poll_send(cx, &buffer[sent..read]) {
                Poll::Ready(result) => sent += result.map_err(far)?,
                Poll::Pending => break,
            }
        }
        left.extend(&buffer[sent..read]);
        Poll::Ready(Ok(read))
    })
}

/// Copies from the stream to the local program.
async fn down(local: &Local, receiving: &mut ReceiveHalf, begin: Begin) -> Result<(), End> {
    if begin == Begin::Answer {
        let answer = read_answer(receiving, ANSWER_PATIENCE).await;
        if answer.code != Code::Done {
            return Err(End::Refused(answer));
        }
    }
    let mut left = Vec::new();
    while poll_fn(|cx| poll_down(cx, local, receiving, &mut left)).await? > 0 {}
    local.shutdown_write().map_err(End::Local)
}

/// Copies a chunk; zero bytes at the end.
fn poll_down(
    cx: &mut Context<'_>,
    local: &Local,
    receiving: &ReceiveHalf,
    left: &mut Vec<u8>,
) -> Poll<Result<usize, End>> {
    if !left.is_empty() {
        let written = ready!(local.poll_write(cx, left)).map_err(End::Local)?;
        left.drain(..written);
        if left.is_empty() {
            *left = Vec::new();
        }
        return Poll::Ready(Ok(written));
    }
    ready!(receiving.poll_readable(cx));
    // What the program has no room for stays in the stream, and holds up its sender.
    ready!(local.poll_writable(cx)).map_err(End::Local)?;
    BUFFER.with_borrow_mut(|buffer| {
        let read = ready!(receiving.poll_receive(cx, buffer)).map_err(far)?;
        let mut written = 0;
        while written < read {
            match local.poll_write(cx, &buffer[written..read]) {
                Poll::Ready(result) => written += result.map_err(End::Local)?,
                Poll::Pending => break,
            }
        }
        left.extend(&buffer[written..read]);
        Poll::Ready(Ok(read))
    })
}

fn far(error: StreamError) -> End {
    End::Far(error.into())
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            End::Whole => f.write_str("ended"),
            End::Local(error) => write!(f, "ended at this side: {error}"),
            End::Far(error) => write!(f, "ended at the far side: {error}"),
            End::Refused(answer) => f.write_str(&answer.text),
        }
    }
}
