//! What one end of a striped connection tells the other in the handshake: the rest of the transport
//! parameters (`docs/wire.md`).

use alloc::vec::Vec;

use units::{Bytes, Span};

use crate::WireError;
use crate::effort::Effort;
use crate::reader::Reader;

/// The name in errors.
const NAME: &str = "Parameters";
/// The names of the fields, by number.
const FIELDS: [&str; 8] = [
    "",
    "receive buffer",
    "max datagram",
    "max ack delay",
    "idle timeout",
    "max streams",
    "stream window",
    "effort",
];

const RECEIVE_BUFFER: u8 = 1;
const MAX_DATAGRAM: u8 = 2;
const MAX_ACK_DELAY: u8 = 3;
const IDLE_TIMEOUT: u8 = 4;
const MAX_STREAMS: u8 = 5;
const STREAM_WINDOW: u8 = 6;
const EFFORT: u8 = 7;

/// The least of the largest datagrams: a path that does not carry such is not used.
const LEAST_DATAGRAM: u64 = 1_200;
/// The most of a delay or a timeout: a day.
const LONGEST: u64 = 86_400_000;

/// What the peer may rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionParameters {
    /// The data that may be sent before the first update, of all streams together.
    pub receive_buffer: Bytes,
    /// The same of each stream. It is not written if it is the receive buffer.
    pub stream_window: Bytes,
    /// The largest UDP payload that is received.
    pub max_datagram: Bytes,
    /// The longest wait of an acknowledgement for a second packet, in whole milliseconds.
    pub max_ack_delay: Span,
    /// After how long without a packet this end gives up, in whole milliseconds; `None`: never.
    pub idle_timeout: Option<Span>,
    /// The streams that the peer may have open at the same time.
    pub max_streams: u32,
    /// Whether this end sends in the background, and asks the peer to. It is not written if it is
    /// usual, and one that is not known counts as that.
    pub effort: Effort,
}

impl ConnectionParameters {
    /// Appends them.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let mut field = |name: u8, value: u64| {
            out.extend([name, 8]);
            out.extend(value.to_be_bytes());
        };
        field(RECEIVE_BUFFER, self.receive_buffer.0);
        field(MAX_DATAGRAM, self.max_datagram.0);
        field(MAX_ACK_DELAY, millis(self.max_ack_delay));
        if let Some(timeout) = self.idle_timeout {
            field(IDLE_TIMEOUT, millis(timeout));
        }
        field(MAX_STREAMS, self.max_streams.into());
        if self.stream_window != self.receive_buffer {
            field(STREAM_WINDOW, self.stream_window.0);
        }
        if let Some(number) = self.effort.number() {
            field(EFFORT, number.into());
        }
    }

    /// Reads them. Fields with other names are for later versions, and ignored.
    ///
    /// # Errors
    /// If a field is cut off, missing, there twice, or says what cannot be.
    pub fn parse(octets: &[u8]) -> Result<ConnectionParameters, WireError> {
        let invalid = |name: u8| WireError::Field { frame: NAME, field: FIELDS[usize::from(name)] };
        let mut found = [None; FIELDS.len()];
        let mut reader = Reader::new(NAME, octets);
        while !reader.is_empty() {
            let (name, length) = (reader.u8()?, reader.u8()?);
            let value = reader.bytes(usize::from(length))?;
            let Some(slot) = found.get_mut(usize::from(name)).filter(|_| name > 0) else {
                continue;
            };
            let value = value.try_into().map_err(|_| invalid(name))?;
            if slot.replace(u64::from_be_bytes(value)).is_some() {
                return Err(invalid(name));
            }
        }
        let get = |name: u8| found[usize::from(name)].ok_or(invalid(name));
        let time = |name: u8, value: u64| {
            if value <= LONGEST { Ok(Span::from_millis(value)) } else { Err(invalid(name)) }
        };
        let max_datagram = get(MAX_DATAGRAM)?;
        if max_datagram < LEAST_DATAGRAM {
            return Err(invalid(MAX_DATAGRAM));
        }
        let receive_buffer = get(RECEIVE_BUFFER)?;
        let stream_window = found[usize::from(STREAM_WINDOW)].unwrap_or(receive_buffer);
        Ok(ConnectionParameters {
            receive_buffer: Bytes(receive_buffer),
            stream_window: Bytes(stream_window),
            max_datagram: Bytes(max_datagram),
            max_ack_delay: time(MAX_ACK_DELAY, get(MAX_ACK_DELAY)?)?,
            idle_timeout: found[usize::from(IDLE_TIMEOUT)]
                .map(|value| time(IDLE_TIMEOUT, value))
                .transpose()?,
            max_streams: u32::try_from(get(MAX_STREAMS)?).unwrap_or(u32::MAX),
            effort: Effort::of_number(found[usize::from(EFFORT)].unwrap_or(0)),
        })
    }
}

/// Rounded up, so that what is promised is kept.
fn millis(span: Span) -> u64 {
    span.as_nanos().div_ceil(1_000_000).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PLAIN: ConnectionParameters = ConnectionParameters {
        receive_buffer: Bytes(2 << 20),
        stream_window: Bytes(2 << 20),
        max_datagram: Bytes(1_472),
        max_ack_delay: Span::from_millis(25),
        idle_timeout: Some(Span::from_secs(30)),
        max_streams: 128,
        effort: Effort::Usual,
    };

    fn octets(parameters: &ConnectionParameters) -> Vec<u8> {
        let mut out = Vec::new();
        parameters.emit(&mut out);
        out
    }

    #[test]
    fn cut_off_missing_and_doubled_fields_are_refused() {
        let plain = octets(&PLAIN);
        for cut in 0..plain.len() {
            assert!(ConnectionParameters::parse(&plain[..cut]).is_err(), "cut at {cut}");
        }
        assert!(
            ConnectionParameters::parse(&[&plain[..], &plain[..10]].concat()).is_err(),
            "one is doubled"
        );
        let small = ConnectionParameters { max_datagram: Bytes(1_199), ..PLAIN };
        assert!(ConnectionParameters::parse(&octets(&small)).is_err());
        let mut long = plain;
        long[2 * 10 + 2] = 0xff;
        assert!(ConnectionParameters::parse(&long).is_err(), "an acknowledgement after ages");
    }

    #[test]
    fn fields_of_later_versions_are_ignored() {
        let mut octets = octets(&PLAIN);
        octets.extend([200, 3, 1, 2, 3, 8, 0]);
        assert_eq!(ConnectionParameters::parse(&octets), Ok(PLAIN));
        octets.extend([EFFORT, 8, 0, 0, 0, 0, 0, 0, 0, 3]);
        assert_eq!(ConnectionParameters::parse(&octets), Ok(PLAIN), "an effort of a later version");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            buffer: u64,
            window: u64,
            datagram in 1_200..u64::MAX,
            delay in 0..LONGEST,
            timeout in proptest::option::of(0..LONGEST),
            max_streams: u32,
            effort in prop_oneof![
                Just(Effort::Usual), Just(Effort::Lower), Just(Effort::LowerUnmarked)
            ],
        ) {
            let parameters = ConnectionParameters {
                receive_buffer: Bytes(buffer),
                stream_window: Bytes(window),
                max_datagram: Bytes(datagram),
                max_ack_delay: Span::from_millis(delay),
                idle_timeout: timeout.map(Span::from_millis),
                max_streams,
                effort,
            };
            prop_assert_eq!(ConnectionParameters::parse(&octets(&parameters)), Ok(parameters));
        }

        #[test]
        fn no_octets_are_too_bad(octets in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = ConnectionParameters::parse(&octets);
        }
    }
}
