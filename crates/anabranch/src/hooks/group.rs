//! A command in a process group of its own, which ends with all that it has started.

use std::io;
use std::process::ExitStatus;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

use crate::token;

/// A program and its arguments, with variables besides those of this process. The token is not
/// passed on.
pub(crate) fn command<'a>(
    words: &[String],
    variables: impl Iterator<Item = (&'a str, &'a str)>,
) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).envs(variables);
    command.env_remove(token::VARIABLE).process_group(0);
    command
}

/// A command that runs. If this is dropped before it has ended, it is killed with all that it has
/// started in its process group.
#[derive(Debug)]
pub(crate) struct Group {
    child: Child,
    /// That of the group too.
    id: Option<Pid>,
    has_ended: bool,
}

impl Group {
    /// # Errors
    /// The system's.
    pub(crate) fn start(command: &mut Command) -> io::Result<Group> {
        let child = command.spawn()?;
        let id = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        Ok(Group { child, id, has_ended: false })
    }

    /// The process, for its pipes.
    pub(crate) fn process(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Waits for the command itself: what it has started may go on.
    ///
    /// # Errors
    /// The system's.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await?;
        self.has_ended = true;
        Ok(status)
    }

    /// Kills what a command that has just failed left behind. As long as there is any of it, no
    /// other process gets the number of the group.
    pub(crate) fn kill_rest(&self) {
        if let Some(group) = self.id {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.has_ended {
            self.kill_rest();
        }
    }
}
