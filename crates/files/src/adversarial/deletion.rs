//! A sender that wants deleted what is not its own.

use std::fs;
use std::os::unix::fs::symlink;

use wire::files::FileFrame;
use wire::files::Wishes;
use wire::manifest::Kind;
use wire::session::{AbortCode, Hello, SessionFrame};

use super::{Host, Scratch, answer, chunk, entry};

#[tokio::test(flavor = "multi_thread")]
async fn a_sender_has_nothing_deleted_outside_the_folder() {
    let scratch = Scratch::new("deletion");
    let (inside, outside) = (scratch.0.join("in"), scratch.0.join("outside"));
    fs::create_dir_all(inside.join("folder")).unwrap();
    fs::create_dir_all(outside.join("deeper")).unwrap();
    fs::write(outside.join("deeper/precious"), "x").unwrap();
    symlink(&outside, inside.join("link")).unwrap();
    symlink(&outside, inside.join("folder/link")).unwrap();
    let host = Host::start(&scratch).await;
    let wishes = Wishes { delete: true, force_delete: true, ..Wishes::default() };
    let hello =
        Hello::new(wire::files::RECEIVE, Some(*host.token.secret()), [0; 16]).asking(wishes.emit());
    let folder = entry(b"mine", Kind::Directory { mtime: 0, mode: 0o755 });
    let manifest = chunk(std::slice::from_ref(&folder));
    for (mirror, is_plain) in [
        (&b".."[..], false),
        (b"../outside", false),
        (b"/", false),
        (b"folder/../../outside", false),
        (b".anabranch-partial", false),
        (b"link", true),
        (b"link/deeper", true),
        (b"folder/link", true),
        (b"gone", true),
        (b"folder", true),
        (b"", true),
    ] {
        let mut conn = host.connect(&host.sender).await;
        conn.push(&SessionFrame::Hello(hello.clone()));
        conn.push(&FileFrame::Entries(&manifest));
        conn.push(&FileFrame::Mirror(mirror));
        conn.push(&FileFrame::ManifestEnd(1));
        let (_, abort) = answer(&mut conn).await.expect("it answers");
        let is_refused = matches!(&abort, Some((AbortCode::Protocol, _)));
        assert!(is_refused != is_plain, "{}: {abort:?}", mirror.escape_ascii());
        if is_plain {
            let (done, _) = answer(&mut conn).await.expect("it is complete");
            assert_eq!(done, "Done", "{}", mirror.escape_ascii());
        }
    }
    // The last session has deleted all of the folder, and has not followed the links in it.
    assert!(!inside.join("folder").exists() && !inside.join("link").is_symlink());
    assert!(outside.join("deeper/precious").exists());
}
