//! A swept parameter as an axis: of numbers, if all of its values are numbers with units of one
//! kind, and else of categories.

use report::plot::Axis;

use super::DECADES;
use crate::quantities::numbers;

/// A parameter of the x axis.
pub(super) struct Parameter {
    name: String,
    names: Vec<String>,
    numbers: Option<Numbers>,
}

/// Values in one unit.
struct Numbers {
    unit: &'static str,
    values: Vec<f64>,
}

impl Parameter {
    pub(super) fn new(name: &str, values: &[String]) -> Parameter {
        Parameter {
            name: name.to_owned(),
            names: values.to_vec(),
            numbers: numbers(values).map(|(unit, values)| Numbers { unit, values }),
        }
    }

    pub(super) fn is_number(&self) -> bool {
        self.numbers.is_some()
    }

    /// The position of each value on the axis.
    pub(super) fn positions(&self) -> Vec<f64> {
        match &self.numbers {
            Some(numbers) => numbers.values.clone(),
            None => (0_u32..).map(f64::from).take(self.names.len()).collect(),
        }
    }

    /// How far a curve of `count` is moved, so that markers of one category are side by side.
    pub(super) fn offset(&self, number: usize, count: usize) -> f64 {
        if self.is_number() {
            return 0.0;
        }
        #[expect(clippy::cast_precision_loss, reason = "a picture has a few")]
        let (number, count) = (number as f64, count as f64);
        (number - (count - 1.0) / 2.0) * (0.5 / count)
    }

    /// The axis.
    pub(super) fn axis(&self) -> Axis {
        let Some(Numbers { unit, values }) = &self.numbers else {
            return Axis::categories(self.name.as_str(), self.names.iter().map(String::as_str));
        };
        let axis = Axis::new(self.name.as_str(), *unit);
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(0.0, f64::max);
        if least > 0.0 && most > least * DECADES { axis.log() } else { axis }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&str]) -> (Option<&'static str>, Vec<f64>) {
        let values: Vec<String> = values.iter().copied().map(str::to_owned).collect();
        let parameter = Parameter::new("x", &values);
        (parameter.numbers.as_ref().map(|numbers| numbers.unit), parameter.positions())
    }

    #[test]
    fn values_of_one_kind_are_numbers() {
        assert_eq!(of(&["1", "2.5"]), (Some(""), vec![1.0, 2.5]));
        assert_eq!(of(&["1 packet", "20 packets"]), (Some("packets"), vec![1.0, 20.0]));
        assert_eq!(of(&["1 Gbit/s", "50 Mbit/s"]), (Some("Mbit/s"), vec![1000.0, 50.0]));
        assert_eq!(of(&["10 ms", "1 s"]), (Some("ms"), vec![10.0, 1000.0]));
        assert_eq!(of(&["1 kB", "1 MB"]), (Some("kB"), vec![1.0, 1000.0]));
    }

    #[test]
    fn other_values_are_categories() {
        assert_eq!(of(&["reno", "cubic"]), (None, vec![0.0, 1.0]));
        assert_eq!(of(&["10 ms", "20 packets"]).0, None);
    }
}
