//! Reads a token from the environment, standard input, a file or a prompt, never from an argument,
//! and writes one to a file.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use files::Error;
use peer::Token;
use peer::private::{create_fresh, open_input};
use zeroize::Zeroizing;

/// The environment variable that holds a token.
pub(crate) const VARIABLE: &str = "ANABRANCH_TOKEN";

/// The longest text with tokens that is read, in bytes: a device has no end.
const MOST_TEXT: u64 = 64 << 10;

/// The source of a token, as given by flags.
#[derive(Debug, Default, clap::Args)]
#[group(skip)]
pub(crate) struct TokenSource {
    /// Read the token from FILE
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Read the token from standard input
    #[arg(long, conflicts_with = "token_file")]
    token_stdin: bool,
}

impl TokenSource {
    /// The token from a flag or the environment; `None` if neither has one.
    ///
    /// # Errors
    /// [`Error::usage`] if the text is no token, [`Error::System`] if it can't be read.
    pub(crate) fn given(&self) -> Result<Option<Token>, Error> {
        if let Some(path) = &self.token_file {
            return TokenSource::in_file(path).map(Some);
        }
        if self.token_stdin {
            return from_stdin().map(Some);
        }
        match env::var(VARIABLE) {
            Ok(text) if !text.trim().is_empty() => parse(&Zeroizing::new(text)).map(Some),
            _ => Ok(None),
        }
    }

    /// The token in a file.
    ///
    /// # Errors
    /// As [`TokenSource::given`].
    pub(crate) fn in_file(path: &Path) -> Result<Token, Error> {
        let action = format!("read the token from {}", path.display());
        parse(&read(path).map_err(|source| Error::system(action, source))?)
    }

    /// The tokens from a flag or the environment, one on each line, for several hosts; empty if
    /// neither has any.
    ///
    /// # Errors
    /// As [`TokenSource::given`].
    pub(crate) fn all_given(&self) -> Result<Vec<Token>, Error> {
        let text = if let Some(path) = &self.token_file {
            let action = format!("read the tokens from {}", path.display());
            read(path).map_err(|source| Error::system(action, source))?
        } else if self.token_stdin {
            let action = "read the tokens from standard input".to_string();
            read_text(io::stdin().lock()).map_err(|source| Error::system(action, source))?
        } else {
            Zeroizing::new(env::var(VARIABLE).unwrap_or_default())
        };
        text.split_whitespace().map(parse).collect()
    }

    /// Prompts for a token without echo, or reads the first line if standard input is no terminal.
    ///
    /// # Errors
    /// As [`TokenSource::given`].
    pub(crate) fn ask() -> Result<Token, Error> {
        if !io::stdin().is_terminal() {
            return from_stdin();
        }
        Self::ask_terminal()
    }

    /// Whether a flag says that standard input has the token.
    pub(crate) fn is_stdin(&self) -> bool {
        self.token_stdin
    }

    /// Prompts for a token without echo, on the terminal of this process.
    ///
    /// # Errors
    /// As [`TokenSource::given`], or if there is no terminal.
    pub(crate) fn ask_terminal() -> Result<Token, Error> {
        if fs::File::open("/dev/tty").is_err() {
            return Err(Error::usage(format!(
                "there is no terminal to ask for the token, and standard input is the stream: set \
                 {VARIABLE}, or use --token-file"
            )));
        }
        let text = rpassword::prompt_password(
            "Token (the line beginning with ab1- that the other host printed): ",
        );
        let text = text.map(Zeroizing::new);
        parse(&text.map_err(|source| Error::system("read the token", source))?)
    }
}

/// The text of a file, which may be a pipe.
fn read(path: &Path) -> io::Result<Zeroizing<String>> {
    read_text(open_input(path)?)
}

fn read_text(input: impl Read) -> io::Result<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::new());
    input.take(MOST_TEXT).read_to_string(&mut text)?;
    Ok(text)
}

fn from_stdin() -> Result<Token, Error> {
    let mut line = Zeroizing::new(String::new());
    let read = io::stdin().lock().read_line(&mut line);
    read.map_err(|source| Error::system("read the token from standard input", source))?;
    if line.trim().is_empty() {
        return Err(Error::usage(format!(
            "there is no token on standard input: pipe it in, set {VARIABLE}, or use --token-file"
        )));
    }
    parse(&line)
}

fn parse(text: &str) -> Result<Token, Error> {
    text.parse().map_err(Error::usage)
}

/// The error message if one of the arguments looks like a token. It does not contain the argument.
pub(crate) fn refuse_in_arguments(arguments: impl IntoIterator<Item = OsString>) -> Option<String> {
    arguments.into_iter().any(|argument| looks_like_token(&argument)).then(|| {
        format!(
            "a token must not be an argument: every user of this machine can read it there. Paste \
             it at the prompt, pipe it in, or set {VARIABLE}; and since this one may have been \
             seen, restart the receiver for another one. (For a file of such a name write \
             ./ab1-…)"
        )
    })
}

fn looks_like_token(argument: &OsStr) -> bool {
    let text = argument.to_string_lossy().to_ascii_lowercase();
    text.split(['=', ',', ' ']).any(|part| {
        part.strip_prefix("ab1-").is_some_and(|body| {
            body.len() >= 8 && body.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        })
    })
}

/// Writes to a temporary file and renames it, so that a script that waits for the file never reads
/// half a token, and wider permissions of an old file are not inherited.
pub(crate) fn write_secret(path: &Path, secret: &str) -> Result<(), Error> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".new-{}", std::process::id()));
    let written = create_fresh(temporary.as_ref())
        .and_then(|mut file| writeln!(file, "{secret}"))
        .and_then(|()| fs::rename(&temporary, path));
    written
        .map_err(|source| Error::system(format!("write the token to {}", path.display()), source))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(argument: &str) -> bool {
        refuse_in_arguments([OsString::from("send"), OsString::from(argument)]).is_some()
    }

    #[test]
    fn tokens_are_refused_wherever_they_stand() {
        let token = Token::generate(&peer::Identity::generate().unwrap()).unwrap().reveal();
        assert!(refused(&token));
        assert!(refused(&token[..40]));
        assert!(refused(&token.to_uppercase()));
        assert!(refused(&format!("--token={token}")));
        assert!(!refuse_in_arguments([OsString::from(&token)]).unwrap().contains(&token[..12]));
    }

    #[test]
    fn other_arguments_pass() {
        for argument in
            ["ab1-notes.txt", "./ab1-abcdefghijkl", "ab1-", "--to", "grab1-abcdefghijkl"]
        {
            assert!(!refused(argument), "{argument}");
        }
    }
}
