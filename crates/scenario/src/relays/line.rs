//! TCP over the hops of paths, and the links under them.

use tcp::Config;
use units::{Bytes, Rate};

/// The configuration of endpoints with packets of this payload and receive buffers of `window`
/// packets.
pub(super) fn tcp(packet: Bytes, window: u64) -> Config {
    Config {
        mss: packet,
        initial_window: Bytes(10 * packet.0),
        receive_buffer: Bytes(window * packet.0),
        // The return direction is not limited.
        delayed_ack: None,
        ..Config::default()
    }
}

/// The rate of a link that carries this rate of payload: packets have headers.
pub(super) fn wire(packet: Bytes, payload: Rate) -> Rate {
    let headers = Config::default().headers;
    Rate::from_bits_f64(payload.as_f64() * (packet + headers).as_f64() / packet.as_f64())
}
