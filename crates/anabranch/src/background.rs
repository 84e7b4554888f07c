//! Transfers in the background: the flags, and what they exclude.

use files::Error;
use stripe::Effort;

use crate::config::Send;

/// Flags of what may be in the background.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
#[group(skip)]
pub(crate) struct BackgroundArgs {
    /// Leave lines, disks and processors to others, at both ends: send what nobody else asks for
    /// [default: no]
    #[arg(long)]
    background: bool,
    /// With --background, send packets without the lower-effort mark (RFC 8622), where a network
    /// drops those that have it
    #[arg(long)]
    no_mark: bool,
}

impl BackgroundArgs {
    /// Whether a flag is given.
    pub(crate) fn is_given(self) -> bool {
        self.background || self.no_mark
    }

    /// What the flags say; `None`: nothing.
    ///
    /// # Errors
    /// [`Error::usage`] for `--no-mark` alone.
    pub(crate) fn effort(self) -> Result<Option<Effort>, Error> {
        match (self.background, self.no_mark) {
            (true, true) => Ok(Some(Effort::LowerUnmarked)),
            (true, false) => Ok(Some(Effort::Lower)),
            (false, true) => Err(Error::usage("--no-mark is for --background")),
            (false, false) => Ok(None),
        }
    }

    /// The effort of what is sent, with the configuration for what no flag says. `chosen` are flags
    /// that choose how much is sent, with whether they are given: they and `--background` exclude
    /// each other, and the command line goes before the configuration.
    ///
    /// # Errors
    /// [`Error::usage`] for flags, or keys, that exclude each other.
    pub(crate) fn or_config(self, chosen: &[(&str, bool)], config: &Send) -> Result<Effort, Error> {
        let chosen = chosen.iter().find(|(_, is_given)| *is_given);
        match (self.effort()?, chosen) {
            (Some(_), Some((flag, _))) => Err(Error::usage(format!(
                "--background chooses how much is sent, and so does {flag}: leave one of them out"
            ))),
            (Some(effort), None) => Ok(effort),
            (None, Some(_)) => Ok(Effort::Usual),
            (None, None) => match config.background {
                Effort::Usual => Ok(Effort::Usual),
                _ if config.controller.is_some() || config.congestion_control.is_some() => {
                    Err(Error::usage(
                        "the configuration has 'background' in [send], and 'controller' or \
                         'congestion-control': leave one of them out",
                    ))
                }
                effort => Ok(effort),
            },
        }
    }
}

/// The niceness of a process in the background.
const NICENESS: i32 = 10;

/// Lets others go first at disks and processors, if this process is in the background.
pub(crate) fn step_back(effort: Effort) {
    if !effort.is_background() {
        return;
    }
    if let Err(error) = sys::priority::step_back(NICENESS) {
        tracing::debug!(%error, "this process keeps its priority");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAG: BackgroundArgs = BackgroundArgs { background: true, no_mark: false };
    const NONE: BackgroundArgs = BackgroundArgs { background: false, no_mark: false };

    fn config(background: Effort, controller: Option<&str>) -> Send {
        Send { background, controller: controller.map(str::to_string), ..Send::default() }
    }

    #[test]
    fn the_command_line_goes_before_the_configuration() {
        let given = [("--controller", true)];
        let effort = |args: BackgroundArgs, chosen: &[(&str, bool)], config: &Send| {
            args.or_config(chosen, config).map_err(|error| error.to_string())
        };
        let (usual, lower) = (config(Effort::Usual, None), config(Effort::Lower, None));
        assert_eq!(effort(NONE, &[("--controller", false)], &usual), Ok(Effort::Usual));
        assert_eq!(effort(FLAG, &[], &usual), Ok(Effort::Lower));
        assert_eq!(effort(FLAG, &[], &config(Effort::Usual, Some("cubic"))), Ok(Effort::Lower));
        assert_eq!(effort(NONE, &[], &lower), Ok(Effort::Lower));
        assert_eq!(effort(NONE, &given, &lower), Ok(Effort::Usual));
        let no_mark = BackgroundArgs { no_mark: true, ..FLAG };
        assert_eq!(effort(no_mark, &[], &usual), Ok(Effort::LowerUnmarked));
    }

    #[test]
    fn what_excludes_each_other_is_named() {
        let error = |args: BackgroundArgs, chosen: &[(&str, bool)], config: &Send| {
            args.or_config(chosen, config).unwrap_err().to_string()
        };
        let usual = config(Effort::Usual, None);
        assert!(error(FLAG, &[("--weight", true)], &usual).contains("--weight"));
        assert!(error(BackgroundArgs { no_mark: true, ..NONE }, &[], &usual).contains("--no-mark"));
        let both = config(Effort::Lower, Some("cubic"));
        assert!(error(NONE, &[], &both).contains("'controller'"));
    }
}
