//! The descriptors of this process: how many it may have, and how many connections that lets it
//! take.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that are left for all but connections of [`small_connections`] and what belongs to
/// them: connections of strangers, those of other services with the files that these have open, and
/// those of the process itself.
const OTHERS: usize = 1_024;
/// The most connections of [`small_connections`].
pub const MOST_SMALL: usize = 2_048;
/// The fewest of them, however low the limit is.
const FEWEST_SMALL: usize = 256;
/// The limit of descriptors that leaves room for [`MOST_SMALL`].
pub const ENOUGH: usize = OTHERS + 2 * MOST_SMALL;

/// Raises the limit of descriptors to what the system allows this process.
pub fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::debug!(%error, "the limit of descriptors stays");
    }
}

/// How many connections this process takes of services whose connections hold little
/// ([`Service::has_small_connections`](crate::host::Service::has_small_connections)): 2,048, or as
/// many as the limit of descriptors leaves room for, with a further descriptor for each, but 256 in
/// any case. Raises the limit first.
#[must_use]
pub fn small_connections() -> usize {
    raise_limit();
    // `None` is no limit.
    let limit = getrlimit(Resource::Nofile).current;
    small_within(limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX)))
}

fn small_within(limit: usize) -> usize {
    (limit.saturating_sub(OTHERS) / 2).clamp(FEWEST_SMALL, MOST_SMALL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_limit_leaves_room_for_fewer_connections() {
        let most = (usize::MAX, MOST_SMALL);
        for (limit, small) in
            [(0, 256), (1_024, 256), (4_096, 1_536), (ENOUGH - 1, 2_047), (ENOUGH, 2_048), most]
        {
            assert_eq!(small_within(limit), small, "{limit}");
        }
    }

    #[test]
    fn the_limit_is_what_the_system_allows() {
        raise_limit();
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        assert_eq!(current, maximum);
    }
}
