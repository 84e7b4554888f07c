//! The configuration file: defaults for options of the command line.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::ValueEnum;
use files::{Error, Overwrite};
use peer::private::{Guard, check_private, open_input};
use peer::{CongestionControl, PathSpec, RelaySpec, Timetable};
use stripe::Effort;
use toml::de::{DeTable, DeValue};
use units::{Bytes, Span};

use crate::compression::CompressChoice;
use crate::dirs::{Dirs, is_absent};
use crate::hooks::{HookCommand, Hooks};
use crate::listen::ListenAddress;
use crate::metrics::MetricsAddress;
use crate::schedulers::{Carrier, Scheduler, congestion_control, controller, packet_scheduler};
use crate::via::ViaSpec;
use crate::watch::Style;

/// The settings of the file; `None` or empty where it has none.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) progress: Option<Style>,
    pub(crate) send: Send,
    pub(crate) receive: Receive,
    pub(crate) serve: Serve,
    pub(crate) host: Host,
    pub(crate) relay: Relay,
    pub(crate) tunnel: Tunnel,
    pub(crate) collect: Collect,
    /// The tables that are there, also empty ones: those of services name what `host` does.
    pub(crate) tables: BTreeSet<String>,
}

/// `[send]`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Send {
    pub(crate) paths: Vec<PathSpec>,
    pub(crate) no_paths: Vec<String>,
    pub(crate) relays: Vec<RelaySpec>,
    pub(crate) scheduler: Option<Scheduler>,
    pub(crate) carrier: Option<Carrier>,
    pub(crate) background: Effort,
    pub(crate) controller: Option<String>,
    pub(crate) packet_scheduler: Option<String>,
    pub(crate) weight: Option<u16>,
    pub(crate) qlog: Option<PathBuf>,
    pub(crate) congestion_control: Option<CongestionControl>,
    pub(crate) max_rate: Option<Timetable>,
    pub(crate) patience: Option<Span>,
    pub(crate) verify: bool,
    pub(crate) compress: Option<CompressChoice>,
    pub(crate) hooks: Hooks,
}

/// `[receive]`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Receive {
    pub(crate) background: Effort,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) listen: Vec<ListenAddress>,
    pub(crate) port: Option<u16>,
    pub(crate) via: Vec<ViaSpec>,
    pub(crate) keep: bool,
    pub(crate) parallel: Option<u16>,
    pub(crate) timeout: Option<Span>,
    pub(crate) overwrite: Overwrite,
    pub(crate) allow_delete: bool,
    pub(crate) archive: bool,
    pub(crate) qlog: Option<PathBuf>,
    pub(crate) hooks: Hooks,
}

/// `[serve]`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Serve {
    pub(crate) background: Effort,
    pub(crate) directory: Option<PathBuf>,
}

/// `[host]`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) background: Effort,
    pub(crate) listen: Vec<ListenAddress>,
    pub(crate) port: Option<u16>,
    pub(crate) via: Vec<ViaSpec>,
    pub(crate) qlog: Option<PathBuf>,
    pub(crate) metrics: Option<MetricsAddress>,
    pub(crate) hooks: Hooks,
}

/// `[relay]`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Relay {
    pub(crate) listen: Vec<ListenAddress>,
    pub(crate) port: Option<u16>,
    pub(crate) max_rate: Option<Timetable>,
    pub(crate) no_guests: bool,
    pub(crate) metrics: Option<MetricsAddress>,
}

/// `[tunnel]`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tunnel {
    pub(crate) background: Effort,
}

/// `[collect]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Collect {
    pub(crate) background: Effort,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) rotate: Option<Bytes>,
    pub(crate) exec: Option<HookCommand>,
}

/// Tables that may have no key.
const TABLES: [&str; 8] =
    ["send", "receive", "serve", "tunnel", "measure", "relay", "collect", "host"];

/// The numbers that `--parallel` takes.
pub(crate) const PARALLEL: RangeInclusive<u16> = 1..=64;

/// The numbers that `--weight` takes.
pub(crate) const WEIGHT: RangeInclusive<u16> = 1..=64;

/// Reads a weight from the command line.
pub(crate) fn weight() -> clap::builder::RangedI64ValueParser<u16> {
    clap::value_parser!(u16).range(i64::from(*WEIGHT.start())..=i64::from(*WEIGHT.end()))
}

type Setter = fn(&mut Config, &DeValue<'_>) -> Result<(), String>;

/// Every key: its table (empty for the top level), its name, and its setter.
const KEYS: &[(&str, &str, Setter)] = &[
    ("", "progress", |c, v| set(&mut c.progress, choice(v))),
    ("send", "paths", |c, v| {
        // A modem need not be plugged in each time.
        let paths: Vec<PathSpec> = list(v)?;
        c.send.paths = paths.into_iter().map(PathSpec::if_there).collect();
        Ok(())
    }),
    ("send", "no-paths", |c, v| list(v).map(|paths| c.send.no_paths = paths)),
    ("send", "relays", |c, v| list(v).map(|relays| c.send.relays = relays)),
    ("send", "scheduler", |c, v| set(&mut c.send.scheduler, choice(v))),
    ("send", "compress", |c, v| set(&mut c.send.compress, choice(v))),
    ("send", "carrier", |c, v| set(&mut c.send.carrier, choice(v))),
    ("send", "background", |c, v| background(v).map(|effort| c.send.background = effort)),
    ("send", "controller", |c, v| set(&mut c.send.controller, text(v).and_then(controller))),
    ("send", "packet-scheduler", |c, v| {
        set(&mut c.send.packet_scheduler, text(v).and_then(packet_scheduler))
    }),
    ("send", "weight", |c, v| set(&mut c.send.weight, number(v, &WEIGHT))),
    ("send", "qlog", |c, v| set(&mut c.send.qlog, parsed(v))),
    ("send", "congestion-control", |c, v| {
        set(&mut c.send.congestion_control, text(v).and_then(congestion_control))
    }),
    ("send", "max-rate", |c, v| set(&mut c.send.max_rate, parsed(v))),
    ("send", "patience", |c, v| set(&mut c.send.patience, parsed(v))),
    ("send", "verify", |c, v| flag(v).map(|on| c.send.verify = on)),
    ("send", "on-done", |c, v| set(&mut c.send.hooks.on_done, parsed(v))),
    ("send", "on-error", |c, v| set(&mut c.send.hooks.on_error, parsed(v))),
    ("receive", "background", |c, v| background(v).map(|effort| c.receive.background = effort)),
    ("receive", "directory", |c, v| set(&mut c.receive.directory, parsed(v))),
    ("receive", "listen", |c, v| list(v).map(|addresses| c.receive.listen = addresses)),
    ("receive", "port", |c, v| set(&mut c.receive.port, port(v))),
    ("receive", "via", |c, v| list(v).map(|relays| c.receive.via = relays)),
    ("receive", "keep", |c, v| flag(v).map(|on| c.receive.keep = on)),
    ("receive", "parallel", |c, v| set(&mut c.receive.parallel, number(v, &PARALLEL))),
    ("receive", "timeout", |c, v| set(&mut c.receive.timeout, parsed(v))),
    ("receive", "allow-delete", |c, v| flag(v).map(|on| c.receive.allow_delete = on)),
    ("receive", "qlog", |c, v| set(&mut c.receive.qlog, parsed(v))),
    ("receive", "on-done", |c, v| set(&mut c.receive.hooks.on_done, parsed(v))),
    ("receive", "on-error", |c, v| set(&mut c.receive.hooks.on_error, parsed(v))),
    ("serve", "background", |c, v| background(v).map(|effort| c.serve.background = effort)),
    ("serve", "directory", |c, v| set(&mut c.serve.directory, parsed(v))),
    ("host", "background", |c, v| background(v).map(|effort| c.host.background = effort)),
    ("host", "listen", |c, v| list(v).map(|addresses| c.host.listen = addresses)),
    ("host", "port", |c, v| set(&mut c.host.port, port(v))),
    ("host", "via", |c, v| list(v).map(|relays| c.host.via = relays)),
    ("host", "qlog", |c, v| set(&mut c.host.qlog, parsed(v))),
    ("host", "metrics", |c, v| set(&mut c.host.metrics, metrics(v))),
    ("host", "on-done", |c, v| set(&mut c.host.hooks.on_done, parsed(v))),
    ("host", "on-error", |c, v| set(&mut c.host.hooks.on_error, parsed(v))),
    ("relay", "listen", |c, v| list(v).map(|addresses| c.relay.listen = addresses)),
    ("relay", "port", |c, v| set(&mut c.relay.port, port(v))),
    ("relay", "max-rate", |c, v| set(&mut c.relay.max_rate, parsed(v))),
    ("relay", "no-guests", |c, v| flag(v).map(|on| c.relay.no_guests = on)),
    ("relay", "metrics", |c, v| set(&mut c.relay.metrics, metrics(v))),
    ("collect", "background", |c, v| background(v).map(|effort| c.collect.background = effort)),
    ("tunnel", "background", |c, v| background(v).map(|effort| c.tunnel.background = effort)),
    ("collect", "directory", |c, v| set(&mut c.collect.directory, parsed(v))),
    ("collect", "rotate", |c, v| set(&mut c.collect.rotate, parsed(v))),
    ("collect", "exec", |c, v| set(&mut c.collect.exec, parsed(v))),
    ("receive", "archive", |c, v| flag(v).map(|on| c.receive.archive = on)),
    ("receive", "overwrite", |c, v| {
        flag(v).map(|on| {
            c.receive.overwrite = if on { Overwrite::Always } else { Overwrite::Never };
        })
    }),
];

/// The longest configuration that is read, in bytes: a device has no end.
const MOST_TEXT: u64 = 1 << 20;

impl Config {
    /// Reads the file `named`, or the default file, which need not exist.
    ///
    /// # Errors
    /// [`Error::usage`] with file, line and key of a mistake, [`Error::System`] if the file can't
    /// be read.
    pub(crate) fn load(named: Option<&Path>, dirs: &Dirs) -> Result<Config, Error> {
        let default = dirs.config_file();
        let path = named.unwrap_or(&default);
        let mut text = String::new();
        let opened = open_input(path);
        let read = opened.and_then(|file| {
            (&file).take(MOST_TEXT).read_to_string(&mut text)?;
            Ok(file)
        });
        match read {
            Ok(file) => {
                let config = Config::parse(&text)
                    .map_err(|why| Error::usage(format!("{}, {why}", path.display())))?;
                config.check_commands(&file, path)?;
                Ok(config)
            }
            Err(error) if named.is_none() && is_absent(&error) => Ok(Config::default()),
            Err(source) => Err(Error::system(format!("read {}", path.display()), source)),
        }
    }

    /// Checks that nobody else may change a file that names commands; a pipe is this user's own.
    fn check_commands(&self, file: &File, path: &Path) -> Result<(), Error> {
        let all = [&self.send.hooks, &self.receive.hooks, &self.host.hooks];
        let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
        let has_none = all.into_iter().all(Hooks::is_empty) && self.collect.exec.is_none();
        if has_none || !is_file {
            return Ok(());
        }
        check_private(file, path, Guard::Trusted).map_err(|source| {
            Error::system(format!("run commands named in {}", path.display()), source)
        })
    }

    /// Parses a file's text. The error begins with "line N: ".
    fn parse(source: &str) -> Result<Config, String> {
        let line =
            |offset: usize| source.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1;
        let document = DeTable::parse(source).map_err(|e| {
            format!("line {}: {}", line(e.span().map_or(0, |span| span.start)), e.message())
        })?;
        let mut config = Config::default();
        let mut pending = vec![(String::new(), document.get_ref())];
        while let Some((table, entries)) = pending.pop() {
            for (key, value) in entries {
                let at = |why: String| format!("line {}: {why}", line(key.span().start));
                let name: &str = key.get_ref();
                let setter = KEYS.iter().find(|(of, known, _)| *of == table && *known == name);
                if let Some((_, _, setter)) = setter {
                    setter(&mut config, value.get_ref())
                        .map_err(|why| at(format!("{name}: {why}")))?;
                    continue;
                }
                match value.get_ref() {
                    DeValue::Table(inner) if table.is_empty() && TABLES.contains(&name) => {
                        config.tables.insert(name.to_string());
                        pending.push((name.to_string(), inner));
                    }
                    _ => return Err(at(unknown(&table, name))),
                }
            }
        }
        Ok(config)
    }
}

/// "unknown key 'schedular' in [send]; did you mean 'scheduler'?"
fn unknown(table: &str, name: &str) -> String {
    let place = if table.is_empty() { String::new() } else { format!(" in [{table}]") };
    let tables = TABLES.into_iter().filter(|_| table.is_empty());
    let here =
        KEYS.iter().filter(|(of, ..)| *of == table).map(|(_, known, _)| *known).chain(tables);
    let nearest = here.map(|known| (strsim::damerau_levenshtein(known, name), known)).min();
    let hint = match nearest {
        Some((distance, known)) if distance <= known.len() / 2 => {
            format!("; did you mean '{known}'?")
        }
        _ => match KEYS.iter().find(|(of, known, _)| *known == name && !of.is_empty()) {
            Some((of, ..)) => format!("; it belongs in [{of}]"),
            None => String::new(),
        },
    };
    format!("unknown key '{name}'{place}{hint}")
}

fn set<T>(place: &mut Option<T>, value: Result<T, String>) -> Result<(), String> {
    value.map(|value| *place = Some(value))
}

fn text<'a>(value: &'a DeValue<'_>) -> Result<&'a str, String> {
    value.as_str().ok_or_else(|| "expected a string in quotes".to_string())
}

fn parsed<T: FromStr<Err: ToString>>(value: &DeValue<'_>) -> Result<T, String> {
    text(value)?.parse().map_err(|e: T::Err| e.to_string())
}

fn choice<T: ValueEnum>(value: &DeValue<'_>) -> Result<T, String> {
    let given = text(value)?;
    T::from_str(given, false).map_err(|_| {
        let known: Vec<String> = T::value_variants()
            .iter()
            .filter_map(T::to_possible_value)
            .map(|v| v.get_name().to_string())
            .collect();
        format!("'{given}' is none of {}", known.join(", "))
    })
}

fn list<T: FromStr<Err: ToString>>(value: &DeValue<'_>) -> Result<Vec<T>, String> {
    let items = value.as_array().ok_or("expected a list, such as [\"wlan0\", \"eth0\"]")?;
    items.iter().map(|item| parsed(item.get_ref())).collect()
}

fn flag(value: &DeValue<'_>) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| "expected true or false".to_string())
}

/// Whether something is in the background: true, false, or without marks of its packets.
fn background(value: &DeValue<'_>) -> Result<Effort, String> {
    match (value.as_bool(), value.as_str()) {
        (Some(true), _) => Ok(Effort::Lower),
        (Some(false), _) => Ok(Effort::Usual),
        (_, Some("unmarked")) => Ok(Effort::LowerUnmarked),
        _ => Err("expected true, false or \"unmarked\"".into()),
    }
}

fn port(value: &DeValue<'_>) -> Result<u16, String> {
    let number = value
        .as_integer()
        .and_then(|number| u16::from_str_radix(number.as_str(), number.radix()).ok());
    number.ok_or_else(|| "expected a port from 0 to 65535".to_string())
}

/// An address in quotes, or a port of loopback.
fn metrics(value: &DeValue<'_>) -> Result<MetricsAddress, String> {
    if value.as_integer().is_some() { port(value).map(MetricsAddress::from) } else { parsed(value) }
}

/// A number of a range.
fn number(value: &DeValue<'_>, range: &RangeInclusive<u16>) -> Result<u16, String> {
    let number = value
        .as_integer()
        .and_then(|number| u16::from_str_radix(number.as_str(), number.radix()).ok());
    number
        .filter(|number| range.contains(number))
        .ok_or_else(|| format!("expected a number from {} to {}", range.start(), range.end()))
}

#[cfg(test)]
mod tests {
    use peer::MomentOfWeek;

    use units::Rate;

    use super::*;
    use crate::listen::socket_addresses;

    #[test]
    fn everything_is_read() {
        let config = Config::parse(
            r#"
            progress = "plain"
            [send]
            paths = ["wlan0", "wwan0,backup,max=5 Mbit/s,cap=10GB/month"]
            no-paths = ["tun0"]
            scheduler = "adjustable-block"
            congestion-control = "bbr"
            max-rate = "08:00,10mbit 18:00,off"
            patience = "10 min"
            verify = true
            background = "unmarked"
            on-done = "sh -c true"
            on-error = "sh -c 'exit 1'"
            [receive]
            directory = "/srv/in"
            listen = ["192.0.2.1", "[2001:db8::1]:9000"]
            port = 7000
            keep = true
            parallel = 8
            timeout = "10 min"
            overwrite = false
            allow-delete = true
            archive = true
            "#,
        )
        .unwrap();
        assert_eq!(config.send.paths[1].max, Some(Rate::mbit(5)));
        let table = config.send.max_rate.unwrap();
        assert_eq!(table.at(MomentOfWeek::new(3, 12, 0, 0)), Some(Rate::mbit(10)));
        assert_eq!(table.at(MomentOfWeek::new(3, 6, 0, 0)), None);
        assert_eq!(config.send.congestion_control, Some(CongestionControl::Named("bbr".into())));
        assert_eq!(config.send.background, Effort::LowerUnmarked);
        assert_eq!(config.send.patience, Some(Span::from_secs(600)));
        assert_eq!(config.send.hooks.on_done, Some("sh -c true".parse().unwrap()));
        assert_eq!(config.send.hooks.on_error, Some("sh -c 'exit 1'".parse().unwrap()));
        let listen = socket_addresses(&config.receive.listen, config.receive.port.unwrap());
        assert_eq!(
            listen,
            ["192.0.2.1:7000".parse().unwrap(), "[2001:db8::1]:9000".parse().unwrap()]
        );
        assert_eq!(config.receive.overwrite, Overwrite::Never);
        assert_eq!(config.receive.parallel, Some(8));
        assert_eq!(config.receive.timeout, Some(Span::from_secs(600)));
        assert!(config.receive.keep && config.receive.allow_delete && config.receive.archive);
        assert_eq!(Config::parse(""), Ok(Config::default()));
    }

    /// Every text at a distance of one edit parses, or gives a message with one of its lines.
    #[test]
    fn any_edit_is_read_or_named() {
        let source = "progress = \"plain\"\n[send]\npaths = [\"wlan0\", \"wwan0,backup,max=5 \
                      Mbit/s,cap=10GB/month\"]\n\
                      max-rate = \"08:00,10mbit Mon-18:00,off\"\npatience = \"10 min\"\nverify = \
                      true\n[receive]\n\
                      listen = [\"192.0.2.1\", \"[2001:db8::1]:9000\"]\nport = 7000\n";
        assert!(Config::parse(source).is_ok());
        let lines = source.lines().count() + 1;
        for at in 0..source.len() {
            for with in ["", "\"", "]", "=", "\n", "0", "-", "e9", ":", ",", "ü", "\u{0}"] {
                for kept in [at, at + 1] {
                    let text = [&source[..at], with, &source[kept..]].concat();
                    if let Err(why) = Config::parse(&text) {
                        let line = why
                            .strip_prefix("line ")
                            .and_then(|rest| rest.split_once(": "))
                            .expect("a line");
                        let number: usize = line.0.parse().expect("its number");
                        assert!(
                            (1..=lines + 1).contains(&number) && !line.1.is_empty(),
                            "{text}: {why}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn every_mistake_names_its_line() {
        for (source, expected) in [
            (
                "[send]\n\nschedular = 'static'",
                "line 3: unknown key 'schedular' in [send]; did you mean 'scheduler'?",
            ),
            ("[sned]\nverify = true", "line 1: unknown key 'sned'; did you mean 'send'?"),
            ("scheduler = 'static'", "line 1: unknown key 'scheduler'; it belongs in [send]"),
            ("[send]\nquality = 1", "line 2: unknown key 'quality' in [send]"),
            (
                "[send]\nbackground = 'maybe'",
                "line 2: background: expected true, false or \"unmarked\"",
            ),
            ("[send]\nverify = 'yes'", "line 2: verify: expected true or false"),
            ("\nprogress = 'bars'", "line 2: progress: 'bars' is none of auto, bar, plain, none"),
            ("[receive]\nport = 70000", "line 2: port: expected a port from 0 to 65535"),
            ("[receive]\nparallel = 0", "line 2: parallel: expected a number from 1 to 64"),
            ("[send]\nmax-rate = 5", "line 2: max-rate: expected a string in quotes"),
            (
                "[send]\npaths = ['wlan0,class=spare']",
                "line 2: paths: 'wlan0,class=spare', character 13: 'spare' is not primary, \
                 overflow, backup or background; write for example wlan0,backup or \
                 usb0,max=5mbit,cap=10GB/month",
            ),
            (
                "[send]\nmax-rate = '08:00,10'",
                "line 2: max-rate: '08:00,10', character 7: '10' is not a rate: write a number and \
                 a unit, for example 50 Mbit/s, 500 kbit, 2.5 MB/s, or off for no bound; write for \
                 example 80mbit, or 08:00,10mbit 18:00,off, or Mon-08:00,10mbit Fri-18:30,off",
            ),
        ] {
            assert_eq!(Config::parse(source), Err(expected.to_string()), "{source}");
        }
        let error = Config::parse("[send]\nverify = \n").unwrap_err();
        assert!(error.starts_with("line 2: "), "{error}");
    }
}
