//! Records that are the standard input of a command.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use ::feed::{Delivery, Form, NotTaken, Sink, Taking};
use tokio::io::AsyncReadExt;
use tokio::process::ChildStderr;
use tokio::time::{sleep, timeout};
use units::Span;

use crate::hooks::HookCommand;
use crate::hooks::group::{self, Group};
use crate::sanitize::{clean, without_error_numbers};

/// The longest time of a command, if nothing is said.
pub(crate) const LONGEST: Span = Span::from_secs(5 * 60);
/// Octets of the end of a command's standard error that are kept.
const KEPT: usize = 4 << 10;
/// The most characters that are shown of its last line.
const SHOWN: usize = 200;
/// The time for what it wrote before its end.
const LAST_WORDS: Duration = Duration::from_millis(50);

/// Runs a command for each batch.
pub(crate) struct CommandSink {
    command: HookCommand,
    longest: Span,
}

impl CommandSink {
    pub(crate) fn new(command: HookCommand, longest: Option<Span>) -> CommandSink {
        CommandSink { command, longest: longest.unwrap_or(LONGEST) }
    }
}

impl Sink for CommandSink {
    fn take(&self, batch: Delivery) -> Taking {
        let (words, longest) = (self.command.words().to_vec(), self.longest);
        Box::pin(async move {
            match run(&words, batch, Duration::from_nanos(longest.as_nanos())).await {
                Ok((status, _)) if status.success() => Ok(()),
                Ok((status, said)) => {
                    Err(NotTaken { why: format!("the command failed ({status})"), said })
                }
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    let why =
                        format!("the command took more than {} and was killed", longest.brief());
                    Err(NotTaken { why, said: None })
                }
                Err(error) => {
                    let error = error.to_string();
                    let why = format!("the command cannot run: {}", without_error_numbers(&error));
                    Err(NotTaken { why, said: None })
                }
            }
        })
    }
}

/// Runs a command with a batch; its status, and the last line of its standard error. Dropped, it
/// kills the command with all that it has started.
async fn run(
    words: &[String],
    batch: Delivery,
    longest: Duration,
) -> io::Result<(ExitStatus, Option<String>)> {
    let Delivery { host, feed, stream, form, first, records, file } = batch;
    let form = match form {
        Form::Lines => "lines",
        Form::Nul => "nul",
        Form::Counted => "counted",
    };
    let (first, records) = (first.to_string(), records.to_string());
    let variables = [
        ("ANABRANCH_HOST", host.as_str()),
        ("ANABRANCH_FEED", &feed),
        ("ANABRANCH_STREAM", &stream),
        ("ANABRANCH_FIRST", &first),
        ("ANABRANCH_RECORDS", &records),
        ("ANABRANCH_FORM", form),
    ];
    let mut command = group::command(words, variables.into_iter());
    // A file and no pipe: all of the batch is there, also if this process is killed.
    command.stdin(file).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut running = Group::start(&mut command)?;
    // It has the batch alone now: what inherits it holds its lock.
    drop(command);
    let mut stderr = running.process().stderr.take().expect("it is piped");
    let mut tail = Vec::new();
    let ended = timeout(longest, async {
        loop {
            tokio::select! {
                ended = running.wait() => return ended,
                // What it has started may hold it open, or it may have closed it.
                more = read(&mut stderr, &mut tail) => if !more? {
                    return running.wait().await;
                },
            }
        }
    });
    let status = ended.await.map_err(|_| io::ErrorKind::TimedOut)??;
    if !status.success() {
        running.kill_rest();
        let rest = async { while let Ok(true) = read(&mut stderr, &mut tail).await {} };
        tokio::select! {
            () = rest => {}
            () = sleep(LAST_WORDS) => {}
        }
    }
    Ok((status, last_line(&tail)))
}

/// Reads some of what a command says, and keeps the end of it; whether there is more.
async fn read(stderr: &mut ChildStderr, tail: &mut Vec<u8>) -> io::Result<bool> {
    let mut buffer = [0; KEPT];
    let length = stderr.read(&mut buffer).await?;
    tail.extend_from_slice(&buffer[..length]);
    tail.drain(..tail.len().saturating_sub(KEPT));
    Ok(length > 0)
}

/// The last line that has something in it, safe for a terminal.
fn last_line(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty())?;
    let shown: String = line.chars().take(SHOWN).collect();
    Some(clean(&shown).into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    async fn take(script: &str, longest: Option<Span>) -> Result<(), NotTaken> {
        let path = std::env::temp_dir().join(format!(
            "anabranch-batch-{}-{}",
            std::process::id(),
            blake3::hash(script.as_bytes())
        ));
        fs::write(&path, "one\ntwo\n").unwrap();
        let batch = Delivery {
            host: "anna".into(),
            feed: "logs".into(),
            stream: "01".into(),
            form: Form::Lines,
            first: 7,
            records: 2,
            file: File::open(&path).unwrap(),
        };
        fs::remove_file(&path).unwrap();
        let command = HookCommand::from_words(["sh", "-c", script]);
        CommandSink::new(command, longest).take(batch).await
    }

    #[tokio::test]
    async fn it_gets_the_records_and_what_they_are() {
        let script = r#"[ "$(cat)" = "one
two" ] && [ "$ANABRANCH_HOST/$ANABRANCH_FEED/$ANABRANCH_STREAM" = anna/logs/01 ] &&
            [ "$ANABRANCH_FIRST $ANABRANCH_RECORDS $ANABRANCH_FORM" = "7 2 lines" ] &&
            [ -z "$ANABRANCH_TOKEN" ]"#;
        assert_eq!(take(script, None).await, Ok(()));
        // One that reads nothing of it is content.
        assert_eq!(take("exit 0", None).await, Ok(()));
    }

    #[tokio::test]
    async fn its_failure_has_its_code_and_its_last_line() {
        let said = |script: &'static str| async move {
            let NotTaken { why, said } = take(script, None).await.unwrap_err();
            (why, said.unwrap_or_default())
        };
        let failed = "the command failed (exit status: 3)".to_string();
        assert_eq!(
            said("echo first >&2; printf 'no \\033[31mbroker\\n\\n' >&2; exit 3").await,
            (failed.clone(), "no \\u{1b}[31mbroker".into())
        );
        let (why, line) =
            said("yes 2>&1 | head -c 9000000 >&2; printf %01000d 7 >&2; exit 3").await;
        assert_eq!((why, line), (failed, "0".repeat(SHOWN)));
        let killed = said("kill -9 $$").await.0;
        assert!(killed.starts_with("the command failed (signal: 9"), "{killed}");
        // A child that holds standard error open is not waited for.
        assert_eq!(said("sleep 3600 & exit 1").await.0, "the command failed (exit status: 1)");
    }

    #[tokio::test]
    async fn its_time_is_bounded() {
        let taken = take("sleep 3600 & wait", Some(Span::from_millis(300))).await;
        let why = "the command took more than 300 ms and was killed".to_string();
        assert_eq!(taken, Err(NotTaken { why, said: None }));
    }
}
