//! Hostile receivers.

use events::Events;
use std::fs;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::timeout;
use wire::RawFrame;
use wire::files::FileFrame;
use wire::files::Range;
use wire::session::{AbortCode, Hello, SessionFrame, VERSION, Welcome};

use super::{Scratch, send_options};
use crate::Error;
use peer::tls::ServerTls;
use peer::{Conn, ConnError};
use peer::{Identity, Token};

/// The sender's error for a receiver that answers its manifest with these frames.
async fn answered(name: &str, pings: u32, frames: Vec<FileFrame<'static>>) -> Error {
    let scratch = Scratch::new(name);
    fs::write(scratch.0.join("data"), vec![7; 10_000]).unwrap();
    let identity = Identity::generate().unwrap();
    let token = Token::generate(&identity).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let tls = ServerTls::new(&identity).unwrap();
    let lying = tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else { return };
            let mut conn = Conn::new(Box::new(stream), tls.connection().unwrap());
            let serve = async {
                conn.handshake().await?;
                // It never accepts a join.
                let hello = conn
                    .receive(|frame| {
                        Ok(matches!(
                            FileFrame::try_from(frame)?,
                            FileFrame::Session(SessionFrame::Hello(_))
                        ))
                    })
                    .await?;
                if !hello {
                    return Err(ConnError::Closed);
                }
                let welcome = Welcome { version: VERSION, session: [1; 16], addresses: Vec::new() };
                conn.push(&SessionFrame::Welcome(welcome));
                conn.flush().await?;
                let end = |frame: RawFrame<'_>| match FileFrame::try_from(frame)? {
                    FileFrame::Session(SessionFrame::Join(_)) => Err(ConnError::Closed),
                    frame => Ok(matches!(frame, FileFrame::ManifestEnd(_))),
                };
                while !conn.receive(end).await? {}
                for _ in 0..pings {
                    conn.push(&SessionFrame::Ping(0));
                    conn.flush().await?;
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
                for frame in &frames {
                    conn.push(frame);
                }
                conn.flush().await?;
                while conn.receive(|_| Ok(())).await.is_ok() {}
                Ok::<(), ConnError>(())
            };
            let _ = serve.await;
        }
    });
    let options = send_options(vec![scratch.0.join("data")], port, &token);
    let events = Events::new();
    let sent = timeout(Duration::from_secs(30), crate::send(options, events))
        .await
        .unwrap_or_else(|_| panic!("{name} does not end"));
    lying.abort();
    sent.expect_err("it cannot succeed")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_lies_gets_nothing_done() {
    let want = || FileFrame::Want(vec![Range { start: 0, len: 1 }]);
    let cases: Vec<(&str, Vec<FileFrame<'static>>)> = vec![
        ("wants-more", vec![FileFrame::Want(vec![Range { start: 0, len: 2 }]), FileFrame::Ready]),
        (
            "wants-far",
            vec![FileFrame::Want(vec![Range { start: 1 << 60, len: 1 }]), FileFrame::Ready],
        ),
        (
            "acks-early",
            vec![
                want(),
                FileFrame::Ready,
                FileFrame::Ack(vec![Range { start: 1 << 30, len: 4_096 }]),
            ],
        ),
        (
            "grants-nothing",
            vec![
                want(),
                FileFrame::Grant(0),
                FileFrame::Ready,
                FileFrame::Grant(4_097),
                FileFrame::Ack(vec![Range { start: 0, len: 4_096 }]),
            ],
        ),
        (
            "acks-what-overlaps",
            vec![
                want(),
                FileFrame::Ready,
                FileFrame::Ack(vec![
                    Range { start: 0, len: 8_192 },
                    Range { start: 4_096, len: 1 << 40 },
                ]),
            ],
        ),
        (
            "refuses-far",
            vec![
                want(),
                FileFrame::Ready,
                FileFrame::Refused(Range { start: 1 << 50, len: 262_144 }),
            ],
        ),
        (
            "has-far",
            vec![
                want(),
                FileFrame::Have(vec![Range { start: u64::MAX, len: u64::MAX }]),
                FileFrame::Ready,
            ],
        ),
        ("is-no-receiver", vec![SessionFrame::Hello(Hello::new("receive", None, [0; 16])).into()]),
        ("done-object", vec![want(), FileFrame::Ready, FileFrame::ObjectDone(9, [0; 32])]),
    ];
    for (name, frames) in cases {
        let error = answered(name, 0, frames).await;
        let text = error.to_string();
        assert!(
            [5, 6, 9].contains(&error.exit_code()) && !text.is_empty(),
            "{name}: {} {text}",
            error.exit_code()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_says_it_is_reading_is_waited_for() {
    let began = std::time::Instant::now();
    // Longer than the sender's patience.
    let error = answered(
        "reading",
        8,
        vec![SessionFrame::Abort(AbortCode::Disk, "done reading".into()).into()],
    )
    .await;
    assert!(error.to_string().contains("done reading"), "{error}");
    assert!(began.elapsed() > Duration::from_secs(4));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_agrees_and_says_nothing_is_left() {
    let want = FileFrame::Want(vec![Range { start: 0, len: 1 }]);
    let error = answered("silent", 0, vec![want, FileFrame::Ready]).await;
    assert_eq!(error.exit_code(), 6, "{error}");
}

/// More ranges than blocks: a receiver must not fill the sender's memory before the transfer
/// begins.
#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_has_endless_pieces_is_left() {
    let mut frames = vec![FileFrame::Want(vec![Range { start: 0, len: 1 }])];
    for chunk in 0..64u64 {
        let range = |number: u64| Range { start: (chunk * 4_096 + number) * 2, len: 1 };
        frames.push(FileFrame::Have((0..4_096).map(range).collect()));
    }
    frames.push(FileFrame::Ready);
    let error = answered("endless-have", 0, frames).await;
    assert!(error.to_string().contains("pieces"), "{error}");
}
