//! The associations of one control connection.

use std::collections::BTreeMap;
use std::sync::Arc;

use reach::{For, permitted};
use tokio::time::timeout;
use wire::relay::{LabelPair, Reason, RelayFrame};
use wire::tunnel::{Code, Target};

use crate::bounds::LOOKUP_PATIENCE;
use crate::keys::KeyState;
use crate::state::{RelayGrant, RelayState};

/// The associations that a host has made over one control connection, by its numbers. When that
/// ends, they stay for a while, unless the host has lost its rights.
pub(crate) struct Associations<'a> {
    relay: &'a RelayState,
    key: &'a Arc<KeyState>,
    grant: &'a RelayGrant,
    /// Each with the relay's number, and the pairs of labels that it has taken.
    made: BTreeMap<u32, (u64, u32)>,
}

impl<'a> Associations<'a> {
    pub(crate) fn new(
        relay: &'a RelayState,
        key: &'a Arc<KeyState>,
        grant: &'a RelayGrant,
    ) -> Associations<'a> {
        Associations { relay, key, grant, made: BTreeMap::new() }
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.made.is_empty()
    }

    /// Ends all of them: what the host is told.
    pub(crate) fn end(&mut self, why: &str) -> Vec<RelayFrame<'static>> {
        let mut frames = Vec::new();
        for (number, (id, _)) in std::mem::take(&mut self.made) {
            if let Some(datagrams) = self.relay.datagrams.get() {
                datagrams.dissociate(id);
            }
            frames.push(RelayFrame::Dissociated(number, Reason::new(Code::Forbidden, why)));
        }
        frames
    }

    /// The answer to the wish for an association.
    pub(crate) async fn make(
        &mut self,
        number: u32,
        target: &Target,
        is_draining: bool,
    ) -> RelayFrame<'static> {
        match self.try_make(number, target, is_draining).await {
            Ok(made) => made,
            Err(reason) => {
                self.key.refuse();
                RelayFrame::Dissociated(number, reason)
            }
        }
    }

    async fn try_make(
        &mut self,
        number: u32,
        target: &Target,
        is_draining: bool,
    ) -> Result<RelayFrame<'static>, Reason> {
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
        let rights = &self.grant.rights;
        let lookups = self.relay.lookups.of(*self.key.fingerprint().as_bytes());
        let found = timeout(LOOKUP_PATIENCE, permitted(target, For::Peer(&rights.reach), &lookups));
        let Ok(found) = found.await else {
            let text = format!("it found no address of {target} in time");
            return denied(Code::TimedOut, &text);
        };
        let made = datagrams.associate((self.key, rights.max), number, &found?);
        let associated = made.map_err(|why| Reason::new(Code::Busy, &why))?;
        self.made.insert(number, (associated.id, 0));
        Ok(RelayFrame::Associated(associated))
    }

    /// The answer to further labels. An association whose labels are not taken ends.
    pub(crate) fn register(&mut self, number: u32, pairs: &[LabelPair]) -> RelayFrame<'static> {
        let ended = |text: &str| RelayFrame::Dissociated(number, Reason::new(Code::Failed, text));
        let (Some(made), Some(datagrams)) =
            (self.made.get_mut(&number), self.relay.datagrams.get())
        else {
            return ended("there is no such association");
        };
        match datagrams.register(made.0, pairs) {
            Ok(()) => {
                made.1 = made.1.saturating_add(u32::try_from(pairs.len()).unwrap_or(u32::MAX));
                RelayFrame::Labelled(number, made.1)
            }
            Err(error) => {
                self.key.refuse();
                datagrams.dissociate(made.0);
                self.made.remove(&number);
                ended(&error.to_string())
            }
        }
    }

    /// Retires labels; without any, the association.
    pub(crate) fn retire(&mut self, number: u32, labels: &[u64]) {
        let (Some((id, _)), Some(datagrams)) = (self.made.get(&number), self.relay.datagrams.get())
        else {
            return;
        };
        if labels.is_empty() {
            datagrams.dissociate(*id);
            self.made.remove(&number);
        } else {
            datagrams.retire(*id, labels);
        }
    }
}

impl Drop for Associations<'_> {
    fn drop(&mut self) {
        let Some(datagrams) = self.relay.datagrams.get() else { return };
        let known = self.relay.options.authorized.find(self.key.fingerprint());
        let has_rights = known == self.grant.known;
        for (id, _) in self.made.values() {
            if has_rights {
                datagrams.orphan(*id);
            } else {
                datagrams.dissociate(*id);
            }
        }
    }
}
