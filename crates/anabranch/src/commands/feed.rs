//! `feed`: sends records to a collector as they come.

use std::fs;
use std::future::pending;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::feed::{
    Choice, ControlOptions, FeedError, FeedOptions, Form, Input, LEAST_SPOOL, Listen, Live,
    Reselect, Sent, SpoolOptions, WhenFull, is_feed_name, register_source,
};
use clap::ValueEnum;
use events::Events;
use files::Error;
use peer::dial::Terms;
use peer::metrics::Registry;
use peer::{Credential, Identity, RelayOptions, RelaySpec, Remote};
use tokio::sync::watch;
use tokio::time::sleep;
use units::{Bytes, Rate, Span};

use super::tunnel::{bounded, stopped};
use crate::commands::credentials::{credential, known_credential};
use crate::complete;
use crate::dirs::Dirs;
use crate::examples;
use crate::exit::Failure;
use crate::host_key::HostKey;
use crate::metrics::{self, MetricsAddress, MetricsServer};
use crate::peers::{List, key_of};
use crate::relays::{self, MOST_CANDIDATES, RelayFlags};
use crate::signals::Signals;
use crate::striped::{StripedFlags, StripedTerms};
use crate::token::TokenSource;
use crate::transfer;
use crate::watch::DisplayArgs;

/// Arguments of `feed`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = examples::help("feed"))]
pub(crate) struct FeedArgs {
    /// Files whose records are sent, to their end, or '-' for standard input
    #[arg(value_name = "FILE", required_unless_present_any = ["tail", "listen"])]
    files: Vec<PathBuf>,
    /// Send what is written to the files whose name matches GLOB, for ever, and to those that come
    /// later; may be repeated
    ///
    /// A file that is renamed, as when logs are rotated, is followed under its new name as well,
    /// and what was sent is not sent again.
    #[arg(long, value_name = "GLOB")]
    tail: Vec<PathBuf>,
    /// Take records that other programs send to a socket of this host, for ever; may be repeated.
    /// Over TCP and 'unix' each connection is read as a file is; a datagram is a record. A port
    /// alone is one of 127.0.0.1
    #[arg(long, value_name = "tcp:[ADDR:]PORT|udp:[ADDR:]PORT|unix:PATH|unixgram:PATH")]
    listen: Vec<Listen>,
    /// The collector, as printed by 'anabranch collect'; may be repeated: the first one that
    /// answers gets the records, and when it is gone the next one goes on where it ended
    #[arg(long, value_name = "HOST[:PORT]", required = true, add = complete::receivers())]
    to: Vec<Remote>,
    /// Let what standard input and sockets yield wait on this host's disk until it is at the
    /// collector: in FOLDER, SIZE at most, for AGE at most. It survives the death of this command
    /// and of the machine [default SIZE: 1 GiB]
    #[arg(long, value_name = "FOLDER[,SIZE[,AGE]]", value_parser = spool)]
    spool: Option<SpoolOptions>,
    /// What becomes of further records when the spool is full
    #[arg(long, value_enum, default_value_t, requires = "spool")]
    when_full: WhenFullChoice,
    /// The name of the feed, which is that of a folder at the collector [default: that of the first
    /// file without its extension, or 'feed']
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// How records are told apart
    #[arg(long, value_enum, default_value_t)]
    records: RecordsChoice,
    /// The rate that is to arrive, as in 5mbit: paths get rates that together carry it, by what the
    /// collector measures, and never more than they carry
    #[arg(long, value_name = "RATE")]
    demand: Option<Rate>,
    /// Use so many paths, and draw others while they do not carry what has to be sent
    #[arg(
        long = "use",
        value_name = "PATHS",
        value_parser = clap::value_parser!(u16).range(1..=64)
    )]
    use_paths: Option<u16>,
    /// How paths are drawn
    #[arg(long, value_enum, default_value_t, requires = "use_paths")]
    rule: RuleChoice,
    /// What is drawn anew: all paths ('k'), or the one that brought least ('1')
    #[arg(long, value_enum, default_value_t, requires = "use_paths")]
    reselect: ReselectChoice,
    #[command(flatten)]
    relays: RelayFlags,
    /// What carries the records
    #[arg(long, value_enum, value_name = "CARRIER")]
    carrier: Option<CarrierOfFeed>,
    #[command(flatten)]
    striped: StripedFlags,
    /// The time without a connection after which the feed gives up [default: never]
    #[arg(long, value_name = "TIME")]
    patience: Option<Span>,
    /// Serve metrics for Prometheus by HTTP at this port of loopback, or at this address: whoever
    /// reaches it reads them
    #[arg(long, value_name = "[ADDR:]PORT")]
    metrics: Option<MetricsAddress>,
    #[command(flatten)]
    token: TokenSource,
    #[command(flatten)]
    display: DisplayArgs,
}

/// How paths are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum RuleChoice {
    /// Each with the same probability
    #[default]
    Uniform,
    /// In proportion to what the collector has seen each relay carry
    Proportional,
}

/// What is drawn anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum ReselectChoice {
    /// All paths
    #[default]
    #[value(name = "k")]
    All,
    /// The path that brought least
    #[value(name = "1")]
    Least,
}

/// How records are told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum RecordsChoice {
    /// A newline ends each
    #[default]
    Lines,
    /// A NUL ends each
    Nul,
    /// Its length and a space are before each, as in '5 hello' (RFC 6587)
    Counted,
}

/// What becomes of further records when a spool is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum WhenFullChoice {
    /// The program that writes them waits
    #[default]
    Block,
    /// The oldest ones are dropped, with a message that has their number
    DropOldest,
    /// The feed ends with an error
    Fail,
}

impl From<WhenFullChoice> for WhenFull {
    fn from(choice: WhenFullChoice) -> WhenFull {
        match choice {
            WhenFullChoice::Block => WhenFull::Block,
            WhenFullChoice::DropOldest => WhenFull::DropOldest,
            WhenFullChoice::Fail => WhenFull::Fail,
        }
    }
}

/// The folder of a spool, its size, and the age of what is in it.
fn spool(text: &str) -> Result<SpoolOptions, String> {
    let mut parts = text.split(',');
    let folder = parts.next().filter(|folder| !folder.is_empty()).ok_or("it names no folder")?;
    let size = parts.next().map_or(Ok(SPOOL), str::parse::<Bytes>);
    let size = size.map_err(|error| error.to_string())?;
    if size < LEAST_SPOOL {
        return Err(format!("a spool has {LEAST_SPOOL} at least"));
    }
    let age = parts.next().map(str::parse::<Span>).transpose().map_err(|e| e.to_string())?;
    if parts.next().is_some() {
        return Err("FOLDER,SIZE,AGE is expected, as in /var/spool/feed,10GB,3d".into());
    }
    Ok(SpoolOptions {
        folder: folder.into(),
        size,
        age: age.map(|age| Duration::from_nanos(age.as_nanos())),
        when_full: WhenFull::default(),
    })
}

/// The size of a spool, if none is named.
const SPOOL: Bytes = Bytes::mib(1 << 10);

/// What carries the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CarrierOfFeed {
    /// One connection over UDP, striped over all paths; the default without --relay
    Udp,
    /// A TCP connection over each path, and over each relay
    Tcp,
}

/// How records come to the collector.
enum Route {
    Striped(Box<StripedTerms>),
    Paths(Box<Terms>, Box<RelayList>),
}

/// The relays of a feed, which may change while it runs.
struct RelayList {
    flags: RelayFlags,
    config: Vec<RelaySpec>,
    identity: Identity,
    dirs: Dirs,
}

/// The time between looks at the file of relays.
const LOOK: Duration = Duration::from_secs(2);

impl RelayList {
    /// The relays that there are at present.
    fn load(&self) -> Result<Vec<RelayOptions>, Error> {
        relays::relays(&self.flags.or_config(&self.config)?, &self.identity, &self.dirs)
    }

    /// Changes the terms when the file has other relays, for ever.
    async fn follow(&self, terms: &watch::Sender<Terms>, events: &Events) {
        let Some(file) = self.flags.file() else { return pending().await };
        let mut seen = fs::read(file).ok();
        loop {
            sleep(LOOK).await;
            let text = fs::read(file).ok();
            // One that is written anew is not there for a moment.
            if text.is_none() || text == seen {
                continue;
            }
            seen = text;
            let present = terms.borrow().clone();
            let changed = self.load().and_then(|relays| Ok(present.with_relays(relays)?));
            match changed {
                Ok(changed) => {
                    events.notice(format!("{} has changed: paths are opened anew", file.display()));
                    terms.send_replace(changed);
                }
                Err(error) => events.notice(format!("{error}; relays stay as they were")),
            }
        }
    }
}

impl From<RecordsChoice> for Form {
    fn from(choice: RecordsChoice) -> Form {
        match choice {
            RecordsChoice::Lines => Form::Lines,
            RecordsChoice::Nul => Form::Nul,
            RecordsChoice::Counted => Form::Counted,
        }
    }
}

impl FeedArgs {
    /// Whether events are written as JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.display.is_json()
    }
}

/// `anabranch feed`.
///
/// # Errors
/// Errors of the arguments, and those that no further attempt would change.
pub(crate) fn run(args: FeedArgs) -> Result<(), Failure> {
    let stdin = Path::new("-");
    let reads_stdin = args.files.iter().any(|file| file == stdin);
    let feed = name(&args)?;
    if args.spool.is_some() && !reads_stdin && args.listen.is_empty() {
        let text = "--spool is for standard input and --listen: files are read again where that is \
                    needed";
        return Err(Error::usage(text).into());
    }
    let control = control(&args)?;
    let needs_tcp = args.relays.is_given() || control.is_some();
    let carrier = match (args.carrier, needs_tcp) {
        (Some(CarrierOfFeed::Udp), true) => {
            let flag = if control.is_none() {
                "--relay is"
            } else if args.demand.is_some() {
                "--demand is"
            } else {
                "--use is"
            };
            let text = format!("{flag} for TCP: leave --carrier udp out");
            return Err(Error::usage(text).into());
        }
        (Some(carrier), _) => carrier,
        (None, true) => CarrierOfFeed::Tcp,
        (None, false) => CarrierOfFeed::Udp,
    };
    let dirs = Dirs::from_env();
    let config = args.striped.config(&dirs)?;
    args.relays.or_config(&config.send.relays)?;
    let key = HostKey::load(&dirs)?;
    let to = collectors(&args.to, &args.token, &dirs, reads_stdin)?;
    let identity = key.beside(to.iter().map(|(_, credential)| credential))?;
    let when_full = args.when_full.into();
    let spool = args.spool.map(|spool| SpoolOptions { when_full, ..spool });
    let collected = dirs.feed(&feed);
    let options = FeedOptions {
        collected,
        inputs: inputs(args.files, args.tail, args.listen, spool),
        feed,
        form: args.records.into(),
        secret: to[0].1.secret(),
        patience: args.patience.map(|span| Duration::from_nanos(span.as_nanos())),
        collectors: args.to.iter().map(Remote::to_string).collect(),
        control,
        progress: watch::Sender::default(),
    };
    let route = match carrier {
        CarrierOfFeed::Udp => {
            let base = stripe::Options::default();
            let terms = args.striped.dialing(to, identity, (config, &dirs), base)?;
            Route::Striped(Box::new(terms))
        }
        CarrierOfFeed::Tcp => {
            let has_direct = args.relays.has_direct();
            let list = RelayList {
                flags: args.relays,
                config: config.send.relays.clone(),
                identity: identity.clone(),
                dirs: dirs.clone(),
            };
            let relays = list.load()?;
            let mut terms = args.striped.over_tcp(to, identity, relays, (config, &dirs))?;
            terms.options.has_direct = has_direct;
            if control.is_some() {
                terms.options.most_paths = MOST_CANDIDATES;
            }
            Route::Paths(Box::new(terms), Box::new(list))
        }
    };
    let metrics = args.metrics;
    let sending = |events: Events| async move {
        let metrics = metrics.map(MetricsServer::bind).transpose()?;
        let mut registry = Registry::default();
        register_source(&mut registry, &options.progress.subscribe());
        let server = events.clone();
        tokio::select! {
            ended = send(route, options, events) => ended,
            never = metrics::serve(metrics, registry, &server) => match never {},
        }
    };
    transfer::serve(args.display.watcher(None, None), sending)
}

/// How paths and rates are chosen.
fn control(args: &FeedArgs) -> Result<Option<ControlOptions>, Error> {
    if args.demand.is_none() && args.use_paths.is_none() {
        return Ok(None);
    }
    if args.demand.is_some_and(|demand| demand < LEAST_DEMAND) {
        return Err(Error::usage(format!("--demand is {LEAST_DEMAND} at least")));
    }
    let is_live = args.files.iter().any(|file| file == Path::new("-"))
        || !args.tail.is_empty()
        || !args.listen.is_empty();
    if args.demand.is_none() && !is_live {
        let text = "--use needs --demand RATE for a file, which has no rate of its own";
        return Err(Error::usage(text));
    }
    Ok(Some(ControlOptions {
        demand: args.demand,
        paths: args.use_paths.map(usize::from),
        choice: match args.rule {
            RuleChoice::Uniform => Choice::Uniform,
            RuleChoice::Proportional => Choice::Proportional { error: 0.0 },
        },
        reselect: match args.reselect {
            ReselectChoice::All => Reselect::Paths,
            ReselectChoice::Least => Reselect::Least,
        },
    }))
}

/// A packet in some seconds: below it nothing can be measured.
const LEAST_DEMAND: Rate = Rate::kbit(8);

/// The collectors with their credentials.
fn collectors(
    to: &[Remote],
    token: &TokenSource,
    dirs: &Dirs,
    reads_stdin: bool,
) -> Result<Vec<(Remote, Credential)>, Error> {
    if let [one] = to {
        let credential = if reads_stdin {
            // What standard input yields is no token.
            if token.is_stdin() {
                let text = "standard input is what is sent: --token-stdin cannot read it";
                return Err(Error::usage(text));
            }
            match known_credential(token, one, dirs)? {
                Some(credential) => credential,
                None => TokenSource::ask_terminal().map(Credential::Token)?,
            }
        } else {
            credential(token, one, dirs, None)?
        };
        return Ok(vec![(one.clone(), credential)]);
    }
    if token.given()?.is_some() {
        let text = "a token is one collector's: several are known by their keys ('anabranch keys \
                    trust receiver HOST FINGERPRINT')";
        return Err(Error::usage(text));
    }
    let known = List::Receivers.load(dirs)?;
    let pinned = |remote: &Remote| {
        let key = key_of(&known, remote).ok_or_else(|| {
            Error::usage(format!(
                "the key of {remote} is unknown: 'anabranch keys trust receiver {remote} \
                 FINGERPRINT' adds it"
            ))
        })?;
        Ok((remote.clone(), Credential::Pinned(key)))
    };
    to.iter().map(pinned).collect()
}

/// What is read. A spool is of one stream, to which all goes that comes once.
fn inputs(
    files: Vec<PathBuf>,
    tail: Vec<PathBuf>,
    listen: Vec<Listen>,
    spool: Option<SpoolOptions>,
) -> Vec<Input> {
    let (stdin, files): (Vec<PathBuf>, _) = files.into_iter().partition(|f| *f == Path::new("-"));
    let stdin = stdin.into_iter().take(1).map(|_| Live::Stdin);
    let live: Vec<Live> = stdin.chain(listen.into_iter().map(Live::Listen)).collect();
    let live: Vec<Input> = match spool {
        Some(spool) => vec![Input::Live(live, Some(spool))],
        None => live.into_iter().map(|one| Input::Live(vec![one], None)).collect(),
    };
    let files = files.into_iter().map(Input::File);
    live.into_iter().chain(files).chain(tail.into_iter().map(Input::Tail)).collect()
}

/// The name of the feed.
fn name(args: &FeedArgs) -> Result<String, Error> {
    if let Some(name) = &args.name {
        if is_feed_name(name) {
            return Ok(name.clone());
        }
        return Err(Error::usage(format!(
            "--name {name}: a feed's name has letters, digits, dots, hyphens and underscores, 64 \
             at most, and no dot at its begin"
        )));
    }
    let first = args.files.iter().chain(&args.tail).next().and_then(|path| path.file_stem());
    let stem: String = first.map_or_else(String::new, |stem| {
        let plain = |c: &char| c.is_ascii_alphanumeric() || "._-".contains(*c);
        stem.to_string_lossy().chars().filter(plain).collect()
    });
    let stem = stem.trim_matches(['.', '-', '_']);
    Ok(if is_feed_name(stem) { stem.to_string() } else { "feed".to_string() })
}

async fn send(route: Route, options: FeedOptions, events: Events) -> Result<(), Failure> {
    let mut signal = None;
    let mut signals = Signals::new()?;
    let stop = async { signal = Some(signals.next().await) };
    let ended = match route {
        Route::Striped(terms) => {
            let StripedTerms { terms, options: stripe, table } = *terms;
            let dial = async |collector| {
                let terms = terms.to_one(collector);
                let striped = peer::striped::connect(&terms, stripe.clone(), events.clone());
                striped.await.map(Into::into)
            };
            let sending = ::feed::run_striped(dial, options, events.clone(), stop);
            bounded(table.as_ref(), stripe.max_rate.as_ref(), &events, sending).await
        }
        Route::Paths(terms, list) => {
            let (terms, changing) = watch::channel(terms.over_relays()?);
            tokio::select! {
                ended = ::feed::run_over_paths(changing, options, events.clone(), stop) => ended,
                () = list.follow(&terms, &events) => unreachable!("it never ends"),
            }
        }
    };
    let Sent { kept, waiting } = ended.map_err(failure)?;
    let records = if kept == 1 { "1 record is".into() } else { format!("{kept} records are") };
    let left = if waiting.0 == 0 { String::new() } else { format!("; {waiting} are not") };
    events.notice(format!("{records} at the collector{left}"));
    match signal {
        Some(number) => Err(stopped(number)),
        None => Ok(()),
    }
}

/// The failure of a feed.
fn failure(error: FeedError) -> Failure {
    match error {
        FeedError::Peer(error) => error.into(),
        FeedError::Usage(text) => Error::usage(text).into(),
        error => Failure::Message { code: error.exit_code(), text: error.to_string() },
    }
}
