//! The links and the gateways of a scenario as tables.

use harp::Sharing;
use link::{Aqm, Limit, Loss, Profile};
use policy::cc::HarpCoupling;
use report::{Align, Table};

use crate::file::{GatewaySpec, LinkSpec, Scenario};

impl Scenario {
    /// All links, those of topologies and of entries for several included: a row each, or two if
    /// the directions differ. `more` has the other keys that are not at their defaults.
    #[must_use]
    pub fn network(&self) -> Table {
        let mut table = Table::new([
            ("link", Align::Left),
            ("from", Align::Left),
            ("to", Align::Left),
            ("rate", Align::Right),
            ("delay", Align::Right),
            ("queue", Align::Right),
            ("more", Align::Left),
        ]);
        for LinkSpec { name, directions, between: [a, b], up, down } in &self.links {
            let (up, down) = (up.profile(), down.profile());
            if up == down {
                table.row(row(name, [a, b], up));
            } else {
                table.row(row(&directions[0], [a, b], up));
                table.row(row(&directions[1], [b, a], down));
            }
        }
        table
    }

    /// All pairs of gateways, a row for each path; `None` if there are none.
    #[must_use]
    pub fn gateway_paths(&self) -> Option<Table> {
        let mut table = Table::new([
            ("gateway", Align::Left),
            ("path", Align::Right),
            ("from", Align::Left),
            ("to", Align::Left),
            ("via", Align::Left),
            ("settings", Align::Left),
        ]);
        for spec in &self.gateways {
            for (number, links) in spec.paths.iter().enumerate() {
                let via =
                    if links.is_empty() { "the shortest route".into() } else { links.join(", ") };
                let [from, to] = spec.ends.each_ref().map(ToString::to_string);
                let settings = if number == 0 { settings(spec) } else { String::new() };
                table.row([spec.name.to_string(), number.to_string(), from, to, via, settings]);
            }
        }
        (!self.gateways.is_empty()).then_some(table)
    }
}

/// The profile of a pair of gateways, and how its windows are coupled and shared.
fn settings(spec: &GatewaySpec) -> String {
    let coupling = match spec.config.controller.coupling {
        HarpCoupling::Adaptive => "adaptive",
        HarpCoupling::Joint => "joint",
        HarpCoupling::Independent => "independent",
    };
    let sharing = match spec.config.sharing {
        Sharing::Connection => "connection",
        Sharing::Site => "site",
    };
    format!("{}, {coupling}, by {sharing}", spec.profile)
}

fn row(name: &str, [from, to]: [&str; 2], profile: &Profile) -> [String; 7] {
    let queue = match profile.queue {
        Limit::Bytes(bytes) => bytes.to_string(),
        Limit::Packets(packets) => format!("{packets} packets"),
    };
    let (rate, delay) = (profile.rate.base.to_string(), profile.delay.to_string());
    [name.into(), from.into(), to.into(), rate, delay, queue, more(profile)]
}

/// The keys with values other than the defaults.
fn more(profile: &Profile) -> String {
    let rate = &profile.rate;
    let aqm = match profile.aqm {
        Aqm::DropTail => "",
        Aqm::Red(_) => "red",
        Aqm::Pie(_) => "pie",
        Aqm::CoDel(_) => "codel",
        Aqm::FqCoDel(_) => "fq-codel",
        Aqm::Step(_) => "step",
        Aqm::DualPi2(_) => "dualpi2",
        Aqm::Policer(_) => "policer",
        Aqm::Shaper(_) => "shaper",
    };
    let has_changes =
        !rate.changes.is_empty() || !profile.delays.is_empty() || !profile.losses.is_empty();
    let keys = [
        (!aqm.is_empty(), aqm),
        (profile.jitter.is_some(), "jitter"),
        (profile.loss != Loss::None, "loss"),
        (profile.duplicate > 0.0, "duplicate"),
        (profile.reorder.is_some(), "reorder"),
        (profile.corrupt > 0.0, "corrupt"),
        (rate.opportunities.is_some(), "opportunities"),
        (has_changes, "changes"),
        (rate.redraw.is_some(), "redraw"),
        (!profile.blackouts.is_empty(), "blackouts"),
    ];
    let set: Vec<&str> =
        keys.into_iter().filter(|(is_set, _)| *is_set).map(|(_, key)| key).collect();
    set.join(", ")
}
