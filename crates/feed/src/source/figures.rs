//! What a source counts, for programs that watch it.

use events::FeedProgress;
use peer::metrics::{
    PeerRows, Registry, register_counter, register_gauge, register_gauge_of_paths,
};
use tokio::sync::watch;
use units::{Rate, Span};

/// A figure of a feed.
type OfFeed = fn(&FeedProgress) -> u64;
/// A figure of one of its paths.
type OfPath = fn(&events::FeedPath) -> Rate;

/// Adds the figures of a source to those of its process. `progress` is what
/// [`FeedOptions::progress`](crate::FeedOptions::progress) gets.
pub fn register_source(registry: &mut Registry, progress: &watch::Receiver<FeedProgress>) {
    let registry = registry.sub_registry_with_prefix("anabranch_feed");
    let counters: [(&str, &str, OfFeed); 2] = [
        ("kept_records", "Records that have come to the collector's disk", |now| now.kept),
        ("dropped_records", "Records that were dropped before they were sent", |now| now.dropped),
    ];
    for (name, help, value) in counters {
        let progress = progress.clone();
        register_counter(registry, name, help, move || value(&progress.borrow()));
    }
    let gauges: [(&str, &str, OfFeed); 6] = [
        ("streams", "Streams that are read", |now| now.streams as u64),
        ("waiting_octets", "Octets that are not at the collector", |now| now.waiting.0),
        ("waiting_seconds", "Seconds for which the oldest of them has waited", |now| {
            seconds(now.oldest.unwrap_or_default())
        }),
        ("demand_bits", "Bits a second that have to arrive; 0 without a demand", |now| {
            now.demand.as_ref().map_or(0, |demand| demand.rate.as_bits())
        }),
        ("demand_met", "Whether the demand is met", |now| {
            let is_met = now.demand.as_ref().and_then(|demand| demand.satisfied);
            u64::from(is_met == Some(true))
        }),
        ("demand_since_seconds", "Seconds for which that has been so", |now| {
            now.demand.as_ref().map_or(0, |demand| seconds(demand.since))
        }),
    ];
    for (name, help, value) in gauges {
        let progress = progress.clone();
        register_gauge(registry, name, help, None, move || value(&progress.borrow()));
    }
    let of_paths: [(&str, &str, OfPath); 2] = [
        ("path_set_bits", "Bits a second that a path is to have, y", |path| {
            path.set.unwrap_or_default()
        }),
        ("path_received_bits", "Bits a second that arrive over a path, x", |path| path.received),
    ];
    for (name, help, value) in of_paths {
        let progress = progress.clone();
        register_gauge_of_paths(registry, name, help, move || rows(&progress.borrow(), value));
    }
}

fn rows(now: &FeedProgress, value: OfPath) -> PeerRows {
    let paths = now.demand.iter().flat_map(|demand| &demand.paths);
    paths.map(|path| (path.name.clone(), "", value(path).as_bits())).collect()
}

fn seconds(span: Span) -> u64 {
    span.as_nanos() / 1_000_000_000
}

#[cfg(test)]
mod tests {
    use events::{FeedDemand, FeedPath};
    use units::Bytes;

    use super::*;

    #[test]
    fn whoever_watches_a_source_sees_what_its_screen_says() {
        let path = FeedPath {
            name: "wan0 via r2".into(),
            set: Some(Rate::mbit(3)),
            received: Rate::mbit(2),
        };
        let demand = FeedDemand {
            rate: Rate::mbit(5),
            satisfied: Some(true),
            since: Span::from_secs(48),
            draws: 3,
            paths: vec![path],
        };
        let oldest = Some(Span::from_millis(12_900));
        let now = FeedProgress {
            kept: 7,
            waiting: Bytes(99),
            oldest,
            dropped: 2,
            demand: Some(demand),
            ..FeedProgress::default()
        };
        let (_sender, progress) = watch::channel(now);
        let mut registry = Registry::default();
        register_source(&mut registry, &progress);
        let text = peer::metrics::text(&registry);
        for line in [
            "anabranch_feed_kept_records_total 7",
            "anabranch_feed_dropped_records_total 2",
            "anabranch_feed_waiting_octets 99",
            "anabranch_feed_waiting_seconds 12",
            "anabranch_feed_demand_bits 5000000",
            "anabranch_feed_demand_met 1",
            "anabranch_feed_demand_since_seconds 48",
            "anabranch_feed_path_set_bits{path=\"wan0 via r2\"} 3000000",
            "anabranch_feed_path_received_bits{path=\"wan0 via r2\"} 2000000",
        ] {
            assert!(text.lines().any(|own| own == line), "{line}\n{text}");
        }
    }
}
