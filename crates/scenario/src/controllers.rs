//! Congestion controllers by name: those of [`policy::cc`], and others that a program adds.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use policy::cc::{self, Controller};

type Make = Arc<dyn Fn() -> Box<dyn Controller> + Send + Sync>;

/// The controllers that a scenario file may name.
///
/// ```
/// use policy::cc::{Reno, Uncoupled};
/// use scenario::{Controllers, Document};
///
/// let text = r#"
///     name = "one flow"
///     duration = "10 s"
///     [[link]]
///     name = "bottleneck"
///     between = ["near", "far"]
///     rate = "10 Mbit/s"
///     delay = "10 ms"
///     queue = "20 packets"
///     [[flow]]
///     name = "bulk"
///     from = "near"
///     to = "far"
///     controller = "mine"
/// "#;
/// let make = || Box::new(Uncoupled::new(Reno::default())) as Box<dyn policy::cc::Controller>;
/// let controllers = Controllers::default().with("mine", make);
/// let scenario = Document::new_with(text, "one-flow.toml", controllers)?.scenario(&[])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct Controllers {
    own: BTreeMap<String, Make>,
}

impl Controllers {
    /// Adds a controller under a name, or replaces the one of that name. `make` is called for each
    /// connection, and when a file is read. [`policy::cc::Uncoupled`]
    /// makes a controller of a [`policy::cc::SinglePath`], [`policy::cc::Coupled`] one of a
    /// [`policy::cc::Coupling`].
    #[must_use]
    pub fn with(
        mut self,
        name: impl Into<String>,
        make: impl Fn() -> Box<dyn Controller> + Send + Sync + 'static,
    ) -> Controllers {
        self.own.insert(name.into(), Arc::new(make));
        self
    }

    /// The controller of a name: one that was added under exactly this name, or else the one of
    /// [`policy::cc::by_name`].
    ///
    /// # Errors
    /// If there is no such controller; the message lists the known names.
    pub fn make(&self, text: &str) -> Result<Box<dyn Controller>, String> {
        if let Some(make) = self.own.get(text.trim()) {
            return Ok(make());
        }
        cc::by_name(text).map_err(|error| {
            if self.own.is_empty() {
                return error.to_string();
            }
            let names: Vec<&str> = self.own.keys().map(String::as_str).collect();
            format!("{error}; this program adds {}", names.join(", "))
        })
    }
}

impl fmt::Debug for Controllers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.own.keys()).finish()
    }
}
