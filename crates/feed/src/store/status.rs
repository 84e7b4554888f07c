//! What a collector's folder has, stream by stream, whoever writes to it at present.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::Path;
use std::time::SystemTime;

use units::Bytes;
use wire::feed::{Form, StreamId};

use super::files::listed;
use super::names::{parse_name, prefix};
use crate::framing::Splitter;

/// What is kept of one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamStatus {
    /// The folder of its host.
    pub host: String,
    /// The feed.
    pub feed: String,
    /// The name of the stream, in the names of its files.
    pub stream: String,
    /// Where its source reads it, as the source said; empty, if the folder's list does not say.
    pub from: String,
    /// How its records are told apart.
    pub form: Form,
    /// The number of files, and of their octets.
    pub files: usize,
    /// See `files`.
    pub size: Bytes,
    /// The number of the first record that is there, and that behind the last whole one. Some
    /// between them may be gone, or be at another collector.
    pub first: u64,
    /// See `first`.
    pub next: u64,
    /// When something was written last.
    pub written: SystemTime,
}

/// A file of a stream, as its name says.
struct KeptFile {
    first: u64,
    form: Form,
    name: String,
}

/// The streams of a collector's folder, by hosts and feeds. Reads the last file of each.
///
/// # Errors
/// The system's, for the folder itself and for files of streams.
pub fn status(folder: &Path) -> io::Result<Vec<StreamStatus>> {
    let mut all = Vec::new();
    for host in folders(folder)? {
        for feed in folders(&folder.join(&host))? {
            of_feed(folder, (&host, &feed), &mut all)?;
        }
    }
    Ok(all)
}

/// The folders in a folder, by their names; others than those of text are none of a collector.
fn folders(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir()
            && let Ok(name) = entry.file_name().into_string()
        {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn of_feed(
    folder: &Path,
    (host, feed): (&str, &str),
    all: &mut Vec<StreamStatus>,
) -> io::Result<()> {
    let folder = folder.join(host).join(feed);
    let mut streams: BTreeMap<StreamId, Vec<KeptFile>> = BTreeMap::new();
    for entry in fs::read_dir(&folder)? {
        let Ok(name) = entry?.file_name().into_string() else { continue };
        let Some((stream, first, form)) = parse_name(&name) else { continue };
        streams.entry(stream).or_default().push(KeptFile { first, form, name });
    }
    for (stream, mut parts) in streams {
        parts.sort_by_key(|part| part.first);
        let (mut size, mut written) = (Bytes::ZERO, SystemTime::UNIX_EPOCH);
        for part in &parts {
            // One may be moved away meanwhile.
            let metadata = match fs::metadata(folder.join(&part.name)) {
                Ok(metadata) => metadata,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            size += Bytes(metadata.len());
            written = written.max(metadata.modified()?);
        }
        let (first, last) = (parts[0].first, &parts[parts.len() - 1]);
        all.push(StreamStatus {
            host: host.to_string(),
            feed: feed.to_string(),
            stream: prefix(stream),
            from: listed(&folder, stream)?.map_or_else(String::new, |(_, from)| from),
            form: last.form,
            files: parts.len(),
            size,
            first,
            next: last.first + records(&folder.join(&last.name), last.form)?,
            written,
        });
    }
    Ok(())
}

/// The whole records of a file.
fn records(path: &Path, form: Form) -> io::Result<u64> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let (mut splitter, mut buffer) = (Splitter::new(form), vec![0; 256 << 10]);
    let mut count = 0;
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(count),
            Ok(length) => splitter.push(&buffer[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        loop {
            match splitter.next_record() {
                Ok(Some(_)) => count += 1,
                Ok(None) => break,
                // What is no record is cut off when the stream goes on.
                Err(_) => return Ok(count),
            }
        }
    }
}
