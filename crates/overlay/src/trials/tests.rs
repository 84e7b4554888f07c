use alloc::vec;

use super::*;

/// Candidates that carry so many Mbit/s each, and a transfer over some of them.
struct Net {
    trials: Trials,
    now: Time,
    rates: Vec<f64>,
    /// What all paths over each have delivered, and since when one is open.
    delivered: Vec<f64>,
    open: Vec<Option<Time>>,
    reasons: Vec<ExchangeReason>,
}

const TICK: Span = Span::from_millis(100);
/// The time that a connection takes.
const OPENING: Span = Span::from_millis(300);

impl Net {
    fn new(paths: usize, rates: &[f64]) -> Net {
        let mut trials = Trials::new(TrialConfig::files(paths), Seed(3));
        trials.handle_candidates(Time::ZERO, rates.len());
        Net {
            trials,
            now: Time::ZERO,
            rates: rates.to_vec(),
            delivered: vec![0.0; rates.len()],
            open: vec![None; rates.len()],
            reasons: Vec::new(),
        }
    }

    /// Goes on for so many seconds; the rate of all paths together, in Mbit/s.
    fn run(&mut self, secs: u64) -> f64 {
        let before: f64 = self.delivered.iter().sum();
        for _ in 0..secs * 10 {
            while let Some(exchange) = self.trials.poll_exchange() {
                self.reasons.push(exchange.reason);
                exchange.open.iter().for_each(|at| self.open[*at] = Some(self.now));
                exchange.close.iter().for_each(|at| self.open[*at] = None);
            }
            let in_use: Vec<usize> = self.trials.used().collect();
            let open: Vec<usize> =
                (0..self.open.len()).filter(|at| self.open[*at].is_some()).collect();
            assert!(open.iter().all(|at| in_use.contains(at)) && in_use.len() == open.len());
            self.now += TICK;
            let mut told = Vec::new();
            for at in open {
                let is_open = self.open[at].is_some_and(|since| self.now - since >= OPENING);
                let carries = is_open && self.rates[at] > 0.0;
                if carries {
                    self.delivered[at] += self.rates[at] * 1e6 / 8.0 * TICK.as_secs_f64();
                }
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                let bytes = carries.then_some(Bytes(self.delivered[at] as u64));
                told.push(Delivered { candidate: at, bytes });
            }
            self.trials.handle_delivered(self.now, &told);
        }
        let after: f64 = self.delivered.iter().sum();
        (after - before) * 8.0 / 1e6 / Span::from_secs(secs).as_secs_f64()
    }

    fn used(&self) -> Vec<usize> {
        let mut used: Vec<usize> = self.trials.used().collect();
        used.sort_unstable();
        used
    }
}

#[test]
fn the_best_of_all_are_found_and_kept() {
    let rates: Vec<f64> = (1..=12).map(|n| f64::from(n * n % 13 + 2) * 2.0).collect();
    let mut net = Net::new(3, &rates);
    net.run(20);
    let mut best: Vec<usize> = (0..12).collect();
    best.sort_by(|a, b| rates[*b].total_cmp(&rates[*a]));
    let wanted: f64 = best[..3].iter().map(|at| rates[*at]).sum();
    let found = net.run(60);
    assert!(found > 0.99 * wanted, "{found} of {wanted}");
    assert!(!net.reasons.contains(&ExchangeReason::Less), "{:?}", net.reasons);
}

#[test]
fn one_that_never_opens_costs_little() {
    let mut net = Net::new(2, &[0.0, 10.0, 0.0, 20.0, 0.0]);
    net.run(25);
    assert_eq!(net.used(), [1, 3]);
    assert!(net.run(20) > 29.5);
}

/// Found with striped connections, whose paths stay where they are when they die: it was one of
/// the best for ever, by what it had carried once.
#[test]
fn one_that_dies_is_replaced_in_seconds() {
    let mut net = Net::new(2, &[5.0, 10.0, 15.0, 20.0]);
    net.run(20);
    assert_eq!(net.used(), [2, 3]);
    net.rates[3] = 0.0;
    net.run(4);
    let last = net.reasons.last();
    assert!(!net.used().contains(&3) && last == Some(&ExchangeReason::Failed), "{last:?}");
    // A moment without is no death.
    let reasons = net.reasons.len();
    net.rates[2] = 0.0;
    net.run(2);
    net.rates[2] = 15.0;
    net.run(1);
    assert!(net.used().contains(&2) && net.reasons.len() == reasons, "{:?}", net.reasons);
}

#[test]
fn one_that_becomes_slow_is_replaced() {
    let mut net = Net::new(2, &[20.0, 18.0, 15.0, 1.0]);
    net.run(20);
    assert_eq!(net.used(), [0, 1]);
    net.rates[0] = 2.0;
    net.run(30);
    assert_eq!(net.used(), [1, 2], "{:?}", net.reasons);
    // The rates of the others are tried again when they are forgotten, and taken back.
    assert!(net.run(300) > 0.97 * 33.0, "{:?}", net.reasons);
}

#[test]
fn a_draw_that_carries_less_is_taken_back_and_the_next_one_waits_longer() {
    let mut net = Net::new(2, &[20.0, 20.0, 1.0, 1.0]);
    net.run(30);
    // All that there is carries less now. One other carried more once, and does so no longer.
    (net.rates[0], net.rates[1], net.rates[2]) = (0.5, 0.5, 0.1);
    net.reasons.clear();
    net.run(110);
    let count = |reason| net.reasons.iter().filter(|other| **other == reason).count();
    let (draws, back) = (count(ExchangeReason::Less), count(ExchangeReason::TakenBack));
    assert!(draws >= 1 && back >= 1, "{:?}", net.reasons);
    assert!(net.used().contains(&3), "{:?}", net.reasons);
    // Later the higher rate is forgotten.
    net.run(200);
    net.reasons.clear();
    net.run(300);
    assert_eq!(net.reasons, []);
}

#[test]
fn one_that_comes_later_is_tried() {
    let mut net = Net::new(1, &[5.0]);
    net.run(10);
    net.rates.push(9.0);
    net.delivered.push(0.0);
    net.open.push(None);
    net.trials.handle_candidates(net.now, 2);
    net.run(10);
    assert_eq!(net.used(), [1]);
}

#[test]
fn all_are_used_where_there_are_no_more() {
    let mut net = Net::new(3, &[5.0, 0.0]);
    net.run(60);
    assert_eq!(net.used(), [0, 1]);
}
