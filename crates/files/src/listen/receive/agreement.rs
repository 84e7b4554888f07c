//! Agrees with a sender on a session.

use std::sync::Arc;
use std::time::Duration;

use peer::host::SessionRequest;
use peer::listen::admission::{UNAUTHENTICATED_PATIENCE, refuse};
use peer::{Conn, ConnError, Fingerprint};
use tokio::time::timeout;
use transfer::Tree;
use units::Span;
use wire::files::FileFrame;
use wire::files::Wishes;
use wire::session::{AbortCode, SessionFrame};

use super::declined::Declined;
use super::offered::Offered;
use super::service::ReceiveService;
use super::sessions::{Request, Room};
use crate::blocking::{Wanted, run_wanted};
use crate::budget::Share;
use crate::dry_run::Verdict;
use crate::sink::{Directory, Mirror, NOTHING_DELETED, SinkSession, Staging, Survey, finish_files};
use crate::source::PATTERNS_BYTES;
use crate::{Error, Overwrite};
use events::Event;

/// The longest wait of a sender for its turn to compare files or to open a session.
const AGREEMENT_PATIENCE: Duration = Duration::from_secs(60);
/// The time that a sender may take for its manifest, from the first frame to the last.
const MANIFEST_PATIENCE: Duration = Duration::from_secs(3_600);

impl ReceiveService {
    /// Reads the manifest and opens the session. `None` after a dry run.
    pub(super) async fn agree(
        self: &Arc<Self>,
        conn: &mut Conn,
        request: SessionRequest<Self>,
    ) -> Result<Option<Arc<SinkSession>>, ConnError> {
        match self.try_agree(conn, request).await {
            Ok(session) => Ok(session),
            Err(Declined::Lost(error)) => Err(error),
            Err(Declined::Told(code, text)) => Err(refuse(conn, code, text).await),
        }
    }

    async fn try_agree(
        self: &Arc<Self>,
        conn: &mut Conn,
        request: SessionRequest<Self>,
    ) -> Result<Option<Arc<SinkSession>>, Declined> {
        // Connections that join wait for the end of the agreement.
        let SessionRequest { hello, grant: admitted, peer, session: id, opening: _opening, .. } =
            request;
        let parsed = Wishes::parse(&hello.request);
        let mut wishes = parsed.map_err(|error| Declined::Lost(ConnError::Wire(error)))?;
        // Before its list, which may be long.
        if !wishes.dry_run
            && let Some(text) = self.sessions.is_full(peer)
        {
            return Err(Declined::Told(AbortCode::Busy, text));
        }
        self.permit(&mut wishes)?;
        // The share moves with the tree, also to a thread that outlives the connection.
        let mut share = self.memory.share(peer);
        let offered =
            timeout(MANIFEST_PATIENCE, Offered::read(conn, &mut share, wishes.archive)).await;
        let offered = offered.map_err(|_| ConnError::Silent(MANIFEST_PATIENCE))??;
        let Offered { tree, mut mirror, left_out } = offered;
        mirror.is_forced = wishes.force_delete;
        let mirror = Some(mirror).filter(|_| wishes.delete && left_out.count() == 0);
        let has_patterns = mirror.as_ref().is_some_and(|mirror| {
            !mirror.selection.include.is_empty() || !mirror.selection.exclude.is_empty()
        });
        if has_patterns && !share.take(conn, PATTERNS_BYTES).await? {
            return Err(Declined::Told(AbortCode::Refused, share.why_not()));
        }
        let (directory, limit) = self.place(admitted.as_ref())?;
        if wishes.dry_run {
            self.rehearse(conn, peer, (directory, tree, mirror), wishes, share).await?;
            return Ok(None);
        }
        // One after another: the later of two sessions of a sender must find the earlier one.
        let turn = timeout(AGREEMENT_PATIENCE, self.agreeing.lock());
        let Ok(_turn) = conn.ping_during(turn).await? else {
            return Err(Declined::Told(AbortCode::Busy, busy_agreeing()));
        };
        let (service, into, run, holder) =
            (Arc::clone(self), Arc::clone(&directory), hello.run, (peer, admitted));
        let asking =
            run_wanted(move |_| (service.sessions.request(holder, run, &tree, &into), tree, share));
        let (request, tree, share) = conn.ping_during(asking).await?;
        let request = request?;
        if let Err(text) = conn.ping_during(self.make_room(&request)).await? {
            return Err(Declined::Told(AbortCode::Busy, text));
        }
        let (clock, events) = (self.clock, self.events.clone());
        let output = self.options.output.clone();
        let opening = run_wanted(move |wanted| {
            let mirror = mirror.as_ref();
            let opened =
                SinkSession::open(id, peer, tree, wishes, mirror, directory, clock, events, wanted);
            (opened.and_then(|session| session.deliver_to(output)), share)
        });
        let (session, share) = conn.ping_during(opening).await?;
        // Whoever says so has said it before its list of files.
        let mut session = session?.in_background(conn.effort().is_background());
        session.limit = limit;
        session.transfer = self.transfers.next();
        let session = Arc::new(session);
        self.events.send(Event::Started {
            transfer: session.transfer,
            peer: peer.to_string(),
            files: session.tree().file_count(),
            total: session.tree().data(),
            resumed: session.resumed(),
        });
        if let Some(text) = left_out.in_short() {
            let text = format!("the sender could not read, and left out: {text}");
            self.events.notice(text);
            if wishes.delete {
                self.events.notice(NOTHING_DELETED);
            }
        }
        self.sessions.add(&session, request, share);
        session.answer_frames().iter().for_each(|frame| conn.push(frame));
        conn.push(&FileFrame::Ready);
        conn.flush_to_reader().await?;
        finish_files(&session);
        Ok(Some(session))
    }

    /// Checks what a sender wants against what this host permits.
    fn permit(&self, wishes: &mut Wishes) -> Result<(), Declined> {
        let refused = |text: &str| Err(Declined::Told(AbortCode::Refused, text.into()));
        match self.options.overwrite {
            Overwrite::Always => wishes.overwrite = true,
            Overwrite::Never if wishes.overwrite || wishes.update => {
                let text = "it replaces no files; send without --overwrite and --update";
                return refused(text);
            }
            Overwrite::OnRequest | Overwrite::Never => {}
        }
        if wishes.delete && !self.options.allow_delete {
            let text = "it deletes no files; send without --delete, or let it: 'anabranch receive \
                        --allow-delete'";
            return refused(text);
        }
        if wishes.archive && self.options.output.is_some() {
            let text =
                "it writes to standard output, which keeps no owners: send without --archive";
            return refused(text);
        }
        if wishes.archive && !self.options.archive {
            let text = "it lets no sender choose owners, set-user-id bits and attributes; send \
                        without --archive, or let it: 'anabranch receive --archive'";
            return refused(text);
        }
        Ok(())
    }

    /// Surveys the directory for a dry run, which changes nothing, and tells the sender what was
    /// found.
    async fn rehearse(
        &self,
        conn: &mut Conn,
        peer: Fingerprint,
        (directory, tree, mirror): (Arc<Directory>, Tree, Option<Mirror>),
        wishes: Wishes,
        share: Share,
    ) -> Result<(), Declined> {
        let place = timeout(AGREEMENT_PATIENCE, self.surveys.take(peer));
        let Ok(place) = conn.ping_during(place).await? else {
            return Err(Declined::Told(AbortCode::Busy, busy_agreeing()));
        };
        let survey = move |wanted: &Wanted| {
            let (staging, mirror) = (Staging::open_existing(&directory)?, mirror.as_ref());
            let survey = Survey::new(&directory, staging.as_ref(), &tree, wishes, mirror, wanted)?;
            let mut frames = Vec::new();
            Verdict::emit(&survey, &tree, &mut frames);
            Ok::<_, Error>(frames)
        };
        let surveying = run_wanted(move |wanted| (survey(wanted), share, place));
        let (frames, share, place) = conn.ping_during(surveying).await?;
        conn.push_parts(&frames?, &[]);
        conn.push(&FileFrame::Ready);
        conn.flush_to_reader().await?;
        drop((share, place));
        wait_for_close(conn).await;
        Ok(())
    }

    /// Closes the sessions that give way to a request. The error is a text for its sender.
    async fn make_room(&self, request: &Request) -> Result<(), String> {
        let giving_way = match self.sessions.room(request) {
            Room::After(sessions) => sessions,
            Room::Busy(text) => return Err(text),
        };
        for (old, silence) in giving_way {
            if let Some(silence) = silence {
                self.tell_stalled(&old, silence).await;
            }
            self.sessions.close(old).await?;
        }
        Ok(())
    }

    /// Tells both sides that a session ends for want of data.
    async fn tell_stalled(&self, old: &SinkSession, silence: Span) {
        let text = Error::Stalled { silence }.to_string();
        old.broadcast(&SessionFrame::Abort(AbortCode::Refused, text.clone()).into(), true);
        let text = format!("{text} (another sender takes its turn)");
        self.events.notice(text);
        // The sender closes its connections when it has read the reason.
        let _ = timeout(super::ABORT_DELIVERY, super::paths_closed(old)).await;
    }
}

fn busy_agreeing() -> String {
    "it compares the lists of files of other senders".into()
}

/// Waits until the other side has read the answers and closes.
async fn wait_for_close(conn: &mut Conn) {
    let more = conn.receive(|frame| Err::<(), _>(ConnError::Unexpected(frame.name().into())));
    let _ = timeout(UNAUTHENTICATED_PATIENCE, more).await;
}
