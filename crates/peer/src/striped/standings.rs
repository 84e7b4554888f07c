//! What the paths of a connection are for, as the side that dials tells the side that listens: its
//! data keeps to it too, where it is the one that sends.

use stripe::{Class, Connection, PathStanding};
use units::{Rate, SubflowId};
use wire::asked::{MOST_STANDINGS, Standings, WireStanding};
#[cfg(doc)]
use wire::session::WITH_EFFORTS;

/// What is said of these paths, to a side that [knows](WITH_EFFORTS) of the background or not.
pub(super) fn of_paths(standings: &[PathStanding], knows_efforts: bool) -> Standings {
    let said = |one: &PathStanding| WireStanding {
        path: one.path.0,
        class: match one.class {
            Class::Usual => 0,
            Class::Overflow => 1,
            Class::Reserve => 2,
        },
        is_background: one.is_background && knows_efforts,
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
        is_background: one.is_background,
        rate: Some(Rate::from_bits(one.rate)).filter(|rate| *rate > Rate::ZERO),
    };
    connection.follow_standings(standings.0.iter().map(heard).collect());
}
