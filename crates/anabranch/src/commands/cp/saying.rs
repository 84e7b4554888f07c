//! What ssh, and the remote side through it, say on standard error.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Child;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::sanitize::clean_lines;

/// The time in which the last words of ssh arrive once it has ended.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// The maximum of ssh's messages, and those of the remote side, that is shown, in bytes.
const MOST_SAID: usize = 64 << 10;
/// The longest line of them, in bytes; what is longer goes on in another.
const LONGEST_SAID: usize = 512;

/// What ssh and the remote side say on standard error, on its way to that of this process.
#[derive(Debug)]
pub(super) struct Saying(JoinHandle<()>);

impl Saying {
    /// Passes on what a child says, made safe for a terminal.
    pub(super) fn of(child: &mut Child) -> Saying {
        let stderr = child.stderr.take().expect("it is piped");
        Saying(tokio::spawn(pass_on(stderr, |line| {
            errln!("{line}");
        })))
    }

    /// Waits until everything is passed on. A master connection that ssh leaves behind keeps the
    /// pipe open: this wait is short.
    pub(super) async fn last_words(&mut self) {
        let _ = timeout(LAST_WORDS, &mut self.0).await;
    }
}

/// Passes lines on to `show`, cleaned and cut; after [`MOST_SAID`] nothing more, but everything is
/// read, so that nobody waits.
async fn pass_on(mut input: impl AsyncRead + Unpin, mut show: impl FnMut(&str)) {
    let (mut buffer, mut line, mut shown) = (vec![0; 4 << 10], Vec::new(), 0);
    while let Ok(read @ 1..) = input.read(&mut buffer).await {
        for &byte in &buffer[..read] {
            if shown > MOST_SAID {
                break;
            }
            if byte != b'\n' {
                line.push(byte);
            }
            if byte == b'\n' || line.len() >= LONGEST_SAID {
                // Counted as it is shown: an escaped character is longer.
                let text = said(&line);
                line.clear();
                shown += text.len() + 1;
                show(&text);
                if shown > MOST_SAID {
                    show("it says more, which is not shown");
                }
            }
        }
    }
    if !line.is_empty() && shown <= MOST_SAID {
        show(&said(&line));
    }
}

/// A line that is safe for a terminal. ssh ends its lines for one.
fn said(line: &[u8]) -> String {
    let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line));
    clean_lines(&line).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_ssh_says_is_cleaned_and_bounded() {
        let said = async |input: &[u8]| {
            let mut lines = Vec::new();
            pass_on(input, |line| lines.push(line.to_string())).await;
            lines
        };
        assert_eq!(said(b"one\r\n\x1b[2Jtwo").await, ["one", "\\u{1b}[2Jtwo"]);
        let flood = b"\x1b]0;owned\x07".repeat(100_000);
        let lines = said(&flood).await;
        let shown: usize = lines.iter().map(|line| line.len() + 1).sum();
        assert!(shown <= MOST_SAID + 8 * LONGEST_SAID, "{shown}");
        assert!(lines.iter().all(|line| !line.contains(char::is_control)));
        assert!(lines.last().unwrap().contains("not shown"));
    }
}
