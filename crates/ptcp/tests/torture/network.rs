//! Impaired paths, drawn from a seed.

use testnet::{Dice, Direction, Link, Op};
use units::{Bytes, Rate, Span, Time};

use crate::run::Action;

/// An operation, and when it happens.
pub(crate) struct Planned {
    pub(crate) at: Time,
    pub(crate) op: Op<Action>,
}

/// So many milliseconds after the beginning.
pub(crate) fn at(millis: u64) -> Time {
    Time::ZERO + Span::from_millis(millis)
}

/// A path's link, and what happens to it. The first path is there from the beginning more often
/// than others.
pub(crate) fn draw_link(dice: &mut Dice, index: usize, plan: &mut Vec<Planned>) -> Link {
    let is_mild = dice.hits(400);
    let mut severity = |choices: &[u64]| if is_mild { 0 } else { dice.choose(choices) };
    let (loss, duplication) = (severity(&[0, 1, 10, 50, 150]), severity(&[0, 5, 100]));
    let (reordering, corruption) = (severity(&[0, 5, 100]), severity(&[0, 0, 20]));
    plan_spike(dice, index, plan);
    // The first path usually has no outage.
    if index > 0 || dice.hits(300) {
        plan_cuts(dice, index, plan);
    }
    let megabits = dice.choose(&[1, 10, 100]);
    let full_packets = dice.choose(&[5, 30, 300]);
    Link {
        rate: Some(Rate::mbit(megabits)),
        queue: Bytes(1_500 * full_packets),
        loss,
        duplication,
        reordering,
        lateness: Span::from_millis(dice.choose(&[2, 20, 100])),
        corruption,
        ..Link::new(Span::from_micros(dice.choose(&[100, 5_000, 20_000, 100_000, 250_000])))
    }
}

/// Delays all packets more for a time.
fn plan_spike(dice: &mut Dice, link: usize, plan: &mut Vec<Planned>) {
    let begin = dice.below(2_000);
    let end = begin + dice.below(500);
    let extra = Span::from_millis(dice.choose(&[0, 0, 100, 800]));
    plan.push(Planned { at: at(begin), op: Op::Delay { link, extra } });
    plan.push(Planned { at: at(end), op: Op::Delay { link, extra: Span::ZERO } });
}

/// Loses everything for a time, in one direction or in both.
fn plan_cuts(dice: &mut Dice, link: usize, plan: &mut Vec<Planned>) {
    let begin = dice.below(2_500);
    let end = begin + dice.choose(&[0, 0, 50, 400, 1_500, 4_000]);
    let both = [Direction::Forward, Direction::Backward];
    let directions = match dice.below(4) {
        0 => &both[..1],
        1 => &both[1..],
        _ => &both[..],
    };
    for &direction in directions {
        plan.push(Planned { at: at(begin), op: Op::Cut { link, direction } });
        plan.push(Planned { at: at(end), op: Op::Restore { link, direction } });
    }
}

/// Single packets that overtake all others, vanish, or come twice.
pub(crate) fn plan_packets(dice: &mut Dice, links: usize, plan: &mut Vec<Planned>) {
    for _ in 0..dice.choose(&[0, 0, 10, 100]) {
        let at = at(dice.below(3_000));
        let link = usize::try_from(dice.below(links as u64)).expect("few");
        let direction = dice.choose(&[Direction::Forward, Direction::Backward]);
        let index = usize::try_from(dice.below(64)).expect("few");
        let op = match dice.below(3) {
            0 => Op::Deliver { link, direction, index },
            1 => Op::Drop { link, direction, index },
            _ => Op::Duplicate { link, direction, index },
        };
        plan.push(Planned { at, op });
    }
}
