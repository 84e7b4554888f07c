//! The command line of Anabranch with a controller and a packet scheduler of our own.

mod calm;
mod turns;

use std::process::ExitCode;

use anabranch::Program;
use anabranch::policy::cc::Uncoupled;
use anabranch::units::Span;

use calm::Calm;
use turns::Turns;

fn main() -> ExitCode {
    Program::default()
        .controller_with(calm::SIGNATURE, |settings| {
            let target = settings.get("target", |target| *target > Span::ZERO)?;
            Ok(Uncoupled::new(Calm::new(target)))
        })
        .scheduler("turns", Turns::default)
        .main()
}
