//! The names of files.

use wire::feed::{Form, StreamId};

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// What the names of a stream's files begin with.
pub(crate) fn prefix(stream: StreamId) -> String {
    let hex =
        |octet: &u8| [octet >> 4, octet & 15].map(|digit| char::from(DIGITS[usize::from(digit)]));
    stream.0.iter().flat_map(hex).collect()
}

/// The name of the file that begins with that record.
pub(super) fn file_name(stream: StreamId, first: u64, form: Form) -> String {
    format!("{}-{first:020}.{}", prefix(stream), extension(form))
}

/// The name of a form in that of a file.
pub(super) fn extension(form: Form) -> &'static str {
    match form {
        Form::Lines => "log",
        Form::Nul => "nul",
        Form::Counted => "counted",
    }
}

/// The stream, the number of the first record, and the form, in the name of a file.
pub(crate) fn parse_name(name: &str) -> Option<(StreamId, u64, Form)> {
    let (stream, rest) = name.split_once('-')?;
    let digits = stream.as_bytes().chunks_exact(2).map(|pair| {
        let digit = |octet: u8| DIGITS.iter().position(|digit| *digit == octet);
        u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()
    });
    let octets: Vec<u8> = digits.collect::<Option<_>>()?;
    let stream_id = StreamId(octets.try_into().ok().filter(|_| stream.len() == 32)?);
    let (first, extension_of) = rest.split_once('.')?;
    let forms = [Form::Lines, Form::Nul, Form::Counted];
    let form = forms.into_iter().find(|form| extension(*form) == extension_of)?;
    Some((stream_id, first.parse().ok()?, form))
}

/// The number of the first record, and the form, in the name of a file of that stream.
pub(super) fn numbered(name: &str, stream: StreamId) -> Option<(u64, Form)> {
    parse_name(name).filter(|(of, ..)| *of == stream).map(|(_, first, form)| (first, form))
}
