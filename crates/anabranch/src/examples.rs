//! Examples of each command, for its `--help` and its manual page. A test parses each of them.

use crate::name;

/// A command line, and what it does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Example {
    /// The command line, which a shell would take.
    pub(crate) line: &'static str,
    /// Its purpose.
    pub(crate) purpose: &'static str,
}

const fn example(line: &'static str, purpose: &'static str) -> Example {
    Example { line, purpose }
}

/// Every command that has examples, by its name in the command line.
const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "cp",
        &[
            example("anabranch cp disk.img me@nas:backup", "Copy a file into a folder on nas"),
            example("anabranch cp nas:backup/photos .", "Copy a folder from nas to here"),
            example(
                "anabranch cp -J gate disk.img nas: --via r1.example.org",
                "Copy to a host that only ssh reaches: the data meets it at a relay",
            ),
            example(
                "anabranch cp -P 2222 -J gate photos notes.txt nas:",
                "Reach ssh on another port, through a jump host",
            ),
        ],
    ),
    (
        "receive",
        &[
            example("anabranch receive ~/incoming", "Print a token, and wait for one transfer"),
            example(
                "anabranch receive /srv/incoming --keep --no-token",
                "Serve trusted senders until it is stopped",
            ),
            example(
                "anabranch receive /srv/backup --archive",
                "As root: keep the owners and attributes that the sender chooses",
            ),
            example(
                "anabranch receive ~/incoming --via r1.example.org",
                "Wait at a relay too: prints a code for senders in other networks",
            ),
            example(
                "anabranch receive ~/incoming --token-out token",
                "Leave the token in a file, for a script that hands it over",
            ),
        ],
    ),
    (
        "send",
        &[
            example("anabranch send disk.img --to 192.0.2.7", "Send a file; asks for the token"),
            example(
                "anabranch send photos/ --to nas --exclude '*.tmp' --token-file token",
                "Send the contents of a folder, without some files",
            ),
            example(
                "anabranch send disk.img --to nas --path eth0 --path \
                 wwan0,backup,cap=10GB/month",
                "Choose the paths: the modem only while the cable fails",
            ),
            example(
                "anabranch send /srv/www --to nas --archive",
                "Keep owners, set-user-id bits, access lists and extended attributes",
            ),
            example(
                "anabranch send disk.img --via r1.example.org --code 48213-lantern-orbit-cedar",
                "Send to a host that waits at a relay, by the code that it shows",
            ),
            example(
                "anabranch send ~/photos --to nas --watch",
                "Send a folder, and then what changes in it",
            ),
            example(
                "anabranch send release.tar --to web1 --to web2 --to web3",
                "Send a file to several receivers at the same time",
            ),
        ],
    ),
    (
        "serve",
        &[
            example("anabranch serve /srv/photos", "Serve a folder to hosts with --may get"),
            example("anabranch serve /srv/photos --token --once", "Serve one host by token"),
        ],
    ),
    (
        "host",
        &[
            example("anabranch host", "Do what the configuration's tables say, at one port"),
            example(
                "anabranch host --config /etc/anabranch/host.toml --metrics 9707",
                "With another configuration, and metrics for Prometheus",
            ),
        ],
    ),
    (
        "get",
        &[
            example("anabranch get disk.img --from nas", "Get a file from a known server"),
            example(
                "anabranch get photos/2024 --from 192.0.2.7 --into ~/Pictures --token-file token",
                "Get a folder into another one",
            ),
            example(
                "anabranch get disk.img --from nas1 --from nas2",
                "Get one file from two servers at once",
            ),
        ],
    ),
    (
        "tunnel",
        &[
            example(
                "anabranch tunnel 192.0.2.7 --socks 1080",
                "A SOCKS5 proxy on loopback; asks for the token",
            ),
            example(
                "anabranch tunnel nas -L 8000:db.internal:5432 -R 2222:localhost:22",
                "Forward a port each way, as ssh does",
            ),
            example(
                "anabranch tunnel nas --http 8080 --path eth0 --path wwan0,backup",
                "An HTTP proxy; the modem only while the cable fails",
            ),
            example(
                "anabranch tunnel --via relay.example.org --code 48213-lantern-orbit-cedar -L \
                 5432:db:5432",
                "To a host that waits at a relay, by the code that it shows",
            ),
            example(
                "anabranch tunnel nas --transparent 3129 --for 10.20.0.0/16:443 \
                 --transparent-rules install",
                "As root: carry all connections to a network",
            ),
        ],
    ),
    (
        "serve-tunnel",
        &[
            example("anabranch serve-tunnel", "Dial for the hosts with --tunnel"),
            example(
                "anabranch serve-tunnel --token --permit '*:443'",
                "Let one host reach every web server by token",
            ),
            example(
                "anabranch serve-tunnel --token --permit db:5432 --via relay.example.org",
                "Wait at a relay, where this host cannot be dialed",
            ),
        ],
    ),
    (
        "feed",
        &[
            example(
                "anabranch feed - --to logs --name journal --spool /var/spool/journal",
                "Send the lines of a program as they come: journalctl -f -o cat | anabranch …",
            ),
            example(
                "anabranch feed --tail '/var/log/nginx/*.log*' --to logs --name nginx",
                "Follow logs, also when they are rotated",
            ),
            example(
                "anabranch feed readings.csv --to logs --token-file token",
                "Send a file's lines, and end when they are safe",
            ),
        ],
    ),
    (
        "collect",
        &[
            example("anabranch collect /srv/logs --token", "Keep what one host feeds, by token"),
            example(
                "anabranch collect /srv/logs --rotate 1GiB",
                "Keep what the hosts with --may feed send, in larger files",
            ),
            example(
                "anabranch collect --exec logger",
                "Run a command for each batch of records, which are its standard input",
            ),
            example("anabranch collect - --token", "Write records to standard output"),
        ],
    ),
    (
        "gateway",
        &[
            example(
                "anabranch gateway --config gateway.toml",
                "Be the gateway of a site, as the file says",
            ),
            example(
                "anabranch gateway rules --config gateway.toml",
                "Print the rules that mark background connections, as a shell script",
            ),
            example("anabranch gateway status", "Show what a gateway on this host does, by site"),
        ],
    ),
    (
        "relay",
        &[
            example("anabranch relay", "Relay for the hosts with --may relay or --relay"),
            example(
                "anabranch relay --max-rate 200mbit --metrics 9707",
                "No faster, in equal shares, with metrics for Prometheus",
            ),
            example("anabranch relay status", "Show what a relay on this host does, by key"),
            example(
                "anabranch relay --token --permit 'nas.example:7707'",
                "Let one more host reach nas, by token",
            ),
        ],
    ),
    (
        "paths",
        &[
            example("anabranch paths", "List the interfaces with a default route"),
            example("anabranch paths nas", "Try each interface and address of nas"),
            example("anabranch paths nas --token-file token", "Measure the rate of each path"),
            example(
                "anabranch paths --relay r1.example.org",
                "See what translates addresses in front of this host, and what would help",
            ),
        ],
    ),
    (
        "doctor",
        &[
            example("anabranch doctor", "Examine this host"),
            example("anabranch doctor nas --token-file token", "Examine and measure each path"),
        ],
    ),
    (
        "perf",
        &[
            example("anabranch perf --listen", "Print a token, and wait for hosts that measure"),
            example("anabranch perf nas", "Send for 10 s over each path, then over all together"),
            example(
                "anabranch perf nas --carrier udp --together -R -t 30s",
                "Receive for 30 s over all paths, over UDP",
            ),
        ],
    ),
    (
        "keys",
        &[
            example("anabranch keys", "Show the fingerprint of this host's key"),
            example(
                "anabranch keys trust receiver nas FINGERPRINT",
                "Send to nas, and get from it, without a token",
            ),
            example(
                "anabranch keys trust sender FINGERPRINT laptop --may both --dir laptop",
                "Let a host send here and get from here, in a folder of its own",
            ),
        ],
    ),
    (
        "simulate",
        &[
            example("anabranch simulate two.toml", "Run a scenario, and print a table"),
            example(
                "anabranch simulate two.toml --set flow.bulk.controller=bbr --seeds 10 --out two",
                "Change a value, run ten seeds, and store every run",
            ),
            example(
                "anabranch simulate two.toml --seeds 1 --plot two.svg --pcap two.pcap",
                "Draw the first run over time, and capture its packets",
            ),
            example("anabranch simulate --list", "Show controllers, schedulers and measures"),
        ],
    ),
    (
        "plot",
        &[
            example(
                "anabranch plot two goodput.svg --y goodput --of bulk --x link.line.queue",
                "Draw a measure over a parameter of a stored sweep",
            ),
            example(
                "anabranch plot two times.svg --cdf completion --by controller --size column",
                "Draw the distribution of completion times, for a column of a paper",
            ),
        ],
    ),
];

/// The examples of a command; empty if it has none.
pub(crate) fn of(command: &str) -> &'static [Example] {
    EXAMPLES.iter().find(|(name, _)| *name == command).map_or(&[], |(_, examples)| examples)
}

/// The examples of a command as the end of its `--help`.
pub(crate) fn help(command: &str) -> String {
    let shown = of(command).iter();
    let shown: Vec<String> = shown
        .map(|Example { line, purpose }| format!("  {purpose}:\n      {}", name::in_line(line)))
        .collect();
    format!("Examples:\n{}", shown.join("\n"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn every_example_is_a_command_line() {
        let fingerprint = peer::Identity::generate().unwrap().fingerprint().to_string();
        for (command, examples) in EXAMPLES {
            for Example { line, .. } in *examples {
                let line = line.replace("FINGERPRINT", &fingerprint).replace('\'', "");
                let words: Vec<&str> = line.split(' ').collect();
                assert_eq!(words[1], *command, "{line}");
                Cli::try_parse_from(&words).unwrap_or_else(|error| panic!("{line}: {error}"));
            }
        }
    }
}
