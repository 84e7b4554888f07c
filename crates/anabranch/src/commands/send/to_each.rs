//! `send --to A --to B`: the same files to several receivers.

use events::{Events, Summary};
use files::{Error, SendOptions};
use peer::{Credential, Remote};

use crate::exit::{Failure, PARTIAL};

/// Sends the files of `options` to its receiver and to `others`. How each ended is told by then.
///
/// # Errors
/// Errors of the files; the failure of a receiver, if none has everything; else that not all have.
pub(super) async fn send(
    options: SendOptions,
    others: Vec<(Remote, Credential)>,
    events: Events,
) -> Result<Summary, Failure> {
    let names: Vec<String> = std::iter::once(&options.to)
        .chain(others.iter().map(|(remote, _)| remote))
        .map(ToString::to_string)
        .collect();
    let is_whole = Failure::judge(options.transfer.dry_run);
    let ended = files::send_to_each(options, others, events).await?;
    judge(&names, ended, is_whole)
}

/// How the command ends, whose receivers have these names and ended so.
fn judge(
    names: &[String],
    ended: Vec<Result<Summary, Error>>,
    is_whole: fn(&Summary) -> Result<(), Failure>,
) -> Result<Summary, Failure> {
    let failed: Vec<&str> = names
        .iter()
        .zip(&ended)
        .filter(|(_, sent)| sent.is_err())
        .map(|(name, _)| name.as_str())
        .collect();
    let all = names.len();
    if !failed.is_empty() {
        let codes = ended.iter().filter_map(|sent| sent.as_ref().err().map(Error::exit_code));
        let first = codes.clone().next().unwrap_or(PARTIAL);
        let is_same = codes.clone().all(|code| code == first);
        let code = if failed.len() == all && is_same { first } else { PARTIAL };
        let others = if failed.len() == all { "" } else { "; the others have everything" };
        let text = format!(
            "{} of {all} receivers did not get everything, as said above: {}{others}",
            failed.len(),
            failed.join(", ")
        );
        return Err(Failure::Message { code, text });
    }
    let mut first = None;
    for summary in ended.into_iter().flatten() {
        is_whole(&summary)?;
        first.get_or_insert(summary);
    }
    Ok(first.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_says_whether_some_all_or_none_have_everything() {
        let names = ["a", "b"].map(String::from);
        let whole = || Ok(Summary::default());
        let partly = || Ok(Summary { left_out: 1, ..Summary::default() });
        let refused = || Err(Error::usage("no"));
        let lost = || Err(Error::protocol("no"));
        for (ended, code, said) in [
            ([whole(), whole()], None, ""),
            ([whole(), partly()], Some(PARTIAL), "a file or folder of the source was left out"),
            ([lost(), whole()], Some(PARTIAL), "above: a; the others have everything"),
            ([lost(), lost()], Some(9), "2 of 2 receivers did not get everything"),
            ([lost(), refused()], Some(PARTIAL), "above: a, b"),
        ] {
            let judged = judge(&names, Vec::from(ended), Failure::unless_whole);
            assert_eq!(judged.as_ref().err().map(Failure::exit_code), code);
            let text = judged.err().and_then(|failure| failure.message()).unwrap_or_default();
            assert!(text.contains(said), "{text}");
        }
    }
}
