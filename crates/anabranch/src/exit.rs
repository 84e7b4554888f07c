//! How the process ends: its exit codes, and why a command failed.

use events::Summary;
use files::Error;

use crate::sanitize;

/// Every exit code with its meaning, for `--help`, the manual page and docs/exit-codes.md (a test
/// compares the three).
pub(crate) const EXIT_CODES: &[(u8, &str)] = &[
    (0, "success: every byte is at the receiver, verified and synced"),
    (1, "reproduce: some figures differ from the paper's; doctor: a path or gateway has a problem"),
    (2, "usage: invalid command line, configuration or token, or no file to send"),
    (3, "a source is missing or unreadable, here or at the server"),
    (4, "authentication: the other host's key does not match the token, or it refused this host's"),
    (5, "no usable path to the other host; trying again later may help"),
    (6, "every path was lost or stands still; what arrived is kept, and the same command resumes"),
    (7, "integrity: the source changed during the transfer, or data did not match its hash"),
    (
        8,
        "the receiving disk or output is full or fails, or the target exists or is of another \
         kind",
    ),
    (9, "the peer broke the protocol"),
    (10, "the local system refused an operation on sockets, keys or configuration"),
    (11, "the monthly caps of all paths are reached; what arrived is kept"),
    (12, "cp: ssh failed, or the other host has no compatible version of anabranch"),
    (13, "some files were left out, lost owners, modes or attributes, or are not at all receivers"),
    (130, "interrupted (SIGINT); what arrived is kept"),
    (143, "terminated (SIGTERM); what arrived is kept"),
];

/// The exit code of a transfer from which something was left out, or that one of several receivers
/// did not get.
pub(crate) const PARTIAL: u8 = 13;
/// The exit code of an invalid command line.
pub(crate) const USAGE: u8 = 2;

/// Why a command ended without success.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An operation failed.
    Error(Error),
    /// A signal of this number ended the command.
    Signal(u8),
    /// A failure with its own exit code and message.
    Message {
        /// The exit code.
        code: u8,
        /// The message, safe for a terminal.
        text: String,
    },
    /// The exit code of a failure that has been reported already.
    Code(u8),
}

impl Failure {
    /// The process's exit code; for a signal, 128 plus its number, as in shells.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Failure::Error(error) => error.exit_code(),
            Failure::Signal(number) => 128 + number,
            Failure::Message { code, .. } | Failure::Code(code) => *code,
        }
    }

    /// Success, unless something was left out, or could not be set.
    ///
    /// # Errors
    /// The failure of a transfer that is complete but for what could not be read, and for owners
    /// and attributes.
    pub(crate) fn unless_whole(summary: &Summary) -> Result<(), Failure> {
        Failure::unless_missing(summary, "everything else is at the receiver")
    }

    /// What judges a transfer: [`Failure::unless_whole`], or the same for a dry run.
    pub(crate) fn judge(is_dry_run: bool) -> fn(&Summary) -> Result<(), Failure> {
        if is_dry_run {
            |summary| Failure::unless_missing(summary, "nothing was sent, this was a dry run")
        } else {
            Failure::unless_whole
        }
    }

    fn unless_missing(summary: &Summary, rest: &str) -> Result<(), Failure> {
        let mut missing = Vec::new();
        match summary.left_out {
            0 => {}
            1 => missing.push("a file or folder of the source was left out".to_string()),
            count => missing.push(format!("{count} files or folders of the source were left out")),
        }
        if summary.lost_entries > 0 {
            let count = summary.lost_entries;
            missing.push(format!("{count} cannot be in the receiving file system"));
        }
        for (count, what) in [
            (summary.lost_owners, "owner"),
            (summary.lost_attributes, "extended attributes"),
            (summary.lost_modes, "mode, time or hard link"),
        ] {
            if count > 0 {
                missing.push(format!("the {what} of {count} could not be set"));
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let text = format!("{}; {rest}", missing.join(", and "));
        Err(Failure::Message { code: PARTIAL, text })
    }

    /// The same for a host that has no transfer of its own, to which a user would come back.
    #[must_use]
    pub(crate) fn of_server(self) -> Failure {
        match self {
            Failure::Signal(number) => {
                Failure::Message { code: 128 + number, text: "stopped".into() }
            }
            other => other,
        }
    }

    /// The message for the user; `None` if it has been printed already.
    pub(crate) fn message(&self) -> Option<String> {
        match self {
            Failure::Error(error) => Some(
                sanitize::clean(&sanitize::without_error_numbers(&error.to_string())).into_owned(),
            ),
            Failure::Signal(_) => Some(
                "stopped; what arrived is kept, and the same command goes on from there".into(),
            ),
            Failure::Message { text, .. } => Some(text.clone()),
            Failure::Code(_) => None,
        }
    }
}

impl From<peer::Error> for Failure {
    fn from(error: peer::Error) -> Failure {
        Failure::Error(error.into())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Error(error)
    }
}
