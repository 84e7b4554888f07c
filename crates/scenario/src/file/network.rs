//! Network files of the emulator in scenarios: their links join the hosts `near` and `far`.

use std::sync::Arc;

use link::config::reader::Value;
use link::config::{Carry, Direction, Network, Problem};
use link::{Blackout, Profile};
use units::Span;

use super::LinkSpec;
use super::values::Result;

/// The links of the network file that `value` names.
pub(super) fn links(value: &Value<'_>) -> Result<Vec<LinkSpec>> {
    let network = Network::read(&value.file()?, None)?;
    let mut links = Vec::with_capacity(network.links.len());
    let between: [Arc<str>; 2] = ["near".into(), "far".into()];
    for link in &network.links {
        let refusal = if link.nat_idle.is_some() {
            Some("has a link with a NAT, which simulations do not have")
        } else if link.shares.is_some() {
            Some(
                "has two links with one bottleneck: give that link once, and name it in two \
                 subflows",
            )
        } else {
            None
        };
        if let Some(refusal) = refusal {
            return Err(value.error(Problem::Sense(refusal)));
        }
        let is_reachable = link.unreachable.is_none();
        let up = profile(value, &link.up, is_reachable)?;
        let down = profile(value, &link.down, is_reachable)?;
        links.push(LinkSpec::new(
            link.name.as_str().into(),
            between.clone(),
            up.into(),
            down.into(),
        ));
    }
    Ok(links)
}

fn profile(value: &Value<'_>, direction: &Direction, is_reachable: bool) -> Result<Profile> {
    let mut profile = direction.profile.clone();
    match direction.carry {
        Carry::NoPayload => {
            return Err(value.error(Problem::Sense(
                "has a link that looks into packets, which simulations do not do",
            )));
        }
        Carry::All if is_reachable => {}
        Carry::All | Carry::Nothing => {
            profile.blackouts = vec![Blackout { from: Span::ZERO, to: None, every: None }];
        }
    }
    Ok(profile)
}
