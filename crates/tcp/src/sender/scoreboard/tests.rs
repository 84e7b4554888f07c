use super::*;
use proptest::prelude::*;

fn record(seq: u64, span: u32) -> Record {
    Record {
        seq,
        span,
        is_fin: false,
        tag: FlightTag::default(),
        is_retransmitted: false,
        is_app_limited: false,
        sent_at: Time::ZERO,
    }
}

/// Tells by its window whose it is.
fn context(seq: u64, window: u64) -> SendContext {
    SendContext { window: Bytes(window), in_flight: Bytes(seq), rates: SendSnapshot::default() }
}

fn known(context: SendContext) -> (u64, u64) {
    (context.in_flight.0, context.window.0)
}

/// The window with which it left the last time.
fn window(is_retransmitted: bool) -> u64 {
    if is_retransmitted { 2 } else { 1 }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Push(u32),
    LoseAll,
    /// This and the next two, of the record at this place among all.
    Lose(usize),
    Repeat(usize),
    Select(usize),
    Advance(usize),
    FindAll,
}

fn op() -> impl Strategy<Value = Op> {
    let at = 0..12usize;
    prop_oneof![
        4 => (1..3_000u32).prop_map(Op::Push),
        3 => Just(Op::LoseAll),
        2 => at.clone().prop_map(Op::Lose),
        3 => at.clone().prop_map(Op::Repeat),
        2 => at.clone().prop_map(Op::Select),
        1 => at.prop_map(Op::Advance),
        1 => Just(Op::FindAll),
    ]
}

proptest! {
    /// Beside a list of records, each with its state; now and then so many timeouts that flights
    /// are numbered anew.
    #[test]
    fn it_knows_where_everything_is(keeps in any::<bool>(), ops in prop::collection::vec((op(), prop::bool::weighted(0.05)), 1..80)) {
        let mut board = Scoreboard::default();
        let mut model: Vec<(u64, u32, PacketState, bool)> = Vec::new();
        let mut next = 1;
        for (op, is_often) in ops {
            match op {
                Op::Push(span) => {
                    board.push(Record { tag: board.flight(), ..record(next, span) }, keeps.then(|| context(next, 1)));
                    model.push((next, span, PacketState::InFlight, false));
                    next += u64::from(span);
                }
                Op::LoseAll => {
                    let packets_in_flight = model.iter().filter(|one| one.2 == PacketState::InFlight).count();
                    prop_assert_eq!(board.mark_all_lost(), packets_in_flight as u64);
                    for _ in 0..if is_often { 300 } else { 0 } {
                        prop_assert_eq!(board.mark_all_lost(), 0);
                    }
                    model.iter_mut().filter(|one| one.2 == PacketState::InFlight).for_each(|one| one.2 = PacketState::Lost);
                }
                Op::Lose(at) => if let Some(one) = model.get_mut(at) {
                    let lost = board.mark_lost(one.0);
                    prop_assert_eq!(lost.map(|(record, _)| record.seq), (one.2 == PacketState::InFlight).then_some(one.0));
                    let left = lost.and_then(|(_, context)| context);
                    prop_assert_eq!(left.map(known), (keeps && lost.is_some()).then_some((one.0, window(one.3))));
                    one.2 = if one.2 == PacketState::InFlight { PacketState::Lost } else { one.2 };
                }
                Op::Repeat(at) => if let Some(one) = model.get_mut(at).filter(|one| one.2 == PacketState::Lost) {
                    let again = Record { tag: board.flight(), is_retransmitted: true, ..record(one.0, one.1) };
                    board.retransmit(again, keeps.then(|| context(one.0, 2)));
                    (one.2, one.3) = (PacketState::InFlight, true);
                }
                Op::Select(at) => if let Some(one) = model.get_mut(at) {
                    let mut told = Vec::new();
                    board.sack(one.0, one.0 + u64::from(one.1), |record, left| told.push((record.seq, left.copied().map(known))));
                    let new = (one.2 != PacketState::Delivered).then(|| (one.0, keeps.then(|| (one.0, window(one.3)))));
                    prop_assert_eq!(told, Vec::from_iter(new));
                    one.2 = PacketState::Delivered;
                }
                Op::Advance(count) => {
                    let gone: Vec<_> = model.drain(..count.min(model.len())).collect();
                    let mut told = Vec::new();
                    board.advance(model.first().map_or(next, |one| one.0), |record, left| told.push((record.seq, left.copied().map(known))));
                    let new = gone.iter().filter(|one| one.2 != PacketState::Delivered).map(|one| (one.0, keeps.then(|| (one.0, window(one.3)))));
                    prop_assert_eq!(told, new.collect::<Vec<_>>());
                }
                Op::FindAll => {
                    board.restore_lost(|_| {});
                    let found = model.iter_mut().filter(|one| one.2 == PacketState::Lost && !one.3);
                    found.for_each(|one| one.2 = PacketState::InFlight);
                }
            }
            let bytes = |state| model.iter().filter(|one| one.2 == state).map(|one| u64::from(one.1)).sum::<u64>();
            prop_assert_eq!((board.in_flight, board.lost), (bytes(PacketState::InFlight), bytes(PacketState::Lost)));
            let states = board.records.iter().map(|record| (record.seq, board.state(record)));
            prop_assert_eq!(states.collect::<Vec<_>>(), model.iter().map(|one| (one.0, one.2)).collect::<Vec<_>>());
            let first = model.iter().find(|one| one.2 == PacketState::Lost).map(|one| one.0);
            prop_assert_eq!(board.first_lost().map(|record| record.seq), first);
        }
    }

    /// Small packets among full ones, so that the guess is often wrong.
    #[test]
    fn a_position_is_found_whatever_the_sizes(spans in prop::collection::vec(prop_oneof![Just(1_448), 1..1_448u32], 1..60)) {
        let mut board = Scoreboard::default();
        let mut next = 1;
        for span in &spans {
            board.push(record(next, *span), None);
            next += u64::from(*span);
        }
        let mut from = 1;
        for span in spans {
            let to = from + u64::from(span);
            for seq in [from, u64::midpoint(from, to), to - 1] {
                prop_assert_eq!(board.find(seq).map(|record| record.seq), Some(from));
            }
            from = to;
        }
        prop_assert!(board.find(next).is_none());
        prop_assert_eq!(board.find(0).map(|record| record.seq), Some(1));
    }
}
