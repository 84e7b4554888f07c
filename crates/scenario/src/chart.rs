//! Figures from the tables of a sweep: a measure over a parameter, and distributions.

mod error;
mod parameter;

use std::collections::BTreeMap;
use std::path::Path;

use report::plot::{Axis, Figure, Panel, Series};
use report::tidy::{Reader, TableRow};

pub use error::ChartError;
use parameter::Parameter;

use crate::measures::{MEASURES, is_measure};

/// What a figure shows.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// The measure.
    pub measure: String,
    /// Whether to show its distribution, and not its means over a parameter.
    pub is_distribution: bool,
    /// The group of flows, link or flow; `None` for all flows.
    pub of: Option<String>,
    /// The parameter of the x axis; `None` for the first of the sweep.
    pub x: Option<String>,
    /// The parameter with a curve for each value; `None` for the one that is left, if there is one.
    pub by: Option<String>,
    /// Values to which other parameters are fixed.
    pub fixed: Vec<(String, String)>,
    /// The window of time; `None` for the one from `warmup` to the end.
    pub window: Option<String>,
}

/// The window from `warmup` to the end.
const STEADY: &str = "steady";
/// The measures of single requests.
const OF_REQUESTS: [&str; 3] = ["completion", "slowdown", "size"];
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
        let mut table = Table::open(folder, "measures")?;
        let sweep = self.sweep(&table, true)?;
        let x = sweep.x.clone().ok_or(ChartError::NothingSwept)?;
        let columns = Columns::of(&table)?;
        let window = self.window.as_deref().unwrap_or(STEADY);
        let mut found: BTreeMap<usize, Curves> = BTreeMap::new();
        let mut seen = Seen::default();
        while let Some(row) = table.reader.next_row()? {
            if row.text(columns.measure) != self.measure {
                continue;
            }
            seen.note(row, &columns);
            if row.text(columns.window) != window || !self.takes(&table.sweep, row) {
                continue;
            }
            let Some(scope) = self.scope_of(row, &columns) else { continue };
            let value = columns.value(row)?;
            let curves = found.entry(scope).or_default();
            let curve = curves.entry(sweep.curve(row)).or_default();
            curve.entry(row.text(x.1).to_owned()).or_default().push(value);
        }
        // Of one name, the scope that comes first.
        let Some((_, curves)) = found.pop_first() else {
            return Err(self.nothing(&seen, window));
        };
        let order = table.order(&x.0);
        let parameter = Parameter::new(&x.0, &order);
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

    /// A curve of the distribution for each value of a parameter: over requests, or over flows.
    fn distribution(&self, folder: &Path) -> Result<Panel, ChartError> {
        let is_of_requests = OF_REQUESTS.contains(&self.measure.as_str());
        let unit = match self.measure.as_str() {
            "size" => "B",
            name => unit_of(name)?,
        };
        let (samples, names) =
            if is_of_requests { self.request_samples(folder)? } else { self.flow_samples(folder)? };
        let all = || samples.values().flatten().copied().filter(|value| *value > 0.0);
        let (least, most) =
            all().fold((f64::INFINITY, 0.0_f64), |(a, b), value| (a.min(value), b.max(value)));
        let mut x = Axis::new(self.label(), unit);
        if most > least * DECADES && samples.values().flatten().all(|value| *value > 0.0) {
            x = x.log();
        }
        let of = if is_of_requests { "requests" } else { "flows" };
        let mut panel = Panel::new(x, Axis::share(format!("fraction of {of}")));
        for name in names {
            panel = panel.series(Series::cdf(name.as_str(), &samples[&name]));
        }
        Ok(panel)
    }

    /// The values of all requests, by curve, and the curves in order.
    fn request_samples(&self, folder: &Path) -> Result<Samples, ChartError> {
        let mut table = Table::open(folder, "requests")?;
        let sweep = self.sweep(&table, false)?;
        let [flow, group] = ["flow", "group"].map(|name| table.need(name));
        let (flow, group, value) = (flow?, group?, table.need(&self.measure)?);
        let mut samples: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        let mut seen = Seen::default();
        while let Some(row) = table.reader.next_row()? {
            seen.names.insert(row.text(group).to_owned(), 1);
            let is_it = |name: &String| *name == row.text(group) || *name == row.text(flow);
            let text = row.text(value);
            if text.is_empty()
                || !self.of.as_ref().is_none_or(is_it)
                || !self.takes(&table.sweep, row)
            {
                continue;
            }
            samples.entry(sweep.curve(row)).or_default().push(number(text)?);
        }
        self.sorted(&table, &sweep, samples, &seen, STEADY)
    }

    /// The values of all flows, by curve, and the curves in order.
    fn flow_samples(&self, folder: &Path) -> Result<Samples, ChartError> {
        let mut table = Table::open(folder, "measures")?;
        let sweep = self.sweep(&table, false)?;
        let columns = Columns::of(&table)?;
        let window = self.window.as_deref().unwrap_or(STEADY);
        let mut samples: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        let mut seen = Seen::default();
        while let Some(row) = table.reader.next_row()? {
            if row.text(columns.measure) != self.measure || row.text(columns.scope) != "flow" {
                continue;
            }
            let name = row.text(columns.of);
            let group = name.trim_end_matches(|c: char| c.is_ascii_digit());
            seen.names.insert(group.to_owned(), 1);
            seen.windows.insert(row.text(columns.window).to_owned(), 0);
            let is_it = |wanted: &String| wanted == name || wanted == group;
            if row.text(columns.window) != window
                || !self.of.as_ref().is_none_or(is_it)
                || !self.takes(&table.sweep, row)
            {
                continue;
            }
            let value = columns.value(row)?;
            samples.entry(sweep.curve(row)).or_default().push(value);
        }
        self.sorted(&table, &sweep, samples, &seen, window)
    }

    fn sorted(
        &self,
        table: &Table,
        sweep: &Sweep,
        samples: BTreeMap<String, Vec<f64>>,
        seen: &Seen,
        window: &str,
    ) -> Result<Samples, ChartError> {
        if samples.is_empty() {
            return Err(self.nothing(seen, window));
        }
        let names = sweep.names(table, &samples);
        Ok((samples, names))
    }

    /// The number in [`SCOPES`] of a row of the wanted subject.
    fn scope_of(&self, row: TableRow<'_>, columns: &Columns) -> Option<usize> {
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

/// Samples by curve, and the curves in order.
type Samples = (BTreeMap<String, Vec<f64>>, Vec<String>);

/// The subjects and the windows in which a measure was seen; subjects with their scopes.
#[derive(Default)]
struct Seen {
    names: BTreeMap<String, usize>,
    windows: BTreeMap<String, usize>,
}

impl Seen {
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
    if value.starts_with(|c: char| c.is_ascii_digit()) {
        format!("{name} = {value}")
    } else {
        value.to_owned()
    }
}

/// A table, and the parameters of the sweep.
struct Table {
    reader: Reader,
    /// With their columns.
    sweep: Vec<(String, usize)>,
    /// The values of each, in the order of the rows.
    values: Vec<Vec<String>>,
}

impl Table {
    fn open(folder: &Path, name: &str) -> Result<Table, ChartError> {
        let path = folder.join(name).with_extension("csv");
        if !path.exists() {
            return Err(ChartError::NoTable { path });
        }
        let mut reader = Reader::open(&path)?;
        let sweep: Vec<(String, usize)> = (0..)
            .zip(reader.columns())
            .take_while(|(_, name)| *name != "seed")
            .map(|(at, name)| (name.clone(), at))
            .collect();
        let mut values = vec![Vec::new(); sweep.len()];
        while let Some(row) = reader.next_row()? {
            for (values, (_, column)) in values.iter_mut().zip(&sweep) {
                let value = row.text(*column);
                if values.last().is_none_or(|last: &String| last != value)
                    && !values.iter().any(|known| known == value)
                {
                    values.push(value.to_owned());
                }
            }
        }
        Ok(Table { reader: Reader::open(&path)?, sweep, values })
    }

    fn need(&self, name: &str) -> Result<usize, ChartError> {
        let found = self.reader.column(name);
        found.ok_or_else(|| ChartError::NoColumn { name: name.to_owned() })
    }

    fn parameters(&self) -> Vec<String> {
        self.sweep.iter().map(|(name, _)| name.clone()).collect()
    }

    /// The values of a parameter, in the order of the sweep.
    fn order(&self, name: &str) -> Vec<String> {
        let at = self.sweep.iter().position(|(known, _)| known == name);
        at.map(|at| self.values[at].clone()).unwrap_or_default()
    }
}

/// The columns of a table of measures.
struct Columns {
    window: usize,
    scope: usize,
    of: usize,
    measure: usize,
    value: usize,
}

impl Columns {
    fn of(table: &Table) -> Result<Columns, ChartError> {
        Ok(Columns {
            window: table.need("window")?,
            scope: table.need("scope")?,
            of: table.need("of")?,
            measure: table.need("measure")?,
            value: table.need("value")?,
        })
    }

    fn value(&self, row: TableRow<'_>) -> Result<f64, ChartError> {
        number(row.text(self.value))
    }
}
