//! The relay's sockets.

use stripe::UdpSocket;

/// The sockets at the relay's port, and as many at another one.
pub(super) struct Sockets {
    all: Vec<UdpSocket>,
    /// How many are at the relay's port.
    main: usize,
}

impl Sockets {
    /// These, and beside each, where the system lets it, one at a port that is free: by what comes
    /// from there, and arrives there, hosts see what stands in front of them.
    pub(super) fn beside(mut all: Vec<UdpSocket>) -> Sockets {
        let main = all.len();
        let both_families = all.iter().all(|socket| socket.local().is_ipv6());
        for number in 0..main {
            let mut local = all[number].local();
            // None that a program may want to have at its start.
            local.set_port(0);
            match UdpSocket::listening(local, both_families) {
                Ok(socket) => all.push(socket),
                Err(error) => {
                    tracing::warn!(%error, "the relay has no second port for UDP");
                    break;
                }
            }
        }
        Sockets { all, main }
    }

    pub(super) fn all(&self) -> &[UdpSocket] {
        &self.all
    }

    /// Those at the relay's port.
    pub(super) fn main(&self) -> &[UdpSocket] {
        &self.all[..self.main]
    }

    /// Whether a number is that of one at the other port.
    pub(super) fn is_other(&self, number: usize) -> bool {
        number >= self.main
    }

    /// The number of the one at the other port beside that one.
    pub(super) fn other_of(&self, number: usize) -> Option<usize> {
        let other = number + self.main;
        (number < self.main && other < self.all.len()).then_some(other)
    }

    /// The other port beside each of those at the relay's port; 0: there is none.
    pub(super) fn other_ports(&self) -> Vec<u16> {
        let port = |number| self.other_of(number).map_or(0, |other| self.all[other].local().port());
        (0..self.main).map(port).collect()
    }
}
