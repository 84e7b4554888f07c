//! Congestion controllers compared with their theory: formulas for one flow or a few, on links that
//! meet the assumptions of the formula.

mod coupled;
mod cubic;
mod fast;
mod known;
mod l4s;
mod reno;

use crate::figure::{Figure, File, Study};

/// The study.
pub const STUDY: Study = Study {
    paper: "theory",
    title: "Congestion controllers beside their theory",
    about: "Each controller on a network as its theory supposes it: its window, its queue or its \
            share beside the formula. Where the formula leaves something out (random loss instead \
            of periodic, windows of whole packets), the tolerance says how much.",
    figures: &[
        Figure {
            name: "reno-loss",
            title: "Reno under random loss",
            about: "One flow, delayed acknowledgements off, on a link that never queues and loses \
                    each packet alone with probability p. A sawtooth that loses exactly one packet \
                    in 1/p has a mean window of √(3/2p) packets (Mathis, Semke, Mahdavi and Ott \
                    1997).",
            files: &[File {
                name: "reno-loss.toml",
                text: include_str!("../../../../papers/theory/reno-loss.toml"),
            }],
            make: reno::loss,
        },
        Figure {
            name: "cubic-loss",
            title: "CUBIC with one loss every 10,000 packets",
            about: "One flow, 100 ms, a link that never queues. CUBIC's response function is \
                    derived for exactly 1/p packets between two losses and without fast \
                    convergence (RFC 9438, section 5.1, equation 5): 187 packets at p = 10⁻⁴ and \
                    100 ms.",
            files: &[File {
                name: "cubic-loss.toml",
                text: include_str!("../../../../papers/theory/cubic-loss.toml"),
            }],
            make: cubic::loss,
        },
        Figure {
            name: "cubic-random",
            title: "CUBIC with random loss",
            about: "The same with random loss of the same rate, for which there is no closed \
                    formula.",
            files: &[File {
                name: "cubic-random.toml",
                text: include_str!("../../../../papers/theory/cubic-random.toml"),
            }],
            make: cubic::random,
        },
        Figure {
            name: "fast-queue",
            title: "FAST’s queue",
            about: "FAST rests where each flow has α packets of its own in the queue: n flows that \
                    start together, and so know the same base round-trip time, keep nα (Wei, Jin, \
                    Low and Hegde 2006).",
            files: &[File {
                name: "fast-queue.toml",
                text: include_str!("../../../../papers/theory/fast-queue.toml"),
            }],
            make: fast::queue,
        },
        Figure {
            name: "coupled-shared",
            title: "Coupled controllers on a shared bottleneck",
            about: "As many connections of two subflows as of one, over one bottleneck with RED. \
                    LIA, OLIA and BALIA are all to take what one flow takes (RFC 6356, section 1, \
                    goal 2); two subflows of Reno that know nothing of each other take twice \
                    that.",
            files: &[File {
                name: "coupled-shared.toml",
                text: include_str!("../../../../papers/theory/coupled-shared.toml"),
            }],
            make: coupled::shared,
        },
        Figure {
            name: "coupled-drop-tail",
            title: "Four coupled subflows at a drop-tail queue",
            about: "A connection of four subflows beside one of a single subflow, at a bottleneck \
                    that drops only when it is full, with jitter at the senders. Four are to take \
                    what one takes (RFC 6356, section 1, goal 2).",
            files: &[File {
                name: "coupled-drop-tail.toml",
                text: include_str!("../../../../papers/theory/coupled-drop-tail.toml"),
            }],
            make: coupled::drop_tail,
        },
        Figure {
            name: "coupled-congested",
            title: "Coupled controllers off the congested path",
            about: "A connection over two links of one rate and delay, the second shared with more \
                    flows. How much of its traffic it leaves there depends on how many times more \
                    often packets are lost there.",
            files: &[File {
                name: "coupled-congested.toml",
                text: include_str!("../../../../papers/theory/coupled-congested.toml"),
            }],
            make: coupled::congested,
        },
        Figure {
            name: "l4s",
            title: "Prague beside CUBIC at a dual queue",
            about: "A flow of each at DualPI2, at 4 to 200 Mbit/s and round trips of 5 to 100 ms. \
                    The rates are to be roughly equal (RFC 9332, section 2.1), the packets of \
                    Prague to wait for a millisecond, those of CUBIC for 15 (appendix A).",
            files: &[File {
                name: "l4s.toml",
                text: include_str!("../../../../papers/theory/l4s.toml"),
            }],
            make: l4s::rates,
        },
        Figure {
            name: "l4s-mixes",
            title: "Mixes of Prague and CUBIC at a dual queue",
            about: "One, five and nine flows of each at DualPI2: each flow is to have about the \
                    same rate, whatever the numbers (RFC 9332, section 2.1).",
            files: &[File {
                name: "l4s-mixes.toml",
                text: include_str!("../../../../papers/theory/l4s-mixes.toml"),
            }],
            make: l4s::mixes,
        },
        Figure {
            name: "known-bbr",
            title: "BBR beside CUBIC by the buffer",
            about: "A flow of each at a drop-tail queue. Version 1 of BBR took most of the line at \
                    small buffers and half of it at deep ones (Ware, Mukerjee, Seshan and Sherry \
                    2019), version 2 less than its share at deep ones; ours is version 3.",
            files: &[File {
                name: "known-bbr.toml",
                text: include_str!("../../../../papers/theory/known-bbr.toml"),
            }],
            make: known::bbr,
        },
        Figure {
            name: "known-ledbat",
            title: "LEDBAT++ beside BBR",
            about: "A flow of each at a drop-tail queue. LEDBAT++ yields to BBR above round trips \
                    of 60 ms, below version 2 of BBR yields to LEDBAT++ (Bagnulo and \
                    García-Martínez 2022).",
            files: &[File {
                name: "known-ledbat.toml",
                text: include_str!("../../../../papers/theory/known-ledbat.toml"),
            }],
            make: known::ledbat,
        },
    ],
    real: None,
};
