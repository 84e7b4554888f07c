//! The user and the password that clients of a proxy have to show.

use std::fmt;
use std::str::FromStr;

use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// A user and a password. `Debug` does not show the password.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct Login {
    user: String,
    password: String,
}

impl Login {
    /// Whether a client showed it. The time depends on the lengths alone.
    pub(super) fn is(&self, user: &[u8], password: &[u8]) -> bool {
        let join = |user: &[u8], password: &[u8]| {
            Zeroizing::new([&user.len().to_be_bytes(), user, password].concat())
        };
        let own = join(self.user.as_bytes(), self.password.as_bytes());
        let shown = join(user, password);
        aws_lc_rs::constant_time::verify_slices_are_equal(&own, &shown).is_ok()
    }
}

impl FromStr for Login {
    type Err = String;

    /// The first line of a file, `USER:PASSWORD`. The error does not repeat it.
    fn from_str(text: &str) -> Result<Login, String> {
        let line = text.lines().next().unwrap_or_default();
        let fits = |part: &str| (1..=255).contains(&part.len());
        let (user, password) = line
            .split_once(':')
            .filter(|(user, password)| fits(user) && fits(password))
            .ok_or("its first line is not USER:PASSWORD, of 1 to 255 bytes each")?;
        Ok(Login { user: user.into(), password: password.into() })
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({}, password withheld)", self.user)
    }
}
