//! The processes of the hosts of a scenario: this program in other roles.

use std::path::Path;
use std::process::Command;

use live::Process;

/// The command of a host's process; `program` is this one.
pub(crate) fn command(program: &Path, process: Process) -> Command {
    let mut command = Command::new(program);
    command.arg(match process {
        Process::FlowEnd => "flow-end",
        Process::Gateway => "gateway-end",
        Process::Relay => "relay-end",
    });
    command
}
