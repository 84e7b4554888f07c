//! What a controller learns from the handshake.

use std::sync::{Arc, Mutex};

use policy::cc::{Acked, Allowance, Congestion, SinglePath, Start, Uncoupled};
use tcp::{Config, Endpoint};
use units::{Bytes, Span, SubflowId, Time};

const ONE_WAY: Span = Span::from_millis(10);

/// Notes the round trip that each connection begins with.
#[derive(Clone, Debug, Default)]
struct Listener(Arc<Mutex<Vec<Option<Span>>>>);

impl SinglePath for Listener {
    const NAME: &'static str = "listener";

    fn handle_start(&mut self, _now: Time, start: &Start) {
        self.0.lock().expect("no panic").push(start.rtt);
    }

    fn handle_acked(&mut self, _now: Time, _acked: &Acked) {}

    fn handle_congestion(&mut self, _now: Time, _congestion: &Congestion) {}

    fn handle_timeout(&mut self, _now: Time, _in_flight: Bytes) {}

    fn allowance(&self) -> Allowance {
        Allowance::window(Bytes(14_480))
    }
}

/// What the client's and the server's controllers were told, if the first `lost` packets of the client are.
fn round_trips(lost: usize) -> [Vec<Option<Span>>; 2] {
    let config = Config::default();
    let listeners = [Listener::default(), Listener::default()];
    let endpoints = [Endpoint::client(config.clone(), SubflowId(0)), Endpoint::server(config, SubflowId(0))];
    let mut ends = endpoints.into_iter().zip(listeners.iter().cloned().map(Uncoupled::new)).collect::<Vec<_>>();
    let (client, controller) = &mut ends[0];
    client.open(Time::ZERO, controller);
    let (mut now, mut lost) = (Time::ZERO, lost);
    while now < Time::ZERO + Span::from_secs(3) {
        let mut air = Vec::new();
        for (side, (endpoint, controller)) in ends.iter_mut().enumerate() {
            if endpoint.poll_deadline().is_some_and(|at| at <= now) {
                endpoint.handle_deadline(now, controller);
            }
            while let Some(transmit) = endpoint.poll_send(now, controller) {
                if side == 0 && lost > 0 {
                    lost -= 1;
                } else {
                    air.push((1 - side, transmit.segment));
                }
            }
        }
        now += ONE_WAY;
        for (side, segment) in air {
            let (endpoint, controller) = &mut ends[side];
            endpoint.handle_segment(now, &segment, false, controller);
        }
    }
    listeners.map(|listener| listener.0.lock().expect("no panic").clone())
}

#[test]
fn a_controller_begins_with_the_round_trip_of_the_handshake() {
    let both_ways = Some(ONE_WAY + ONE_WAY);
    assert_eq!(round_trips(0), [vec![both_ways], vec![both_ways]]);
}

/// Karn's rule: the answer may be to either.
#[test]
fn it_begins_with_none_if_the_client_asked_twice() {
    let [client, server] = round_trips(1);
    assert_eq!((client, server), (vec![None], vec![Some(ONE_WAY + ONE_WAY)]));
}
