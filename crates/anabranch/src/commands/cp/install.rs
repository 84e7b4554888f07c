//! Copies this program to the other host, over ssh: `cp --install`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::process::Stdio;
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use data_encoding::HEXLOWER;
use events::Events;
use files::Error;
use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader,
};
use tokio::time::{Instant, timeout};
use units::Bytes;

use super::saying::Saying;
use super::ssh::{CLOSE_TIMEOUT, PATIENCE, Ssh, ssh_failure};
use crate::exit::Failure;
use crate::sanitize::clean;

/// This very program, even if its file was replaced since it started.
pub(crate) const OWN_FILE: &str = "/proc/self/exe";
/// The beginning of the script's line; what a shell's start-up files print has none.
const MARK: &str = "anabranch-install: ";
/// What the other host takes: the program compressed, or as it is.
const COMPRESSED: &str = "send gzip";
const PLAIN: &str = "send plain";
/// The size of a piece of the program that is read or sent at a time, in bytes.
const PIECE: usize = 64 << 10;
/// How often it is said how much is there.
const PROGRESS: Duration = Duration::from_secs(5);
/// The maximum of output that is read, in bytes.
const MAX_OUTPUT: u64 = 64 << 10;

/// The time that an installation takes at most, over a slow line.
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// The hashes of this program. The other host uses the one that it can compute.
struct Hashes {
    sha256: String,
    blake3: String,
}

/// Copies this program into `~/.local/bin` of the other host. The file gets its name last, once its
/// hash is right and it starts there. What it does, and how much is there, are notices.
///
/// # Errors
/// [`Failure::Message`] if ssh fails, or the program cannot run there.
pub(super) async fn install(ssh: &Ssh, events: &Events) -> Result<(), Failure> {
    let program = OwnProgram::of_this()?;
    let host = clean(ssh.host()).into_owned();
    let mut child = ssh
        .command_for(&format!("exec sh -c '{}'", script(&program.hashes)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| ssh.cannot_start(&error))?;
    let mut saying = Saying::of(&mut child);
    let stdin = child.stdin.take().expect("it is piped");
    let stdout = child.stdout.take().expect("it is piped");
    let mut answers = BufReader::new(stdout.take(MAX_OUTPUT));
    let exchange = async {
        let mut said = answer(&mut answers).await?;
        let sent = match said.as_deref() {
            Some(COMPRESSED) => &program.compressed,
            Some(PLAIN) => &program.plain,
            _ => return Some(said),
        };
        let notice = |text| events.notice(text);
        notice(format!("copying anabranch to {host}: {}", Bytes(sent.len() as u64)));
        let feeding = feed(stdin, sent, |done| {
            notice(format!("copied {} of {}", Bytes(done as u64), Bytes(sent.len() as u64)));
        });
        let next = answer(&mut answers);
        tokio::pin!(feeding, next);
        said = tokio::select! {
            // It has ended, or says more than it should: what it takes is of no use.
            next = &mut next => next?,
            is_fed = &mut feeding => if is_fed { next.await? } else { return None },
        };
        Some(said)
    };
    let exchanged = timeout(LONGEST, exchange).await.ok().flatten();
    let Some(said) = exchanged else {
        return Err(ssh_failure(format!(
            "{host} does not take the program: nothing happened for {} minutes",
            PATIENCE.as_secs() / 60
        )));
    };
    let status = timeout(CLOSE_TIMEOUT, child.wait()).await.ok().and_then(Result::ok);
    saying.last_words().await;
    match said.as_deref() {
        Some("installed") => Ok(()),
        Some(why) => {
            Err(ssh_failure(format!("cannot install anabranch on {host}: {}", clean(why))))
        }
        None => {
            let how = status.map_or_else(String::new, |status| format!(" ({status})"));
            Err(ssh_failure(format!(
                "anabranch was not installed on {host}: ssh ended{how}, its message is above"
            )))
        }
    }
}

/// The next line of the script; `Some(None)` if there is none, `None` if none came in time.
async fn answer(answers: &mut (impl AsyncBufRead + Unpin)) -> Option<Option<String>> {
    loop {
        let mut line = Vec::new();
        let read = timeout(PATIENCE, answers.read_until(b'\n', &mut line)).await.ok()?;
        if !matches!(read, Ok(1..)) {
            return Some(None);
        }
        let line = String::from_utf8_lossy(&line);
        if let Some(said) = line.trim_end().strip_prefix(MARK) {
            return Some(Some(said.to_string()));
        }
    }
}

/// Sends the program, and tells `progress` from time to time how many bytes were taken. Whether
/// something was taken at least every [`PATIENCE`]: if the other side takes no more, its answer has
/// the reason.
async fn feed(
    mut input: impl AsyncWrite + Unpin,
    program: &[u8],
    progress: impl Fn(usize),
) -> bool {
    let mut told = Instant::now();
    for (number, piece) in program.chunks(PIECE).enumerate() {
        if told.elapsed() >= PROGRESS {
            told = Instant::now();
            progress(number * PIECE);
        }
        match timeout(PATIENCE, input.write_all(piece)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return true,
            Err(_) => return false,
        }
    }
    // Dropped here, it is at its end.
    true
}

/// This program, as it is sent.
struct OwnProgram {
    hashes: Hashes,
    plain: Vec<u8>,
    compressed: Vec<u8>,
}

impl OwnProgram {
    fn of_this() -> Result<OwnProgram, Error> {
        let unreadable = |source| Error::system("read this program", source);
        let plain = std::fs::read(OWN_FILE).map_err(unreadable)?;
        let hashes = Hashes::of(&plain[..]).map_err(unreadable)?;
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&plain).map_err(unreadable)?;
        let compressed = encoder.finish().map_err(unreadable)?;
        Ok(OwnProgram { hashes, plain, compressed })
    }
}

impl Hashes {
    fn of(mut program: impl Read) -> io::Result<Hashes> {
        let (mut sha256, mut blake3) = (Context::new(&SHA256), blake3::Hasher::new());
        let mut piece = vec![0; PIECE];
        loop {
            let read = program.read(&mut piece)?;
            if read == 0 {
                break;
            }
            sha256.update(&piece[..read]);
            blake3.update(&piece[..read]);
        }
        Ok(Hashes {
            sha256: HEXLOWER.encode(sha256.finish().as_ref()),
            blake3: blake3.finalize().to_hex().to_string(),
        })
    }
}

/// The BLAKE3 hash of this program, for the script on a host without sha256sum.
///
/// # Errors
/// If the program cannot be read.
pub(crate) fn own_hash() -> io::Result<String> {
    Ok(Hashes::of(File::open(OWN_FILE)?)?.blake3)
}

/// The script that takes the program from standard input: SYSTEM, SHA256 and BLAKE3 stand for what
/// this host has. It says in which form it takes the program. It goes between single quotes and in
/// one line, and has no exclamation mark and no backslash, so that every login shell passes it to
/// sh as it is.
const SCRIPT: &str = r#"
end() { echo "anabranch-install: $*"; exit; };
here=$(uname -sm);
[ "$here" = "SYSTEM" ] || end "it is $here, and this program is for SYSTEM";
dir="$HOME/.local/bin"; to="$dir/anabranch"; new="$dir/.anabranch-$$";
mkdir -p "$dir" || end "no folder $dir can be made";
[ -d "$to" ] && end "$to is a folder";
clean() { rm -f "$new"; }; trap clean EXIT; trap "exit 1" HUP INT TERM;
if command -v gzip >/dev/null; then unpack="gzip -dc"; echo "anabranch-install: send gzip";
else unpack=cat; echo "anabranch-install: send plain"; fi;
$unpack >"$new" && chmod 755 "$new" || end "$new cannot be written";
if command -v sha256sum >/dev/null; then hash=$(sha256sum <"$new");
else hash=$("$new" far --hash); fi;
case "$hash" in SHA256*|BLAKE3) ;; *) end "the copy is damaged, try again" ;; esac;
"$new" --version >/dev/null ||
end "this program does not run there, its message is above; a static one does (packaging/static)";
mv -f "$new" "$to" || end "$to cannot be replaced";
end installed
"#;

/// [`SCRIPT`] for a program with these hashes, in one line.
fn script(hashes: &Hashes) -> String {
    let system = format!("Linux {}", std::env::consts::ARCH);
    let filled = SCRIPT.replace("SYSTEM", &system).replace("SHA256", &hashes.sha256);
    filled.replace("BLAKE3", &hashes.blake3).trim().replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_remote_shell_that_takes_nothing_is_left() {
        let events = Events::new();
        let failure = install(&Ssh::stub("exec sleep 600"), &events).await.unwrap_err();
        assert!(failure.message().unwrap().contains("does not take the program"));
    }

    #[tokio::test]
    async fn a_remote_shell_that_does_not_install_is_left() {
        let events = Events::new();
        for (script, said) in [
            ("exec yes", "was not installed"),
            ("echo anabranch-install: no space left; exit", "no space left"),
            (r"printf 'anabranch-install: \033[2Jno\n'; exit", r"\u{1b}[2Jno"),
            ("true", "was not installed"),
            ("echo anabranch-install: send gzip; exit 3", "was not installed"),
            (
                "echo anabranch-install: send plain; head -c9 >/dev/null; echo anabranch-install: \
                 full",
                "full",
            ),
        ] {
            let failure = install(&Ssh::stub(script), &events).await.expect_err(script);
            let text = failure.message().unwrap();
            assert!(text.contains(said), "{script}: {text}");
        }
    }

    /// The form that a host without gzip takes, and the one of all others.
    #[tokio::test]
    async fn what_is_sent_is_the_program_in_either_form() {
        let (events, mut told) = Events::observed();
        let own = own_hash().unwrap();
        for (form, unpack) in [("gzip", "gzip -dc"), ("plain", "cat")] {
            let file =
                std::env::temp_dir().join(format!("anabranch-{form}-{}", std::process::id()));
            let script = format!(
                "echo noise; echo anabranch-install: send {form}; {unpack} >{}; echo \
                 anabranch-install: installed",
                file.display()
            );
            assert!(install(&Ssh::stub(&script), &events).await.is_ok(), "{form}");
            let hash = Hashes::of(File::open(&file).unwrap()).unwrap().blake3;
            std::fs::remove_file(&file).unwrap();
            assert_eq!(hash, own, "{form}");
            let Some(events::Event::Notice { text }) = told.recv().await else {
                panic!("it says so")
            };
            assert!(text.starts_with("copying anabranch to far: "), "{text}");
            while told.try_recv().is_some() {}
        }
    }

    #[test]
    fn the_script_survives_every_login_shell() {
        let hashes = Hashes::of(&b"program"[..]).unwrap();
        let script = script(&hashes);
        assert!(!script.contains(['\'', '!', '\\', '\n']), "{script}");
        assert!(script.contains(&hashes.blake3) && script.contains(&hashes.sha256), "{script}");
        assert_eq!((hashes.sha256.len(), hashes.blake3.len()), (64, 64));
    }
}
