//! A stream as the program and the driver share it: the bytes of both directions.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use crate::connection::inbox::{Command, Inbox, Key};
use crate::store::Store;
use crate::{ConnectionError, DROPPED, StreamError};

/// Both halves of one stream.
pub(crate) struct StreamCell {
    pub(crate) id: u32,
    key: Key,
    inbox: Arc<Inbox>,
    /// Whether the driver has yet to look at what the program did.
    is_touched: AtomicBool,
    /// The memory of all streams of the connection.
    memory: Arc<StreamMemory>,
    sending: Mutex<Sending>,
    receiving: Mutex<Receiving>,
}

/// A stream for a program that asked for one and has not taken it. If nobody does, because the
/// program has gone meanwhile, both halves end.
pub(crate) struct Untaken(Option<Arc<StreamCell>>);

impl Untaken {
    pub(crate) fn new(cell: Arc<StreamCell>) -> Untaken {
        Untaken(Some(cell))
    }

    /// The stream, for the program.
    pub(crate) fn take(mut self) -> Arc<StreamCell> {
        self.0.take().expect("it is taken once")
    }
}

impl Drop for Untaken {
    fn drop(&mut self) {
        if let Some(cell) = &self.0 {
            cell.reset(DROPPED);
            cell.stop(DROPPED);
        }
    }
}

/// What the streams of a connection hold together, in allocated bytes, and what they may.
#[derive(Debug, Default)]
pub(crate) struct StreamMemory {
    /// Unsent bytes of a stream above which its writer waits.
    pub(crate) most_unsent: AtomicU64,
    pub(crate) receiving: Arc<AtomicU64>,
    pub(crate) sending: Arc<AtomicU64>,
    /// What may be held of what is sent; beyond it writers wait.
    pub(crate) most_sending: AtomicU64,
    /// Whether a writer has found no room for that reason since the driver looked.
    pub(crate) is_short: AtomicBool,
}

/// What a writer may always have waiting in a stream that holds nothing.
const LEAST_SENDING: u64 = 1 << 10;

/// The half towards the peer.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    store: Store,
    /// What the program wrote, and what the driver knows of it.
    written: u64,
    told: u64,
    /// The first offset that was never sent.
    sent: u64,
    /// The offset before which the peer has everything.
    delivered: u64,
    is_finished: bool,
    is_finish_told: bool,
    /// The code of a reset that the driver has yet to pass on.
    reset: Option<u32>,
    /// Whether the peer has everything, the end included.
    is_delivered: bool,
    /// Why nothing can be written any more.
    error: Option<StreamError>,
    writer: Option<Waker>,
    /// Waits for `is_delivered`.
    waiter: Option<Waker>,
}

/// The half from the peer.
#[derive(Debug, Default)]
pub(crate) struct Receiving {
    store: Store,
    read: u64,
    /// What the driver knows to be read.
    told: u64,
    /// The offset before which everything has arrived.
    readable: u64,
    /// The end of the stream, once it is readable.
    end: Option<u64>,
    error: Option<StreamError>,
    /// The code by which the program said that it reads no further, until the driver knows.
    stop: Option<u32>,
    is_stopped: bool,
    reader: Option<Waker>,
}

/// What a program did with the sending half since the driver looked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) bytes: u64,
    pub(crate) is_finished: bool,
    pub(crate) reset: Option<u32>,
}

/// The same of the receiving half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) bytes: u64,
    pub(crate) stop: Option<u32>,
    /// Whether the end was reached, and everything before it was read.
    pub(crate) is_whole: bool,
}

impl StreamCell {
    pub(crate) fn new(
        id: u32,
        key: Key,
        inbox: Arc<Inbox>,
        memory: Arc<StreamMemory>,
    ) -> StreamCell {
        let sending = Sending { store: Store::counted(&memory.sending), ..Sending::default() };
        let receiving =
            Receiving { store: Store::counted(&memory.receiving), ..Receiving::default() };
        StreamCell {
            id,
            key,
            inbox,
            is_touched: AtomicBool::new(false),
            memory,
            sending: Mutex::new(sending),
            receiving: Mutex::new(receiving),
        }
    }

    fn most_unsent(&self) -> u64 {
        self.memory.most_unsent.load(Ordering::Relaxed)
    }

    /// What may be written.
    fn room(&self, sending: &Sending) -> u64 {
        let room = self.most_unsent().saturating_sub(sending.written - sending.sent);
        let most = self.memory.most_sending.load(Ordering::Relaxed);
        let left = most.saturating_sub(self.memory.sending.load(Ordering::Relaxed));
        let least = if sending.store.held() == 0 { LEAST_SENDING } else { 0 };
        room.min(left.max(least))
    }

    /// A writer waits, and the driver learns of it if it is for want of memory.
    fn wait(&self, mut sending: MutexGuard<'_, Sending>, waker: &Waker) {
        sending.writer = Some(waker.clone());
        let is_short = sending.written - sending.sent < self.most_unsent();
        drop(sending);
        if is_short {
            self.memory.is_short.store(true, Ordering::Release);
            self.touch();
        }
    }

    /// There may be room again.
    pub(crate) fn wake_writer(&self) {
        let writer = self.sending().writer.take();
        writer.into_iter().for_each(Waker::wake);
    }

    fn sending(&self) -> MutexGuard<'_, Sending> {
        self.sending.lock().expect("no panic while held")
    }

    fn receiving(&self) -> MutexGuard<'_, Receiving> {
        self.receiving.lock().expect("no panic while held")
    }

    /// Makes the driver look at the stream.
    fn touch(&self) {
        if !self.is_touched.swap(true, Ordering::AcqRel) {
            self.inbox.push(Command::Touched { key: self.key, stream: self.id });
        }
    }

    // The program's side.

    /// Takes as many bytes as there is room for.
    pub(crate) fn poll_write(
        &self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, StreamError>> {
        let mut sending = self.sending();
        if let Some(error) = &sending.error {
            return Poll::Ready(Err(error.clone()));
        }
        if sending.is_finished {
            return Poll::Ready(Err(StreamError::Ended));
        }
        let room = self.room(&sending);
        let len = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        if len == 0 && !bytes.is_empty() {
            self.wait(sending, cx.waker());
            return Poll::Pending;
        }
        let at = sending.written;
        sending.store.write(at, &bytes[..len]);
        sending.written += len as u64;
        drop(sending);
        self.touch();
        Poll::Ready(Ok(len))
    }

    /// Waits until there is room, without writing.
    pub(crate) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        let sending = self.sending();
        if self.room(&sending) > 0 || sending.error.is_some() || sending.is_finished {
            return Poll::Ready(());
        }
        self.wait(sending, cx.waker());
        Poll::Pending
    }

    /// Ends the sending half: the peer reads the end behind what was written.
    pub(crate) fn finish(&self) -> Result<(), StreamError> {
        let mut sending = self.sending();
        match &sending.error {
            Some(error) if !sending.is_finished => return Err(error.clone()),
            _ => sending.is_finished = true,
        }
        drop(sending);
        self.touch();
        Ok(())
    }

    /// Gives the sending half up: what is not delivered yet is not sent again.
    pub(crate) fn reset(&self, code: u32) {
        let mut sending = self.sending();
        if sending.is_delivered || sending.error.is_some() {
            return;
        }
        sending.reset = Some(code);
        // The driver may yet send what was written: it frees the bytes.
        let wakers = sending.fail(StreamError::Ended);
        drop(sending);
        wakers.into_iter().flatten().for_each(Waker::wake);
        self.touch();
    }

    /// Whether the half was ended by the program.
    pub(crate) fn is_finished(&self) -> bool {
        self.sending().is_finished
    }

    /// Waits until the peer has everything, the end included.
    pub(crate) fn poll_delivered(&self, cx: &mut Context<'_>) -> Poll<Result<(), StreamError>> {
        let mut sending = self.sending();
        if sending.is_delivered {
            return Poll::Ready(Ok(()));
        }
        if let Some(error) = &sending.error {
            return Poll::Ready(Err(error.clone()));
        }
        sending.waiter = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Bytes written and not sent.
    pub(crate) fn unsent(&self) -> u64 {
        let sending = self.sending();
        sending.written - sending.sent
    }

    /// Bytes that the peer has acknowledged.
    pub(crate) fn delivered(&self) -> u64 {
        self.sending().delivered
    }

    /// Reads what has arrived through `take`, which is given bytes and says how many it took.
    /// Zero: the end.
    pub(crate) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        most: usize,
        mut take: impl FnMut(&[u8]) -> usize,
    ) -> Poll<Result<usize, StreamError>> {
        let mut receiving = self.receiving();
        let mut taken = 0;
        while taken < most && receiving.read < receiving.readable {
            let left = usize::try_from(receiving.readable - receiving.read).unwrap_or(usize::MAX);
            let bytes = receiving.store.read(receiving.read, left.min(most - taken));
            let len = take(bytes);
            receiving.read += len as u64;
            taken += len;
            if len == 0 {
                break;
            }
        }
        if taken > 0 {
            receiving.free();
            drop(receiving);
            self.touch();
            return Poll::Ready(Ok(taken));
        }
        if receiving.end == Some(receiving.read) || most == 0 {
            return Poll::Ready(Ok(0));
        }
        if let Some(error) = &receiving.error {
            return Poll::Ready(Err(error.clone()));
        }
        receiving.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Waits until a read returns at once.
    pub(crate) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut receiving = self.receiving();
        let has_data = receiving.read < receiving.readable;
        if has_data || receiving.end == Some(receiving.read) || receiving.error.is_some() {
            return Poll::Ready(());
        }
        receiving.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The program reads no further.
    pub(crate) fn stop(&self, code: u32) {
        let mut receiving = self.receiving();
        if receiving.is_stopped {
            return;
        }
        receiving.is_stopped = true;
        if receiving.end != Some(receiving.read) && receiving.error.is_none() {
            receiving.stop = Some(code);
        }
        // The rest counts as read, so that it holds nobody up.
        receiving.read = receiving.readable;
        receiving.free();
        drop(receiving);
        self.touch();
    }

    // The driver's side.

    /// The driver looks at what the program did.
    pub(crate) fn take_touch(&self) -> (Written, Read) {
        self.is_touched.store(false, Ordering::Release);
        let mut sending = self.sending();
        let mut written = Written { bytes: sending.written - sending.told, ..Written::default() };
        sending.told = sending.written;
        if sending.is_finished && !sending.is_finish_told {
            (sending.is_finish_told, written.is_finished) = (true, true);
        }
        written.reset = sending.reset.take();
        drop(sending);
        let mut receiving = self.receiving();
        let read = Read {
            bytes: receiving.read - receiving.told,
            stop: receiving.stop.take(),
            is_whole: receiving.end == Some(receiving.read),
        };
        receiving.told = receiving.read;
        (written, read)
    }

    /// Appends bytes for a packet. Whether they are still there.
    pub(crate) fn copy(&self, offset: u64, len: usize, into: &mut Vec<u8>) -> bool {
        let mut sending = self.sending();
        let is_whole = sending.store.copy(offset, len, into);
        sending.sent = sending.sent.max(offset + len as u64);
        let unsent = sending.written - sending.sent;
        // A writer that is woken for each packet would write a packet at a time.
        if unsent <= self.most_unsent() / 2
            && let Some(writer) = sending.writer.take()
        {
            drop(sending);
            writer.wake();
        }
        is_whole
    }

    /// The peer has all but the last `undelivered` of the bytes that the driver knows.
    pub(crate) fn handle_undelivered(&self, undelivered: u64) {
        let mut sending = self.sending();
        let delivered = sending.told.saturating_sub(undelivered);
        if delivered > sending.delivered {
            sending.delivered = delivered;
            sending.store.free(delivered, false);
            // It may write a little whatever the others hold.
            if sending.store.held() == 0
                && let Some(writer) = sending.writer.take()
            {
                drop(sending);
                writer.wake();
            }
        }
    }

    /// The peer has everything, the end included.
    pub(crate) fn handle_delivered(&self) {
        let mut sending = self.sending();
        sending.is_delivered = true;
        sending.delivered = sending.written;
        let end = sending.written;
        sending.store.free(end, true);
        let wakers = [sending.waiter.take(), sending.writer.take()];
        drop(sending);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    /// Nothing more is sent.
    pub(crate) fn fail_sending(&self, error: StreamError) {
        let mut sending = self.sending();
        let wakers = sending.fail(error);
        let end = sending.written;
        sending.store.free(end, true);
        drop(sending);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    /// A piece of the stream arrived.
    pub(crate) fn handle_arrived(&self, offset: u64, bytes: &[u8]) {
        let mut receiving = self.receiving();
        let before = usize::try_from(receiving.read.saturating_sub(offset)).unwrap_or(usize::MAX);
        if let Some(bytes) = bytes.get(before..).filter(|_| !receiving.is_stopped) {
            let offset = offset.max(receiving.read);
            receiving.store.write(offset, bytes);
        }
    }

    /// Everything before `end` has arrived.
    pub(crate) fn handle_readable(&self, end: u64, is_whole: bool) {
        let mut receiving = self.receiving();
        receiving.readable = receiving.readable.max(end);
        if is_whole {
            receiving.end = Some(end);
        }
        if receiving.is_stopped {
            receiving.read = receiving.readable;
            receiving.free();
            drop(receiving);
            self.touch();
        } else if let Some(reader) = receiving.reader.take() {
            drop(receiving);
            reader.wake();
        }
    }

    /// Nothing more can be read than what has arrived in order.
    pub(crate) fn fail_receiving(&self, error: StreamError) {
        let mut receiving = self.receiving();
        let is_over = receiving.end.is_some();
        if !is_over && receiving.error.is_none() {
            receiving.error = Some(error);
        }
        if let Some(reader) = receiving.reader.take() {
            drop(receiving);
            reader.wake();
        }
    }

    /// The connection has ended.
    pub(crate) fn handle_end(&self, error: &ConnectionError) {
        if !self.sending().is_delivered {
            self.fail_sending(error.clone().into());
        }
        self.fail_receiving(error.clone().into());
    }
}

impl Sending {
    fn fail(&mut self, error: StreamError) -> [Option<Waker>; 2] {
        self.error.get_or_insert(error);
        [self.writer.take(), self.waiter.take()]
    }
}

impl Receiving {
    fn free(&mut self) {
        let is_empty = self.end == Some(self.read);
        let read = self.read;
        self.store.free(read, is_empty);
    }
}
