//! The side that dials: a handshake with its retries and versions.

use std::sync::Arc;

use rustls::ClientConfig;
use units::Time;
use wire::datagram::Outer;

use crate::handshake::{Handshake, Progress, choose};
use crate::{Established, HandshakeError, ResetTokens, Settings, SettingsError};

/// How many retries are believed: each costs a flight.
const MOST_RETRIES: u32 = 2;

/// What a [`Dialer`] comes to.
#[derive(Debug)]
pub enum DialEvent {
    /// Packets can be sealed and opened. The peer's key is the one that TLS verified. The peer has
    /// not accepted ours yet.
    Established(Box<Established>),
    /// The peer has completed the handshake too. The handshake is over. There are no tokens if only
    /// data packets told.
    Confirmed(ResetTokens),
    /// The handshake has failed. A session that was established is void.
    Failed(HandshakeError),
}

/// Dials one peer.
pub struct Dialer {
    tls: Arc<ClientConfig>,
    settings: Arc<Settings>,
    handshake: Handshake,
    label: u64,
    retries: u32,
    is_negotiated: bool,
}

impl Dialer {
    /// Begins a handshake. `label` is random, and unpredictable to others. `tls` has to verify the
    /// peer's key and to show ours.
    ///
    /// # Errors
    /// If the settings or the configuration are not usable.
    pub fn new(
        tls: &Arc<ClientConfig>,
        settings: &Arc<Settings>,
        now: Time,
        label: u64,
    ) -> Result<Dialer, SettingsError> {
        settings.check_client(tls)?;
        let version = settings.versions[0];
        let handshake =
            Handshake::dial(tls, settings, now, label, version).map_err(SettingsError::Tls)?;
        Ok(Dialer {
            tls: Arc::clone(tls),
            settings: Arc::clone(settings),
            handshake,
            label,
            retries: 0,
            is_negotiated: false,
        })
    }

    /// A datagram of the peer's address arrived: those of the handshake form are for here. What is
    /// not the peer's, or not for this handshake, is ignored.
    pub fn handle_datagram(&mut self, now: Time, datagram: &mut [u8]) {
        match Outer::parse(datagram) {
            Ok(Outer::Handshake { level, version, label, number_at, .. }) => {
                if label == self.label && version == self.handshake.version() {
                    self.handshake.handle_packet(now, level, number_at, datagram);
                }
            }
            Ok(Outer::Retry { version, label, token }) => {
                if label == self.label
                    && version == self.handshake.version()
                    && !self.handshake.has_opened()
                    && self.retries < MOST_RETRIES
                {
                    self.retries += 1;
                    self.handshake.set_token(now, token);
                }
            }
            Ok(Outer::Versions { label, versions }) => {
                // A list with the version in use answers something else.
                if label == self.label
                    && !self.handshake.has_opened()
                    && !self.is_negotiated
                    && versions.iter().all(|version| version != self.handshake.version())
                {
                    self.is_negotiated = true;
                    let theirs: Vec<u32> = versions.iter().collect();
                    self.change_version(now, &theirs);
                }
            }
            Ok(Outer::Data { .. } | Outer::Reset { .. }) | Err(_) => {}
        }
    }

    fn change_version(&mut self, now: Time, theirs: &[u32]) {
        let version = choose(&self.settings.versions, theirs);
        let Some(version) = version else {
            self.handshake.fail(HandshakeError::NoCommonVersion);
            return;
        };
        // The version is part of the initial keys, so that no number is used twice with one key.
        match Handshake::dial(&self.tls, &self.settings, now, self.label, version) {
            Ok(mut handshake) => {
                handshake.set_negotiated();
                self.handshake = handshake;
            }
            Err(error) => self.handshake.fail(HandshakeError::Tls(error)),
        }
    }

    /// Whether a packet of the peer's could be opened.
    #[must_use]
    pub fn has_answer(&self) -> bool {
        self.handshake.has_opened()
    }

    /// A data packet of the peer's was opened: it has completed the handshake, even if it cannot
    /// say so in time.
    pub fn handle_data(&mut self) {
        self.handshake.handle_data();
    }

    /// The next datagram to send.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Vec<u8>> {
        self.handshake.poll_transmit(now, usize::MAX)
    }

    /// What has happened.
    pub fn poll_event(&mut self) -> Option<DialEvent> {
        Some(match self.handshake.poll_progress()? {
            Progress::Established(established) => DialEvent::Established(established),
            Progress::Confirmed(tokens) => DialEvent::Confirmed(tokens),
            Progress::Failed(error) => DialEvent::Failed(error),
        })
    }

    /// When [`Dialer::handle_deadline`] is due.
    #[must_use]
    pub fn poll_deadline(&self) -> Option<Time> {
        self.handshake.poll_deadline()
    }

    /// Repeats what was not answered, or gives up.
    pub fn handle_deadline(&mut self, now: Time) {
        self.handshake.handle_deadline(now);
    }
}

impl std::fmt::Debug for Dialer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dialer").field("label", &self.label).finish_non_exhaustive()
    }
}
