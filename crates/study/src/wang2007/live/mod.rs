//! Live sources: the program's feeds over relays in namespaces, beside the simulator and the fluid
//! study of the same sources and relays.

mod draws;
mod events;
mod plan;
mod simulated;

pub(super) use draws::figure as draws;
pub(super) use events::figure as events;
pub(super) use plan::estimate;

use overlay::Reselect;

use super::settings::Case;

/// Of rows that differ: nobody has found out why, and chance is not shown.
const UNEXPLAINED: &str = "not explained, last looked at on 2026-11-28: these are few runs of \
                           sources that choose at random; --runs makes more";

/// What a value is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// Processes of this program.
    Real,
    /// The packet-level simulator.
    Simulator,
    /// The fluid study.
    Fluids,
}

impl By {
    const ALL: [By; 3] = [By::Real, By::Simulator, By::Fluids];

    /// Its name in tables and pictures.
    fn name(self) -> &'static str {
        match self {
            By::Real => "real",
            By::Simulator => "simulator",
            By::Fluids => "fluids",
        }
    }
}

/// "f = 1.6, k-reselection".
fn title(case: &Case) -> String {
    format!("f = {}, {}-reselection", case.search.setting.supply, rule(case))
}

fn rule(case: &Case) -> &'static str {
    match case.search.rule {
        Reselect::Paths => "k",
        Reselect::Least => "1",
        Reselect::Everything => "all",
    }
}

/// The smallest and the largest of some values.
fn range(values: &[f64]) -> (f64, f64) {
    let smallest = values.iter().copied().fold(f64::INFINITY, f64::min);
    (smallest, values.iter().copied().fold(f64::NEG_INFINITY, f64::max))
}
