//! How a connection stands to others: what either side says of it, and what is done about it.

use net::counters::TcpInfo;
use units::Time;
use wire::effort::Effort;
use wire::session::{SessionFrame, WITH_EFFORTS};

use super::Conn;
use super::background::{Background, Yielding};

impl Conn {
    /// From now on what is sent leaves the line to others, if `effort` says so; the peer is not
    /// told. There is no way back, because the peer may have said the same. Returns how it does;
    /// `None`: it does not.
    pub fn set_effort(&mut self, effort: Effort) -> Option<Yielding> {
        self.effort = self.effort.with(effort);
        if let Some(striped) = self.stream.striped() {
            striped.set_effort(self.effort);
        }
        if self.effort.is_background() && self.background.is_none() {
            self.background = Some(Background::begin(&*self.stream, self.effort));
        }
        self.yielding()
    }

    /// The same, and the peer is told, if it is one that understands: what it sends is in the
    /// background too then. Behind the first frame.
    pub fn agree_on_effort(&mut self, effort: Effort) {
        if !effort.is_background() {
            return;
        }
        self.set_effort(effort);
        if self.knows_efforts() {
            self.push(&SessionFrame::Effort(effort));
        }
    }

    /// Tells the peer, if it is one that understands, that what comes from here is in the
    /// background, without a change of how it is sent. Behind the first frame.
    pub fn tell_effort(&mut self, effort: Effort) {
        if effort.is_background() && self.knows_efforts() {
            self.push(&SessionFrame::Effort(effort));
        }
    }

    /// How what is sent leaves the line to others; `None`: it takes its share.
    #[must_use]
    pub fn yielding(&self) -> Option<Yielding> {
        self.background.as_ref().map(|background| background.yielding)
    }

    /// Whether it is in the background, as far as is known: either side may say so.
    #[must_use]
    pub fn effort(&self) -> Effort {
        let striped = self.stream.striped().map(stripe::Connection::effort);
        striped.map_or(self.effort, |effort| effort.with(self.effort))
    }

    /// Whether the peer takes [`SessionFrame::Effort`]; known after the handshake.
    fn knows_efforts(&self) -> bool {
        let protocol = match self.stream.striped() {
            Some(striped) => striped.protocol(),
            None => self.layer.protocol(),
        };
        protocol == Some(WITH_EFFORTS)
    }

    /// Takes a sample of [`Conn::counters`], some forty times a second: the pace in the background
    /// goes by it.
    pub fn handle_sample(&mut self, now: Time, info: &TcpInfo) {
        if let Some(background) = &mut self.background {
            background.handle_sample(now, info, &*self.stream);
        }
    }

    /// What the line is like to a connection in the background that this host paces.
    #[must_use]
    pub fn background(&self) -> Option<events::Background> {
        self.background.as_ref()?.stats()
    }
}

#[cfg(test)]
mod tests {
    use wire::frame::RawFrame;
    use wire::session::Hello;

    use super::super::tests::ends;
    use super::*;
    use crate::ConnError;

    /// The names of the frames that have arrived, up to a ping, which is the last that was sent. An
    /// earlier build parses them in the same way, and ends the connection over one that it does not
    /// know.
    async fn arrived(conn: &mut Conn) -> Vec<String> {
        loop {
            let (mut bytes, mut names) = (conn.unread(), Vec::new());
            while let Some((frame, length)) = RawFrame::parse(bytes).unwrap() {
                names.push(frame.name().to_string());
                bytes = &bytes[length..];
            }
            if names.last().is_some_and(|name| name == "Ping") {
                return names;
            }
            conn.readable().await.unwrap();
            conn.try_fill(4_096).unwrap();
        }
    }

    /// One end says that it is in the background, behind its first frame.
    async fn say(from: &mut Conn, to: &mut Conn) -> Vec<String> {
        from.push(&SessionFrame::Hello(Hello::new("receive", None, [0; 16])));
        from.agree_on_effort(Effort::LowerUnmarked);
        from.push(&SessionFrame::Ping(1));
        from.flush().await.unwrap();
        arrived(to).await
    }

    #[tokio::test]
    async fn what_one_end_says_counts_at_both_and_no_service_hears_of_it() {
        for dials in [true, false] {
            let [mut near, mut far] = ends([false; 2]).await;
            let (from, to) = if dials { (&mut near, &mut far) } else { (&mut far, &mut near) };
            assert_eq!(say(from, to).await, ["Hello", "Effort", "Ping"]);
            assert_eq!((from.effort(), to.effort()), (Effort::LowerUnmarked, Effort::Usual));
            assert_eq!(to.next_frame().unwrap().unwrap().name(), "Hello");
            assert_eq!(to.next_frame().unwrap().unwrap().name(), "Ping");
            assert!(to.next_frame().unwrap().is_none());
            assert_eq!(to.effort(), Effort::LowerUnmarked);
            assert!(from.yielding().is_some() && from.yielding() == to.yielding());
        }
    }

    /// Hosts of both builds meet in all ways.
    #[tokio::test]
    async fn earlier_builds_are_told_nothing() {
        for is_earlier in [[true, false], [false, true], [true, true]] {
            for dials in [true, false] {
                let [mut near, mut far] = ends(is_earlier).await;
                let (from, to) = if dials { (&mut near, &mut far) } else { (&mut far, &mut near) };
                assert_eq!(say(from, to).await, ["Hello", "Ping"], "{is_earlier:?}, {dials}");
                assert!(from.yielding().is_some(), "what it sends itself is in the background");
                assert_eq!(to.effort(), Effort::Usual);
            }
        }
    }

    #[tokio::test]
    async fn a_stranger_says_nothing_of_efforts() {
        let [mut near, mut far] = ends([false; 2]).await;
        far.set_allowance(64 << 10);
        near.tell_effort(Effort::Lower);
        near.push(&SessionFrame::Ping(1));
        near.flush().await.unwrap();
        assert_eq!(arrived(&mut far).await, ["Effort", "Ping"]);
        assert!(matches!(far.next_frame(), Err(ConnError::Unexpected(_))));
        assert_eq!((far.effort(), far.yielding()), (Effort::Usual, None));
    }

    #[tokio::test]
    async fn what_is_only_told_changes_nothing_here() {
        let [mut near, mut far] = ends([false; 2]).await;
        near.push(&SessionFrame::Hello(Hello::new("receive", None, [0; 16])));
        near.tell_effort(Effort::Usual);
        near.tell_effort(Effort::Lower);
        near.push(&SessionFrame::Ping(1));
        near.flush().await.unwrap();
        assert_eq!(arrived(&mut far).await, ["Hello", "Effort", "Ping"]);
        assert_eq!((near.effort(), near.yielding()), (Effort::Usual, None));
    }
}
