//! Plans of all paths at the begin.

use super::over_relays::plans_over_relays;
use super::plan::{Plan, plan_to};
use super::terms::Terms;
use crate::Error;

/// Plans of the paths that `terms` ask for to every host, as many as its options allow.
///
/// # Errors
/// [`Error::NoPath`] if there is none, [`Error::UnknownHost`] if no host has the name,
/// [`Error::Usage`] if a named path is not possible.
pub async fn plan(terms: &Terms) -> Result<Vec<Plan>, Error> {
    let mut plans: Vec<Plan> = Vec::new();
    let mut unreachable = None;
    let is_relayed = !terms.relayed.is_empty();
    let hosts = 0..terms.to.len();
    for host in hosts.filter(|_| terms.options.has_direct && !terms.options.is_met) {
        match plan_to(terms, host, &plans).await {
            Ok(more) => plans.extend(more),
            // One of several hosts may be unreachable, or reached over a relay alone.
            Err(error @ (Error::NoPath { .. } | Error::UnknownHost { .. }))
                if terms.to.len() > 1 || is_relayed =>
            {
                unreachable = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    for plan in plans_over_relays(terms).await? {
        plans.push(plan.beside(&plans, None, &terms.options)?);
    }
    plans.truncate(terms.options.most_paths);
    match unreachable {
        Some(error) if plans.is_empty() => Err(error),
        _ => Ok(plans),
    }
}
