//! Hosts that wait at the relay, and their guests.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use aws_lc_rs::digest;
use peer::places::{Places, WorkPlace};
use peer::{Fingerprint, Peer, random};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use units::Time;
use wire::meet::{Knock, Place};
use wire::relay::{Reason, RelayFrame, Ticket};
use wire::tunnel::Code;

use crate::bounds::{
    GUEST_PATHS_EACH, GUEST_PATHS_IN_ALL, GUESTS_EACH, GUESTS_IN_ALL, MEET_PATIENCE,
    REGISTRATIONS_EACH, REGISTRATIONS_IN_ALL,
};
use crate::datagrams::Datagrams;
use crate::keys::KeyState;
use crate::knocks::Knocks;
use crate::rights::RelayRights;
use crate::told::Told;

/// All hosts that wait, and connections that are on their way from them.
pub(crate) struct Meetings {
    waiting: Mutex<HashMap<Place, WaitingHost>>,
    /// By the tickets of the calls.
    called: Mutex<HashMap<Ticket, oneshot::Sender<TcpStream>>>,
    knocks: Mutex<Knocks>,
    /// Control connections of guests, and their paths, by the key of their host.
    pub(crate) guests: Arc<Places>,
    pub(crate) paths: Arc<Places>,
}

/// A host that waits at a place.
#[derive(Clone)]
pub(crate) struct WaitingHost {
    pub(crate) key: Arc<KeyState>,
    /// Its entry among the authorized peers.
    pub(crate) known: Option<Peer>,
    pub(crate) rights: RelayRights,
    /// Its number of the place.
    number: u32,
    control: mpsc::Sender<Told>,
}

/// A guest that was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Guest {
    /// Where its host waits.
    pub(crate) place: Place,
}

impl Default for Meetings {
    fn default() -> Meetings {
        Meetings {
            waiting: Mutex::default(),
            called: Mutex::default(),
            knocks: Mutex::default(),
            guests: Places::new(GUESTS_IN_ALL, GUESTS_EACH),
            paths: Places::new(GUEST_PATHS_IN_ALL, GUEST_PATHS_EACH),
        }
    }
}

impl Meetings {
    /// Lets a guest in that knocks from an address.
    ///
    /// # Errors
    /// The reason of a refusal, for the guest.
    pub(crate) fn admit(&self, knock: Knock, from: IpAddr, now: Time) -> Result<Guest, String> {
        let place = match knock {
            Knock::Invitation(invitation) => {
                let hash = digest::digest(&digest::SHA256, &invitation);
                let hash = hash.as_ref().try_into().expect("SHA-256 has 32 octets");
                Place::Invited(hash)
            }
            Knock::Nameplate(number) => {
                let block = stripe::address_block(from);
                let mut knocks = self.knocks.lock().expect("no panic while held");
                if !knocks.admit(now, block) {
                    let text = "too many codes were tried here within a minute: try again in one";
                    return Err(text.into());
                }
                Place::Nameplate(number)
            }
            Knock::Key(key) => Place::Key(key),
        };
        if self.waiting().contains_key(&place) {
            return Ok(Guest { place });
        }
        Err(match place {
            Place::Invited(_) => "no host waits at this relay with that token",
            Place::Key(_) => "no host waits at this relay with that key",
            Place::Nameplate(_) => {
                "no host waits at this relay with that code: the number may be wrong, or the code \
                 be an older one"
            }
        }
        .into())
    }

    /// The host that waits at a place.
    pub(crate) fn find(&self, place: &Place) -> Result<WaitingHost, Reason> {
        let gone = || Reason::new(Code::Failed, "the host no longer waits at the relay");
        self.waiting().get(place).cloned().ok_or_else(gone)
    }

    /// A connection with the host that waits at a place.
    ///
    /// # Errors
    /// Why there is none, for the guest.
    pub(crate) async fn call(&self, place: &Place) -> Result<TcpStream, Reason> {
        let host = self.find(place)?;
        let failed = |text: &str| Reason::new(Code::Failed, text);
        let octets = random().map_err(|error| failed(&error.to_string()))?;
        let ticket = Ticket::of_random(octets);
        let (hand_over, arrived) = oneshot::channel();
        self.called().insert(ticket, hand_over);
        let _call = Call { meetings: self, ticket };
        if host.control.try_send(Told::Meet(host.number, ticket)).is_err() {
            return Err(failed("the host that waits at the relay is not answering"));
        }
        match timeout(MEET_PATIENCE, arrived).await {
            Ok(Ok(stream)) => Ok(stream),
            _ => Err(Reason::new(Code::TimedOut, "the host that waits at the relay did not come")),
        }
    }

    /// Takes a data connection if its ticket is that of a call.
    pub(crate) fn take(&self, ticket: &Ticket, stream: TcpStream) -> Result<(), TcpStream> {
        let waiting = self.called().remove(ticket);
        match waiting {
            Some(waiting) => waiting.send(stream),
            None => Err(stream),
        }
    }

    /// A path of a guest of a host, if there may be one more.
    pub(crate) fn path(&self, host: Fingerprint) -> Result<WorkPlace, Reason> {
        let full =
            || Reason::new(Code::Busy, "the guests of that host have as many paths as they may");
        self.paths.try_take(host).ok_or_else(full)
    }

    fn register(&self, place: Place, host: WaitingHost) -> Result<(), Reason> {
        let mut waiting = self.waiting();
        let own = host.key.fingerprint();
        if let Place::Key(key) = place
            && key != *own.as_bytes()
        {
            let text = "a host waits with its own key alone";
            return Err(Reason::new(Code::Forbidden, text));
        }
        let is_own = |known: &WaitingHost| known.key.fingerprint() == own;
        match waiting.get(&place) {
            Some(known) if !is_own(known) => {
                return Err(Reason::new(Code::Busy, "another host waits there"));
            }
            Some(_) => {}
            None => {
                let count = waiting.values().filter(|known| is_own(known)).count();
                if count >= REGISTRATIONS_EACH || waiting.len() >= REGISTRATIONS_IN_ALL {
                    let text = "the relay has as many hosts that wait as it takes";
                    return Err(Reason::new(Code::Busy, text));
                }
            }
        }
        waiting.insert(place, host);
        Ok(())
    }

    /// Forgets a place, if it is still that of this control connection.
    fn withdraw(&self, place: &Place, control: &mpsc::Sender<Told>) {
        let mut waiting = self.waiting();
        if waiting.get(place).is_some_and(|host| host.control.same_channel(control)) {
            waiting.remove(place);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<Place, WaitingHost>> {
        self.waiting.lock().expect("no panic while held")
    }

    fn called(&self) -> MutexGuard<'_, HashMap<Ticket, oneshot::Sender<TcpStream>>> {
        self.called.lock().expect("no panic while held")
    }
}

/// A call that is forgotten when it is dropped.
struct Call<'a> {
    meetings: &'a Meetings,
    ticket: Ticket,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.meetings.called().remove(&self.ticket);
    }
}

/// The places of one control connection, by its host's numbers. They end with it; datagrams go on
/// to the host for as long as its association lasts.
pub(crate) struct Registrations<'a> {
    meetings: &'a Meetings,
    /// The UDP side, if there is one.
    datagrams: Option<&'a Datagrams>,
    /// The association with the addresses of the host.
    awaiting: Option<u64>,
    key: Arc<KeyState>,
    known: Option<Peer>,
    rights: RelayRights,
    control: mpsc::Sender<Told>,
    made: HashMap<u32, Place>,
}

impl<'a> Registrations<'a> {
    pub(crate) fn new(
        (meetings, datagrams): (&'a Meetings, Option<&'a Datagrams>),
        key: &Arc<KeyState>,
        (known, rights): (Option<Peer>, RelayRights),
        control: &mpsc::Sender<Told>,
    ) -> Registrations<'a> {
        let (key, control, made) = (Arc::clone(key), control.clone(), HashMap::new());
        Registrations { meetings, datagrams, awaiting: None, key, known, rights, control, made }
    }

    /// Datagrams for the host go to the addresses of this association, whichever of its places
    /// they are for.
    pub(crate) fn await_datagrams(&mut self, awaiting: Option<u64>) {
        self.awaiting = awaiting;
        if let (Some(datagrams), Some(id)) = (self.datagrams, awaiting) {
            for place in self.made.values() {
                datagrams.wait_at(*place, id);
            }
        }
    }

    /// The answer to the wish to wait at a place.
    pub(crate) fn register(&mut self, number: u32, place: Place) -> RelayFrame<'static> {
        self.withdraw(number);
        let (known, rights) = (self.known.clone(), self.rights.clone());
        let (key, control) = (Arc::clone(&self.key), self.control.clone());
        let host = WaitingHost { key, known, rights, number, control };
        match self.meetings.register(place, host) {
            Ok(()) => {
                self.made.insert(number, place);
                RelayFrame::Registered(number)
            }
            Err(reason) => RelayFrame::Unregistered(number, reason),
        }
    }

    pub(crate) fn withdraw(&mut self, number: u32) {
        if let Some(place) = self.made.remove(&number) {
            self.meetings.withdraw(&place, &self.control);
            if let (Some(datagrams), Some(id)) = (self.datagrams, self.awaiting) {
                datagrams.leave(&place, id);
            }
        }
    }
}

impl Drop for Registrations<'_> {
    fn drop(&mut self) {
        for place in self.made.values() {
            self.meetings.withdraw(place, &self.control);
        }
    }
}
