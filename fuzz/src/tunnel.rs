//! The checks of the fuzz targets of tunnels. The test `fuzz_seeds` of the crate `tunnel` runs them
//! on all seeds.

use tunnel::preamble::{Http, Login, Proxy, Socks, Step};
use wire::tunnel::{Answer, HEADER, MOST_BODY, Request, body_length};

/// The most pieces of a client's input that are handled before it has to end.
const MOST_STEPS: usize = 16;

/// The message at the beginning of a stream: what is read is written as it was.
pub fn wire_tunnel(data: &[u8]) {
    let length = data.first_chunk::<HEADER>().map(|header| body_length(*header));
    let mut again = Vec::new();
    if let Ok(request) = Request::parse(data) {
        request.emit(&mut again);
        assert_eq!(again, data, "{request:?}");
    }
    if let Ok(answer) = Answer::parse(data) {
        again.clear();
        answer.emit(&mut again);
        assert_eq!(again, data, "{answer:?}");
    }
    if !again.is_empty() {
        let length = length.expect("it has a header").expect("it was read");
        assert!(length <= MOST_BODY && data.len() == HEADER + length);
    }
}

/// What a client says to a SOCKS and to an HTTP proxy, with a login and without: the proxy comes to
/// an end, consumes no more than there is, and names a target that a request can hold.
pub fn tunnel_clients(data: &[u8]) {
    let login: Login = "anna:secret".parse().expect("it is a login");
    for login in [None, Some(login)] {
        talk(&mut Socks::new(login.clone()), data);
        talk(&mut Http::new(login), data);
    }
}

fn talk(proxy: &mut impl Proxy, mut input: &[u8]) {
    for _ in 0..MOST_STEPS {
        let (consumed, step) = proxy.handle(input);
        input = &input[consumed..];
        match step {
            Step::Say(answer) => assert!(!answer.is_empty() && consumed > 0),
            Step::More => {
                assert_eq!(consumed, 0);
                return;
            }
            Step::Refuse(_) => return,
            Step::Connect(target) => {
                let mut message = Vec::new();
                Request::Connect(target.clone()).emit(&mut message);
                assert_eq!(Request::parse(&message), Ok(Request::Connect(target)));
                return;
            }
        }
    }
    panic!("no end after {MOST_STEPS} steps");
}
