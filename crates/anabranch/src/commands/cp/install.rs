//! Copies this program to the other host, over ssh: `cp --install`.

use std::fs::File;
use std::io::{self, Read};
use std::process::Stdio;
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use data_encoding::HEXLOWER;
use files::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::saying::Saying;
use super::ssh::{CLOSE_TIMEOUT, PATIENCE, Ssh, ssh_failure};
use crate::exit::Failure;
use crate::sanitize::clean;

/// This very program, even if its file was replaced since it started.
pub(crate) const OWN_FILE: &str = "/proc/self/exe";
/// The beginning of the script's line; what a shell's start-up files print has none.
const MARK: &str = "anabranch-install: ";
/// The size of a piece of the program that is read at a time, in bytes.
const PIECE: usize = 256 << 10;
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
/// hash is right and it starts there.
///
/// # Errors
/// [`Failure::Message`] if ssh fails, or the program cannot run there.
pub(super) async fn install(ssh: &Ssh) -> Result<(), Failure> {
    let unreadable = |source| Error::system("read this program", source);
    let hashes = Hashes::of(File::open(OWN_FILE).map_err(unreadable)?).map_err(unreadable)?;
    let mut program = File::open(OWN_FILE).map_err(unreadable)?;
    let mut child = ssh
        .command_for(&format!("exec sh -c '{}'", script(&hashes)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| ssh.cannot_start(&error))?;
    let mut saying = Saying::of(&mut child);
    let mut stdin = child.stdin.take().expect("it is piped");
    let stdout = child.stdout.take().expect("it is piped");
    let feeding = async move {
        let mut piece = vec![0; PIECE];
        // A file that cannot be read to its end has another hash there; if the other side takes no
        // more, its output has the reason.
        while let Ok(read @ 1..) = program.read(&mut piece) {
            match timeout(PATIENCE, stdin.write_all(&piece[..read])).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => break,
                Err(_) => return false,
            }
        }
        true
    };
    let reading = async move {
        let mut output = Vec::new();
        stdout.take(MAX_OUTPUT).read_to_end(&mut output).await.map(|_| output)
    };
    let exchange = async {
        tokio::pin!(feeding, reading);
        tokio::select! {
            // It has ended, or says more than it should: what it takes is of no use.
            read = &mut reading => Some(read),
            is_fed = &mut feeding => {
                if is_fed { timeout(PATIENCE, reading).await.ok() } else { None }
            }
        }
    };
    let exchanged = timeout(LONGEST, exchange).await.ok().flatten();
    let Some(read) = exchanged else {
        let host = clean(ssh.host());
        return Err(ssh_failure(format!(
            "{host} does not take the program: nothing happened for {} minutes",
            PATIENCE.as_secs() / 60
        )));
    };
    let output = read.map_err(|source| Error::system("read the output of ssh", source))?;
    let status = timeout(CLOSE_TIMEOUT, child.wait()).await.ok().and_then(Result::ok);
    saying.last_words().await;
    let host = clean(ssh.host());
    let output = String::from_utf8_lossy(&output);
    match output.lines().find_map(|line| line.strip_prefix(MARK)) {
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
/// this host has. It goes between single quotes and in one line, and has no exclamation mark and no
/// backslash, so that every login shell passes it to sh as it is.
const SCRIPT: &str = r#"
end() { echo "anabranch-install: $*"; exit; };
here=$(uname -sm);
[ "$here" = "SYSTEM" ] || end "it is $here, and this program is for SYSTEM";
dir="$HOME/.local/bin"; to="$dir/anabranch"; new="$dir/.anabranch-$$";
mkdir -p "$dir" || end "no folder $dir can be made";
[ -d "$to" ] && end "$to is a folder";
clean() { rm -f "$new"; }; trap clean EXIT; trap "exit 1" HUP INT TERM;
cat >"$new" && chmod 755 "$new" || end "$new cannot be written";
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
        let failure = install(&Ssh::stub("exec sleep 600")).await.unwrap_err();
        assert!(failure.message().unwrap().contains("does not take the program"));
    }

    #[tokio::test]
    async fn a_remote_shell_that_does_not_install_is_left() {
        for (script, said) in [
            ("exec yes", "was not installed"),
            ("echo anabranch-install: no space left; exit", "no space left"),
            (r"printf 'anabranch-install: \033[2Jno\n'; exit", r"\u{1b}[2Jno"),
            ("true", "was not installed"),
        ] {
            let failure = install(&Ssh::stub(script)).await.expect_err(script);
            let text = failure.message().unwrap();
            assert!(text.contains(said), "{script}: {text}");
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
