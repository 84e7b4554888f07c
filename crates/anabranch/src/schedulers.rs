//! Schedulers and congestion controls by name, for the command line and the configuration file.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::OnceLock;
use std::{fs, io};

use clap::ValueEnum;
use files::Error;
use peer::CongestionControl;
use scenario::Registry;

/// What this program knows by name. The parsers of arguments and of the configuration file are
/// plain functions, so that it is not handed to them.
static KNOWN: OnceLock<Registry> = OnceLock::new();

/// Sets what may be named, before anything is parsed.
pub(crate) fn know(registry: &Registry) {
    KNOWN.get_or_init(|| registry.clone());
}

fn known() -> &'static Registry {
    KNOWN.get_or_init(Registry::default)
}

/// The block schedulers of `policy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scheduler {
    /// Tasks follow the measured rates throughout the transfer; idle paths steal data of others and
    /// copy what would arrive late
    #[default]
    SelfAdaptive,
    /// The tasks of self-adaptive alone, as in the SAR-RMTP paper: no stealing, no copies
    Sar,
    /// As sar, until all paths would finish together: tasks stay from then on, as in the paper
    SarLatch,
    /// Equal blocks, each to the next free path
    AdjustableBlock,
    /// One share for each path, fixed at the start
    Static,
}

impl Scheduler {
    /// The name in `policy::sched::by_name`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Scheduler::SelfAdaptive => "self-adaptive",
            Scheduler::Sar => "sar",
            Scheduler::SarLatch => "sar-latch",
            Scheduler::AdjustableBlock => "adjustable-block",
            Scheduler::Static => "static",
        }
    }
}

/// What carries the data of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Carrier {
    /// Connections of the kernel's TCP over each path
    #[default]
    Tcp,
    /// One striped connection over all paths
    Udp,
    /// Both, of which the faster one carries the data: the other is tried now and then
    Auto,
}

/// A congestion controller that striped connections have, with its parameters.
pub(crate) fn controller(text: &str) -> Result<String, String> {
    let made = known().make_controller(text);
    made.map(|_| text.to_string()).map_err(|error| error.to_string())
}

/// A packet scheduler that striped connections have.
pub(crate) fn packet_scheduler(text: &str) -> Result<String, String> {
    let made = known().make_scheduler(text);
    made.map(|_| text.to_string()).map_err(|error| error.to_string())
}

/// The options of striped connections with a controller and a scheduler by names that
/// [`controller`] and [`packet_scheduler`] have passed.
pub(crate) fn striped(controller: &str, scheduler: &str) -> stripe::Options {
    let checked = "the names were checked when they were read";
    let controller = known().make_controller(controller).expect(checked);
    stripe::Options::of(controller, known().make_scheduler(scheduler).expect(checked))
}

#[expect(clippy::unnecessary_wraps, reason = "the signature of a value parser")]
pub(crate) fn congestion_control(text: &str) -> Result<CongestionControl, String> {
    Ok(match text {
        "auto" => CongestionControl::Auto,
        name => CongestionControl::Named(name.to_string()),
    })
}

/// Checks that this kernel lets this user have a congestion control.
///
/// # Errors
/// [`Error::usage`] with those that it has.
pub(crate) fn check_congestion_control(name: &str) -> Result<(), Error> {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .map_err(|source| Error::system("open a socket", source))?;
    let Err(error) = net::socket::set_congestion_control(&socket, name) else { return Ok(()) };
    let listed = |file: &str| {
        let text = fs::read_to_string(format!("/proc/sys/net/ipv4/{file}")).unwrap_or_default();
        text.split_whitespace().collect::<Vec<_>>().join(", ")
    };
    Err(Error::usage(if error.kind() == io::ErrorKind::PermissionDenied {
        format!(
            "--congestion-control {name}: only root may choose it; everybody may choose {} (sysctl \
             net.ipv4.tcp_allowed_congestion_control)",
            listed("tcp_allowed_congestion_control")
        )
    } else {
        format!(
            "--congestion-control {name}: this kernel has no such congestion control; it has {} \
             (modprobe tcp_{name} may add it)",
            listed("tcp_available_congestion_control")
        )
    }))
}
