//! What a host counts, for programs that watch it, in the text format of `OpenMetrics`.
//!
//! The host has a registry ([`Hosting::metrics`](crate::host::Hosting::metrics)), and each
//! service adds its own figures ([`Service::register`](crate::host::Service::register)). No label
//! has a value that an unknown peer chose.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;

pub use prometheus_client::metrics::counter::Counter;
pub use prometheus_client::metrics::family::Family;
pub use prometheus_client::metrics::gauge::Gauge;
pub use prometheus_client::registry::{Registry, Unit};

/// The media type of [`text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Names and values of labels.
pub type Labels<const N: usize> = [(&'static str, &'static str); N];

/// All figures of a registry at this moment.
#[must_use]
pub fn text(registry: &Registry) -> String {
    let mut text = String::new();
    encode(&mut text, registry).expect("a string takes everything");
    text
}

/// Registers a figure that goes up and down, and is read whenever somebody asks.
pub fn register_gauge(
    registry: &mut Registry,
    name: &str,
    help: &str,
    unit: Option<Unit>,
    read: impl Fn() -> u64 + Send + Sync + 'static,
) {
    register(registry, name, help, unit, Read { metric_type: MetricType::Gauge, read });
}

/// Registers a figure that only grows, and is read whenever somebody asks.
pub fn register_counter(
    registry: &mut Registry,
    name: &str,
    help: &str,
    read: impl Fn() -> u64 + Send + Sync + 'static,
) {
    register(registry, name, help, None, Read { metric_type: MetricType::Counter, read });
}

/// Registers what is taken of a budget as `name`, and its bound as `name` with `_limit`. `what` is
/// the subject of both.
pub fn register_budget(
    registry: &mut Registry,
    name: &str,
    what: &str,
    unit: Option<Unit>,
    most: u64,
    taken: impl Fn() -> u64 + Send + Sync + 'static,
) {
    register_gauge(registry, name, what, unit.clone(), taken);
    register_gauge(
        registry,
        &format!("{name}_limit"),
        &format!("Bound: {what}"),
        unit,
        move || most,
    );
}

fn register<F>(registry: &mut Registry, name: &str, help: &str, unit: Option<Unit>, read: Read<F>)
where
    F: Fn() -> u64 + Send + Sync + 'static,
{
    match unit {
        Some(unit) => registry.register_with_unit(name, help, unit, read),
        None => registry.register(name, help, read),
    }
}

/// Rows of a figure: the name of a peer, which is no stranger's, or of a path, a direction, which
/// may be empty, and the value.
pub type PeerRows = Vec<(String, &'static str, u64)>;

/// Registers a figure of each peer that goes up and down. There may be a thousand peers or so.
pub fn register_gauge_of_peers(
    registry: &mut Registry,
    name: &'static str,
    help: &'static str,
    read: impl Fn() -> PeerRows + Send + Sync + 'static,
) {
    let (metric_type, label) = (MetricType::Gauge, "peer");
    let rows = ReadRows { name, help, unit: None, metric_type, label, read };
    registry.register_collector(Box::new(rows));
}

/// Registers a figure of each path of this process that goes up and down.
pub fn register_gauge_of_paths(
    registry: &mut Registry,
    name: &'static str,
    help: &'static str,
    read: impl Fn() -> PeerRows + Send + Sync + 'static,
) {
    let (metric_type, label) = (MetricType::Gauge, "path");
    let rows = ReadRows { name, help, unit: None, metric_type, label, read };
    registry.register_collector(Box::new(rows));
}

/// Registers a figure of each peer that only grows. There may be a thousand peers or so.
pub fn register_counter_of_peers(
    registry: &mut Registry,
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    read: impl Fn() -> PeerRows + Send + Sync + 'static,
) {
    let (metric_type, label) = (MetricType::Counter, "peer");
    registry.register_collector(Box::new(ReadRows { name, help, unit, metric_type, label, read }));
}

/// A figure of each peer, or path, that has a function.
struct ReadRows<F> {
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    metric_type: MetricType,
    /// The name of the label that says whose it is.
    label: &'static str,
    read: F,
}

impl<F: Fn() -> PeerRows + Send + Sync + 'static> Collector for ReadRows<F> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (unit, metric_type) = (self.unit.as_ref(), self.metric_type);
        let mut metric = encoder.encode_descriptor(self.name, self.help, unit, metric_type)?;
        for (peer, direction, value) in (self.read)() {
            let labels = [(self.label, peer.as_str()), ("direction", direction)];
            let labels = if direction.is_empty() { &labels[..1] } else { &labels[..] };
            let mut row = metric.encode_family(&labels)?;
            match metric_type {
                MetricType::Counter => ConstCounter::new(value).encode(row)?,
                _ => row.encode_gauge(&value)?,
            }
        }
        Ok(())
    }
}

impl<F> fmt::Debug for ReadRows<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadRows").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A figure that has a function.
struct Read<F> {
    metric_type: MetricType,
    read: F,
}

impl<F: Fn() -> u64> EncodeMetric for Read<F> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        match self.metric_type {
            MetricType::Counter => ConstCounter::new((self.read)()).encode(encoder),
            _ => encoder.encode_gauge(&(self.read)()),
        }
    }

    fn metric_type(&self) -> MetricType {
        self.metric_type
    }
}

impl<F> fmt::Debug for Read<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Read").finish_non_exhaustive()
    }
}

/// One more of what a gauge counts, until it is dropped.
#[derive(Debug)]
pub struct Held(Gauge);

impl Held {
    /// Adds one.
    #[must_use]
    pub fn new(gauge: &Gauge) -> Held {
        gauge.inc();
        Held(gauge.clone())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.dec();
    }
}
