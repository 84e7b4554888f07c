//! Flows that an application stripes over sockets.

use std::sync::Arc;

use link::config::Problem;
use link::config::reader::Section;
use units::Bytes;

use super::endpoint::endpoint;
use super::{controller, subflows};
use crate::file::values::{Result, bytes_up_to};
use crate::file::workloads::workload;
use crate::file::{LinkSpec, SocketsSpec, Workload};
use crate::registry::Registry;

/// The default size of a socket's send buffer and of its receive buffer.
const BUFFER: Bytes = Bytes::kib(256);
/// The least number of records in a buffer: with fewer, delayed acknowledgements limit the rate.
const LEAST: u64 = 4;
/// The largest buffer in bytes.
const MOST: u64 = 1_000_000_000;

pub(super) fn sockets(
    section: &Section<'_>,
    number: u32,
    links: &[LinkSpec],
    registry: &Registry,
) -> Result<SocketsSpec> {
    let mut config = match section.get("tcp") {
        None => tcp::Config::default(),
        Some(value) => {
            let tcp = value.section()?;
            if let Some(value) = tcp.get("receive_buffer") {
                return Err(value.error(Problem::Sense(
                    "is `buffer`, beside `tcp`, for both ends of a socket",
                )));
            }
            if let Some(value) = tcp.get("receive_window") {
                return Err(value.error(Problem::Sense(
                    "is not for sockets, whose buffers the order of the stream fills",
                )));
            }
            endpoint(&tcp)?
        }
    };
    let records = match section.get("buffer") {
        None => BUFFER.0 / config.mss.0,
        Some(value) => {
            let records = bytes_up_to(&value, MOST, "wants up to 1 GB")?.0 / config.mss.0;
            if records < LEAST {
                return Err(value.error(Problem::Sense("wants room for four full packets")));
            }
            records
        }
    };
    config.receive_buffer = Bytes(records * config.mss.0);
    Ok(SocketsSpec {
        controller: controller(section, "cubic", registry)?,
        config: Arc::new(config),
        subflows: subflows(section, number, links)?,
        workload: section.get("source").map_or(Ok(Workload::Bulk), |value| workload(&value))?,
    })
}
