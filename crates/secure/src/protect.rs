//! Header protection and seal of one packet (RFC 9001, sections 5.3 and 5.4).

use rustls::quic::{HeaderProtectionKey, PacketKey};
use units::SubflowId;
use wire::datagram::{SAMPLE, SAMPLE_BEHIND, number_octets};
use wire::number;

/// What makes a nonce: the packet's number, and its path if it has one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nonce {
    pub(crate) path: Option<SubflowId>,
    pub(crate) number: u64,
}

/// Seals the packet that begins at `start`, whose header ends with `octets` octets of the packet
/// number, and protects its header. `header` is the header's length.
///
/// # Errors
/// If the cipher cannot take a packet of that length.
pub(crate) fn seal(
    header_key: &dyn HeaderProtectionKey,
    key: &dyn PacketKey,
    nonce: Nonce,
    packet: &mut Vec<u8>,
    (start, header, octets): (usize, usize, usize),
) -> Result<(), rustls::Error> {
    let (head, payload) = packet[start..].split_at_mut(header);
    let tag = match nonce.path {
        Some(path) => {
            key.encrypt_in_place_for_path(u32::from(path.0), nonce.number, head, payload)?
        }
        None => key.encrypt_in_place(nonce.number, head, payload)?,
    };
    packet.extend_from_slice(tag.as_ref());
    let packet = &mut packet[start..];
    let number_at = header - octets;
    let (head, sample) = packet.split_at_mut(number_at + SAMPLE_BEHIND);
    let (first, rest) = head.split_at_mut(1);
    let number = &mut rest[number_at - 1..number_at - 1 + octets];
    header_key.encrypt_in_place(&sample[..SAMPLE], &mut first[0], number)
}

/// A header without its protection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unprotected {
    pub(crate) first: u8,
    /// The full packet number.
    pub(crate) number: u64,
    /// The length of the header.
    pub(crate) header: usize,
}

/// Removes the header protection of a packet whose number begins at `number_at`. `None` if the
/// packet is too short.
pub(crate) fn unprotect(
    key: &dyn HeaderProtectionKey,
    packet: &mut [u8],
    number_at: usize,
    expected: u64,
) -> Option<Unprotected> {
    let (head, sample) = packet.split_at_mut_checked(number_at + SAMPLE_BEHIND)?;
    let (first, rest) = head.split_at_mut_checked(1)?;
    let field = &mut rest[number_at - 1..];
    key.decrypt_in_place(sample.get(..SAMPLE)?, &mut first[0], field).ok()?;
    let octets = number_octets(first[0]);
    let truncated = field[..octets].iter().fold(0, |sum, octet| sum << 8 | u32::from(*octet));
    let number = number::expand(truncated, octets, expected);
    Some(Unprotected { first: first[0], number, header: number_at + octets })
}

/// Opens what is sealed behind the header, in place, and gives the length of what was sealed.
/// `None` if it is not authentic; its content is then undefined.
pub(crate) fn open(
    key: &dyn PacketKey,
    nonce: Nonce,
    header: &[u8],
    sealed: &mut [u8],
) -> Option<usize> {
    let opened = match nonce.path {
        Some(path) => {
            key.decrypt_in_place_for_path(u32::from(path.0), nonce.number, header, sealed)
        }
        None => key.decrypt_in_place(nonce.number, header, sealed),
    };
    opened.ok().map(<[u8]>::len)
}
