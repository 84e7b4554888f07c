//! Whole IP packets of hosts: what the state machine reads of them, and the few octets that change.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use etherparse::{NetSlice, SlicedPacket, TcpOptionElement, TransportSlice};
use harp::{Carried, Edits};
use wire::ip::{ecn, mark, update_checksum};
use wire::tcp::{Flags, Meta};

use crate::frame::Frame;

/// A TCP segment of a host, with its IP headers.
#[derive(Debug)]
pub(crate) struct Packet {
    frame: Frame,
    headers: Headers,
    /// Its share of the memory of packets.
    #[expect(dead_code, reason = "it is given back with the packet")]
    held: HeldBytes,
}

/// What the headers of a TCP segment say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Headers {
    meta: Meta,
    source: SocketAddr,
    destination: SocketAddr,
    /// Where the TCP header begins, and where it ends.
    tcp: usize,
    end: usize,
}

/// The memory of packets that wait.
#[derive(Clone, Debug)]
pub(crate) struct PacketMemory {
    taken: Arc<AtomicUsize>,
    most: usize,
}

/// Octets of packets that are taken until this is dropped.
#[derive(Debug)]
struct HeldBytes {
    taken: Arc<AtomicUsize>,
    octets: usize,
}

impl PacketMemory {
    /// At most so many octets at a time.
    pub(crate) fn new(most: usize) -> PacketMemory {
        PacketMemory { taken: Arc::default(), most }
    }

    /// The octets that are taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Takes the memory of a packet of so many octets; `None`: there is none left.
    fn take(&self, octets: usize) -> Option<HeldBytes> {
        let octets = octets + OVERHEAD;
        let before = self.taken.fetch_add(octets, Ordering::Relaxed);
        let held = HeldBytes { taken: Arc::clone(&self.taken), octets };
        (before + octets <= self.most).then_some(held)
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.octets, Ordering::Relaxed);
    }
}

/// Why a packet is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Untaken {
    /// It is no whole TCP segment over IP.
    NotTcp,
    /// Too many packets wait.
    NoMemory,
}

/// What a packet takes besides its octets: the state that remembers it.
const OVERHEAD: usize = 256;

/// The flags that gateways read.
const READ: Flags =
    Flags(Flags::FIN.0 | Flags::SYN.0 | Flags::RST.0 | Flags::ACK.0 | Flags::ECE.0 | Flags::CWR.0);

impl Headers {
    /// Reads the headers of a packet; `None` if it is no TCP segment, or not a whole one.
    pub(crate) fn parse(octets: &[u8]) -> Option<Headers> {
        let sliced = SlicedPacket::from_ip(octets).ok()?;
        let (source, destination): (IpAddr, IpAddr) = match sliced.net.as_ref()? {
            NetSlice::Ipv4(ip) => {
                let header = ip.header();
                if usize::from(header.total_len()) != octets.len() {
                    return None;
                }
                (header.source_addr().into(), header.destination_addr().into())
            }
            NetSlice::Ipv6(ip) => {
                let header = ip.header();
                if usize::from(header.payload_length()) + 40 != octets.len() {
                    return None;
                }
                (header.source_addr().into(), header.destination_addr().into())
            }
            NetSlice::Arp(_) => return None,
        };
        let Some(TransportSlice::Tcp(tcp)) = &sliced.transport else { return None };
        let all = tcp.header_slice();
        let flags = Flags(all[13] & READ.0);
        let mut meta = Meta {
            seq: tcp.sequence_number(),
            ack: tcp.acknowledgment_number(),
            window: tcp.window_size(),
            len: u16::try_from(tcp.payload().len()).ok()?,
            flags,
            scale: None,
            mss: None,
        };
        if flags.has(Flags::SYN) {
            for option in tcp.options_iterator() {
                match option {
                    Ok(TcpOptionElement::WindowScale(shift)) => meta.scale = Some(shift),
                    Ok(TcpOptionElement::MaximumSegmentSize(most)) => meta.mss = Some(most),
                    Ok(_) => {}
                    // What is behind a broken option is not read: hosts do the same.
                    Err(_) => break,
                }
            }
        }
        // The header is a part of `octets`. What stands between the headers, as source routes do,
        // is not for gateways.
        let begin = all.as_ptr().addr() - octets.as_ptr().addr();
        if begin != if source.is_ipv4() { 20 } else { 40 } {
            return None;
        }
        Some(Headers {
            meta,
            source: SocketAddr::new(source, tcp.source_port()),
            destination: SocketAddr::new(destination, tcp.destination_port()),
            tcp: begin,
            end: begin + all.len(),
        })
    }

    /// Those of a segment of the packet, `before` octets of payload after its begin.
    pub(crate) fn of_segment(&self, before: u32, len: usize, flags: Flags) -> Headers {
        let meta = Meta {
            seq: self.meta.seq.wrapping_add(before),
            // It is a part of the packet.
            len: u16::try_from(len).unwrap_or(u16::MAX),
            flags: Flags(flags.0 & READ.0),
            ..self.meta
        };
        Headers { meta, ..*self }
    }

    /// What the state machine reads.
    pub(crate) fn meta(&self) -> Meta {
        self.meta
    }

    /// Where it comes from.
    pub(crate) fn source(&self) -> SocketAddr {
        self.source
    }

    /// Where it goes.
    pub(crate) fn destination(&self) -> SocketAddr {
        self.destination
    }

    /// Whether it is of IPv4.
    pub(crate) fn is_ipv4(&self) -> bool {
        self.source.is_ipv4()
    }

    /// Where the header of TCP begins.
    pub(crate) fn tcp(&self) -> usize {
        self.tcp
    }

    /// Where the payload begins.
    pub(crate) fn end(&self) -> usize {
        self.end
    }
}

impl Packet {
    /// Reads a packet.
    pub(crate) fn read(octets: &[u8], memory: &PacketMemory) -> Result<Packet, Untaken> {
        let headers = Headers::parse(octets).ok_or(Untaken::NotTcp)?;
        let held = memory.take(octets.len()).ok_or(Untaken::NoMemory)?;
        Ok(Packet { frame: Frame::of(octets), headers, held })
    }

    /// A packet with these headers; given back if too many wait.
    pub(crate) fn hold(
        frame: Frame,
        headers: Headers,
        memory: &PacketMemory,
    ) -> Result<Packet, Frame> {
        match memory.take(frame.len()) {
            Some(held) => Ok(Packet { frame, headers, held }),
            None => Err(frame),
        }
    }

    /// Where it comes from.
    pub(crate) fn source(&self) -> SocketAddr {
        self.headers.source
    }

    /// Where it goes.
    pub(crate) fn destination(&self) -> SocketAddr {
        self.headers.destination
    }

    /// Its octets.
    pub(crate) fn octets(&self) -> &[u8] {
        &self.frame
    }

    /// Whether routers may mark it, or have marked it.
    pub(crate) fn is_ecn_capable(&self) -> bool {
        ecn(&self.frame) != 0
    }

    /// Its tunnel was marked: Congestion Experienced is copied inwards (RFC 6040, section 4.2).
    /// `false`: the host does not know marks, and the packet is to be dropped.
    pub(crate) fn copy_mark(&mut self) -> bool {
        let is_capable = self.is_ecn_capable();
        if is_capable {
            mark(&mut self.frame);
        }
        is_capable
    }

    /// The packet behind the header of a message.
    pub(crate) fn into_message(self, header: &[u8]) -> Vec<u8> {
        self.frame.into_message(header)
    }

    /// The packet with the changes of the state machine in it.
    pub(crate) fn edited(mut self, edits: Edits) -> (Frame, Headers) {
        if let Some(window) = edits.window {
            let (at, sum_at) = (self.headers.tcp + 14, self.headers.tcp + 16);
            let word = |at: usize| u16::from_be_bytes([self.frame[at], self.frame[at + 1]]);
            let sum = update_checksum(word(sum_at), word(at), window);
            self.frame[at..at + 2].copy_from_slice(&window.to_be_bytes());
            self.frame[sum_at..sum_at + 2].copy_from_slice(&sum.to_be_bytes());
            self.headers.meta.window = window;
        }
        (self.frame, self.headers)
    }
}

impl Carried for Packet {
    fn meta(&self) -> Meta {
        self.headers.meta
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use etherparse::{PacketBuilder, TcpHeader};
    use proptest::prelude::*;

    use super::*;

    /// A segment between these ends; `change` sets the fields of its header.
    pub(crate) fn segment(
        from: SocketAddr,
        to: SocketAddr,
        payload: &[u8],
        change: impl FnOnce(&mut TcpHeader),
    ) -> Vec<u8> {
        let mut header = TcpHeader::new(from.port(), to.port(), 1, 500);
        header.ack = true;
        change(&mut header);
        let mut octets = Vec::new();
        match (from.ip(), to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let builder = PacketBuilder::ipv4(from.octets(), to.octets(), 60);
                builder.tcp_header(header).write(&mut octets, payload).expect("it fits");
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let builder = PacketBuilder::ipv6(from.octets(), to.octets(), 60);
                builder.tcp_header(header).write(&mut octets, payload).expect("it fits");
            }
            _ => panic!("one family"),
        }
        octets
    }

    pub(crate) fn ends(is_v6: bool) -> (SocketAddr, SocketAddr) {
        let [near, far] = if is_v6 {
            ["[fd00:1::2]:40000", "[fd00:2::2]:873"]
        } else {
            ["10.1.0.2:40000", "10.2.0.2:873"]
        };
        (near.parse().expect("an address"), far.parse().expect("an address"))
    }

    fn memory() -> PacketMemory {
        PacketMemory::new(1 << 20)
    }

    pub(crate) fn is_whole(octets: &[u8]) -> bool {
        let sliced = SlicedPacket::from_ip(octets).expect("it is a packet");
        let Some(TransportSlice::Tcp(tcp)) = &sliced.transport else { return false };
        let sum = match sliced.net.as_ref().expect("it has addresses") {
            NetSlice::Ipv4(ip) => {
                let header = ip.header();
                assert_eq!(header.header_checksum(), header.to_header().calc_header_checksum());
                tcp.calc_checksum_ipv4(header.source(), header.destination())
            }
            NetSlice::Ipv6(ip) => {
                tcp.calc_checksum_ipv6(ip.header().source(), ip.header().destination())
            }
            NetSlice::Arp(_) => return false,
        };
        sum.expect("it is short") == tcp.checksum()
    }

    #[test]
    fn headers_and_options_are_read() {
        for is_v6 in [false, true] {
            let (near, far) = ends(is_v6);
            let syn = segment(near, far, b"", |header| {
                header.syn = true;
                header.ack = false;
                let options = [
                    TcpOptionElement::MaximumSegmentSize(1_392),
                    TcpOptionElement::WindowScale(9),
                    TcpOptionElement::SelectiveAcknowledgementPermitted,
                ];
                header.set_options(&options).expect("they fit");
            });
            let packet = Packet::read(&syn, &memory()).expect("it is TCP");
            assert_eq!((packet.source(), packet.destination()), (near, far));
            let meta = packet.meta();
            assert_eq!((meta.scale, meta.mss, meta.flags), (Some(9), Some(1_392), Flags::SYN));
            let data = segment(near, far, &[7; 900], |header| header.sequence_number = 77);
            let meta = Packet::read(&data, &memory()).expect("it is TCP").meta();
            assert_eq!((meta.seq, meta.len, meta.window, meta.scale), (77, 900, 500, None));
        }
    }

    #[test]
    fn a_changed_window_keeps_the_checksum_right() {
        for is_v6 in [false, true] {
            let (near, far) = ends(is_v6);
            for window in [0, 1, 499, 500, u16::MAX] {
                let octets = segment(near, far, &[7; 101], |_| {});
                let packet = Packet::read(&octets, &memory()).expect("it is TCP");
                let edited = packet.edited(Edits { window: Some(window) }).0.to_vec();
                assert!(is_whole(&edited), "{window}");
                let again = Packet::read(&edited, &memory()).expect("it is TCP");
                assert_eq!(again.meta().window, window);
            }
        }
    }

    #[test]
    fn marks_are_copied_to_what_knows_them() {
        for is_v6 in [false, true] {
            let (near, far) = ends(is_v6);
            let mut octets = segment(near, far, &[7; 100], |_| {});
            let mut packet = Packet::read(&octets, &memory()).expect("it is TCP");
            assert!(!packet.is_ecn_capable() && !packet.copy_mark());
            // ECT(0), with the checksum of IPv4 as a host would have it.
            if is_v6 {
                octets[1] |= 0b10_0000;
            } else {
                let before = u16::from_be_bytes([octets[0], octets[1]]);
                octets[1] |= 0b10;
                let sum = u16::from_be_bytes([octets[10], octets[11]]);
                let after = u16::from_be_bytes([octets[0], octets[1]]);
                let sum = update_checksum(sum, before, after);
                octets[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            let mut packet = Packet::read(&octets, &memory()).expect("it is TCP");
            assert!(packet.is_ecn_capable() && packet.copy_mark());
            assert_eq!(ecn(packet.octets()), 3);
            assert!(is_whole(packet.octets()));
        }
    }

    #[test]
    fn packets_take_memory_until_they_are_gone() {
        let (near, far) = ends(false);
        let octets = segment(near, far, &[7; 1_000], |_| {});
        let memory = PacketMemory::new(3_000);
        let first = Packet::read(&octets, &memory).expect("there is room");
        let second = Packet::read(&octets, &memory).expect("there is room");
        assert_eq!(Packet::read(&octets, &memory).map(drop), Err(Untaken::NoMemory));
        drop(first);
        drop(Packet::read(&octets, &memory).expect("there is room again"));
        drop(second);
        assert_eq!(memory.taken(), 0);
    }

    #[test]
    fn what_is_no_whole_segment_is_not_taken() {
        let (near, far) = ends(false);
        let whole = segment(near, far, &[7; 100], |_| {});
        for length in 0..whole.len() {
            assert!(Packet::read(&whole[..length], &memory()).is_err(), "{length}");
        }
        let longer = [&whole[..], &[0]].concat();
        assert!(Packet::read(&longer, &memory()).is_err(), "octets behind it");
        // A fragment.
        let mut fragment = whole;
        fragment[6] = 0x20;
        assert!(Packet::read(&fragment, &memory()).is_err());
        let mut udp = Vec::new();
        let builder = PacketBuilder::ipv4([10, 1, 0, 2], [10, 2, 0, 2], 60).udp(1, 2);
        builder.write(&mut udp, b"datagram").expect("it fits");
        assert_eq!(Packet::read(&udp, &memory()).map(drop), Err(Untaken::NotTcp));
    }

    proptest! {
        #[test]
        fn any_octets_are_read_or_refused(octets: Vec<u8>, window: u16) {
            if let Ok(mut packet) = Packet::read(&octets, &memory()) {
                packet.copy_mark();
                let (edited, _) = packet.edited(Edits { window: Some(window) });
                prop_assert_eq!(edited.len(), octets.len());
            }
        }
    }
}
