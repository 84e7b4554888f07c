//! The streams that a connection offers to the collector.

use std::sync::Arc;

use peer::conn::Conn;
use tokio::time::Instant;
use wire::feed::{FeedFrame, Offer};

use super::{Kind, Offered, Way, first_of};
use crate::source::channel::Channel;

impl Way<'_> {
    /// Offers what is new, and ends what is over.
    pub(super) fn offer(&mut self, conn: &mut Conn) {
        let changes = self.shared.channels.changes();
        if self.seen != Some(changes) {
            self.seen = Some(changes);
            let mut all = self.shared.channels.all();
            if let Kind::Striped(only) = self.kind {
                all.retain(|channel| channel.number == only);
            }
            let is_open = |number: &u16| all.iter().any(|channel| channel.number == *number);
            let over: Vec<u16> =
                self.offered.keys().filter(|number| !is_open(number)).copied().collect();
            for number in over {
                self.leave(number);
                self.offered.remove(&number);
                self.to(conn, number);
                conn.push(&FeedFrame::Over(String::new()));
            }
            for channel in all {
                if !self.offered.contains_key(&channel.number) {
                    self.begin(conn, channel);
                }
            }
        }
        let now = Instant::now();
        let is_due = |offered: &Offered| offered.again_at.is_some_and(|at| at <= now);
        let again: Vec<Arc<Channel>> = self
            .offered
            .values()
            .filter(|offered| is_due(offered))
            .map(|offered| Arc::clone(&offered.channel))
            .collect();
        for channel in again {
            self.begin(conn, channel);
        }
    }

    pub(super) fn begin(&mut self, conn: &mut Conn, channel: Arc<Channel>) {
        if self.offered.contains_key(&channel.number) {
            // The collector may have it still.
            self.to(conn, channel.number);
            conn.push(&FeedFrame::Over(String::new()));
        }
        // What is not here any more is at others, or nowhere.
        let others = match (&self.shared.collected, conn.peer()) {
            (Some(collected), Some(key)) => collected.of(channel.id, key).1,
            _ => 0,
        };
        let elsewhere = others.min(first_of(&channel));
        self.push_offer(conn, &channel, elsewhere);
        let number = channel.number;
        let offered = Offered { channel, is_open: false, again_at: None, elsewhere };
        self.offered.insert(number, offered);
    }

    /// Offers a stream of which other collectors have the records before `elsewhere`.
    fn push_offer(&mut self, conn: &mut Conn, channel: &Channel, elsewhere: u64) {
        self.to(conn, channel.number);
        conn.push(&FeedFrame::Offer(Offer {
            stream: channel.id,
            first: first_of(channel),
            elsewhere,
            form: self.shared.form,
            feed: self.shared.feed.clone(),
            label: channel.label.clone(),
        }));
    }

    /// The collector goes on with this record. Where it has all that it ever said, and another one
    /// has more, it is to leave that out: the stream is offered once more. Whether it was.
    pub(super) fn is_elsewhere(&mut self, conn: &mut Conn, number: u16, next: u64) -> bool {
        let (Some(collected), Some(key)) = (&self.shared.collected, conn.peer()) else {
            return false;
        };
        let Some(offered) = self.offered.get_mut(&number) else { return false };
        let (before, elsewhere) = collected.of(offered.channel.id, key);
        if next < before || elsewhere <= next.max(offered.elsewhere) {
            collected.set(offered.channel.id, key, next);
            return false;
        }
        offered.elsewhere = elsewhere;
        let channel = Arc::clone(&offered.channel);
        self.to(conn, number);
        conn.push(&FeedFrame::Over(String::new()));
        self.push_offer(conn, &channel, elsewhere);
        true
    }

    pub(super) fn leave(&mut self, number: u16) {
        if let Some(offered) = self.offered.get_mut(&number) {
            offered.is_open = false;
            offered.channel.leave(self.id);
            self.shared.channels.wake();
        }
    }

    pub(super) fn to(&mut self, conn: &mut Conn, channel: u16) {
        if self.told != channel {
            self.told = channel;
            conn.push(&FeedFrame::Channel(channel));
        }
    }
}
