//! Records in a stream of octets.

use wire::feed::{Form, MAX_RECORD};

/// Takes a stream of octets apart.
///
/// Where it divides depends on the octets alone, and not on the pieces in which they come: a file
/// that is read once more has the same records.
#[derive(Debug)]
pub struct Splitter {
    form: Form,
    buffer: Vec<u8>,
    /// The octets of the buffer that were given out.
    start: usize,
    /// Those behind the start in which no end of a record is.
    searched: usize,
    consumed: u64,
    divided: u64,
}

/// Octets are no records.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FramingError {
    /// There is no length before a record.
    #[error("octet {0}: the length of a record and a space are expected, as in '5 hello'")]
    Length(u64),
    /// A record is longer than one may be.
    #[error("octet {0}: a record has at most {MAX_RECORD} octets")]
    TooLong(u64),
    /// The last record is cut short.
    #[error("octet {0}: the last record is cut short")]
    Truncated(u64),
}

/// The most digits of a length.
const DIGITS: usize = 6;

impl Splitter {
    /// At the begin of a stream.
    #[must_use]
    pub fn new(form: Form) -> Splitter {
        Splitter { form, buffer: Vec::new(), start: 0, searched: 0, consumed: 0, divided: 0 }
    }

    /// Adds what was read.
    pub fn push(&mut self, octets: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(octets);
    }

    /// The octets of the records that were given out, and of what is around them.
    #[must_use]
    pub fn consumed(&self) -> u64 {
        self.consumed
    }

    /// How often a record was longer than one may be, and was divided.
    #[must_use]
    pub fn divided(&self) -> u64 {
        self.divided
    }

    /// The next record that is complete.
    ///
    /// # Errors
    /// [`FramingError`]; nothing behind it is a record.
    pub fn next_record(&mut self) -> Result<Option<&[u8]>, FramingError> {
        let found = match self.form {
            Form::Lines => self.ended_by(b'\n'),
            Form::Nul => self.ended_by(0),
            Form::Counted => self.counted()?,
        };
        Ok(found.map(|(before, length, whole)| self.take(before, length, whole)))
    }

    /// The last record, of which the end is that of the stream.
    ///
    /// # Errors
    /// [`FramingError::Truncated`], where records have lengths.
    pub fn last_record(&mut self) -> Result<Option<&[u8]>, FramingError> {
        let rest = self.buffer.len() - self.start;
        match self.form {
            _ if rest == 0 => Ok(None),
            Form::Counted => Err(FramingError::Truncated(self.consumed)),
            Form::Lines | Form::Nul => Ok(Some(self.take(0, rest, rest))),
        }
    }

    /// Gives a record out: so many octets behind those before it, of so many in all.
    fn take(&mut self, before: usize, length: usize, whole: usize) -> &[u8] {
        let begin = self.start + before;
        self.start += whole;
        self.searched = 0;
        self.consumed += whole as u64;
        &self.buffer[begin..begin + length]
    }

    fn ended_by(&mut self, end: u8) -> Option<(usize, usize, usize)> {
        let rest = &self.buffer[self.start..];
        let most = rest.len().min(MAX_RECORD + 1);
        let unsearched = &rest[self.searched.min(most)..most];
        if let Some(at) = unsearched.iter().position(|octet| *octet == end) {
            let length = self.searched.min(most) + at;
            return Some((0, length, length + 1));
        }
        self.searched = most;
        (rest.len() > MAX_RECORD).then(|| {
            self.divided += 1;
            (0, MAX_RECORD, MAX_RECORD)
        })
    }

    fn counted(&self) -> Result<Option<(usize, usize, usize)>, FramingError> {
        let rest = &self.buffer[self.start..];
        let digits = rest.iter().take_while(|octet| octet.is_ascii_digit()).count();
        match rest.get(digits) {
            Some(b' ') if (1..=DIGITS).contains(&digits) => {}
            None if digits <= DIGITS => return Ok(None),
            _ => return Err(FramingError::Length(self.consumed)),
        }
        let number = rest[..digits].iter().fold(0, |n, digit| n * 10 + usize::from(digit - b'0'));
        if number > MAX_RECORD {
            return Err(FramingError::TooLong(self.consumed));
        }
        let whole = digits + 1 + number;
        Ok((rest.len() >= whole).then_some((digits + 1, number, whole)))
    }
}

/// Appends a record in a form that has it, as a [`Splitter`] reads it.
///
/// # Errors
/// If the record has the end of a record in it: [`Form::has`].
pub fn push_framed(out: &mut Vec<u8>, form: Form, record: &[u8]) -> Result<(), EndWithin> {
    if !form.has(record) {
        return Err(EndWithin);
    }
    match form {
        Form::Lines | Form::Nul => {
            out.extend_from_slice(record);
            out.push(if form == Form::Lines { b'\n' } else { 0 });
        }
        Form::Counted => {
            out.extend_from_slice(format!("{} ", record.len()).as_bytes());
            out.extend_from_slice(record);
        }
    }
    Ok(())
}

/// A record has the end of a record in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record has the end of a record in it")]
pub struct EndWithin;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All records of a stream that comes in pieces, and what ends it.
    fn split(form: Form, pieces: &[&[u8]]) -> (Vec<Vec<u8>>, Result<u64, FramingError>) {
        let mut splitter = Splitter::new(form);
        let mut records = Vec::new();
        for piece in pieces {
            splitter.push(piece);
            loop {
                match splitter.next_record() {
                    Ok(Some(record)) => records.push(record.to_vec()),
                    Ok(None) => break,
                    Err(error) => return (records, Err(error)),
                }
            }
        }
        let last = match splitter.last_record() {
            Ok(last) => last.map(<[u8]>::to_vec),
            Err(error) => return (records, Err(error)),
        };
        records.extend(last);
        (records, Ok(splitter.divided()))
    }

    fn texts(form: Form, text: &str) -> (Vec<String>, Result<u64, FramingError>) {
        let (records, ended) = split(form, &[text.as_bytes()]);
        (records.into_iter().map(|record| String::from_utf8(record).unwrap()).collect(), ended)
    }

    #[test]
    fn each_form_has_its_records() {
        let of = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        for (form, text, expected) in [
            (Form::Lines, "a\n\nb c\nlast", &["a", "", "b c", "last"][..]),
            (Form::Lines, "a\n", &["a"]),
            (Form::Lines, "", &[]),
            (Form::Nul, "a\nb\0\0c", &["a\nb", "", "c"]),
            (Form::Counted, "5 hello3 a\nb0 1 x", &["hello", "a\nb", "", "x"]),
        ] {
            assert_eq!(texts(form, text), (of(expected), Ok(0)), "{text:?}");
        }
    }

    #[test]
    fn what_has_no_length_is_an_error_that_names_the_place() {
        for (text, error) in [
            ("hello", FramingError::Length(0)),
            ("5 hello\n5 hello", FramingError::Length(7)),
            ("5 hello1234567 x", FramingError::Length(7)),
            ("999999 x", FramingError::TooLong(0)),
            ("5 hell", FramingError::Truncated(0)),
            ("5", FramingError::Truncated(0)),
        ] {
            assert_eq!(texts(Form::Counted, text).1, Err(error), "{text}");
        }
    }

    #[test]
    fn a_record_that_is_too_long_is_divided_at_the_same_place_each_time() {
        let long = vec![b'x'; 2 * MAX_RECORD + 5];
        let exact = vec![b'y'; MAX_RECORD];
        let stream = [&long[..], b"\n", &exact, b"\nshort\n"].concat();
        let whole = split(Form::Lines, &[&stream]);
        let lengths: Vec<usize> = whole.0.iter().map(Vec::len).collect();
        assert_eq!(lengths, [MAX_RECORD, MAX_RECORD, 5, MAX_RECORD, 5]);
        assert_eq!(whole.1, Ok(2));
        let pieces: Vec<&[u8]> = stream.chunks(1_001).collect();
        assert_eq!(split(Form::Lines, &pieces), whole);
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter_and_what_was_written_is_read(
            form in prop::sample::select(vec![Form::Lines, Form::Nul, Form::Counted]),
            records in prop::collection::vec(prop::collection::vec(0u8..4, 0..9), 0..20),
            piece in 1usize..7,
        ) {
            let records: Vec<Vec<u8>> = records
                .into_iter()
                .map(|record| record.into_iter().map(|at| b"a1 \t"[usize::from(at)]).collect())
                .collect();
            let mut stream = Vec::new();
            for record in &records {
                push_framed(&mut stream, form, record).unwrap();
            }
            let pieces: Vec<&[u8]> = stream.chunks(piece).collect();
            prop_assert_eq!(split(form, &pieces), (records, Ok(0)));
        }

        #[test]
        fn any_octets_are_records_or_an_error(
            form in prop::sample::select(vec![Form::Lines, Form::Nul, Form::Counted]),
            stream in prop::collection::vec(any::<u8>(), 0..200),
            piece in 1usize..50,
        ) {
            let pieces: Vec<&[u8]> = stream.chunks(piece).collect();
            prop_assert_eq!(split(form, &pieces), split(form, &[&stream]));
        }
    }
}
