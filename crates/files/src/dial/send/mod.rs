//! The source dials: files go to a receiver.

mod opener;

use std::sync::Arc;

use peer::dial::Terms;

use super::driver::{DialEnd, Dialing};
use super::session::check_scheduler;
use crate::source::{Source, SourceRoot};
use crate::{Error, Event, Events, SendOptions, Summary};
use opener::SendOpener;

/// Sends the files and folders of `options` over every path, and reports to `events`. Dropping the
/// future stops the transfer; data that the receiver has verified stay journaled there.
///
/// # Errors
/// Anything of [`Error`].
pub async fn send(options: SendOptions, events: Events) -> Result<Summary, Error> {
    check_scheduler(&options.transfer)?;
    let to = vec![(options.to.clone(), options.credential.clone())];
    let terms = Terms::new(to, options.transfer.dial.clone());
    let mut options = options;
    let (sources, selection, rename) =
        (options.sources.clone(), options.selection.clone(), options.rename.clone());
    // Walking a large tree takes long, with hashes even longer.
    let walk = move || {
        Source::open(
            SourceRoot::Anywhere,
            &sources,
            &selection,
            true,
            rename.as_deref(),
            &mut |_| Ok(()),
        )
    };
    let walked = tokio::task::spawn_blocking(walk).await;
    let failed = |error| Error::system("look at what is to be sent", std::io::Error::other(error));
    let (source, notices) = walked.map_err(failed)??;
    let source = Arc::new(source);
    for text in notices {
        let _ = events.send(Event::Notice { text });
    }
    let dialing = Dialing::plan(terms, events.clone()).await?;
    loop {
        let (asked, source) = (Arc::new(options.clone()), Arc::clone(&source));
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
