//! The source dials: files go to a receiver.

mod opener;
mod several;

use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use peer::dial::Terms;
use tokio::sync::SetOnce;
use wire::manifest::{Entry, File, Kind, UNKNOWN_SIZE};

use super::driver::{DialEnd, Dialing};
use super::queue::Queue;
use super::session::check_scheduler;
use crate::blocking::run_blocking;
use crate::dial::unless_stopped;
use crate::protocol::{FILTERS_BYTES, MOST_FILTERS, MOST_MIRRORS};
use crate::sink::NOTHING_DELETED;
use crate::source::{Source, SourceRoot, Stream, StreamSpool, check_name};
use crate::{Error, Selection, SendOptions, StreamInput};
use events::{Events, Summary};
use opener::SendOpener;
pub use several::send_to_each;

/// Sends the files and folders of `options` over every path, and reports to `events`. Dropping the
/// future stops the transfer; data that the receiver has verified stay journaled there.
///
/// # Errors
/// Anything of [`Error`].
pub async fn send(options: SendOptions, events: Events) -> Result<Summary, Error> {
    check(&options)?;
    let source = Arc::new(SetOnce::new());
    // Connections open while the files are looked at.
    let sent = tokio::select! {
        biased;
        Err(error) = find(&options, &source, &events) => Err(error),
        sent = Box::pin(send_found(&options, &source, &events)) => sent,
    };
    if let Some(stream) = source.get().and_then(|source| source.as_stream())
        && !options.transfer.dry_run
    {
        settle_spool(stream, &sent, &events).await;
    }
    sent
}

/// Refuses what contradicts itself.
fn check(options: &SendOptions) -> Result<(), Error> {
    check_scheduler(&options.transfer)?;
    check_delete(options)?;
    if options.stream.is_some() && options.selection.archive {
        return Err(Error::usage("--archive: a stream has neither an owner nor attributes"));
    }
    Ok(())
}

/// Sends files to the receiver of `options`, once they are found.
async fn send_found(
    options: &SendOptions,
    source: &Arc<SetOnce<Arc<Source>>>,
    events: &Events,
) -> Result<Summary, Error> {
    let to = vec![(options.to.clone(), options.credential.clone())];
    let terms = Terms::new(to, options.transfer.dial.clone())?;
    let dialing = Dialing::plan(terms.clone(), &options.transfer, events.clone()).await?;
    let sent = match conduct(&terms, &dialing, options.clone(), source, events, true).await? {
        Sent::All(summary) => Ok(summary),
        Sent::ButForChanges(first) => {
            Box::pin(send_again(&terms, &dialing, options.clone(), first, events)).await
        }
    };
    dialing.close().await;
    sent
}

/// What was sent.
enum Sent {
    All(Summary),
    /// All but files that changed meanwhile.
    ButForChanges(Summary),
}

/// Sends what changed meanwhile once more: the files are looked at again, and those that the
/// receiver has are the same, or stay as they are.
async fn send_again(
    terms: &Terms,
    dialing: &Dialing,
    mut options: SendOptions,
    first: Summary,
    events: &Events,
) -> Result<Summary, Error> {
    options.transfer.once_more();
    let source = Arc::new(SetOnce::new());
    // What could not be read before has been named.
    let unheard = Events::new();
    let sent = tokio::select! {
        biased;
        Err(error) = find(&options, &source, &unheard) => Err(error),
        sent = conduct(terms, dialing, options.clone(), &source, events, false) => sent,
    };
    match sent {
        Ok(Sent::All(summary) | Sent::ButForChanges(summary)) => Ok(summary.after(Some(first))),
        Err(error) => unless_stopped(first, error, events),
    }
}

/// Removes the spool of a stream that was sent. If the stream was not, what is left of it is still
/// taken, so that the next attempt has all of it.
async fn settle_spool(stream: &Arc<Stream>, sent: &Result<Summary, Error>, events: &Events) {
    let Some(spool) = stream.spool() else { return };
    let notice = |text: String| {
        events.notice(text);
    };
    let Err(error) = sent else { return spool.remove() };
    let path = spool.path().display();
    if !stream.size().is_end {
        notice(format!("{error}; the rest of the stream is kept in {path}"));
    }
    if stream.keep_rest().await {
        notice(format!(
            "all of the stream is in {path}: the same command without '-' or the pipe sends it"
        ));
    } else {
        notice(format!("the stream in {path} is not complete, and cannot be sent"));
    }
    spool.unlock();
}

/// Checks that what the source has is known where something is to be deleted.
fn check_delete(options: &SendOptions) -> Result<(), Error> {
    if !options.transfer.delete {
        return Ok(());
    }
    if options.selection.files_from.is_some() {
        return Err(Error::usage(
            "--delete needs the whole contents of a folder: it does not go with --files-from",
        ));
    }
    options.selection.check_filters()?;
    let Selection { include, exclude, .. } = &options.selection;
    let mut taken = Selection::default();
    let is_taken =
        include.iter().chain(exclude).all(|glob| taken.hear_filter(true, glob).is_some());
    if !is_taken || options.sources.len() > MOST_MIRRORS {
        return Err(Error::usage(format!(
            "with --delete, a receiver takes {MOST_FILTERS} patterns of {} KiB together, and \
             {MOST_MIRRORS} folders: use fewer",
            FILTERS_BYTES >> 10
        )));
    }
    Ok(())
}

/// Looks at the files to send, and hands them over in `found`. Walking a large tree takes long,
/// with hashes even longer; the walk ends early if the future is dropped.
async fn find(
    options: &SendOptions,
    found: &SetOnce<Arc<Source>>,
    events: &Events,
) -> Result<(), Error> {
    if let Some(input) = options.stream.clone() {
        let source = stream(options, input)?;
        assert!(found.set(Arc::new(source)).is_ok(), "there is one stream");
        return Ok(());
    }
    let (sources, selection, rename) =
        (options.sources.clone(), options.selection.clone(), options.rename.clone());
    let unwanted = CancellationFlag::default();
    let is_unwanted = Arc::clone(&unwanted.0);
    let walk = move || {
        let mut go_on = |_| {
            let stopped = || Error::Stopped { reason: "the transfer is over".into() };
            if is_unwanted.load(Ordering::Relaxed) { Err(stopped()) } else { Ok(()) }
        };
        Source::open(
            SourceRoot::Anywhere,
            &sources,
            &selection,
            true,
            rename.as_deref(),
            &mut go_on,
        )
    };
    let (source, notices) = run_blocking(walk).await?;
    for text in notices {
        events.notice(text);
    }
    for event in source.left_out().events() {
        events.send(event);
    }
    if options.transfer.delete && source.left_out().count() > 0 {
        events.notice(NOTHING_DELETED);
    }
    assert!(found.set(Arc::new(source)).is_ok(), "the files are looked at once");
    Ok(())
}

/// The stream of the options: a file of now, with the mode of a file that a shell would make.
fn stream(options: &SendOptions, input: StreamInput) -> Result<Source, Error> {
    let name = options.rename.as_ref().filter(|_| options.sources.is_empty());
    let name = name.ok_or_else(|| Error::usage("a stream is sent alone, and needs a name"))?;
    check_name(name)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // The time tells one stream from another of the same name.
    let now = i64::try_from(now.as_nanos()).unwrap_or(i64::MAX);
    let (stream, mtime) = match (input, &options.spool) {
        (StreamInput::Spool, Some(folder)) => {
            let (spool, began, size) = StreamSpool::open(folder, name)?;
            (Stream::spooled(spool, size), began)
        }
        (StreamInput::Spool, None) => return Err(Error::usage("there is no spool to send from")),
        (input, Some(folder)) => {
            (Stream::new(input, Some(StreamSpool::create(folder, name, now)?)), now)
        }
        (input, None) => (Stream::new(input, None), now),
    };
    let mode = 0o644 & !umask();
    let file = File { size: UNKNOWN_SIZE, mtime, mode, hash: None, data: None };
    Source::stream(Entry { path: name.as_bytes().to_vec(), kind: Kind::File(file) }, stream)
}

/// The permission bits that new files of this process do not have.
fn umask() -> u16 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let umask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    umask.and_then(|octal| u16::from_str_radix(octal.trim(), 8).ok()).unwrap_or(0o022)
}

/// Is set when it is dropped.
#[derive(Default)]
struct CancellationFlag(Arc<AtomicBool>);

impl Drop for CancellationFlag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs one session after another until everything is sent. If it `is_first`, files that change
/// will be sent once more.
async fn conduct(
    terms: &Terms,
    dialing: &Dialing,
    mut options: SendOptions,
    source: &Arc<SetOnce<Arc<Source>>>,
    events: &Events,
    is_first: bool,
) -> Result<Sent, Error> {
    let run = terms.run;
    let mut queue = Queue::new(options.transfer.dial.patience);
    loop {
        let (asked, source) = (Arc::new(options.clone()), Arc::clone(source));
        let opener = |reports, clock| {
            SendOpener::new(asked, source, run, is_first, clock, reports, events.clone())
        };
        match queue.unless_busy(dialing.conduct(opener).await, events).await? {
            DialEnd::Busy => {}
            DialEnd::Complete(summary) => return Ok(Sent::All(summary)),
            DialEnd::ButForChanges(summary) => return Ok(Sent::ButForChanges(summary)),
            // The receiver was restarted: keep the files that it has. Files that this run restarted
            // or replaced are not discarded again.
            DialEnd::SessionGone => {
                options.transfer.restart = false;
                let text = "the receiver was restarted: agreeing on the transfer again".to_string();
                events.notice(text);
            }
        }
    }
}
