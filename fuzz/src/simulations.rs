//! The checks of the fuzz targets for the simulator and the wire formats. The test `fuzz_seeds` of
//! the crate `scenario` runs them on all seeds.

use std::str;

use link::config::Network;
use link::{Link, Profile, Trace};
use scenario::distribution::Distribution;
use scenario::file::{FlowSpec, LinkSpec, Pace, SocketsSpec, TcpSpec, Transport};
use scenario::relays::FeedsFile;
use scenario::{Document, RunOptions};
use units::{Bytes, Rate, Seed, Span, Time};
use wire::datagram::{self, Message, Outer, Parameters};
use wire::harp::{PathReport, Report, Stamp};
use wire::manifest::{self, Assembly, Part};
use wire::ptcp::{self, Packet};
use wire::session::VERSION;
use wire::tcp::{Flags, Meta};
use wire::{Emit, RawFrame};

/// Larger scenarios are parsed, but not built.
const SMALL: usize = 64;
/// The simulated time of a run.
const BRIEF: Span = Span::from_millis(30);
/// Rates that change at shorter intervals than this make a run long.
const INSTANT: Span = Span::from_micros(10);

/// A scenario's text: a message, or a scenario that can be built and run.
pub fn scenario(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    if has_large_number(text, "count") {
        // Large scenarios take memory and time in proportion, as they should.
        return;
    }
    if FeedsFile::is_one(text) {
        // A message, or a network; the simulator has no other way to it.
        drop(FeedsFile::read(text, "fuzz.toml"));
    }
    let Ok(document) = Document::new(text, "fuzz.toml") else { return };
    for point in document.points().iter().take(2) {
        let Ok(mut scenario) = document.scenario(point) else { continue };
        if scenario.links.len() + scenario.flows.len() > SMALL {
            continue;
        }
        // Nodes may be disconnected, which is an error with a message too.
        let is_built = scenario.build(scenario.seed).map_err(|error| error.to_string()).is_ok();
        if is_built && scenario.links.iter().all(is_slow) && scenario.flows.iter().all(is_calm) {
            (scenario.duration, scenario.windows) = (BRIEF, Vec::new());
            scenario.run(scenario.seed, RunOptions::default()).expect("it was built");
        }
    }
}

/// Whether few packets pass within [`BRIEF`], and none at once.
fn is_slow(link: &LinkSpec) -> bool {
    [&link.up, &link.down].into_iter().all(|direction| {
        let profile = direction.profile();
        let plan = &profile.rate;
        let rates = plan.changes.iter().map(|change| change.rate).chain([plan.base]);
        let is_steady = plan.opportunities.is_none()
            && plan.redraw.is_none_or(|redraw| redraw.every >= INSTANT);
        let mut delays = profile.delays.iter().map(|delay| delay.value).chain([profile.delay]);
        is_steady
            && delays.all(|delay| delay >= Span::from_millis(1))
            && rates.max() <= Some(Rate::mbit(100))
    })
}

/// Whether few packets are sent within [`BRIEF`].
fn is_calm(flow: &FlowSpec) -> bool {
    match &*flow.transport {
        Transport::Tcp(TcpSpec { config, .. }) | Transport::Sockets(SocketsSpec { config, .. }) => {
            config.mss >= Bytes(100) && config.initial_window <= Bytes(100_000)
        }
        // Its configuration has bounds of its own.
        Transport::Ptcp(_) => true,
        Transport::Udp(spec) => {
            let is_long = |span: Span| span >= INSTANT;
            let is_steady = spec.on_off.is_none_or(|(on, off)| is_long(on) && is_long(off));
            let is_slow = match &spec.pace {
                Pace::Rate(rate) => *rate <= Rate::mbit(10),
                Pace::Interval(
                    Distribution::Constant(time) | Distribution::Exponential { mean: time },
                ) => *time >= INSTANT.as_secs_f64(),
                Pace::Interval(_) => false,
                Pace::Trace(_) => true,
            };
            is_steady && is_slow
        }
    }
}

/// A network file: a message, or links that carry packets.
pub fn network(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let Ok(network) = Network::parse(text, "fuzz.toml", None) else { return };
    let _ = network.ideal(Bytes::mib(1), 0.9);
    for link in &network.links {
        for (name, direction) in [("up", &link.up), ("down", &link.down)] {
            carry(direction.profile.clone(), network.stream(link, name));
        }
    }
}

/// A trace: a message, or a rate by which packets leave in order.
pub fn trace(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    match Trace::parse(text) {
        Ok(Trace { rate, delays, losses }) => {
            let plain = Profile::new(Rate::ZERO, Span::from_millis(1));
            carry(Profile { rate, delays, losses, ..plain }, Seed(1));
        }
        Err(error) => {
            assert!(error.line >= 1 && error.line <= text.lines().count().max(1), "{error}");
            assert!(!error.to_string().is_empty());
        }
    }
}

/// Frames of sessions and services: a parsed frame is emitted as the same bytes, and its prefixes
/// are incomplete.
pub fn wire_frame(data: &[u8]) {
    let mut rest = data;
    while let Ok(Some((frame, length))) = RawFrame::parse(rest) {
        assert_eq!(RawFrame::length(rest), Ok(Some(length)), "{frame:?}");
        let read = &rest[..length];
        for cut in [0, 1, 4, length / 2, length - 1] {
            let incomplete = RawFrame::parse(&read[..cut.min(length - 1)]);
            assert!(matches!(incomplete, Ok(None)), "{frame:?} cut at {cut}");
        }
        if let Ok(frame) = wire::session::SessionFrame::try_from(frame) {
            use wire::session::SessionFrame;
            if matches!(&frame, SessionFrame::Hello(hello) if hello.version != VERSION) {
                // Its other fields are that version's.
            } else if let SessionFrame::Abort(..) = frame {
                // Control characters are removed from a peer's text, so that only a second round
                // trip is exact.
                let written = emitted(&frame);
                let (again, _) = RawFrame::parse(&written).expect("we wrote it").expect("whole");
                let again = SessionFrame::try_from(again).expect("we wrote it");
                assert_eq!(emitted(&again), written, "{frame:?}");
            } else {
                assert_eq!(emitted(&frame), read, "{frame:?}");
            }
        } else if let Ok(frame) = wire::files::FileFrame::try_from(frame) {
            assert_eq!(emitted(&frame), read, "{frame:?}");
        } else if let Ok(frame) = wire::measure::MeasureFrame::try_from(frame) {
            assert_eq!(emitted(&frame), read, "{frame:?}");
        }
        rest = &rest[length..];
    }
}

fn emitted(frame: &impl Emit) -> Vec<u8> {
    let mut written = Vec::new();
    frame.emit(&mut written);
    written
}

/// A chunk of a manifest: paths stay below the folder, and entries survive a round trip.
pub fn wire_manifest(data: &[u8]) {
    let mut read = Assembly::new(true);
    let mut bytes = 0;
    for part in manifest::entries(data) {
        let Ok(part) = part else { break };
        let Part::Entry(entry) = &part else {
            if read.add(part).is_err() {
                break;
            }
            continue;
        };
        assert_eq!(entry.check(), Ok(()), "{entry:?}");
        let plain =
            |part: &[u8]| !part.is_empty() && part != b"." && part != b".." && !part.contains(&0);
        assert!(entry.path.split(|&byte| byte == b'/').all(plain), "{entry:?}");
        // A few bytes can repeat a long path many times, so a caller that keeps entries must count.
        bytes += entry.path.len();
        if bytes > 1 << 20 {
            break;
        }
        read.add(part).expect("an entry");
    }
    let read = read.into_parts();
    assert!(read.1.values().all(|attributes| attributes.check() == Ok(())));
    let chunks: Vec<Vec<u8>> = manifest::chunks_with(&read.0, &read.1).collect();
    assert!(chunks.iter().all(|chunk| !chunk.is_empty() && chunk.len() <= manifest::MAX_CHUNK));
    let mut again = Assembly::new(true);
    for part in chunks.iter().flat_map(|chunk| manifest::entries(chunk)) {
        again.add(part.expect("it was written")).expect("it continues");
    }
    assert_eq!(again.into_parts(), read);
}

/// A packet of the striped connection survives a round trip. Received padding may have any content.
pub fn wire_packet(data: &[u8]) {
    let Ok(parsed) = Packet::parse(1 << 40, data) else { return };
    let mut written = Vec::new();
    parsed.packet.emit(&mut written);
    written.extend_from_slice(parsed.payload);
    assert_eq!(written.len(), data.len(), "{parsed:?}");
    assert_eq!(Packet::parse(parsed.packet.number, &written), Ok(parsed));
}

/// A message between background gateways survives a round trip.
pub fn wire_gateway(data: &[u8]) {
    let Ok((header, packet)) = wire::harp::parse(data) else { return };
    let mut written = Vec::new();
    wire::harp::emit(&header, &mut written);
    written.extend_from_slice(packet);
    assert_eq!(written, data, "{header:?}");
}

/// A segment as a background gateway sees it.
#[derive(Clone, Copy, Debug)]
struct Carried(Meta);

impl harp::Carried for Carried {
    fn meta(&self) -> Meta {
        self.0
    }
}

/// A background gateway takes whatever hosts send and the other gateway says: it keeps few
/// connections, holds few packets, and its deadlines come to an end.
pub fn gateway(data: &[u8]) {
    const PIECE: usize = 24;
    let Some((&first, rest)) = data.split_first() else { return };
    let most_connections = 4;
    let sharing = if first & 1 == 0 { harp::Sharing::Connection } else { harp::Sharing::Site };
    let profile = if first & 2 == 0 { harp::Config::modern } else { harp::Config::paper };
    let config = harp::Config { sharing, most_connections, ..profile(1 + (first >> 2) % 8) };
    let mut now = Time::ZERO;
    let mut gateway = harp::Gateway::new(now, &config);
    let (mut taken, mut put_out) = (0_usize, 0_usize);
    for piece in rest.chunks_exact(PIECE).take(2_000) {
        let word = |at: usize| u32::from_be_bytes(piece[at..at + 4].try_into().expect("four"));
        let meta = Meta {
            seq: word(4),
            ack: word(8),
            window: u16::from_be_bytes([piece[12], piece[13]]),
            len: u16::from_be_bytes([piece[14], piece[15]]) & 0x7ff,
            flags: Flags(piece[16]),
            scale: (piece[17] & 1 != 0).then_some(piece[17] >> 1),
            mss: (piece[17] & 2 != 0).then_some(u16::from(piece[18])),
        };
        now += Span::from_micros(u64::from(word(0) & 0xf_ffff));
        let (flow, stamp) = (
            u32::from(piece[2] & 7),
            Stamp {
                path: piece[18] & 0x7f,
                sent: word(19),
                srtt: word(12) & 0xff_ffff,
                is_paired: piece[18] & 0x80 != 0,
            },
        );
        let entry =
            PathReport { path: piece[16] & 7, weight: 640, echo: word(8), capacity: piece[12] };
        let report = Report {
            open: piece[17],
            queued: piece[16],
            count: 1 + (piece[18] & 3),
            entries: [entry; 4],
            lost: (word(4), word(19)),
            is_deaf: piece[22] >= 0xf0,
        };
        let packet = Carried(meta);
        if piece[22] < 16 {
            let scale = |byte: u8| match byte & 3 {
                0 => harp::Scale::Unseen,
                1 => harp::Scale::Absent,
                _ => harp::Scale::Shift(byte >> 2),
            };
            gateway.restore(now, flow, [scale(piece[20]), scale(piece[21])]);
        }
        if (16..24).contains(&piece[22]) {
            gateway.set_paths(now, piece[20]);
        }
        match piece[23] % 6 {
            0 | 1 => gateway.handle_inside(now, flow, packet),
            2 => gateway.handle_outside(
                now,
                flow,
                harp::Message::Data(stamp, packet),
                first & 64 != 0,
            ),
            3 => gateway.handle_outside(now, flow, harp::Message::Return(packet), false),
            4 => gateway.handle_outside(now, flow, harp::Message::Probe(stamp), false),
            _ => gateway.handle_outside(now, flow, harp::Message::Report(report), false),
        }
        taken += 1;
        // A deadline that does not move would be called for ever.
        for _ in 0..64 {
            while gateway.poll_output().is_some() {
                put_out += 1;
            }
            if gateway.poll_deadline().is_none_or(|at| at > now) {
                break;
            }
            gateway.handle_deadline(now);
        }
        assert!(gateway.poll_deadline().is_none_or(|at| at > now), "a deadline does not move");
        assert!(gateway.connections() <= most_connections, "{}", gateway.connections());
    }
    // What goes in comes out once, with at most a report each and eight probes a second.
    let seconds = usize::try_from(now.as_nanos() / 1_000_000_000).expect("it is short");
    assert!(put_out <= 12 * taken + 100 * (seconds + 1) * most_connections, "{put_out} of {taken}");
}

/// What surrounds a packet on a UDP path, a message of the handshake, and transport parameters:
/// what is read is written as it was. Messages may have padding, and what is sealed has no meaning
/// here.
pub fn wire_datagram(data: &[u8]) {
    if let Ok(outer) = Outer::parse(data) {
        let mut written = Vec::new();
        match outer {
            Outer::Data { label } => {
                let first = data[0];
                let octets = datagram::number_octets(first);
                datagram::emit_data(label, datagram::key_phase(first), 0, octets, &mut written);
                assert!(written.len() + datagram::TAG <= data.len());
            }
            Outer::Handshake { level, version, label, token, number_at } => {
                let octets = datagram::number_octets(data[0]);
                let number = (0, octets);
                datagram::emit_handshake(level, version, label, token, number, &mut written);
                assert_eq!(written.len(), number_at + octets);
            }
            Outer::Versions { label, versions } => {
                let versions: Vec<u32> = versions.iter().collect();
                datagram::emit_versions(label, &versions, &mut written);
                assert_eq!(written, data);
            }
            Outer::Retry { version, label, token } => {
                datagram::emit_retry(version, label, token, &mut written);
                assert_eq!(written, data);
            }
            Outer::Reset { label, token } => {
                datagram::emit_reset(label, token, &mut written);
                assert_eq!(written, data);
            }
        }
    }
    if let Ok(message) = Message::parse(data) {
        let mut written = Vec::new();
        message.emit(&mut written);
        assert!(data.starts_with(&written), "{message:?}");
        assert_eq!(Message::parse(&written), Ok(message));
    }
    if let Ok(Parameters { version, versions, above }) = Parameters::parse(data) {
        let versions: Vec<u32> = versions.iter().collect();
        let mut written = Vec::new();
        Parameters::emit(version, &versions, above, &mut written);
        assert_eq!(written, data);
        if let Ok(parameters) = ptcp::ConnectionParameters::parse(above) {
            let mut written = Vec::new();
            parameters.emit(&mut written);
            assert_eq!(ptcp::ConnectionParameters::parse(&written), Ok(parameters));
        }
    }
}

/// Sends a few packets over a link: none arrives before it was sent, and deadlines advance.
fn carry(profile: Profile, seed: Seed) {
    let mut link: Link<u64> = Link::new(profile, seed);
    for number in 0..8 {
        let _ = link.enqueue(
            Time::ZERO + Span::from_millis(number * 5),
            Bytes(100 + number * 200),
            number,
        );
    }
    for _ in 0..100 {
        let Some(deadline) = link.poll_deadline() else { return };
        if deadline >= Time::ZERO + Span::from_secs(1_000_000) {
            return;
        }
        while let Some(delivery) = link.poll_deliver(deadline) {
            let sent = Time::ZERO + Span::from_millis(delivery.packet * 5);
            assert!(
                delivery.at >= sent && delivery.at <= deadline,
                "sent {sent:?}, arrived {:?}",
                delivery.at
            );
        }
    }
}

/// Whether a text has a number of more than three digits, and this word.
fn has_large_number(text: &str, word: &str) -> bool {
    let mut digits = 0;
    let is_large = text.bytes().any(|byte| {
        digits =
            if byte.is_ascii_hexdigit() || byte == b'_' || byte == b'x' { digits + 1 } else { 0 };
        digits > 3 && byte.is_ascii_digit()
    });
    is_large && text.contains(word)
}
