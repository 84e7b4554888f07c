//! What each part of a transfer costs by itself: processor time for each byte, as a line of JSON.
//!
//! ```text
//! parts read FILE            from the page cache into a buffer of one block
//! parts hash BYTES           BLAKE3, block by block
//! parts seal BYTES           AES-128-GCM over TLS records of 16 KiB
//! parts open BYTES
//! parts write FILE BYTES     a block at a time into a new file, which is removed again
//! parts tcp-recv ADDR        one connection, read and forgotten
//! parts tcp-send ADDR BYTES  one connection
//! ```

use std::env;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::Instant;

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use transfer::BLOCK;
use transfer::digest::block_cv;

/// The largest plaintext of a TLS record (RFC 8446, 5.1).
const RECORD: usize = 16_384;
/// What the sockets are read and written by.
const CHUNK: usize = 256 * 1024;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let measured = match words[..] {
        ["read", file] => read(file),
        ["hash", bytes] => count(bytes).and_then(hash),
        ["seal", bytes] => count(bytes).and_then(seal),
        ["open", bytes] => count(bytes).and_then(open),
        ["write", file, bytes] => count(bytes).and_then(|bytes| write(file, bytes)),
        ["tcp-recv", address] => tcp_recv(address),
        ["tcp-send", address, bytes] => count(bytes).and_then(|bytes| tcp_send(address, bytes)),
        _ => Err(io::Error::other(
            "usage: parts read|hash|seal|open|write|tcp-recv|tcp-send …, as its source says",
        )),
    };
    match measured {
        Ok(Cost { bytes, cpu, wall }) => {
            println!(
                "{{\"part\": \"{}\", \"bytes\": {bytes}, \"cpu_s\": {cpu}, \"wall_s\": {wall}}}",
                words[0]
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("parts: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What some bytes took, in seconds.
struct Cost {
    bytes: u64,
    cpu: f64,
    wall: f64,
}

/// Runs from its making to [`Meter::stop`].
struct Meter {
    cpu: f64,
    wall: Instant,
}

impl Meter {
    fn start() -> io::Result<Meter> {
        Ok(Meter { cpu: processor_seconds()?, wall: Instant::now() })
    }

    fn stop(self, bytes: u64) -> io::Result<Cost> {
        Ok(Cost {
            bytes,
            cpu: processor_seconds()? - self.cpu,
            wall: self.wall.elapsed().as_secs_f64(),
        })
    }
}

/// The processor time of this process's only thread, softirqs that ran on its time included. The
/// kernel brings it up to date at each tick, so that it is off by some milliseconds.
fn processor_seconds() -> io::Result<f64> {
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanos: f64 = text
        .split_whitespace()
        .next()
        .and_then(|word| word.parse().ok())
        .ok_or(io::ErrorKind::InvalidData)?;
    Ok(nanos / 1e9)
}

fn count(word: &str) -> io::Result<u64> {
    word.parse().map_err(|_| io::Error::other(format!("{word} is no number of bytes")))
}

fn block() -> Vec<u8> {
    (0..BLOCK).map(|i| (i * 31 % 251).to_le_bytes()[0]).collect()
}

fn read(file: &str) -> io::Result<Cost> {
    let mut file = File::open(file)?;
    let mut buffer = block();
    let mut bytes = 0;
    let meter = Meter::start()?;
    loop {
        let got = file.read(&mut buffer)?;
        if got == 0 {
            return meter.stop(bytes);
        }
        bytes += got as u64;
        black_box(&buffer);
    }
}

fn hash(bytes: u64) -> io::Result<Cost> {
    let data = block();
    let blocks = bytes.div_ceil(BLOCK).max(2);
    let meter = Meter::start()?;
    for index in 0..blocks {
        black_box(block_cv(blocks * BLOCK, index * BLOCK, black_box(&data)));
    }
    meter.stop(blocks * BLOCK)
}

fn key() -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &[7; 16]).expect("a key of 16 bytes"))
}

/// The nonce of a record, by its number.
fn nonce(record: u64) -> Nonce {
    let mut octets = [0; 12];
    octets[4..].copy_from_slice(&record.to_be_bytes());
    Nonce::assume_unique_for_key(octets)
}

/// The header of a full record is what TLS authenticates besides.
const HEADER: [u8; 5] = [23, 3, 3, 0x40, 0x11];

fn records(bytes: u64) -> u64 {
    bytes.div_ceil(RECORD as u64)
}

/// In place, so that nothing is copied besides.
fn seal(bytes: u64) -> io::Result<Cost> {
    let key = key();
    let mut record = block()[..RECORD].to_vec();
    let meter = Meter::start()?;
    for number in 0..records(bytes) {
        let sealed = key.seal_in_place_separate_tag(nonce(number), Aad::from(HEADER), &mut record);
        let _ = black_box(sealed.expect("a record can be sealed"));
    }
    meter.stop(records(bytes) * RECORD as u64)
}

/// From one buffer into another, so that the same record can be opened again and again.
fn open(bytes: u64) -> io::Result<Cost> {
    let key = key();
    let mut sealed = block()[..RECORD].to_vec();
    let tag = key.seal_in_place_separate_tag(nonce(0), Aad::from(HEADER), &mut sealed);
    let tag = tag.expect("a record can be sealed");
    let mut plain = vec![0; RECORD];
    let meter = Meter::start()?;
    for _ in 0..records(bytes) {
        let sealed = black_box(&sealed);
        let opened =
            key.open_separate_gather(nonce(0), Aad::from(HEADER), sealed, tag.as_ref(), &mut plain);
        opened.expect("it was sealed with this key");
        black_box(&plain);
    }
    meter.stop(records(bytes) * RECORD as u64)
}

fn write(path: &str, bytes: u64) -> io::Result<Cost> {
    let data = block();
    let mut file = File::create_new(path)?;
    let mut left = bytes;
    let meter = Meter::start()?;
    while left > 0 {
        let next = usize::try_from(left.min(BLOCK)).map_err(io::Error::other)?;
        file.write_all(&data[..next])?;
        left -= next as u64;
    }
    let cost = meter.stop(bytes);
    fs::remove_file(path)?;
    cost
}

fn tcp_recv(address: &str) -> io::Result<Cost> {
    let (mut stream, _) = TcpListener::bind(address)?.accept()?;
    let mut buffer = vec![0; CHUNK];
    let mut bytes = 0;
    let meter = Meter::start()?;
    loop {
        let got = stream.read(&mut buffer)?;
        if got == 0 {
            return meter.stop(bytes);
        }
        bytes += got as u64;
    }
}

fn tcp_send(address: &str, bytes: u64) -> io::Result<Cost> {
    let mut stream = TcpStream::connect(address)?;
    let buffer = vec![7; CHUNK];
    let mut left = bytes;
    let meter = Meter::start()?;
    while left > 0 {
        let next = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        stream.write_all(&buffer[..next])?;
        left -= next as u64;
    }
    let cost = meter.stop(bytes);
    drop(stream);
    cost
}
