//! Controllers by name, as they are written in scenario files:
//! `fast(alpha=100, threshold=0.75 ms)`.

use alloc::boxed::Box;

use units::{Seed, Span};

use super::{
    Alpha, Balia, Bbr, Controller, Coupled, CoupledBbr, CoupledCubic, Cubic, CubicOptions, Dctcp,
    Fast, FastOptions, Harp, HarpCoupling, HarpOptions, Ledbat, LedbatOptions, LedbatPlusPlus,
    LedbatPlusPlusOptions, Lia, Lp, LpOptions, Mpfast, MpfastOptions, Nice, NiceOptions, Olia,
    Prague, PragueOptions, Reno, Uncoupled, Vegas, VegasOptions, Waimd, Wvegas,
};
use crate::named::{self, Known, NameError, Parameter, Settings};

/// What the algorithms of [`NAMES`] are, in messages.
pub const KIND: &str = "congestion controller";

/// All controllers, the most common one first.
pub const NAMES: &[Known<dyn Controller>] = &[
    Known::new(
        "cubic",
        "grows by a cubic function of the time since the last loss; what most hosts use \
                  (RFC 9438)",
        &[
            Parameter {
                name: "c",
                default: "0.4",
                summary: "steepness in packets a second cubed, above 0",
            },
            Parameter {
                name: "beta",
                default: "0.7",
                summary: "what a loss leaves of the window, 0.1 to 0.95",
            },
            Parameter {
                name: "fast_convergence",
                default: "true",
                summary: "whether a shrinking flow makes room: true or false",
            },
        ],
        cubic,
    ),
    Known::new("reno", "one packet more a round trip, half at a loss (RFC 5681)", &[], |_| {
        Ok(Box::new(Uncoupled::new(Reno::default())))
    }),
    Known::new(
        "vegas",
        "keeps a few packets in the queue by one packet more or less a round trip",
        &[
            Parameter {
                name: "alpha",
                default: "2",
                summary: "least backlog in packets, 0 or more",
            },
            Parameter {
                name: "beta",
                default: "4",
                summary: "largest backlog in packets, alpha or more",
            },
            Parameter {
                name: "gamma",
                default: "1",
                summary: "backlog that ends slow start, packets, 0 or more",
            },
        ],
        vegas,
    ),
    Known::new(
        "fast",
        "keeps alpha packets in the queue by steps in proportion to the distance",
        &[
            Parameter { name: "alpha", default: "100", summary: "packets in the queue, above 0" },
            Parameter {
                name: "gamma",
                default: "0.5",
                summary: "size of the steps, above 0, up to 1",
            },
            Parameter {
                name: "threshold",
                default: "0.75 ms",
                summary: "queueing delay up to which the window doubles",
            },
            Parameter {
                name: "every",
                default: "2",
                summary: "round trips from one step to the next, 1 to 1000",
            },
            Parameter {
                name: "whole",
                default: "false",
                summary: "whether windows are whole packets, as those of the ns-2 module",
            },
        ],
        fast,
    ),
    Known::new(
        "bbr",
        "sends at the bandwidth it measures, with little in the queue (BBR version 3, \
                  draft-ietf-ccwg-bbr)",
        &[
            Parameter {
                name: "tolerance",
                default: "0",
                summary: "share of losses in a round trip that is taken for the path's own, 0 as \
                          drafted to 0.5",
            },
            Parameter {
                name: "seed",
                default: "1",
                summary: "of the random waits between probes, a whole number",
            },
        ],
        bbr,
    ),
    Known::new(
        "waimd",
        "as so many reno flows together (MulTCP, Crowcroft and Oechslin 1998)",
        &[
            Parameter {
                name: "weight",
                default: "10",
                summary: "how many flows' weight, 1 to 1000",
            },
            Parameter {
                name: "plain",
                default: "false",
                summary: "whether slow start and timeouts are those of one flow",
            },
        ],
        waimd,
    ),
    Known::new(
        "dctcp",
        "one packet more a round trip, at marks less by half of their part; for queues that mark \
         early (RFC 8257)",
        &[Parameter {
            name: "g",
            default: "0.0625",
            summary: "weight of a round trip in the average part, above 0, up to 1",
        }],
        dctcp,
    ),
    Known::new(
        "prague",
        "as dctcp, paced, and with a share that does not grow as round trips shorten; for queues \
         of L4S (draft-briscoe-iccrg-prague-congestion-control)",
        &[
            Parameter {
                name: "g",
                default: "0.0625",
                summary: "weight of a round trip in the average part, above 0, up to 1",
            },
            Parameter {
                name: "rtt",
                default: "25 ms",
                summary: "what shorter round trips count as, 0 s for none",
            },
            Parameter {
                name: "transition",
                default: "500",
                summary: "round trips after slow start from which on they do, a whole number",
            },
        ],
        prague,
    ),
    Known::new(
        "ledbat",
        "yields to others: keeps its queueing delay at a target (RFC 6817)",
        &[
            Parameter { name: "target", default: "100 ms", summary: "queueing delay, 1 to 100 ms" },
            Parameter {
                name: "gain",
                default: "1",
                summary: "packets more a round trip without a queue, above 0, up to 1",
            },
        ],
        ledbat,
    ),
    Known::new(
        "ledbat++",
        "as ledbat, by round-trip times, fair to latecomers by slowdowns \
         (draft-irtf-iccrg-ledbat-plus-plus)",
        &[
            Parameter { name: "target", default: "60 ms", summary: "queueing delay, 1 ms or more" },
            Parameter {
                name: "slowdowns",
                default: "true",
                summary: "whether it drains the queue now and then: true or false",
            },
        ],
        ledbat_plus_plus,
    ),
    Known::new(
        "lp",
        "yields to others: reno that takes a rise of the delay for congestion (TCP-LP)",
        &[
            Parameter {
                name: "threshold",
                default: "0.15",
                summary: "share of the range of delays above which there is congestion, 0 to 1",
            },
            Parameter {
                name: "reseed",
                default: "false",
                summary: "whether the range begins anew at each indication, as in Linux",
            },
        ],
        lp,
    ),
    Known::new(
        "nice",
        "yields to others: vegas that halves when many packets met a queue, down to a \
         packet in 48 round trips (TCP Nice)",
        &[
            Parameter {
                name: "threshold",
                default: "0.1",
                summary: "share of the range of round-trip times above which a packet met a queue, \
                          0 to 1",
            },
            Parameter {
                name: "fraction",
                default: "0.5",
                summary: "share of the window above which such packets are congestion, 0 to 1",
            },
        ],
        nice,
    ),
    Known::new(
        "lia",
        "subflows together no more than one flow on the best path (RFC 6356)",
        &[],
        |_| Ok(Box::new(Coupled::new(Lia))),
    ),
    Known::new(
        "olia",
        "as lia, and off the paths that lose more \
                  (draft-khalili-mptcp-congestion-control)",
        &[],
        |_| Ok(Box::new(Coupled::new(Olia))),
    ),
    Known::new(
        "balia",
        "between lia and olia: friendly and quick to follow changes \
                  (draft-walid-mptcp-congestion-control)",
        &[],
        |_| Ok(Box::new(Coupled::new(Balia))),
    ),
    Known::new(
        "wvegas",
        "vegas over several paths: ten packets in the queues of all of them, by their rates",
        &[],
        |_| Ok(Box::new(Wvegas::default())),
    ),
    Known::new(
        "coupled-bbr",
        "bbr over several paths: those at one bottleneck probe and yield as one flow",
        &[
            Parameter {
                name: "tolerance",
                default: "0.02",
                summary: "share of losses in a round trip that is taken for the path's own, 0 as \
                          bbr to 0.5",
            },
            Parameter {
                name: "seed",
                default: "1",
                summary: "of the random waits between probes, a whole number",
            },
        ],
        coupled_bbr,
    ),
    Known::new(
        "coupled-cubic",
        "cubic over several paths that together take one flow's share",
        &[],
        |_| Ok(Box::new(CoupledCubic::default())),
    ),
    Known::new(
        "mpfast",
        "fast over several paths: keeps alpha packets in the queues of all of them, divided by \
         their rates (MPFAST)",
        &[
            Parameter {
                name: "alpha",
                default: "100",
                summary: "packets in the queues, 1 or more, or 'class': by the rate, not fair",
            },
            Parameter {
                name: "gamma",
                default: "0.5",
                summary: "size of the steps, above 0, up to 1",
            },
            Parameter {
                name: "every",
                default: "1",
                summary: "round trips from one step to the next, 1 to 1000",
            },
            Parameter {
                name: "expiry",
                default: "10 s",
                summary: "time between drains that renew the base round-trip time; 0 s: never",
            },
            Parameter {
                name: "tolerance",
                default: "0.03",
                summary: "share of losses that may be the line's, 0 to 0.5",
            },
            Parameter {
                name: "coexist",
                default: "false",
                summary: "whether it keeps its share beside flows that fill the queue: true or \
                          false",
            },
        ],
        mpfast,
    ),
    Known::new(
        "harp",
        "yields to others, over several paths: grows by a share, falls when packets are late \
         (Harp)",
        &[
            Parameter {
                name: "coupling",
                default: "adaptive",
                summary: "of the paths: adaptive, joint or independent",
            },
            Parameter {
                name: "profile",
                default: "modern",
                summary: "modern: slow start, windows below a packet, queues late by 3 ms, half \
                          of the growth beyond 64 packets, M by the rate; or paper: none of these",
            },
            Parameter {
                name: "drain",
                default: "off",
                summary: "time from one moment to the next in which all leave the queue to empty \
                          itself, for those who came late; 10s and more",
            },
        ],
        harp,
    ),
];

/// The controller that `text` describes: a name of [`NAMES`], and in parentheses the parameters
/// that differ from their defaults.
///
/// ```
/// assert_eq!(policy::cc::by_name("vegas(alpha=2, beta=4)")?.name(), "vegas");
/// let error = policy::cc::by_name("cubik").unwrap_err();
/// assert!(error.to_string().contains("did you mean 'cubic'?"));
/// # Ok::<(), policy::named::NameError>(())
/// ```
///
/// # Errors
///
/// If there is no such controller, it has no such parameter, or a value is invalid.
pub fn by_name(text: &str) -> Result<Box<dyn Controller>, NameError> {
    named::by_name(KIND, NAMES, text)
}

/// The value of a parameter that is a finite number, if it `is_valid`.
fn number(
    settings: &Settings<'_>,
    name: &str,
    is_valid: impl Fn(f64) -> bool,
) -> Result<f64, NameError> {
    settings.get(name, |n: &f64| n.is_finite() && is_valid(*n))
}

fn cubic(settings: &Settings<'_>) -> Result<Box<dyn Controller>, NameError> {
    let options = CubicOptions {
        c: number(settings, "c", |c| c > 0.0)?,
        beta: number(settings, "beta", |beta| (0.1..=0.95).contains(&beta))?,
        fast_convergence: settings.get("fast_convergence", |_| true)?,
    };
    Ok(Box::new(Uncoupled::new(Cubic::new(options))))
}

fn vegas(settings: &Settings<'_>) -> Result<Box<dyn Controller>, NameError> {
    let alpha = number(settings, "alpha", |alpha| alpha >= 0.0)?;
    let options = VegasOptions {
        alpha,
        beta: number(settings, "beta", |beta| beta >= alpha)?,
        gamma: number(settings, "gamma", |gamma| gamma >= 0.0)?,
    };
    Ok(Box::new(Uncoupled::new(Vegas::new(options))))
}

fn fast(settings: &Settings<'_>) -> Result<Box<dyn Controller>, NameError> {
    let options = FastOptions {
        alpha: number(settings, "alpha", |alpha| alpha > 0.0)?,
        gamma: number(settings, "gamma", |gamma| gamma > 0.0 && gamma <= 1.0)?,
        threshold: settings.get("threshold", |_: &Span| true)?,
        every: settings.get("every", |every| (1..=1000).contains(every))?,
        whole: settings.get("whole", |_| true)?,
    };
    Ok(Box::new(Uncoupled::new(Fast::new(options))))
}

fn mpfast(settings: &Settings<'_>) -> Result<Box<dyn Controller>, NameError> {
    let alpha = |text: &str| match text {
        "class" => Some(Alpha::Class),
        _ => text.parse().ok().filter(|n| (1.0..=1e9).contains(n)).map(Alpha::Packets),
    };
    let options = MpfastOptions {
        alpha: settings.parse("alpha", alpha)?,
        gamma: number(settings, "gamma", |gamma| gamma > 0.0 && gamma <= 1.0)?,
        every: settings.get("every", |every| (1..=1000).contains(every))?,
        expiry: settings.get("expiry", |_: &Span| true)?,
        tolerance: number(settings, "tolerance", |share| (0.0..=0.5).contains(&share))?,
        coexist: settings.get("coexist", |_| true)?,
    };
    Ok(Box::new(Mpfast::new(options)))
}

fn harp(settings: &Settings<'_>) -> Result<Box<dyn Controller>, NameError> {
    let coupling = |text: &str| match text {
        "adaptive" => Some(HarpCoupling::Adaptive),
        "joint" => Some(HarpCoupling::Joint),
        "independent" => Some(HarpCoupling::Independent),
        _ => None,
    };
    let profile = |text: &str| match text {
        "modern" => Some(HarpOptions::modern()),
        "paper" => Some(HarpOptions::paper()),
        _ => None,
    };
    let drain = |text: &str| match text {
        "off" => Some(None),
        _ => text.parse().ok().filter(|span| *span >= HarpOptions::LEAST_DRAIN).map(Some),
    };
    let coupling = settings.parse("coupling", coupling)?;
    let drain = settings.parse("drain", drain)?;
    let options = HarpOptions { coupling, drain, ..settings.parse("profile", profile)? };
    Ok(Box::new(Harp::new(options)))
}

fn path_model(settings: &Settings<'_>) -> Result<Bbr, NameError> {
    let seed = settings.get("seed", |_: &u64| true)?;
    let tolerance = number(settings, "tolerance", |share| (0.0..=0.5).contains(&share))?;
    Ok(Bbr::new(Seed(seed)).with_tolerance(tolerance))
}

fn bbr(settings: &Settings<'_>) -> Result<Box<dyn Controller>, NameError> {
    Ok(Box::new(Uncoupled::new(path_model(settings)?)))
}

fn coupled_bbr(settings: &Settings<'_>) -> Result<Box<dyn Controller>, NameError> {
    Ok(Box::new(CoupledBbr::new(path_model(settings)?)))
}

fn ledbat(settings: &Settings<'_>) -> Result<Box<dyn Controller>, NameError> {
    let most = Span::from_millis(100);
    let options = LedbatOptions {
        target: settings.get("target", |target| (Span::from_millis(1)..=most).contains(target))?,
        gain: number(settings, "gain", |gain| gain > 0.0 && gain <= 1.0)?,
    };
    Ok(Box::new(Uncoupled::new(Ledbat::new(options))))
}

fn ledbat_plus_plus(settings: &Settings<'_>) -> Result<Box<dyn Controller>, NameError> {
    let options = LedbatPlusPlusOptions {
        target: settings.get("target", |target| *target >= Span::from_millis(1))?,
        slowdowns: settings.get("slowdowns", |_| true)?,
    };
    Ok(Box::new(Uncoupled::new(LedbatPlusPlus::new(options))))
}

fn lp(settings: &Settings<'_>) -> Result<Box<dyn Controller>, NameError> {
    let options = LpOptions {
        threshold: number(settings, "threshold", |share| (0.0..=1.0).contains(&share))?,
        reseed: settings.get("reseed", |_| true)?,
    };
    Ok(Box::new(Uncoupled::new(Lp::new(options))))
}

fn nice(settings: &Settings<'_>) -> Result<Box<dyn Controller>, NameError> {
    let share = |name| number(settings, name, |share| (0.0..=1.0).contains(&share));
    let options = NiceOptions { threshold: share("threshold")?, fraction: share("fraction")? };
    Ok(Box::new(Uncoupled::new(Nice::new(options))))
}

fn waimd(settings: &Settings<'_>) -> Result<Box<dyn Controller>, NameError> {
    let weight = number(settings, "weight", |weight| (1.0..=1000.0).contains(&weight))?;
    let is_plain = settings.get("plain", |_: &bool| true)?;
    Ok(Box::new(Uncoupled::new(if is_plain { Waimd::plain(weight) } else { Waimd::new(weight) })))
}

fn dctcp(settings: &Settings<'_>) -> Result<Box<dyn Controller>, NameError> {
    let weight = number(settings, "g", |weight| weight > 0.0 && weight <= 1.0)?;
    Ok(Box::new(Uncoupled::new(Dctcp::new(weight))))
}

fn prague(settings: &Settings<'_>) -> Result<Box<dyn Controller>, NameError> {
    let options = PragueOptions {
        weight: number(settings, "g", |weight| weight > 0.0 && weight <= 1.0)?,
        virtual_rtt: settings.get("rtt", |_: &Span| true)?,
        transition: settings.get("transition", |_: &u64| true)?,
    };
    Ok(Box::new(Uncoupled::new(Prague::new(options))))
}

#[cfg(test)]
mod tests;
