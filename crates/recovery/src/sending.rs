//! What a sender does at a moment, for those who watch it.

/// What a sender does, and what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sending {
    /// How its window develops.
    pub phase: SendPhase,
    /// What keeps the next packet back.
    pub limit: SendLimit,
}

/// How the window of a sender develops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendPhase {
    /// The window is below its threshold.
    SlowStart,
    /// The window is at its threshold or above.
    Avoidance,
    /// Losses are being repaired, up to what was sent when they were found.
    Recovery,
    /// The timer has run out, and what was in flight then is sent again.
    Timeout,
}

/// What keeps the next packet of a sender back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendLimit {
    /// There is nothing to send.
    Application,
    /// The receiver's window is full.
    Receiver,
    /// The congestion window is full, or what recovery may send, or a choke forbids packets.
    Window,
    /// Its pace.
    Pacing,
    /// Of one of several paths with room: the packet scheduler prefers another one, or waits for
    /// it.
    Scheduler,
}
