//! The sending side of a transfer.
//!
//! [`send`] finds the files ([`walk`]), plans the paths, and conducts sessions until one of them completes. Each path has a task of its own
//! ([`keeper`]) that opens its connection, brings it into the session, and replaces it when it dies; the connection's own loop is in
//! [`path`].

mod conduct;
mod connect;
mod control;
mod keeper;
mod limit;
mod path;
mod plan;
mod probe;
mod rates;
mod session;
mod source;
mod walk;

use std::sync::Arc;

use crate::clock::Clock;
use crate::tls::ClientTls;
use crate::{Error, Event, Events, SendOptions, Summary};

use conduct::{Conductor, Ended};
pub(crate) use connect::tune;
pub(crate) use plan::resolve;
pub(crate) use probe::probe_each_and_all;
pub use probe::{Carries, PathProbe, probe};
use source::Source;

/// Sends the files and folders of `options` over every path; `events` hears what happens. Dropping the future stops the transfer; what
/// the receiver has verified stays journaled there.
///
/// # Errors
/// Anything of [`Error`].
pub async fn send(options: SendOptions, events: Events) -> Result<Summary, Error> {
    if policy::sched::by_name(&options.scheduler, policy::sched::Options::default()).is_none() {
        let names = policy::sched::NAMES.join(", ");
        return Err(Error::Usage(format!("there is no scheduler '{}'; there are {names}", options.scheduler)));
    }
    let mut options = options;
    let (sources, selection) = (options.sources.clone(), options.selection.clone());
    // A large tree takes its time, the more so if it is hashed.
    let opened = tokio::task::spawn_blocking(move || Source::open(&sources, &selection)).await;
    let failed =
        |error| Error::System { action: "look at what is to be sent".into(), source: std::io::Error::other(error) };
    let (source, notices) = opened.map_err(failed)??;
    let source = Arc::new(source);
    for text in notices {
        let _ = events.send(Event::Notice { text });
    }
    let tls = ClientTls::new(&options.identity, options.credential.pin())?;
    let plans: Vec<_> = plan::plan(&options).await?.into_iter().map(Arc::new).collect();
    let clock = Clock::start();
    loop {
        let conductor =
            Conductor::new(Arc::new(options.clone()), Arc::clone(&source), tls.clone(), clock, events.clone());
        match conductor.conduct(plans.clone()).await? {
            Ended::Complete(summary) => return Ok(summary),
            // The receiver was started again: agree anew, and go on from what it has. What this run already replaced or
            // restarted is not to be thrown away again.
            Ended::SessionGone => {
                options.restart = false;
                let text = "the receiver was restarted: agreeing on the transfer again".to_string();
                let _ = events.send(Event::Notice { text });
            }
        }
    }
}
