//! "A Multipath Background Network Architecture": Harp's gateways, beside web traffic, beside each
//! other, and over paths of unequal delay.

mod foreground;
mod live;
mod network;
mod sharing;
mod transfers;

use report::plot::{self, Axis, Panel, Series, number};
use report::{Align, Mean, Table, mean};
use scenario::Run;

use crate::error::StudyError;
use crate::figure::{Figure, File, Study};
use crate::outcome::Picture;
use crate::sweep::{MeasureKey, SweepResults};

macro_rules! file {
    ($name:literal) => {
        File { name: $name, text: include_str!(concat!("../../../../papers/harp/", $name)) }
    };
}

pub use live::LIVE;

/// The study.
pub const STUDY: Study = Study {
    paper: "harp",
    title: "Harp: background transfers over many paths",
    about: "The settings of “A Multipath Background Network Architecture” (Kokku, Bohra, Ganguly \
            and Venkataramani). Rates and delays of its topologies were in pictures that are lost: \
            here bottlenecks have 10 Mbit/s, 50 ms and a queue of one bandwidth-delay product, and \
            packets have 1000 bytes. Hosts are Reno and know nothing of the gateways between them. \
            The profile “paper” has what the paper says: no slow start, packets are never held, \
            windows of a packet at least; “modern” is the gateway’s default: slow start, paced \
            paths, windows below a packet, one threshold of 3 ms for all in place of a share of \
            the range of delays, delays filtered over 30 ms, half of the growth for windows \
            beyond 64 packets, M by the largest rate in place of the largest window, no coupling \
            where late packets come through a foreground flow’s queue, and a loss takes half of \
            what ξ couples in place of half of all windows. Of both, late packets are weighted \
            by how late they are, which the paper leaves open. Rows say which profile they are \
            of. Rates are bytes of the links. Figures 8(b), 8(c), 9, 13 \
            and 14 are of a prototype: harp-live has them.",
    figures: &[
        Figure {
            name: "3",
            title: "Figure 3: two senders, one of them with a path of its own",
            about: "Under Independent S1 is to have 14 Mbit/s and S2 4, under Joint 10 and 8.",
            files: &[file!("3.toml")],
            make: sharing::two_senders,
        },
        Figure {
            name: "5a",
            title: "Figure 5(a): 100 MB beside web clients",
            about: "The time of a transfer over both paths is to be about half of that over one, \
                    and over one no longer than Reno’s.",
            files: &[file!("5a.toml")],
            make: transfers::beside_web,
        },
        Figure {
            name: "5b",
            title: "Figure 5(b): the foreground’s stretch",
            about: "The 90th percentile of the foreground’s completion times over that without \
                    background. With Reno in the background it is to be 2 and more with one \
                    transfer and about 6 with 29; with Harp below 1.35.",
            files: &[file!("5b.toml"), file!("5b-others.toml"), file!("5b-alone.toml")],
            make: foreground::stretch,
        },
        Figure {
            name: "5c",
            title: "Figure 5(c): spare capacity",
            about: "A foreground flow takes 2, 4, 6, 4 and 2 of 10 Mbit/s. Harp is to have what is \
                    left.",
            files: &[file!("5c.toml")],
            make: foreground::spare,
        },
        Figure {
            name: "6a",
            title: "Figure 6(a): four paths, and a second sender on one of them",
            about: "Alone, Adaptive is to have what Independent has and a fifth more than Joint. \
                    Beside S2, Adaptive and Joint are to leave the fourth path to it.",
            files: &[file!("6a.toml")],
            make: sharing::four_paths,
        },
        Figure {
            name: "6b",
            title: "Figure 6(b): transfers alike",
            about: "Transfers over the same four paths are to have equal shares.",
            files: &[file!("6b.toml")],
            make: sharing::alike,
        },
        Figure {
            name: "6c",
            title: "Figure 6(c): across a network of 100 routers",
            about: "Five background transfers beside 200 short ones. Over several paths Harp is to \
                    have more than over one, and the foreground nearly what it has alone.",
            files: &[file!("6c.toml"), file!("6c-background.toml"), file!("6c-foreground.toml")],
            make: network::across,
        },
        Figure {
            name: "7a",
            title: "Figure 7(a): the delay of the other path",
            about: "The time of a transfer is to grow with the delay of the indirect path.",
            files: &[file!("7a.toml")],
            make: transfers::delays,
        },
        Figure {
            name: "7b",
            title: "Figure 7(b): the reorder factor ρ",
            about: "The time of a transfer is to fall with ρ and then to stay; 1.5 is to suffice.",
            files: &[file!("7b.toml")],
            make: transfers::reordering,
        },
        Figure {
            name: "7c",
            title: "Figure 7(c): choking",
            about: "Foreground flows fill the indirect path from 120 to 320 s. With choking the \
                    direct path is to keep its rate; without it, it is to fall markedly.",
            files: &[file!("7c.toml")],
            make: foreground::choking,
        },
        Figure {
            name: "12",
            title: "Figure 12: three paths over one bottleneck",
            about: "S1 has a path of its own and one or three over S2’s bottleneck. Three are not \
                    to get more from it than one: Joint and Adaptive are to leave two of them.",
            files: &[file!("12.toml")],
            make: sharing::three_paths,
        },
    ],
    real: None,
};

/// The profile that is judged.
const JUDGED: &str = "modern";
/// Bytes of a packet on the links over its payload.
const WIRE: f64 = 1_000.0 / 948.0;

/// What a flow delivers in a window, in bytes of the links, Mbit/s; a value for each run.
fn rates(
    swept: &SweepResults,
    point: &[(&str, &str)],
    window: &str,
    flow: &str,
) -> Result<Vec<f64>, StudyError> {
    let key = MeasureKey { window, scope: "flow", of: flow, name: "goodput" };
    Ok(swept.samples(point, &key)?.into_iter().map(|rate| rate * WIRE).collect())
}

/// The quotients of two measures, run by run.
fn ratios(over: &[f64], under: &[f64]) -> Vec<f64> {
    over.iter().zip(under).map(|(over, under)| over / under).collect()
}

/// A cell of a table: the mean of a value over the runs, and its interval.
fn cell(values: &[f64]) -> String {
    match mean(values) {
        Some(Mean { value, half_width: Some(half), .. }) => {
            format!("{} ± {}", number(value), number(half))
        }
        Some(Mean { value, .. }) => number(value),
        None => String::new(),
    }
}

/// A table with one text column for each key and one number column for each measure.
fn headed(keys: &[&str], measures: &[&str]) -> Table {
    let keys = keys.iter().map(|key| (*key, Align::Left));
    Table::new(keys.chain(measures.iter().map(|measure| (*measure, Align::Right))))
}

/// Means over a parameter, a series each.
fn over(
    title: &str,
    axes: [Axis; 2],
    series: impl IntoIterator<Item = (String, Vec<(f64, Vec<f64>)>)>,
) -> Picture {
    let [x, y] = axes;
    let mut panel = Panel::new(x, y.from(0.0)).height(240);
    for (label, points) in series {
        let points = points.into_iter().filter_map(|(x, values)| Some((x, mean(&values)?)));
        panel = panel.series(Series::means(label, points).joined());
    }
    Picture {
        suffix: "",
        plot: plot::Figure::new(title).panel(panel),
        caption: "Means over the seeds, with 95 % confidence intervals.".into(),
    }
}

/// What some links carry over time in one run.
fn over_time(
    swept: &SweepResults,
    run: &Run,
    title: &str,
    links: &[(&str, &str)],
) -> Result<Picture, StudyError> {
    let mut panel =
        Panel::new(Axis::new("time", "s").from(0.0), Axis::new("rate", "Mbit/s").from(0.0))
            .height(240);
    for (label, name) in links {
        let (at, values) = swept.link_series(run, name)?;
        let points = at.iter().copied().zip(values.throughput.iter().copied());
        panel = panel.series(Series::line(*label, points));
    }
    Ok(Picture {
        suffix: "",
        plot: plot::Figure::new(title).panel(panel),
        caption: "The first seed.".into(),
    })
}
