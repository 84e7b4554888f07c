//! Compression of data on their way, where it makes them arrive sooner.

use std::time::{Duration, Instant};

use peer::ConnError;
use transfer::BLOCK;
use units::{Bytes, Rate};
use wire::files::{Ask, Compressed, Data, DataHeader, FileFrame};

use crate::blocking::run_in_place;
use zstd::bulk;

/// What is compressed on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// What arrives sooner by it, as measured again and again.
    #[default]
    Auto,
    /// Nothing.
    Off,
    /// All that becomes shorter.
    Always,
}

impl Compression {
    /// What a client asks its server for.
    pub(crate) fn asked(ask: Ask) -> Compression {
        match (ask.compress, ask.compress_all) {
            (_, true) => Compression::Always,
            (true, false) => Compression::Auto,
            (false, false) => Compression::Off,
        }
    }
}

/// The level of zstd, ...
const LEVEL: i32 = 3;
/// ... and that on paths that are faster than this.
const FAST_LEVEL: i32 = 1;
const FAST: Rate = Rate::mbit(300);
/// What becomes no shorter than this part is sent as it is.
const WORTH: f64 = 0.9;
/// So much is left out after a piece that is not worth it, and twice as much after each further
/// one, ...
const FIRST_PAUSE: u64 = 4 * BLOCK;
/// ... up to this: data change, and so do paths.
const LONGEST_PAUSE: u64 = 256 * BLOCK;
/// So much is compressed on a path of which nothing is known yet: on a slow one it takes until its
/// rate is.
const UNKNOWN: u64 = 2 * BLOCK;
/// The time that compression may take, as a part of the time that it saves on the path: others use
/// the processor too, and the other side decompresses.
const COST: f64 = 0.5;
/// A path that seems to be faster than [`FAST`] is looked at without compression: what the
/// processor bounds says nothing of the path, and a path that seems slow is compressed the more.
/// That takes so long, ...
const LOOK: Duration = Duration::from_millis(120);
/// ... for the first time after this, and then after twice the time whenever compression was worth
/// it, ...
const FIRST_LOOK: Duration = Duration::from_millis(60);
/// ... up to this.
const LAST_LOOK: Duration = Duration::from_secs(8);
/// In this time the best rate of a path counts half.
const HALF_LIFE: Duration = Duration::from_secs(5);
/// How much of a newer piece goes into the ratio.
const GAIN: f64 = 0.2;

/// Compresses what goes over one connection.
pub(crate) struct Compressor {
    choice: Compression,
    zstd: Option<(i32, bulk::Compressor<'static>)>,
    out: Vec<u8>,
    /// Octets that are sent as they are before the next attempt, and how many were after the last
    /// one that was not worth it.
    left_out: u64,
    pause: u64,
    /// Octets that may be compressed before the rate of the path is known.
    unknown: u64,
    looks: Looks,
}

/// The best rate of a path, and when it is looked at without compression.
struct Looks {
    best: Rate,
    best_at: Option<Instant>,
    /// The begin of the present look, or of the next one.
    at: Option<Instant>,
    wait: Duration,
}

impl Looks {
    fn new() -> Looks {
        Looks { best: Rate::ZERO, best_at: None, at: None, wait: FIRST_LOOK }
    }

    /// The rate of the path, which was measured as `rate` now.
    fn handle_rate(&mut self, now: Instant, rate: Rate) -> Rate {
        let age = self.best_at.map_or(Duration::ZERO, |at| now.duration_since(at));
        let left = 0.5_f64.powf(age.as_secs_f64() / HALF_LIFE.as_secs_f64());
        self.best = rate.max(Rate::from_bits_f64(self.best.as_f64() * left));
        self.best_at = Some(now);
        self.best
    }

    /// Whether data is to be sent as it is now, to see what the path carries.
    fn is_looking(&mut self, now: Instant, rate: Rate) -> bool {
        if rate <= FAST {
            return false;
        }
        let at = *self.at.get_or_insert(now + self.wait);
        if now >= at + LOOK {
            // It was still worth it, or this would not be asked.
            self.wait = (2 * self.wait).min(LAST_LOOK);
            self.at = Some(now + self.wait);
        }
        now >= at && now < at + LOOK
    }
}

impl Compressor {
    pub(crate) fn new(choice: Compression) -> Compressor {
        let (zstd, out) = (None, Vec::new());
        let looks = Looks::new();
        Compressor { choice, zstd, out, left_out: 0, pause: FIRST_PAUSE, unknown: UNKNOWN, looks }
    }

    /// The data, compressed for a path of this rate; `None`, if they are to be sent as they are.
    pub(crate) fn compress(&mut self, data: &[u8], rate: Rate) -> Option<&[u8]> {
        let (len, began) = (data.len() as u64, Instant::now());
        let rate = self.looks.handle_rate(began, rate);
        let is_due = match self.choice {
            Compression::Off => false,
            Compression::Always => true,
            Compression::Auto => {
                let is_known = rate > Rate::ZERO;
                let is_due = self.left_out == 0 && (is_known || self.unknown > 0);
                self.left_out = self.left_out.saturating_sub(len);
                if !is_known {
                    self.unknown = self.unknown.saturating_sub(len);
                }
                is_due && !self.looks.is_looking(began, rate)
            }
        };
        if !is_due || self.try_compress(data, rate).is_none() {
            return None;
        }
        let (cost, sent) = (began.elapsed(), self.out.len() as u64);
        let is_worth = match self.choice {
            Compression::Always => sent < len,
            _ => is_worth((len, sent), cost, rate),
        };
        if is_worth {
            self.pause = FIRST_PAUSE;
        } else {
            self.left_out = self.pause;
            self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        }
        // What is compressed already is sent so.
        let is_shorter = is_short(len, sent) || (self.choice == Compression::Always && is_worth);
        is_shorter.then_some(&self.out)
    }

    fn try_compress(&mut self, data: &[u8], rate: Rate) -> Option<()> {
        let level = if rate > FAST { FAST_LEVEL } else { LEVEL };
        match &mut self.zstd {
            Some((own, zstd)) => {
                if *own != level {
                    zstd.set_compression_level(level).ok()?;
                    *own = level;
                }
            }
            none => *none = Some((level, bulk::Compressor::new(level).ok()?)),
        }
        let (_, zstd) = self.zstd.as_mut().expect("made above");
        // No longer than the data: what does not fit is not worth it.
        self.out.clear();
        self.out.reserve(data.len());
        if zstd.compress_to_buffer(data, &mut self.out).is_err() {
            self.out.resize(data.len(), 0);
        }
        Some(())
    }
}

/// Whether a path of this rate saves more time by so many octets in the place of those of the data
/// than compression has cost.
fn is_worth((len, sent): (u64, u64), cost: Duration, rate: Rate) -> bool {
    if !is_short(len, sent) {
        return false;
    }
    // A path that has carried nothing yet may be slow.
    if rate == Rate::ZERO {
        return true;
    }
    let saved = (Bytes(len - sent) / rate).as_secs_f64();
    cost.as_secs_f64() <= COST * saved
}

/// Whether so many octets of data are worth to be sent as so many.
fn is_short(len: u64, sent: u64) -> bool {
    Bytes(sent).as_f64() <= WORTH * Bytes(len).as_f64()
}

/// What a connection has carried, as data and as it was sent: the scheduler goes by data.
#[derive(Debug)]
pub(crate) struct Carried {
    data: u64,
    sent: u64,
    acked: Bytes,
    /// Octets of data for each that was sent, lately.
    ratio: f64,
}

impl Default for Carried {
    fn default() -> Carried {
        Carried { data: 0, sent: 0, acked: Bytes::ZERO, ratio: 1.0 }
    }
}

impl Carried {
    /// So much data was sent as so many octets.
    pub(crate) fn note(&mut self, data: Bytes, sent: Bytes) {
        self.data += data.0;
        self.sent += sent.0;
        self.ratio += GAIN * (data.as_f64() / sent.as_f64() - self.ratio);
    }

    /// The data of so many octets that were acknowledged or received since the begin; it grows.
    pub(crate) fn acked(&mut self, sent: Bytes) -> Bytes {
        let data = u128::from(sent.0) * u128::from(self.data.max(1));
        let data = u64::try_from(data / u128::from(self.sent.max(1))).unwrap_or(u64::MAX);
        self.acked = self.acked.max(Bytes(data));
        self.acked
    }

    /// The data of so many octets that are to be sent.
    pub(crate) fn data(&self, sent: Bytes) -> Bytes {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounded")]
        Bytes((sent.as_f64() * self.ratio) as u64)
    }

    /// The rate of data at this rate of what is sent.
    pub(crate) fn data_rate(&self, sent: Rate) -> Rate {
        Rate::from_bits_f64(sent.as_f64() * self.ratio)
    }

    /// The rate of what is sent at this rate of data.
    pub(crate) fn sent_rate(&self, data: Rate) -> Rate {
        Rate::from_bits_f64(data.as_f64() / self.ratio)
    }
}

/// Puts the header of the frame for data, which may be compressed, behind what `header` has.
/// Returns what is to follow it.
pub(crate) fn frame<'a>(
    position: u64,
    block_hash: Option<&[u8; 32]>,
    (data, compressed): (&'a [u8], Option<&'a [u8]>),
    header: &mut Vec<u8>,
) -> &'a [u8] {
    if let Some(payload) = compressed {
        let lengths = (data.len(), payload.len());
        DataHeader::emit_compressed(position, block_hash, lengths, header);
        return payload;
    }
    DataHeader::emit(position, block_hash, data.len(), header);
    data
}

/// Restores compressed data.
#[derive(Default)]
pub(crate) struct Decompressor(Option<bulk::Decompressor<'static>>);

impl Decompressor {
    /// The data of a frame, which has one of the two kinds, with the octets that were sent for it;
    /// `out` gets what was compressed.
    ///
    /// # Errors
    /// Those of [`Decompressor::restore`].
    pub(crate) fn data<'a>(
        &mut self,
        frame: &FileFrame<'a>,
        out: &'a mut Vec<u8>,
    ) -> Result<(Data<'a>, Bytes), ConnError> {
        match frame {
            FileFrame::Data(data) => Ok((data.clone(), Bytes(data.payload.len() as u64))),
            FileFrame::Compressed(compressed) => {
                run_in_place(|| self.restore(compressed, out))?;
                let Compressed { position, block_hash, payload, .. } = *compressed;
                let sent = Bytes(payload.len() as u64);
                Ok((Data { position, block_hash, payload: out }, sent))
            }
            other => Err(ConnError::unexpected(other)),
        }
    }

    /// Copies the data of a frame to `out`, and gives its position and the chaining value of the
    /// block that begins there.
    ///
    /// # Errors
    /// Those of [`Decompressor::restore`].
    pub(crate) fn copy_data(
        &mut self,
        frame: &FileFrame<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(u64, Option<[u8; 32]>), ConnError> {
        match frame {
            FileFrame::Data(Data { position, block_hash, payload }) => {
                out.clear();
                out.extend_from_slice(payload);
                Ok((*position, *block_hash))
            }
            FileFrame::Compressed(compressed) => {
                run_in_place(|| self.restore(compressed, out))?;
                Ok((compressed.position, compressed.block_hash))
            }
            other => Err(ConnError::unexpected(other)),
        }
    }

    /// Puts the data of a frame in the place of what `out` has. However much the other side claims,
    /// no more memory is used than the frame's length says, which has a bound.
    ///
    /// # Errors
    /// [`ConnError::Unexpected`], with what is wrong with what came; [`ConnError::Io`], if there is
    /// no memory.
    pub(crate) fn restore(
        &mut self,
        frame: &Compressed<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), ConnError> {
        let zstd = match &mut self.0 {
            Some(zstd) => zstd,
            none => none.insert(bulk::Decompressor::new()?),
        };
        let len = usize::try_from(frame.len).unwrap_or(usize::MAX);
        out.clear();
        out.reserve_exact(len);
        let wrong = |why: String| ConnError::Unexpected(format!("Compressed frame ({why})"));
        let restored = zstd.decompress_to_buffer(frame.payload, out);
        match restored.map_err(|error| wrong(error.to_string()))? {
            restored if restored == len => Ok(()),
            restored => Err(wrong(format!("{restored} bytes of data in the place of {len}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: Rate = Rate::mbit(10);

    fn text(len: usize) -> Vec<u8> {
        let words = ["river ", "of ", "many ", "channels ", "that ", "part ", "and ", "meet\n"];
        let mut state = 1_u32;
        let mut text = Vec::new();
        while text.len() < len {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            text.extend_from_slice(words[(state >> 24) as usize % words.len()].as_bytes());
        }
        text.truncate(len);
        text
    }

    fn noise(len: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        };
        std::iter::repeat_with(next).take(len).collect()
    }

    #[test]
    fn what_is_compressed_comes_back() {
        let (data, mut out) = (text(100_000), vec![1, 2, 3]);
        let mut compressor = Compressor::new(Compression::Auto);
        let sent = compressor.compress(&data, SLOW).expect("text becomes shorter").to_vec();
        assert!(5 * sent.len() < 2 * data.len(), "{}", sent.len());
        let mut decompressor = Decompressor::default();
        let len = u32::try_from(data.len()).unwrap();
        let frame = |payload, len| Compressed { position: 0, block_hash: None, len, payload };
        decompressor.restore(&frame(&sent, len), &mut out).unwrap();
        assert_eq!(out, data);
        // Whatever the other side claims.
        for wrong in [len - 1, len + 1] {
            assert!(decompressor.restore(&frame(&sent, wrong), &mut out).is_err(), "{wrong}");
            assert!(out.capacity() <= data.len() + 1);
        }
        assert!(decompressor.restore(&frame(&sent[..sent.len() / 2], len), &mut out).is_err());
        assert!(decompressor.restore(&frame(b"nonsense", 262_144), &mut out).is_err());
        decompressor.restore(&frame(&sent, len), &mut out).unwrap();
        assert_eq!(out, data, "it works behind an error");
    }

    #[test]
    fn what_does_not_become_shorter_is_tried_seldom() {
        let mut compressor = Compressor::new(Compression::Auto);
        let noise = noise(usize::try_from(BLOCK).unwrap());
        let mut tried = 0;
        for _ in 0..1_024 {
            tried += u32::from(compressor.left_out == 0);
            assert_eq!(compressor.compress(&noise, SLOW), None);
        }
        assert!((5..=12).contains(&tried), "{tried}");
        // Data that change are noticed.
        let text = text(noise.len());
        let pieces = (0..300).find(|_| compressor.compress(&text, SLOW).is_some());
        assert!(pieces.is_some());
        assert!(compressor.compress(&text, SLOW).is_some(), "and then all of them are");
        let mut always = Compressor::new(Compression::Always);
        assert_eq!(always.compress(&noise, SLOW), None);
        assert!(always.compress(&text, SLOW).is_some());
        assert_eq!(Compressor::new(Compression::Off).compress(&text, SLOW), None);
    }

    #[test]
    fn of_a_path_that_may_be_fast_little_is_compressed() {
        let mut compressor = Compressor::new(Compression::Auto);
        let text = text(usize::try_from(BLOCK).unwrap());
        let compressed = (0..100).filter(|_| compressor.compress(&text, Rate::ZERO).is_some());
        assert_eq!(compressed.count(), 2);
        assert!(compressor.compress(&text, SLOW).is_some(), "it is slow");
    }

    #[test]
    fn a_path_that_seems_fast_is_looked_at_without_compression() {
        let mut looks = Looks::new();
        let began = Instant::now();
        let at = |millis: u64| began + Duration::from_millis(millis);
        assert!(!(0..1_000).any(|millis| looks.is_looking(at(millis), Rate::mbit(200))));
        // As the path seems to be while a processor compresses for it.
        let seen: Vec<u64> =
            (0..2_000).filter(|millis| looks.is_looking(at(*millis), Rate::mbit(900))).collect();
        assert_eq!((seen[0], seen[119], seen[120]), (60, 179, 300), "60 ms, then 120 ms later");
        assert!(seen.len() < 600, "{}", seen.len());
        // What was seen then counts, and less and less.
        let mut looks = Looks::new();
        assert_eq!(looks.handle_rate(at(0), Rate::mbit(8_000)), Rate::mbit(8_000));
        let later = looks.handle_rate(at(5_000), Rate::mbit(900));
        assert!((later.as_f64() / 4e9 - 1.0).abs() < 0.01, "{later}");
        assert_eq!(looks.handle_rate(at(60_000), Rate::mbit(900)), Rate::mbit(900));
    }

    #[test]
    fn the_scheduler_hears_of_data() {
        let mut carried = Carried::default();
        assert_eq!(carried.acked(Bytes(5_000)), Bytes(5_000), "nothing is known yet");
        for _ in 0..100 {
            carried.note(Bytes(3_000), Bytes(1_000));
        }
        assert_eq!(carried.acked(Bytes(50_000)), Bytes(150_000));
        assert_eq!(carried.acked(Bytes(40_000)), Bytes(150_000), "it grows");
        let near = |rate: Rate, mbit: f64| (rate.as_f64() / 1e6 - mbit).abs() < 0.01;
        assert!(near(carried.data_rate(Rate::mbit(10)), 30.0));
        assert!(near(carried.sent_rate(Rate::mbit(30)), 10.0));
        assert!(carried.data(Bytes(1_000)).0.abs_diff(3_000) <= 1);
        let plain = Carried::default();
        let odd = Rate::from_bits(123_456_789_123);
        assert_eq!((plain.data_rate(odd), plain.sent_rate(odd)), (odd, odd));
    }

    #[test]
    fn a_path_that_is_faster_than_compression_does_without() {
        let half = (262_144, 131_072);
        // A millisecond for half of a block: half of what it saves below 524 Mbit/s.
        let cost = Duration::from_millis(1);
        for (mbit, is_worth) in [(0, true), (10, true), (500, true), (550, false), (10_000, false)]
        {
            assert_eq!(super::is_worth(half, cost, Rate::mbit(mbit)), is_worth, "{mbit}");
        }
        assert!(!super::is_worth((262_144, 250_000), cost, SLOW), "it saves too little");
    }
}
