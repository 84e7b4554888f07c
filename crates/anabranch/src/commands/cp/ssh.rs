//! The far side, started over ssh, and the lines that it says.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use net::Error;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::commands::far::messages::{
    Answer, Hello, MARKER, MAX_ANSWER, Ready, Request, SPEAKS, Said,
};
use crate::exit::Failure;
use crate::sanitize::clean;

/// The exit code where ssh, or what it starts, fails.
pub(super) const SSH: u8 = 12;
/// How long ssh may take to end once it was told to.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// So much of what is no answer is kept to be shown.
const NOISE_SHOWN: usize = 300;
/// So much of what is no answer is read.
const NOISE: usize = 1 << 20;

/// How the other host is reached.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct SshArgs {
    /// ssh's port on the other host
    #[arg(short = 'P', value_name = "PORT", help_heading = "ssh")]
    port: Option<u16>,
    /// A file with a key, for ssh; may be repeated
    #[arg(short = 'i', value_name = "FILE", help_heading = "ssh")]
    identity: Vec<PathBuf>,
    /// An option for ssh, as in its configuration file; may be repeated
    #[arg(short = 'o', value_name = "OPTION", help_heading = "ssh")]
    option: Vec<OsString>,
    /// Hosts through which ssh goes; the data does not
    #[arg(short = 'J', value_name = "HOST", help_heading = "ssh")]
    jump: Option<OsString>,
    /// ssh's configuration file
    #[arg(short = 'F', value_name = "FILE", help_heading = "ssh")]
    file: Option<PathBuf>,
    /// The program to connect with, which takes OpenSSH's options; words with spaces in quotes
    #[arg(
        long,
        value_name = "COMMAND",
        env = "ANABRANCH_SSH",
        default_value = "ssh",
        help_heading = "ssh"
    )]
    ssh: OsString,
    /// What to start on the other host, as its shell reads it [default: anabranch, also looked for
    /// in ~/.cargo/bin and ~/.local/bin]
    #[arg(long, value_name = "PATH", help_heading = "ssh")]
    remote_program: Option<String>,
}

/// What starts ssh.
#[derive(Clone, Debug)]
pub(super) struct Ssh {
    program: OsString,
    options: Vec<OsString>,
    destination: String,
    remote: String,
}

impl SshArgs {
    /// To `destination`.
    ///
    /// # Errors
    /// [`Error::Usage`] if the command has no words.
    pub(super) fn to(self, destination: String) -> Result<Ssh, Error> {
        let text = self
            .ssh
            .to_str()
            .ok_or_else(|| Error::Usage("--ssh: the command is no text".into()))?;
        let mut words = words(text)
            .ok_or_else(|| Error::Usage(format!("--ssh: a quote in {text} has no end")))?;
        if words.is_empty() {
            return Err(Error::Usage("--ssh: there is no command".into()));
        }
        let program = words.remove(0);
        let mut options = words;
        // No terminal, nothing forwarded, and no other command that the user's configuration may
        // hold.
        options.extend(
            ["-T", "-x", "-a", "-oClearAllForwardings=yes", "-oRemoteCommand=none"]
                .map(OsString::from),
        );
        let mut add =
            |flag: &str, value: &OsStr| options.extend([flag.into(), value.to_os_string()]);
        if let Some(port) = self.port {
            add("-p", OsStr::new(&port.to_string()));
        }
        self.identity.iter().for_each(|file| add("-i", file.as_os_str()));
        self.option.iter().for_each(|option| add("-o", option));
        self.jump.iter().for_each(|jump| add("-J", jump));
        self.file.iter().for_each(|file| add("-F", file.as_os_str()));
        let remote = match self.remote_program {
            Some(program) => format!("{program} far"),
            // Shells that nobody logs in to rarely have these in their PATH. In single quotes every
            // shell reads it alike.
            None => "exec sh -c 'PATH=\"$PATH:$HOME/.cargo/bin:$HOME/.local/bin:/usr/local/bin\"; \
                     exec anabranch far'"
                .into(),
        };
        Ok(Ssh { program, options, destination, remote })
    }
}

/// The words of a command: at spaces, except in quotes. `None` if a quote does not end.
fn words(text: &str) -> Option<Vec<OsString>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in text.chars() {
        match (quote, c) {
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (Some(open), c) if open == c => quote = None,
            (None, c) if c.is_whitespace() => words.extend(word.take().map(OsString::from)),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word.map(OsString::from));
    quote.is_none().then_some(words)
}

impl Ssh {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.options).kill_on_drop(true);
        command
    }

    /// The other host as the command line has it, for messages.
    pub(super) fn host(&self) -> &str {
        self.destination.rsplit_once('@').map_or(self.destination.as_str(), |(_, host)| host)
    }

    /// The real name of the other host as ssh's configuration has it; `None` if ssh goes there
    /// through something else, or does not say.
    pub(super) async fn real_name(&self) -> Option<String> {
        let mut command = self.command();
        command.args(["-G", "--", &self.destination]).stdin(Stdio::null()).stderr(Stdio::null());
        let output = command.output().await.ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let value =
            |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
        if value("proxyjump").or(value("proxycommand")).is_some_and(|through| through != "none") {
            return None;
        }
        value("hostname").map(str::to_string)
    }

    /// Starts the far side.
    ///
    /// # Errors
    /// [`Failure::Message`] if there is no such program here.
    pub(super) fn start(&self) -> Result<Link, Failure> {
        let mut command = self.command();
        command
            .args(["--", &self.destination, &self.remote])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| {
            let program = self.program.to_string_lossy();
            told(format!("cannot start {}: {error}; --ssh names another program", clean(&program)))
        })?;
        let stdin = child.stdin.take();
        let lines = Lines::new(child.stdout.take().expect("it is piped"));
        Ok(Link { child, stdin, lines, host: clean(self.host()).into_owned() })
    }
}

/// The far side.
#[derive(Debug)]
pub(super) struct Link {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<ChildStdout>,
    host: String,
}

/// How the far side ended.
#[derive(Debug)]
pub(super) enum End {
    /// Well.
    Done,
    /// Otherwise, as it told.
    Failed(Failure),
    /// Without a word: ssh is gone.
    Gone(Failure),
}

impl Link {
    /// Waits for the far side's hello, says what is asked, and waits until it is ready.
    ///
    /// # Errors
    /// [`Failure::Message`] if ssh or the far side fails.
    pub(super) async fn ask(&mut self, request: &Request) -> Result<Ready, Failure> {
        let hello = self.hello().await?;
        if hello.speaks != SPEAKS {
            return Err(told(format!(
                "{} has anabranch {} (which speaks version {}), this host {} (version {SPEAKS}): \
                 install the same version on both",
                self.host,
                clean(&hello.anabranch),
                hello.speaks,
                env!("CARGO_PKG_VERSION"),
            )));
        }
        let mut line = serde_json::to_vec(request).expect("texts and numbers have a JSON form");
        line.push(b'\n');
        if let Some(stdin) = &mut self.stdin {
            // If it is gone, it is better to hear why.
            let _ = stdin.write_all(&line).await;
        }
        match self.answer().await {
            Ok(Said::Ready(ready)) => Ok(ready),
            Ok(Said::Failed { code, text }) => Err(self.failed(code, &text)),
            Ok(Said::Done) => Err(told(format!("{} was done before it began", self.host))),
            Err(ended) => Err(ended),
        }
    }

    /// Waits for the far side's end.
    pub(super) async fn end(&mut self) -> End {
        match self.answer().await {
            Ok(Said::Done) => End::Done,
            Ok(Said::Failed { code, text }) => End::Failed(self.failed(code, &text)),
            Ok(Said::Ready(_)) => End::Failed(told(format!("{} was ready twice", self.host))),
            Err(ended) => End::Gone(ended),
        }
    }

    /// Lets the far side end, and ssh.
    pub(super) async fn close(mut self) {
        self.stdin = None;
        let _ = timeout(LAST_WORDS, self.child.wait()).await;
    }

    fn failed(&self, code: u8, text: &str) -> Failure {
        Failure::Message {
            code: if code == 0 { SSH } else { code },
            text: format!("{}: {}", self.host, clean(text)),
        }
    }

    async fn hello(&mut self) -> Result<Hello, Failure> {
        let mut noise = Vec::new();
        let mut read = 0;
        loop {
            match self.lines.next().await {
                Ok(Some(line)) if line.starts_with(MARKER) => {
                    return serde_json::from_slice(&line)
                        .map_err(|error| self.nonsense(&line, &error.to_string()));
                }
                Ok(Some(line)) => {
                    read += line.len();
                    if !line.is_empty() && noise.len() < NOISE_SHOWN {
                        noise.extend_from_slice(&line);
                        noise.push(b' ');
                    }
                    if read > NOISE {
                        return Err(told(format!(
                            "{} says a great deal and nothing that is an answer{}",
                            self.host,
                            shown(&noise)
                        )));
                    }
                }
                Ok(None) => return Err(self.never_began(&noise).await),
                Err(error) => return Err(told(format!("{}: {error}{}", self.host, shown(&noise)))),
            }
        }
    }

    /// The next line after the hello; the end of them is an error too. May be dropped and called
    /// again.
    async fn answer(&mut self) -> Result<Said, Failure> {
        match self.lines.next().await {
            Ok(Some(line)) => {
                let answer: Result<Answer, _> = serde_json::from_slice(&line);
                answer
                    .map(|answer| answer.anabranch)
                    .map_err(|error| self.nonsense(&line, &error.to_string()))
            }
            Ok(None) => {
                let how =
                    self.status().await.map_or_else(String::new, |status| format!(" ({status})"));
                let text = format!(
                    "the ssh connection to {} ended{how}, and the copy with it; what arrived is \
                     kept, and the same command goes on from there",
                    self.host
                );
                Err(Failure::Message { code: 6, text })
            }
            Err(error) => Err(told(format!("{}: {error}", self.host))),
        }
    }

    fn nonsense(&self, line: &[u8], why: &str) -> Failure {
        told(format!(
            "{} says what cannot be understood ({}){}",
            self.host,
            clean(why),
            shown(line)
        ))
    }

    async fn status(&mut self) -> Option<ExitStatus> {
        self.stdin = None;
        timeout(LAST_WORDS, self.child.wait()).await.ok()?.ok()
    }

    /// Why there was no hello.
    async fn never_began(&mut self, noise: &[u8]) -> Failure {
        let (host, noise) = (self.host.clone(), shown(noise));
        let Some(status) = self.status().await else {
            return told(format!("ssh to {host} closed its output, and does not end{noise}"));
        };
        told(match status.code() {
            Some(127) => format!(
                "there is no anabranch on {host}, or its shell does not find it{noise}. Install it \
                 there (cargo install --path crates/anabranch), copy this one (ssh {host} mkdir -p \
                 .local/bin; scp $(command -v anabranch) {host}:.local/bin/), or say where it is \
                 with --remote-program PATH"
            ),
            Some(126) => {
                format!(
                    "anabranch on {host} cannot be started{noise}: is it for that machine, and \
                     executable?"
                )
            }
            Some(255) => format!("ssh to {host} failed; its own words are above{noise}"),
            Some(code) => format!(
                "what was started on {host} ended with exit code {code} and without an \
                 answer{noise}; is the anabranch there as new as this one ({})?",
                env!("CARGO_PKG_VERSION")
            ),
            None => format!("ssh to {host} was ended by a signal{noise}"),
        })
    }
}

fn told(text: String) -> Failure {
    Failure::Message { code: SSH, text }
}

/// What came instead of an answer, for messages.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim();
    if text.is_empty() { String::new() } else { format!("; it said: {}", clean(text)) }
}

/// Lines of bounded length.
#[derive(Debug)]
struct Lines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    fn new(reader: R) -> Lines<R> {
        Lines { reader: BufReader::new(reader), line: Vec::new() }
    }

    /// The next line, without its end; `None` when there is no more. What the last line lacks an
    /// end of is a line too. Nothing is lost if this is dropped and called again.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, String> {
        loop {
            let bytes = self.reader.fill_buf().await.map_err(|error| error.to_string())?;
            if bytes.is_empty() {
                let rest = std::mem::take(&mut self.line);
                return Ok((!rest.is_empty()).then_some(rest));
            }
            let end = bytes.iter().position(|&byte| byte == b'\n');
            let piece = &bytes[..end.unwrap_or(bytes.len())];
            if self.line.len() + piece.len() > MAX_ANSWER {
                return Err("it says a line without end".into());
            }
            self.line.extend_from_slice(piece);
            let read = piece.len() + usize::from(end.is_some());
            self.reader.consume(read);
            if end.is_some() {
                return Ok(Some(std::mem::take(&mut self.line)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_words() {
        let split = |text: &str| {
            words(text).map(|words| words.into_iter().map(|w| w.into_string().unwrap()).collect())
        };
        assert_eq!(split(" ssh  -p 22 "), Some(vec!["ssh".to_string(), "-p".into(), "22".into()]));
        assert_eq!(
            split(r#"'a b'c "" "d'e""#),
            Some(vec!["a bc".to_string(), String::new(), "d'e".into()])
        );
        assert_eq!(split(""), Some(Vec::new()));
        assert_eq!(split("a 'b"), None);
    }

    #[tokio::test]
    async fn lines_are_bounded() {
        let mut lines = Lines::new(&b"one\n\ntwo"[..]);
        assert_eq!(lines.next().await, Ok(Some(b"one".to_vec())));
        assert_eq!(lines.next().await, Ok(Some(Vec::new())));
        assert_eq!(lines.next().await, Ok(Some(b"two".to_vec())));
        assert_eq!(lines.next().await, Ok(None));
        let endless = vec![b'x'; MAX_ANSWER + 1];
        assert!(Lines::new(&endless[..]).next().await.is_err());
    }
}
