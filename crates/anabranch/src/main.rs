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
mod peers;
mod routes;
mod sanitize;
mod schedulers;
mod scratch;
mod testbed;
mod token;
mod transfer;
mod watch;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use clap_complete::CompleteEnv;

fn main() -> ExitCode {
    // Answers a shell that completes a command line, and ends.
    CompleteEnv::with_factory(cli::Cli::command).var(complete::VARIABLE).complete();
    if let Some(message) = token::refuse_in_arguments(std::env::args_os().skip(1)) {
        eprintln!("anabranch: {message}");
        return ExitCode::from(2);
    }
    match cli::Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(message) = failure.message() {
                eprintln!("anabranch: {message}");
            }
            ExitCode::from(failure.exit_code())
        }
    }
}
