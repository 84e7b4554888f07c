//! Striped connections over real sockets.

use std::io;
use std::sync::Arc;

use super::{Tally, Task};
use crate::describe::FlowEnd;

/// The threads of one end.
pub(super) fn end(_: &FlowEnd, _: &Arc<Tally>) -> io::Result<Vec<Task>> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "`transport`: 'ptcp' is only simulated so far: real hosts carry 'tcp' and 'udp'",
    ))
}
