//! The sending side of a transfer.
//!
//! [`send`] finds the files ([`walk`]), plans the paths, and conducts sessions until one of them
//! completes. Each path has a task of its own ([`keeper`]) that opens its connection, brings it
//! into the session, and replaces it when it dies; the connection's own loop is in [`path`].

pub(crate) mod conduct;
mod connect;
pub(crate) mod control;
pub(crate) mod gate;
pub(crate) mod ground;
mod keeper;
pub(crate) mod limit;
mod path;
pub(crate) mod plan;
mod probe;
mod rates;
pub(crate) mod session;
pub(crate) mod source;
pub(crate) mod terms;
pub(crate) mod walk;
pub(crate) mod way;

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::{Error, Event, Events, SendOptions, Summary};

use conduct::{Conductor, Ended};
pub(crate) use connect::tune;
use ground::Ground;
pub(crate) use path::MOST_REQUESTS;
pub(crate) use plan::resolve;
pub(crate) use probe::probe_each_and_all;
pub use probe::{Carries, PathProbe, probe};
use source::Source;
use terms::Terms;
use way::Entrance;

/// Sends the files and folders of `options` over every path; `events` hears what happens. Dropping
/// the future stops the transfer; what the receiver has verified stays journaled there.
///
/// # Errors
/// Anything of [`Error`].
pub async fn send(options: SendOptions, events: Events) -> Result<Summary, Error> {
    let terms = Terms::from(&options);
    terms.check()?;
    let mut options = options;
    let (sources, selection, rename) =
        (options.sources.clone(), options.selection.clone(), options.rename.clone());
    // A large tree takes its time, the more so if it is hashed.
    let opened = move || {
        Source::open(Ground::Anywhere, &sources, &selection, true, rename.as_deref(), &mut |_| {
            Ok(())
        })
    };
    let opened = tokio::task::spawn_blocking(opened).await;
    let failed = |error| Error::System {
        action: "look at what is to be sent".into(),
        source: std::io::Error::other(error),
    };
    let (source, notices) = opened.map_err(failed)??;
    let source = Arc::new(source);
    for text in notices {
        let _ = events.send(Event::Notice { text });
    }
    let tls = terms.tls()?;
    let plans: Vec<_> = plan::plan(&terms).await?.into_iter().map(Arc::new).collect();
    let clock = Clock::start();
    loop {
        let (reporting, reports) = mpsc::unbounded_channel();
        let entrance = session::Entrance::new(
            Arc::new(options.clone()),
            Arc::clone(&source),
            clock,
            reporting.clone(),
        );
        let entrance = Entrance::Out(entrance);
        let conductor = Conductor::new(
            terms.clone(),
            entrance,
            (reporting, reports),
            tls.clone(),
            clock,
            events.clone(),
        );
        match conductor.conduct(plans.clone()).await? {
            Ended::Complete(summary) => return Ok(summary),
            // The receiver was started again: agree anew, and go on from what it has. What this run
            // already replaced or restarted is not to be thrown away again.
            Ended::SessionGone => {
                options.transfer.restart = false;
                let text = "the receiver was restarted: agreeing on the transfer again".to_string();
                let _ = events.send(Event::Notice { text });
            }
        }
    }
}
