//! A peer that acknowledges late, so that round trips seem to take minutes.

use ptcp::Config;
use units::{Span, SubflowId};
use wire::ptcp::{Body, Reply};

use crate::victim::Victim;

/// While it says other things, so that the connection does not seem idle.
#[test]
fn late_acknowledgements_do_not_keep_a_connection() {
    let mut victim = Victim::new(Config::default());
    victim.send_all();
    for _ in 0..600 {
        victim.advance(Span::from_secs(1));
        victim
            .receive(SubflowId(0), Body::Ping { padding: 0, reply: Reply::Path(SubflowId(0)) })
            .unwrap();
        victim.send_all();
    }
    victim.acknowledge_all();
    let timeout = victim.connection.probe_timeout(SubflowId(0)).unwrap();
    assert!(timeout > Span::from_secs(100), "the lie is believed for the path: {timeout:?}");
    // The idle timeout, and the time in which a lost CLOSE is repeated.
    victim.advance(Span::from_secs(60));
    victim.advance(Span::from_secs(61));
    assert!(victim.connection.is_closed());
}
