//! `simulate --list`: what scenario files may name, and what is measured.

use policy::named::Signature;
use scenario::{MEASURES, Registry};

/// The controllers and packet schedulers, with their parameters and defaults, and the measures.
pub(super) fn names(registry: &Registry) -> String {
    let controllers = section("Congestion controllers", "controller", registry.controllers());
    let title = "Packet schedulers of striped connections";
    let schedulers = section(title, "scheduler", registry.schedulers());
    let measures = MEASURES.iter().map(|(name, unit, meaning)| {
        let unit = if unit.is_empty() { String::new() } else { format!(" ({unit})") };
        format!("{}\n", row(&format!("  {name}{unit}"), meaning))
    });
    let measures: String = measures.collect();
    format!("{controllers}\n{schedulers}\nMeasures, of flows, groups and links:\n{measures}")
}

fn section(title: &str, key: &str, algorithms: impl Iterator<Item = Signature>) -> String {
    let mut lines = vec![format!("{title}, {key} = \"NAME\" or \"NAME(PARAMETER=VALUE, ...)\":")];
    for Signature { name, summary, parameters } in algorithms {
        lines.push(row(&format!("  {name}"), summary));
        for parameter in parameters {
            let default = format!("    {}={}", parameter.name, parameter.default);
            lines.push(row(&default, parameter.summary));
        }
    }
    lines.push(String::new());
    lines.join("\n")
}

fn row(left: &str, right: &str) -> String {
    format!("{left:<28}{right}").trim_end().into()
}
