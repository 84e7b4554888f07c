//! Packets end where records end.

use policy::cc::{Reno, Uncoupled};
use tcp::{Config, Endpoint};
use units::{Bytes, Span, SubflowId, Time};

/// The sizes of the data packets that leave the client, over a network with a round trip of 10 ms
/// that loses those of these indices.
fn sizes(write: impl Fn(&mut Endpoint), lost: &[usize]) -> Vec<u16> {
    let mut controller = Uncoupled::new(Reno::default());
    let mut other = Uncoupled::new(Reno::default());
    let mut client = Endpoint::client(Config::default(), SubflowId(0));
    let mut server = Endpoint::server(Config::default(), SubflowId(0));
    client.open(Time::ZERO, &mut controller);
    write(&mut client);
    client.close();
    let mut sizes = Vec::new();
    for step in 0..400 {
        let now = Time::ZERO + Span::from_millis(5 * step);
        if client.poll_deadline().is_some_and(|at| at <= now) {
            client.handle_deadline(now, &mut controller);
        }
        let there: Vec<_> = std::iter::from_fn(|| client.poll_send(now, &mut controller)).collect();
        for transmit in there {
            let is_lost = transmit.segment.len > 0 && lost.contains(&sizes.len());
            if transmit.segment.len > 0 {
                sizes.push(transmit.segment.len);
            }
            if !is_lost {
                server.handle_segment(now, &transmit.segment, false, &mut other);
            }
        }
        let later = now + Span::from_millis(5);
        if server.poll_deadline().is_some_and(|at| at <= later) {
            server.handle_deadline(later, &mut other);
        }
        while let Some(transmit) = server.poll_send(later, &mut other) {
            client.handle_segment(later, &transmit.segment, false, &mut controller);
        }
    }
    assert_eq!(
        server.received(),
        Bytes(sizes.iter().map(|size| u64::from(*size)).sum())
            - lost.iter().map(|index| Bytes(u64::from(sizes[*index]))).sum()
    );
    sizes
}

fn records(client: &mut Endpoint) {
    for bytes in [2_000, 500, 0, 1_448, 1] {
        client.write_record(Bytes(bytes));
    }
    client.write(Bytes(100));
    client.write_record(Bytes(200));
}

#[test]
fn a_packet_does_not_pass_the_end_of_a_record() {
    assert_eq!(sizes(records, &[]), [1_448, 552, 500, 1_448, 1, 300]);
}

#[test]
fn retransmissions_neither() {
    assert_eq!(sizes(records, &[1, 3])[6..], [552, 1_448]);
}

#[test]
fn without_records_packets_are_full() {
    let write = |client: &mut Endpoint| {
        client.write(Bytes(2_000));
        client.write(Bytes(2_344));
    };
    assert_eq!(sizes(write, &[]), [1_448, 1_448, 1_448]);
}
