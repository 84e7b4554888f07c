//! A receiving application that controls its reading.

use policy::cc::{Reno, Uncoupled};
use tcp::{Config, Endpoint};
use units::{Bytes, Span, SubflowId, Time};

const MSS: u64 = 1_448;

/// Two ends, 10 ms apart; the server's application reads only on request.
struct Pair {
    now: Time,
    ends: [(Endpoint, Uncoupled<Reno>); 2],
}

impl Pair {
    fn new(config: &Config) -> Pair {
        let end = |endpoint| (endpoint, Uncoupled::new(Reno::default()));
        let (client, server) = (
            Endpoint::client(config.clone(), SubflowId(0)),
            Endpoint::server(config.clone(), SubflowId(0)),
        );
        let mut pair = Pair { now: Time::ZERO, ends: [end(client), end(server)] };
        let (endpoint, controller) = &mut pair.ends[0];
        endpoint.open(Time::ZERO, controller);
        pair.ends[1].0.set_reading(false);
        pair
    }

    /// Lets packets travel for this time.
    fn run(&mut self, span: Span) {
        let end = self.now + span;
        while self.now < end {
            let mut air = Vec::new();
            for (side, (endpoint, controller)) in self.ends.iter_mut().enumerate() {
                if endpoint.poll_deadline().is_some_and(|at| at <= self.now) {
                    endpoint.handle_deadline(self.now, controller);
                }
                while let Some(transmit) = endpoint.poll_send(self.now, controller) {
                    air.push((1 - side, transmit.segment));
                }
            }
            self.now += Span::from_millis(10);
            for (side, segment) in air {
                let (endpoint, controller) = &mut self.ends[side];
                endpoint.handle_segment(self.now, &segment, false, controller);
            }
        }
    }
}

#[test]
fn unread_data_closes_the_window_and_reading_opens_it() {
    let config = Config { receive_buffer: Bytes(10 * MSS), ..Config::default() };
    let mut pair = Pair::new(&config);
    pair.ends[0].0.write(Bytes(30 * MSS));
    pair.ends[0].0.close();
    pair.run(Span::from_secs(1));
    let held = |pair: &Pair| (pair.ends[1].0.received(), pair.ends[1].0.readable());
    assert_eq!(held(&pair), (Bytes::ZERO, Bytes(10 * MSS)), "a buffer full");
    pair.ends[1].0.read(Bytes(4 * MSS));
    assert_eq!(held(&pair), (Bytes(4 * MSS), Bytes(6 * MSS)));
    pair.run(Span::from_millis(100));
    assert_eq!(
        held(&pair),
        (Bytes(4 * MSS), Bytes(10 * MSS)),
        "the sender got a window update and filled the buffer"
    );
    // Reading more than is available reads all.
    pair.ends[1].0.read(Bytes(100 * MSS));
    assert_eq!(held(&pair), (Bytes(14 * MSS), Bytes::ZERO));
    pair.run(Span::from_millis(100));
    pair.ends[1].0.read(Bytes(10 * MSS));
    pair.run(Span::from_millis(100));
    assert!(
        std::iter::from_fn(|| pair.ends[1].0.poll_event())
            .all(|event| event != tcp::Event::Finished),
        "not all is read"
    );
    pair.ends[1].0.read(Bytes(6 * MSS));
    assert_eq!(held(&pair), (Bytes(30 * MSS), Bytes::ZERO));
    assert_eq!(
        pair.ends[1].0.poll_event(),
        Some(tcp::Event::Finished),
        "the end is read with the last byte"
    );
}
