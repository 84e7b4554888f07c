//! The TLS handshake over datagrams that are lost, reordered, repeated and forged.
//!
//! TLS messages are bytes with offsets, at two levels of keys. Each side sends what the other has
//! not acknowledged, again after a while. A packet at the handshake level shows that its sender has
//! all of the initial level (RFC 9001, section 4.9.1).

use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::quic::{self, KeyChange, Keys, Secrets, Version};
use rustls::{ClientConfig, ServerConfig, Side};
use units::{Span, SubflowId, Time};
use wire::datagram::{FULL, Level, Message, Parameters, RESET_TOKEN};
use zeroize::Zeroizing;

use crate::labels::{EXPORTER, Labels, SECRET};
use crate::reset::{ResetToken, ResetTokens};
use crate::{HandshakeError, Secret, Session, Settings};
pub(crate) use level::{Protected, Stream, initial_keys};

mod level;
mod send;

/// The wait for an answer; doubled each time.
const FIRST_WAIT: Span = Span::from_millis(500);
/// The longest wait for an answer: a handshake has only some seconds. As long as Linux waits for
/// each of the first answers to a SYN (`tcp_syn_linear_timeouts`).
const LONGEST_WAIT: Span = Span::from_millis(1_000);
/// Packets of the handshake level that may wait for their keys.
const MOST_HELD: usize = 4;
/// How many paths have reset tokens.
const RESET_PATHS: u16 = 16;

/// What both sides agreed on.
#[derive(Debug)]
pub struct Established {
    /// The keys.
    pub session: Session,
    /// The key that the peer showed, and proved to have.
    pub peer_key: CertificateDer<'static>,
    /// The peer's parameters of the connection above.
    pub parameters: Vec<u8>,
    /// The protocol that was agreed on (ALPN, RFC 7301).
    pub protocol: Option<Vec<u8>>,
}

/// What a handshake comes to.
#[derive(Debug)]
pub(crate) enum Progress {
    /// Packets can be sealed and opened.
    Established(Box<Established>),
    /// The listening side has accepted this one.
    Confirmed(ResetTokens),
    /// There will be no session, or, on the dialing side, the session is void.
    Failed(HandshakeError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    /// TLS is complete. The listening side stays here.
    Established {
        /// Whether a data packet of the peer's has been opened.
        has_data: bool,
    },
    /// The dialing side knows that the other one is complete.
    Confirmed,
    Failed,
}

/// One side of a handshake.
pub(crate) struct Handshake {
    tls: quic::Connection,
    side: Side,
    label: u64,
    version: u32,
    settings: Arc<Settings>,
    /// Whether the version was chosen from a list that nobody vouches for.
    is_negotiated: bool,
    token: Vec<u8>,
    levels: [Stream; 2],
    /// The level at which TLS writes; `None` once it is complete.
    writes_at: Option<Level>,
    data_keys: Option<(Keys, Secrets)>,
    labels: Option<Labels>,
    /// What the listening side makes reset tokens with.
    secret: Option<Secret>,
    held: Vec<Vec<u8>>,
    phase: Phase,
    /// What to tell the peer of a failure.
    refusal: Option<u16>,
    /// The peer has to be told how the handshake ended.
    is_end_due: bool,
    resend_at: Option<Time>,
    tries: u32,
    give_up_at: Time,
    /// Whether a packet of the peer's has been opened.
    has_opened: bool,
    progress: Vec<Progress>,
}

impl Handshake {
    /// The side that dials.
    pub(crate) fn dial(
        tls: &Arc<ClientConfig>,
        settings: &Arc<Settings>,
        now: Time,
        label: u64,
        version: u32,
    ) -> Result<Handshake, rustls::Error> {
        let name = ServerName::try_from("anabranch").expect("a valid name; keys identify");
        let parameters = parameters(settings, version);
        let tls = quic::ClientConnection::new(Arc::clone(tls), Version::V1, name, parameters)?;
        let mut handshake = Handshake::new(
            quic::Connection::Client(tls),
            Side::Client,
            settings,
            now,
            label,
            version,
        );
        handshake.write();
        handshake.resend_at = Some(now);
        Ok(handshake)
    }

    /// The side that listens.
    pub(crate) fn accept(
        tls: &Arc<ServerConfig>,
        settings: &Arc<Settings>,
        now: Time,
        label: u64,
        version: u32,
        secret: Secret,
    ) -> Result<Handshake, rustls::Error> {
        let parameters = parameters(settings, version);
        let tls = quic::ServerConnection::new(Arc::clone(tls), Version::V1, parameters)?;
        let tls = quic::Connection::Server(tls);
        let mut handshake = Handshake::new(tls, Side::Server, settings, now, label, version);
        handshake.secret = Some(secret);
        Ok(handshake)
    }

    fn new(
        tls: quic::Connection,
        side: Side,
        settings: &Arc<Settings>,
        now: Time,
        label: u64,
        version: u32,
    ) -> Handshake {
        let initial = Stream::new(initial_keys(version, label, side));
        Handshake {
            tls,
            side,
            label,
            version,
            settings: Arc::clone(settings),
            is_negotiated: false,
            token: Vec::new(),
            levels: [initial, Stream::default()],
            writes_at: Some(Level::Initial),
            data_keys: None,
            labels: None,
            secret: None,
            held: Vec::new(),
            phase: Phase::Running,
            refusal: None,
            is_end_due: false,
            resend_at: None,
            tries: 0,
            give_up_at: now + settings.handshake_time,
            has_opened: false,
            progress: Vec::new(),
        }
    }

    pub(crate) fn version(&self) -> u32 {
        self.version
    }

    /// Whether a packet of the peer's has been opened.
    pub(crate) fn has_opened(&self) -> bool {
        self.has_opened
    }

    pub(crate) fn labels(&self) -> Option<&Labels> {
        self.labels.as_ref()
    }

    /// The version was chosen from the list of a versions packet.
    pub(crate) fn set_negotiated(&mut self) {
        self.is_negotiated = true;
    }

    /// The first flight goes again, with a token in front.
    pub(crate) fn set_token(&mut self, now: Time, token: &[u8]) {
        self.token = token.to_vec();
        self.levels[0].rewind();
        (self.tries, self.resend_at) = (0, Some(now));
    }

    /// A data packet of the peer's was opened: it has completed the handshake. What it has to say
    /// at the end of it may still come.
    pub(crate) fn handle_data(&mut self) {
        if let Phase::Established { has_data } = &mut self.phase {
            *has_data = true;
        }
    }

    pub(crate) fn poll_progress(&mut self) -> Option<Progress> {
        (!self.progress.is_empty()).then(|| self.progress.remove(0))
    }

    /// When [`Handshake::handle_deadline`] is due.
    pub(crate) fn poll_deadline(&self) -> Option<Time> {
        match self.phase {
            Phase::Running => Some(self.resend_at.unwrap_or(self.give_up_at).min(self.give_up_at)),
            Phase::Established { .. } if self.side == Side::Client => {
                Some(self.resend_at.unwrap_or(self.give_up_at).min(self.give_up_at))
            }
            Phase::Established { .. } | Phase::Confirmed | Phase::Failed => None,
        }
    }

    /// Repeats what is not acknowledged, or gives up.
    pub(crate) fn handle_deadline(&mut self, now: Time) {
        if self.poll_deadline().is_none_or(|due| due > now) {
            return;
        }
        if self.give_up_at <= now {
            if self.phase == (Phase::Established { has_data: true }) {
                self.confirm(&[]);
            } else {
                self.fail(HandshakeError::TimedOut);
            }
            return;
        }
        self.tries += 1;
        self.resend_at = Some(now + self.wait());
        let mut is_anything_left = false;
        for stream in &mut self.levels {
            is_anything_left |= stream.rewind();
        }
        if !is_anything_left && self.side == Side::Client {
            // The other side may not send any more before it has received something.
            let stream = &mut self.levels[self.level() as usize];
            stream.must_acknowledge = true;
        }
    }

    fn wait(&self) -> Span {
        let wait = FIRST_WAIT.as_nanos() << self.tries.saturating_sub(1).min(8);
        Span::from_nanos(wait).min(LONGEST_WAIT)
    }

    /// The latest level with keys.
    fn level(&self) -> Level {
        if self.levels[1].has_keys() { Level::Handshake } else { Level::Initial }
    }

    /// A packet of this handshake arrived. Whether it is the peer's.
    pub(crate) fn handle_packet(
        &mut self,
        now: Time,
        level: Level,
        number_at: usize,
        packet: &mut [u8],
    ) -> bool {
        if self.phase == Phase::Failed {
            // The peer has not heard of it.
            self.is_end_due = true;
            return false;
        }
        if level == Level::Handshake
            && !self.levels[1].has_keys()
            && self.side == Side::Client
            && self.held.len() < MOST_HELD
            && packet.len() <= FULL
        {
            self.held.push(packet.to_vec());
            return false;
        }
        let Some(sealed) = self.levels[level as usize].open(number_at, packet) else {
            return false;
        };
        let message = match Message::parse(&packet[sealed]) {
            Ok(message) => message,
            // Everybody who reads a packet can forge one of the initial level.
            Err(_) if level == Level::Initial => return false,
            Err(error) => {
                self.fail(HandshakeError::Message(error));
                return true;
            }
        };
        self.has_opened = true;
        if level == Level::Handshake {
            self.levels[0].finish();
        }
        if let Err(error) = self.handle_message(now, level, message) {
            self.fail(error);
        }
        if self.levels[1].has_keys() {
            for mut packet in std::mem::take(&mut self.held) {
                // The same header, and so the same place.
                self.handle_packet(now, Level::Handshake, level::HANDSHAKE_NUMBER_AT, &mut packet);
            }
        }
        true
    }

    fn handle_message(
        &mut self,
        now: Time,
        level: Level,
        message: Message<'_>,
    ) -> Result<(), HandshakeError> {
        match message {
            Message::Piece { delivered, offset, data } => {
                if self.side == Side::Server && self.is_established() {
                    self.is_end_due = true;
                    return Ok(());
                }
                if self.phase != Phase::Running {
                    return Ok(());
                }
                let stream = &mut self.levels[level as usize];
                if stream.handle_acknowledged(usize::from(delivered)) {
                    self.tries = 0;
                    self.resend_at = self.resend_at.map(|_| now + FIRST_WAIT);
                }
                if data.is_empty() {
                    return Ok(());
                }
                stream.must_acknowledge = true;
                stream.insert(usize::from(offset), data)?;
                self.read(level)
            }
            Message::Done { tokens } => {
                if self.side == Side::Client && level == Level::Handshake && self.is_established() {
                    self.confirm(tokens);
                }
                Ok(())
            }
            Message::Refused { code } => {
                // Only a peer without other keys has to say so with those that everybody has.
                let is_credible = level == self.level();
                let is_open = self.phase == Phase::Running
                    || self.is_established() && self.side == Side::Client;
                if is_credible && is_open {
                    return Err(HandshakeError::Refused(code));
                }
                Ok(())
            }
        }
    }

    fn is_established(&self) -> bool {
        matches!(self.phase, Phase::Established { .. })
    }

    /// Gives TLS what has arrived without a gap.
    fn read(&mut self, level: Level) -> Result<(), HandshakeError> {
        // One level at a time: what TLS reads next belongs to the latest one.
        if level != self.level() {
            return Ok(());
        }
        let bytes = self.levels[level as usize].read();
        if bytes.is_empty() {
            return Ok(());
        }
        self.tls.read_hs(bytes).map_err(HandshakeError::Tls)?;
        self.write();
        if self.side == Side::Client && level == Level::Initial && self.levels[1].has_keys() {
            // The acknowledgement at the other level counts for this one too, and is smaller.
            self.levels[0].must_acknowledge = false;
            self.levels[1].must_acknowledge = true;
        }
        if !self.tls.is_handshaking() {
            self.complete()?;
        }
        Ok(())
    }

    /// Takes what TLS has to say.
    fn write(&mut self) {
        loop {
            let mut bytes = Vec::new();
            let change = self.tls.write_hs(&mut bytes);
            if let Some(level) = self.writes_at {
                self.levels[level as usize].extend(&bytes);
            }
            match change {
                Some(KeyChange::Handshake { keys }) => {
                    self.levels[1].set_keys(keys);
                    self.writes_at = Some(Level::Handshake);
                }
                Some(KeyChange::OneRtt { keys, next }) => {
                    self.data_keys = Some((keys, next));
                    self.writes_at = None;
                }
                None if bytes.is_empty() => return,
                None => {}
            }
        }
    }

    /// TLS is complete.
    fn complete(&mut self) -> Result<(), HandshakeError> {
        let Some((keys, secrets)) = self.data_keys.take() else { return Ok(()) };
        let certificates = self.tls.peer_certificates().unwrap_or_default();
        let peer_key = certificates.first().ok_or(HandshakeError::NoPeerKey)?.clone();
        let theirs = self.tls.quic_transport_parameters().unwrap_or_default();
        let theirs = Parameters::parse(theirs).map_err(HandshakeError::Message)?;
        let spoken: Vec<u32> = theirs.versions.iter().collect();
        let chosen = choose(&self.settings.versions, &spoken);
        if theirs.version != self.version || self.is_negotiated && chosen != Some(self.version) {
            return Err(HandshakeError::VersionChanged);
        }
        let parameters = theirs.above.to_vec();
        let exported = Zeroizing::new([0; SECRET]);
        let exported = self
            .tls
            .export_keying_material(exported, EXPORTER, None)
            .map_err(HandshakeError::Tls)?;
        let labels = Labels::new(&exported);
        let update_after = self.settings.update_after;
        let session = Session::new(self.side, keys, secrets, labels.clone(), update_after);
        self.labels = Some(labels);
        self.phase = Phase::Established { has_data: false };
        match self.side {
            Side::Client => {}
            Side::Server => {
                self.is_end_due = true;
                self.resend_at = None;
                self.levels[1].finish_sending();
            }
        }
        let protocol = self.tls.alpn_protocol().map(<[u8]>::to_vec);
        let established = Established { session, peer_key, parameters, protocol };
        self.progress.push(Progress::Established(Box::new(established)));
        Ok(())
    }

    /// The listening side is complete too, and told these reset tokens of the first paths.
    fn confirm(&mut self, tokens: &[[u8; RESET_TOKEN]]) {
        let with_label = |(path, token): (SubflowId, &[u8; RESET_TOKEN])| {
            let label = self.labels.as_ref()?.label(Side::Client, path);
            Some(ResetToken { path, label, token: *token })
        };
        let tokens = (0..RESET_PATHS).map(SubflowId).zip(tokens).filter_map(with_label).collect();
        self.phase = Phase::Confirmed;
        self.resend_at = None;
        self.progress.push(Progress::Confirmed(ResetTokens::new(tokens)));
    }

    /// There will be no session.
    pub(crate) fn fail(&mut self, error: HandshakeError) {
        self.refusal = error.code(self.tls.alert().map(u8::from));
        self.is_end_due = true;
        self.phase = Phase::Failed;
        self.resend_at = None;
        self.held.clear();
        self.progress.push(Progress::Failed(error));
    }
}

/// The first of our versions that the peer speaks.
pub(crate) fn choose(ours: &[u32], theirs: &[u32]) -> Option<u32> {
    ours.iter().copied().find(|ours| theirs.contains(ours))
}

fn parameters(settings: &Settings, version: u32) -> Vec<u8> {
    let mut parameters = Vec::new();
    Parameters::emit(version, &settings.versions, &settings.parameters, &mut parameters);
    parameters
}
