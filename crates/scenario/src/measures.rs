//! Measured values in little memory: a large scenario has tens of thousands per run.

use std::sync::Arc;

/// All measures: name, unit, meaning.
pub const MEASURES: &[(&str, &str, &str)] = &[
    (
        "goodput",
        "Mbit/s",
        "payload that arrived at the receiver in this time, in order or not, each byte once; for \
         UDP, packets with their headers",
    ),
    (
        "loss",
        "",
        "the fraction of the packets sent that the network lost: packets with data lost in this \
         time, over those sent in it",
    ),
    (
        "window",
        "packets",
        "the sender's window, of all subflows together, its mean while the flow lives",
    ),
    (
        "rtt",
        "ms",
        "the smoothed round-trip time, the largest of the subflows, its mean while the flow lives",
    ),
    ("delay", "ms", "the one-way delay of packets with data, from host to host, its mean"),
    ("delay_p50", "ms", "the same, the median"),
    ("delay_p95", "ms", "the same, the 95th percentile"),
    ("delay_p99", "ms", "the same, the 99th percentile"),
    ("delay_max", "ms", "the same, the largest"),
    (
        "jitter",
        "ms",
        "the difference of the one-way delays of packets that arrive one after the other (RFC \
         3393), its mean",
    ),
    (
        "gap",
        "ms",
        "the longest time in which no bytes arrived in order at the receiver, while the flow \
         lives; of groups, the longest of their flows",
    ),
    ("retransmissions", "packets", "sent again, of all subflows together"),
    ("timeouts", "", "how often the retransmission timer ran out"),
    ("requests", "", "files, writes or pages that arrived completely"),
    ("completion", "s", "from asking or writing to the last byte's arrival, its mean"),
    ("completion_p50", "s", "the same, the median"),
    ("completion_p95", "s", "the same, the 95th percentile"),
    ("completion_p99", "s", "the same, the 99th percentile"),
    (
        "slowdown",
        "",
        "the completion time over the time that the request would take alone, its mean",
    ),
    ("slowdown_p50", "", "the same, the median"),
    ("slowdown_p95", "", "the same, the 95th percentile"),
    ("slowdown_p99", "", "the same, the 99th percentile"),
    ("flows", "", "of flows that arrive in the course of the run: all that the file describes"),
    ("begun", "", "of these: those that began in the window"),
    ("completed", "", "of the begun ones: those that were complete at the window's end"),
    (
        "bottleneck",
        "",
        "of a striped connection's subflow, at the window's end: the number, from 1 on, of the \
         first subflow that shares its bottleneck; 0 if none is known",
    ),
    (
        "jain",
        "",
        "Jain's index of the goodputs of the flows that live in this time: 1 is equal, 1/n is one \
         alone; none if all are 0",
    ),
    ("jain_short", "", "the same of each interval of `sample`, its mean"),
    ("throughput", "Mbit/s", "packets that left the link, with their headers"),
    ("utilisation", "", "the throughput over what the link could carry at its rates in that time"),
    ("queue", "packets", "what waits, the packet on the wire not counted, its mean over time"),
    ("queue_p50", "packets", "the same, the median over time"),
    ("queue_p95", "packets", "the same, not exceeded for 95 % of the time"),
    ("queue_p99", "packets", "the same, not exceeded for 99 % of the time"),
    ("queue_max", "packets", "the same, the largest"),
    ("queue_bytes", "B", "the same in bytes, its mean over time"),
    ("queue_time", "ms", "how long packets wait, the time on the wire not counted, their mean"),
    ("drops", "packets", "dropped by a full queue or by the queue's management"),
    ("marks", "packets", "marked instead of dropped (ECN); of a flow, those that arrived"),
    ("losses", "packets", "lost at random, in blackouts, or for their size"),
];

/// Whether there is a measure of this name.
pub(crate) fn is_measure(name: &str) -> bool {
    Metric::named(name).is_some()
}

/// The kind of a measured subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Flow,
    Group,
    Link,
    All,
    Subflow,
    /// The requests of one class of size, of a group or of all flows.
    Class,
}

impl Scope {
    const ALL: [Scope; 6] =
        [Scope::Flow, Scope::Group, Scope::Link, Scope::All, Scope::Subflow, Scope::Class];

    fn named(name: &str) -> Option<Scope> {
        Scope::ALL.into_iter().find(|scope| scope.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Scope::Flow => "flow",
            Scope::Group => "group",
            Scope::Link => "link",
            Scope::All => "all",
            Scope::Subflow => "subflow",
            Scope::Class => "class",
        }
    }
}

/// An index into [`MEASURES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Metric(u8);

impl Metric {
    /// The measure of this name. In a constant, an unknown name is a compile error.
    ///
    /// # Panics
    /// If none has this name.
    pub(crate) const fn listed(name: &str) -> Metric {
        match Metric::named(name) {
            Some(metric) => metric,
            None => panic!("every measure is listed"),
        }
    }

    const fn named(name: &str) -> Option<Metric> {
        let mut number: u8 = 0;
        while (number as usize) < MEASURES.len() {
            if is_same(MEASURES[number as usize].0, name) {
                return Some(Metric(number));
            }
            number += 1;
        }
        None
    }

    fn row(self) -> &'static (&'static str, &'static str, &'static str) {
        &MEASURES[usize::from(self.0)]
    }
}

/// `==` for constants.
const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// A measured value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measure<'a> {
    /// The flow, the subflow (`name/0`, counted from 0), the group of flows, or the direction of a
    /// link; of a class the group; empty for `all`, and for a class of all flows.
    pub of: &'a str,
    /// Of a class of sizes, its name, as in [`crate::file::SizeClasses::names`]; otherwise empty.
    pub size_class: &'a str,
    /// The window of time.
    pub window: &'a str,
    /// The value, in [`Measure::unit`].
    pub value: f64,
    scope: Scope,
    metric: Metric,
}

impl Measure<'_> {
    /// The kind of the subject: `flow`, `subflow`, `group`, `link`, `all` or `class`.
    #[must_use]
    pub fn scope(&self) -> &'static str {
        self.scope.name()
    }

    /// The name of the measure, from [`MEASURES`].
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.metric.row().0
    }

    /// Its unit.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        self.metric.row().1
    }
}

/// The measured values of a run, in the order in which they were added. Each takes 16 bytes: names
/// are stored once.
#[derive(Clone, Debug, Default)]
pub struct Measures {
    subjects: Vec<Subject>,
    windows: Vec<Arc<str>>,
    rows: Vec<Row>,
}

/// What is measured.
#[derive(Clone, Debug)]
struct Subject {
    of: Arc<str>,
    /// The class, of a class of sizes.
    size_class: Option<Arc<str>>,
}

impl Subject {
    /// The names of the subject and of the class, which are empty if there is none.
    fn names(&self) -> (&str, &str) {
        (&self.of, self.size_class.as_deref().unwrap_or_default())
    }
}

/// A measured value, with the indices of its names.
#[derive(Clone, Copy, Debug)]
struct Row {
    value: f64,
    of: SubjectId,
    window: WindowId,
    scope: Scope,
    metric: Metric,
}

const _: () = assert!(size_of::<Row>() == 16, "four per cache line");

/// The index of a subject's name in [`Measures`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct SubjectId(u32);

/// The index of a window's name in [`Measures`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowId(u16);

/// The maximum number of windows.
pub(crate) const MOST_WINDOWS: usize = 1 << u16::BITS;

impl Measures {
    /// Empty, with memory for this number of measures.
    pub(crate) fn with_capacity(measures: usize) -> Measures {
        Measures { rows: Vec::with_capacity(measures), ..Measures::default() }
    }

    /// Adds the name of a subject, and the class of its requests if it is one of sizes.
    ///
    /// # Panics
    /// If there are more than 2^32.
    pub(crate) fn subject(&mut self, of: Arc<str>, size_class: Option<Arc<str>>) -> SubjectId {
        let number = u32::try_from(self.subjects.len()).expect("fewer than 2^32 subjects");
        self.subjects.push(Subject { of, size_class });
        SubjectId(number)
    }

    /// Adds the name of a window of time.
    ///
    /// # Panics
    /// If there are more than [`MOST_WINDOWS`].
    pub(crate) fn window(&mut self, name: Arc<str>) -> WindowId {
        let number = u16::try_from(self.windows.len())
            .expect("the file reader limits the number of windows");
        self.windows.push(name);
        WindowId(number)
    }

    /// Adds a measure.
    pub(crate) fn put(
        &mut self,
        scope: Scope,
        of: SubjectId,
        window: WindowId,
        metric: Metric,
        value: f64,
    ) {
        self.rows.push(Row { value, of, window, scope, metric });
    }

    /// Adds a measure by its names, `of` with that of the class; `None` if the scope or the measure
    /// is unknown, or there are too many windows. Names that the previous measure has too are not
    /// stored again.
    pub(crate) fn put_named(
        &mut self,
        scope: &str,
        of: (&str, &str),
        window: &str,
        name: &str,
        value: f64,
    ) -> Option<()> {
        let (scope, metric) = (Scope::named(scope)?, Metric::named(name)?);
        let last = self.rows.last().copied();
        let window = match last {
            Some(last) if *self.windows[usize::from(last.window.0)] == *window => last.window,
            _ if self.windows.len() == MOST_WINDOWS => return None,
            _ => self.window(window.into()),
        };
        let of = match last {
            Some(last) if self.subjects[last.of.0 as usize].names() == of => last.of,
            _ => {
                let (of, class) = of;
                self.subject(of.into(), (!class.is_empty()).then(|| class.into()))
            }
        };
        self.put(scope, of, window, metric, value);
        Some(())
    }

    /// Drops the measures that are not to be kept, and their memory.
    pub fn retain(&mut self, mut is_kept: impl FnMut(&Measure<'_>) -> bool) {
        let kept: Vec<bool> = self.iter().map(|measure| is_kept(&measure)).collect();
        let mut kept = kept.into_iter();
        self.rows.retain(|_| kept.next() == Some(true));
        self.rows.shrink_to_fit();
        let mut places: Vec<Option<SubjectId>> = vec![None; self.subjects.len()];
        let subjects = core::mem::take(&mut self.subjects);
        for row in &mut self.rows {
            let place = row.of.0 as usize;
            row.of = *places[place].get_or_insert_with(|| {
                let number = u32::try_from(self.subjects.len()).unwrap_or(u32::MAX);
                self.subjects.push(subjects[place].clone());
                SubjectId(number)
            });
        }
    }

    /// The number of measures.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no measures.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Iterates over the measures.
    #[must_use]
    pub fn iter(&self) -> MeasuresIter<'_> {
        MeasuresIter { subjects: &self.subjects, windows: &self.windows, rows: self.rows.iter() }
    }
}

/// Compares measures and their order, not the order of the stored names.
impl PartialEq for Measures {
    fn eq(&self, other: &Measures) -> bool {
        self.iter().eq(other)
    }
}

impl<'a> IntoIterator for &'a Measures {
    type Item = Measure<'a>;
    type IntoIter = MeasuresIter<'a>;

    fn into_iter(self) -> MeasuresIter<'a> {
        self.iter()
    }
}

/// An iterator over [`Measures`].
#[derive(Clone, Debug)]
pub struct MeasuresIter<'a> {
    subjects: &'a [Subject],
    windows: &'a [Arc<str>],
    rows: std::slice::Iter<'a, Row>,
}

impl<'a> Iterator for MeasuresIter<'a> {
    type Item = Measure<'a>;

    fn next(&mut self) -> Option<Measure<'a>> {
        let Row { value, of, window, scope, metric } = *self.rows.next()?;
        let (of, size_class) = self.subjects[of.0 as usize].names();
        let window = &self.windows[usize::from(window.0)];
        Some(Measure { of, size_class, window, value, scope, metric })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.rows.size_hint()
    }
}

impl ExactSizeIterator for MeasuresIter<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    const GOODPUT: Metric = Metric::listed("goodput");
    const LOSSES: Metric = Metric::listed("losses");

    fn said(measures: &Measures) -> Vec<(&str, &str, &str, &str, &str, f64)> {
        measures.iter().map(|m| (m.scope(), m.of, m.window, m.name(), m.unit(), m.value)).collect()
    }

    fn two_flows() -> Measures {
        let mut measures = Measures::with_capacity(4);
        let subjects = ["b", "a"].map(|name| measures.subject(name.into(), None));
        for window in ["steady", "start"] {
            let window = measures.window(window.into());
            for (of, value) in subjects.into_iter().zip([1.0, 2.0]) {
                measures.put(Scope::Flow, of, window, GOODPUT, value);
            }
        }
        measures
    }

    #[test]
    fn measures_keep_their_order() {
        let measures = two_flows();
        let row = |of, window, value| ("flow", of, window, "goodput", "Mbit/s", value);
        let wanted = [
            row("b", "steady", 1.0),
            row("a", "steady", 2.0),
            row("b", "start", 1.0),
            row("a", "start", 2.0),
        ];
        assert_eq!(said(&measures), wanted);
        assert_eq!((measures.len(), measures.is_empty(), measures.iter().len()), (4, false, 4));
        assert!(Measures::default().is_empty() && Measures::default().iter().next().is_none());
    }

    #[test]
    fn what_is_not_kept_takes_no_memory() {
        let mut measures = two_flows();
        measures.retain(|measure| measure.of == "a");
        let row = |window| ("flow", "a", window, "goodput", "Mbit/s", 2.0);
        assert_eq!(said(&measures), [row("steady"), row("start")]);
        assert_eq!((measures.subjects.len(), measures.rows.capacity()), (1, 2));
    }

    #[test]
    fn names_are_stored_once() {
        let measures = two_flows();
        let of: Vec<*const u8> = measures.iter().map(|measure| measure.of.as_ptr()).collect();
        assert!(of[0] == of[2] && of[1] == of[3] && of[0] != of[1]);

        let mut read = Measures::default();
        for (of, window, name) in [
            ("a/up", "steady", "drops"),
            ("a/up", "steady", "marks"),
            ("a/down", "steady", "drops"),
            ("a/down", "start", "drops"),
        ] {
            assert_eq!(read.put_named("link", (of, ""), window, name, 0.0), Some(()));
        }
        let subjects: Vec<_> = read.subjects.iter().map(Subject::names).collect();
        assert_eq!(subjects, [("a/up", ""), ("a/down", "")]);
        assert_eq!(read.windows.join(" "), "steady start");
    }

    #[test]
    fn measures_are_added_by_name() {
        for scope in Scope::ALL {
            for (name, unit, _) in MEASURES {
                let mut measures = Measures::default();
                assert_eq!(
                    measures.put_named(scope.name(), ("x", ""), "steady", name, 3.5),
                    Some(())
                );
                assert_eq!(said(&measures), [(scope.name(), "x", "steady", *name, *unit, 3.5)]);
            }
        }
    }

    #[test]
    fn unknown_names_are_refused() {
        let mut measures = Measures::default();
        for (scope, name) in [
            ("flows", "goodput"),
            ("", "goodput"),
            ("flow", "goodputs"),
            ("flow", "good"),
            ("flow", ""),
        ] {
            assert_eq!(
                measures.put_named(scope, ("x", ""), "steady", name, 1.0),
                None,
                "{scope} {name}"
            );
        }
        assert!(measures.is_empty() && measures.subjects.is_empty() && measures.windows.is_empty());
    }

    #[test]
    fn more_windows_than_indices_are_refused() {
        let mut measures = Measures::default();
        for number in 0..MOST_WINDOWS {
            assert_eq!(
                measures.put_named("all", ("", ""), &number.to_string(), "jain", 1.0),
                Some(())
            );
        }
        assert_eq!(measures.put_named("all", ("", ""), "another", "jain", 1.0), None);
        assert_eq!(
            measures.put_named("all", ("", ""), "65535", "goodput", 1.0),
            Some(()),
            "the last one is known"
        );
        assert_eq!(measures.iter().last().map(|measure| measure.window), Some("65535"));
    }

    #[test]
    fn equality_ignores_how_names_are_stored() {
        let measures = two_flows();
        // All names except the windows' are stored twice here.
        let mut read = Measures::default();
        for m in &measures {
            read.put_named(m.scope(), (m.of, m.size_class), m.window, m.name(), m.value).unwrap();
        }
        assert_eq!(read.subjects.len(), 4);
        assert_eq!(read, measures);
        assert_eq!(measures.clone(), measures);

        let other = |scope, of, window, metric, value| {
            let mut other = Measures::default();
            let (of, window) =
                (other.subject(Arc::from(of), None), other.window(Arc::from(window)));
            other.put(scope, of, window, metric, value);
            other
        };
        let one = other(Scope::Flow, "a", "steady", GOODPUT, 1.0);
        assert_eq!(one, other(Scope::Flow, "a", "steady", GOODPUT, 1.0));
        assert_ne!(one, other(Scope::Group, "a", "steady", GOODPUT, 1.0));
        assert_ne!(one, other(Scope::Flow, "b", "steady", GOODPUT, 1.0));
        assert_ne!(one, other(Scope::Flow, "a", "start", GOODPUT, 1.0));
        assert_ne!(one, other(Scope::Flow, "a", "steady", LOSSES, 1.0));
        assert_ne!(one, other(Scope::Flow, "a", "steady", GOODPUT, 2.0));
        assert_ne!(one, Measures::default());
    }
}
