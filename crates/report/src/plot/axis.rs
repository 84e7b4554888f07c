//! Axes: labels, ranges and ticks.

/// An axis: label, unit and scale.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    label: String,
    unit: String,
    pub(super) log: bool,
    whole: bool,
    from: Option<f64>,
    to: Option<f64>,
    /// The names of the values 0, 1 and so on; empty unless they are categories.
    names: Vec<String>,
}

impl Axis {
    /// A linear axis over the range of the data. The unit may be empty.
    #[must_use]
    pub fn new(label: impl Into<String>, unit: impl Into<String>) -> Axis {
        Axis {
            label: label.into(),
            unit: unit.into(),
            log: false,
            whole: false,
            from: None,
            to: None,
            names: Vec::new(),
        }
    }

    /// An axis of categories: 0 is the first of these, 1 the second, and so on.
    #[must_use]
    pub fn categories<S: Into<String>>(
        label: impl Into<String>,
        names: impl IntoIterator<Item = S>,
    ) -> Axis {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        #[expect(clippy::cast_precision_loss, reason = "a picture shows a few")]
        let end = names.len().max(1) as f64 - 0.5;
        Axis { names, ..Axis::new(label, "").from(-0.5).to(end) }
    }

    /// An axis for shares from 0 to 1: the y axis of a distribution.
    #[must_use]
    pub fn share(label: impl Into<String>) -> Axis {
        Axis::new(label, "").from(0.0).to(1.0)
    }

    /// Makes the axis logarithmic. Values at or below zero cannot be shown.
    #[must_use]
    pub fn log(mut self) -> Axis {
        self.log = true;
        self
    }

    /// Makes the axis linear again.
    #[must_use]
    pub fn linear(mut self) -> Axis {
        self.log = false;
        self
    }

    /// Replaces the label and the unit by a text. An empty one takes no room.
    #[must_use]
    pub fn labelled(mut self, text: impl Into<String>) -> Axis {
        (self.label, self.unit) = (text.into(), String::new());
        self
    }

    /// Restricts the ticks of a linear axis to whole numbers, for counts.
    #[must_use]
    pub fn whole(mut self) -> Axis {
        self.whole = true;
        self
    }

    /// Sets the begin of the axis, independent of the data.
    #[must_use]
    pub fn from(mut self, value: f64) -> Axis {
        self.from = Some(value);
        self
    }

    /// Sets the end of the axis, independent of the data.
    #[must_use]
    pub fn to(mut self, value: f64) -> Axis {
        self.to = Some(value);
        self
    }

    pub(super) fn text(&self) -> String {
        match (self.label.as_str(), self.unit.as_str()) {
            (label, "") => label.to_string(),
            ("", unit) => unit.to_string(),
            (label, unit) => format!("{label} ({unit})"),
        }
    }

    /// Whether the scale can show `value`, inside or outside the range.
    pub(super) fn takes(&self, value: f64) -> bool {
        value.is_finite() && (!self.log || value > 0.0)
    }

    /// The ruler over `values`. Ends that are not set get `padding` (a share of the range). With
    /// `zero` it begins at zero if the values are not far from it.
    pub(super) fn ruler(
        &self,
        values: impl Iterator<Item = f64>,
        padding: f64,
        zero: bool,
    ) -> Ruler {
        let asked = |bound: Option<f64>| bound.filter(|value| self.takes(*value));
        let (mut low, mut high) = values
            .filter(|value| self.takes(*value))
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            });
        if low > high {
            let only =
                asked(self.from).or(asked(self.to)).unwrap_or(if self.log { 1.0 } else { 0.0 });
            (low, high) = (only, if self.log { only * 10.0 } else { only + 1.0 });
        }
        let data_low = low;
        // A single value gets a range around it.
        if low >= high {
            let room = if low == 0.0 { 1.0 } else { low.abs() / 2.0 };
            (low, high) = (low - room, high + room);
        }
        let (padded_low, padded_high) = if self.log {
            let room = (high / low).powf(padding);
            (low / room, high * room)
        } else {
            let room = (high - low) * padding;
            (low - room, high + room)
        };
        let from_zero = zero && !self.log && data_low >= 0.0 && data_low <= 0.6 * high;
        let mut low = asked(self.from).unwrap_or(if from_zero { 0.0 } else { padded_low });
        let mut high = asked(self.to).unwrap_or(padded_high);
        // Values near the limits of f64, and given ends with nothing between them.
        (low, high) = (low.clamp(-1e300, 1e300), high.clamp(-1e300, 1e300));
        if self.log {
            low = low.max(1e-300);
        }
        if low >= high {
            high = if self.log { low * 10.0 } else { low + low.abs().max(1.0) };
        }
        Ruler { log: self.log, whole: self.whole, low, high }
    }
}

impl Axis {
    /// Whether its values are categories.
    pub(super) fn is_of_categories(&self) -> bool {
        !self.names.is_empty()
    }

    /// The ticks of a ruler of this axis, about `most` of them with a label: of categories all.
    pub(super) fn ticks(&self, ruler: &Ruler, most: u32) -> Vec<Tick> {
        if self.names.is_empty() {
            return ruler.ticks(most);
        }
        let places = (0..).map(f64::from);
        let tick = |(value, name): (f64, &String)| Tick { value, label: Some(name.clone()) };
        places.zip(&self.names).map(tick).collect()
    }
}

/// The range that an axis shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ruler {
    log: bool,
    whole: bool,
    low: f64,
    high: f64,
}

/// A tick of an axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    pub(super) value: f64,
    /// `None` for ticks without a label.
    pub(super) label: Option<String>,
}

impl Ruler {
    /// The position of `value`: 0 at the begin of the axis, 1 at its end.
    pub(super) fn place(&self, value: f64) -> f64 {
        if self.log {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            // In halves, so that the full range of f64 does not overflow.
            (value / 2.0 - self.low / 2.0) / (self.high / 2.0 - self.low / 2.0)
        }
    }

    fn has(&self, value: f64) -> bool {
        (-1e-9..=1.0 + 1e-9).contains(&self.place(value))
    }

    /// The ticks of numbers, about `most` of them with a label.
    pub(super) fn ticks(&self, most: u32) -> Vec<Tick> {
        let ticks = if self.log { self.log_ticks(most) } else { Vec::new() };
        // A logarithmic axis with less than two labels gets even steps instead.
        if ticks.iter().filter(|tick| tick.label.is_some()).count() < 2 {
            self.even_ticks(most)
        } else {
            ticks
        }
    }

    fn even_ticks(&self, most: u32) -> Vec<Tick> {
        let rough = (self.high - self.low) / f64::from(most.max(1));
        let power = rough.log10().floor();
        let unit = 10_f64.powf(power);
        let step =
            [1.0, 2.0, 5.0].map(|n| n * unit).into_iter().find(|step| *step >= rough * 0.999_999);
        let step = step.unwrap_or(10.0 * unit).max(if self.whole { 1.0 } else { 0.0 });
        let first = (self.low / step - 1e-6).ceil();
        let all =
            (0..=most + 1).map(|n| (first + f64::from(n)) * step).filter(|value| self.has(*value));
        // Rounding must not turn zero into a tiny number.
        let all = all.map(|value| if value.abs() < step / 2.0 { 0.0 } else { value });
        all.map(|value| Tick {
            value,
            label: Some(label(value, step, self.high.abs().max(self.low.abs()))),
        })
        .collect()
    }

    #[expect(clippy::cast_possible_truncation, reason = "exponents of an f64 are small")]
    fn log_ticks(&self, most: u32) -> Vec<Tick> {
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let decades = self.high.log10() - self.low.log10();
        let most = i32::try_from(most.max(1)).unwrap_or(i32::MAX);
        let every = ((last - first + most - 1) / most).max(1);
        // Below two decades, the powers of ten alone would be one label or two.
        let fine = decades < (f64::from(most) / 3.0).max(2.0);
        let mut ticks = Vec::new();
        for exponent in (first..=last).filter(|exponent| exponent.rem_euclid(every) == 0) {
            // Parsed, because 10^-3 by multiplication is not exactly 0.001.
            let decade: f64 = format!("1e{exponent}").parse().unwrap_or(0.0);
            for digit in 1..=9_u8 {
                let value = decade * f64::from(digit);
                let labelled = digit == 1 || fine && (digit == 2 || digit == 5);
                if (digit == 1 || every == 1) && self.has(value) && value > 0.0 {
                    let plain = (1e-4..1e5).contains(&self.low) && self.high < 1e5;
                    let text =
                        || if plain { number(value) } else { power(f64::from(digit), exponent) };
                    ticks.push(Tick { value, label: labelled.then(text) });
                }
            }
        }
        ticks
    }
}

/// Formats a number: up to four significant digits, no trailing zeros, powers of ten where it would
/// be long.
#[must_use]
pub fn number(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return if value.is_nan() {
            "–".into()
        } else if value > 0.0 {
            "∞".into()
        } else {
            "−∞".into()
        };
    }
    if size == 0.0 {
        return "0".into();
    }
    if !(1e-4..999_999.5).contains(&size) {
        let text = format!("{value:.3e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        return format!("{}×10{}", tidy(mantissa), superscript(exponent));
    }
    let mut digits = 3_usize;
    let mut bound = 10.0;
    while size >= bound && digits > 0 {
        digits -= 1;
        bound *= 10.0;
    }
    let mut bound = 1.0;
    while size < bound {
        digits += 1;
        bound /= 10.0;
    }
    tidy(&format!("{value:.digits$}"))
}

/// The label of a tick, with as many digits as `step`; `largest` decides on powers of ten for the
/// whole axis.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "exponents of an f64 are small; max holds the sign"
)]
fn label(value: f64, step: f64, largest: f64) -> String {
    let step_exponent = (step.log10() + 1e-9).floor() as i32;
    if value == 0.0 {
        return "0".into();
    }
    if (1e-4..1e6).contains(&largest) {
        return tidy(&format!("{value:.*}", (-step_exponent).clamp(0, 17) as usize));
    }
    let exponent = (value.abs().log10() + 1e-9).floor() as i32;
    let digits = (exponent - step_exponent).clamp(0, 17) as usize;
    let text = format!("{value:.digits$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    format!("{}×10{}", tidy(mantissa), superscript(exponent))
}

fn power(digit: f64, exponent: i32) -> String {
    let ten = format!("10{}", superscript(&exponent.to_string()));
    if digit > 1.0 { format!("{digit}×{ten}") } else { ten }
}

/// Removes trailing zeros and uses a minus sign instead of a hyphen.
fn tidy(text: &str) -> String {
    let short =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text };
    let short = if short == "-0" { "0" } else { short };
    short.replace('-', "−")
}

fn superscript(digits: &str) -> String {
    let raise = |c: char| {
        "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().nth(c.to_digit(10).map_or(99, |digit| digit as usize)).unwrap_or('⁻')
    };
    digits.chars().map(raise).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis, low: f64, high: f64) -> String {
        let ticks = axis.ruler([low, high].into_iter(), 0.0, false).ticks(6);
        ticks.into_iter().filter_map(|tick| tick.label).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn labels_have_no_rounding_noise() {
        let linear = Axis::new("", "");
        for (low, high, expected) in [
            (0.0, 0.3, "0 0.05 0.1 0.15 0.2 0.25 0.3"),
            (0.0, 100.0, "0 20 40 60 80 100"),
            (-0.7, 0.7, "−0.5 0 0.5"),
            (0.0, 4e6, "0 1×10⁶ 2×10⁶ 3×10⁶ 4×10⁶"),
            (0.0, 3e-6, "0 5×10⁻⁷ 1×10⁻⁶ 1.5×10⁻⁶ 2×10⁻⁶ 2.5×10⁻⁶ 3×10⁻⁶"),
        ] {
            assert_eq!(labels(&linear, low, high), expected);
        }
        let counts = linear.clone().whole();
        assert_eq!(
            (labels(&counts, 2.0, 5.0), labels(&linear, 2.0, 5.0)),
            ("2 3 4 5".into(), "2 2.5 3 3.5 4 4.5 5".into())
        );
        let log = linear.log();
        for (low, high, expected) in [
            (0.001, 1000.0, "0.001 0.01 0.1 1 10 100 1000"),
            (1.0, 30.0, "1 2 5 10 20"),
            (1e-9, 1e9, "10⁻⁹ 10⁻⁶ 10⁻³ 10⁰ 10³ 10⁶ 10⁹"),
            (3.1, 4.4, "3.5 4"),
        ] {
            assert_eq!(labels(&log, low, high), expected);
        }
    }

    #[test]
    fn numbers() {
        for (value, expected) in [
            (0.0, "0"),
            (1.0, "1"),
            (-12.345_6, "−12.35"),
            (1234.5, "1234"),
            (123_456.0, "123456"),
            (0.000_123_45, "0.0001234"),
            (1.5e-9, "1.5×10⁻⁹"),
            (2e6, "2×10⁶"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(number(value), expected);
        }
    }

    #[test]
    fn every_range_is_valid() {
        for (low, high) in [
            (0.0, 0.0),
            (f64::MIN, f64::MAX),
            (5.0, 5.0),
            (-3.0, -3.0),
            (f64::NAN, f64::NAN),
            (1e-320, 1e-310),
        ] {
            for axis in
                [Axis::new("", ""), Axis::new("", "").log(), Axis::new("", "").from(9.0).to(3.0)]
            {
                let ruler = axis.ruler([low, high].into_iter(), 0.04, true);
                assert!(ruler.low < ruler.high, "{ruler:?} of {low} to {high}");
                assert!(ruler.ticks(6).iter().all(|tick| tick.value.is_finite()), "{ruler:?}");
            }
        }
    }
}
