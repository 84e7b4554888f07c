//! The program: its command line, with what another program adds to it.

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use clap_complete::CompleteEnv;
use policy::cc::Controller;
use policy::named::{NameError, Settings, Signature};
use policy::sched::packet::PacketScheduler;
use scenario::Registry;

use crate::cli::{self, Cli};
use crate::{complete, exit, hooks, name, qlog, say, schedulers, token, watch};

/// The command line of `anabranch`, and what its scenario files, `--controller` and
/// `--packet-scheduler` may name beside the controllers of [`policy::cc::NAMES`] and the schedulers
/// of [`policy::sched::packet::NAMES`].
///
/// Its name in messages, in `--help`, in manual pages and in completions is the one under which the
/// process was started.
#[derive(Clone, Debug, Default)]
pub struct Program {
    registry: Registry,
}

impl Program {
    /// Adds a congestion controller under a name, or replaces the one of that name. `make` is
    /// called for each connection, and when a file is read. [`policy::cc::Uncoupled`] makes a
    /// controller of a [`policy::cc::SinglePath`], [`policy::cc::Coupled`] one of a
    /// [`policy::cc::Coupling`].
    ///
    /// # Panics
    /// If the name is none that a file could have, such as `name(parameter=value)`.
    #[must_use]
    pub fn controller<C: Controller + 'static>(
        mut self,
        name: &'static str,
        make: impl Fn() -> C + Send + Sync + 'static,
    ) -> Program {
        self.registry = self.registry.controller(name, make);
        self
    }

    /// As [`Program::controller`], with parameters: files set them in parentheses behind the name,
    /// and `make` reads them by [`Settings::get`].
    ///
    /// # Panics
    /// If the name is none that a file could have.
    #[must_use]
    pub fn controller_with<C: Controller + 'static>(
        mut self,
        signature: Signature,
        make: impl Fn(&Settings<'_>) -> Result<C, NameError> + Send + Sync + 'static,
    ) -> Program {
        self.registry = self.registry.controller_with(signature, make);
        self
    }

    /// Adds a packet scheduler of striped connections under a name, or replaces the one of that
    /// name. `make` is called for each end of a connection, and when a file is read.
    ///
    /// # Panics
    /// If the name is none that a file could have.
    #[must_use]
    pub fn scheduler<S: PacketScheduler + 'static>(
        mut self,
        name: &'static str,
        make: impl Fn() -> S + Send + Sync + 'static,
    ) -> Program {
        self.registry = self.registry.scheduler(name, make);
        self
    }

    /// As [`Program::scheduler`], with parameters.
    ///
    /// # Panics
    /// If the name is none that a file could have.
    #[must_use]
    pub fn scheduler_with<S: PacketScheduler + 'static>(
        mut self,
        signature: Signature,
        make: impl Fn(&Settings<'_>) -> Result<S, NameError> + Send + Sync + 'static,
    ) -> Program {
        self.registry = self.registry.scheduler_with(signature, make);
        self
    }

    /// Runs the command that the process's arguments are, and reports its failure; gives the exit
    /// code. It ends the process itself after `--help`, `--version` and invalid command lines.
    #[must_use]
    pub fn main(self) -> ExitCode {
        schedulers::know(&self.registry);
        // Answers a shell that completes a command line, and ends.
        CompleteEnv::with_factory(Cli::command).var(complete::VARIABLE).complete();
        let arguments = || std::env::args_os().skip(1);
        if let Some(message) = token::refuse_in_arguments(arguments()) {
            return report(&message, exit::USAGE, cli::asks_for_events(arguments()));
        }
        let cli = match Cli::try_parse() {
            Ok(cli) => cli,
            Err(error) => {
                if error.use_stderr() && cli::asks_for_events(arguments()) {
                    print_event(&error.to_string(), exit::USAGE);
                }
                // It prints to standard error, or the help to standard output.
                error.exit();
            }
        };
        let writes_events = cli.command.writes_events();
        let ended = cli.run(&self.registry);
        let ended = ended.and_then(|()| say::check());
        qlog::finish();
        let (code, message) = match &ended {
            Ok(()) => (0, None),
            Err(failure) => (failure.exit_code(), failure.message()),
        };
        if let Some(message) = &message {
            report(message, code, writes_events);
        }
        hooks::at_end(code, message.as_deref());
        ExitCode::from(code)
    }
}

/// Reports the failure of the whole program, also as an event if a program reads events.
fn report(message: &str, code: u8, writes_events: bool) -> ExitCode {
    if writes_events {
        print_event(message, code);
    }
    errln!("{}: {message}", name::of_program());
    ExitCode::from(code)
}

fn print_event(message: &str, code: u8) {
    // The reader may have gone.
    let _ = writeln!(std::io::stdout(), "{}", watch::json::of_failure(code, message.trim()));
}
