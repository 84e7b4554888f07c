//! Makes text from peers safe for a terminal.

use std::borrow::Cow;
use std::fmt::Write;

/// The most characters of long text that are shown of either end.
const SHOWN: usize = 300;

/// Escapes characters that move the cursor, change colours, reverse the writing direction or are
/// invisible as `\u{…}`. Of long text the middle is left out: the advice stands at the end, after a
/// path of any length.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    let length = text.chars().count();
    if length <= 2 * SHOWN && text.chars().all(harmless) {
        return Cow::Borrowed(text);
    }
    let left_out = if length > 2 * SHOWN { SHOWN..length - SHOWN } else { 0..0 };
    let mut out = String::new();
    for (n, c) in text.chars().enumerate() {
        if left_out.contains(&n) {
            if n == SHOWN {
                out.push('…');
            }
        } else if harmless(c) {
            out.push(c);
        } else {
            out.extend(c.escape_default());
        }
    }
    Cow::Owned(out)
}

/// As [`clean`], for lines of any length: their ends stay.
pub(crate) fn clean_lines(text: &str) -> Cow<'_, str> {
    let passes = |c: char| c == '\n' || harmless(c);
    if text.chars().all(passes) {
        return Cow::Borrowed(text);
    }
    let mut out = String::new();
    for c in text.chars() {
        if passes(c) { out.push(c) } else { out.extend(c.escape_default()) }
    }
    Cow::Owned(out)
}

/// Escapes the same characters in JSON, where they can only be parts of strings. A reader gets them
/// unchanged.
pub(crate) fn clean_json(text: &str) -> Cow<'_, str> {
    if text.chars().all(harmless) {
        return Cow::Borrowed(text);
    }
    let mut out = String::new();
    for c in text.chars() {
        if harmless(c) {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    Cow::Owned(out)
}

/// Removes the error numbers that the standard library appends to system errors: " (os error 111)".
pub(crate) fn without_error_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        out.push_str(part.split_once(')').map_or(part, |(_, rest)| rest));
    }
    out
}

fn harmless(c: char) -> bool {
    let hidden = matches!(
        c,
        '\u{00ad}' | '\u{061c}' | '\u{180e}' | '\u{feff}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    );
    !c.is_control() && !hidden
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_names_are_unchanged() {
        assert!(matches!(clean("Übersicht 2024 – 東京.pdf"), Cow::Borrowed(_)));
    }

    #[test]
    fn escape_sequences_are_escaped() {
        assert_eq!(clean("a\u{1b}[2Jb\r\n"), "a\\u{1b}[2Jb\\r\\n");
        assert_eq!(clean("gpj.\u{202e}exe"), "gpj.\\u{202e}exe");
        assert_eq!(clean("\u{9b}31m"), "\\u{9b}31m");
    }

    #[test]
    fn lines_stay_lines() {
        assert_eq!(clean_lines("a\nb\u{202e}\r\n"), "a\nb\\u{202e}\\r\n");
        assert!(matches!(clean_lines(&"x\n".repeat(1_000)), Cow::Borrowed(_)));
    }

    #[test]
    fn json_keeps_its_meaning() {
        let text = "a\u{1b}\u{9b}31m\u{202e}\u{e0041}ü";
        let json = serde_json::to_string(text).unwrap();
        let cleaned = clean_json(&json);
        assert_eq!(cleaned, r#""a\u001b\u009b31m\u202e\udb40\udc41ü""#);
        assert_eq!(serde_json::from_str::<String>(&cleaned).unwrap(), text);
    }

    #[test]
    fn error_numbers_are_removed() {
        assert_eq!(
            without_error_numbers("lo: refused (os error 111); wlan0: down (os error 100)"),
            "lo: refused; wlan0: down"
        );
        assert_eq!(without_error_numbers("nothing (of note)"), "nothing (of note)");
    }

    #[test]
    fn of_long_text_both_ends_are_shown() {
        let text = format!("cannot read {}: leave it out", "d/".repeat(2_000));
        let shown = clean(&text);
        assert!(shown.starts_with("cannot read d/d/") && shown.ends_with("d/: leave it out"));
        assert_eq!(shown.chars().count(), 2 * SHOWN + 1);
        let just = "x".repeat(2 * SHOWN);
        assert_eq!(clean(&just), just);
    }
}
