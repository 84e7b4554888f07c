//! The routes of plans.

use stripe::{Class, Route};

use crate::PathClass;
use crate::dial::{Candidate, Plan, Terms};

/// The route of a plan between two addresses.
pub(super) fn route(terms: &Terms, plan: &Plan, candidate: Candidate) -> Route {
    Route {
        path: plan.id,
        name: plan.name.clone(),
        device: plan.device.clone(),
        local: Some(candidate.local),
        remote: candidate.remote,
        class: match plan.class {
            PathClass::Primary => Class::Usual,
            // Until it is needed.
            PathClass::Overflow | PathClass::Backup => Class::Reserve,
        },
        max_rate: plan.max.as_ref().and_then(|limit| limit.rate()),
        weight: terms.options.weight,
    }
}
