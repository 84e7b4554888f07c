//! A host that can only dial out, met at relays: it waits there, and whoever has its token or a
//! code of it comes to it through them.
//!
//! | subject | module |
//! |---|---|
//! | codes, as people write them | `code`, `words.txt` |
//! | the exchange that shows whether both sides know a code | `exchange` |
//! | the host's side of it, with the bound of attempts; the guest's | `codes`; `claim` |

mod claim;
mod code;
mod codes;
mod exchange;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::digest;
use events::{Event, Events};
use peer::carrier::Listener;
use peer::host::{Meetings, Services};
use peer::{Error, Fingerprint, Token, WaitingRelay};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use wire::meet::Place;
use wire::relay::Ticket;

use crate::client::{
    CallListener, Client, ClientOptions, ClientState, WaitState, WaitingPlace, calls,
};
pub use claim::{Claimed, claim};
pub use code::Code;
use codes::Codes;
pub use codes::TRIES;

/// The time for which a code is good.
pub const CODE_TIME: Duration = Duration::from_secs(600);
/// The time until a further code when two were guessed at; it doubles with each.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// The time between looks at the connection to a relay.
const LOOK: Duration = Duration::from_millis(500);
/// The time for a relay to say whether a nameplate is free.
const ANSWER: Duration = Duration::from_secs(10);

/// A host that waits at relays, as long as this lives.
pub struct Meeting {
    relays: Vec<MetAt>,
    codes: Option<Arc<Codes>>,
    _attending: JoinSet<()>,
}

/// A relay at which the host waits.
struct MetAt {
    client: Arc<Client>,
    /// Until a host listens to them.
    calls: Mutex<Option<mpsc::Receiver<Ticket>>>,
}

/// Who may come to a host that waits at relays, besides those who may use them and know its key.
#[derive(Clone, Copy, Debug)]
pub enum Invited<'a> {
    /// Nobody.
    Nobody,
    /// Whoever holds the token.
    Holder(&'a Token),
    /// Whoever holds the token, or was told a code in its place.
    HolderOrCode(&'a Token),
}

impl Meeting {
    /// Waits at these relays for hosts that may use them and know this one's key, and for those who
    /// are invited: codes are shown by way of `events`. Needs a Tokio runtime.
    ///
    /// # Errors
    /// Those of [`Client::start`].
    pub fn start(
        relays: Vec<ClientOptions>,
        invited: Invited<'_>,
        events: &Events,
    ) -> Result<Arc<Meeting>, Error> {
        let (token, has_codes) = match invited {
            Invited::Nobody => (None, false),
            Invited::Holder(token) => (Some(token), false),
            Invited::HolderOrCode(token) => (Some(token), true),
        };
        let codes = token.filter(|_| has_codes).map(|token| Arc::new(Codes::new(token.clone())));
        let invited = token.map(|token| {
            let hash = digest::digest(&digest::SHA256, &token.invitation());
            Place::Invited(hash.as_ref().try_into().expect("SHA-256 has 32 octets"))
        });
        let (mut met, mut attending) = (Vec::new(), JoinSet::new());
        for options in relays {
            let (via, key) = (options.dial.to_string(), options.credential.pin());
            let own = Place::Key(*options.identity.fingerprint().as_bytes());
            let client = Client::start(options)?;
            let (call, called) = calls();
            let host = Attending {
                client: Arc::clone(&client),
                call,
                via,
                key,
                codes: codes.clone(),
                events: events.clone(),
            };
            attending.spawn(host.attend(own, invited));
            met.push(MetAt { client, calls: Mutex::new(Some(called)) });
        }
        Ok(Arc::new(Meeting { relays: met, codes, _attending: attending }))
    }
}

impl Meetings for Meeting {
    fn listeners(&self, port: u16) -> Vec<Box<dyn Listener>> {
        let listener = |met: &MetAt| {
            let calls = met.calls.lock().expect("no panic while held").take()?;
            Some(Box::new(CallListener::new(&met.client, calls, port)) as Box<dyn Listener>)
        };
        self.relays.iter().filter_map(listener).collect()
    }

    fn awaiting(&self) -> Vec<WaitingRelay> {
        let relay = |met: &MetAt| WaitingRelay {
            dial: met.client.dial().clone(),
            leading: Arc::new(met.client.associate(None)),
        };
        self.relays.iter().map(relay).collect()
    }

    fn joins(&self, services: Services) -> Services {
        match &self.codes {
            Some(codes) => services.with(codes),
            None => services,
        }
    }
}

impl fmt::Debug for Meeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let relays: Vec<&Arc<Client>> = self.relays.iter().map(|met| &met.client).collect();
        f.debug_tuple("Meeting").field(&relays).finish()
    }
}

/// What keeps a host waiting at one relay, and tells people how to reach it there.
struct Attending {
    client: Arc<Client>,
    call: mpsc::Sender<Ticket>,
    via: String,
    key: Fingerprint,
    codes: Option<Arc<Codes>>,
    events: Events,
}

/// The time until a new code when so many were guessed at: a relay that guesses knows each one's
/// nameplate at once, and is not held up by its own bounds.
fn pause_after(spent: u32) -> Duration {
    let doublings = spent.saturating_sub(2).min(16);
    if spent <= 1 { Duration::ZERO } else { FIRST_PAUSE * 2_u32.pow(doublings) }.min(CODE_TIME)
}

/// A code that is shown.
struct Shown {
    nameplate: u32,
    _place: WaitingPlace,
    until: Instant,
    spent: Arc<Notify>,
}

impl Attending {
    async fn attend(self, own: Place, invited: Option<Place>) {
        let mut waiting = self.client.wait_at(own, &self.call);
        let mut invited = invited.map(|place| self.client.wait_at(place, &self.call));
        self.wait(&mut waiting).await;
        if let Some(invited) = &mut invited {
            self.wait(invited).await;
        }
        let Some(codes) = self.codes.clone() else {
            self.tell(None);
            return self.watch(&mut waiting).await;
        };
        let showing = async {
            let mut spent = 0_u32;
            while let Some(shown) = self.show(&codes).await {
                let is_spent = tokio::select! {
                    () = shown.spent.notified() => true,
                    () = sleep_until(shown.until) => false,
                };
                if codes.remove(shown.nameplate) {
                    // It was used, and the token with it.
                    break;
                }
                drop(shown);
                if is_spent {
                    spent += 1;
                    let pause = pause_after(spent);
                    self.events.notice(format!(
                        "wrong words were tried {TRIES} times with the code for {}, as with \
                         {spent} codes so far: a new one comes in {} s",
                        self.via,
                        pause.as_secs()
                    ));
                    sleep(pause).await;
                } else {
                    let minutes = CODE_TIME.as_secs() / 60;
                    self.events.notice(format!(
                        "the code for {} was good for {minutes} minutes: here is a new one",
                        self.via
                    ));
                }
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = showing => {}
            () = self.watch(&mut waiting) => {}
        }
    }

    /// Waits until the host can be met, and says why it cannot.
    async fn wait(&self, waiting: &mut WaitingPlace) {
        let mut said = None;
        loop {
            let state = waiting.state.borrow_and_update().clone();
            let why = match state {
                WaitState::Waiting => return,
                WaitState::Denied(reason) => Some(reason.text),
                WaitState::Asking => self.trouble(),
            };
            self.say(&mut said, why);
            let _ = timeout(LOOK, waiting.state.changed()).await;
        }
    }

    /// Says when the host cannot be met for a while, for ever.
    async fn watch(&self, waiting: &mut WaitingPlace) {
        let mut said = None;
        loop {
            let state = waiting.state.borrow_and_update().clone();
            let why = match state {
                WaitState::Denied(reason) => Some(reason.text),
                WaitState::Asking | WaitState::Waiting => self.trouble(),
            };
            self.say(&mut said, why);
            let _ = timeout(LOOK, waiting.state.changed()).await;
        }
    }

    /// What is wrong with the connection to the relay.
    fn trouble(&self) -> Option<String> {
        match self.client.state() {
            ClientState::Connecting(Some(why)) | ClientState::Refused(why) => Some(why),
            ClientState::Connecting(None) | ClientState::Open => None,
            ClientState::Parting => Some("it is being stopped".into()),
        }
    }

    /// Says a reason once, and that it is over.
    fn say(&self, said: &mut Option<String>, why: Option<String>) {
        let via = &self.via;
        match (&*said, &why) {
            (None, Some(why)) => {
                self.events.notice(format!("not reachable via {via}: {why}; it is tried again"));
            }
            (Some(_), None) => self.events.notice(format!("reachable via {via} again")),
            _ => return,
        }
        *said = why;
    }

    /// A code that nobody else has at this relay, shown once it is good. `None` if there is none to
    /// be had: there are no random numbers.
    async fn show(&self, codes: &Codes) -> Option<Shown> {
        loop {
            let code = match Code::generate() {
                Ok(code) => code,
                Err(error) => {
                    self.events.notice(format!("there is no code for {}: {error}", self.via));
                    return None;
                }
            };
            let nameplate = code.nameplate();
            let mut place = self.client.wait_at(Place::Nameplate(nameplate), &self.call);
            let waits = async {
                let settled = place.state.wait_for(|state| *state != WaitState::Asking).await;
                settled.is_ok_and(|state| *state == WaitState::Waiting)
            };
            if timeout(ANSWER, waits).await != Ok(true) {
                // Another host may have the number, or the relay be gone for a while.
                drop(place);
                sleep(LOOK).await;
                continue;
            }
            let text = code.reveal();
            let spent = codes.add(code, &self.client, self.key);
            self.tell(Some(text));
            let until = Instant::now() + CODE_TIME;
            return Some(Shown { nameplate, _place: place, until, spent });
        }
    }

    fn tell(&self, code: Option<String>) {
        let via = format!("{},{}", self.via, self.key);
        self.events.send(Event::Meeting { via, code });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a day no more than one guess in 2^24, of 2^33 codes.
    #[test]
    fn a_relay_that_guesses_gets_few_attempts() {
        let pauses: Vec<u64> = (1..=5).map(|spent| pause_after(spent).as_secs()).collect();
        assert_eq!(pauses, [0, 2, 4, 8, 16]);
        let (mut spent, mut time) = (0_u32, Duration::ZERO);
        while time < Duration::from_secs(24 * 3_600) {
            spent += 1;
            time += pause_after(spent);
        }
        assert!(u64::from(spent * TRIES) < 1 << (33 - 24), "{spent} codes");
        assert_eq!(pause_after(u32::MAX), CODE_TIME);
    }
}
