//! The octets of a packet, behind room for what is written before it.

use std::ops::{Deref, DerefMut};

use wire::harp::{DATA_HEADER, RETURN_HEADER};

/// A packet in memory with room before it: for the header of the device where it goes to a host,
/// and for that of a message where it goes to a site. Neither moves the packet.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Frame(Vec<u8>);

/// The room: the larger of both headers fits.
pub(crate) const ROOM: usize = 10;
const _: () = assert!(DATA_HEADER == ROOM && RETURN_HEADER <= ROOM);

impl Frame {
    /// A frame of nothing yet, with memory for a packet of so many octets.
    pub(crate) fn with_capacity(octets: usize) -> Frame {
        let mut all = Vec::with_capacity(ROOM + octets);
        all.extend([0; ROOM]);
        Frame(all)
    }

    /// A copy of a packet.
    pub(crate) fn of(packet: &[u8]) -> Frame {
        let mut frame = Frame::with_capacity(packet.len());
        frame.extend(packet);
        frame
    }

    /// Appends octets to the packet.
    pub(crate) fn extend(&mut self, octets: &[u8]) {
        self.0.extend_from_slice(octets);
    }

    /// The packet with this header of the device before it.
    pub(crate) fn behind(&mut self, header: [u8; ROOM]) -> &[u8] {
        self.0[..ROOM].copy_from_slice(&header);
        &self.0
    }

    /// The packet behind this header of a message, which is at most as long as the room.
    pub(crate) fn into_message(mut self, header: &[u8]) -> Vec<u8> {
        let begin = ROOM - header.len();
        self.0[begin..ROOM].copy_from_slice(header);
        // Packets without payload alone have a shorter header: little is moved.
        self.0.drain(..begin);
        self.0
    }
}

impl Deref for Frame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0[ROOM..]
    }
}

impl DerefMut for Frame {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0[ROOM..]
    }
}

impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Frame({} octets)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_stand_before_the_packet_and_do_not_change_it() {
        let mut frame = Frame::of(b"packet");
        assert_eq!(&frame[..], b"packet");
        assert_eq!(frame.behind([7; ROOM]), [&[7; ROOM][..], b"packet"].concat());
        assert_eq!(&frame[..], b"packet");
        for length in 0..=ROOM {
            let header = vec![9; length];
            assert_eq!(frame.clone().into_message(&header), [&header[..], b"packet"].concat());
        }
    }
}
