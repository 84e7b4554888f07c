//! Flags on paths and rates, common to `send` and `get`, with defaults from the configuration.

use std::io;

use files::{CarrierChoice, Error};
use net::interfaces::interface_index;
use peer::{CongestionControl, PathSpec, RelaySpec, Timetable};
use stripe::{CONTROLLER, Effort, SCHEDULER};
use units::Span;

use crate::background::BackgroundArgs;
use crate::complete;
use crate::config::{self, Config, weight};
use crate::qlog::QlogArgs;
use crate::relays::RelayFlags;
use crate::schedulers::{
    self, Carrier, Scheduler, congestion_control, controller, packet_scheduler, striped,
};

/// The default of `--patience`.
const PATIENCE: Span = Span::from_secs(120);

/// Paths, rates, and the time without a path before giving up.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct RouteArgs {
    /// Whether the other host is met at a relay.
    #[arg(skip)]
    is_met: bool,
    /// A path to use: interface or local address; may be repeated [default: every interface with a
    /// route, metered ones as backups]
    ///
    /// An overflow path carries data only while the primaries are full, a backup only while they
    /// are dead; a background path has what nobody else on its line asks for. `max=RATE` limits its
    /// rate, `cap=SIZE/month` the volume of its interface in a
    /// calendar month over all transfers, `to=ADDR` is another address of the other host.
    /// `rate=RATE` is its known rate: if every path has one, the scheduler starts from these rates
    /// instead of measuring. For example: --path eth0 --path wlan0,overflow --path
    /// usb0,backup,max=5mbit,cap=10GB/month
    #[arg(
        long = "path",
        value_name = "IF[,primary|overflow|backup|background][,max=RATE]\
                      [,rate=RATE][,cap=SIZE/month][,to=ADDR]",
        add = complete::interfaces()
    )]
    paths: Vec<PathSpec>,
    /// An interface to leave out, whoever names it as a path; may be repeated
    #[arg(long = "no-path", value_name = "IF", add = complete::interfaces())]
    no_paths: Vec<String>,
    #[command(flatten)]
    background: BackgroundArgs,
    #[command(flatten)]
    relays: RelayFlags,
    /// Of all paths use so many at a time, those that carry most: each is tried for a second or
    /// two, and another one when they carry less
    #[arg(
        long = "use",
        value_name = "PATHS",
        value_parser = clap::value_parser!(u16).range(1..=64)
    )]
    use_paths: Option<u16>,
    /// The division of the bytes among the paths [default: self-adaptive]
    #[arg(long, value_enum)]
    scheduler: Option<Scheduler>,
    /// The kernel's congestion control: auto, or a name such as cubic or bbr [default: auto]
    #[arg(long, value_name = "NAME", value_parser = congestion_control)]
    congestion_control: Option<CongestionControl>,
    /// What carries the data: tcp, connections of the kernel over each path; udp, one striped
    /// connection over all paths, for lossy and unequal ones; auto, the faster one [default: tcp;
    /// with --background udp, and tcp where nothing comes through]
    #[arg(long, value_enum)]
    carrier: Option<Carrier>,
    /// The congestion controller over UDP, with parameters in brackets; 'anabranch simulate --list'
    /// names all [default: coupled-bbr]
    #[arg(long, value_name = "NAME", value_parser = controller, help_heading = "Over UDP")]
    controller: Option<String>,
    /// The choice of a path for each packet over UDP [default: lowest-rtt]
    #[arg(long, value_name = "NAME", value_parser = packet_scheduler, help_heading = "Over UDP")]
    packet_scheduler: Option<String>,
    /// How many subflows each path has over UDP: with a controller such as reno or cubic, the
    /// shares of so many flows, 1 to 64 [default: 1]
    #[arg(
        long,
        value_name = "N",
        value_parser = weight(),
        help_heading = "Over UDP"
    )]
    weight: Option<u16>,
    #[command(flatten)]
    qlog: QlogArgs,
    /// The maximum rate of all paths together: a rate, or a timetable
    ///
    /// A timetable is a list of [DAY-]HH:MM,RATE in local time; each entry holds until the next
    /// one, and off is no limit. For example: --max-rate 80mbit, --max-rate '08:00,10mbit
    /// 18:00,off', --max-rate 'Mon-08:00,10mbit Fri-18:30,off'
    #[arg(long, value_name = "RATE|TIMETABLE")]
    max_rate: Option<Timetable>,
    /// The time without progress after which the transfer gives up [default: 2 min]
    #[arg(long, value_name = "TIME")]
    patience: Option<Span>,
}

/// [`RouteArgs`] with defaults filled in.
pub(crate) struct Routes {
    pub(crate) paths: Vec<PathSpec>,
    pub(crate) no_paths: Vec<String>,
    pub(crate) relays: Vec<RelaySpec>,
    pub(crate) has_direct: bool,
    pub(crate) use_paths: Option<usize>,
    pub(crate) scheduler: String,
    pub(crate) carrier: CarrierChoice,
    pub(crate) effort: Effort,
    pub(crate) weight: u16,
    pub(crate) congestion_control: CongestionControl,
    pub(crate) max_rate: Option<Timetable>,
    pub(crate) patience: Span,
}

impl RouteArgs {
    /// Checks the flags against this host.
    ///
    /// # Errors
    /// [`Error::usage`] if `--no-path` names no interface. The configuration may: a modem that is
    /// not plugged in, for example.
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_interfaces(&self.no_paths)
    }

    /// Checks that no flag is given that is for UDP alone where TCP carries all: without
    /// `--carrier`, the configuration says what does.
    ///
    /// # Errors
    /// [`Error::usage`] with the flag.
    pub(crate) fn check_carrier(&self, config: &Config) -> Result<(), Error> {
        let of_udp = [
            ("--controller", self.controller.is_some()),
            ("--packet-scheduler", self.packet_scheduler.is_some()),
            ("--weight", self.weight.is_some()),
            ("--qlog", self.qlog.is_given()),
        ];
        let carrier = self.carrier(&config.send, self.effort(&config.send)?);
        if self.use_paths.is_some() && carrier == Carrier::Auto {
            return Err(Error::usage("--use is for --carrier tcp or udp"));
        }
        match of_udp.iter().find(|(_, is_given)| *is_given) {
            Some((flag, _)) if carrier == Carrier::Tcp => {
                Err(Error::usage(format!("{flag} is for --carrier udp")))
            }
            _ => Ok(()),
        }
    }

    /// Checks that this kernel lets this user have the congestion control with which it is to send.
    ///
    /// # Errors
    /// [`Error::usage`] with those that it has.
    pub(crate) fn check_congestion_control(&self, config: &Config) -> Result<(), Error> {
        let chosen = self.congestion_control.as_ref();
        match chosen.or(config.send.congestion_control.as_ref()) {
            Some(CongestionControl::Named(name)) => schedulers::check_congestion_control(name),
            Some(CongestionControl::Auto) | None => Ok(()),
        }
    }

    /// Whether the transfer is in the background.
    ///
    /// # Errors
    /// Those of [`BackgroundArgs::or_config`].
    pub(crate) fn effort(&self, config: &config::Send) -> Result<Effort, Error> {
        let chosen = [
            ("--controller", self.controller.is_some()),
            ("--congestion-control", self.congestion_control.is_some()),
            ("--weight", self.weight.is_some()),
        ];
        self.background.or_config(&chosen, config)
    }

    /// The other host is met at a relay.
    pub(crate) fn meet(&mut self) {
        self.is_met = true;
    }

    /// What carries the data. In the background that is UDP, whose delays say more; and so it is
    /// where hosts are met, because through translators there are direct ways over UDP alone.
    fn carrier(&self, config: &config::Send, effort: Effort) -> Carrier {
        let is_met = self.is_met && self.use_paths.is_none();
        let usual =
            if effort.is_background() || is_met { Carrier::Auto } else { Carrier::default() };
        self.carrier.or(config.carrier).unwrap_or(usual)
    }

    /// Fills in what the command line leaves out from the configuration.
    ///
    /// # Errors
    /// Those of [`QlogArgs::open`] and of [`BackgroundArgs::or_config`].
    pub(crate) fn or_config(self, config: &Config) -> Result<Routes, Error> {
        let config = &config.send;
        let effort = self.effort(config)?;
        let carrier = match self.carrier(config, effort) {
            Carrier::Tcp => CarrierChoice::Tcp,
            carrier @ (Carrier::Udp | Carrier::Auto) => {
                let controller = self.controller.as_deref().or(config.controller.as_deref());
                let scheduler =
                    self.packet_scheduler.as_deref().or(config.packet_scheduler.as_deref());
                let (controller, scheduler) =
                    (controller.unwrap_or(CONTROLLER), scheduler.unwrap_or(SCHEDULER));
                let mut options = striped(controller, scheduler);
                options.qlog = self.qlog.open(config.qlog.as_deref())?;
                options.config.effort = effort;
                match carrier {
                    Carrier::Auto => CarrierChoice::Auto(options),
                    _ => CarrierChoice::Udp(options),
                }
            }
        };
        Ok(Routes {
            paths: if self.paths.is_empty() { config.paths.clone() } else { self.paths },
            no_paths: [config.no_paths.clone(), self.no_paths].concat(),
            use_paths: self.use_paths.map(usize::from),
            has_direct: self.relays.has_direct(),
            relays: self.relays.or_config(&config.relays)?,
            scheduler: self.scheduler.or(config.scheduler).unwrap_or_default().name().to_string(),
            carrier,
            effort,
            // Several windows over one path would be as many background transfers.
            weight: if effort.is_background() {
                1
            } else {
                self.weight.or(config.weight).unwrap_or(1)
            },
            congestion_control: self
                .congestion_control
                .or_else(|| config.congestion_control.clone())
                .unwrap_or_default(),
            max_rate: self.max_rate.or_else(|| config.max_rate.clone()),
            patience: self.patience.or(config.patience).unwrap_or(PATIENCE),
        })
    }
}

/// Checks that this host has the interfaces of `--no-path`.
///
/// # Errors
/// [`Error::usage`] with the name of one that it has not.
pub(crate) fn check_interfaces(no_paths: &[String]) -> Result<(), Error> {
    for name in no_paths {
        interface_index(name).map_err(|error| match error.source.kind() {
            io::ErrorKind::NotFound => Error::usage(format!(
                "--no-path {name}: there is no such interface; {}",
                error.source
            )),
            _ => peer::Error::from(error).into(),
        })?;
    }
    Ok(())
}
