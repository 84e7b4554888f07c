//! Texts in a number of columns of a terminal.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

/// Columns that a text takes. Terminals disagree about some sequences; this is the most.
pub(super) fn width(text: &str) -> usize {
    text.chars().map(columns).sum::<usize>().max(text.width())
}

fn columns(c: char) -> usize {
    c.width().unwrap_or(0)
}

/// The text in at most `most` columns; of a longer one the middle is left out.
pub(super) fn shortened(text: &str, most: usize) -> String {
    if width(text) <= most {
        return text.to_string();
    }
    let Some(kept) = most.checked_sub(1) else { return String::new() };
    let take = |chars: &mut dyn Iterator<Item = char>, most: usize| {
        let mut taken = String::new();
        for c in chars {
            let longer = format!("{taken}{c}");
            if width(&longer) > most {
                break;
            }
            taken = longer;
        }
        taken
    };
    let head = take(&mut text.chars(), kept.div_ceil(2));
    let tail = take(&mut text.chars().rev(), kept - width(&head));
    // A mark that belongs to a character of the middle would join the ellipsis.
    let tail: String = tail.chars().rev().skip_while(|c| columns(*c) == 0).collect();
    format!("{head}…{tail}")
}

/// The text in lines of at most `most` columns, which are broken between words. A word that is
/// longer stays whole: people copy names and addresses.
pub(super) fn wrapped(text: &str, most: usize) -> String {
    let mut lines = Vec::new();
    for line in text.split('\n') {
        if width(line) <= most {
            lines.push(line.to_string());
            continue;
        }
        let mut broken = String::new();
        for word in line.split(' ') {
            if !broken.is_empty() && width(&broken) + 1 + width(word) > most {
                lines.push(std::mem::take(&mut broken));
            } else if !broken.is_empty() {
                broken.push(' ');
            }
            broken.push_str(word);
        }
        lines.push(broken);
    }
    lines.join("\n")
}

/// The text in exactly `columns` columns, at their left.
pub(super) fn left(text: &str, columns: usize) -> String {
    let text = shortened(text, columns);
    let blank = columns - width(&text);
    format!("{text}{}", " ".repeat(blank))
}

/// The text in at least `columns` columns, at their right.
pub(super) fn right(text: &str, columns: usize) -> String {
    format!("{}{text}", " ".repeat(columns.saturating_sub(width(text))))
}

/// A bar of `columns` columns with `share` of them filled.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a few columns"
)]
pub(super) fn bar(share: f64, columns: usize) -> String {
    let share = if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) };
    let full = ((share * columns as f64).round() as usize).min(columns);
    format!("{}{}", "━".repeat(full), "─".repeat(columns - full))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_keep_both_ends() {
        assert_eq!(shortened("photos/2024/holiday.jpg", 12), "photos…y.jpg");
        assert_eq!(shortened("short", 12), "short");
        assert_eq!(shortened("abc", 1), "…");
        assert_eq!(shortened("abc", 0), "");
        assert_eq!(left("ab", 4), "ab  ");
        assert_eq!(right("ab", 4), "  ab");
    }

    #[test]
    fn sentences_are_broken_between_words() {
        assert_eq!(wrapped("one two three", 8), "one two\nthree");
        assert_eq!(wrapped("one two three", 7), "one two\nthree");
        assert_eq!(wrapped("one two\nthree", 20), "one two\nthree");
        assert_eq!(wrapped("a verylongword b", 6), "a\nverylongword\nb");
        assert_eq!(wrapped("写真 写真", 5), "写真\n写真");
        assert_eq!(wrapped("", 5), "");
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let name = "写真/2024年の夏休み/東京タワー.jpg";
        for most in 0..=width(name) {
            let cut = shortened(name, most);
            assert!(width(&cut) <= most, "{cut} in {most}");
            assert_eq!(width(&left(name, most)), most);
        }
        assert_eq!(shortened(name, 12), "写真/2….jpg");
    }

    #[test]
    fn marks_stay_with_their_characters() {
        let name = "e\u{301}".repeat(20);
        let cut = shortened(&name, 9);
        assert!(width(&cut) <= 9);
        assert!(!cut.contains("…\u{301}"), "{cut}");
    }
}
