//! "Reliable Multipath Transfer Scheduling Algorithm Research and Prototype Implementation"
//! (SAR-RMTP): real transfers of a file over three paths, one of which slows down near the end.

mod figures;
mod settings;
mod trials;

use crate::cache::RunCache;
use crate::error::StudyError;
use crate::figure::{Context, Lab};
use crate::figure::{Figure, File, RealRuns, Study};
use crate::testbed::Estimate;

const PAPER: File =
    File { name: "paper.toml", text: include_str!("../../../../papers/sar-rmtp/paper.toml") };
const CASE_1: File =
    File { name: "case1.toml", text: include_str!("../../../../papers/sar-rmtp/case1.toml") };
const CASE_2: File =
    File { name: "case2.toml", text: include_str!("../../../../papers/sar-rmtp/case2.toml") };

/// The study.
pub const STUDY: Study = Study {
    paper: "sar-rmtp",
    title: "SAR-RMTP: one file over three paths, one of which slows down",
    about: "The experiment of “Reliable Multipath Transfer Scheduling Algorithm Research and \
            Prototype Implementation”, with real programs, kernel TCP and TLS over emulated paths \
            of 8, 16 and 24 Mbit/s. When nine tenths of the file have been transferred, the third \
            path falls to 8 (case 1) or 2 Mbit/s (case 2). A divides the file once, by the \
            bandwidths at the beginning; B hands out single blocks of at most a twentieth; SAR \
            moves what is not yet sent to the paths that will be through with it sooner. In the \
            program's default, SAR, idle paths also steal and copy; SAR plain does neither, and \
            SAR latched, as the paper has it, ends its adjustments once all paths would finish \
            together. A is to take what its closed form says, SAR to be near the ideal, and SAR \
            and SAR plain to save what the paper says SAR saves.",
    figures: &[
        Figure {
            name: "3",
            title: "Overall transfer time in case 1",
            about: "The third path falls from 24 to 8 Mbit/s. The paper saves 11.4 % of A’s time \
                    and 8.9 % of B’s; fluids would save 12.5 % of A’s.",
            files: &[PAPER, CASE_1],
            make: |lab| figures::times(lab, "case1"),
        },
        Figure {
            name: "4",
            title: "Idle time in case 1",
            about: "How long the first path to finish waits for the last: 16.2 % of the transfer \
                    under A in the paper, 12.4 % under B, next to nothing under SAR; 16.7 % under \
                    A if paths were fluids.",
            files: &[PAPER, CASE_1],
            make: |lab| figures::idle(lab, "case1"),
        },
        Figure {
            name: "5",
            title: "Overall transfer time in case 2",
            about: "The third path falls from 24 to 2 Mbit/s. The paper saves 45.6 % of A’s time \
                    and 41.4 % of B’s; fluids would save 48.4 % of A’s.",
            files: &[PAPER, CASE_2],
            make: |lab| figures::times(lab, "case2"),
        },
        Figure {
            name: "6",
            title: "Idle time in case 2",
            about: "About half of the transfer under A and B in the paper, next to nothing under \
                    SAR; 52.4 % under A if paths were fluids.",
            files: &[PAPER, CASE_2],
            make: |lab| figures::idle(lab, "case2"),
        },
    ],
    real: Some(RealRuns {
        what: "transfer",
        moves_files: true,
        scale: Some(0.1),
        has_trial: false,
        estimate,
    }),
};

/// The estimate for some figures. The two figures of a case share their transfers.
fn estimate(context: &Context, figures: &[&'static Figure]) -> Result<Estimate, StudyError> {
    let (mut all, mut cases) = (Estimate::default(), Vec::new());
    let cache = RunCache::default();
    for figure in figures {
        let case = if figure.files.iter().any(|file| file.name == CASE_1.name) {
            "case1"
        } else {
            "case2"
        };
        if cases.contains(&case) {
            continue;
        }
        cases.push(case);
        let lab = Lab::new(context, &STUDY, figure, &|_, _| {}, &cache)?;
        let estimate = trials::estimate(&lab, case)?;
        all = Estimate { runs: all.runs + estimate.runs, seconds: all.seconds + estimate.seconds };
    }
    Ok(all)
}
