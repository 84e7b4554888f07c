//! The `emulate` subcommand by itself.

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    emulate: emulate::cli::EmulateArgs,
}

fn main() -> ExitCode {
    match emulate::cli::run(&Arguments::parse().emulate) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("emulate: {error}");
            ExitCode::FAILURE
        }
    }
}
