//! What a gateway does when time has passed: it probes, asks, doubts and forgets.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use units::{Span, Time};
use wire::harp::Report;

use super::{Ends, Gateway, Relayed};
use crate::{Carried, Flow, Message, Output};

/// The time between two searches for connections that are over, or quiet.
pub(super) const SWEEP: Span = Span::from_secs(1);
/// A connection without segments for so long, and for two round trips, has nothing in flight: what
/// has not arrived was lost, and what acknowledged it took another route, or its host is gone.
const QUIET: Span = Span::from_secs(1);

impl<T: Carried> Gateway<T> {
    /// When to call [`Gateway::handle_deadline`].
    #[must_use]
    pub fn poll_deadline(&self) -> Option<Time> {
        if self.connections.is_empty() {
            // Nothing is probed, asked or drained for nobody.
            return None;
        }
        let of_site = self.site.as_ref().and_then(|ends| ends.paths.poll_deadline());
        let of_connections = self.agenda.first().map(|(at, _)| *at);
        let others = of_site.into_iter().chain(self.sweep_at).chain(self.liveness.poll_deadline());
        of_connections.into_iter().chain(others).min()
    }

    /// The deadline has come.
    pub fn handle_deadline(&mut self, now: Time) {
        if self.sweep_at.is_some_and(|at| at <= now) {
            self.sweep(now);
        }
        if let Some(&first) = self.connections.keys().next()
            && let Some(flow) = self.liveness.poll_ask(now)
        {
            // The one that asked first may be forgotten by now.
            let flow = if self.connections.contains_key(&flow) { flow } else { first };
            // The other way may be the one that is cut.
            let is_deaf = self.heard.is_some() && self.is_silent(now);
            if is_deaf {
                self.doubt(now, self.present.unwrap_or(0));
            }
            let deaf = Report { is_deaf, ..Report::default() };
            let (_, ends, outputs) = self.parts(now, flow);
            for path in (0..ends.paths.count()).filter(|path| ends.paths.is_present(*path)) {
                let stamp = ends.paths.stamp(now, path);
                outputs.push_back(Output::Outside(flow, stamp.path, Message::Probe(stamp)));
                if is_deaf {
                    outputs.push_back(Output::Outside(flow, stamp.path, Message::Report(deaf)));
                }
            }
        }
        if let (Some(site), Some((&flow, _))) = (&mut self.site, self.connections.first_key_value())
        {
            let silent = probe(now, flow, site, &mut self.outputs);
            self.doubt(now, silent);
        }
        // Each once: the caller comes again if a deadline is due at the same moment.
        let due: Vec<Flow> =
            self.agenda.range(..=(now, Flow::MAX)).map(|(_, flow)| *flow).collect();
        for flow in due {
            if let Some(Relayed { own: Some(own), .. }) = self.connections.get_mut(&flow) {
                let silent = probe(now, flow, own, &mut self.outputs);
                self.doubt(now, silent);
            }
            self.release(now, flow);
        }
    }

    /// The paths over which nothing seems to arrive, a bit for each, since the last call: what
    /// comes over them may, so that this side alone would think that they carry. Whoever has others
    /// for when they are gone asks the other side over them.
    pub fn take_doubted(&mut self) -> u8 {
        core::mem::take(&mut self.doubted.0)
    }

    /// What the other gateway says makes one doubt no more often than silence does.
    pub(super) fn doubt(&mut self, now: Time, mask: u8) {
        let is_soon = self.doubted.1.is_some_and(|at| now < at + self.config.asks_after);
        if mask != 0 && !is_soon {
            self.doubted = (self.doubted.0 | mask, Some(now));
        }
    }

    /// Forgets connections that are over, and what quiet ones had in flight.
    pub(super) fn sweep(&mut self, now: Time) {
        let Gateway { connections, site, agenda, held, .. } = self;
        connections.retain(|flow, Relayed { halves, own, due }| {
            let stays = now < halves.expires();
            if let Some(ends) = own.as_mut().or(site.as_mut())
                && now >= halves.acted_at() + QUIET + ends.paths.longest_rtt() * 2
            {
                halves.sending.land(u8::MAX, &mut ends.paths);
            }
            if !stays {
                if let Some(site) = site {
                    halves.sending.free(&mut site.paths);
                }
                held.remove(flow);
                if let Some(at) = *due {
                    agenda.remove(&(at, *flow));
                }
            }
            if let Some(own) = own.as_mut().filter(|_| stays) {
                own.paths.try_others(now);
            }
            stays
        });
        if let Some(site) = site {
            site.paths.try_others(now);
        }
        self.sweep_at = (!self.connections.is_empty()).then_some(now + SWEEP);
    }
}

/// Begins drains, chokes the paths that are silent, and probes the choked ones whose time has come.
/// A bit for each silent one is returned.
fn probe<T>(now: Time, flow: Flow, ends: &mut Ends, outputs: &mut VecDeque<Output<T>>) -> u8 {
    ends.paths.drain(now);
    let silent = ends.paths.choke_silent(now);
    while let Some(path) = ends.paths.poll_probe(now) {
        let stamp = ends.paths.stamp(now, path);
        outputs.push_back(Output::Outside(flow, stamp.path, Message::Probe(stamp)));
    }
    silent
}
