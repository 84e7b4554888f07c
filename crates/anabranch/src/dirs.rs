//! The folders of the key, the configuration, the lists of peers and the counters of volume caps.

use std::env;
use std::io;
use std::path::PathBuf;

/// The folders, as in the XDG base directory specification; `ANABRANCH_HOME` replaces all of them.
#[derive(Clone, Debug)]
pub(crate) struct Dirs {
    config: PathBuf,
    data: PathBuf,
    state: PathBuf,
}

/// Whether a file is absent: neither it nor, perhaps, its folder exists. A service may have a home
/// that is no folder.
pub(crate) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

impl Dirs {
    /// Reads the environment.
    pub(crate) fn from_env() -> Dirs {
        let set = |name: &str| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        if let Some(home) = set("ANABRANCH_HOME") {
            return Dirs { config: home.clone(), data: home.clone(), state: home };
        }
        // The XDG specification requires relative paths to be ignored.
        let absolute = |name| set(name).filter(|path| path.is_absolute());
        let home = set("HOME").unwrap_or_else(|| PathBuf::from("/"));
        Dirs {
            config: absolute("XDG_CONFIG_HOME")
                .unwrap_or_else(|| home.join(".config"))
                .join("anabranch"),
            data: absolute("XDG_DATA_HOME")
                .unwrap_or_else(|| home.join(".local/share"))
                .join("anabranch"),
            state: absolute("XDG_STATE_HOME")
                .unwrap_or_else(|| home.join(".local/state"))
                .join("anabranch"),
        }
    }

    /// Uses one folder for everything.
    #[cfg(test)]
    pub(crate) fn below(home: &std::path::Path) -> Dirs {
        Dirs { config: home.into(), data: home.into(), state: home.into() }
    }

    /// The host's private key.
    pub(crate) fn key(&self) -> PathBuf {
        self.data.join("key")
    }

    /// The folder of the monthly counters of interfaces with a cap.
    pub(crate) fn usage(&self) -> PathBuf {
        self.state.join("usage")
    }

    /// The socket at which a relay of this user says what it does.
    pub(crate) fn relay_status(&self) -> PathBuf {
        self.state.join("relay-status")
    }

    /// The socket at which a gateway of this user says what it does.
    pub(crate) fn gateway_status(&self) -> PathBuf {
        self.state.join("gateway-status")
    }

    /// The folder that says what each of several collectors has of a feed.
    pub(crate) fn feed(&self, name: &str) -> PathBuf {
        self.state.join("feeds").join(name)
    }

    /// The folder of notes about incomplete copies under a new name.
    pub(crate) fn copies(&self) -> PathBuf {
        self.state.join("copies")
    }

    /// The folder of the positions of streams that a collector hands over: without them they begin
    /// anew, which is why they are no mere state.
    pub(crate) fn collected(&self) -> PathBuf {
        self.data.join("collected")
    }

    /// The file of a gateway used without `--config`.
    pub(crate) fn gateway_config(&self) -> PathBuf {
        self.config.join("gateway.toml")
    }

    /// The configuration file used without `--config`.
    pub(crate) fn config_file(&self) -> PathBuf {
        self.config.join("config.toml")
    }

    /// The list of known receivers.
    pub(crate) fn known_receivers(&self) -> PathBuf {
        self.config.join("known_receivers")
    }

    /// The list of peers that need no token here.
    pub(crate) fn authorized_peers(&self) -> PathBuf {
        self.config.join("authorized_peers")
    }
}
