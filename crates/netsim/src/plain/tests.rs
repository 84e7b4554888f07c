//! Plain links, compared with general ones.

use link::{Aqm, CoDel, Limit, Link, Loss};
use proptest::prelude::*;
use units::{Rate, Seed};

use super::*;
use crate::pool::NextHop;

#[derive(Clone, Copy, Debug)]
enum Op {
    Wait(u64),
    Offer(usize, u64),
    Deliver(usize),
    Look(usize),
}

const LINKS: usize = 3;

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        (0..2_000_000u64).prop_map(Op::Wait),
        (0..LINKS, prop_oneof![Just(1_500), 0..9_000u64])
            .prop_map(|(link, bytes)| Op::Offer(link, bytes)),
        (0..LINKS).prop_map(Op::Deliver),
        (0..LINKS).prop_map(Op::Look),
    ];
    prop::collection::vec(op, 1..200)
}

/// Plain profiles: rates with wire times of whole nanoseconds, and others.
fn profiles() -> impl Strategy<Value = Profile> {
    let rate = prop_oneof![
        Just(1_000_000),
        Just(100_000_000),
        Just(8_000_000_000),
        100_000..40_000_000_000u64
    ];
    let limit = prop_oneof![
        (1..40_000u64).prop_map(|n| Limit::Bytes(Bytes(n))),
        (1..8u64).prop_map(Limit::Packets)
    ];
    let mtu = prop::option::of((1_000..9_000u64).prop_map(Bytes));
    (rate, 0..5_000_000u64, limit, mtu).prop_map(|(rate, delay, queue, mtu)| Profile {
        queue,
        mtu,
        ..Profile::new(Rate::from_bits(rate), Span::from_nanos(delay))
    })
}

proptest! {
    #[test]
    fn plain_links_agree_with_general_ones(
        profiles in prop::collection::vec(profiles(), LINKS),
        ops in ops(),
    ) {
        let profiles: Vec<SharedProfile> = profiles.into_iter().map(SharedProfile::from).collect();
        let mut pool: Pool<u32> = Pool::new();
        let mut pooled: Vec<PlainLink> =
            profiles.iter().map(|profile| PlainLink::new(profile).expect("plain")).collect();
        let mut own: Vec<Link<u32>> =
            profiles.iter().map(|profile| Link::new(profile.clone(), Seed(1))).collect();
        let (mut now, mut sent) = (Time::ZERO, 0);
        let check =
            |pool: &mut Pool<u32>, pooled: &mut PlainLink, own: &mut Link<u32>, now: Time| {
                assert_eq!(pooled.poll_deadline(pool), own.poll_deadline());
                let arrived = pooled
                    .poll_deliver(now, pool)
                    .map(|(bytes, place)| (bytes, pool.remove(place)));
                assert_eq!(
                    arrived,
                    own.poll_deliver(now).map(|delivery| (delivery.bytes, delivery.packet))
                );
                arrived.is_some()
            };
        for op in ops {
            match op {
                Op::Wait(nanos) => now += Span::from_nanos(nanos),
                Op::Offer(link, bytes) => {
                    sent += 1;
                    let place = pool.insert(sent, NextHop::default());
                    let outcome = pooled[link].offer(now, Bytes(bytes), place, &mut pool);
                    prop_assert_eq!(outcome, own[link].enqueue(now, Bytes(bytes), sent));
                    if outcome != Outcome::Queued {
                        prop_assert_eq!(pool.remove(place), sent);
                    }
                }
                Op::Deliver(link) => {
                    check(&mut pool, &mut pooled[link], &mut own[link], now);
                }
                Op::Look(link) => {
                    prop_assert_eq!(pooled[link].queue(now, &pool), own[link].queue(now));
                    prop_assert_eq!(
                        pooled[link].queue_area(now, &pool),
                        own[link].queue_area(now)
                    );
                }
            }
            for (pooled, own) in pooled.iter().zip(&own) {
                prop_assert_eq!(pooled.counters(&pool), *own.counters());
                prop_assert_eq!(
                    (pooled.held(&pool), pooled.is_empty()),
                    (own.held(), own.held() == 0)
                );
            }
        }
        for (pooled, own) in pooled.iter_mut().zip(&mut own) {
            while let Some(at) = own.poll_deadline() {
                now = now.max(at);
                prop_assert!(check(&mut pool, pooled, own, now));
            }
            prop_assert!(pooled.is_empty());
        }
        prop_assert_eq!(pool.len(), 0);
    }
}

#[test]
fn only_plain_profiles_make_plain_links() {
    let plain = Profile::new(Rate::mbit(10), Span::from_millis(1));
    assert!(PlainLink::new(&SharedProfile::from(plain.clone())).is_some());
    let others = [
        Profile { aqm: Aqm::CoDel(CoDel::default()), ..plain.clone() },
        Profile { loss: Loss::Bernoulli(0.1), ..plain.clone() },
        Profile { corrupt: 0.1, ..plain.clone() },
        Profile::new(Rate::ZERO, Span::ZERO),
    ];
    assert!(
        others.into_iter().all(|profile| PlainLink::new(&SharedProfile::from(profile)).is_none())
    );
}
