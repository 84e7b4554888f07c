//! What a stranger says once TLS is done, to the admission of a listening host. The test
//! `fuzz_seeds` of the crate `peer` runs it on all seeds.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use events::Events;
use peer::host::{Asking, Entry, Hosting, Service, Services, serve_at};
use peer::tls::ClientTls;
use peer::{Conn, Fingerprint, Identity, ListenOptions};
use tokio::runtime::Runtime;
use wire::session::SessionId;

/// The secret and the session in the seeds.
const SECRET: [u8; 16] = [7; 16];
const SESSION: SessionId = [1; 16];
/// The host notices the end of the stream long before its own deadlines.
const PATIENCE: Duration = Duration::from_secs(5);

/// A listening host, and the key of those who visit it.
struct Host {
    address: SocketAddr,
    tls: ClientTls,
    _hosting: Hosting,
    _runtime: Runtime,
}

/// A service with one session. Whoever shows the secret may open another.
struct Visits;

impl Service for Visits {
    type Session = ();
    type Grant = ();

    fn name(&self) -> &'static str {
        "visits"
    }

    fn does(&self) -> &'static str {
        "takes visits"
    }

    fn find(&self, id: SessionId, _peer: Fingerprint) -> Option<()> {
        (id == SESSION).then_some(())
    }

    fn authorize(&self, asking: &Asking<'_>) -> Result<(), String> {
        if asking.hello.secret == Some(SECRET) { Ok(()) } else { Err("it knows no secret".into()) }
    }

    async fn serve(self: Arc<Self>, mut conn: Conn, _entry: Entry<Self>, _from: SocketAddr) {
        while conn.receive(|_| Ok(())).await.is_ok() {}
    }
}

impl Host {
    fn start() -> Host {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let (here, visitor) = (identity(), identity());
        let tls = ClientTls::new(&visitor, here.fingerprint()).expect("a client");
        let entered = runtime.enter();
        let local = "127.0.0.1:0".parse().expect("an address");
        let listeners = peer::listen::listen(&[local], 0).expect("it listens");
        let address = listeners[0].local_addr().expect("an address");
        let listeners = listeners.into_iter().map(|listener| Box::new(listener) as Box<_>);
        let services = Services::new().with(&Arc::new(Visits));
        let options = ListenOptions::new(here);
        let hosting = serve_at(listeners.collect(), services, options, Events::new());
        let hosting = hosting.expect("it accepts");
        drop(entered);
        Host { address, tls, _hosting: hosting, _runtime: runtime }
    }

    /// Says `data` after the handshake, and waits until the host closes the connection.
    fn visit(&self, data: &[u8]) {
        let mut stream = TcpStream::connect(self.address).expect("it is there");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut tls = self.tls.connection().expect("a connection");
        while tls.is_handshaking() {
            tls.complete_io(&mut stream).expect("every stranger gets through the handshake");
        }
        tls.writer().write_all(data).expect("the buffer has no limit");
        tls.send_close_notify();
        // The host may refuse the rest.
        while tls.wants_write() && tls.write_tls(&mut stream).is_ok() {}
        let _ = stream.shutdown(Shutdown::Write);
        let mut rest = [0; 4_096];
        loop {
            match stream.read(&mut rest) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    panic!("the host holds the connection")
                }
                // Closed with bytes that it has not read.
                Err(_) => return,
            }
        }
    }
}

fn identity() -> Identity {
    Identity::generate().expect("a key")
}

/// A stranger's bytes after TLS: the host closes the connection, and is there for the next one.
pub fn admission(data: &[u8]) {
    static HOST: LazyLock<Host> = LazyLock::new(Host::start);
    HOST.visit(data);
}
