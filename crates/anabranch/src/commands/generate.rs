//! `completions` and `man`: files for packages, generated from the definition of the command line.
#![expect(clippy::format_push_string, reason = "a few short lines, and easier to read")]

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap_complete::Shell;
use clap_complete::env::Shells;
use files::Error;

use crate::complete;
use crate::examples::{self, Example};
use crate::exit::EXIT_CODES;
use crate::name;

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Arguments of `man`.
#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Write a page for each command into DIR, which exists, instead of printing the main one
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

/// `anabranch completions`: a script that asks the program for candidates.
///
/// # Errors
/// [`Error::System`] if standard output can't be written.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), Error> {
    let shell = args.shell.to_string();
    let shells = Shells::builtins();
    let shell = shells.completer(&shell).expect("every shell has a completer");
    let mut script = Vec::new();
    let name = name::of_program();
    let written = shell.write_registration(complete::VARIABLE, name, name, name, &mut script);
    written.map_err(|source| Error::system("write the script", source))?;
    print(&script)
}

/// `anabranch man`, for the command line that `command` describes.
///
/// # Errors
/// [`Error::usage`] if there is no such folder, [`Error::System`] if a page can't be written.
pub(crate) fn man(args: &ManArgs, mut command: clap::Command) -> Result<(), Error> {
    command.build();
    let Some(directory) = &args.directory else {
        return print(&page(&command)?);
    };
    let failed = |action: &str, path: &Path| {
        let action = format!("{action} {}", path.display());
        move |source| Error::system(action, source)
    };
    // 'anabranch man send' is no request for a folder of that name.
    if !directory.is_dir() {
        return Err(Error::usage(format!(
            "there is no folder {}: make it first. '{} COMMAND --help' shows the manual of a \
             command",
            directory.display(),
            name::of_program()
        )));
    }
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
    let rendered = rendered.and_then(|()| page.write_all(synopsis(command).as_bytes()));
    let rendered = rendered.and_then(|()| man.render_description_section(&mut page));
    let rendered = rendered.and_then(|()| man.render_options_section(&mut page));
    let rendered = if command.has_subcommands() {
        rendered.and_then(|()| man.render_subcommands_section(&mut page))
    } else {
        rendered
    };
    let rendered = rendered.and_then(|()| page.write_all(examples(command).as_bytes()));
    let rendered = rendered.and_then(|()| page.write_all(exit_status().as_bytes()));
    rendered.map_err(|source| Error::system("render the manual", source))?;
    Ok(page)
}

/// The usage as a section in roff, as `--help` has it.
fn synopsis(command: &clap::Command) -> String {
    let usage = command.clone().render_usage().to_string();
    let mut section = String::from(".SH SYNOPSIS\n");
    for (number, line) in usage.trim_start_matches("Usage: ").lines().enumerate() {
        let before = if number == 0 { "" } else { ".br\n" };
        section.push_str(&format!("{before}{}\n", escaped(line.trim())));
    }
    section
}

/// The examples as a section in roff; empty if there are none.
fn examples(command: &clap::Command) -> String {
    let all = examples::of(command.get_name());
    let mut section = String::from(if all.is_empty() { "" } else { ".SH EXAMPLES\n" });
    for Example { line, purpose } in all {
        section.push_str(&format!(
            "{}:\n.PP\n.RS 4\n.nf\n{}\n.fi\n.RE\n.PP\n",
            escaped(purpose),
            escaped(&name::in_line(line))
        ));
    }
    section
}

/// Text in roff. A line that begins with a full stop or a quote would be a request; none does.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq")
}

/// The exit codes as a section in roff.
fn exit_status() -> String {
    let mut section = String::from(".SH \"EXIT STATUS\"\n");
    for (code, meaning) in EXIT_CODES {
        section.push_str(&format!(".TP\n.B {code}\n{}\n", escaped(meaning)));
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
