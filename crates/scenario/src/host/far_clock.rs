//! Two hosts have two clocks, and not each packet carries a time. A striped connection takes its
//! one-way delays from time stamps: here those of the receiving end are by a clock of its own.

use units::{Span, Time};
use wire::ptcp::Body;

/// The clock of the end that receives the bulk of the data, beside that of the other one, and which
/// of its acknowledgements have a one-way delay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FarClock {
    /// How far it is ahead at the begin of the run.
    pub ahead: Span,
    /// How much faster it runs, in parts of a million: a whole number, negative for slower.
    pub drift: i32,
    /// Of so many acknowledgements one is of a packet without a time; `None`: each has one.
    pub unstamped: Option<u32>,
}

impl FarClock {
    /// How far it is ahead at `now`, microseconds; wraps, as stamps do.
    fn offset(&self, now: Time) -> u32 {
        let drift = i128::from(now.as_nanos()) * i128::from(self.drift) / 1_000_000;
        let nanos = i128::from(self.ahead.as_nanos()) + drift;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "stamps wrap")]
        let micros = nanos.div_euclid(1_000) as u32;
        micros
    }

    /// A body as the end with this clock takes it: stamps of the other end are as far behind as
    /// this clock is ahead.
    pub(crate) fn arrived(&self, now: Time, mut body: Body) -> Body {
        if let Body::Data(data) = &mut body {
            data.stamp = data.stamp.wrapping_sub(self.offset(now));
        }
        body
    }

    /// A body as the end with this clock sends it; `acks` counts its acknowledgements.
    pub(crate) fn sent(&self, now: Time, mut body: Body, acks: &mut u32) -> Body {
        match &mut body {
            Body::Data(data) => data.stamp = data.stamp.wrapping_add(self.offset(now)),
            Body::Ack(ack) => {
                *acks = acks.wrapping_add(1);
                if self.unstamped.is_some_and(|each| acks.is_multiple_of(each)) {
                    ack.one_way = None;
                }
            }
            _ => {}
        }
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_ahead_and_drifts() {
        let at = |secs| Time::ZERO + Span::from_secs(secs);
        let ahead = Span::from_secs(4_295);
        let faster = FarClock { ahead, drift: 200, unstamped: None };
        // 4,295 s are 32,704 microseconds beyond the wrap.
        assert_eq!(faster.offset(at(0)), 32_704);
        assert_eq!(faster.offset(at(60)), 32_704 + 12_000);
        let slower = FarClock { drift: -200, ahead: Span::ZERO, ..faster };
        assert_eq!(slower.offset(at(60)), 0_u32.wrapping_sub(12_000));
    }
}
