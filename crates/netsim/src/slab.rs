//! Where the packets are that are under way.

/// Packets, each at a place of its own from [`Slab::insert`] to [`Slab::remove`].
///
/// Places are used again, the latest freed first: those are in the processor's cache.
#[derive(Clone, Debug)]
pub(crate) struct Slab<P> {
    places: Vec<P>,
    free: Vec<u32>,
}

impl<P: Copy> Slab<P> {
    pub(crate) fn new() -> Slab<P> {
        Slab { places: Vec::new(), free: Vec::new() }
    }

    /// Puts a packet in, and gives its place. Inlined, the packet is written where it stays and nowhere before.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see above")]
    pub(crate) fn insert(&mut self, packet: P) -> u32 {
        if let Some(place) = self.free.pop() {
            self.places[place as usize] = packet;
            return place;
        }
        self.places.push(packet);
        u32::try_from(self.places.len() - 1).expect("four billion packets fit no memory")
    }

    /// Takes the packet of a place out.
    #[inline]
    pub(crate) fn remove(&mut self, place: u32) -> P {
        self.free.push(place);
        self.places[place as usize]
    }

    #[inline]
    pub(crate) fn get(&self, place: u32) -> &P {
        &self.places[place as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, place: u32) -> &mut P {
        &mut self.places[place as usize]
    }

    /// How many there are.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_used_again_once_it_is_free() {
        let mut slab = Slab::new();
        let places: Vec<u32> = (0..5).map(|n| slab.insert(n)).collect();
        assert_eq!((places[1], *slab.get(3), slab.len()), (1, 3, 5));
        *slab.get_mut(3) += 10;
        assert_eq!((slab.remove(3), slab.remove(0)), (13, 0));
        assert_eq!((slab.insert(20), slab.insert(21), slab.insert(22)), (0, 3, 5));
        assert_eq!((*slab.get(0), *slab.get(3), *slab.get(1), slab.len()), (20, 21, 1, 6));
    }
}
