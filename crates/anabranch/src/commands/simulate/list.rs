//! `simulate --list`: what scenario files may name.

use policy::named::Signature;
use scenario::Registry;

/// The controllers and packet schedulers, each with its parameters and their defaults.
pub(super) fn names(registry: &Registry) -> String {
    let controllers = section("Congestion controllers", "controller", registry.controllers());
    let title = "Packet schedulers of striped connections";
    let schedulers = section(title, "scheduler", registry.schedulers());
    format!("{controllers}\n{schedulers}")
}

fn section(title: &str, key: &str, algorithms: impl Iterator<Item = Signature>) -> String {
    let mut lines = vec![format!("{title}, {key} = \"NAME\" or \"NAME(PARAMETER=VALUE, ...)\":")];
    for Signature { name, summary, parameters } in algorithms {
        lines.push(format!("  {name:<26}{summary}").trim_end().into());
        for parameter in parameters {
            let default = format!("{}={}", parameter.name, parameter.default);
            lines.push(format!("    {default:<24}{}", parameter.summary));
        }
    }
    lines.push(String::new());
    lines.join("\n")
}
