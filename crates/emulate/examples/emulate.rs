//! The `emulate` subcommand by itself.

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    emulate: emulate::cli::EmulateArgs,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse().emulate;
    let ended = match arguments.ideal {
        Some(payload) => emulate::cli::ideal(&arguments, payload).map(|ideal| {
            println!("{:.6}", ideal.as_secs_f64());
            0
        }),
        None => emulate::cli::run(&arguments),
    };
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("emulate: {error}");
            ExitCode::FAILURE
        }
    }
}
