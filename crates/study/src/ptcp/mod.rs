//! "pTCP: An End-to-End Transport Layer Protocol for Striped Connections": the goodput of one
//! connection over several paths.

mod multihomed;
mod switching;
mod weighted;

use report::Mean;
use scenario::Run;

use crate::error::StudyError;
use crate::figure::{Figure, File, Study};
use crate::outcome::Data;
use crate::sweep::{MeasureKey, SweepResults};

/// The study.
pub const STUDY: Study = Study {
    paper: "ptcp",
    title: "pTCP: striped connections",
    about: "One connection over several paths in the settings of “pTCP: An End-to-End Transport \
            Layer Protocol for Striped Connections”: a mobile host with several links, weighted \
            connections, and connections switched by the application. As the paper has it, each \
            path has a window of Reno of its own, data is bound to a path as late as there is room \
            in the window, and nothing is copied but what a timeout holds up; beside it what the \
            same connection does by default, under the coupled BBR. The paper’s curves are known \
            by what it says of them, and where it leaves a value open (capacities of the backbone, \
            queues), the scenario files say which was chosen.",
    figures: &[
        Figure {
            name: "4a",
            title: "Figure 4(a): a slow and a faster link",
            about: "A link of 0.5 Mbit/s and one of 0.5 to 5 Mbit/s, of 400 and 100 ms. A striped \
                    connection is to get the sum of what a TCP connection over each gets, up to a \
                    ratio of 10. An application that stripes over sockets with finite buffers is \
                    to stay at three times the slow link’s rate beyond a ratio of 2.",
            files: &[File {
                name: "4a.toml",
                text: include_str!("../../../../papers/ptcp/4a.toml"),
            }],
            make: multihomed::ratios,
        },
        Figure {
            name: "4b",
            title: "Figure 4(b): two to five links",
            about: "2, 5, 0.5, 1 and 10 Mbit/s with round trips of 400, 100, 300, 200 and 50 ms, \
                    added in this order.",
            files: &[File {
                name: "4b.toml",
                text: include_str!("../../../../papers/ptcp/4b.toml"),
            }],
            make: multihomed::links,
        },
        Figure {
            name: "4b-congested",
            title: "Figure 4(b) over a congested backbone",
            about: "The same links, behind a backbone that five other TCP connections fill. It is \
                    not in the paper, which does not say what the backbone carries.",
            files: &[File {
                name: "4b-congested.toml",
                text: include_str!("../../../../papers/ptcp/4b-congested.toml"),
            }],
            make: multihomed::congested,
        },
        Figure {
            name: "4c",
            title: "Figure 4(c): links that change",
            about: "The same links, each with a rate that is drawn anew every 3 to 20 s, from a \
                    fifth of it to all of it.",
            files: &[
                File { name: "4c.toml", text: include_str!("../../../../papers/ptcp/4c.toml") },
                File {
                    name: "4c-default.toml",
                    text: include_str!("../../../../papers/ptcp/4c-default.toml"),
                },
                File {
                    name: "4c-ideal.toml",
                    text: include_str!("../../../../papers/ptcp/4c-ideal.toml"),
                },
                File {
                    name: "4c-sockets.toml",
                    text: include_str!("../../../../papers/ptcp/4c-sockets.toml"),
                },
            ],
            make: multihomed::changing,
        },
        Figure {
            name: "6a",
            title: "Figure 6(a): one weighted flow",
            about: "A striped connection with as many subflows over one way as its weight says, \
                    among nine TCP connections: it is to get what as many TCP connections would, \
                    up to a weight of 100. One TCP connection under weighted additive increase and \
                    multiplicative decrease (WAIMD) is not to gain beyond a weight of 10; ours \
                    does up to 20, and up to 100 with today’s TCP.",
            files: &[
                File { name: "6a.toml", text: include_str!("../../../../papers/ptcp/6a.toml") },
                File {
                    name: "6a-waimd.toml",
                    text: include_str!("../../../../papers/ptcp/6a-waimd.toml"),
                },
            ],
            make: weighted::one,
        },
        Figure {
            name: "6b",
            title: "Figure 6(b): ten weighted flows",
            about: "Ten connections of one weight over four hops, beside a TCP connection over \
                    each hop: the striped ones are to take more the higher their weight, those \
                    under WAIMD less beyond a weight of 8.",
            files: &[
                File { name: "6bc.toml", text: include_str!("../../../../papers/ptcp/6bc.toml") },
                File {
                    name: "6bc-waimd.toml",
                    text: include_str!("../../../../papers/ptcp/6bc-waimd.toml"),
                },
            ],
            make: weighted::throughput,
        },
        Figure {
            name: "6c",
            title: "Figure 6(c): unfairness among ten weighted flows",
            about: "The same connections: the standard deviation of what they get over its mean is \
                    to fall with the weight when they are striped, and to grow under WAIMD, \
                    where ours falls.",
            files: &[
                File { name: "6bc.toml", text: include_str!("../../../../papers/ptcp/6bc.toml") },
                File {
                    name: "6bc-waimd.toml",
                    text: include_str!("../../../../papers/ptcp/6bc-waimd.toml"),
                },
            ],
            make: weighted::fairness,
        },
        Figure {
            name: "8a",
            title: "Figure 8(a): one connection switched by the application",
            about: "Four hops of ten parallel links. A striped connection whose subflows take \
                    random ways, beside nine TCP connections with a way each: what it gets is to \
                    grow with the number of its subflows.",
            files: &[File {
                name: "8a.toml",
                text: include_str!("../../../../papers/ptcp/8a.toml"),
            }],
            make: switching::one,
        },
        Figure {
            name: "8b",
            title: "Figure 8(b): utilisation by ten connections switched by the application",
            about: "Ten striped connections in the same network. What all links carry, 200 Mbit/s \
                    of datagrams included, is to approach their 400 Mbit/s.",
            files: &[File {
                name: "8bc.toml",
                text: include_str!("../../../../papers/ptcp/8bc.toml"),
            }],
            make: switching::utilisation,
        },
        Figure {
            name: "8c",
            title: "Figure 8(c): unfairness among ten connections switched by the application",
            about: "The same connections: the standard deviation of what they get over its mean is \
                    to fall with the number of subflows.",
            files: &[File {
                name: "8bc.toml",
                text: include_str!("../../../../papers/ptcp/8bc.toml"),
            }],
            make: switching::fairness,
        },
    ],
    real: None,
};

/// The two kinds of connections, each with its name in scenario files and its label: configured as
/// in the paper, and with the default configuration.
const KINDS: [(&str, &str); 2] = [("paper", "as in the paper"), ("default", "as by default")];

/// The rows of several files with the same columns. Each file names windows of its own; rows of the
/// common window `steady` are left out, since the files could not be told apart.
fn joined(files: &[&SweepResults]) -> Data {
    let mut all = files.iter().map(|swept| swept.data());
    let mut data = all.next().expect("a figure has a file");
    data.rows.extend(all.flat_map(|data| data.rows));
    data.rows.retain(|(keys, ..)| !keys.contains(&"steady".into()));
    data
}

/// The points of a series that have a mean.
fn known(points: impl IntoIterator<Item = (f64, Option<Mean>)>) -> Vec<(f64, Mean)> {
    points.into_iter().filter_map(|(x, mean)| Some((x, mean?))).collect()
}

/// The goodput of one flow in a window of a run.
fn goodput(swept: &SweepResults, run: &Run, window: &str, flow: &str) -> Result<f64, StudyError> {
    swept.sample(run, &MeasureKey { window, scope: "flow", of: flow, name: "goodput" })
}

/// The standard deviation over the mean.
fn unfairness(values: &[f64]) -> f64 {
    let count = f64::from(u32::try_from(values.len()).expect("a few connections"));
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    variance.sqrt() / mean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfairness_is_relative() {
        assert!(unfairness(&[2.0, 2.0, 2.0]).abs() < 1e-12);
        assert!((unfairness(&[1.0, 3.0]) - 0.5).abs() < 1e-12);
        assert!((unfairness(&[10.0, 30.0]) - 0.5).abs() < 1e-12);
    }
}
