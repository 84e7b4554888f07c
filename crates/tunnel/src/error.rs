//! The failures that end a tunnel.

use std::io;

/// Why a tunnel ended, or did not begin.
#[derive(Debug, thiserror::Error)]
pub enum TunnelError {
    /// There is no session with the peer.
    #[error(transparent)]
    Peer(#[from] peer::Error),
    /// A place to listen at is not to be had.
    #[error("cannot listen at {place}: {source}{advice}")]
    Listen {
        /// The address or path.
        place: String,
        /// The kernel's answer.
        source: io::Error,
        /// What to do, as a further clause; may be empty.
        advice: &'static str,
    },
    /// The rules of transparent interception cannot be installed.
    #[error("cannot install the rules of --transparent-rules: {0}")]
    Rules(String),
}

impl TunnelError {
    pub(crate) fn listen(place: String, source: io::Error, is_transparent: bool) -> TunnelError {
        let advice = match source.kind() {
            io::ErrorKind::PermissionDenied if is_transparent => {
                "; --transparent needs root, or the capability CAP_NET_ADMIN"
            }
            io::ErrorKind::AddrInUse => "; name another port, or 0 for a free one",
            _ => "",
        };
        TunnelError::Listen { place, source, advice }
    }

    /// The process's exit code, as the manual page documents it.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            TunnelError::Peer(error) => error.exit_code(),
            TunnelError::Listen { .. } | TunnelError::Rules(_) => 10,
        }
    }
}
