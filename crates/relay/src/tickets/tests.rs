use std::convert::Infallible;

use proptest::prelude::*;

use super::*;

const START: Time = Time::from_nanos(1);

fn at(secs: u64) -> Time {
    START + Span::from_secs(secs)
}

/// Different numbers, as random ones are.
fn counter() -> impl FnMut() -> Result<[u8; 16], Infallible> {
    let mut next = 0_u64;
    move || {
        next += 1;
        Ok(u128::from(next).to_be_bytes())
    }
}

#[test]
fn a_ticket_is_good_once_and_for_a_minute() {
    let (mut tickets, mut draw) = (Tickets::default(), counter());
    let Ok(issued) = tickets.issue(START, 'a', &"nas", 3, &mut draw);
    assert_eq!(tickets.spend(at(59), &issued[0]), Some(('a', "nas")));
    assert_eq!(tickets.spend(at(59), &issued[0]), None, "it was shown before");
    assert_eq!(tickets.spend(at(60), &issued[1]), None, "it has lapsed");
    assert_eq!((tickets.count(), tickets.count_of(&'a')), (0, 0));
    assert!(tickets.ends.is_empty() && tickets.counts.is_empty());
}

#[test]
fn one_key_leaves_others_room() {
    let (mut tickets, mut draw) = (Tickets::default(), counter());
    for _ in 0..100 {
        let Ok(_) = tickets.issue(START, 'a', &0, 8, &mut draw);
    }
    assert_eq!(tickets.count_of(&'a'), MOST_EACH);
    let Ok(of_another) = tickets.issue(START, 'b', &0, 8, &mut draw);
    assert_eq!(of_another.len(), 8);
    let Ok(later) = tickets.issue(at(60), 'a', &0, 8, &mut draw);
    assert_eq!(later.len(), 8, "the others have lapsed");
}

#[test]
fn a_random_number_that_repeats_takes_no_ticket_from_another_key() {
    let mut tickets = Tickets::default();
    let mut same = || Ok::<_, Infallible>([7; 16]);
    let Ok(first) = tickets.issue(START, 'a', &1, 8, &mut same);
    assert_eq!(first.len(), 1);
    let Ok(second) = tickets.issue(START, 'b', &2, 8, &mut same);
    assert!(second.is_empty());
    assert_eq!(tickets.spend(START, &first[0]), Some(('a', 1)));
}

#[derive(Clone, Debug)]
enum Op {
    Issue {
        key: u8,
        destination: u8,
        count: usize,
    },
    /// Shows one of all tickets that were ever issued.
    Spend(prop::sample::Index),
    /// Shows a ticket that was not issued.
    Guess([u8; 16]),
    Revoke(u8),
    Clear,
    Wait(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..3_u8, 0..3_u8, 0..60_usize)
            .prop_map(|(key, destination, count)| Op::Issue { key, destination, count }),
        6 => any::<prop::sample::Index>().prop_map(Op::Spend),
        1 => any::<[u8; 16]>().prop_map(Op::Guess),
        1 => (0..3_u8).prop_map(Op::Revoke),
        1 => Just(Op::Clear),
        3 => (0..70_u64).prop_map(Op::Wait),
    ]
}

/// A ticket of the model: all that were ever issued, in a list.
struct Known {
    ticket: Ticket,
    key: u8,
    destination: u8,
    end: Time,
    is_good: bool,
}

proptest! {
    /// A ticket is accepted once at most, for its own key and destination, in its time; nothing
    /// else is; and the bounds hold.
    #[test]
    fn tickets_are_those_of_the_model(ops in prop::collection::vec(op(), 1..120)) {
        let (mut tickets, mut draw) = (Tickets::default(), counter());
        let (mut all, mut now): (Vec<Known>, _) = (Vec::new(), START);
        for op in ops {
            match op {
                Op::Issue { key, destination, count } => {
                    let good = all.iter().filter(|one| one.is_good && one.end > now);
                    let own = good.filter(|one| one.key == key).count();
                    let Ok(issued) = tickets.issue(now, key, &destination, count, &mut draw);
                    prop_assert_eq!(issued.len(), count.min(MOST_EACH - own));
                    let end = now + LIFETIME;
                    all.extend(issued.into_iter().map(|ticket| {
                        Known { ticket, key, destination, end, is_good: true }
                    }));
                }
                Op::Spend(which) => if !all.is_empty() {
                    let place = which.index(all.len());
                    let one = &mut all[place];
                    let expected = (one.is_good && one.end > now)
                        .then_some((one.key, one.destination));
                    prop_assert_eq!(tickets.spend(now, &one.ticket), expected);
                    one.is_good = false;
                },
                Op::Guess(octets) => {
                    let guess = Ticket::of_random(octets);
                    if all.iter().all(|one| one.ticket != guess) {
                        prop_assert_eq!(tickets.spend(now, &guess), None);
                    }
                }
                Op::Revoke(key) => {
                    tickets.revoke(key);
                    all.iter_mut().filter(|one| one.key == key).for_each(|one| one.is_good = false);
                }
                Op::Clear => {
                    tickets.clear();
                    for one in &mut all {
                        one.is_good = false;
                    }
                }
                Op::Wait(secs) => now += Span::from_secs(secs),
            }
            let counted: usize = (0..3).map(|key| tickets.count_of(&key)).sum();
            prop_assert_eq!(counted, tickets.count());
            prop_assert_eq!(tickets.ends.len(), tickets.count());
            prop_assert!((0..3).all(|key| tickets.count_of(&key) <= MOST_EACH));
        }
    }
}
