//! The source dials: files go to a receiver.

mod opener;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use peer::dial::Terms;
use tokio::sync::SetOnce;

use super::driver::{DialEnd, Dialing};
use super::session::check_scheduler;
use crate::protocol::{FILTERS_BYTES, MOST_FILTERS, MOST_MIRRORS};
use crate::source::{Source, SourceRoot};
use crate::{Error, Event, Events, Selection, SendOptions, Summary};
use opener::SendOpener;

/// Sends the files and folders of `options` over every path, and reports to `events`. Dropping the
/// future stops the transfer; data that the receiver has verified stay journaled there.
///
/// # Errors
/// Anything of [`Error`].
pub async fn send(options: SendOptions, events: Events) -> Result<Summary, Error> {
    check_scheduler(&options.transfer)?;
    check_delete(&options)?;
    let to = vec![(options.to.clone(), options.credential.clone())];
    let terms = Terms::new(to, options.transfer.dial.clone());
    let source = Arc::new(SetOnce::new());
    // Connections open while the files are looked at.
    tokio::select! {
        biased;
        Err(error) = find(&options, &source, &events) => Err(error),
        sent = conduct(terms, options.clone(), &source, &events) => sent,
    }
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
    let walked = tokio::task::spawn_blocking(walk).await;
    let failed = |error| Error::system("look at what is to be sent", std::io::Error::other(error));
    let (source, notices) = walked.map_err(failed)??;
    for text in notices {
        let _ = events.send(Event::Notice { text });
    }
    for event in source.left_out().events() {
        let _ = events.send(event);
    }
    assert!(found.set(Arc::new(source)).is_ok(), "the files are looked at once");
    Ok(())
}

/// Is set when it is dropped.
#[derive(Default)]
struct CancellationFlag(Arc<AtomicBool>);

impl Drop for CancellationFlag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Plans the paths, and runs one session after another until everything is sent.
async fn conduct(
    terms: Terms,
    mut options: SendOptions,
    source: &Arc<SetOnce<Arc<Source>>>,
    events: &Events,
) -> Result<Summary, Error> {
    let dialing = Dialing::plan(terms, events.clone()).await?;
    loop {
        let (asked, source) = (Arc::new(options.clone()), Arc::clone(source));
        let opener =
            |reports, clock| SendOpener::new(asked, source, clock, reports, events.clone());
        match dialing.conduct(opener).await? {
            DialEnd::Complete(summary) => return Ok(summary),
            // The receiver was restarted: keep the files that it has. Files that this run restarted
            // or replaced are not discarded again.
            DialEnd::SessionGone => {
                options.transfer.restart = false;
                let text = "the receiver was restarted: agreeing on the transfer again".to_string();
                let _ = events.send(Event::Notice { text });
            }
        }
    }
}
