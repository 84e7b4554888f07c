//! What waits to be sent, except acknowledgements of single paths and data of streams.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use units::SubflowId;

use wire::ptcp::Ack;

use super::bounds::MAX_COPIES;
use crate::path::Control;

/// Control messages, datagrams, copies of acknowledgements, and a ping.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    controls: VecDeque<Control>,
    /// Copies of acknowledgements for further paths.
    ack_copies: Vec<(SubflowId, Ack)>,
    /// Sizes of the datagrams to be sent.
    datagrams: VecDeque<u16>,
    /// Raw datagrams to be sent: path and size.
    raw: VecDeque<(SubflowId, u16)>,
    /// Whether the application wants an acknowledgement.
    is_ping_due: bool,
    /// Whether anything may wait, here or with a path: an answer, a probe, the handshake.
    is_awake: bool,
}

impl Outbox {
    pub(super) fn new() -> Outbox {
        Outbox {
            controls: VecDeque::new(),
            ack_copies: Vec::new(),
            datagrams: VecDeque::new(),
            raw: VecDeque::new(),
            is_ping_due: false,
            is_awake: true,
        }
    }

    /// Something may wait with a path.
    #[inline]
    pub(super) fn wake(&mut self) {
        self.is_awake = true;
    }

    /// Whether anything may wait.
    #[inline]
    pub(super) fn is_awake(&self) -> bool {
        self.is_awake
    }

    /// Nothing can be sent: what waits here waits for room.
    pub(super) fn rest(&mut self) {
        self.is_awake = !self.controls.is_empty() || !self.datagrams.is_empty() || self.is_ping_due;
    }

    pub(super) fn push(&mut self, control: Control) {
        self.controls.push_back(control);
        self.is_awake = true;
    }

    /// Unless the same message waits already.
    pub(super) fn push_once(&mut self, control: Control) {
        if !self.controls.contains(&control) {
            self.push(control);
        }
    }

    pub(super) fn has_controls(&self) -> bool {
        !self.controls.is_empty()
    }

    pub(super) fn pop_control(&mut self) -> Option<Control> {
        self.controls.pop_front()
    }

    /// A copy of an acknowledgement for a further path, unless too many wait.
    pub(super) fn push_copy(&mut self, path: SubflowId, ack: Ack) {
        if self.ack_copies.len() < MAX_COPIES {
            self.ack_copies.push((path, ack));
        }
    }

    pub(super) fn pop_copy(&mut self) -> Option<(SubflowId, Ack)> {
        self.ack_copies.pop()
    }

    pub(super) fn push_datagram(&mut self, len: u16) {
        self.datagrams.push_back(len);
        self.is_awake = true;
    }

    pub(super) fn datagrams(&self) -> usize {
        self.datagrams.len()
    }

    /// The datagram that has waited longest.
    pub(super) fn first_datagram(&self) -> Option<u16> {
        self.datagrams.front().copied()
    }

    pub(super) fn pop_datagram(&mut self) {
        self.datagrams.pop_front();
    }

    pub(super) fn push_raw(&mut self, path: SubflowId, len: u16) {
        self.raw.push_back((path, len));
        self.is_awake = true;
    }

    pub(super) fn raw(&self) -> usize {
        self.raw.len()
    }

    pub(super) fn pop_raw(&mut self) -> Option<(SubflowId, u16)> {
        self.raw.pop_front()
    }

    pub(super) fn ask_ping(&mut self) {
        (self.is_ping_due, self.is_awake) = (true, true);
    }

    pub(super) fn is_ping_due(&self) -> bool {
        self.is_ping_due
    }

    pub(super) fn handle_ping_sent(&mut self) {
        self.is_ping_due = false;
    }
}
