//! A host's Ed25519 key, its fingerprint, and the tokens that introduce a sender to a receiver.

use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use data_encoding::BASE32_NOPAD;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use units::Seed;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::private::{Guard, check_private, create_fresh, open_regular};
use crate::{Error, Fingerprint};

/// A host's static Ed25519 key. It never leaves the process; `Debug` shows the fingerprint only.
#[derive(Clone)]
pub struct Identity {
    certified: Arc<CertifiedKey>,
    fingerprint: Fingerprint,
    /// See [`Identity::udp_secret`].
    udp_secret: Arc<Zeroizing<[u8; 32]>>,
}

/// The receiver's fingerprint and a secret of 120 bits that is good for one sender. The receiver
/// hands it to its sender by a channel that both trust. `Debug` does not show the secret.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct Token {
    /// The receiver's key.
    #[zeroize(skip)]
    pub fingerprint: Fingerprint,
    secret: [u8; 16],
}

/// Prefix of a token's text, which tells it from other pasted text.
const TOKEN_PREFIX: &str = "ab1-";
/// Octets of a token's secret: the most with which its text fits a line of 80 columns. The rest of
/// the 16 octets in a frame are zero.
const TOKEN_SECRET: usize = 15;
/// The most bytes of a key file; a key takes 83.
const MOST_KEY: usize = 4_096;

impl Identity {
    /// A fresh key that lives only in memory.
    ///
    /// # Errors
    /// [`Error::System`] if the system has no random numbers.
    pub fn generate() -> Result<Identity, Error> {
        Self::from_pkcs8(&new_pkcs8()?)
    }

    /// The key in the file `path`; if there is none, makes it, readable by the owner only.
    ///
    /// # Errors
    /// [`Error::NoKey`] if there is none within reach and none can be made; [`Error::System`] if
    /// the file holds no Ed25519 key, or is not private: see [`check_private`].
    pub fn load_or_generate(path: &Path) -> Result<Identity, Error> {
        let unusable =
            |source| Error::System { action: format!("use the key {}", path.display()), source };
        let no_key = |source| Error::NoKey { path: path.to_path_buf(), source };
        match open_regular(path) {
            Ok(file) => return Self::from_pkcs8(&read_key(file, path).map_err(unusable)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(no_key(error)),
        }
        let pkcs8 = new_pkcs8()?;
        if store(path, &pkcs8).map_err(no_key)? {
            return Self::from_pkcs8(&pkcs8);
        }
        let file = open_regular(path).map_err(unusable)?;
        Self::from_pkcs8(&read_key(file, path).map_err(unusable)?)
    }

    /// The fingerprint of the public key.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The key as rustls takes it, as a raw public key (RFC 7250).
    #[must_use]
    pub(crate) fn certified(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.certified)
    }

    /// The secret of this host's stateless answers over UDP. It is the same in each run, so that a
    /// host that was started again, and listens at the same addresses, can tell peers of its former
    /// connections that these are gone.
    #[must_use]
    pub(crate) fn udp_secret(&self) -> [u8; 32] {
        **self.udp_secret
    }

    fn from_pkcs8(pkcs8: &[u8]) -> Result<Identity, Error> {
        let bad = |detail: String| Error::System {
            action: "use the host's key".into(),
            source: io::Error::new(io::ErrorKind::InvalidData, detail),
        };
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(pkcs8)
            .map_err(|e| bad(format!("not an Ed25519 key: {e}")))?;
        let spki = pair.public_key().as_der().map_err(|e| bad(e.to_string()))?;
        let spki: &[u8] = spki.as_ref();
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(pkcs8.to_vec()));
        let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&der)
            .map_err(|e| bad(e.to_string()))?;
        let certified = Arc::new(CertifiedKey::new(vec![CertificateDer::from(spki.to_vec())], key));
        // Nobody else has the key, and nothing of it can be found from this.
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, pkcs8), b"anabranch over UDP");
        let mut udp_secret = Zeroizing::new([0; 32]);
        udp_secret.copy_from_slice(tag.as_ref());
        let fingerprint = Fingerprint::of_spki(spki);
        Ok(Identity { certified, fingerprint, udp_secret: Arc::new(udp_secret) })
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.fingerprint)
    }
}

impl Token {
    /// A fresh secret for the receiver `identity`.
    ///
    /// # Errors
    /// [`Error::System`] if the system has no random numbers.
    pub fn generate(identity: &Identity) -> Result<Token, Error> {
        let mut secret = random()?;
        secret[TOKEN_SECRET..].fill(0);
        Ok(Token { fingerprint: identity.fingerprint(), secret })
    }

    /// The secret, to be sent only to a peer whose key was verified.
    #[must_use]
    pub fn secret(&self) -> &[u8; 16] {
        &self.secret
    }

    /// The token of the holder of a key with this secret.
    #[must_use]
    pub fn of(fingerprint: Fingerprint, secret: [u8; 16]) -> Token {
        Token { fingerprint, secret }
    }

    /// What a relay is shown to be led to the host with this token: HMAC-SHA256 of "relay" under
    /// the token's secret, from which nothing of the secret can be found.
    #[must_use]
    pub fn invitation(&self) -> [u8; 32] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.secret);
        let tag = hmac::sign(&key, b"relay");
        tag.as_ref().try_into().expect("SHA-256 has 32 octets")
    }

    /// Whether `secret` is this token's. Takes constant time.
    #[must_use]
    pub fn matches(&self, secret: &[u8; 16]) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(&self.secret, secret).is_ok()
    }

    /// The text to paste. No other text contains the secret.
    #[must_use]
    pub fn reveal(&self) -> String {
        // A token of another program may fill the last octet too.
        let shown = if self.secret[TOKEN_SECRET..] == [0] { TOKEN_SECRET } else { 16 };
        let octets = [&self.fingerprint.as_bytes()[..], &self.secret[..shown]].concat();
        let octets = Zeroizing::new(octets);
        format!("{TOKEN_PREFIX}{}", BASE32_NOPAD.encode(&octets).to_ascii_lowercase())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}, secret withheld)", self.fingerprint)
    }
}

impl FromStr for Token {
    type Err = String;

    /// Reads the text of [`Token::reveal`]. The error never repeats it, because it may be a secret.
    fn from_str(text: &str) -> Result<Token, String> {
        let bad = || {
            "this is not a token: it begins with ab1- and is printed by 'anabranch receive'"
                .to_string()
        };
        let body = text.trim().strip_prefix(TOKEN_PREFIX).ok_or_else(bad)?;
        let body = Zeroizing::new(body.to_ascii_uppercase());
        let octets = Zeroizing::new(BASE32_NOPAD.decode(body.as_bytes()).map_err(|_| bad())?);
        let (fingerprint, secret) = octets.split_first_chunk::<32>().ok_or_else(bad)?;
        if !(TOKEN_SECRET..=16).contains(&secret.len()) {
            return Err(bad());
        }
        let mut token = Token { fingerprint: Fingerprint::from(*fingerprint), secret: [0; 16] };
        token.secret[..secret.len()].copy_from_slice(secret);
        Ok(token)
    }
}

/// Sixteen octets from the system's cryptographic random numbers.
///
/// # Errors
/// [`Error::System`] if the system has no random numbers.
pub fn random() -> Result<[u8; 16], Error> {
    let mut octets = [0; 16];
    aws_lc_rs::rand::fill(&mut octets).map_err(|_| no_randomness())?;
    Ok(octets)
}

/// A seed for choices that need not be repeated.
///
/// # Errors
/// As [`random`].
pub fn random_seed() -> Result<Seed, Error> {
    let octets = random()?;
    Ok(Seed(u64::from_be_bytes(*octets.first_chunk().expect("it has 16"))))
}

/// Reads a key that nobody else may read or change.
fn read_key(mut file: fs::File, path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    check_private(&file, path, Guard::Secret)?;
    // With the whole capacity at once: a vector that grows leaves copies behind.
    let mut pkcs8 = Zeroizing::new(Vec::with_capacity(MOST_KEY));
    Read::take(&mut file, MOST_KEY as u64).read_to_end(&mut pkcs8)?;
    Ok(pkcs8)
}

/// Stores a key that is readable by its owner only; false if there is one by now. It is written
/// aside and linked, so that two first runs at once agree on one key.
fn store(path: &Path, pkcs8: &[u8]) -> io::Result<bool> {
    if let Some(parent) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    let aside = path.with_extension(format!("new-{}", std::process::id()));
    let mut file = create_fresh(&aside)?;
    let stored = file
        .write_all(pkcs8)
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::hard_link(&aside, path));
    fs::remove_file(&aside)?;
    match stored {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

fn new_pkcs8() -> Result<Zeroizing<Vec<u8>>, Error> {
    let document =
        Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| no_randomness())?;
    Ok(Zeroizing::new(document.as_ref().to_vec()))
}

fn no_randomness() -> Error {
    Error::System {
        action: "draw random numbers".into(),
        source: io::Error::other("the system gave none"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_its_text() {
        let token = Token::generate(&Identity::generate().unwrap()).unwrap();
        let text = token.reveal();
        assert_eq!(text.parse::<Token>().unwrap(), token);
        assert_eq!(
            format!(" {}\n", text.to_uppercase().replace("AB1-", "ab1-")).parse::<Token>().unwrap(),
            token
        );
        assert!(!format!("{token:?}").contains(&text[60..]));
    }

    #[test]
    fn a_token_fits_a_line_of_80_columns() {
        let identity = Identity::generate().unwrap();
        let token = Token::generate(&identity).unwrap();
        assert_eq!(token.reveal().len(), 80);
        // Earlier versions printed a secret of 16 octets.
        let long = Token { secret: [7; 16], ..token };
        assert_eq!(long.reveal().parse::<Token>().unwrap(), long);
    }

    /// Neither is the secret in the invitation, nor is it another token's.
    #[test]
    fn an_invitation_follows_from_the_token() {
        let identity = Identity::generate().unwrap();
        let token = Token::of(identity.fingerprint(), [7; 16]);
        let text = token.reveal();
        assert_eq!(text.parse::<Token>().unwrap().invitation(), token.invitation());
        let other = Token::generate(&identity).unwrap();
        assert_ne!(other.invitation(), token.invitation());
        assert!(!token.invitation().windows(4).any(|octets| octets == [7; 4]));
    }

    #[test]
    fn a_bad_token_is_not_repeated() {
        let error = "ab1-secretsecret".parse::<Token>().unwrap_err();
        assert!(!error.contains("secretsecret"), "{error}");
    }

    #[test]
    fn a_key_is_made_once() {
        let dir = std::env::temp_dir().join(format!("anabranch-identity-{}", std::process::id()));
        let path = dir.join("deep/key");
        let first = Identity::load_or_generate(&path).unwrap();
        let second = Identity::load_or_generate(&path).unwrap();
        assert_eq!(first.fingerprint(), second.fingerprint());
        assert_eq!(first.fingerprint().to_string().parse(), Ok(first.fingerprint()));
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        fs::remove_dir_all(dir).unwrap();
    }
}
