//! Impaired paths, drawn from a seed.

use std::collections::BTreeMap;

use units::{Span, Time};
use wire::ptcp::Packet;

/// Uniform draws (`SplitMix64`), enough for a test.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(crate) fn hits(&mut self, thousandths: u64) -> bool {
        self.below(1_000) < thousandths
    }

    /// One of `choices`.
    pub(crate) fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::try_from(self.below(choices.len() as u64)).expect("few")]
    }
}

/// The impairments of a path, the same in both directions except for its outages.
pub(crate) struct Weather {
    delay: Span,
    /// Nanoseconds for each byte.
    byte: u64,
    /// The queue limit in full packets.
    queue: u64,
    loss: u64,
    duplication: u64,
    reordering: u64,
    corruption: u64,
    /// A spike of delay: begin, end, and additional delay.
    spike: (Time, Time, Span),
    /// Outages, to the server and back.
    down: [(Time, Time); 2],
}

impl Weather {
    pub(crate) fn draw(dice: &mut Dice, is_first: bool) -> Weather {
        let ms = |ms| Time::ZERO + Span::from_millis(ms);
        let mild = dice.hits(400);
        let begin = dice.below(2_500);
        let both = (ms(begin), ms(begin + dice.of(&[0, 0, 50, 400, 1_500, 4_000])));
        let down = match dice.below(4) {
            0 => [both, (ms(0), ms(0))],
            1 => [(ms(0), ms(0)), both],
            _ => [both, both],
        };
        let spike = dice.below(2_000);
        Weather {
            delay: Span::from_micros(dice.of(&[100, 5_000, 20_000, 100_000, 250_000])),
            byte: dice.of(&[80, 800, 8_000]),
            queue: dice.of(&[5, 30, 300]),
            loss: if mild { 0 } else { dice.of(&[0, 1, 10, 50, 150]) },
            duplication: if mild { 0 } else { dice.of(&[0, 5, 100]) },
            reordering: if mild { 0 } else { dice.of(&[0, 5, 100]) },
            corruption: if mild { 0 } else { dice.of(&[0, 0, 20]) },
            spike: (
                ms(spike),
                ms(spike + dice.below(500)),
                Span::from_millis(dice.of(&[0, 0, 100, 800])),
            ),
            // The first path usually has no outage.
            down: if is_first && dice.hits(700) { [(ms(0), ms(0)); 2] } else { down },
        }
    }
}

/// A packet in flight.
pub(crate) struct Flight {
    pub(crate) path: u16,
    pub(crate) to_server: bool,
    pub(crate) packet: Packet,
    pub(crate) is_corrupt: bool,
}

/// All paths with their packets in flight.
pub(crate) struct Network {
    dice: Dice,
    weather: Vec<Weather>,
    /// For each path and direction, when the link is free.
    free_at: Vec<[Time; 2]>,
    flights: BTreeMap<(Time, u64), Flight>,
    count: u64,
}

impl Network {
    pub(crate) fn new(dice: Dice, weather: Vec<Weather>) -> Network {
        let free_at = weather.iter().map(|_| [Time::ZERO; 2]).collect();
        Network { dice, weather, free_at, flights: BTreeMap::new(), count: 0 }
    }

    pub(crate) fn paths(&self) -> usize {
        self.weather.len()
    }

    pub(crate) fn send(&mut self, now: Time, path: u16, to_server: bool, packet: Packet) {
        // Later paths are new addresses on the same links.
        let index = usize::from(path) % self.weather.len();
        let (weather, way) = (&self.weather[index], usize::from(!to_server));
        let bytes = packet.wire_len().0;
        let free_at = &mut self.free_at[index][way];
        let wait = Span::from_nanos(weather.byte * bytes);
        if free_at.since(now).as_nanos() > weather.queue * weather.byte * 1_500 {
            return;
        }
        *free_at = (*free_at).max(now) + wait;
        let mut at = *free_at + weather.delay;
        let (from, to, more) = weather.spike;
        if from <= now && now < to {
            at += more;
        }
        let (from, to) = weather.down[way];
        if (from <= at && at < to) || self.dice.hits(weather.loss) {
            return;
        }
        let is_corrupt = self.dice.hits(weather.corruption);
        if self.dice.hits(weather.reordering) {
            at += Span::from_micros(self.dice.below(100_000));
        }
        let copies = 1 + u64::from(self.dice.hits(weather.duplication));
        for copy in 0..copies {
            let at = at + Span::from_micros(copy * self.dice.below(50_000));
            self.flights.insert((at, self.count), Flight { path, to_server, packet, is_corrupt });
            self.count += 1;
        }
    }

    pub(crate) fn next_at(&self) -> Option<Time> {
        self.flights.first_key_value().map(|((at, _), _)| *at)
    }

    pub(crate) fn arrive(&mut self, now: Time) -> Option<Flight> {
        let first = self.flights.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }
}
