//! Congestion controllers and packet schedulers by name: those of [`policy`], and others that a
//! program adds.

use std::fmt;
use std::sync::Arc;

use policy::cc::{self, Controller};
use policy::named::{self, Known, NameError, Settings, Signature};
use policy::sched::packet::{self, PacketScheduler};

/// The controllers and the packet schedulers that a scenario file may name.
///
/// ```
/// use policy::cc::{Reno, Uncoupled};
/// use policy::sched::packet::lowest_rtt::LowestRtt;
/// use scenario::{Document, Registry};
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
///     transport = "ptcp"
///     controller = "mine"
///     scheduler = "fastest"
/// "#;
/// let registry = Registry::default()
///     .controller("mine", || Uncoupled::new(Reno::default()))
///     .scheduler("fastest", || LowestRtt);
/// let scenario = Document::new_with(text, "one-flow.toml", registry)?.scenario(&[])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Registry {
    controllers: Added<dyn Controller>,
    schedulers: Added<dyn PacketScheduler>,
}

impl Registry {
    /// Adds a controller under a name, or replaces the one of that name. `make` is called for each
    /// connection, and when a file is read. [`policy::cc::Uncoupled`] makes a controller of a
    /// [`policy::cc::SinglePath`], [`policy::cc::Coupled`] one of a [`policy::cc::Coupling`].
    ///
    /// # Panics
    /// If the name is none that a file could have: `name(parameter=value)`.
    #[must_use]
    pub fn controller<C: Controller + 'static>(
        self,
        name: &'static str,
        make: impl Fn() -> C + Send + Sync + 'static,
    ) -> Registry {
        self.controller_with(plain(name), move |_| Ok(make()))
    }

    /// As [`Registry::controller`], with parameters: files set them in parentheses behind the name,
    /// and `make` reads them by [`Settings::get`].
    ///
    /// # Panics
    /// If the name is none that a file could have.
    #[must_use]
    pub fn controller_with<C: Controller + 'static>(
        mut self,
        signature: Signature,
        make: impl Fn(&Settings<'_>) -> Result<C, NameError> + Send + Sync + 'static,
    ) -> Registry {
        self.controllers.add(signature, move |settings| Ok(Box::new(make(settings)?)));
        self
    }

    /// Adds a packet scheduler under a name, or replaces the one of that name. `make` is called for
    /// each end of a connection, and when a file is read.
    ///
    /// # Panics
    /// If the name is none that a file could have.
    #[must_use]
    pub fn scheduler<S: PacketScheduler + 'static>(
        self,
        name: &'static str,
        make: impl Fn() -> S + Send + Sync + 'static,
    ) -> Registry {
        self.scheduler_with(plain(name), move |_| Ok(make()))
    }

    /// As [`Registry::scheduler`], with parameters.
    ///
    /// # Panics
    /// If the name is none that a file could have.
    #[must_use]
    pub fn scheduler_with<S: PacketScheduler + 'static>(
        mut self,
        signature: Signature,
        make: impl Fn(&Settings<'_>) -> Result<S, NameError> + Send + Sync + 'static,
    ) -> Registry {
        self.schedulers.add(signature, move |settings| Ok(Box::new(make(settings)?)));
        self
    }

    /// The controller that `text` describes, one that was added or one of [`policy::cc::NAMES`].
    ///
    /// # Errors
    /// If there is no such controller, it has no such parameter, or a value is invalid; the message
    /// lists the known names.
    pub fn make_controller(&self, text: &str) -> Result<Box<dyn Controller>, NameError> {
        self.controllers.make(cc::KIND, cc::NAMES, text)
    }

    /// The packet scheduler that `text` describes, one that was added or one of
    /// [`policy::sched::packet::NAMES`].
    ///
    /// # Errors
    /// As [`Registry::make_controller`].
    pub fn make_scheduler(&self, text: &str) -> Result<Box<dyn PacketScheduler>, NameError> {
        self.schedulers.make(packet::KIND, packet::NAMES, text)
    }

    /// All controllers that a file may name, those of [`policy::cc::NAMES`] first.
    pub fn controllers(&self) -> impl Iterator<Item = Signature> {
        self.controllers.with(cc::NAMES)
    }

    /// All packet schedulers that a file may name, those of [`policy::sched::packet::NAMES`] first.
    pub fn schedulers(&self) -> impl Iterator<Item = Signature> {
        self.schedulers.with(packet::NAMES)
    }
}

/// A name without parameters.
fn plain(name: &'static str) -> Signature {
    Signature { name, summary: "", parameters: &[] }
}

type Make<T> = Arc<dyn Fn(&Settings<'_>) -> Result<Box<T>, NameError> + Send + Sync>;

/// What a program adds to a list of algorithms.
struct Added<T: ?Sized>(Vec<(Signature, Make<T>)>);

impl<T: ?Sized> Added<T> {
    fn add(
        &mut self,
        signature: Signature,
        make: impl Fn(&Settings<'_>) -> Result<Box<T>, NameError> + Send + Sync + 'static,
    ) {
        let name = signature.name;
        let is_found = named::find("name", [signature].into_iter(), name).is_ok();
        assert!(is_found && !name.is_empty(), "'{name}' cannot be the name of an algorithm");
        self.0.retain(|(other, _)| !other.name.eq_ignore_ascii_case(name));
        self.0.push((signature, Arc::new(make)));
    }

    /// Whether this name was added.
    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(signature, _)| signature.name.eq_ignore_ascii_case(name))
    }

    /// What is in `list` and was not replaced, then what was added.
    fn with(&self, list: &'static [Known<T>]) -> impl Iterator<Item = Signature> + Clone {
        let kept = list.iter().map(|known| known.signature);
        let added = self.0.iter().map(|(signature, _)| *signature);
        kept.filter(|signature| !self.has(signature.name)).chain(added)
    }

    fn make(
        &self,
        kind: &'static str,
        list: &'static [Known<T>],
        text: &str,
    ) -> Result<Box<T>, NameError> {
        let settings = named::find(kind, self.with(list), text)?;
        match self.0.iter().find(|(signature, _)| signature.name == settings.name()) {
            Some((_, make)) => make(&settings),
            None => named::make(list, &settings),
        }
    }
}

impl<T: ?Sized> Clone for Added<T> {
    fn clone(&self) -> Added<T> {
        Added(self.0.clone())
    }
}

impl<T: ?Sized> Default for Added<T> {
    fn default() -> Added<T> {
        Added(Vec::new())
    }
}

impl<T: ?Sized> fmt::Debug for Added<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.iter().map(|(signature, _)| signature.name)).finish()
    }
}
