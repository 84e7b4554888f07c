//! Starts the remote side over ssh, and exchanges messages with it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use files::Error;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{Instant, timeout, timeout_at};

use super::saying::Saying;
use crate::commands::cp::messages::{
    Answer, Hello, MARKER, MAX_ANSWER, PROTOCOL, Ready, Request, Status,
};
use crate::exit::Failure;
use crate::sanitize::{clean, without_error_numbers};
use crate::token;

/// The exit code if ssh or the command it starts fails.
pub(super) const SSH_FAILED: u8 = 12;
/// The time that ssh has to end once its input is closed.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// The time that the remote side has for an answer. A person may be typing a password meanwhile.
pub(super) const PATIENCE: Duration = Duration::from_secs(5 * 60);
/// The time that the remote shell has for the hello once it has said anything: nobody types a
/// password any more.
const STARTING: Duration = Duration::from_secs(30);
/// The maximum of other output before the hello that an error message quotes, in bytes.
const MAX_NOISE_SHOWN: usize = 300;
/// The maximum of other output before the hello that is skipped, in bytes.
const MAX_NOISE: usize = 1 << 20;

/// Options of the ssh connection.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct SshArgs {
    /// The port of ssh on the other host
    #[arg(short = 'P', value_name = "PORT", help_heading = "ssh")]
    port: Option<u16>,
    /// A key file for ssh; may be repeated
    #[arg(short = 'i', value_name = "FILE", help_heading = "ssh")]
    identity: Vec<PathBuf>,
    /// An option for ssh, with the syntax of its configuration file; may be repeated
    #[arg(short = 'o', value_name = "OPTION", help_heading = "ssh")]
    option: Vec<OsString>,
    /// Jump hosts for ssh; the data does not go through them
    #[arg(short = 'J', value_name = "HOST", help_heading = "ssh")]
    jump: Option<OsString>,
    /// ssh's configuration file
    #[arg(short = 'F', value_name = "FILE", help_heading = "ssh")]
    file: Option<PathBuf>,
    /// The ssh command, which must accept OpenSSH's options; quote words with spaces
    #[arg(
        long,
        value_name = "COMMAND",
        env = "ANABRANCH_SSH",
        default_value = "ssh",
        help_heading = "ssh"
    )]
    ssh: OsString,
    /// The program to start on the other host, for its shell [default: anabranch, in the PATH,
    /// ~/.cargo/bin or ~/.local/bin]
    #[arg(long, value_name = "PATH", help_heading = "ssh")]
    remote_program: Option<String>,
}

/// The ssh command for one destination.
#[derive(Clone, Debug)]
pub(super) struct Ssh {
    program: OsString,
    options: Vec<OsString>,
    destination: String,
    remote: String,
}

impl SshArgs {
    /// The ssh command for `destination`.
    ///
    /// # Errors
    /// [`Error::usage`] if `--ssh` is empty or malformed.
    pub(super) fn to(self, destination: String) -> Result<Ssh, Error> {
        let text =
            self.ssh.to_str().ok_or_else(|| Error::usage("--ssh: the command is not UTF-8"))?;
        let mut words = words(text)
            .ok_or_else(|| Error::usage(format!("--ssh: unbalanced quotes in {text}")))?;
        if words.is_empty() {
            return Err(Error::usage("--ssh: the command is empty"));
        }
        let program = words.remove(0);
        let mut options = words;
        // No terminal, no forwarding, and no other command from the user's configuration.
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
            // Non-login shells rarely have these folders in their PATH. Single quotes mean the same
            // in every shell.
            None => "exec sh -c 'PATH=\"$PATH:$HOME/.cargo/bin:$HOME/.local/bin:/usr/local/bin\"; \
                     exec anabranch far'"
                .into(),
        };
        Ok(Ssh { program, options, destination, remote })
    }
}

/// Splits a command at spaces outside quotes. `None` if a quote is not closed.
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
        command.args(&self.options).env_remove(token::VARIABLE).kill_on_drop(true);
        command
    }

    /// The other host as given on the command line, for messages.
    pub(super) fn host(&self) -> &str {
        self.destination.rsplit_once('@').map_or(self.destination.as_str(), |(_, host)| host)
    }

    /// The name of the other host in ssh's configuration; `None` if ssh uses a jump host or a
    /// proxy, or cannot print its configuration.
    pub(super) async fn real_name(&self) -> Option<String> {
        let mut command = self.command();
        command.args(["-G", "--", &self.destination]).stdin(Stdio::null()).stderr(Stdio::null());
        let output = command.output().await.ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let value =
            |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
        if value("proxyjump").or(value("proxycommand")).is_some_and(|proxy| proxy != "none") {
            return None;
        }
        value("hostname").map(str::to_string)
    }

    /// A shell here that runs `script`, instead of ssh.
    #[cfg(test)]
    pub(super) fn stub(script: &str) -> Ssh {
        let options = ["-c", script].map(OsString::from).to_vec();
        let (destination, remote) = ("far".to_string(), String::new());
        Ssh { program: "sh".into(), options, destination, remote }
    }

    /// ssh with a command for the other host's shell.
    pub(super) fn command_for(&self, remote: &str) -> Command {
        let mut command = self.command();
        command.args(["--", &self.destination, remote]);
        command
    }

    /// The failure if the ssh program cannot be started.
    pub(super) fn cannot_start(&self, error: &io::Error) -> Failure {
        let program = self.program.to_string_lossy();
        ssh_failure(format!(
            "cannot start {}: {}; --ssh names another program",
            clean(&program),
            without_error_numbers(&error.to_string())
        ))
    }

    /// From now on, the remote side is the program that [`super::install`] copied there.
    pub(super) fn use_installed(&mut self) {
        self.remote = "exec sh -c 'exec \"$HOME/.local/bin/anabranch\" far'".into();
    }

    /// Starts the remote side.
    ///
    /// # Errors
    /// [`Failure::Message`] if the ssh program cannot be started.
    pub(super) fn start(&self) -> Result<RemoteSide, Failure> {
        let mut command = self.command_for(&self.remote);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| self.cannot_start(&error))?;
        let saying = Saying::of(&mut child);
        let stdin = child.stdin.take();
        let lines = Lines::new(child.stdout.take().expect("it is piped"));
        Ok(RemoteSide { child, stdin, lines, saying, host: clean(self.host()).into_owned() })
    }
}

/// The connection to the remote side.
#[derive(Debug)]
pub(super) struct RemoteSide {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<ChildStdout>,
    saying: Saying,
    host: String,
}

/// The end of the remote side.
#[derive(Debug)]
pub(super) enum RemoteEnd {
    /// It succeeded.
    Done,
    /// It reported a failure.
    Failed(Failure),
    /// The ssh connection ended without a report.
    Gone(Failure),
}

/// No compatible remote side has answered.
#[derive(Debug)]
pub(super) struct NoHello {
    /// The reason.
    pub(super) failure: Failure,
    /// Whether the other host lacks the program, or this version of it.
    pub(super) lacks_program: bool,
}

impl NoHello {
    fn lacking(text: String) -> NoHello {
        NoHello { failure: ssh_failure(text), lacks_program: true }
    }
}

impl From<Failure> for NoHello {
    fn from(failure: Failure) -> NoHello {
        NoHello { failure, lacks_program: false }
    }
}

impl RemoteSide {
    /// Waits for the hello of a compatible remote side.
    ///
    /// # Errors
    /// [`NoHello`] if ssh or the remote side fails.
    pub(super) async fn greet(&mut self) -> Result<(), NoHello> {
        let hello = match timeout(PATIENCE, self.hello()).await {
            Ok(hello) => hello?,
            Err(_) => return Err(self.silent().into()),
        };
        if hello.speaks == PROTOCOL {
            return Ok(());
        }
        Err(NoHello::lacking(format!(
            "{} has anabranch {} (cp protocol version {}), this host {} (version {PROTOCOL}): \
             install the same version on both (cp --install copies this one there)",
            self.host,
            clean(&hello.anabranch),
            hello.speaks,
            env!("CARGO_PKG_VERSION"),
        )))
    }

    /// Sends the request, and waits until the remote side is ready.
    ///
    /// # Errors
    /// [`Failure::Message`] if ssh or the remote side fails.
    pub(super) async fn ask(&mut self, request: &Request) -> Result<Ready, Failure> {
        let mut line = serde_json::to_vec(request).expect("texts and numbers have a JSON form");
        line.push(b'\n');
        let stdin = self.stdin.take();
        let asking = async {
            let mut stdin = stdin;
            if let Some(stdin) = &mut stdin {
                // If the remote side is gone, its answer has the reason.
                let _ = stdin.write_all(&line).await;
            }
            (stdin, self.answer().await)
        };
        let Ok((stdin, answer)) = timeout(PATIENCE, asking).await else {
            return Err(self.silent());
        };
        self.stdin = stdin;
        match answer {
            Ok(Status::Ready(ready)) => Ok(ready),
            Ok(Status::Failed { code, text }) => Err(self.failed(code, &text)),
            Ok(Status::Done) => {
                Err(ssh_failure(format!("{} reported success before it was ready", self.host)))
            }
            Err(failure) => Err(failure),
        }
    }

    /// Waits for the end of the remote side.
    pub(super) async fn end(&mut self) -> RemoteEnd {
        match self.answer().await {
            Ok(Status::Done) => RemoteEnd::Done,
            Ok(Status::Failed { code, text }) => RemoteEnd::Failed(self.failed(code, &text)),
            Ok(Status::Ready(_)) => {
                RemoteEnd::Failed(ssh_failure(format!("{} reported readiness twice", self.host)))
            }
            Err(failure) => RemoteEnd::Gone(failure),
        }
    }

    /// Closes the input of ssh, and waits for its end.
    pub(super) async fn close(mut self) {
        self.stdin = None;
        let _ = timeout(CLOSE_TIMEOUT, self.child.wait()).await;
    }

    /// The failure if no answer came in time.
    fn silent(&self) -> Failure {
        ssh_failure(format!(
            "{} gave no answer within {} minutes; does 'ssh {0} true' end?",
            self.host,
            PATIENCE.as_secs() / 60
        ))
    }

    fn failed(&self, code: u8, text: &str) -> Failure {
        Failure::Message {
            code: if code == 0 { SSH_FAILED } else { code },
            text: format!("{}: {}", self.host, clean(text)),
        }
    }

    async fn hello(&mut self) -> Result<Hello, NoHello> {
        let (mut noise, mut read) = (Vec::new(), 0);
        let mut until = None;
        loop {
            let next = async {
                match until {
                    Some(until) => timeout_at(until, self.lines.next()).await,
                    None => Ok(self.lines.next().await),
                }
            };
            let Ok(next) = next.await else {
                let text = format!(
                    "the shell of {} did not start anabranch within {} s of its first output{}; \
                     does 'ssh {0} true' end?",
                    self.host,
                    STARTING.as_secs(),
                    quoted(&noise)
                );
                return Err(ssh_failure(text).into());
            };
            until.get_or_insert_with(|| Instant::now() + STARTING);
            match next {
                Ok(Some(line)) if line.starts_with(MARKER) => {
                    let hello = serde_json::from_slice(&line);
                    return hello.map_err(|e| self.malformed(&line, &e.to_string()).into());
                }
                Ok(Some(line)) => {
                    read += line.len();
                    if !line.is_empty() && noise.len() < MAX_NOISE_SHOWN {
                        noise.extend_from_slice(&line);
                        noise.push(b' ');
                    }
                    if read > MAX_NOISE {
                        return Err(NoHello::from(ssh_failure(format!(
                            "{} printed too much before its first answer{}",
                            self.host,
                            quoted(&noise)
                        ))));
                    }
                }
                Ok(None) => return Err(self.no_hello(&noise).await),
                Err(error) => {
                    let text = format!("{}: {error}{}", self.host, quoted(&noise));
                    return Err(ssh_failure(text).into());
                }
            }
        }
    }

    /// The next line after the hello; the end of the output is an error. Cancel-safe.
    async fn answer(&mut self) -> Result<Status, Failure> {
        match self.lines.next().await {
            Ok(Some(line)) => {
                let answer: Result<Answer, _> = serde_json::from_slice(&line);
                answer
                    .map(|answer| answer.anabranch)
                    .map_err(|error| self.malformed(&line, &error.to_string()))
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
            Err(error) => Err(ssh_failure(format!("{}: {error}", self.host))),
        }
    }

    fn malformed(&self, line: &[u8], why: &str) -> Failure {
        ssh_failure(format!(
            "{} sent a malformed message ({}){}",
            self.host,
            clean(why),
            quoted(line)
        ))
    }

    async fn status(&mut self) -> Option<ExitStatus> {
        self.stdin = None;
        let status = timeout(CLOSE_TIMEOUT, self.child.wait()).await.ok()?.ok();
        self.saying.last_words().await;
        status
    }

    /// The failure if the output ended before the hello.
    async fn no_hello(&mut self, noise: &[u8]) -> NoHello {
        let (host, noise) = (self.host.clone(), quoted(noise));
        let Some(status) = self.status().await else {
            let text = format!("ssh to {host} closed its output, but does not exit{noise}");
            return ssh_failure(text).into();
        };
        if status.code() == Some(127) {
            return NoHello::lacking(format!(
                "there is no anabranch on {host}, or its shell does not find it{noise}. With \
                 --install this command copies itself to ~/.local/bin there first; or install it \
                 there (cargo install --path crates/anabranch), or give its path with \
                 --remote-program PATH"
            ));
        }
        let text = match status.code() {
            Some(126) => {
                format!(
                    "anabranch on {host} cannot be started{noise}: is it executable, and built for \
                     that machine?"
                )
            }
            Some(255) => format!("ssh to {host} failed; its message is above{noise}"),
            Some(code) => format!(
                "the command on {host} ended with exit code {code} and without an \
                 answer{noise}; is the anabranch there as new as this one ({})?",
                env!("CARGO_PKG_VERSION")
            ),
            None => format!("ssh to {host} was killed by a signal{noise}"),
        };
        ssh_failure(text).into()
    }
}

/// A failure of ssh, or of the command that it starts.
pub(super) fn ssh_failure(text: String) -> Failure {
    Failure::Message { code: SSH_FAILED, text }
}

/// Output that is no answer, quoted for an error message.
fn quoted(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim();
    if text.is_empty() { String::new() } else { format!("; its output: {}", clean(text)) }
}

/// Reads lines of bounded length.
#[derive(Debug)]
struct Lines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    fn new(reader: R) -> Lines<R> {
        Lines { reader: BufReader::new(reader), line: Vec::new() }
    }

    /// The next line without its newline, which the last one may lack; `None` at the end of the
    /// input. Cancel-safe.
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
                return Err("a line is too long".into());
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
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;
    use crate::commands::cp::messages::{Operation, Version};

    #[test]
    fn commands_are_split_into_words() {
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

    /// A remote shell that says nothing, one that only chatters, and one that does not listen.
    #[tokio::test(start_paused = true)]
    async fn a_remote_shell_without_an_answer_is_left() {
        let silent = Ssh::stub("exec sleep 600");
        let none = silent.start().unwrap().greet().await.unwrap_err();
        assert!(!none.lacks_program, "nothing is installed there");
        assert!(none.failure.message().unwrap().contains("no answer within 5 minutes"));
        let chatters = Ssh::stub("echo welcome; exec sleep 600");
        let mut chattering = chatters.start().unwrap();
        // The clock stands still until the shell, which has one of its own, has spoken.
        let output = chattering.lines.reader.get_ref();
        let mut spoken = [PollFd::new(output, PollFlags::IN)];
        assert_eq!(poll(&mut spoken, None).unwrap(), 1);
        let left = chattering.greet().await.unwrap_err();
        let said = left.failure.message().unwrap();
        assert!(said.contains("within 30 s of its first output; its output: welcome"), "{said}");
        let deaf = Ssh::stub("exec sleep 600");
        let what = Operation::Get { sources: vec!["x".repeat(4 << 20).into()] };
        let version = Version { anabranch: String::new(), speaks: PROTOCOL };
        let (key, port, background, via) = (String::new(), None, false, Vec::new());
        let request = Request { version, key, port, background, via, what };
        let failure = deaf.start().unwrap().ask(&request).await.unwrap_err();
        assert!(failure.message().unwrap().contains("no answer within 5 minutes"));
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
