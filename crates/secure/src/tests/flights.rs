//! The flights of simulations against those of a handshake.

use wire::datagram::{Level, Outer};
use wire::ptcp::Flight;

use crate::testing::Strangers;
use crate::{Limits, Settings};

/// Direction, keys and size of a datagram.
type Shape = (bool, Level, usize);

/// The datagrams of a handshake over a perfect link, with so many octets of parameters.
fn real(parameters: usize) -> Vec<Shape> {
    let settings = Settings { parameters: vec![0; parameters], ..Settings::default() };
    let mut shapes = Vec::new();
    Strangers::new(settings, Limits::default()).shake_hands(|sent| {
        let Ok(Outer::Handshake { level, .. }) = Outer::parse(&sent.bytes) else {
            panic!("a handshake has no other datagrams");
        };
        shapes.push((sent.is_of_dialer, level, sent.bytes.len()));
    });
    shapes
}

fn simulated() -> Vec<Shape> {
    [Flight::Hello, Flight::Answer, Flight::Proof, Flight::Finish, Flight::Done]
        .into_iter()
        .flat_map(Flight::pieces)
        .map(|piece| (piece.flight.is_of_client(), piece.flight.level(), piece.datagram_len()))
        .collect()
}

/// A packet that only acknowledges is not simulated; there is none over a perfect link.
#[test]
fn simulations_have_flights_of_the_same_sizes() {
    assert_eq!(simulated(), real(11));
}

/// Parameters change sizes, and not the number of datagrams.
#[test]
fn parameters_of_any_usual_length_make_no_further_datagram() {
    for parameters in [0, 100, 500] {
        assert_eq!(real(parameters).len(), simulated().len(), "{parameters}");
    }
}
