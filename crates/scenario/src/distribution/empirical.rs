//! Distributions given by points of their distribution function, as the literature publishes them.

use thiserror::Error;

/// Points of a distribution function, with straight lines between them.
#[derive(Clone, Debug, PartialEq)]
pub struct Empirical {
    /// Value and cumulative probability; neither falls, and the last probability is 1.
    points: Vec<(f64, f64)>,
}

/// A line of a file of points that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {problem}")]
pub struct EmpiricalError {
    /// The line, from 1.
    pub line: usize,
    /// The problem.
    pub problem: EmpiricalProblem,
}

/// What is wrong with a line of a file of points.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EmpiricalProblem {
    /// Not two or three columns.
    #[error(
        "'{0}' is not a point: write a value and its cumulative probability, for example \
         `10000 0.15`"
    )]
    Columns(String),
    /// A column is no number.
    #[error("'{0}' is not a number that is finite and not negative")]
    Number(String),
    /// A value below the one before it.
    #[error("the value {0} is below the one before it: sort the lines by value")]
    ValueFalls(String),
    /// A probability below the one before it.
    #[error("the probability {0} is below the one before it: it is cumulative")]
    ProbabilityFalls(String),
    /// The last probability is neither 1 nor 100.
    #[error("the last probability is {0}, and wants to be 1, or 100 in percent")]
    Last(String),
    /// No point at all.
    #[error("there is no point: write a value and its cumulative probability in each line")]
    Empty,
}

impl Empirical {
    /// Reads a file of points: a value and its cumulative probability in each line, separated by
    /// spaces or a comma. Of three columns the middle one is ignored, as in files for ns-2.
    /// Probabilities end at 1, or at 100 if they are in percent. `scale` multiplies the values.
    /// Empty lines and comments after `#` are ignored.
    ///
    /// # Errors
    /// The first line that is not valid.
    pub fn parse(text: &str, scale: f64) -> Result<Empirical, EmpiricalError> {
        let mut points: Vec<(f64, f64)> = Vec::new();
        let mut last = (1, String::new());
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.split('#').next().unwrap_or_default().trim();
            if text.is_empty() {
                continue;
            }
            let fail = |problem| EmpiricalError { line, problem };
            let columns: Vec<&str> = text
                .split(|c: char| c == ',' || c.is_whitespace())
                .filter(|column| !column.is_empty())
                .collect();
            let ([value, p] | [value, _, p]) = columns[..] else {
                return Err(fail(EmpiricalProblem::Columns(text.to_owned())));
            };
            let number = |column: &str| {
                let number = column.parse().ok().filter(|it: &f64| it.is_finite() && *it >= 0.0);
                number.ok_or_else(|| fail(EmpiricalProblem::Number(column.to_owned())))
            };
            let point = (number(value)? * scale, number(p)?);
            if let Some(before) = points.last() {
                if point.0 < before.0 {
                    return Err(fail(EmpiricalProblem::ValueFalls(value.to_owned())));
                }
                if point.1 < before.1 {
                    return Err(fail(EmpiricalProblem::ProbabilityFalls(p.to_owned())));
                }
            }
            last = (line, p.to_owned());
            points.push(point);
        }
        let whole = match points.last() {
            None => return Err(EmpiricalError { line: 1, problem: EmpiricalProblem::Empty }),
            Some((_, p)) if (p - 1.0).abs() < 1e-6 || (p - 100.0).abs() < 1e-4 => *p,
            Some(_) => {
                let (line, p) = last;
                return Err(EmpiricalError { line, problem: EmpiricalProblem::Last(p) });
            }
        };
        for point in &mut points {
            point.1 /= whole;
        }
        Ok(Empirical { points })
    }

    /// The value that is not exceeded with probability `p`: between two points on the straight
    /// line, below the first point its value.
    #[must_use]
    pub fn quantile(&self, p: f64) -> f64 {
        let next = self.points.partition_point(|(_, known)| *known <= p);
        let Some((above, to)) = self.points.get(next) else { return self.last() };
        let Some((below, from)) = next.checked_sub(1).map(|before| self.points[before]) else {
            return *above;
        };
        below + (above - below) * ((p - from) / (to - from))
    }

    /// The mean.
    #[must_use]
    pub fn mean(&self) -> f64 {
        let (first, p) = self.points[0];
        let between =
            |pair: &[(f64, f64)]| f64::midpoint(pair[0].0, pair[1].0) * (pair[1].1 - pair[0].1);
        first * p + self.points.windows(2).map(between).sum::<f64>()
    }

    fn last(&self) -> f64 {
        self.points.last().expect("there is at least one point").0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_the_literature_are_read() {
        let ours = Empirical::parse("0 0\n10 .15 # comment\n\n20,0.5\n30, 1\n", 1.0);
        let percent = Empirical::parse("0 0\n10 15\n20 50\n30 100", 1.0);
        let ns2 = Empirical::parse("0 1 0\n1 1 0.15\n2 1 0.5\n3 1 1\n", 10.0);
        assert_eq!(ours, percent);
        assert_eq!(ours, ns2);
    }

    #[test]
    fn quantiles_are_on_lines_between_points() {
        let points = Empirical::parse("10 0.5\n10 0.6\n30 1", 1.0).expect("it is valid");
        for (p, value) in [(0.0, 10.0), (0.55, 10.0), (0.6, 10.0), (0.8, 20.0), (1.0, 30.0)] {
            assert!((points.quantile(p) - value).abs() < 1e-9, "{p}: {}", points.quantile(p));
        }
        assert!((points.mean() - (0.6 * 10.0 + 0.4 * 20.0)).abs() < 1e-9);
    }

    #[test]
    fn wrong_lines_are_named() {
        for (text, line, part) in [
            ("", 1, "there is no point"),
            ("# nothing\n", 1, "there is no point"),
            ("1 0\n2\n3 1", 2, "'2' is not a point"),
            ("1 0\n2 0.5 1 1\n3 1", 2, "is not a point"),
            ("1 0\nx 0.5\n3 1", 2, "'x' is not a number"),
            ("1 0\n2 -0.5\n3 1", 2, "'-0.5' is not a number"),
            ("1 0\n2 nan\n3 1", 2, "'nan' is not a number"),
            ("2 0\n1 0.5\n3 1", 2, "the value 1 is below"),
            ("1 0\n2 0.5\n3 0.4\n4 1", 3, "the probability 0.4 is below"),
            ("1 0\n2 0.5\n\n", 2, "the last probability is 0.5"),
        ] {
            let error = Empirical::parse(text, 1.0).expect_err("it is not valid");
            assert_eq!(error.line, line, "{text:?}: {error}");
            assert!(error.to_string().contains(part), "{text:?}: {error}");
        }
    }
}
