//! The same files to several receivers.

use std::sync::Arc;

use events::{Event, Events, Failed, Summary};
use peer::dial::Terms;
use peer::{Credential, Parts, Remote};
use tokio::sync::SetOnce;
use tokio::task::JoinSet;

use super::{check, find, send_found};
use crate::{Error, SendOptions};

/// Sends the files and folders of `options` to its receiver and to `others` at the same time, each
/// at its own speed, and tells of each as of a transfer, which are numbered from 1 in their order.
/// The files are looked at once. Bounds of rates are divided equally among those receivers that
/// have not got everything yet.
///
/// Returns how it ended for each.
///
/// # Errors
/// What concerns all receivers: options that contradict themselves, files that cannot be read, a
/// stream, which can be read once only.
///
/// # Panics
/// If a transfer does.
pub async fn send_to_each(
    mut options: SendOptions,
    others: Vec<(Remote, Credential)>,
    events: Events,
) -> Result<Vec<Result<Summary, Error>>, Error> {
    check(&options)?;
    if options.stream.is_some() {
        return Err(Error::usage("a stream goes to one receiver: there is nothing to read again"));
    }
    let mut to = vec![(options.to.clone(), options.credential.clone())];
    to.extend(others);
    let parts = Parts::of(to.len());
    options.transfer.dial.parts = parts.clone();
    let names = Terms::new(to.clone(), options.transfer.dial.clone())?;
    let source = Arc::new(SetOnce::new());
    let mut running = JoinSet::new();
    for (place, (to, credential)) in to.iter().cloned().enumerate() {
        let transfer = u32::try_from(place + 1).expect("a command line is shorter");
        let events = events.of_transfer(transfer).named(&names.label(place));
        let options = SendOptions { to, credential, ..options.clone() };
        let (source, parts) = (Arc::clone(&source), parts.clone());
        running.spawn(async move {
            let sent = send_found(&options, &source, &events).await;
            parts.leave();
            if !options.transfer.dry_run || sent.is_err() {
                let result = sent.as_ref().map(Clone::clone).map_err(Failed::from);
                events.send(Event::Ended { transfer, result });
            }
            (place, sent)
        });
    }
    let sending = async {
        let mut ended: Vec<_> = to.iter().map(|_| None).collect();
        while let Some(joined) = running.join_next().await {
            let (place, sent) = joined.expect("a transfer does not panic");
            ended[place] = Some(sent);
        }
        ended.into_iter().map(|sent| sent.expect("each has ended")).collect()
    };
    // Connections open while the files are looked at.
    tokio::select! {
        biased;
        Err(error) = find(&options, &source, &events) => Err(error),
        sent = sending => Ok(sent),
    }
}
