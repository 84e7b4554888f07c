//! Patterns as in `.gitignore`, compiled into one automaton of bounded size.
//!
//! A client's patterns are compiled and matched on the server. One automaton for all of them bounds
//! their memory, whatever they say: [`PATTERNS_BYTES`]. The time of a match grows with the length
//! of the path and of the patterns, and with nothing else.

use std::cell::RefCell;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::GlobBuilder;
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input, MatchKind, PatternSet};

use crate::Error;

/// Patterns of which the last match decides.
pub(crate) struct Patterns {
    globs: Vec<Sense>,
    automaton: DFA,
    /// States of the automaton, made while it matches, and forgotten when they are too many.
    states: RefCell<Cache>,
}

/// The meaning of a pattern's match.
#[derive(Clone, Copy)]
struct Sense {
    /// `!pattern`: takes back the matches of those before it.
    is_negated: bool,
    /// `pattern/`: matches folders only.
    is_only_folder: bool,
}

/// The most memory of a compiled automaton, and the most of its states.
const AUTOMATON_BYTES: usize = 4 << 20;
const STATES_BYTES: usize = 4 << 20;
/// The most memory of the patterns of a selection: one automaton for inclusion, and one for
/// exclusion.
pub(crate) const PATTERNS_BYTES: usize = 2 * (AUTOMATON_BYTES + STATES_BYTES);

/// The first character that stands for a byte of 0x80 or more which is no UTF-8, the last of all
/// planes, for private use: patterns are strings, in the library and on the wire, and names are
/// bytes.
const FIRST_BYTE: u32 = 0x10_ff80;

fn stands_for(byte: u8) -> char {
    char::from_u32(FIRST_BYTE + u32::from(byte & 0x7f)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// A pattern of any bytes, as [`Selection`](crate::Selection) has it.
#[must_use]
pub fn pattern(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().copied().map(stands_for));
    }
    text
}

/// The regular expression of a pattern with the bytes for which characters stand. The library
/// writes each byte of a character as `\xNN`, outside of classes.
fn with_bytes(expression: &str) -> String {
    let mut bytes = expression.to_string();
    if !bytes.contains(r"\xf4\x8f\xb") {
        return bytes;
    }
    for byte in 0x80..=u8::MAX {
        let mut written = String::new();
        for part in stands_for(byte).encode_utf8(&mut [0; 4]).bytes() {
            let _ = write!(written, r"\x{part:02x}");
        }
        bytes = bytes.replace(&written, &format!(r"\x{byte:02x}"));
    }
    bytes
}

impl Patterns {
    /// Compiles patterns; `None` if there are none.
    ///
    /// # Errors
    /// Names a pattern that is none; patterns that are too large together.
    pub(crate) fn new(patterns: &[String]) -> Result<Option<Patterns>, Error> {
        if patterns.is_empty() {
            return Ok(None);
        }
        let (mut globs, mut expressions) = (Vec::new(), Vec::new());
        for pattern in patterns {
            let Some((sense, glob)) = parse(pattern) else { continue };
            let glob =
                GlobBuilder::new(&glob).literal_separator(true).backslash_escape(true).build();
            let glob = glob.map_err(|error| {
                Error::usage(format!("'{pattern}' is no pattern: {}", error.kind()))
            })?;
            globs.push(sense);
            expressions.push(with_bytes(glob.regex()));
        }
        let automaton = compile(&expressions)?;
        let states = RefCell::new(automaton.create_cache());
        Ok(Some(Patterns { globs, automaton, states }))
    }

    /// Whether the path matches.
    pub(crate) fn match_path(&self, path: &Path, is_folder: bool) -> bool {
        self.decide(path, is_folder).unwrap_or(false)
    }

    /// Whether the path matches or, if no pattern says anything about it, the nearest folder above
    /// it of which one does.
    pub(crate) fn match_path_or_parents(&self, path: &Path, is_folder: bool) -> bool {
        let mut all = path.ancestors();
        let own = all.next().and_then(|path| self.decide(path, is_folder));
        own.or_else(|| all.find_map(|above| self.decide(above, true))).unwrap_or(false)
    }

    fn decide(&self, path: &Path, is_folder: bool) -> Option<bool> {
        let mut matching = PatternSet::new(self.globs.len());
        let input = Input::new(path.as_os_str().as_bytes()).anchored(Anchored::Yes);
        self.automaton
            .try_which_overlapping_matches(&mut self.states.borrow_mut(), &input, &mut matching)
            .expect("it neither quits at a byte nor gives up");
        let last = matching
            .iter()
            .map(|pattern| self.globs[pattern.as_usize()])
            .filter(|sense| is_folder || !sense.is_only_folder)
            .last()?;
        Some(!last.is_negated)
    }
}

/// The sense of a line of `.gitignore` and its glob for a whole path; `None` for a comment.
fn parse(line: &str) -> Option<(Sense, String)> {
    let line = if line.ends_with("\\ ") { line } else { line.trim_end() };
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let (mut glob, mut is_negated) = (line, false);
    let mut is_absolute = false;
    if let Some(escaped) = line.strip_prefix('\\').filter(|rest| rest.starts_with(['!', '#'])) {
        glob = escaped;
    } else {
        if let Some(rest) = glob.strip_prefix('!') {
            (glob, is_negated) = (rest, true);
        }
        if let Some(rest) = glob.strip_prefix('/') {
            (glob, is_absolute) = (rest, true);
        }
    }
    let is_only_folder = glob.ends_with('/');
    if is_only_folder {
        glob = &glob[..glob.len() - 1];
        // The slash may have been escaped.
        glob = glob.strip_suffix('\\').unwrap_or(glob);
    }
    let glob = &literal_braces(glob);
    let is_of_a_name = !is_absolute && !glob.contains('/') && glob != "**";
    let before = if is_of_a_name { "**/" } else { "" };
    let mut glob = format!("{before}{glob}");
    // What is in a folder, but not the folder.
    if glob.ends_with("/**") {
        glob.push_str("/*");
    }
    Some((Sense { is_negated, is_only_folder }, glob))
}

/// The same glob for a library to which braces mean alternatives: in `.gitignore` they mean
/// themselves.
fn literal_braces(glob: &str) -> String {
    let mut literal = String::new();
    let (mut is_escaped, mut in_class) = (false, 0);
    for letter in glob.chars() {
        // A bracket right behind the one that opens a class is a letter of it.
        match letter {
            '[' if !is_escaped && in_class == 0 => in_class = 1,
            '!' | '^' if in_class == 1 => {}
            ']' if in_class > 1 => in_class = 0,
            '{' | '}' if !is_escaped && in_class == 0 => literal.push('\\'),
            _ if in_class > 0 => in_class = 2,
            _ => {}
        }
        is_escaped = letter == '\\' && !is_escaped && in_class == 0;
        literal.push(letter);
    }
    literal
}

fn compile(expressions: &[String]) -> Result<DFA, Error> {
    let syntax = syntax::Config::new().utf8(false).dot_matches_new_line(true);
    let automaton = thompson::Config::new()
        .utf8(false)
        .nfa_size_limit(Some(AUTOMATON_BYTES))
        .which_captures(WhichCaptures::None);
    let states = DFA::config().match_kind(MatchKind::All).cache_capacity(STATES_BYTES);
    let mut builder = DFA::builder();
    builder.syntax(syntax).thompson(automaton).configure(states);
    builder.build_many(expressions).map_err(|error| {
        let text = format!("the patterns cannot be combined ({error}); fewer or shorter ones can");
        Error::usage(text)
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use ignore::gitignore::GitignoreBuilder;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn patterns_mean_what_they_mean_in_gitignore(
            // Without braces, which the other implementation takes for alternatives.
            lines in prop::collection::vec(r"[!#/\\ ]?[/ab*?\[\],.!\\-]{0,8}[/ *]{0,2}", 1..4),
            path in "[ab][ab.]{0,2}(/[ab-][ab.-]{0,2}){0,3}",
            is_folder in any::<bool>(),
        ) {
            let mut builder = GitignoreBuilder::new("");
            builder.allow_unclosed_class(false);
            let added = lines.iter().try_for_each(|line| builder.add_line(None, line).map(drop));
            let ours = Patterns::new(&lines);
            prop_assert_eq!(added.is_ok(), ours.is_ok());
            if added.is_ok() {
                let (theirs, ours) = (builder.build().unwrap(), ours.unwrap().unwrap());
                prop_assert_eq!(
                    ours.match_path(path.as_ref(), is_folder),
                    theirs.matched(&path, is_folder).is_ignore()
                );
                prop_assert_eq!(
                    ours.match_path_or_parents(path.as_ref(), is_folder),
                    theirs.matched_path_or_any_parents(&path, is_folder).is_ignore()
                );
            }
        }
    }

    #[test]
    fn braces_mean_themselves() {
        let matches = |pattern: &str, path: &str| {
            let patterns = Patterns::new(&[pattern.to_string()]).unwrap().unwrap();
            patterns.match_path(path.as_ref(), false)
        };
        for pattern in ["a{b,c}", r"a\{b,c}", "[a]{b,c[}]", "a{b,?}"] {
            assert!(matches(pattern, "a{b,c}"), "{pattern}");
            assert!(!matches(pattern, "ab") && !matches(pattern, "ac"), "{pattern}");
        }
        assert!(matches("{", "{") && matches("x}", "y/x}") && matches("[{]", "{"));
    }

    /// Names have any bytes: Latin-1, or half of a character.
    #[test]
    fn patterns_have_bytes_that_are_no_utf8() {
        let matches = |bytes: &[u8], path: &[u8]| {
            let patterns = Patterns::new(&[pattern(bytes)]).unwrap().unwrap();
            patterns.match_path(Path::new(OsStr::from_bytes(path)), false)
        };
        for byte in 0x80..=0xff_u8 {
            let name = [b'a', byte, b'b'];
            assert!(matches(&name, &name), "{byte:x}");
            assert!(matches(&[b"a", &[byte][..], b"*"].concat(), &name), "{byte:x}");
            assert!(!matches(&name, b"a\x7fb") && !matches(&name, "aéb".as_bytes()), "{byte:x}");
        }
        assert!(matches(b"\xff\xfe*.txt", b"\xff\xfe\x80.txt"));
        assert!(!matches(b"\xff\xfe*.txt", b"\xfe\xff\x80.txt"));
        // UTF-8 is left as it is, and so are the neighbours of the characters that stand for bytes.
        for name in ["é", "\u{10ff7f}", "\u{10fb80}", "\u{ff80}"] {
            assert_eq!(pattern(name.as_bytes()), name);
            assert!(matches(name.as_bytes(), name.as_bytes()), "{name:?}");
        }
    }

    #[test]
    fn patterns_that_are_too_long_together_are_refused() {
        let patterns: Vec<String> = (0..100).map(|_| "?*".repeat(500)).collect();
        let error = Patterns::new(&patterns).map(drop).expect_err("they are too long");
        assert!(error.to_string().contains("fewer or shorter"), "{error}");
    }
}
