//! The turns of the thread: what is due and wished for is done, and then what arrives is waited
//! for.

use std::io;
use std::time::Duration;

use sys::poll::Ready;
use units::{Span, Time};

use super::sockets::SocketKey;
use super::{Driver, GUEST, Link, Listener, WAKER};
use crate::arrivals::Arrivals;
use crate::connection::inbox::Command;

/// How long connections are closed in order after the endpoint and all programs have gone.
const MOST_CLOSING: Span = Span::from_secs(5);

/// Space that each turn uses again.
#[derive(Default)]
pub(crate) struct Buffers {
    ready: Vec<Ready>,
    commands: Vec<Command>,
    arrivals: Arrivals,
}

impl Driver {
    /// Drives until nobody uses the endpoint and all connections have ended.
    pub(crate) fn run(mut self) {
        sys::poll::set_precise_timers();
        let mut buffers = Buffers::default();
        loop {
            self.work(&mut buffers);
            if self.is_over() {
                return;
            }
            let timeout =
                if self.inbox.prepare_to_sleep() { self.timeout() } else { Some(Duration::ZERO) };
            if let Err(error) = self.listen(timeout, &mut buffers) {
                tracing::error!(%error, "the driver of striped connections cannot wait");
                return;
            }
        }
    }

    /// Does what programs wish and what is due. Returns whether programs had wishes.
    pub(super) fn work(&mut self, buffers: &mut Buffers) -> bool {
        self.inbox.take(&mut buffers.commands);
        let has_wishes = !buffers.commands.is_empty();
        for command in buffers.commands.drain(..) {
            self.handle_command(command);
        }
        self.fire();
        self.serve_guest();
        self.serve_touched();
        self.keep_to_memory();
        let remaining = self.remaining();
        self.count.send_if_modified(|count| std::mem::replace(count, remaining) != remaining);
        has_wishes
    }

    /// Waits for what arrives, and takes it. Returns whether anything did.
    pub(super) fn listen(
        &mut self,
        timeout: Option<Duration>,
        buffers: &mut Buffers,
    ) -> io::Result<bool> {
        self.sockets.wait(&mut buffers.ready, timeout)?;
        self.inbox.handle_awake();
        let is_something = !buffers.ready.is_empty();
        for Ready { key, readable, writable, .. } in buffers.ready.drain(..) {
            if key == WAKER {
                continue;
            }
            if key == GUEST {
                if let Some(guest) = &mut self.guest {
                    guest.handle_readable(self.clock.now());
                }
                continue;
            }
            let socket = SocketKey(key);
            if writable {
                self.handle_writable(socket);
            }
            if readable {
                self.receive(socket, &mut buffers.arrivals);
            }
        }
        Ok(is_something)
    }

    fn is_over(&self) -> bool {
        let Some(since) = self.ended_at else { return false };
        self.links.is_empty() && self.dialing.is_empty()
            // Programs have gone with their connections; peers that do not answer hold up nobody.
            || self.links.values().all(Link::is_abandoned)
                && self.clock.now().since(since) > MOST_CLOSING
    }

    /// How long the thread may sleep.
    fn timeout(&self) -> Option<Duration> {
        let next = self.next()?;
        Some(Duration::from_nanos(next.since(self.clock.now()).as_nanos()))
    }

    /// When something is due next.
    pub(super) fn next(&self) -> Option<Time> {
        let listener = self.listener.as_ref().and_then(Listener::poll_deadline);
        let closing = self.ended_at.map(|at| at + MOST_CLOSING + Span::from_millis(1));
        let first = self.due.first().map(|(at, _)| *at);
        let leavings = self.leavings.poll_deadline();
        let guest = self.guest.as_ref().and_then(|guest| guest.poll_deadline());
        [listener, closing, first, leavings, guest].into_iter().flatten().min()
    }
}
