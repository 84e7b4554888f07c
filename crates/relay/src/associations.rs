//! The associations of one control connection.

use std::collections::BTreeMap;
use std::sync::Arc;

use peer::Fingerprint;
use peer::places::WorkPlace;
use reach::{For, permitted};
use tokio::time::timeout;
use wire::meet::Place;
use wire::relay::{Associated, LabelPair, Reason, RelayFrame};
use wire::tunnel::{Code, Target};

use crate::bounds::{GUEST_TIME, LOOKUP_PATIENCE, NO_GUESTS};
use crate::datagrams::Datagrams;
use crate::keys::KeyState;
use crate::labels::DatagramsTo;
use crate::state::{RelayGrant, RelayState};

/// The associations that a host has made over one control connection, by its numbers. When that
/// ends, they stay for a while, unless the host has lost its rights.
pub(crate) struct Associations<'a> {
    relay: &'a RelayState,
    key: &'a Arc<KeyState>,
    /// The key of the host itself, which may be a guest of that key's.
    owner: Fingerprint,
    grant: &'a RelayGrant,
    /// By the host's numbers.
    made: BTreeMap<u32, MadeAssociation>,
    /// The relay's number of that with the addresses of a host that waits.
    awaiting: Option<u64>,
}

struct MadeAssociation {
    /// The relay's number.
    id: u64,
    /// The pairs of labels that it has taken.
    pairs: u32,
    /// That of a guest.
    _place: Option<WorkPlace>,
}

impl<'a> Associations<'a> {
    pub(crate) fn new(
        relay: &'a RelayState,
        (key, owner): (&'a Arc<KeyState>, Fingerprint),
        grant: &'a RelayGrant,
    ) -> Associations<'a> {
        Associations { relay, key, owner, grant, made: BTreeMap::new(), awaiting: None }
    }

    /// The relay's number of the association with the addresses of a host that waits.
    pub(crate) fn awaiting(&self) -> Option<u64> {
        self.awaiting
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.made.is_empty()
    }

    /// Ends all of them: what the host is told.
    pub(crate) fn end(&mut self, why: &str) -> Vec<RelayFrame<'static>> {
        let mut frames = Vec::new();
        self.awaiting = None;
        for (number, made) in std::mem::take(&mut self.made) {
            if let Some(datagrams) = self.relay.datagrams.get() {
                datagrams.dissociate(made.id);
            }
            frames.push(RelayFrame::Dissociated(number, Reason::new(Code::Forbidden, why)));
        }
        frames
    }

    /// The answer to the wish for an association, of a guest with the host that it is one of.
    pub(crate) async fn make(
        &mut self,
        number: u32,
        target: &Target,
        is_draining: bool,
    ) -> RelayFrame<'static> {
        let made = match self.may_make(number, is_draining) {
            Ok(datagrams) => match self.grant.guest {
                Some(guest) => self.make_of_guest(datagrams, number, guest.place),
                None => self.make_to(datagrams, number, target).await.map(|made| (made, None)),
            },
            Err(reason) => Err(reason),
        };
        self.answer(number, made)
    }

    /// The answer to the wish for one with the addresses of a host that waits.
    pub(crate) fn make_awaiting(&mut self, number: u32, is_draining: bool) -> RelayFrame<'static> {
        let made = self.may_make(number, is_draining).and_then(|datagrams| {
            if self.grant.guest.is_some() || !self.relay.options.takes_guests {
                return Err(Reason::new(Code::Forbidden, NO_GUESTS));
            }
            if self.awaiting.is_some() {
                return Err(Reason::new(Code::Failed, "this host has such an association"));
            }
            let made =
                datagrams.associate((self.key, self.owner, None), number, DatagramsTo::Nowhere);
            made.map_err(|why| Reason::new(Code::Busy, &why))
        });
        self.awaiting = made.as_ref().map_or(self.awaiting, |made| Some(made.id));
        self.answer(number, made.map(|made| (made, None)))
    }

    fn answer(
        &mut self,
        number: u32,
        made: Result<(Associated, Option<WorkPlace>), Reason>,
    ) -> RelayFrame<'static> {
        match made {
            Ok((associated, place)) => {
                let made = MadeAssociation { id: associated.id, pairs: 0, _place: place };
                self.made.insert(number, made);
                RelayFrame::Associated(associated)
            }
            Err(reason) => {
                self.key.refuse();
                RelayFrame::Dissociated(number, reason)
            }
        }
    }

    /// The UDP side, if there may be a further association.
    fn may_make(&self, number: u32, is_draining: bool) -> Result<&'a Datagrams, Reason> {
        let denied = |code, text: &str| Err(Reason::new(code, text));
        if is_draining {
            return denied(Code::Busy, "it is being stopped");
        }
        if let Some(why) = self.key.used_up() {
            return denied(Code::Forbidden, &why);
        }
        let Some(datagrams) = self.relay.datagrams.get() else {
            return denied(Code::Failed, "it has no UDP side");
        };
        if self.made.contains_key(&number) {
            return denied(Code::Failed, "there is an association of this number");
        }
        Ok(datagrams)
    }

    /// One with a destination that the host's line permits.
    async fn make_to(
        &self,
        datagrams: &Datagrams,
        number: u32,
        target: &Target,
    ) -> Result<Associated, Reason> {
        let rights = &self.grant.rights;
        let lookups = self.relay.lookups.of(*self.key.fingerprint().as_bytes());
        let found = timeout(LOOKUP_PATIENCE, permitted(target, For::Peer(&rights.reach), &lookups));
        let Ok(found) = found.await else {
            let text = format!("it found no address of {target} in time");
            return Err(Reason::new(Code::TimedOut, &text));
        };
        let busy = |why: String| Reason::new(Code::Busy, &why);
        let destination = datagrams.destination(&found?).map_err(busy)?;
        datagrams.associate((self.key, self.owner, rights.max), number, destination).map_err(busy)
    }

    /// One with the host that waits there.
    fn make_of_guest(
        &self,
        datagrams: &Datagrams,
        number: u32,
        place: Place,
    ) -> Result<(Associated, Option<WorkPlace>), Reason> {
        if let Place::Nameplate(_) = place {
            return Err(Reason::new(Code::Forbidden, "a code is for one connection over TCP"));
        }
        let host = self.relay.meetings.find(&place)?;
        if let Some(why) = self.key.guests_used_up() {
            return Err(Reason::new(Code::Forbidden, &why));
        }
        let work = self.relay.meetings.path(self.key.fingerprint())?;
        let (max, to) = (host.rights.of_guests().max, DatagramsTo::Waiting(place));
        let made = datagrams.associate((self.key, self.owner, max), number, to);
        let made = made.map_err(|why| Reason::new(Code::Busy, &why))?;
        datagrams.end_after(made.id, GUEST_TIME.into());
        Ok((made, Some(work)))
    }

    /// The answer to further labels. An association whose labels are not taken ends.
    pub(crate) fn register(&mut self, number: u32, pairs: &[LabelPair]) -> RelayFrame<'static> {
        let ended = |text: &str| RelayFrame::Dissociated(number, Reason::new(Code::Failed, text));
        let (Some(made), Some(datagrams)) =
            (self.made.get_mut(&number), self.relay.datagrams.get())
        else {
            return ended("there is no such association");
        };
        match datagrams.register(made.id, pairs) {
            Ok(()) => {
                let count = u32::try_from(pairs.len()).unwrap_or(u32::MAX);
                made.pairs = made.pairs.saturating_add(count);
                RelayFrame::Labelled(number, made.pairs)
            }
            Err(error) => {
                self.key.refuse();
                datagrams.dissociate(made.id);
                self.made.remove(&number);
                ended(&error.to_string())
            }
        }
    }

    /// Retires labels; without any, the association.
    pub(crate) fn retire(&mut self, number: u32, labels: &[u64]) {
        let (Some(made), Some(datagrams)) = (self.made.get(&number), self.relay.datagrams.get())
        else {
            return;
        };
        if labels.is_empty() {
            datagrams.dissociate(made.id);
            self.awaiting = self.awaiting.filter(|id| *id != made.id);
            self.made.remove(&number);
        } else {
            datagrams.retire(made.id, labels);
        }
    }
}

impl Drop for Associations<'_> {
    fn drop(&mut self) {
        let Some(datagrams) = self.relay.datagrams.get() else { return };
        let has_rights = if let Some(guest) = self.grant.guest {
            // Where its host waits no longer there is nobody to be reached.
            self.relay.meetings.find(&guest.place).is_ok()
        } else {
            let known = self.relay.options.authorized.find(self.key.fingerprint());
            known == self.grant.known
        };
        for MadeAssociation { id, .. } in self.made.values() {
            if has_rights {
                datagrams.orphan(*id);
            } else {
                datagrams.dissociate(*id);
            }
        }
    }
}
