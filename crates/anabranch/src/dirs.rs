//! Where the key, the configuration, the known peers and the counts of what interfaces carried
//! live.

use std::env;
use std::path::PathBuf;

/// The places, by the XDG rules; `ANABRANCH_HOME` puts all of them into one folder.
#[derive(Clone, Debug)]
pub(crate) struct Dirs {
    config: PathBuf,
    data: PathBuf,
    state: PathBuf,
}

impl Dirs {
    /// From the environment.
    pub(crate) fn from_env() -> Dirs {
        let set = |name: &str| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        if let Some(home) = set("ANABRANCH_HOME") {
            return Dirs { config: home.clone(), data: home.clone(), state: home };
        }
        // The XDG specification: a relative path is to be ignored.
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

    /// All of them in one folder.
    #[cfg(test)]
    pub(crate) fn below(home: &std::path::Path) -> Dirs {
        Dirs { config: home.into(), data: home.into(), state: home.into() }
    }

    /// The host's private key.
    pub(crate) fn key(&self) -> PathBuf {
        self.data.join("key")
    }

    /// The folder of what each interface with a cap carried, month by month.
    pub(crate) fn usage(&self) -> PathBuf {
        self.state.join("usage")
    }

    /// The folder of notes on copies under a new name that have begun.
    pub(crate) fn copies(&self) -> PathBuf {
        self.state.join("copies")
    }

    /// The configuration file used where `--config` names none.
    pub(crate) fn config_file(&self) -> PathBuf {
        self.config.join("config.toml")
    }

    /// Receivers that this host knows.
    pub(crate) fn known_receivers(&self) -> PathBuf {
        self.config.join("known_receivers")
    }

    /// Senders that may send here without a token.
    pub(crate) fn authorized_peers(&self) -> PathBuf {
        self.config.join("authorized_peers")
    }
}
