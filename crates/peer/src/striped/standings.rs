//! What the paths of a connection are for, as the side that dials tells the side that listens: its
//! data keeps to it too, where it is the one that sends.

use stripe::{Class, Connection, PathStanding};
use units::{Rate, SubflowId};
use wire::asked::{MOST_STANDINGS, Standings, WireStanding};

/// What is said of these paths.
pub(super) fn of_paths(standings: &[PathStanding]) -> Standings {
    let said = |one: &PathStanding| WireStanding {
        path: one.path.0,
        class: match one.class {
            Class::Usual => 0,
            Class::Overflow => 1,
            Class::Reserve => 2,
        },
        rate: one.rate.map_or(0, Rate::as_bits),
    };
    Standings(standings.iter().take(MOST_STANDINGS).map(said).collect())
}

/// Has a connection keep to what the other side said.
pub(super) fn follow(connection: &Connection, standings: &Standings) {
    let heard = |one: &WireStanding| PathStanding {
        path: SubflowId(one.path),
        class: match one.class {
            0 => Class::Usual,
            1 => Class::Overflow,
            _ => Class::Reserve,
        },
        rate: Some(Rate::from_bits(one.rate)).filter(|rate| *rate > Rate::ZERO),
    };
    connection.follow_standings(standings.0.iter().map(heard).collect());
}
