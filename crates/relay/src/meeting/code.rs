//! Codes: a nameplate and three words, as `48213-lantern-orbit-cedar`.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use peer::{Error, random};
use wire::meet::NAMEPLATES;
use zeroize::Zeroizing;

/// The words of a code.
const WORDS: usize = 3;
/// The words that there are; no two begin with the same four letters, or sound alike.
const LIST: usize = 2_048;
/// Letters of a word that suffice.
const ENOUGH: usize = 4;

static ALL: LazyLock<Vec<&str>> = LazyLock::new(|| include_str!("words.txt").lines().collect());

/// A code by which a host is met once: 33 random bits beside its nameplate.
#[derive(Clone, PartialEq, Eq)]
pub struct Code {
    nameplate: u32,
    words: [&'static str; WORDS],
}

impl Code {
    /// A random one.
    ///
    /// # Errors
    /// [`Error::System`] if the system has no random numbers.
    pub fn generate() -> Result<Code, Error> {
        let octets = random()?;
        let (number, rest) = octets.split_first_chunk::<8>().expect("it has 16");
        let number = u64::from_be_bytes(*number) % u64::from(NAMEPLATES);
        // 2,048 divides the 65,536 values of two octets.
        let word = |at: usize| {
            let value = u16::from_be_bytes([rest[2 * at], rest[2 * at + 1]]);
            ALL[usize::from(value) % LIST]
        };
        let nameplate = u32::try_from(number).expect("it has five digits");
        Ok(Code { nameplate, words: std::array::from_fn(word) })
    }

    /// The number by which a relay finds the host.
    #[must_use]
    pub fn nameplate(&self) -> u32 {
        self.nameplate
    }

    /// What is shown to people. No other text contains the words.
    #[must_use]
    pub fn reveal(&self) -> String {
        format!("{:05}-{}", self.nameplate, self.words.join("-"))
    }

    /// The password of an exchange.
    pub(crate) fn password(&self) -> Zeroizing<String> {
        Zeroizing::new(self.reveal())
    }

    /// The ends of what was typed so far: texts that continue it to a code, or to its next word.
    #[must_use]
    pub fn completions(typed: &str) -> Vec<String> {
        let Some((before, last)) = typed.rsplit_once('-') else { return Vec::new() };
        let count = before.split('-').count();
        if !before.starts_with(|c: char| c.is_ascii_digit()) || count > WORDS {
            return Vec::new();
        }
        let end = if count < WORDS { "-" } else { "" };
        let last = last.to_ascii_lowercase();
        let words = ALL.iter().filter(|word| word.starts_with(&*last));
        words.map(|word| format!("{before}-{word}{end}")).collect()
    }
}

impl fmt::Debug for Code {
    /// Without the words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Code({:05}, words withheld)", self.nameplate)
    }
}

impl FromStr for Code {
    type Err = String;

    /// Reads what a host printed, in any case; four letters of a word suffice. The error repeats no
    /// more than the word that is wrong.
    fn from_str(text: &str) -> Result<Code, String> {
        const FORM: &str = "a code is a number of five digits and three words, as in \
                            48213-lantern-orbit-cedar";
        let text = text.trim().to_ascii_lowercase();
        let mut parts = text.split(['-', ' ']).filter(|part| !part.is_empty());
        let number = parts.next().filter(|number| number.len() == 5);
        let is_number = |number: &&str| number.bytes().all(|byte| byte.is_ascii_digit());
        let nameplate = number.filter(is_number).and_then(|number| number.parse().ok());
        let nameplate = nameplate.ok_or(FORM)?;
        let mut words = [""; WORDS];
        for word in &mut words {
            let typed = parts.next().ok_or(FORM)?;
            *word = find(typed).ok_or_else(|| format!("'{typed}' is no word of a code"))?;
        }
        if parts.next().is_some() {
            return Err(FORM.into());
        }
        Ok(Code { nameplate, words })
    }
}

/// The word that begins so.
fn find(typed: &str) -> Option<&'static str> {
    let exact = ALL.iter().find(|word| **word == typed);
    let begun = || ALL.iter().find(|word| typed.len() >= ENOUGH && word.starts_with(typed));
    exact.or_else(begun).copied()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn four_letters_tell_every_word_from_the_others() {
        assert_eq!(ALL.len(), LIST);
        assert!(ALL.is_sorted());
        let begin = |word: &str| word.chars().take(ENOUGH).collect::<String>();
        let begins: BTreeSet<String> = ALL.iter().map(|word| begin(word)).collect();
        assert_eq!(begins.len(), LIST);
        for word in ALL.iter() {
            let is_plain = word.bytes().all(|byte| byte.is_ascii_lowercase());
            assert!(is_plain && (3..=8).contains(&word.len()), "{word}");
        }
    }

    /// Pairs that one hears for the other over a telephone, both common words.
    #[test]
    fn of_words_that_sound_alike_there_is_one_at_most() {
        for pair in [
            ["right", "write"],
            ["pair", "pear"],
            ["peace", "piece"],
            ["sea", "see"],
            ["sun", "son"],
            ["steel", "steal"],
            ["weather", "whether"],
            ["medal", "metal"],
            ["cart", "card"],
            ["wine", "vine"],
            ["goat", "coat"],
            ["globe", "club"],
        ] {
            let both = pair.iter().all(|word| ALL.contains(word));
            assert!(!both, "{pair:?}");
        }
    }

    #[test]
    fn a_code_survives_its_text() {
        for _ in 0..100 {
            let code = Code::generate().unwrap();
            assert_eq!(code.reveal().parse(), Ok(code.clone()));
            let spaced = code.reveal().to_uppercase().replace('-', " ");
            assert_eq!(spaced.parse(), Ok(code.clone()));
            // To the letter: "word" is one of the 2,048.
            let shown = format!("Code({:05}, words withheld)", code.nameplate);
            assert_eq!(format!("{code:?}"), shown);
        }
        let code: Code = "00042-lantern-orbit-cedar".parse().unwrap();
        assert_eq!((code.nameplate(), code.reveal()), (42, "00042-lantern-orbit-cedar".into()));
        assert_eq!("00042-lant-orbi-ceda".parse(), Ok(code));
    }

    #[test]
    fn what_is_no_code_is_named() {
        for (text, why) in [
            ("", "five digits"),
            ("4821-lantern-orbit-cedar", "five digits"),
            ("+4821-lantern-orbit-cedar", "five digits"),
            ("48213-lantern-orbit", "three words"),
            ("48213-lantern-orbit-cedar-cedar", "three words"),
            ("48213-lantern-orbitt-cedar", "'orbitt' is no word"),
            ("48213-lantern-or-cedar", "'or' is no word"),
        ] {
            let error = text.parse::<Code>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn words_are_completed() {
        assert_eq!(Code::completions("48213-lant"), ["48213-lantern-"]);
        assert_eq!(Code::completions("48213-lantern-orbit-ceda"), ["48213-lantern-orbit-cedar"]);
        assert_eq!(Code::completions("48213-").len(), LIST);
        for none in ["", "4821", "lant", "48213-lantern-orbit-cedar-", "48213-zzz"] {
            assert!(Code::completions(none).is_empty(), "{none}");
        }
    }
}
