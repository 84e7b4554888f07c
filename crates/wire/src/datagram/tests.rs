use alloc::vec;

use proptest::prelude::*;

use super::*;

fn sealed() -> Vec<u8> {
    vec![0xa5; SAMPLE_BEHIND - 1 + SAMPLE]
}

#[test]
fn the_octets_of_the_page_on_the_format() {
    let mut octets = Vec::new();
    emit_data(0x0102_0304_0506_0708, true, 0x1234_5678, 2, &mut octets);
    assert_eq!(octets, [0x45, 1, 2, 3, 4, 5, 6, 7, 8, 0x56, 0x78]);
    octets.clear();
    emit_handshake(Level::Initial, VERSION, 9, b"tok", (3, 1), &mut octets);
    assert_eq!(octets, *b"\xc0anb\x01\0\0\0\0\0\0\0\x09\x03tok\x03");
    octets.clear();
    emit_handshake(Level::Handshake, VERSION, 9, b"", (0x0304, 2), &mut octets);
    assert_eq!(octets, *b"\xd1anb\x01\0\0\0\0\0\0\0\x09\x03\x04");
    octets.clear();
    emit_versions(9, &[VERSION], &mut octets);
    assert_eq!(octets, *b"\xe1\0\0\0\0\0\0\0\0\0\0\0\x09anb\x01");
    octets.clear();
    emit_retry(VERSION, 9, b"tok", &mut octets);
    assert_eq!(octets, *b"\xe2anb\x01\0\0\0\0\0\0\0\x09tok");
    octets.clear();
    emit_reset(9, *b"0123456789abcdef", &mut octets);
    assert_eq!(octets, *b"\xe3\0\0\0\0\0\0\0\0\0\0\0\x090123456789abcdef");
}

#[test]
fn a_reset_is_no_longer_than_the_shortest_data_packet() {
    let (mut data, mut reset) = (Vec::new(), Vec::new());
    emit_data(1, false, 0, 1, &mut data);
    data.extend(sealed());
    assert!(Outer::parse(&data).is_ok());
    emit_reset(1, [0; RESET_TOKEN], &mut reset);
    assert!(reset.len() <= data.len(), "{} and {}", reset.len(), data.len());
}

#[test]
fn no_cut_datagram_is_read() {
    let mut data = Vec::new();
    emit_data(1, false, 0, 1, &mut data);
    data.extend(sealed());
    let mut initial = Vec::new();
    emit_handshake(Level::Initial, VERSION, 1, b"token", (0, 1), &mut initial);
    initial.extend(sealed());
    let mut reset = Vec::new();
    emit_reset(1, [7; RESET_TOKEN], &mut reset);
    for whole in [data, initial, reset] {
        assert!(Outer::parse(&whole).is_ok());
        for len in 0..whole.len() {
            assert!(Outer::parse(&whole[..len]).is_err(), "{len} of {whole:?}");
        }
    }
}

fn versions() -> impl Strategy<Value = Vec<u32>> {
    proptest::collection::vec(any::<u32>(), 1..=MOST_VERSIONS)
}

proptest! {
    #[test]
    fn a_header_that_is_written_is_read(
        label: u64,
        version in 1_u32..,
        number: u64,
        octets in 1_usize..=4,
        phase: bool,
        token in proptest::collection::vec(any::<u8>(), 0..=MOST_TOKEN),
    ) {
        let mut data = Vec::new();
        emit_data(label, phase, number, octets, &mut data);
        prop_assert_eq!(data.len(), DATA_NUMBER_AT + octets);
        prop_assert_eq!((number_octets(data[0]), key_phase(data[0])), (octets, phase));
        prop_assert!(!has_reserved_bits(data[0]));
        data.extend(sealed());
        prop_assert_eq!(Outer::parse(&data), Ok(Outer::Data { label }));

        let mut initial = Vec::new();
        emit_handshake(Level::Initial, version, label, &token, (number, octets), &mut initial);
        let number_at = initial.len() - octets;
        prop_assert!(!has_reserved_bits(initial[0]));
        initial.extend(sealed());
        let level = Level::Initial;
        let outer = Outer::Handshake { level, version, label, token: &token, number_at };
        prop_assert_eq!(Outer::parse(&initial), Ok(outer));
    }

    #[test]
    fn an_answer_that_is_written_is_read(
        label: u64,
        version in 1_u32..,
        versions in versions(),
        token in proptest::collection::vec(any::<u8>(), 1..=MOST_TOKEN),
        reset: [u8; RESET_TOKEN],
    ) {
        let mut octets = Vec::new();
        emit_versions(label, &versions, &mut octets);
        match Outer::parse(&octets) {
            Ok(Outer::Versions { label: read, versions: list }) => {
                prop_assert_eq!((read, list.iter().collect::<Vec<_>>()), (label, versions));
            }
            other => prop_assert!(false, "{:?}", other),
        }
        octets.clear();
        emit_retry(version, label, &token, &mut octets);
        prop_assert_eq!(Outer::parse(&octets), Ok(Outer::Retry { version, label, token: &token }));
        octets.clear();
        emit_reset(label, reset, &mut octets);
        prop_assert_eq!(Outer::parse(&octets), Ok(Outer::Reset { label, token: reset }));
    }

    #[test]
    fn a_message_that_is_written_is_read(
        delivered: u16,
        offset in 0_u16..30_000,
        data in proptest::collection::vec(any::<u8>(), 0..FULL),
        tokens in proptest::collection::vec(any::<[u8; RESET_TOKEN]>(), 0..20),
        code: u16,
        padding in 0_usize..100,
    ) {
        let piece = Message::Piece { delivered, offset, data: &data };
        let mut octets = Vec::new();
        piece.emit(&mut octets);
        prop_assert_eq!(octets.len(), PIECE_HEADER + data.len());
        octets.resize(octets.len() + padding, 0);
        prop_assert_eq!(Message::parse(&octets), Ok(piece));
        let done = Message::Done { tokens: &tokens };
        octets.clear();
        done.emit(&mut octets);
        prop_assert_eq!(Message::parse(&octets), Ok(done));
        let refused = Message::Refused { code };
        octets.clear();
        refused.emit(&mut octets);
        octets.resize(octets.len() + padding, 0);
        prop_assert_eq!(Message::parse(&octets), Ok(refused));
    }

    #[test]
    fn parameters_that_are_written_are_read(
        version: u32,
        versions in versions(),
        above in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let mut octets = Vec::new();
        Parameters::emit(version, &versions, &above, &mut octets);
        let read = Parameters::parse(&octets).unwrap();
        prop_assert_eq!((read.version, read.above), (version, &above[..]));
        prop_assert_eq!(read.versions.iter().collect::<Vec<_>>(), versions);
    }

    #[test]
    fn no_octets_are_too_bad(octets in proptest::collection::vec(any::<u8>(), 0..100)) {
        let _ = Outer::parse(&octets);
        let _ = Message::parse(&octets);
        let _ = Parameters::parse(&octets);
    }
}
