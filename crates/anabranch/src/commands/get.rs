//! `get`: files and folders from a server, or one file from several, over every path.

use std::ffi::OsString;
use std::path::PathBuf;

use net::{Credential, Error, FetchOptions, Identity, Remote, Server};

use crate::dirs::Dirs;
use crate::exit::Failure;
use crate::flags::TransferFlags;
use crate::peers::List;
use crate::token::TokenSource;
use crate::transfer;

/// Arguments of `get`.
#[derive(Debug, clap::Args)]
pub(crate) struct GetArgs {
    /// What to get, below what is offered there; of FOLDER/ with a slash at its end, what is in it,
    /// and of / everything
    #[arg(required = true, value_name = "PATH")]
    names: Vec<PathBuf>,
    /// The server, as 'anabranch serve' prints it; repeated: further servers of the same file, all
    /// used at once
    #[arg(long, required = true, value_name = "HOST[:PORT]")]
    from: Vec<Remote>,
    /// The folder where it goes, made if it is not there [default: the current one]
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
    /// The name that the one file or folder gets there
    #[arg(long = "as", value_name = "NAME")]
    rename: Option<OsString>,
    /// The BLAKE3 hash that the one file must have, as b3sum prints it; a server that has another
    /// one is not asked
    #[arg(long, value_name = "HASH", value_parser = blake3)]
    blake3: Option<[u8; 32]>,
    #[command(flatten)]
    flags: TransferFlags,
    #[command(flatten)]
    token: TokenSource,
}

/// `anabranch get`.
///
/// # Errors
/// Those of the transfer.
pub(crate) fn run(mut args: GetArgs) -> Result<(), Failure> {
    let dirs = Dirs::from_env();
    let config = args.flags.config(&dirs)?;
    let identity = Identity::load_or_generate(&dirs.key())?;
    let from = servers(args.from, &args.token, &dirs)?;
    let watcher = args.flags.watcher(&config);
    let (selection, transfer) = args.flags.options(None, identity, &config, &dirs);
    let options = FetchOptions {
        from,
        names: args.names,
        selection,
        into: args.into.unwrap_or_else(|| PathBuf::from(".")),
        rename: args.rename,
        blake3: args.blake3,
        transfer,
    };
    transfer::run(watcher, |events| net::fetch(options, events)).map(drop)
}

/// Each server with what it is known by: the tokens that are given, one after the other, for those
/// of whom no key is known; of a single server the token comes first.
fn servers(remotes: Vec<Remote>, source: &TokenSource, dirs: &Dirs) -> Result<Vec<Server>, Error> {
    let known = List::Receivers.load(dirs)?;
    let mut tokens = source.all_given()?.into_iter();
    let alone = remotes.len() == 1;
    let mut servers = Vec::new();
    for remote in remotes {
        let pinned =
            known.iter().find(|peer| peer.name == remote.host).map(|peer| peer.fingerprint);
        let credential = match (
            pinned,
            if alone || pinned.is_none() { tokens.next() } else { None },
        ) {
            (_, Some(token)) => Credential::Token(token),
            (Some(fingerprint), None) => Credential::Pinned(fingerprint),
            (None, None) if alone => Credential::Token(TokenSource::ask()?),
            (None, None) => {
                let text = format!(
                    "the key of {remote} is not known, and there is no token for it: 'anabranch \
                     keys trust receiver {host} FINGERPRINT' makes it known; tokens are read one a \
                     line",
                    host = remote.host
                );
                return Err(Error::Usage(text));
            }
        };
        servers.push(Server { remote, credential });
    }
    if tokens.next().is_some() {
        return Err(Error::Usage("there are more tokens than servers that need one".into()));
    }
    Ok(servers)
}

fn blake3(text: &str) -> Result<[u8; 32], String> {
    let bad = || "64 hexadecimal digits are needed, as b3sum prints them".to_string();
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
