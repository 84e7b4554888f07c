//! What a receiver over TCP knows of its senders' efforts, which decides its place at the disk.

use std::path::Path;
use std::sync::Arc;

use peer::host::{Hosting, Services};
use peer::tls::ClientTls;
use peer::{Conn, Credential, Identity, ListenOptions, Remote, Token};
use rustls::{ClientConfig, ClientConnection};
use stripe::Effort;
use tokio::net::TcpStream;
use wire::files::{FileFrame, Wishes};
use wire::manifest::{Entry, File, Kind, chunks};
use wire::session::{Hello, PROTOCOL, SessionFrame};

use super::*;
use crate::sink::tests::Scratch;
use crate::{Overwrite, Selection, SendOptions, TransferOptions};

/// A receiver on loopback, with its token.
struct Open {
    receiving: Receiving,
    _hosting: Hosting,
    port: u16,
    identity: Identity,
    token: Token,
}

impl Open {
    fn at(directory: &Path) -> Open {
        let identity = Identity::generate().unwrap();
        let token = Token::generate(&identity).unwrap();
        let listen = ListenOptions {
            addresses: vec!["127.0.0.1:0".parse().unwrap()],
            port: 0,
            token: Some(token.clone()),
            ..ListenOptions::new(identity.clone())
        };
        let options = ReceiveOptions {
            directory: directory.into(),
            output: None,
            listen,
            keep: true,
            parallel: 1,
            timeout: None,
            overwrite: Overwrite::OnRequest,
            allow_delete: false,
            archive: false,
            meetings: None,
        };
        let events = Events::new();
        let host = crate::listen::open(&options.listen, &events).unwrap();
        let port = host.addresses()[0].port();
        let receiving = Receiving::of(options, events, &TransferNumbers::default()).unwrap();
        let hosting = host.serve(receiving.joins(Services::new())).unwrap();
        Open { receiving, _hosting: hosting, port, identity, token }
    }

    /// Whether the session that opens next is written with idle disk priority.
    async fn steps_back(&self) -> bool {
        let opened = timeout(Duration::from_secs(30), async {
            self.receiving.opening.lock().await.recv().await
        });
        let session = opened.await.expect("it opens").expect("the host lives");
        session.writes.step_back().is_some()
    }

    /// A connection of a sender in the background that offers a file; of this build or an earlier
    /// one.
    async fn offer(&self, is_earlier: bool) -> Conn {
        let own = Identity::generate().unwrap();
        let tls = ClientTls::new(&own, self.identity.fingerprint()).unwrap();
        let mut config: ClientConfig = (**tls.config()).clone();
        if is_earlier {
            config.alpn_protocols = vec![PROTOCOL.to_vec()];
        }
        let mut tls =
            ClientConnection::new(Arc::new(config), "anabranch".try_into().unwrap()).unwrap();
        tls.set_buffer_limit(None);
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let mut conn = Conn::new(Box::new(stream), tls.into());
        conn.handshake().await.unwrap();
        let hello = Hello::new(wire::files::RECEIVE, Some(*self.token.secret()), [0; 16]);
        conn.push(&SessionFrame::Hello(hello.asking(Wishes::default().emit())));
        conn.tell_effort(Effort::Lower);
        let file = File { size: 10, mtime: 0, mode: 0o644, hash: None, data: None };
        let entries = [Entry { path: b"offered".to_vec(), kind: Kind::File(file) }];
        for chunk in chunks(&entries) {
            conn.push(&FileFrame::Entries(&chunk));
        }
        conn.push(&FileFrame::ManifestEnd(1));
        conn.flush().await.unwrap();
        conn
    }
}

#[tokio::test]
async fn a_sender_in_the_background_over_tcp_has_its_files_written_so() {
    let folder = Scratch::new("told");
    std::fs::write(folder.0.join("data"), vec![7; 100_000]).unwrap();
    for effort in [Effort::Lower, Effort::Usual] {
        let target = folder.0.join(format!("{effort:?}"));
        std::fs::create_dir(&target).unwrap();
        let open = Open::at(&target);
        let mut options = TransferOptions::new(Identity::generate().unwrap());
        options.dial.effort = effort;
        let options = SendOptions {
            sources: vec![folder.0.join("data")],
            stream: None,
            spool: None,
            rename: None,
            selection: Selection::default(),
            to: Remote { host: "127.0.0.1".into(), zone: None, port: open.port },
            credential: Credential::Token(open.token.clone()),
            transfer: options,
        };
        let sending = tokio::spawn(crate::send(options, Events::new()));
        assert_eq!(open.steps_back().await, effort == Effort::Lower, "{effort:?}");
        sending.abort();
    }
}

#[tokio::test]
async fn a_sender_of_an_earlier_build_is_understood_as_ever() {
    for is_earlier in [false, true] {
        let folder = Scratch::new(&format!("earlier-{is_earlier}"));
        let open = Open::at(&folder.0);
        let _conn = open.offer(is_earlier).await;
        assert_eq!(open.steps_back().await, !is_earlier);
    }
}
