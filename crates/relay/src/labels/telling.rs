//! What stands between a host's address and the relay, which the host finds out by answers from two
//! ports of the relay.

use units::Time;
use wire::bind::{BindDatagram, BindKind};

use super::{DatagramPlace, Labels, Step};

impl<K: Ord + Copy> Labels<K> {
    /// The same at a relay that has another port beside that of each socket, by their numbers; 0:
    /// it has none.
    #[must_use]
    pub fn beside(self, other_ports: Vec<u16>) -> Labels<K> {
        Labels { other_ports, ..self }
    }

    /// A datagram has come to the other port, which answers questions alone.
    pub fn handle_other(&mut self, now: Time, from: DatagramPlace, datagram: &[u8]) -> Step<K> {
        match BindDatagram::parse(datagram) {
            Ok(asked) if asked.kind == BindKind::Ask => self.tell(now, from, &asked, 0),
            _ => Step::Drop,
        }
    }

    /// The answer to a question about what stands between an address and the relay.
    pub(super) fn tell(
        &self,
        now: Time,
        from: DatagramPlace,
        asked: &BindDatagram,
        other: u16,
    ) -> Step<K> {
        let Some(association) = self.associations.get(&asked.association) else {
            return Step::Drop;
        };
        match association.prove(now, from, asked, &self.cookies) {
            Ok(()) => {
                let (kind, cookie) =
                    (BindKind::Told, BindDatagram::told_cookie(from.address, other));
                let told = BindDatagram { kind, cookie, ..*asked };
                Step::Tell(association.tags.tagged(told).octets())
            }
            Err(Some(challenge)) => Step::Answer(challenge.octets()),
            Err(None) => Step::Drop,
        }
    }
}
