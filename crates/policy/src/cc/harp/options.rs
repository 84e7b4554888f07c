//! The parameters of Harp's controller: the paper's, and those that ship.

use units::Span;

use super::LatenessOptions;

/// ξ: what a decrease weighs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HarpCoupling {
    /// ξ = 1: each path for itself.
    Independent,
    /// ξ = 0: the sum of all windows.
    Joint,
    /// `ξ = w / M`, M being the largest window of the path.
    #[default]
    Adaptive,
}

/// The parameters of Harp's controller.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub struct HarpOptions {
    /// ξ.
    pub coupling: HarpCoupling,
    /// α: the share of what is acknowledged by which a window grows.
    pub alpha: f64,
    /// The packets of a window beyond which it grows by half of α for each further one; `None` for
    /// α of all. Windows of so many packets are late in a round trip, all at once, and decreases
    /// alike keep the ratio of windows: the half that does not follow the window makes transfers
    /// alike equal.
    pub full_growth: Option<f64>,
    /// β: the share that a decrease takes.
    pub beta: f64,
    /// What the first decrease takes at most, in units of the queue's share of the round trip;
    /// those that follow it at once take β, and so do all with `None`. On a long line the threshold
    /// is a small part of the window, and β of that would leave the line idle for many round trips.
    pub first_decrease: Option<f64>,
    /// When packets are late.
    pub lateness: LatenessOptions,
    /// The queue, in the mean of the late packets that led to a decrease, beyond which others made
    /// it who do not yield: then Adaptive takes β of the path's own window, as Independent does.
    /// Transfers in the background keep a queue near the threshold; coupling is for sharing with
    /// them. What foreground flows need is left to them on each path alike, and taking it from all
    /// windows as well gained nothing. `None`: decreases do not ask.
    pub foreground: Option<Span>,
    /// Whether a loss takes half of `ξ w + (1 − ξ) W`. If not it takes half of W, which is all that
    /// one of two equal paths has.
    pub couples_losses: bool,
    /// The weight of late packets that a decrease needs.
    pub needed: f64,
    /// The weight of a packet with a mark (ECN); zero for none.
    pub mark: f64,
    /// The least window, in packets. Below one the sender paces.
    pub floor: f64,
    /// Whether windows double in a round trip until the first late packet, and again where a small
    /// one has met no queue for a while.
    pub slow_start: bool,
    /// Whether M is the largest delivery rate times the smallest round-trip time, and not the
    /// largest window. With slow start a largest window would be that of its overshoot for long.
    pub extent_by_rate: bool,
    /// How long M is remembered; `None` for ever.
    pub memory: Option<Span>,
    /// Whether a path at its floor is choked.
    pub chokes: bool,
    /// The time from one drain to the next; `None` for no drains. All senders drain at its
    /// multiples on their clocks, so that those who came late learn the least delay (section 10 of
    /// ALGORITHMS). One takes two round trips and 200 ms, with a quarter of the windows. With
    /// drains packets that are late in the round trip after a decrease count for nothing: they left
    /// before it. Without them each decrease brings another one, a round trip later, which empties
    /// the queue: otherwise one that stands while a clock runs away would never be seen.
    pub drain: Option<Span>,
}

impl HarpOptions {
    /// The least time from one drain to the next: a drain may take a second.
    pub const LEAST_DRAIN: Span = Span::from_secs(10);

    /// The paper's parameters, with the weights of late packets that it leaves open.
    #[must_use]
    pub const fn paper() -> HarpOptions {
        HarpOptions {
            coupling: HarpCoupling::Adaptive,
            alpha: 0.03,
            full_growth: None,
            beta: 0.125,
            first_decrease: None,
            lateness: LatenessOptions {
                share: 0.15,
                least: Span::from_micros(2_500),
                most: None,
                queue: None,
                filter: None,
                memory: Span::from_secs(600),
            },
            foreground: None,
            couples_losses: false,
            needed: 40.0,
            mark: 0.0,
            floor: 1.0,
            slow_start: false,
            extent_by_rate: false,
            memory: None,
            chokes: true,
            drain: None,
        }
    }

    /// The parameters of the gateway that ships.
    #[must_use]
    pub const fn modern() -> HarpOptions {
        let paper = HarpOptions::paper();
        HarpOptions {
            // One threshold for all: where each learns its range of delays for itself, latecomers,
            // who never saw a full queue, yield to everybody else.
            lateness: LatenessOptions {
                least: Span::from_millis(3),
                most: Some(Span::from_millis(3)),
                queue: Some(Span::from_micros(2_500)),
                // A radio link holds packets for tens of milliseconds, with nobody else there.
                filter: Some(Span::from_millis(25)),
                ..paper.lateness
            },
            foreground: Some(Span::from_millis(9)),
            couples_losses: true,
            full_growth: Some(64.0),
            first_decrease: Some(1.1),
            // A mark says as much as a packet that is very late.
            mark: 40.0,
            floor: 1.0 / 16.0,
            slow_start: true,
            extent_by_rate: true,
            memory: Some(Span::from_secs(300)),
            ..paper
        }
    }
}

impl HarpOptions {
    /// The share of what is acknowledged by which a window of so many packets grows.
    pub(super) fn growth(&self, packets: f64) -> f64 {
        match self.full_growth {
            Some(full) if packets > full => self.alpha * (0.5 + 0.5 * full / packets),
            _ => self.alpha,
        }
    }
}
