//! `get`: gets files and folders from a server, or one file from several servers, over every path.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::ValueHint;
use files::{Error, FetchOptions, Server};
use peer::Remote;

use crate::commands::credentials::of_each;
use crate::complete;
use crate::dirs::Dirs;
use crate::examples;
use crate::exit::Failure;
use crate::flags::TransferFlags;
use crate::host_key::HostKey;
use crate::output::ToStdout;
use crate::token::TokenSource;
use crate::transfer;
use crate::via::{MeetFlags, MetHost};

/// Arguments of `get`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = examples::help("get"))]
pub(crate) struct GetArgs {
    /// Files and folders to get, relative to the served folder; FOLDER/ with a slash at its end
    /// stands for its contents, / for everything; wildcards match as in a shell
    #[arg(required_unless_present = "list", value_name = "PATH", value_hint = ValueHint::Other)]
    names: Vec<PathBuf>,
    /// The server, as printed by 'anabranch serve'; repeat it for more servers of the same file,
    /// which are used at the same time
    #[arg(
        long,
        value_name = "HOST[:PORT]",
        required_unless_present = "via",
        add = complete::receivers()
    )]
    from: Vec<Remote>,
    #[command(flatten)]
    meet: MeetFlags,
    /// The target folder, created if missing, or '-' to write the only file to standard output
    /// [default: the current folder]
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
    /// The new name of the only file or folder
    #[arg(long = "as", value_name = "NAME")]
    rename: Option<OsString>,
    /// The expected BLAKE3 hash of the only file, as printed by b3sum; servers whose file has
    /// another hash are not used
    #[arg(long, value_name = "HASH", value_parser = blake3)]
    blake3: Option<[u8; 32]>,
    /// List what the server offers, or what PATH has there, and get nothing
    #[arg(long, conflicts_with_all = ["into", "rename", "blake3", "dry_run"])]
    list: bool,
    #[command(flatten)]
    flags: TransferFlags,
    #[command(flatten)]
    token: TokenSource,
}

impl GetArgs {
    /// Whether events are written as JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.flags.is_json()
    }
}

/// `anabranch get`.
///
/// # Errors
/// Errors of the transfer.
pub(crate) fn run(mut args: GetArgs) -> Result<(), Failure> {
    let stdout = ToStdout::find(args.into.as_deref())?;
    if stdout.is_some() {
        args.flags.leave_stdout()?;
    }
    let dirs = Dirs::from_env();
    let config = args.flags.config(&dirs)?;
    let key = HostKey::load(&dirs)?;
    let (from, identity, relays) = if args.meet.is_given() {
        args.flags.meet();
        let token = || args.token.given()?.map_or_else(TokenSource::ask, Ok);
        let named = match &args.from[..] {
            [] => None,
            [one] => Some(one),
            _ => return Err(Error::usage("--via is for one server").into()),
        };
        let MetHost { to, credential, identity, relays } =
            args.meet.meet(named, key, token, &dirs)?;
        let server = Server { remote: to, credential };
        (vec![server], identity, Some(relays))
    } else {
        let from: Vec<Server> = of_each(args.from, &args.token, &dirs)?
            .into_iter()
            .map(|(remote, credential)| Server { remote, credential })
            .collect();
        let identity = key.beside(from.iter().map(|server| &server.credential))?;
        (from, identity, None)
    };
    let into = match &stdout {
        Some(stdout) => stdout.folder().to_path_buf(),
        None => args.into.unwrap_or_else(|| PathBuf::from(".")),
    };
    let folder = stdout.is_none().then_some(into.as_path());
    let watcher = args.flags.watcher(&config, folder);
    let (selection, mut transfer) = args.flags.options(None, identity, &config, &dirs)?;
    if let Some(relays) = relays {
        transfer.dial.meet_at(relays);
    }
    let judge = Failure::judge(transfer.dry_run);
    let options = FetchOptions {
        from,
        names: if args.names.is_empty() { vec![PathBuf::from("/")] } else { args.names },
        served: None,
        list: args.list,
        selection,
        into,
        rename: args.rename,
        output: stdout.as_ref().map(ToStdout::output),
        blake3: args.blake3,
        transfer,
    };
    let got = transfer::run(watcher, |events| files::fetch(options, events))?;
    judge(&got)
}

fn blake3(text: &str) -> Result<[u8; 32], String> {
    let bad = || "expected 64 hexadecimal digits, as printed by b3sum".to_string();
    if text.len() != 64 || !text.is_ascii() {
        return Err(bad());
    }
    let mut hash = [0; 32];
    for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).map_err(|_| bad())?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| bad())?;
    }
    Ok(hash)
}
