//! What the algorithms of one path with one window have in common.

use core::fmt;

use units::{Bytes, Time};

use super::window::Window;
use super::{Acked, Allowance, Congestion, SinglePath, Start};

/// An algorithm of one path that acts on a [`Window`]. The methods are those of [`SinglePath`];
/// what an algorithm leaves out, its window does.
pub(super) trait Windowed: Clone + fmt::Debug + Send + 'static {
    const NAME: &'static str;
    /// Whether it uses the state at the time a packet was sent.
    const WANTS_SNAPSHOTS: bool = false;
    /// Whether queues of L4S are for it.
    const IS_SCALABLE: bool = false;

    fn window(&self) -> &Window;

    fn window_mut(&mut self) -> &mut Window;

    fn handle_start(&mut self, now: Time, start: &Start);

    fn handle_acked(&mut self, now: Time, acked: &Acked);

    fn handle_congestion(&mut self, now: Time, congestion: &Congestion);

    fn handle_timeout(&mut self, now: Time, in_flight: Bytes);

    fn handle_undo(&mut self, _now: Time) {
        self.window_mut().undo();
    }

    fn handle_idle_restart(&mut self, _now: Time) {
        self.window_mut().restart();
    }

    fn handle_slow_start_end(&mut self, _now: Time) {
        self.window_mut().end_slow_start();
    }

    fn allowance(&self) -> Allowance {
        self.window().allowance()
    }
}

impl<A: Windowed> SinglePath for A {
    const NAME: &'static str = <A as Windowed>::NAME;

    fn handle_start(&mut self, now: Time, start: &Start) {
        Windowed::handle_start(self, now, start);
    }

    fn handle_acked(&mut self, now: Time, acked: &Acked) {
        Windowed::handle_acked(self, now, acked);
    }

    fn handle_congestion(&mut self, now: Time, congestion: &Congestion) {
        Windowed::handle_congestion(self, now, congestion);
    }

    fn handle_timeout(&mut self, now: Time, in_flight: Bytes) {
        Windowed::handle_timeout(self, now, in_flight);
    }

    fn handle_undo(&mut self, now: Time) {
        Windowed::handle_undo(self, now);
    }

    fn handle_idle_restart(&mut self, now: Time) {
        Windowed::handle_idle_restart(self, now);
    }

    fn handle_slow_start_end(&mut self, now: Time) {
        Windowed::handle_slow_start_end(self, now);
    }

    fn allowance(&self) -> Allowance {
        Windowed::allowance(self)
    }

    fn threshold(&self) -> Option<Bytes> {
        self.window().threshold()
    }

    fn wants_snapshots(&self) -> bool {
        A::WANTS_SNAPSHOTS
    }

    fn is_scalable(&self) -> bool {
        A::IS_SCALABLE
    }
}
