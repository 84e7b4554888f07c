//! What a connection has moved, by addresses of its peer.

use std::net::IpAddr;

use units::Bytes;

use crate::Carried;

/// Addresses that are counted for themselves. A peer may come from any number of them.
const MOST: usize = 32;

/// The counts of one connection.
#[derive(Debug, Default)]
pub(super) struct CarriedBytes(Vec<Carried>);

impl CarriedBytes {
    pub(super) fn add_sent(&mut self, remote: IpAddr, len: usize) {
        self.of(remote).sent += Bytes(len as u64);
    }

    pub(super) fn add_received(&mut self, remote: IpAddr, len: usize) {
        self.of(remote).received += Bytes(len as u64);
    }

    pub(super) fn all(&self) -> &[Carried] {
        &self.0
    }

    fn of(&mut self, remote: IpAddr) -> &mut Carried {
        let place = self.0.iter().position(|known| known.remote == Some(remote));
        let place = place.unwrap_or_else(|| {
            if self.0.len() <= MOST {
                let remote = (self.0.len() < MOST).then_some(remote);
                self.0.push(Carried { remote, sent: Bytes::ZERO, received: Bytes::ZERO });
            }
            self.0.len() - 1
        });
        &mut self.0[place]
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_peer_that_moves_without_end_takes_a_bounded_number_of_counts() {
        let mut carried = CarriedBytes::default();
        for round in 0..2 {
            for number in 0..1_000_u32 {
                let remote = Ipv4Addr::from(number).into();
                carried.add_sent(remote, 2);
                carried.add_received(remote, 3);
            }
            let all = carried.all();
            assert_eq!(all.len(), MOST + 1);
            assert_eq!(all[MOST].remote, None);
            let sums = all.iter().fold((0, 0), |(sent, received), one| {
                (sent + one.sent.0, received + one.received.0)
            });
            assert_eq!(sums, ((round + 1) * 2_000, (round + 1) * 3_000));
            assert_eq!(all[0].sent, Bytes((round + 1) * 2));
        }
    }
}
