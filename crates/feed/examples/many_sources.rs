//! Many sources in one process, each with a key of its own and one connection, for
//! `bench/bars/feed-many`.
//!
//!     many_sources tcp|udp COUNT COLLECTOR KEY FOLDER
//!
//! The sources take records at the sockets FOLDER/0, FOLDER/1 and so on. It prints the keys of all,
//! a line each, and an empty line; then it waits for a line of standard input, and runs them until
//! that ends. Lines that begin with `notice` are what sources say.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a measurement prints, and fails by panicking"
)]

use std::io::{BufRead, stdin};
use std::path::Path;

use events::{Event, Events};
use feed::{FeedError, FeedOptions, Form, Input, Listen, Live, Sent, run_over_paths, run_striped};
use peer::dial::Terms;
use peer::{Credential, DialOptions, Fingerprint, Identity, striped};
use tokio::sync::watch;
use tokio::task::{JoinSet, LocalSet, spawn_blocking};

fn options(folder: &Path, number: usize) -> FeedOptions {
    let socket = Listen::Unix(folder.join(number.to_string()));
    FeedOptions {
        inputs: vec![Input::Live(vec![Live::Listen(socket)], None)],
        feed: "records".into(),
        form: Form::Lines,
        secret: None,
        patience: None,
        collectors: vec!["collector".into()],
        collected: folder.join("collected"),
        control: None,
        progress: watch::Sender::default(),
    }
}

/// Prints what a source says, as long as it runs.
fn tell(number: usize, events: &Events) {
    let mut told = events.subscribe();
    tokio::spawn(async move {
        while let Some(event) = told.recv().await {
            if let Event::Notice { text } = event {
                println!("notice {number}: {text}");
            }
        }
    });
}

/// Runs a source over one of the carriers until it is to stop.
async fn source(
    terms: Terms,
    is_over_udp: bool,
    options: FeedOptions,
    events: Events,
    stop: impl Future<Output = ()>,
) -> Result<Sent, FeedError> {
    if is_over_udp {
        let dial = async |_| {
            let connecting = striped::connect(&terms, stripe::Options::default(), events.clone());
            connecting.await.map(Into::into)
        };
        return run_striped(dial, options, events.clone(), stop).await;
    }
    let (_terms, changing) = watch::channel(terms);
    run_over_paths(changing, options, events, stop).await
}

async fn run(
    identities: Vec<Identity>,
    (is_over_udp, collector): (bool, (String, Fingerprint)),
    folder: &Path,
) {
    let mut sources = JoinSet::new();
    let (stop, _) = watch::channel(false);
    for (number, identity) in identities.into_iter().enumerate() {
        let mut dialing = DialOptions::new(identity);
        dialing.paths = vec!["lo".parse().unwrap()];
        let (address, key) = &collector;
        let to = vec![(address.parse().unwrap(), Credential::Pinned(*key))];
        let terms = Terms::new(to, dialing).unwrap();
        let (events, mut stopped) = (Events::new(), stop.subscribe());
        tell(number, &events);
        let options = options(folder, number);
        // What dials over UDP is of one thread.
        sources.spawn_local(async move {
            let stop = async { drop(stopped.wait_for(|is_over| *is_over).await) };
            source(terms, is_over_udp, options, events, stop).await
        });
    }
    let input = spawn_blocking(|| stdin().lines().map_while(Result::ok).for_each(drop));
    tokio::select! {
        ended = input => ended.unwrap(),
        Some(ended) = sources.join_next() => panic!("a source ended: {:?}", ended.unwrap()),
    }
    stop.send_replace(true);
    while let Some(ended) = sources.join_next().await {
        ended.unwrap().unwrap();
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [carrier, count, address, key, folder] = &arguments[..] else {
        eprintln!("many_sources tcp|udp COUNT COLLECTOR KEY FOLDER");
        std::process::exit(2);
    };
    let identities: Vec<Identity> =
        (0..count.parse().unwrap()).map(|_| Identity::generate().unwrap()).collect();
    for identity in &identities {
        println!("{}", identity.fingerprint());
    }
    println!();
    stdin().lock().lines().next().unwrap().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let collector = (address.clone(), key.parse().unwrap());
    let running = run(identities, (carrier == "udp", collector), Path::new(folder));
    LocalSet::new().block_on(&runtime, running);
}
