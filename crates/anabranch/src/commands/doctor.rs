//! `doctor`: diagnoses what limits the paths, and prints the commands that fix it.

use diagnose::PathProbe;
use diagnose::doctor::{Connection, Examination, Finding, Scope, Severity, examine};
use peer::{PathSpec, Remote};
use report::{Align, Table};
use serde::Serialize;
use units::{Rate, Span};

use relay::ClientOptions;

use super::credentials::known_credential;
use super::paths::{probing, runtime};
use crate::complete;
use crate::config::Config;
use crate::dirs::Dirs;
use crate::examples;
use crate::exit::Failure;
use crate::host_key::HostKey;
use crate::relays::client;
use crate::sanitize::{clean_json, clean_lines, without_error_numbers};
use crate::token::TokenSource;
use crate::translators::{self, Fronts};
use crate::via::relays_to_wait_at;

/// Increased when a key of the JSON output changes its meaning or is removed.
const VERSION: u32 = 1;
/// The exit code if a path has a problem.
const TROUBLE: u8 = 1;

/// Arguments of `doctor`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = examples::help("doctor"))]
pub(crate) struct DoctorArgs {
    /// Examine the paths to this host; with its token, or if its key is known, also measure each
    /// path alone and all together (two seconds each) [default: examine this host only]
    #[arg(value_name = "HOST[:PORT]", add = complete::receivers())]
    to: Option<Remote>,
    /// A path to examine, as for send; may be repeated [default: those of the configuration file,
    /// or every usable path]
    #[arg(
        long = "path",
        value_name = "IF[,cap=SIZE/month][,to=ADDR]",
        requires = "to",
        add = complete::interfaces()
    )]
    paths: Vec<PathSpec>,
    /// Write the findings as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    token: TokenSource,
}

/// `anabranch doctor`.
///
/// # Errors
/// [`Failure::Code`] with 1 if a path has a problem; errors of path discovery.
pub(crate) fn run(args: &DoctorArgs) -> Result<(), Failure> {
    let dirs = Dirs::from_env();
    let config = Config::load(None, &dirs)?;
    let mut in_front = Vec::new();
    let relays = relays_of(&config, &dirs, &mut in_front)?;
    let paths = if args.paths.is_empty() { config.send.paths } else { args.paths.clone() };
    let scope = match &args.to {
        None => Scope::Host,
        Some(remote) => match known_credential(&args.token, remote, &dirs)? {
            Some(credential) => {
                let mut terms = probing(remote, credential, &paths, &[], &dirs)?;
                terms.options.no_paths = config.send.no_paths;
                Scope::Receiver(Box::new(terms))
            }
            None => Scope::Remote(remote.clone(), paths),
        },
    };
    let runtime = runtime()?;
    let mut found = runtime.block_on(examine(&scope))?;
    if !relays.is_empty() {
        let Fronts { fronts, unreached } = runtime.block_on(translators::find(relays))?;
        in_front.extend(unreached.into_iter().map(|(relay, why)| of_relay(relay, why)));
        in_front.extend(fronts.iter().map(translation));
    }
    found.findings.extend(in_front);
    found.findings.sort_by_key(|finding| finding.severity);
    if args.json {
        outln!("{}", json(&found));
    } else {
        out!("{}", shown(&found));
        if matches!(scope, Scope::Remote(..)) {
            outln!(
                "\nWith the receiver's token (--token-file, --token-stdin) the paths are also \
                 measured."
            );
        }
    }
    if found.all_is_well() { Ok(()) } else { Err(Failure::Code(TROUBLE)) }
}

/// The relays that the configuration names, each once; what is wrong with one goes to `findings`.
fn relays_of(
    config: &Config,
    dirs: &Dirs,
    findings: &mut Vec<Finding>,
) -> Result<Vec<ClientOptions>, Failure> {
    let mut relays: Vec<ClientOptions> = Vec::new();
    let (used, waited_at) = (&config.send.relays, [&config.receive.via, &config.host.via]);
    if used.is_empty() && waited_at.iter().all(|via| via.is_empty()) {
        return Ok(relays);
    }
    let identity = HostKey::load(dirs)?.or_temporary()?;
    let mut note = |relay: String, made: Result<ClientOptions, files::Error>| match made {
        Ok(options) if relays.iter().all(|known| known.dial != options.dial) => {
            relays.push(options);
        }
        Ok(_) => {}
        Err(error) => findings.push(of_relay(relay, error.to_string())),
    };
    for spec in used {
        note(spec.dial.to_string(), client(spec, &identity, dirs));
    }
    for spec in waited_at.into_iter().flatten() {
        let made = relays_to_wait_at(std::slice::from_ref(spec), &identity, dirs);
        note(spec.to_string(), made.map(|mut one| one.remove(0)));
    }
    Ok(relays)
}

/// What is wrong with a relay.
fn of_relay(subject: String, text: String) -> Finding {
    Finding { check: "relay", severity: Severity::Trouble, subject, text, mend: None }
}

/// What stands in front of a local address.
fn translation(front: &translators::Front) -> Finding {
    let subject = format!("{} ({})", front.interface, front.local);
    match &front.found {
        Ok(found) => {
            let mut text = format!(
                "translator: {}; seen outside as {}; direct ways over UDP with hosts behind: {}",
                found.kind(),
                found.outside,
                found.direct_ways()
            );
            if let Some(remedy) = front.remedy() {
                text = format!("{text}; for direct ways with all, {remedy}");
            }
            let (check, severity) = ("translator", Severity::Note);
            Finding { check, severity, subject, text, mend: None }
        }
        Err(why) => of_relay(subject, why.clone()),
    }
}

/// The examination for people. Other hosts chose parts of it.
fn shown(found: &Examination) -> String {
    let mut text = String::new();
    if !found.probes.is_empty() {
        text.push_str(&probes(&found.probes, &found.together).to_string());
    }
    if !found.connections.is_empty() {
        text.push_str(&connections(&found.connections).to_string());
    }
    for finding in &found.findings {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&lines(finding));
    }
    if found.all_is_well() {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str("No path has a problem.\n");
    }
    clean_lines(&text).into_owned()
}

fn milliseconds(span: Span) -> String {
    format!("{:.1} ms", span.as_secs_f64() * 1e3)
}

fn probes(probes: &[PathProbe], together: &[Rate]) -> Table {
    let mut table = Table::new([
        ("path", Align::Left),
        ("to", Align::Left),
        ("round trip", Align::Right),
        ("alone", Align::Right),
        ("together", Align::Right),
    ]);
    let mut alone = Rate::ZERO;
    for (probe, together) in probes.iter().zip(together) {
        let (rtt, rate, together) = match &probe.carries {
            Ok(carries) => {
                alone = alone + carries.rate;
                (milliseconds(carries.rtt), carries.rate.to_string(), together.to_string())
            }
            Err(_) => ("-".into(), "nothing".into(), "-".into()),
        };
        let remote = probe.remote.map_or_else(|| "-".into(), |remote| remote.to_string());
        table.row([probe.name.clone(), remote, rtt, rate, together]);
    }
    if probes.len() > 1 {
        let all: Rate = together.iter().copied().sum();
        table.row(["all".into(), String::new(), String::new(), alone.to_string(), all.to_string()]);
    }
    table
}

fn connections(connections: &[Connection]) -> Table {
    let mut table = Table::new([
        ("interface", Align::Left),
        ("to", Align::Left),
        ("connects in", Align::Right),
    ]);
    for connection in connections {
        let opened = connection.opened.as_ref().map_or_else(
            |why| without_error_numbers(why).to_lowercase(),
            |span| milliseconds(*span),
        );
        table.row([connection.interface.clone(), connection.remote.to_string(), opened]);
    }
    table
}

fn lines(finding: &Finding) -> String {
    let severity = match finding.severity {
        Severity::Trouble => "trouble",
        Severity::Note => "note",
    };
    let subject =
        if finding.subject.is_empty() { String::new() } else { format!("{}: ", finding.subject) };
    let mut text = format!(
        "{severity} ({}): {subject}{}\n",
        finding.check,
        without_error_numbers(&finding.text)
    );
    if let Some(mend) = &finding.mend {
        let place = if mend.at_receiver { "on the receiving machine: " } else { "" };
        text.push_str("    ");
        text.push_str(place);
        text.push_str(&mend.command);
        text.push('\n');
    }
    text
}

/// The examination as JSON.
fn json(found: &Examination) -> String {
    let report = serde_json::to_string(&Report::of(found));
    clean_json(&report.expect("numbers and strings have a JSON form")).into_owned()
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    v: u32,
    well: bool,
    findings: Vec<FindingEntry<'a>>,
    paths: Vec<PathEntry<'a>>,
}

#[derive(Debug, Serialize)]
struct FindingEntry<'a> {
    check: &'a str,
    severity: &'static str,
    subject: Option<&'a str>,
    text: &'a str,
    mend: Option<&'a str>,
    mend_at: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct PathEntry<'a> {
    name: &'a str,
    /// `None` if the interface reaches no address of the receiver.
    remote: Option<String>,
    rtt: Option<f64>,
    alone: Option<u64>,
    together: Option<u64>,
    loss: Option<f64>,
    error: Option<&'a str>,
}

impl Report<'_> {
    fn of(found: &Examination) -> Report<'_> {
        let findings = found.findings.iter().map(|finding| FindingEntry {
            check: finding.check,
            severity: if finding.severity == Severity::Trouble { "trouble" } else { "note" },
            subject: Some(finding.subject.as_str()).filter(|subject| !subject.is_empty()),
            text: &finding.text,
            mend: finding.mend.as_ref().map(|mend| mend.command.as_str()),
            mend_at: finding
                .mend
                .as_ref()
                .map(|mend| if mend.at_receiver { "receiver" } else { "here" }),
        });
        let probed = found.probes.iter().zip(&found.together).map(|(probe, together)| {
            let carries = probe.carries.as_ref().ok();
            PathEntry {
                name: &probe.name,
                remote: probe.remote.map(|remote| remote.to_string()),
                rtt: carries.map(|carries| carries.rtt.as_secs_f64()),
                alone: carries.map(|carries| carries.rate.as_bits()),
                together: carries.map(|_| together.as_bits()),
                loss: carries.map(|carries| carries.loss),
                error: probe.carries.as_ref().err().map(String::as_str),
            }
        });
        let connected = found.connections.iter().map(|connection| PathEntry {
            name: &connection.interface,
            remote: Some(connection.remote.to_string()),
            rtt: connection.opened.as_ref().ok().map(|span| span.as_secs_f64()),
            alone: None,
            together: None,
            loss: None,
            error: connection.opened.as_ref().err().map(String::as_str),
        });
        Report {
            v: VERSION,
            well: found.all_is_well(),
            findings: findings.collect(),
            paths: probed.chain(connected).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_other_hosts_are_cleaned() {
        let words = "gone\u{1b}]0;x\u{7}\u{202e}\u{9b}2J";
        let finding = Finding {
            check: "connect",
            severity: Severity::Trouble,
            subject: words.into(),
            text: words.into(),
            mend: None,
        };
        let probe = PathProbe {
            name: words.into(),
            local: None,
            interface: words.into(),
            remote: None,
            small_segments_only: false,
            used_up: false,
            candidates: Vec::new(),
            carries: Err(words.into()),
        };
        let found = Examination {
            findings: vec![finding],
            probes: vec![probe],
            together: vec![Rate::ZERO],
            connections: Vec::new(),
        };
        for text in [shown(&found), json(&found)] {
            let harmful = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
            assert!(text.contains("gone") && !text.contains(harmful), "{text:?}");
        }
    }
}
