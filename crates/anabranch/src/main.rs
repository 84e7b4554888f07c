//! The command-line program.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "the descriptions of arguments are help texts, not Markdown"
)]

mod cli;
mod commands;
mod config;
mod dirs;
mod exit;
mod flags;
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

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
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
