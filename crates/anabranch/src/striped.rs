//! The flags of commands that dial one striped connection over UDP, or paths over TCP in its place:
//! paths, rate, controller.

use std::path::PathBuf;

use files::Error;
use peer::dial::Terms;
use peer::striped::total_rate;
use peer::{Credential, DialOptions, Identity, PathSpec, RelayOptions, Remote, Timetable};
use stripe::{CONTROLLER, Effort, SCHEDULER};

use crate::background::{BackgroundArgs, step_back};
use crate::complete;
use crate::config::{self, Config, weight};
use crate::dirs::Dirs;
use crate::qlog::QlogArgs;
use crate::routes::check_interfaces;
use crate::schedulers::{controller, packet_scheduler, striped};

/// Paths, rate and controller of a striped connection.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct StripedFlags {
    /// A path to use: interface or local address; may be repeated [default: every interface with a
    /// route, metered ones as backups]
    #[arg(
        long = "path",
        value_name = "IF[,primary|overflow|backup|background][,max=RATE][,to=ADDR]",
        add = complete::interfaces()
    )]
    paths: Vec<PathSpec>,
    /// An interface to leave out, whoever names it as a path; may be repeated
    #[arg(long = "no-path", value_name = "IF", add = complete::interfaces())]
    no_paths: Vec<String>,
    /// The maximum rate of what is sent from here, over all paths together: a rate, or a timetable
    /// as for 'send'
    #[arg(long, value_name = "RATE|TIMETABLE")]
    max_rate: Option<Timetable>,
    #[command(flatten)]
    background: BackgroundArgs,
    /// Defaults from FILE [default: anabranch/config.toml in the user's configuration folder]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The congestion controller of what is sent from here, with parameters in brackets;
    /// 'anabranch simulate --list' names all [default: coupled-bbr]
    #[arg(long, value_name = "NAME", value_parser = controller, help_heading = "Over UDP")]
    controller: Option<String>,
    /// The choice of a path for each packet [default: lowest-rtt]
    #[arg(long, value_name = "NAME", value_parser = packet_scheduler, help_heading = "Over UDP")]
    packet_scheduler: Option<String>,
    /// So many subflows over each path: with a controller such as reno or cubic it takes the shares
    /// of so many flows, 1 to 64 [default: 1]
    #[arg(long, value_name = "N", value_parser = weight(), help_heading = "Over UDP")]
    weight: Option<u16>,
    #[command(flatten)]
    qlog: QlogArgs,
}

/// What is needed to dial, again and again.
pub(crate) struct StripedTerms {
    pub(crate) terms: Terms,
    pub(crate) options: stripe::Options,
    /// The bound of the rate over the week.
    pub(crate) table: Option<Timetable>,
}

impl StripedFlags {
    /// The configuration, after a check of the flags.
    ///
    /// # Errors
    /// Those of [`check_interfaces`] and of [`BackgroundArgs::or_config`], and of reading the file.
    pub(crate) fn config(&self, dirs: &Dirs) -> Result<Config, Error> {
        check_interfaces(&self.no_paths)?;
        let config = Config::load(self.config.as_deref(), dirs)?;
        self.effort(&config.send)?;
        Ok(config)
    }

    /// The terms of paths over TCP to hosts, those over `relays` among them, after a check of the
    /// flags.
    ///
    /// # Errors
    /// [`Error::usage`] for a flag that is for UDP; those of [`Terms::new`].
    pub(crate) fn over_tcp(
        self,
        to: Vec<(Remote, Credential)>,
        identity: Identity,
        relays: Vec<RelayOptions>,
        (config, dirs): (Config, &Dirs),
    ) -> Result<Terms, Error> {
        let of_udp = [
            ("--background", self.background.is_given()),
            ("--controller", self.controller.is_some()),
            ("--packet-scheduler", self.packet_scheduler.is_some()),
            ("--weight", self.weight.is_some()),
            ("--qlog", self.qlog.is_given()),
        ];
        if let Some((flag, _)) = of_udp.into_iter().find(|(_, is_given)| *is_given) {
            let text =
                format!("{flag} is for --carrier udp, and a feed over relays is carried by TCP");
            return Err(Error::usage(text));
        }
        let config = config.send;
        let dial = DialOptions {
            paths: if self.paths.is_empty() { config.paths } else { self.paths },
            no_paths: [config.no_paths, self.no_paths].concat(),
            relays,
            max_rate: self.max_rate.or(config.max_rate),
            usage: Some(dirs.usage()),
            ..DialOptions::new(identity)
        };
        Ok(Terms::new(to, dial)?)
    }

    /// Whether what is sent is in the background.
    fn effort(&self, config: &config::Send) -> Result<Effort, Error> {
        let chosen =
            [("--controller", self.controller.is_some()), ("--weight", self.weight.is_some())];
        self.background.or_config(&chosen, config)
    }

    /// The terms of connections to hosts, with `base` for what no flag says.
    ///
    /// # Errors
    /// Those of [`QlogArgs::open`], of [`BackgroundArgs::or_config`] and of [`Terms::new`].
    pub(crate) fn dialing(
        self,
        to: Vec<(Remote, Credential)>,
        identity: Identity,
        (config, dirs): (Config, &Dirs),
        base: stripe::Options,
    ) -> Result<StripedTerms, Error> {
        let config = config.send;
        let effort = self.effort(&config)?;
        let dial = DialOptions {
            paths: if self.paths.is_empty() { config.paths } else { self.paths },
            no_paths: [config.no_paths, self.no_paths].concat(),
            effort,
            usage: Some(dirs.usage()),
            weight: if effort.is_background() {
                1
            } else {
                self.weight.or(config.weight).unwrap_or(1)
            },
            ..DialOptions::new(identity)
        };
        let terms = Terms::new(to, dial)?;
        let controller = self.controller.or(config.controller);
        let scheduler = self.packet_scheduler.or(config.packet_scheduler);
        let stripe::Options { controller, scheduler, .. } = striped(
            controller.as_deref().unwrap_or(CONTROLLER),
            scheduler.as_deref().unwrap_or(SCHEDULER),
        );
        let table = self.max_rate.or(config.max_rate);
        let mut options = stripe::Options {
            controller,
            scheduler,
            max_rate: table.as_ref().map(total_rate),
            qlog: self.qlog.open(config.qlog.as_deref())?,
            ..base
        };
        options.config.effort = effort;
        step_back(effort);
        Ok(StripedTerms { terms, options, table })
    }
}
