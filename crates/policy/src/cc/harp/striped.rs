//! Harp's controller in a striped connection, whose sender sees the delays itself.

use alloc::boxed::Box;

use units::{Bytes, Rate, SubflowId, Time};

use super::{Delivered, Harp};
use crate::cc::{Acked, Allowance, Choke, Congestion, Controller, Sent, Signal, Start};

/// The slowest pace.
const SLOWEST: Rate = Rate::from_bytes(1);

impl Controller for Harp {
    fn name(&self) -> &'static str {
        "harp"
    }

    fn handle_add(&mut self, _now: Time, id: SubflowId, start: &Start) {
        self.add(id, start.mss);
        if let (Some(rtt), Some(path)) = (start.rtt, self.path_mut(id)) {
            path.smoothed_rtt = rtt;
        }
    }

    fn handle_remove(&mut self, _now: Time, id: SubflowId) {
        self.remove(id);
    }

    fn handle_sent(&mut self, now: Time, id: SubflowId, _sent: &Sent) {
        if let Some(path) = self.path_mut(id)
            && path.is_choked
            && path.probe_at <= now
        {
            path.await_probe(now);
        }
    }

    fn handle_acked(&mut self, now: Time, id: SubflowId, acked: &Acked) {
        let (mark, total) = (self.options().mark, self.total());
        let Some(path) = self.path_mut(id) else { return };
        let marks = mark * f64::from(u32::try_from(acked.ce_packets).unwrap_or(u32::MAX));
        let delay = path.delay.sample(now, acked, &mut path.lateness);
        let late = delay.map_or(0.0, |delay| path.lateness.handle_delay(now, delay));
        let queue = delay.zip(path.lateness.least()).map(|(delay, least)| delay - least);
        path.queue = queue;
        if delay.is_some_and(|delay| path.lateness.shows_queue(delay)) {
            path.end_slow_start(now);
        }
        if path.is_choked {
            if delay.is_some_and(|delay| path.lateness.is_in_time(delay)) {
                self.handle_open(now, id);
            }
            return;
        }
        let delivered = Delivered {
            bytes: acked.bytes,
            smoothed_rtt: acked.smoothed_rtt,
            min_rtt: acked.min_rtt,
            rate: acked.delivery_rate.filter(|_| !acked.is_app_limited),
            may_grow: !acked.is_app_limited && !acked.in_recovery && total > 0.0,
        };
        self.handle_delivered(now, id, &delivered);
        self.handle_late(now, id, late + marks, queue);
    }

    fn handle_congestion(&mut self, now: Time, id: SubflowId, congestion: &Congestion) {
        match congestion.signal {
            Signal::Loss => self.handle_missing(now, id),
            Signal::Mark => self.handle_late(now, id, self.options().mark, None),
        }
    }

    fn handle_timeout(&mut self, now: Time, id: SubflowId, _in_flight: Bytes) {
        self.handle_missing(now, id);
    }

    fn poll_deadline(&self) -> Option<Time> {
        let awaited = self.paths.iter().filter(|path| path.is_choked && !path.is_probe_due);
        let probes = awaited.map(|path| path.probe_at);
        probes.chain(self.poll_drain()).min()
    }

    fn handle_deadline(&mut self, now: Time) {
        self.handle_drain(now);
        for path in &mut self.paths {
            if path.is_choked && path.probe_at <= now && !path.is_probe_due {
                path.is_probe_due = true;
                self.changed.push(path.id);
            }
        }
    }

    fn allowance(&self, id: SubflowId) -> Allowance {
        let Some(path) = self.path(id) else { return Allowance::window(Bytes::ZERO) };
        // Of a choked path it is the window that it had.
        let window = path.drain.map_or(path.window, |drain| drain.bound(path.window));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is positive and bounded"
        )]
        let mut allowance = Allowance::window(Bytes(window as u64));
        if path.is_choked {
            allowance.state = Choke::Choked { probe_at: path.probe_at };
        }
        if path.window >= path.mss || path.smoothed_rtt.as_nanos() == 0 {
            return allowance;
        }
        // One packet in 1/w round trips; a rate of nothing would never end.
        let pace = path.window * 8.0 / path.smoothed_rtt.as_secs_f64();
        Allowance { pacing: Some(Rate::from_bits_f64(pace).max(SLOWEST)), ..allowance }
    }

    fn poll_changed(&mut self) -> Option<SubflowId> {
        self.changed.pop()
    }

    fn threshold(&self, id: SubflowId) -> Option<Bytes> {
        let path = self.path(id)?;
        (!path.in_slow_start).then(|| self.allowance(id).window)
    }

    fn boxed_clone(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}
