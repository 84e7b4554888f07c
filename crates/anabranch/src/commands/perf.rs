//! `perf`: what two hosts carry over each path and together, over TCP and over UDP.

mod host;
mod show;

use std::time::Duration;

use clap::ValueEnum;
use diagnose::measure::{Direction, Over, Wish, measure, plan_paths};
use files::Error;
use peer::dial::Terms;
use peer::{PathSpec, Remote};
use stripe::{CONTROLLER, Qlog, SCHEDULER};
use units::{PathId, Span};

use super::credentials::credential;
use super::paths::{probing, runtime};
use crate::complete;
use crate::config::{Config, weight};
use crate::dirs::Dirs;
use crate::examples;
use crate::exit::Failure;
use crate::listen::ListenAddress;
use crate::qlog::QlogArgs;
use crate::relays::RelayFlags;
use crate::schedulers::{controller, packet_scheduler, striped};
use crate::token::TokenSource;

/// The most streams: a host lets so many connections of one key wait.
const MOST_STREAMS: i64 = 32;

/// Arguments of `perf`.
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
#[derive(Debug, clap::Args)]
#[command(after_long_help = examples::help("perf"))]
pub(crate) struct PerfArgs {
    /// The host to measure with, which runs 'anabranch perf --listen'
    #[arg(
        value_name = "HOST[:PORT]",
        required_unless_present = "listening",
        add = complete::receivers()
    )]
    host: Option<Remote>,
    /// Wait for hosts that measure, until it is stopped
    #[arg(id = "listening", long = "listen", conflicts_with = "host")]
    is_listening: bool,
    /// With --listen: an address to listen on; may be repeated [default: every address]
    #[arg(long, value_name = "ADDR[:PORT]", requires = "listening")]
    address: Vec<ListenAddress>,
    /// With --listen: the port; 0 takes a free one [default: 7707, or the next free one up to 7716]
    #[arg(long, requires = "listening")]
    port: Option<u16>,
    /// With --listen: print no token, and measure only with senders that are trusted
    #[arg(long, requires = "listening")]
    no_token: bool,
    /// The time of each measurement
    #[arg(short = 't', long, value_name = "TIME", default_value = "10 s")]
    time: Span,
    /// The time between the lines with rates
    #[arg(short = 'i', long, value_name = "TIME", default_value = "1 s")]
    interval: Span,
    /// The other host sends, and this one receives
    #[arg(short = 'R', long, conflicts_with = "bidir")]
    reverse: bool,
    /// Both hosts send at the same time
    #[arg(long)]
    bidir: bool,
    /// Streams at the same time: over each path of TCP, over all paths together of UDP
    #[arg(
        short = 'P',
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=MOST_STREAMS)
    )]
    parallel: u16,
    /// What carries the data
    #[arg(long, value_enum, default_value_t)]
    carrier: Carriers,
    /// A path to measure: interface or local address; may be repeated [default: those of the
    /// configuration file, or every interface with a route]
    #[arg(long = "path", value_name = "IF[,to=ADDR]", add = complete::interfaces())]
    paths: Vec<PathSpec>,
    /// An interface to leave out; may be repeated
    #[arg(long = "no-path", value_name = "IF", add = complete::interfaces())]
    no_paths: Vec<String>,
    #[command(flatten)]
    relays: RelayFlags,
    /// Each path alone, and then all of them together; the default
    #[arg(long, conflicts_with = "together")]
    each: bool,
    /// All paths together only
    #[arg(long)]
    together: bool,
    /// The congestion controller over UDP, of the data sent from here
    #[arg(long, value_name = "NAME", value_parser = controller, default_value = CONTROLLER)]
    controller: String,
    /// The choice of a path for each packet over UDP
    #[arg(long, value_name = "NAME", value_parser = packet_scheduler, default_value = SCHEDULER)]
    packet_scheduler: String,
    /// How many subflows each path has over UDP
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = weight()
    )]
    weight: u16,
    #[command(flatten)]
    qlog: QlogArgs,
    /// Write the results as one JSON object; with --listen, a line for the token and the addresses
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    token: TokenSource,
}

/// What carries the data of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Carriers {
    /// Connections of the kernel's TCP, over each path
    Tcp,
    /// One striped connection over all paths
    Udp,
    /// TCP, then UDP
    #[default]
    Both,
}

/// `anabranch perf`.
///
/// # Errors
/// Usage, a refusal of the other host, or no path that carries data.
pub(crate) fn run(args: &PerfArgs) -> Result<(), Failure> {
    match &args.host {
        None => host::run(args),
        Some(remote) => dial(args, remote),
    }
}

fn dial(args: &PerfArgs, remote: &Remote) -> Result<(), Failure> {
    if args.time == Span::ZERO || args.interval == Span::ZERO {
        return Err(Error::usage("--time and --interval want more than nothing").into());
    }
    if args.carrier == Carriers::Tcp && args.qlog.is_given() {
        return Err(Error::usage("--qlog is for --carrier udp and both").into());
    }
    let qlog = args.qlog.open(None)?;
    let dirs = Dirs::from_env();
    let config = Config::load(None, &dirs)?;
    let paths = if args.paths.is_empty() { config.send.paths } else { args.paths.clone() };
    let relays = args.relays.or_config(&config.send.relays)?;
    let known = credential(&args.token, remote, &dirs, None)?;
    let mut terms = probing(remote, known, &paths, &relays, &dirs)?;
    terms.options.no_paths = [config.send.no_paths, args.no_paths.clone()].concat();
    terms.options.weight = args.weight;
    terms.options.has_direct = args.relays.has_direct();
    let mut show = show::Show::new(args.json, remote.to_string());
    let ended = runtime()?.block_on(measure_all(args, qlog, &terms, &mut show));
    show.finish(ended.as_ref().err());
    Ok(ended?)
}

/// All measurements, one after the other.
async fn measure_all(
    args: &PerfArgs,
    qlog: Option<Qlog>,
    terms: &Terms,
    show: &mut show::Show,
) -> Result<(), peer::Error> {
    let terms = terms.clone().over_relays()?;
    let keeper = plan_paths(&terms).await?;
    let mut options = striped(&args.controller, &args.packet_scheduler);
    options.qlog = qlog;
    let overs: &[Over] = &match args.carrier {
        Carriers::Tcp => vec![Over::Tcp],
        Carriers::Udp => vec![Over::Udp(Box::new(options))],
        Carriers::Both => vec![Over::Tcp, Over::Udp(Box::new(options))],
    };
    let direction = match (args.reverse, args.bidir) {
        (true, _) => Direction::Receive,
        (_, true) => Direction::Both,
        _ => Direction::Send,
    };
    let (mut last_error, mut any) = (None, false);
    for over in overs {
        let wish = Wish {
            over: over.clone(),
            direction,
            streams: args.parallel,
            time: duration(args.time),
            interval: duration(args.interval),
        };
        let all: Vec<PathId> = keeper.plans().iter().map(|plan| plan.id).collect();
        let mut sets: Vec<&[PathId]> = Vec::new();
        if !args.together && all.len() > 1 {
            sets.extend(all.chunks(1));
        }
        sets.push(&all);
        for paths in sets {
            let keeper = keeper.of_some(paths, over.kind());
            show.begin(&wish, &keeper.plans());
            match measure(&keeper, &wish, |sample| show.sample(sample)).await {
                Ok(results) => {
                    show.end(Ok(&results));
                    any = true;
                }
                Err(error @ peer::Error::NoPath { .. }) => {
                    show.end(Err(&error.to_string()));
                    last_error = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
    }
    match last_error {
        Some(error) if !any => Err(error),
        _ => Ok(()),
    }
}

fn duration(span: Span) -> Duration {
    Duration::from_nanos(span.as_nanos())
}
