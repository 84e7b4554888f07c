//! The command-line program.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "the descriptions of arguments are help texts, not Markdown"
)]

mod cli;
mod commands;
mod complete;
mod config;
mod dirs;
mod examples;
mod exit;
mod flags;
mod host_key;
mod listen;
mod log;
mod output;
mod peers;
mod routes;
mod sanitize;
mod schedulers;
mod scratch;
mod testbed;
mod token;
mod transfer;
mod watch;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use clap_complete::CompleteEnv;

fn main() -> ExitCode {
    // Answers a shell that completes a command line, and ends.
    CompleteEnv::with_factory(cli::Cli::command).var(complete::VARIABLE).complete();
    let arguments = || std::env::args_os().skip(1);
    if let Some(message) = token::refuse_in_arguments(arguments()) {
        return report(&message, exit::USAGE, cli::asks_for_events(arguments()));
    }
    let cli = match cli::Cli::try_parse() {
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
    match cli.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => match failure.message() {
            Some(message) => report(&message, failure.exit_code(), writes_events),
            None => ExitCode::from(failure.exit_code()),
        },
    }
}

/// Reports the failure of the whole program, also as an event if a program reads events.
fn report(message: &str, code: u8, writes_events: bool) -> ExitCode {
    if writes_events {
        print_event(message, code);
    }
    eprintln!("anabranch: {message}");
    ExitCode::from(code)
}

fn print_event(message: &str, code: u8) {
    // The reader may have gone.
    let _ = writeln!(std::io::stdout(), "{}", watch::json::of_failure(code, message.trim()));
}
