//! Figures from the tables of a sweep: a measure over a parameter, and distributions.

mod error;
mod parameter;
mod table;

use std::collections::BTreeMap;
use std::path::Path;

use report::plot::{Axis, Figure, Panel, Series};
use report::tidy::TableRow;

pub use error::ChartError;
use parameter::Parameter;
use table::{Columns, Table};

use crate::measures::{MEASURES, is_measure};
use crate::results::SIZE_CLASS;

/// What a figure shows.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// The measure.
    pub measure: String,
    /// Whether to show its distribution, and not its means over a parameter.
    pub is_distribution: bool,
    /// The group of flows, link or flow; `None` for all flows.
    pub of: Option<String>,
    /// The parameter of the x axis, or `size_class`; `None` for the first of the sweep.
    pub x: Option<String>,
    /// The parameter with a curve for each value, or `size_class`; `None` for the parameter that is
    /// left, if there is one.
    pub by: Option<String>,
    /// Values to which other parameters are fixed, or the class of sizes.
    pub fixed: Vec<(String, String)>,
    /// The window of time; `None` for the one from `warmup` to the end.
    pub window: Option<String>,
}

/// The window from `warmup` to the end.
const STEADY: &str = "steady";
/// The measures of single requests.
const OF_REQUESTS: [&str; 3] = ["completion", "slowdown", "size"];
/// The measure of which the distribution is that of packets.
const OF_PACKETS: &str = "delay";
/// The table of single flows that arrive; its columns of the sweep are those of the measures.
const FLOWS: &str = "flows";
/// The scope of the measures of classes of sizes.
const CLASS: &str = "class";
/// The subjects of a name, those before others that are preferred.
const SCOPES: [&str; 5] = ["all", "group", "link", "flow", "subflow"];
/// A numeric axis is logarithmic if its largest value is this many times its least.
const DECADES: f64 = 20.0;

/// The values of a chart, by curve and by x.
type Curves = BTreeMap<String, BTreeMap<String, Vec<f64>>>;

impl Chart {
    /// Draws the chart from the tables of `folder`, which `simulate --out` has written.
    ///
    /// # Errors
    /// If a table is missing or cannot be read, or does not have what the chart asks for.
    pub fn draw(&self, folder: &Path) -> Result<Figure, ChartError> {
        let panel =
            if self.is_distribution { self.distribution(folder)? } else { self.means(folder)? };
        Ok(Figure::new("").panel(panel))
    }

    /// Means with confidence intervals over a parameter.
    fn means(&self, folder: &Path) -> Result<Panel, ChartError> {
        let unit = unit_of(&self.measure)?;
        let table = self.open(folder, "measures")?;
        let sweep = self.sweep(&table, true)?;
        let x = sweep.x.clone().ok_or(ChartError::NothingSwept)?;
        let window = self.window.as_deref().unwrap_or(STEADY);
        let mut found: BTreeMap<usize, Curves> = BTreeMap::new();
        let mut seen = Seen::default();
        self.read_measures(folder, |columns, row, is_taken| {
            seen.note(row, columns);
            let scope = self.scope_of(row, columns).filter(|_| is_taken);
            let Some(scope) = scope else { return Ok(()) };
            let value = columns.value(row)?;
            let curves = found.entry(scope).or_default();
            let curve = curves.entry(sweep.curve(row)).or_default();
            curve.entry(row.text(x.1).to_owned()).or_default().push(value);
            Ok(())
        })?;
        // Of one name, the scope that comes first.
        let Some((_, curves)) = found.pop_first() else {
            return Err(self.nothing(&seen, window));
        };
        let order = table.order(&x.0);
        let name = if x.0 == SIZE_CLASS { "size" } else { &x.0 };
        let parameter = Parameter::new(name, &order);
        let (positions, x_axis) = (parameter.positions(), parameter.axis());
        let mut panel = Panel::new(x_axis, Axis::new(self.label(), unit));
        let names = sweep.names(&table, &curves);
        for (number, name) in names.iter().enumerate() {
            let offset = parameter.offset(number, names.len());
            let points = order.iter().zip(&positions).filter_map(|(value, at)| {
                let samples = curves[name].get(value)?;
                Some((at + offset, report::mean(samples)?))
            });
            let series = Series::means(name.as_str(), points);
            panel = panel.series(if parameter.is_number() { series.joined() } else { series });
        }
        Ok(panel)
    }

    /// A curve of the distribution for each value of a parameter: over requests, packets, or flows.
    fn distribution(&self, folder: &Path) -> Result<Panel, ChartError> {
        let unit = match self.measure.as_str() {
            "size" => "B",
            name => unit_of(name)?,
        };
        let (of, (samples, names)) = match self.measure.as_str() {
            OF_PACKETS => ("packets", self.packet_samples(folder)?),
            name if OF_REQUESTS.contains(&name) => ("requests", self.request_samples(folder)?),
            _ => ("flows", self.flow_samples(folder)?),
        };
        let all = || samples.values().flatten().map(|(value, _)| *value);
        let (least, most) = all()
            .filter(|value| *value > 0.0)
            .fold((f64::INFINITY, 0.0_f64), |(a, b), value| (a.min(value), b.max(value)));
        let mut x = Axis::new(self.label(), unit);
        if most > least * DECADES && all().all(|value| value > 0.0) {
            x = x.log();
        }
        let mut panel = Panel::new(x, Axis::share(format!("fraction of {of}")));
        for name in names {
            panel = panel.series(Series::counted_cdf(name.as_str(), &samples[&name]));
        }
        Ok(panel)
    }

    /// The one-way delays of all packets, by curve, and the curves in order.
    fn packet_samples(&self, folder: &Path) -> Result<Samples, ChartError> {
        let mut table = self.open(folder, "delays")?;
        let sweep = self.sweep(&table, false)?;
        let [of_window, group] = ["window", "group"].map(|name| table.need(name));
        let [delay, packets] = ["delay", "packets"].map(|name| table.need(name));
        let (of_window, group, delay, packets) = (of_window?, group?, delay?, packets?);
        let window = self.window.as_deref().unwrap_or(STEADY);
        // By their text: there are a few hundred different ones in each power of ten.
        let mut counts: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        let mut seen = Seen::default();
        while let Some(row) = table.reader.next_row()? {
            seen.note_group(row.text(group), row.text(of_window));
            if row.text(of_window) != window
                || self.of.as_ref().is_some_and(|name| name != row.text(group))
                || !self.takes(&table.sweep, row)
            {
                continue;
            }
            let text = row.text(packets);
            let count: u64 =
                text.parse().map_err(|_| ChartError::NotANumber { text: text.to_owned() })?;
            let curve = counts.entry(sweep.curve(row)).or_default();
            *curve.entry(row.text(delay).to_owned()).or_insert(0) += count;
        }
        let mut samples: BTreeMap<String, Counted> = BTreeMap::new();
        for (curve, counts) in counts {
            let each = counts.iter().map(|(delay, count)| Ok((number(delay)?, *count)));
            samples.insert(curve, each.collect::<Result<_, ChartError>>()?);
        }
        self.sorted(&table, &sweep, samples, &seen, window)
    }

    /// The values of all requests, by curve, and the curves in order.
    fn request_samples(&self, folder: &Path) -> Result<Samples, ChartError> {
        let mut table = self.open(folder, "requests")?;
        if self.wants_classes() {
            // Requests come in no order of size.
            table.take_order(SIZE_CLASS, &self.open(folder, "measures")?);
        }
        let sweep = self.sweep(&table, false)?;
        let [flow, group] = ["flow", "group"].map(|name| table.need(name));
        let (flow, group, value) = (flow?, group?, table.need(&self.measure)?);
        let mut samples: BTreeMap<String, Counted> = BTreeMap::new();
        let mut seen = Seen::default();
        while let Some(row) = table.reader.next_row()? {
            seen.note_group(row.text(group), STEADY);
            let is_it = |name: &String| *name == row.text(group) || *name == row.text(flow);
            let text = row.text(value);
            if text.is_empty()
                || !self.of.as_ref().is_none_or(is_it)
                || !self.takes(&table.sweep, row)
            {
                continue;
            }
            samples.entry(sweep.curve(row)).or_default().push((number(text)?, 1));
        }
        self.sorted(&table, &sweep, samples, &seen, STEADY)
    }

    /// The values of all flows, by curve, and the curves in order.
    fn flow_samples(&self, folder: &Path) -> Result<Samples, ChartError> {
        let table = self.open(folder, "measures")?;
        let sweep = self.sweep(&table, false)?;
        let window = self.window.as_deref().unwrap_or(STEADY);
        let mut samples: BTreeMap<String, Counted> = BTreeMap::new();
        let mut seen = Seen::default();
        self.read_measures(folder, |columns, row, is_taken| {
            if row.text(columns.scope) != "flow" {
                return Ok(());
            }
            let name = row.text(columns.of);
            let group = columns.group.map_or_else(
                || name.trim_end_matches(|c: char| c.is_ascii_digit()),
                |group| row.text(group),
            );
            seen.note_group(group, row.text(columns.window));
            let is_it = |wanted: &String| wanted == name || wanted == group;
            if is_taken && self.of.as_ref().is_none_or(is_it) {
                let value = columns.value(row)?;
                samples.entry(sweep.curve(row)).or_default().push((value, 1));
            }
            Ok(())
        })?;
        match &self.of {
            Some(of) if !seen.names.contains_key(of) && !Table::is_there(folder, FLOWS) => {
                let known: Vec<&str> = seen.names.keys().map(String::as_str).collect();
                Err(ChartError::NoFlows { of: of.clone(), known: known.join(", ") })
            }
            _ => self.sorted(&table, &sweep, samples, &seen, window),
        }
    }

    /// Calls `take` with the rows of the measure, also of single flows that arrive if there is a
    /// table of them, and with whether the window and the fixed values are the wanted ones.
    fn read_measures(
        &self,
        folder: &Path,
        mut take: impl FnMut(&Columns, TableRow<'_>, bool) -> Result<(), ChartError>,
    ) -> Result<(), ChartError> {
        let window = self.window.as_deref().unwrap_or(STEADY);
        let has_flows = !self.wants_classes() && Table::is_there(folder, FLOWS);
        for name in [Some("measures"), has_flows.then_some(FLOWS)].into_iter().flatten() {
            let mut table = self.open(folder, name)?;
            let columns = Columns::of(&table)?;
            while let Some(row) = table.reader.next_row()? {
                if row.text(columns.measure) == self.measure {
                    let is_taken =
                        row.text(columns.window) == window && self.takes(&table.sweep, row);
                    take(&columns, row, is_taken)?;
                }
            }
        }
        Ok(())
    }

    fn sorted(
        &self,
        table: &Table,
        sweep: &Sweep,
        samples: BTreeMap<String, Counted>,
        seen: &Seen,
        window: &str,
    ) -> Result<Samples, ChartError> {
        if samples.is_empty() {
            return Err(self.nothing(seen, window));
        }
        let names = sweep.names(table, &samples);
        Ok((samples, names))
    }

    /// Whether requests are shown by their class of sizes, or those of one class.
    fn wants_classes(&self) -> bool {
        let fixed = self.fixed.iter().map(|(name, _)| name);
        fixed.chain(&self.x).chain(&self.by).any(|name| name == SIZE_CLASS)
    }

    /// A table; the classes of sizes are a parameter if they are wanted.
    fn open(&self, folder: &Path, name: &str) -> Result<Table, ChartError> {
        Table::open(folder, name, self.wants_classes().then_some(SIZE_CLASS))
    }

    /// The number in [`SCOPES`] of a row of the wanted subject; zero of a class of sizes.
    fn scope_of(&self, row: TableRow<'_>, columns: &Columns) -> Option<usize> {
        if self.wants_classes() {
            let is_it = self.of.as_deref().unwrap_or_default() == row.text(columns.of);
            return (is_it && row.text(columns.scope) == CLASS).then_some(0);
        }
        let scope = SCOPES.iter().position(|scope| *scope == row.text(columns.scope))?;
        let of = row.text(columns.of);
        let is_it = match &self.of {
            None => scope == 0,
            Some(name) => of == name,
        };
        is_it.then_some(scope)
    }

    /// Whether a row is of the values that are fixed.
    fn takes(&self, columns: &[(String, usize)], row: TableRow<'_>) -> bool {
        self.fixed.iter().all(|(name, value)| {
            columns.iter().any(|(column, at)| column == name && row.text(*at) == value)
        })
    }

    /// The label of the measure's axis.
    fn label(&self) -> String {
        let measure = self.measure.replace('_', " ");
        self.of.as_ref().map_or_else(|| measure.clone(), |of| format!("{measure} of {of}"))
    }

    /// Which parameters are the x axis and the curves. `has_x`: whether there is an x axis.
    fn sweep(&self, table: &Table, has_x: bool) -> Result<Sweep, ChartError> {
        if self.wants_classes() && table.order(SIZE_CLASS).is_empty() {
            return Err(ChartError::NoClasses);
        }
        let find = |name: &String| {
            let found = table.sweep.iter().find(|(column, _)| column == name).cloned();
            found.ok_or_else(|| ChartError::unknown("parameter", name, table.parameters()))
        };
        for (name, value) in &self.fixed {
            find(name)?;
            let known = table.order(name);
            if !known.contains(value) {
                return Err(ChartError::unknown(&format!("value of {name}"), value, known));
            }
        }
        let is_fixed = |name: &String| self.fixed.iter().any(|(fixed, _)| fixed == name);
        let mut left: Vec<(String, usize)> =
            table.sweep.iter().filter(|(name, _)| !is_fixed(name)).cloned().collect();
        let mut take = |wanted: Option<&String>, is_needed: bool| match wanted {
            Some(name) => {
                let found = find(name)?;
                left.retain(|(other, _)| other != name);
                Ok::<_, ChartError>(Some(found))
            }
            None if is_needed && !left.is_empty() => Ok(Some(left.remove(0))),
            None => Ok(None),
        };
        // What is named is taken first.
        let by = take(self.by.as_ref(), false)?;
        let x = if has_x { take(self.x.as_ref(), true)? } else { None };
        let by = if by.is_some() { by } else { take(None, true)? };
        match left.first() {
            Some((name, _)) => {
                Err(ChartError::Left { name: name.clone(), values: table.order(name).join(", ") })
            }
            None => Ok(Sweep { x, by }),
        }
    }

    /// The error for a chart without data.
    fn nothing(&self, seen: &Seen, window: &str) -> ChartError {
        let list = |names: &BTreeMap<String, usize>| {
            let mut names: Vec<(&String, &usize)> = names.iter().collect();
            names.sort_by_key(|(_, scope)| **scope);
            names
                .into_iter()
                .map(|(name, _)| name.clone())
                .filter(|name| !name.is_empty())
                .collect()
        };
        if seen.names.is_empty() {
            return ChartError::NoValues { measure: self.measure.clone() };
        }
        if !seen.windows.is_empty() && !seen.windows.contains_key(window) {
            return ChartError::unknown("window", window, list(&seen.windows));
        }
        match &self.of {
            Some(of) if !seen.names.contains_key(of) => {
                ChartError::unknown("flow, group or link", of, list(&seen.names))
            }
            None if !seen.names.contains_key("") => {
                let names: Vec<String> = list(&seen.names);
                ChartError::NotOfAll { measure: self.measure.clone(), names: names.join(", ") }
            }
            _ => ChartError::NoValues { measure: self.measure.clone() },
        }
    }
}

/// Values with how often each occurs.
type Counted = Vec<(f64, u64)>;
/// Samples by curve, and the curves in order.
type Samples = (BTreeMap<String, Counted>, Vec<String>);

/// The subjects and the windows in which a measure was seen; subjects with their scopes.
#[derive(Default)]
struct Seen {
    names: BTreeMap<String, usize>,
    windows: BTreeMap<String, usize>,
}

impl Seen {
    fn note_group(&mut self, group: &str, window: &str) {
        if !self.names.contains_key(group) {
            self.names.insert(group.to_owned(), 1);
        }
        if !self.windows.contains_key(window) {
            self.windows.insert(window.to_owned(), 0);
        }
    }

    fn note(&mut self, row: TableRow<'_>, columns: &Columns) {
        let scope = SCOPES.iter().position(|scope| *scope == row.text(columns.scope)).unwrap_or(9);
        if !self.names.contains_key(row.text(columns.of)) {
            self.names.insert(row.text(columns.of).to_owned(), scope);
        }
        if !self.windows.contains_key(row.text(columns.window)) {
            self.windows.insert(row.text(columns.window).to_owned(), 0);
        }
    }
}

/// The unit of a measure.
fn unit_of(name: &str) -> Result<&'static str, ChartError> {
    if !is_measure(name) {
        let known = MEASURES.iter().map(|(name, ..)| (*name).to_owned()).collect();
        return Err(ChartError::unknown("measure", name, known));
    }
    Ok(MEASURES.iter().find(|(known, ..)| *known == name).map_or("", |(_, unit, _)| unit))
}

fn number(text: &str) -> Result<f64, ChartError> {
    text.parse().map_err(|_| ChartError::NotANumber { text: text.to_owned() })
}

/// The parameters of the x axis and of the curves, with their columns.
struct Sweep {
    x: Option<(String, usize)>,
    by: Option<(String, usize)>,
}

impl Sweep {
    /// The curve of a row.
    fn curve(&self, row: TableRow<'_>) -> String {
        self.by.as_ref().map_or_else(String::new, |(name, column)| titled(name, row.text(*column)))
    }

    /// The curves that have values, in the order of the sweep.
    fn names<T>(&self, table: &Table, curves: &BTreeMap<String, T>) -> Vec<String> {
        match &self.by {
            None => curves.keys().cloned().collect(),
            Some((name, _)) => {
                let titles = table.order(name).into_iter().map(|value| titled(name, &value));
                titles.filter(|title| curves.contains_key(title)).collect()
            }
        }
    }
}

/// What a curve is called: the value of its parameter, with the parameter's name if it is a number.
fn titled(parameter: &str, value: &str) -> String {
    let name = parameter.rsplit('.').next().unwrap_or(parameter);
    if value.starts_with(|c: char| c.is_ascii_digit()) && parameter != SIZE_CLASS {
        format!("{name} = {value}")
    } else {
        value.to_owned()
    }
}
