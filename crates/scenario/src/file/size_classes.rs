//! The classes of size by which requests are measured.

use std::sync::Arc;

use link::config::Problem;
use link::config::reader::Section;
use units::Bytes;

use super::values::Result;

/// The most bounds between classes.
const MOST_BOUNDS: usize = 20;

/// Classes of the size of requests, files and writes, from the smallest to the largest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SizeClasses {
    /// The largest size of each class but the last, which has no end; empty if there are none.
    bounds: Vec<Bytes>,
    names: Vec<Arc<str>>,
}

impl SizeClasses {
    /// Reads the key `size_classes`.
    pub(super) fn read(root: &Section<'_>) -> Result<SizeClasses> {
        let Some(list) = root.get("size_classes") else { return Ok(SizeClasses::default()) };
        let values = list.list()?;
        if values.is_empty() || values.len() > MOST_BOUNDS {
            return Err(list.error(Problem::Sense("wants 1 to 20 sizes")));
        }
        let mut classes = SizeClasses::default();
        let mut before: Option<String> = None;
        for value in &values {
            let bound: Bytes = value.quantity()?;
            if bound == Bytes::ZERO || classes.bounds.last().is_some_and(|last| *last >= bound) {
                return Err(value.error(Problem::Sense("wants sizes that grow, above zero")));
            }
            let text = value.text()?.split_whitespace().collect::<Vec<_>>().join(" ");
            classes.bounds.push(bound);
            classes.names.push(match &before {
                None => format!("up to {text}").into(),
                Some(before) => format!("{before} to {text}").into(),
            });
            before = Some(text);
        }
        classes.names.extend(before.map(|last| format!("above {last}").into()));
        Ok(classes)
    }

    /// The names of the classes: `up to 10 kB`, `10 kB to 1 MB`, `above 1 MB`.
    #[must_use]
    pub fn names(&self) -> &[Arc<str>] {
        &self.names
    }

    /// The class of a size, by its number; `None` if there are no classes.
    #[must_use]
    pub fn of(&self, size: Bytes) -> Option<usize> {
        let is_larger = |bound: &Bytes| *bound < size;
        (!self.bounds.is_empty()).then(|| self.bounds.partition_point(is_larger))
    }
}
