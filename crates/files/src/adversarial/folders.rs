//! A peer with a right to the shared folder prepares it for the peers whose folders lie below.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use tokio::time::timeout;

use super::{Host, PATIENCE, Scratch, on_loopback};
use crate::rights::RIGHTS;
use crate::{Error, ServeOptions};
use events::{Events, Summary};
use peer::{AuthorizedPeers, Identity, May, Peer, Rights, Token};

async fn send(host: &Host, me: &Identity, source: &Path) -> Result<Summary, Error> {
    let mut options = host.honest_options(vec![source.to_path_buf()]);
    options.transfer.dial.identity = me.clone();
    let events = Events::new();
    timeout(PATIENCE, crate::send(options, events)).await.expect("it ends")
}

fn with_folder(me: &Identity, directory: &Path) -> Peer {
    let rights = Rights::from(May::Both).with(&RIGHTS[0], &directory.display().to_string());
    Peer { rights: rights.unwrap(), ..Peer::from(me.fingerprint()) }
}

/// Anna may send into the shared folder. She sends links in the places of the others' folders.
#[tokio::test(flavor = "multi_thread")]
async fn a_peers_link_does_not_lead_another_peer_out_of_the_folder() {
    let scratch = Scratch::new("peers-link");
    let (outside, data, links) =
        (scratch.0.join("outside"), scratch.0.join("data"), scratch.0.join("links"));
    fs::create_dir_all(&outside).unwrap();
    fs::create_dir_all(&links).unwrap();
    fs::write(&data, "data").unwrap();
    for name in ["photos", "deep"] {
        symlink(&outside, links.join(name)).unwrap();
    }
    let [anna, bert, carl, dora, emil] = [(); 5].map(|()| Identity::generate().unwrap());
    let authorized = vec![
        Peer::from(anna.fingerprint()),
        with_folder(&bert, Path::new("photos")),
        with_folder(&carl, Path::new("deep/folder/of-carl")),
        with_folder(&dora, &links.join("photos")),
        with_folder(&emil, Path::new("./his//own/")),
    ];
    let host = Host::start_knowing(&scratch, authorized).await;
    send(&host, &anna, &links.join("")).await.expect("links are sent as links");
    assert!(scratch.0.join("in/photos").is_symlink());
    for (who, folder, link) in
        [(&bert, "dir=photos", "photos is"), (&carl, "dir=deep/folder/of-carl", "deep is")]
    {
        let error = send(&host, who, &data).await.expect_err(folder).to_string();
        for part in [folder, link, "a symbolic link", "absolute path"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "{folder}");
    }
    // A path that leads nowhere else is made, and an absolute one is the administrator's word.
    send(&host, &emil, &data).await.expect("it is his own");
    assert_eq!(fs::read(scratch.0.join("in/his/own/data")).unwrap(), b"data");
    send(&host, &dora, &data).await.expect("the administrator named it");
    assert_eq!(fs::read(outside.join("data")).unwrap(), b"data");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_served_folder_of_a_peer_is_not_reached_through_a_link() {
    let scratch = Scratch::new("served-link");
    let (root, outside) = (scratch.0.join("in"), scratch.0.join("outside"));
    fs::create_dir_all(outside.join("folder")).unwrap();
    symlink(&outside, root.join("photos")).unwrap();
    let (identity, anna) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let token = Token::generate(&identity).unwrap();
    for (directory, words) in [
        ("photos", "photos is a symbolic link"),
        ("photos/folder", "photos is a symbolic link"),
        ("nothing", "nothing"),
    ] {
        let mut listen = on_loopback(&identity, &token);
        listen.authorized = AuthorizedPeers::new(vec![with_folder(&anna, Path::new(directory))]);
        let options = ServeOptions { directory: root.clone(), listen, once: true, meetings: None };
        let events = Events::new();
        let serving = timeout(PATIENCE, crate::serve(options, events)).await;
        let error = serving.expect("it does not start").expect_err(directory).to_string();
        assert!(error.contains(words) && error.contains(directory), "{directory}: {error}");
    }
}

/// No line of the list of peers has such a word.
#[test]
fn a_relative_folder_of_a_peer_does_not_lead_up() {
    for path in ["..", "../beside", "a/../../beside", "a/.anabranch-partial"] {
        let refused = Rights::default().with(&RIGHTS[0], path);
        assert!(refused.is_err(), "{path}");
    }
}
