//! Links in step with real time: which of them is due next, and what arrives at their ends.

use std::collections::{BTreeSet, VecDeque};

use link::{Amendment, Link, Offer, SharedProfile};
use units::{Bytes, Seed, Span, Time};

use crate::packet;

/// A packet between two links.
#[derive(Clone, Debug)]
pub(crate) struct Parcel<T> {
    /// What the caller knows of it.
    pub(crate) tag: T,
    pub(crate) flow: u64,
    pub(crate) data: Box<[u8]>,
}

/// A packet at the end of a link.
#[derive(Debug)]
pub(crate) struct Arrived<T> {
    pub(crate) at: Time,
    /// The time that it waited for the wire.
    pub(crate) waited: Span,
    pub(crate) parcel: Parcel<T>,
}

/// The directions of links. They keep their first rate and have no blackouts until they start.
#[derive(Debug)]
pub(crate) struct Fabric<T> {
    links: Vec<Link<Parcel<T>>>,
    /// By link.
    deadlines: Vec<Option<Time>>,
    /// The same, in order.
    agenda: BTreeSet<(Time, usize)>,
}

impl<T: Clone> Fabric<T> {
    pub(crate) fn new(links: impl IntoIterator<Item = (SharedProfile, Seed)>) -> Fabric<T> {
        let links: Vec<_> =
            links.into_iter().map(|(profile, seed)| Link::unstarted(profile, seed)).collect();
        Fabric { deadlines: vec![None; links.len()], links, agenda: BTreeSet::new() }
    }

    /// Starts the schedules.
    pub(crate) fn start(&mut self, now: Time) {
        for index in 0..self.links.len() {
            self.links[index].start(now);
            self.look_at(index, now);
        }
    }

    /// The link that is due next, and when.
    pub(crate) fn next(&self) -> Option<(Time, usize)> {
        self.agenda.first().copied()
    }

    /// Offers a packet to a link.
    pub(crate) fn offer(&mut self, now: Time, index: usize, parcel: Parcel<T>) {
        let offer = Offer {
            bytes: Bytes(parcel.data.len() as u64),
            is_ecn_capable: wire::ip::is_ecn_capable(&parcel.data),
            is_scalable: wire::ip::is_scalable(&parcel.data),
            flow: parcel.flow,
        };
        self.links[index].offer(now, offer, parcel);
        self.look_at(index, now);
    }

    /// Takes out the packets that arrive at the end of a link.
    pub(crate) fn take_arrived(&mut self, at: Time, index: usize) -> VecDeque<Arrived<T>> {
        let link = &mut self.links[index];
        let arrived = std::iter::from_fn(|| link.poll_deliver(at)).map(|delivery| {
            let mut parcel = delivery.packet;
            if delivery.is_corrupted {
                packet::corrupt(&mut parcel.data);
            }
            if delivery.is_marked {
                wire::ip::mark(&mut parcel.data);
            }
            Arrived { at: delivery.at, waited: delivery.waited, parcel }
        });
        let arrived = arrived.collect();
        // A deadline may have been too early, but not by nothing.
        self.look_at(index, at + Span::from_nanos(1));
        arrived
    }

    /// Changes a link that has started.
    pub(crate) fn amend(&mut self, now: Time, index: usize, amendment: Amendment) {
        self.links[index].amend(now, amendment);
        self.look_at(index, now);
    }

    pub(crate) fn links(&self) -> &[Link<Parcel<T>>] {
        &self.links
    }

    /// Lets the caller read the links, which may let packets leave.
    pub(crate) fn read<R>(
        &mut self,
        now: Time,
        read: impl FnOnce(std::slice::IterMut<'_, Link<Parcel<T>>>) -> R,
    ) -> R {
        let result = read(self.links.iter_mut());
        for index in 0..self.links.len() {
            self.look_at(index, now);
        }
        result
    }

    /// Writes down when the link is due, which is not before `least`.
    fn look_at(&mut self, index: usize, least: Time) {
        let deadline = self.links[index].poll_deadline().map(|deadline| deadline.max(least));
        let old = std::mem::replace(&mut self.deadlines[index], deadline);
        if old == deadline {
            return;
        }
        if let Some(old) = old {
            self.agenda.remove(&(old, index));
        }
        if let Some(deadline) = deadline {
            self.agenda.insert((deadline, index));
        }
    }
}
