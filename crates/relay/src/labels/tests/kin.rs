//! Several associations of one connection.

use super::*;

/// Binds a route of an association over an address of the relay.
fn bind_at(labels: &mut Labels<char>, now: Time, id: u64, place: DatagramPlace) {
    let mut cookie = [0; COOKIE];
    for expected in [BindKind::Challenge, BindKind::Bound] {
        let step = labels.handle_datagram(now, place, &bind(id, 0, cookie, &SECRET));
        let Step::Answer(answer) = step else { panic!("it is answered") };
        let answer = BindDatagram::parse(&answer).unwrap();
        assert_eq!(answer.kind, expected);
        cookie = answer.cookie;
    }
}

/// A datagram with the label goes to the destination, and one back comes the same way.
fn goes_there_and_back(labels: &mut Labels<char>, now: Time, label: u64, from: DatagramPlace) {
    let there = labels.handle_datagram(now, from, &packet(label, 100));
    assert_eq!(goes_to(there).as_deref(), Some(FAR), "{label} from {from:?}");
    let back = labels.handle_datagram(now, place(FAR), &packet(label + 1, 100));
    assert!(matches!(back, Step::Forward { to, .. } if to == from), "{label}: {back:?}");
}

/// A host that named a relay by two addresses had a path over one of them alone: the labels were
/// those of the association that had registered them last.
#[test]
fn associations_of_one_connection_share_its_labels() {
    let at_relay = |local: &str| {
        let local = Some(local.parse().unwrap());
        DatagramPlace { local, ..place(NEAR) }
    };
    let [first, second] = ["192.0.2.1", "192.0.2.2"].map(at_relay);
    let mut labels = table();
    labels.associate(('a', 'a'), (2, &SECRET), to(FAR)).unwrap();
    labels.register(2, &[10, 11, 14].map(pair)).unwrap();
    labels.register(1, &[pair(14)]).unwrap();
    assert_eq!(labels.counts(), (2, 5), "each pair is one");
    bind_at(&mut labels, at(0), 1, first);
    bind_at(&mut labels, at(0), 2, second);
    for (label, from) in [(20, first), (22, second), (22, first), (28, first), (28, second)] {
        goes_there_and_back(&mut labels, at(1), label, from);
    }
    // What they do not share has its own routes alone.
    assert_eq!(goes_to(labels.handle_datagram(at(1), second, &packet(24, 100))), None);
    // The one that had the pairs ends: the other one has those that it has registered.
    labels.dissociate(1);
    assert_eq!(labels.counts(), (1, 3));
    for label in [20, 22, 28] {
        goes_there_and_back(&mut labels, at(2), label, second);
        assert_eq!(goes_to(labels.handle_datagram(at(2), first, &packet(label, 100))), None);
    }
    labels.retire(2, &[20]);
    assert_eq!(goes_to(labels.handle_datagram(at(3), second, &packet(20, 100))), None);
    labels.dissociate(2);
    assert!(labels.ways.is_empty() && labels.keys.is_empty() && labels.pairs == 0);
}

/// A label that both have registered leads nowhere once both have retired it, and counts once.
#[test]
fn a_shared_label_is_there_until_all_have_retired_it() {
    for order in [[1, 2], [2, 1]] {
        let mut labels = table();
        labels.associate(('a', 'a'), (2, &SECRET), to(FAR)).unwrap();
        labels.register(2, &[pair(10)]).unwrap();
        let other = "198.51.100.2:4000";
        bind_at(&mut labels, at(0), 1, place(NEAR));
        bind_at(&mut labels, at(0), 2, place(other));
        let [kept, _] = order.map(|id| if id == 1 { other } else { NEAR });
        labels.retire(order[0], &[20]);
        assert_eq!(labels.counts(), (2, 4));
        goes_there_and_back(&mut labels, at(1), 20, place(kept));
        labels.retire(order[1], &[20]);
        assert_eq!(labels.counts(), (2, 3));
        assert_eq!(sent(&mut labels, at(2), kept, 20), None);
    }
}

/// The control connection of the one that has the pairs is lost, and made anew.
#[test]
fn an_association_that_takes_labels_over_shares_them_with_the_same_ones() {
    let other = "198.51.100.2:4000";
    let mut labels = table();
    labels.associate(('a', 'a'), (2, &SECRET), to(FAR)).unwrap();
    labels.register(2, &[pair(10)]).unwrap();
    bind_at(&mut labels, at(0), 2, place(other));
    labels.handle_orphaned(at(0), 1);
    labels.associate(('a', 'a'), (3, &SECRET), to(FAR)).unwrap();
    labels.register(3, &[10, 11].map(pair)).unwrap();
    bind_at(&mut labels, at(1), 3, place(NEAR));
    for from in [NEAR, other] {
        goes_there_and_back(&mut labels, at(2), 20, place(from));
    }
    labels.handle_deadline(at(30_000));
    assert_eq!(labels.counts(), (2, 2));
}

/// To other destinations, and of other hosts, they are shared with nobody; with one to the same
/// destination fifteen others share them.
#[test]
fn labels_are_shared_by_few_of_one_host_to_one_destination() {
    let mut labels = table();
    labels.associate(('b', 'b'), (2, &SECRET), to(FAR)).unwrap();
    assert_eq!(labels.register(2, &[pair(10)]), Err(LabelError::Taken));
    for id in 1_003..1_030 {
        labels.associate(('a', 'a'), (id, &SECRET), to(FAR)).unwrap();
        labels.register(id, &[10, 11].map(pair)).unwrap();
        let mut pairs = labels.associations.values().flat_map(|one| one.pairs.values());
        assert!(pairs.all(|pair| pair.kin.len() <= 15));
        assert_eq!(labels.counts().1, 4);
    }
    labels.associate(('a', 'a'), (1_030, &SECRET), to(ELSEWHERE)).unwrap();
    labels.register(1_030, &[pair(11)]).unwrap();
    let other = "198.51.100.2:4000";
    bind_at(&mut labels, at(0), 1, place(NEAR));
    bind_at(&mut labels, at(0), 1_003, place(other));
    for from in [NEAR, other] {
        assert_eq!(sent(&mut labels, at(1), from, 22), None, "it has gone to the other one");
    }
    assert_eq!(sent(&mut labels, at(1), NEAR, 24).as_deref(), Some(FAR));
}
