//! The command line.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "the arguments' descriptions are help texts, not Markdown"
)]

mod cli;
mod commands;
mod config;
mod dirs;
mod flags;
mod peers;
mod routes;
mod sanitize;
mod testbed;
mod token;
mod transfer;
mod watch;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    if let Some(refusal) = token::refuse_in_arguments(std::env::args_os().skip(1)) {
        eprintln!("anabranch: {refusal}");
        return ExitCode::from(2);
    }
    match commands::run(cli::Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(ended) => {
            if let Some(message) = ended.message() {
                eprintln!("anabranch: {message}");
            }
            ExitCode::from(ended.exit_code())
        }
    }
}
