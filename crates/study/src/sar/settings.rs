//! The inputs of a figure: the files and results of the paper, and the network of a case.

use link::config::reader::{Section, Source, Value};
use link::config::{ConfigError, Network, Problem, TCP_PAYLOAD_SHARE};
use toml::de::DeTable;
use units::{Bytes, Rate, Time};

use crate::error::StudyError;
use crate::figure::Lab;
use crate::sizes::scaled;
use crate::testbed::Sizes;

/// The results of the paper for a case, as shares (`None` if the paper has none), and those of the
/// fluid model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PaperResults {
    /// Algorithm A's time, in seconds per Mbit of payload.
    closed_form: f64,
    /// The time with all paths busy to the end, in the same unit.
    ideal: f64,
    /// The idle time of A's first path, relative to A's time.
    pub(super) idle_fluid: f64,
    pub(super) saved_against_a: Option<f64>,
    pub(super) saved_against_b: Option<f64>,
    pub(super) idle_a: Option<f64>,
    pub(super) idle_b: Option<f64>,
}

/// A case, at the scale of the experiment.
#[derive(Clone, Debug)]
pub(super) struct SarSettings {
    pub(super) found: PaperResults,
    /// The files that are transferred.
    pub(super) sizes: Vec<Bytes>,
    pub(super) runs: u32,
    /// The name and the text of the network file.
    network: (String, String),
}

impl SarSettings {
    /// Reads the two files of the figure: that of the paper, in which `case` names a section, and
    /// that of the network.
    pub(super) fn read(lab: &Lab<'_>, case: &'static str) -> Result<SarSettings, StudyError> {
        let (file, text) = &lab.files[0];
        let source = Source { file, text };
        let table = DeTable::parse(text).map_err(|error| {
            let offset = error.span().map(|span| span.start);
            source.error(offset, "", Problem::Syntax(error.message().to_owned()))
        })?;
        let root = Section::root(source, table.get_ref());
        root.allow(&["sizes", "runs", "case1", "case2"])?;
        let all = root.require("sizes")?;
        let sizes: Vec<Bytes> =
            all.list()?.iter().map(Value::quantity).collect::<Result<_, ConfigError>>()?;
        if sizes.is_empty() || sizes.contains(&Bytes::ZERO) {
            return Err(all
                .error(Problem::Sense("wants at least one size, and none of nothing"))
                .into());
        }
        let runs = root.require("runs")?;
        let runs =
            u32::try_from(runs.integer()?).ok().filter(|runs| *runs > 0).ok_or_else(|| {
                runs.error(Problem::Sense("wants to be at least 1, and less than 4294967296"))
            })?;
        let experiment = &lab.context.experiment;
        let chosen = match &experiment.sizes {
            Sizes::First => vec![sizes[0]],
            Sizes::All => sizes,
            Sizes::These(sizes) => sizes.clone(),
        };
        Ok(SarSettings {
            found: found(&root.require(case)?.section()?)?,
            sizes: chosen.into_iter().map(|size| scaled(size, experiment.scale)).collect(),
            runs: lab.context.seeds.unwrap_or(runs),
            network: lab.files[1].clone(),
        })
    }

    /// The network for a file of this size.
    pub(super) fn network(&self, size: Bytes) -> Result<Network, StudyError> {
        let (file, text) = &self.network;
        Ok(Network::parse(text, file, Some(size))?)
    }

    /// The error that the network never carries the file.
    pub(super) fn carries_nothing(&self) -> StudyError {
        let missing = "the links never carry the file".to_owned();
        StudyError::Lacks { file: self.network.0.clone(), missing }
    }
}

fn found(section: &Section<'_>) -> Result<PaperResults, ConfigError> {
    section.allow(&[
        "closed_form",
        "ideal",
        "idle_fluid",
        "saved_against_a",
        "saved_against_b",
        "idle_a",
        "idle_b",
    ])?;
    let share = |key| section.get(key).map(|value| value.probability()).transpose();
    let positive = |key| {
        let value = section.require(key)?;
        let number = value.number()?;
        if number > 0.0 {
            Ok(number)
        } else {
            Err(value.error(Problem::Sense("wants to be above 0")))
        }
    };
    Ok(PaperResults {
        closed_form: positive("closed_form")?,
        ideal: positive("ideal")?,
        idle_fluid: section.require("idle_fluid")?.probability()?,
        saved_against_a: share("saved_against_a")?,
        saved_against_b: share("saved_against_b")?,
        idle_a: share("idle_a")?,
        idle_b: share("idle_b")?,
    })
}

/// The fluid model of a transfer, with the payload share of TCP packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct FluidModel {
    /// The time with all paths always busy, changes of rate included, in seconds.
    pub(super) ideal: f64,
    /// Algorithm A's closed form, in seconds.
    pub(super) a: f64,
    /// The idle time of A's first path, in seconds.
    pub(super) idle_a: f64,
    /// The share of A's time that the ideal saves.
    pub(super) saved: f64,
}

impl FluidModel {
    /// The model of a network; `None` if it never carries that much.
    pub(super) fn of(network: &Network, size: Bytes, found: &PaperResults) -> Option<FluidModel> {
        let a = found.closed_form * size.as_f64() * 8e-6 / TCP_PAYLOAD_SHARE;
        Some(FluidModel {
            ideal: network.ideal(size, TCP_PAYLOAD_SHARE)?.as_secs_f64(),
            a,
            idle_a: a * found.idle_fluid,
            saved: 1.0 - found.ideal / found.closed_form,
        })
    }
}

/// The rate of each link at the start.
pub(super) fn initial_rates(network: &Network) -> Vec<Rate> {
    let rate = |link: &link::config::LinkSpec| {
        let mut cursor = link.up.profile.rate.cursor();
        cursor.start(Time::ZERO);
        cursor.rate()
    };
    network.links.iter().map(rate).collect()
}

#[cfg(test)]
mod tests {
    use link::schedule;
    use units::Span;

    use super::*;

    /// If the third path slows down when fluids have carried nine tenths of F Mbit, A takes 0.025 F
    /// and 0.04375 F seconds; the optima are 0.021875 F and 0.022596 F.
    #[test]
    fn fluids_take_the_closed_forms() {
        let paper = include_str!("../../../../papers/sar-rmtp/paper.toml");
        let table = DeTable::parse(paper).unwrap();
        let root = Section::root(Source { file: "paper.toml", text: paper }, table.get_ref());
        let cases = [
            ("case1", include_str!("../../../../papers/sar-rmtp/case1.toml")),
            ("case2", include_str!("../../../../papers/sar-rmtp/case2.toml")),
        ];
        for (case, text) in cases {
            let found = found(&root.require(case).unwrap().section().unwrap()).unwrap();
            let ours = "rate = \"46.225 Mbit/s\", after = \"50 ms\"";
            assert!(text.contains(ours));
            let text = text.replace(ours, "rate = \"46.336 Mbit/s\"");
            for size in [10_150_000, 101_500_000, 913_000_000].map(Bytes) {
                let network = Network::parse(&text, case, Some(size)).unwrap();
                let rates = initial_rates(&network);
                let sum: Rate = rates.iter().copied().sum();
                let ends: Vec<f64> = network
                    .links
                    .iter()
                    .zip(&rates)
                    .map(|(link, rate)| {
                        let share = scaled(size, rate.as_f64() / sum.as_f64());
                        let profiles = [(&link.up.profile, &link.down.profile)];
                        schedule::ideal(profiles, share, TCP_PAYLOAD_SHARE).unwrap().as_secs_f64()
                    })
                    .collect();
                let last = ends.iter().copied().fold(0.0, f64::max);
                let idle = last - ends.iter().copied().fold(f64::INFINITY, f64::min);
                let fluid = FluidModel::of(&network, size, &found).unwrap();
                let saved = 1.0
                    - network.ideal(size, TCP_PAYLOAD_SHARE).map_or(0.0, Span::as_secs_f64) / last;
                for (form, exact) in [(fluid.a, last), (fluid.idle_a, idle), (fluid.saved, saved)] {
                    assert!((form / exact - 1.0).abs() < 1e-4, "{form}, exactly {exact}");
                }
            }
        }
    }
}
