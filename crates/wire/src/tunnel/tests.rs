use alloc::format;
use alloc::string::ToString;
use alloc::vec;

use proptest::prelude::*;

use super::*;

fn emitted(request: &Request) -> Vec<u8> {
    let mut octets = Vec::new();
    request.emit(&mut octets);
    octets
}

fn targets() -> impl Strategy<Value = Target> {
    let name = "[a-zA-Z0-9_-]{1,20}(\\.[a-z0-9]{1,20}){0,3}\\.?".prop_map(Host::Name);
    let address = any::<IpAddr>().prop_map(Host::Address);
    (prop_oneof![name, address], any::<u16>()).prop_map(|(host, port)| Target { host, port })
}

fn requests() -> impl Strategy<Value = Request> {
    let from = (any::<IpAddr>(), any::<u16>()).prop_map(SocketAddr::from);
    prop_oneof![
        targets().prop_map(Request::Connect),
        targets().prop_map(Request::Listen),
        (any::<u32>(), from).prop_map(|(listener, from)| Request::Arrived { listener, from }),
    ]
}

proptest! {
    #[test]
    fn requests_are_read_as_they_were_written(request in requests()) {
        let octets = emitted(&request);
        prop_assert_eq!(Request::parse(&octets), Ok(request));
        let header = octets[..HEADER].try_into().unwrap();
        prop_assert_eq!(body_length(header), Ok(octets.len() - HEADER));
        for end in 0..octets.len() {
            prop_assert!(Request::parse(&octets[..end]).is_err(), "{} octets", end);
        }
        prop_assert!(Request::parse(&[octets, vec![0]].concat()).is_err());
    }

    #[test]
    fn answers_are_read_as_they_were_written(
        code in 0..CODES.len(), port: u16, text in "\\PC{0,80}",
    ) {
        let answer = Answer { port, ..Answer::failed(CODES[code], &text) };
        let mut octets = Vec::new();
        answer.emit(&mut octets);
        prop_assert_eq!(Answer::parse(&octets), Ok(answer));
    }

    #[test]
    fn whatever_is_read_is_written_as_it_was(octets in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(request) = Request::parse(&octets) {
            prop_assert_eq!(emitted(&request), &octets[..]);
        }
        if let Ok(answer) = Answer::parse(&octets) {
            let mut again = Vec::new();
            answer.emit(&mut again);
            prop_assert_eq!(again, octets);
        }
    }
}

#[test]
fn a_request_has_these_octets() {
    let target = Target { host: Host::Name("db.internal".to_string()), port: 5_432 };
    let expected = [&[1, 1, 0, 15, 0, 11][..], b"db.internal", &[0x15, 0x38]].concat();
    assert_eq!(emitted(&Request::Connect(target)), expected);
    let target = Target { host: Host::Address([192, 0, 2, 7].into()), port: 80 };
    assert_eq!(emitted(&Request::Listen(target)), [1, 2, 0, 7, 4, 192, 0, 2, 7, 0, 80]);
}

#[test]
fn what_is_no_message_is_refused() {
    let connect = |body: &[u8]| {
        let mut message = Vec::new();
        close(1, body, &mut message);
        Request::parse(&message)
    };
    assert!(connect(&[4, 1, 2, 3, 4, 0, 80]).is_ok());
    for body in [
        &[][..],
        &[4, 1, 2, 3],
        &[5, 1, 2, 3, 4, 0, 80],
        &[0, 0, 0, 80],
        &[0, 1, b' ', 0, 80],
        &[0, 2, b'.', b'a', 0, 80],
        &[0, 1, 0, 0, 80],
        &[0, 2, 0xc3, 0xa4, 0, 80],
        &[4, 1, 2, 3, 4, 0, 80, 0],
    ] {
        assert!(connect(body).is_err(), "{body:?}");
    }
    assert!(Request::parse(&[2, 0, 0, 0]).is_err(), "another version");
    assert!(Request::parse(&[1, 9, 0, 0]).is_err(), "an unknown kind");
    assert!(Answer::parse(&[1, 8, 0, 2, 0, 0]).is_err(), "an unknown code");
    assert!(body_length([1, 1, 2, 0]).is_ok());
    assert!(body_length([1, 1, 2, 1]).is_err(), "too long");
}

#[test]
fn a_long_reason_is_cut_between_characters() {
    let text = "ä".repeat(MOST_TEXT);
    let answer = Answer::failed(Code::Failed, &format!("x{text}"));
    assert_eq!(answer.text.len(), MOST_TEXT - 1);
    answer.emit(&mut Vec::new());
}
