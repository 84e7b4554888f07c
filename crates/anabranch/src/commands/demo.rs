//! `demo`: sends a file over three emulated paths with each scheduler in turn; in one process,
//! without privileges.

use std::fs::{self, File};
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use emulate::{Loopback, Protocol};
use events::{Event, Events, Summary};
use files::{Error, ReceiveOptions, SendOptions, TransferOptions};
use link::config::{Network, TCP_PAYLOAD_SHARE};
use peer::{Credential, Identity, ListenOptions, PathSpec, Remote, Token};
use report::{Align, Table};
use units::{Bytes, Span};

use crate::exit::Failure;
use crate::schedulers::Scheduler;
use crate::scratch::{Scratch, write_source};
use crate::transfer;
use crate::watch::{self, Style, Watcher, text};

/// The third path's rate falls when 48 Mbit/s would have carried nine tenths of the file.
const NETWORK: &str = r#"
    name = "demo"
    [[link]]
    name = "one"
    rate = "8 Mbit/s"
    delay = "5 ms"
    queue = "64 KiB"
    [[link]]
    name = "two"
    rate = "16 Mbit/s"
    delay = "5 ms"
    queue = "64 KiB"
    [[link]]
    name = "three"
    rate = "24 Mbit/s"
    delay = "5 ms"
    queue = "64 KiB"
    schedule = [{ at = { fraction = 0.9, rate = "48 Mbit/s" }, rate = "2 Mbit/s" }]
"#;
/// The names of the paths in the output.
const LABELS: [&str; 3] = ["one", "two", "three"];
const SIZE: Bytes = Bytes(24_000_000);
const NAME: &str = "demo.bin";

/// Arguments of `demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// The display of progress on standard error [default: auto]
    #[arg(long, value_enum)]
    progress: Option<Style>,
}

/// `anabranch demo`.
///
/// # Errors
/// Errors of the transfers; [`Error::Integrity`] if a copy differs from the source.
pub(crate) fn run(args: &DemoArgs) -> Result<(), Failure> {
    let network =
        Network::parse(NETWORK, "the demo's network", Some(SIZE)).map_err(|e| emulation(&e))?;
    let ideal =
        network.ideal(SIZE, TCP_PAYLOAD_SHARE).expect("the links carry something at all times");
    let path = Scratch::temporary("demo");
    let folder = Scratch::create(&path).map_err(disk("make", &path))?;
    let source = folder.path().join(NAME);
    write_source(&source, SIZE).map_err(disk("write", &source))?;
    outln!("{SIZE} over three emulated paths: one, two and three, of 8, 16 and 24 Mbit/s.");
    outln!("The third falls to 2 Mbit/s when 90 % would be done.");
    let mut runs = Vec::new();
    for (name, scheduler) in [
        ("A", Scheduler::Static),
        ("B", Scheduler::AdjustableBlock),
        ("SAR", Scheduler::SelfAdaptive),
    ] {
        outln!("\n{name}: {}", scheduler.name());
        let target = folder.path().join(scheduler.name());
        fs::create_dir(&target).map_err(disk("make", &target))?;
        let watcher = Relabelled(watch::progress(args.progress));
        let summary = transfer::run(Box::new(watcher), |events| {
            transfer_once(&network, scheduler, &source, &target, events)
        })?;
        verify(&source, &target.join(NAME))?;
        outln!("{}; the copy is identical", text::summary(&relabelled(&summary)));
        runs.push((name, scheduler, summary));
    }
    out!("\n{}\n", table(&runs, ideal));
    outln!("ideal: the time that the three links together need for the file");
    outln!("idle: the time from the first path's end to the last's");
    outln!("against A, B: the time compared with that scheduler's");
    Ok(())
}

/// Runs a receiver and a sender in this process, with the emulated links between them.
async fn transfer_once(
    network: &Network,
    scheduler: Scheduler,
    source: &Path,
    target: &Path,
    events: Events,
) -> Result<Summary, Error> {
    let receiver = Identity::generate()?;
    let token = Token::generate(&receiver)?;
    let options = ReceiveOptions {
        directory: target.to_path_buf(),
        output: None,
        listen: ListenOptions {
            addresses: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))],
            token: Some(token.clone()),
            ..ListenOptions::new(receiver)
        },
        keep: false,
        parallel: 1,
        timeout: None,
        overwrite: files::Overwrite::OnRequest,
        allow_delete: false,
        archive: false,
        meetings: None,
    };
    let (announcements, mut announced) = Events::observed();
    let receiving = tokio::spawn(files::receive(options, announcements));
    let address = loop {
        match announced.recv().await {
            Some(Event::Listening { addresses }) => break addresses.first().copied(),
            Some(_) => {}
            None => break None,
        }
    };
    let Some(address) = address else {
        receiving.await.expect("the receiver does not panic")?;
        return Err(Error::usage("the receiver ended before it listened"));
    };
    let links = Loopback::start(network, address, Protocol::Tcp).map_err(|e| emulation(&e))?;
    let remotes: Vec<Remote> = links.addresses().iter().map(|at| Remote::from(*at)).collect();
    let path = |to: &Remote| PathSpec { to: Some(to.clone()), ..PathSpec::over("lo") };
    let mut transfer = TransferOptions::new(Identity::generate()?);
    transfer.scheduler = scheduler.name().into();
    transfer.dial.paths = remotes.iter().map(path).collect();
    transfer.dial.patience = Span::from_secs(10);
    let options = SendOptions {
        sources: vec![source.to_path_buf()],
        stream: None,
        spool: None,
        rename: None,
        selection: files::Selection::default(),
        to: remotes[0].clone(),
        credential: Credential::Token(token),
        transfer,
    };
    let summary = files::send(options, events).await?;
    receiving.await.expect("the receiver does not panic")?;
    Ok(summary)
}

fn table(runs: &[(&str, Scheduler, Summary)], ideal: Span) -> Table {
    let titles = ["time", "ideal", "ideal/time", "idle", "repeated", "against A", "against B"];
    let columns =
        [("scheduler", Align::Left)].into_iter().chain(titles.map(|title| (title, Align::Right)));
    let mut table = Table::new(columns);
    let seconds = |span: Span| format!("{:.2} s", span.as_secs_f64());
    for (name, scheduler, summary) in runs {
        let time = summary.elapsed;
        let against = |to: &str| {
            let other = runs.iter().find(|(other, ..)| *other == to && other != name);
            other.map_or_else(String::new, |(.., other)| {
                format!(
                    "{:+.0} %",
                    100.0 * (time.as_secs_f64() / other.elapsed.as_secs_f64() - 1.0)
                )
            })
        };
        table.row([
            format!("{name} {}", scheduler.name()),
            seconds(time),
            seconds(ideal),
            format!("{:.2}", ideal.as_secs_f64() / time.as_secs_f64()),
            idle(summary).map_or_else(|| "-".to_string(), seconds),
            summary.repeated.to_string(),
            against("A"),
            against("B"),
        ]);
    }
    table
}

/// The time between the first and the last path's end, as defined in the paper; `None` if the
/// summary has no path's end.
fn idle(summary: &Summary) -> Option<Span> {
    let mut last: Vec<(&str, Span)> = Vec::new();
    for (name, at) in &summary.finished_at {
        match last.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = (*known).max(*at),
            None => last.push((name, *at)),
        }
    }
    let ends = || last.iter().map(|(_, at)| *at);
    Some(ends().max()? - ends().min()?)
}

/// Replaces loopback addresses by the names of the emulated links in the output.
struct Relabelled(Box<dyn Watcher>);

impl Watcher for Relabelled {
    fn event(&mut self, event: &Event) {
        let mut event = event.clone();
        match &mut event {
            Event::Path { event, .. } => event.name = label(&event.name),
            Event::Progress(progress) => {
                progress.paths.iter_mut().for_each(|path| path.name = label(&path.name));
            }
            _ => {}
        }
        self.0.event(&event);
    }

    fn end(&mut self, result: &Result<Summary, Failure>) {
        self.0.end(result);
    }
}

fn relabelled(summary: &Summary) -> Summary {
    let mut summary = summary.clone();
    summary.paths.iter_mut().for_each(|path| path.name = label(&path.name));
    summary
}

fn label(name: &str) -> String {
    let link = (1..).zip(LABELS).find(|(n, _)| name.contains(&format!("127.77.0.{n}")));
    link.map_or_else(|| name.to_string(), |(_, label)| label.to_string())
}

/// Compares the copy byte by byte, independently of the transfer's verification.
fn verify(source: &Path, copy: &Path) -> Result<(), Error> {
    let read = |path: &Path| {
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|mut file| file.read_to_end(&mut bytes))
            .map_err(disk("read", path))
            .map(|_| bytes)
    };
    if read(source)? == read(copy)? {
        return Ok(());
    }
    Err(Error::Integrity {
        what: copy.display().to_string(),
        detail: "it differs from the source".into(),
    })
}

fn disk(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_path_buf();
    move |source| Error::Disk { action, path, source }
}

fn emulation(error: &dyn std::error::Error) -> Error {
    Error::system("emulate the paths", io::Error::other(error.to_string()))
}
