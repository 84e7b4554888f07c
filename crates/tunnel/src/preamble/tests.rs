use proptest::prelude::*;
use wire::tunnel::{Code, Host};

use super::*;

fn login() -> Login {
    "anna:secret:too".parse().unwrap()
}

/// What a proxy does with everything that a client says, in pieces of this size: its answers, its
/// target, and the bytes behind.
fn talk(proxy: &mut dyn Proxy, input: &[u8], piece: usize) -> (Vec<u8>, Option<Step>, Vec<u8>) {
    let (mut waiting, mut said) = (Vec::new(), Vec::new());
    let mut pieces = input.chunks(piece.max(1));
    loop {
        let (consumed, step) = proxy.handle(&waiting);
        waiting.drain(..consumed);
        match step {
            Step::More => match pieces.next() {
                Some(piece) => waiting.extend(piece),
                None => return (said, None, waiting),
            },
            Step::Say(answer) => said.extend(answer),
            step => {
                waiting.extend(pieces.flatten());
                return (said, Some(step), waiting);
            }
        }
    }
}

fn named(name: &str, port: u16) -> Step {
    Step::Connect(Target { host: Host::Name(name.into()), port })
}

#[test]
fn a_client_of_socks_names_its_target() {
    let name = [&[5, 1, 0, 5, 1, 0, 3, 11][..], b"example.org", &[1, 187]].concat();
    let v4 = vec![5, 2, 1, 0, 5, 1, 0, 1, 192, 0, 2, 7, 0, 80];
    let mut v6 = vec![5, 1, 0, 5, 1, 0, 4];
    v6.extend("2001:db8::7".parse::<std::net::Ipv6Addr>().unwrap().octets());
    v6.extend([0, 80]);
    let literal = [&[5, 1, 0, 5, 1, 0, 3, 9][..], b"192.0.2.7", &[0, 80]].concat();
    let at = |address: &str| {
        Some(Step::Connect(address.parse::<std::net::SocketAddr>().unwrap().into()))
    };
    for (input, expected) in [
        (name, Some(named("example.org", 443))),
        (v4, at("192.0.2.7:80")),
        (v6, at("[2001:db8::7]:80")),
        (literal, at("192.0.2.7:80")),
    ] {
        for piece in 1..=input.len() {
            let input = [&input[..], b"early"].concat();
            let (said, step, behind) = talk(&mut Socks::new(None), &input, piece);
            assert_eq!((&said[..], &step, &behind[..]), (&[5, 0][..], &expected, &b"early"[..]));
        }
    }
}

#[test]
fn a_client_of_socks_shows_its_login() {
    let shown = |user: &[u8], password: &[u8]| {
        let [users, passwords] = [user, password].map(|part| u8::try_from(part.len()).unwrap());
        [&[5, 2, 0, 2, 1, users][..], user, &[passwords], password, &[5, 1, 0, 3, 1, b'a', 0, 80]]
            .concat()
    };
    let (said, step, _) = talk(&mut Socks::new(Some(login())), &shown(b"anna", b"secret:too"), 1);
    assert_eq!((said, step), (vec![5, 2, 1, 0], Some(named("a", 80))));
    for (user, password) in [
        (&b"anna"[..], &b"secret"[..]),
        (b"ann", b"asecret:too"),
        (b"", b""),
        (b"bert", b"secret:too"),
    ] {
        let (said, step, _) = talk(&mut Socks::new(Some(login())), &shown(user, password), 3);
        assert_eq!((said, step), (vec![5, 2], Some(Step::Refuse(vec![1, 1]))), "{user:?}");
    }
    // Without a login offered there is none.
    let (_, step, _) =
        talk(&mut Socks::new(Some(login())), &[5, 1, 0, 5, 1, 0, 3, 1, b'a', 0, 80], 1);
    assert_eq!(step, Some(Step::Refuse(vec![5, 0xff])));
}

#[test]
fn what_socks_does_not_offer_is_refused() {
    let refusal = |request: &[u8]| {
        let (said, step, _) = talk(&mut Socks::new(None), &[&[5, 1, 0], request].concat(), 1);
        assert_eq!(said, [5, 0]);
        match step {
            Some(Step::Refuse(reply)) => reply[1],
            step => panic!("{step:?}"),
        }
    };
    assert_eq!(refusal(&[5, 2, 0, 1, 1, 2, 3, 4, 0, 80]), 7, "BIND");
    assert_eq!(refusal(&[5, 3, 0, 1, 1, 2, 3, 4, 0, 80]), 7, "UDP ASSOCIATE");
    assert_eq!(refusal(&[5, 1, 0, 2, 1, 2, 3, 4, 0, 80]), 8, "an unknown form of address");
    assert_eq!(refusal(&[5, 1, 0, 3, 1, b' ', 0, 80]), 4, "no name");
    assert_eq!(refusal(&[5, 1, 0, 3, 0, 0, 80]), 4, "an empty name");
    let (_, step, _) = talk(&mut Socks::new(None), &[4, 1, 0, 80, 1, 2, 3, 4, 0], 1);
    assert_eq!(step, Some(Step::Refuse(Vec::new())), "SOCKS4");
}

fn connect(line: &str, fields: &str) -> (Option<Step>, String) {
    let input = format!("{line}\r\n{fields}\r\nearly");
    let (_, step, behind) = talk(&mut Http::new(None), input.as_bytes(), 7);
    (step, String::from_utf8_lossy(&behind).into_owned())
}

#[test]
fn a_client_of_http_names_its_target() {
    let (step, behind) = connect("CONNECT example.org:443 HTTP/1.1", "Host: example.org:443\r\n");
    assert_eq!((step, &behind[..]), (Some(named("example.org", 443)), "early"));
    let (step, _) = connect("connect example.org:443 HTTP/1.1", "");
    assert_eq!(step, Some(named("example.org", 443)), "some clients do not know of case");
    let (step, _) = connect("CONNECT [2001:db8::7]:80 HTTP/1.1", "");
    let address: std::net::SocketAddr = "[2001:db8::7]:80".parse().unwrap();
    assert_eq!(step, Some(Step::Connect(address.into())));
}

#[test]
fn other_requests_of_http_are_refused_with_a_status() {
    let many: String = (0..=MOST_PREAMBLE / 4).map(|_| "a:b\r\n").collect();
    let long = "a".repeat(MOST_PREAMBLE);
    for (line, fields, status) in [
        ("GET http://example.org/ HTTP/1.1", "", "405"),
        ("CONNECT example.org HTTP/1.1", "", "400"),
        ("CONNECT example.org:+80 HTTP/1.1", "", "400"),
        ("CONNECT 2001:db8::7:80 HTTP/1.1", "", "400"),
        ("CONNECT [example.org]:80 HTTP/1.1", "", "400"),
        ("CONNECT a/b:80 HTTP/1.1", "", "400"),
        ("\u{5}\u{1}", "", "400"),
        ("CONNECT example.org:80 HTTP/1.1", &many, "431"),
        (&format!("CONNECT {long}:80 HTTP/1.1"), "", "431"),
    ] {
        let (step, _) = connect(line, fields);
        let Some(Step::Refuse(response)) = step else { panic!("{line}: {step:?}") };
        let response = String::from_utf8(response).unwrap();
        assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{line}: {response}");
    }
}

#[test]
fn a_client_of_http_shows_its_login() {
    let with = |field: &str| {
        let input = format!("CONNECT a:80 HTTP/1.1\r\n{field}\r\n");
        talk(&mut Http::new(Some(login())), input.as_bytes(), 1_000).1
    };
    let encoded = data_encoding::BASE64.encode(b"anna:secret:too");
    assert_eq!(with(&format!("proxy-authorization: basic {encoded}\r\n")), Some(named("a", 80)));
    for field in [
        "",
        "Proxy-Authorization: Basic YTpi\r\n",
        "Proxy-Authorization: Basic ?\r\n",
        "Authorization: Basic\r\n",
    ] {
        let Some(Step::Refuse(response)) = with(field) else { panic!("{field}") };
        assert!(response.starts_with(b"HTTP/1.1 407 "), "{field}");
    }
}

#[test]
fn clients_are_told_why_there_is_no_connection() {
    for (code, reply, status) in [
        (Code::Done, 0, "200"),
        (Code::Forbidden, 2, "403"),
        (Code::Unresolved, 4, "502"),
        (Code::Unreachable, 3, "502"),
        (Code::Refused, 5, "502"),
        (Code::TimedOut, 6, "504"),
        (Code::Busy, 1, "503"),
        (Code::Failed, 1, "503"),
    ] {
        // A text of the far side makes no field.
        let answer = Answer::failed(code, "why\r\nX: y");
        assert_eq!(Socks::new(None).answer(&answer)[1], reply, "{code:?}");
        let response = String::from_utf8(Http::new(None).answer(&answer)).unwrap();
        assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{response}");
        let (head, _) = response.split_once("\r\n\r\n").unwrap();
        assert!(!head.contains("X: y"), "{response}");
    }
}

#[test]
fn a_login_is_a_user_and_a_password() {
    assert!("anna:secret\nmore".parse::<Login>().is_ok());
    for text in ["", "anna", "anna:", ":secret"] {
        let why = text.parse::<Login>().unwrap_err();
        assert!(text.is_empty() || !why.contains(text), "{why}");
    }
    assert!(!format!("{:?}", login()).contains("secret"));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_says_nothing_is_left() {
    let (mut near, _client) = tokio::io::duplex(1_024);
    let began = tokio::time::Instant::now();
    assert_eq!(greet(&mut near, &mut Socks::new(None)).await, None);
    assert_eq!(began.elapsed(), PREAMBLE_PATIENCE);
}

#[tokio::test]
async fn a_client_that_talks_without_end_is_left() {
    let (mut near, mut client) = tokio::io::duplex(1 << 20);
    client.write_all(b"CONNECT ").await.unwrap();
    client.write_all(&vec![b'a'; MOST_PREAMBLE * 2]).await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(greet(&mut near, &mut Http::new(None)).await, None);
}

/// Octets, often those that mean something in SOCKS.
fn octet() -> impl Strategy<Value = u8> {
    prop_oneof![Just(5u8), Just(1), Just(0), any::<u8>()]
}

proptest! {
    /// However a client's bytes are cut, the outcome is the same.
    #[test]
    fn pieces_do_not_matter(
        input in prop::collection::vec(octet(), 0..40),
        piece in 1usize..10,
    ) {
        for login in [None, Some(login())] {
            let whole = talk(&mut Socks::new(login.clone()), &input, 1_000);
            let cut = talk(&mut Socks::new(login.clone()), &input, piece);
            let is_refused = matches!(whole.1, Some(Step::Refuse(_)));
            prop_assert!(is_refused && matches!(cut.1, Some(Step::Refuse(_))) || whole == cut);
            let _ = talk(&mut Http::new(login), &input, piece);
        }
    }

    #[test]
    fn any_request_gets_a_target_or_a_refusal(
        line in "CONNECT \\PC{0,30} HTTP/1.1", fields in "(\\PC{0,20}\r\n){0,3}",
    ) {
        let (step, _) = connect(&line, &fields);
        prop_assert!(step.is_some());
    }
}
