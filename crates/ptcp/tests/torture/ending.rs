//! The model of a connection's end at one side: it ends once, for one reason, and a close of the
//! other side that arrives is that reason.

use ptcp::Event;

/// What an end knows of its connection's end.
#[derive(Default)]
pub(crate) struct Ending {
    /// The code with which it closed the connection itself.
    pub(crate) own: Option<u32>,
    /// The code of the first Close that arrived while the connection was open.
    arrived: Option<u32>,
    /// The code that it was told.
    told: Option<u32>,
    has_timed_out: bool,
}

impl Ending {
    /// The application closes the connection, which is opening or open.
    pub(crate) fn close(&mut self, code: u32) {
        assert!(!self.is_decided(), "it has ended before");
        self.own = Some(code);
    }

    /// A Close is handed to an open connection.
    pub(crate) fn arrive(&mut self, code: u32) {
        self.arrived.get_or_insert(code);
    }

    pub(crate) fn handle_event(&mut self, event: &Event) {
        match event {
            Event::Closed { code } => {
                assert!(!self.is_decided(), "{code} is a second end");
                self.told = Some(*code);
            }
            Event::TimedOut(error) => {
                assert!(!self.is_decided(), "{error} is a second end");
                self.has_timed_out = true;
            }
            _ => {}
        }
    }

    /// Whether the connection has an end.
    pub(crate) fn is_decided(&self) -> bool {
        self.own.is_some() || self.told.is_some() || self.has_timed_out
    }

    /// At any time: a Close that arrived was told, with the code that the other side sent.
    pub(crate) fn check(&self, other: &Ending) {
        assert_eq!(self.told, self.arrived, "a Close that arrived, and what was told of it");
        if let Some(code) = self.told {
            let is_sent = other.own == Some(code)
                || other.has_timed_out && code == ptcp::TimeoutError::IDLE_CODE;
            assert!(is_sent, "nobody closed with {code}");
        }
    }
}
