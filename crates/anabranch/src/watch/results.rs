//! Results on standard output: addresses and token of a listening host, hashes, summaries.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::net::SocketAddr;

use events::{Event, Summary};
use peer::Token;

use super::screen::Printer;
use super::{HostRole, PeerCommand, Verbosity, Watcher, dry_run, listing, text};
use crate::exit::Failure;
use crate::sanitize::clean;

/// Prints addresses and token of a listening host, a line for each file, and the summaries.
pub(super) struct Results {
    printer: Printer,
    verbosity: Verbosity,
    token: Option<Token>,
    role: HostRole,
    /// Whether standard output is a terminal; otherwise lines consist of a keyword and a value.
    terminal: bool,
    /// Number of files in each transfer.
    files: BTreeMap<u32, usize>,
    /// Its end is what was asked for, and nothing was moved.
    moves_nothing: bool,
}

/// With more files, a terminal does not get a line for each.
const MAX_FILES_LISTED: usize = 100;

impl Results {
    pub(super) fn new(
        printer: Printer,
        verbosity: Verbosity,
        token: Option<Token>,
        role: HostRole,
    ) -> Results {
        let terminal = if printer.leaves_stdout() {
            io::stderr().is_terminal()
        } else {
            io::stdout().is_terminal()
        };
        let files = BTreeMap::new();
        Results { printer, verbosity, token, role, terminal, files, moves_nothing: false }
    }

    fn listening(&self, addresses: &[SocketAddr]) -> String {
        let mut lines = Vec::new();
        let (machine, prefix, preposition) = match &self.role {
            HostRole::Receiver { .. } => ("sending", "anabranch send PATH… --to", "to"),
            HostRole::Server => ("other", "anabranch get PATH… --from", "from"),
            HostRole::Service(Some(PeerCommand { before, .. })) => ("other", *before, "to"),
            HostRole::Sender(_) | HostRole::Services | HostRole::Service(None) => {
                if addresses.is_empty() {
                    return "listening; this host has no address yet that others reach".into();
                }
                let line = |address| format!("listening {address}");
                return addresses.iter().map(line).collect::<Vec<_>>().join("\n");
            }
        };
        let suffix = match &self.role {
            HostRole::Service(Some(PeerCommand { after, .. })) => *after,
            _ => "",
        };
        let command = addresses.first().map(|first| format!("{prefix} {first}{suffix}"));
        if self.terminal {
            lines.push(format!("On the {machine} machine run"));
            let command = command.unwrap_or_else(|| format!("{prefix} ADDRESS{suffix}"));
            lines.push(format!("\n    {command}\n"));
            if addresses.is_empty() {
                let why = "with an address of this host, which has none yet that others reach\n";
                lines.push(why.into());
            }
            if let [_, more @ ..] = addresses
                && !more.is_empty()
            {
                let more: Vec<String> = more.iter().map(ToString::to_string).collect();
                lines.push(format!("(or {preposition} {})", more.join(", ")));
            }
            if self.token.is_some() {
                lines.push("and paste this token, good for one host:\n".to_string());
            }
        } else {
            lines.extend(addresses.iter().map(|address| format!("listening {address}")));
            lines.extend(command.map(|command| format!("command {command}")));
        }
        // On a line of its own, so that it can be copied, and found by its prefix.
        lines.extend(self.token.as_ref().map(Token::reveal));
        lines.join("\n")
    }

    /// How the host is met at a relay. The command with the code fits a line that is typed: it
    /// leaves out the relay's key, which the code makes known.
    fn meeting(&self, via: &str, code: Option<&str>) -> String {
        let relay = via.split(',').next().unwrap_or(via);
        if self.token.is_none() {
            return format!("waiting at {relay}");
        }
        let (command, after) = match &self.role {
            HostRole::Server => ("anabranch get PATH…", ""),
            HostRole::Service(Some(PeerCommand { before, after })) => (*before, *after),
            _ => ("anabranch send PATH…", ""),
        };
        let by_token = format!("{command} --via {via}{after}");
        let of_code = |code| format!("{command} --via {relay} --code {code}{after}");
        let mut lines = Vec::new();
        if self.terminal {
            lines.push("From any other network, with the same token:".to_string());
            lines.push(format!("\n    {by_token}"));
            if let Some(code) = code {
                lines.push("\nor without it, for ten minutes:".to_string());
                lines.push(format!("\n    {}", of_code(code)));
            }
        } else {
            lines.push(format!("command {by_token}"));
            lines.extend(code.map(|code| format!("command {}", of_code(code))));
        }
        lines.join("\n")
    }

    fn lists_files(&self, transfer: u32) -> bool {
        match self.verbosity {
            Verbosity::Quiet => false,
            Verbosity::Verbose => true,
            Verbosity::Notices | Verbosity::Normal => {
                // Several receivers get the same files.
                if let HostRole::Sender(_) = self.role {
                    return false;
                }
                let files = self.files.get(&transfer);
                !self.terminal || files.is_none_or(|files| *files <= MAX_FILES_LISTED)
            }
        }
    }
}

impl Watcher for Results {
    fn event(&mut self, event: &Event) {
        match event {
            Event::Listening { addresses } => {
                let end = if self.terminal { "\n" } else { "" };
                self.printer.result(&format!("{}{end}", self.listening(addresses)));
            }
            Event::Meeting { via, code } => {
                let end = if self.terminal { "\n" } else { "" };
                self.printer.result(&format!("{}{end}", self.meeting(via, code.as_deref())));
            }
            Event::Accepting { what, address } => {
                self.printer.result(&clean(&format!("{what}: listening at {address}")));
            }
            Event::FileDone { transfer, name, blake3: Some(blake3), .. }
                if self.lists_files(*transfer) =>
            {
                self.printer.result(&text::checksum(blake3, name, self.terminal));
            }
            Event::Started { transfer, files, .. } => {
                self.files.insert(*transfer, *files);
            }
            Event::Ended { transfer, result } => {
                self.files.remove(transfer);
                // A server says in a sentence who has what.
                if let Ok(summary) = result
                    && self.role != HostRole::Server
                    && self.verbosity != Verbosity::Quiet
                {
                    let line = self.role.of_transfer(*transfer, &text::summary(summary));
                    self.printer.sentence(&line);
                }
            }
            Event::Listing(listing) => {
                self.moves_nothing = true;
                for line in listing::lines(listing) {
                    self.printer.result(&line);
                }
            }
            Event::DryRun(dry_run) => {
                self.moves_nothing = true;
                for line in dry_run::lines(dry_run) {
                    let line = match &self.role {
                        role @ HostRole::Sender(_) => role.of_transfer(dry_run.transfer, &line),
                        _ => line,
                    };
                    self.printer.result(&line);
                }
            }
            Event::FileDone { .. }
            | Event::LeftOut { .. }
            | Event::Path { .. }
            | Event::Progress(_)
            | Event::Feed(_)
            | Event::Notice { .. }
            | Event::Detail { .. } => {}
        }
    }

    fn end(&mut self, result: &Result<Summary, Failure>) {
        if let (Ok(summary), false) =
            (result, self.moves_nothing || self.verbosity == Verbosity::Quiet)
        {
            self.printer.sentence(&text::summary(summary));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Before the network is there: a line without its command helps nobody.
    #[test]
    fn a_host_without_an_address_says_so() {
        let listening = |role, terminal| {
            let mut results = Results::new(Printer::plain(), Verbosity::Normal, None, role);
            results.terminal = terminal;
            results.listening(&[])
        };
        let said = listening(HostRole::Server, true);
        assert_eq!(
            said,
            "On the other machine run\n\n    anabranch get PATH… --from ADDRESS\n\nwith an \
             address of this host, which has none yet that others reach\n"
        );
        let service = listening(HostRole::Services, false);
        assert_eq!(service, "listening; this host has no address yet that others reach");
    }
}
