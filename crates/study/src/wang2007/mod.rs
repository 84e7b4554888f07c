//! The overlay's rate control and path choice in the fluid study: "Application-layer multipath data
//! transfer via TCP: Schemes and performance tradeoffs" (2007).

mod control;
mod iterations;
mod live;
mod packets;
mod rates;
mod runs;
mod settings;

use crate::figure::{Figure, File, RealRuns, Study};

/// The study.
pub const STUDY: Study = Study {
    paper: "wang2007",
    title: "Application-layer multipath data transfer via TCP (2007), reproduced",
    about: "A hundred sources, each with a demand, deliver over a few of a hundred relays. Each \
            shifts its rates between its paths by what arrives, and draws other relays while its \
            demand is not met. The paper’s curves survive as text only: where it gives no number, \
            what is expected comes from an independent model of the same rules.",
    figures: &[
        Figure {
            name: "3",
            title: "Four sources on four relays",
            about: "Max-min rates leave s3 and s4 short; the optimum, 24 Mbit/s, wants s4 to move \
                    to r4 and s3 to r3.",
            files: &[File {
                name: "3.toml",
                text: include_str!("../../../../papers/wang2007/3.toml"),
            }],
            make: control::figure_3,
        },
        Figure {
            name: "4a",
            title: "The rate over time",
            about: "Additive control from no rate at all: a smaller increment takes longer and \
                    comes closer to the optimum.",
            files: &[File {
                name: "4a.toml",
                text: include_str!("../../../../papers/wang2007/4a.toml"),
            }],
            make: control::figure_4a,
        },
        Figure {
            name: "4b",
            title: "The gap to the optimum",
            about: "The control ends within 4 % of the optimum, whatever the rule, the increment \
                    and the initial rates.",
            files: &[File {
                name: "4b.toml",
                text: include_str!("../../../../papers/wang2007/4b.toml"),
            }],
            make: control::figure_4b,
        },
        Figure {
            name: "4c",
            title: "The time to converge",
            about: "From nothing, multiplicative control is much faster than additive; from \
                    max-min rates additive control takes tens of intervals.",
            files: &[File {
                name: "4c.toml",
                text: include_str!("../../../../papers/wang2007/4c.toml"),
            }],
            make: control::figure_4c,
        },
        Figure {
            name: "5",
            title: "The rate over the number of paths",
            about: "The second path brings most; after the fourth little is left to gain. \
                    Proportional choice matters where relays differ much.",
            files: &[File {
                name: "5.toml",
                text: include_str!("../../../../papers/wang2007/5.toml"),
            }],
            make: rates::figure_5,
        },
        Figure {
            name: "6",
            title: "The rate over supply by demand",
            about: "Steep up to f = 1, flat beyond; by f = 2 nearly every demand is met, but for \
                    uniform choice among relays that differ much.",
            files: &[File {
                name: "6.toml",
                text: include_str!("../../../../papers/wang2007/6.toml"),
            }],
            make: rates::figure_6,
        },
        Figure {
            name: "7",
            title: "Iterations until every demand is met",
            about: "With reselection a few iterations are enough where supply is ample; uniform \
                    choice among relays that differ much takes tens. If everybody draws anew, it \
                    never ends.",
            files: &[
                File { name: "7.toml", text: include_str!("../../../../papers/wang2007/7.toml") },
                File {
                    name: "7-control.toml",
                    text: include_str!("../../../../papers/wang2007/7-control.toml"),
                },
                File {
                    name: "7-baseline.toml",
                    text: include_str!("../../../../papers/wang2007/7-baseline.toml"),
                },
            ],
            make: rates::figure_7,
        },
        Figure {
            name: "extra",
            title: "What the paper mentions without a figure",
            about: "Estimates of capacities that err by up to 50 %, demands of 1, 10 and 100 \
                    Mbit/s, of 120 Mbit/s, and three paths.",
            files: &[
                File {
                    name: "extra.toml",
                    text: include_str!("../../../../papers/wang2007/extra.toml"),
                },
                File {
                    name: "extra-paths.toml",
                    text: include_str!("../../../../papers/wang2007/extra-paths.toml"),
                },
            ],
            make: rates::extra,
        },
    ],
    real: None,
};

/// The paper's simulations in ns-2. A study of its own, since it takes longer than all figures
/// together.
pub const PACKETS: Study = Study {
    paper: "wang2007-packets",
    title: "Application-layer multipath data transfer via TCP (2007), packet by packet",
    about: "The rate control of the numerical study over TCP and relays in the simulator, with \
            packets of 500 B and control intervals of 10 round trips: relays push back, receivers \
            count, and TCP decides what arrives. The paper says that all of its cases come within \
            7 % of the optimum, in \
            tens of intervals.",
    figures: &[
        Figure {
            name: "small",
            title: "Demands of 1.2 Mbit/s",
            about: "A hundred sources and relays, as in the paper; round trips of 40 ms.",
            files: &[File {
                name: "small.toml",
                text: include_str!("../../../../papers/wang2007-packets/small.toml"),
            }],
            make: packets::figure,
        },
        Figure {
            name: "large",
            title: "Demands of 6 Mbit/s",
            about: "Fifty sources and relays; round trips of 20 ms.",
            files: &[File {
                name: "large.toml",
                text: include_str!("../../../../papers/wang2007-packets/large.toml"),
            }],
            make: packets::figure,
        },
        Figure {
            name: "mixed",
            title: "Demands of 1.2, 3.6 and 6 Mbit/s",
            about: "Each source has one of the three, drawn at random; fifty sources and relays, \
                    round trips of 20 ms.",
            files: &[File {
                name: "mixed.toml",
                text: include_str!("../../../../papers/wang2007-packets/mixed.toml"),
            }],
            make: packets::figure,
        },
        Figure {
            name: "7",
            title: "Iterations until every demand is met",
            about: "Twenty sources and relays: sources with unmet demand draw other paths, over \
                    TCP and relays; beside them the fluid study.",
            files: &[File {
                name: "7.toml",
                text: include_str!("../../../../papers/wang2007-packets/7.toml"),
            }],
            make: iterations::figure,
        },
    ],
    real: None,
};

/// Live sources: the program itself over relays.
pub const LIVE: Study = Study {
    paper: "wang2007-live",
    title: "Application-layer multipath data transfer via TCP (2007), live",
    about: "Sources, relays and a collector that are processes of this program, with kernel TCP \
            and TLS over emulated links: feeds with a demand that choose two of eight relays and \
            shift their rates by what the collector counts. Beside them stand the packet-level \
            simulator, which runs the same sources, and the fluid study, with the same demands and \
            capacities. The paper has simulations only.",
    figures: &[
        Figure {
            name: "draws",
            title: "Draws until all sources have what they demand",
            about: "A few draws where supply is ample, more where it is scarce; the rates of the \
                    first draw are those that chance gives.",
            files: &[SOURCES],
            make: live::draws,
        },
        Figure {
            name: "events",
            title: "After something has happened",
            about: "A relay carries half, a source comes, a relay is killed: all sources are to \
                    have what they demand again within 60 s at f = 1.6, and 150 s at f = 1.2.",
            files: &[SOURCES],
            make: live::events,
        },
    ],
    real: Some(RealRuns {
        what: "network",
        moves_files: false,
        scale: None,
        has_trial: true,
        estimate: live::estimate,
    }),
};

const SOURCES: File = File {
    name: "sources.toml",
    text: include_str!("../../../../papers/wang2007-live/sources.toml"),
};

#[cfg(test)]
mod tests {
    use scenario::relays::RateStudy;
    use units::Seed;

    use super::settings::Settings;
    use super::{PACKETS, STUDY};
    use crate::fluid::{control, search};

    #[test]
    fn every_file_is_read_and_runs() {
        let figures = STUDY.figures.iter().chain(PACKETS.figures);
        let files: Vec<_> = figures.flat_map(|figure| figure.files).collect();
        assert_eq!(files.len(), 15);
        for file in files {
            let settings =
                Settings::read(file.text, file.name).unwrap_or_else(|error| panic!("{error}"));
            for mut case in settings.cases {
                let setting = &mut case.search.setting;
                (setting.sources, setting.relays, setting.intervals, setting.settled) =
                    (5, 10, 20, 10);
                case.search.cap = 3;
                if let Some(mut packets) = case.packets {
                    packets.study = RateStudy { control: packets.study.control, ..setting.clone() };
                    let value = scenario::relays::run(&packets, Seed(1)).unwrap().value;
                    assert!(value > 0.0, "{}", file.name);
                } else if case.searches {
                    assert!(search::run(&case.search, Seed(1)).first > 0.0, "{}", file.name);
                } else {
                    assert!(
                        control::run(&case.search.setting, Seed(1)).value > 0.0,
                        "{}",
                        file.name
                    );
                }
            }
        }
    }
}
