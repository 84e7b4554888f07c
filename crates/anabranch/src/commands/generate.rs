//! `completions` and `man`: files for packages, generated from the definition of the command line.
#![expect(clippy::format_push_string, reason = "a few short lines, and easier to read")]

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap_complete::Shell;
use files::Error;

use crate::exit::EXIT_CODES;

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Arguments of `man`.
#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Write a page for each command into DIR instead of printing the main one
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

/// `anabranch completions`, for the command line that `command` describes.
///
/// # Errors
/// [`Error::System`] if standard output can't be written.
pub(crate) fn completions(args: &CompletionsArgs, mut command: clap::Command) -> Result<(), Error> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "anabranch", &mut script);
    print(&script)
}

/// `anabranch man`, for the command line that `command` describes.
///
/// # Errors
/// [`Error::System`] if a page can't be written.
pub(crate) fn man(args: &ManArgs, mut command: clap::Command) -> Result<(), Error> {
    command.build();
    let Some(directory) = &args.directory else {
        return print(&page(&command)?);
    };
    let failed = |action: &str, path: &Path| {
        let action = format!("{action} {}", path.display());
        move |source| Error::system(action, source)
    };
    fs::create_dir_all(directory).map_err(failed("make the folder", directory))?;
    let mut commands = vec![command];
    while let Some(command) = commands.pop() {
        let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_string();
        let path = directory.join(format!("{name}.1"));
        fs::write(&path, page(&command)?).map_err(failed("write", &path))?;
        commands.extend(
            command
                .get_subcommands()
                .filter(|sub| sub.get_name() != "help" && !sub.is_hide_set())
                .cloned(),
        );
    }
    Ok(())
}

fn page(command: &clap::Command) -> Result<Vec<u8>, Error> {
    let mut page = Vec::new();
    let man = clap_mangen::Man::new(command.clone());
    let rendered = man.render_title(&mut page).and_then(|()| man.render_name_section(&mut page));
    let rendered = rendered.and_then(|()| man.render_synopsis_section(&mut page));
    let rendered = rendered.and_then(|()| man.render_description_section(&mut page));
    let rendered = rendered.and_then(|()| man.render_options_section(&mut page));
    let rendered = if command.has_subcommands() {
        rendered.and_then(|()| man.render_subcommands_section(&mut page))
    } else {
        rendered
    };
    let rendered = rendered.and_then(|()| page.write_all(exit_status().as_bytes()));
    rendered.map_err(|source| Error::system("render the manual", source))?;
    Ok(page)
}

/// The exit codes as a section in roff.
fn exit_status() -> String {
    let mut section = String::from(".SH \"EXIT STATUS\"\n");
    for (code, meaning) in EXIT_CODES {
        // A line that begins with a full stop or a quote is a roff request; no meaning does.
        section.push_str(&format!(".TP\n.B {code}\n{}\n", meaning.replace('-', "\\-")));
    }
    section
}

/// Prints to standard output; a closed pipe is no error.
fn print(text: &[u8]) -> Result<(), Error> {
    match io::stdout().lock().write_all(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::system("write to standard output", error))
        }
        _ => Ok(()),
    }
}
