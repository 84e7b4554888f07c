//! Connections for tests.

use peer::tls::{ClientTls, ServerTls};
use peer::{Conn, Identity};
use tokio::net::{TcpListener, TcpStream};

/// Both ends of a connection over loopback: the one that dialed, and the one that listened.
pub(super) async fn connected() -> (Conn, Conn) {
    let (here, there) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let dialing = async {
        let stream = TcpStream::connect(address).await.unwrap();
        let tls = ClientTls::new(&here, there.fingerprint()).unwrap();
        let mut conn = Conn::new(Box::new(stream), tls.connection().unwrap());
        conn.handshake().await.unwrap();
        conn
    };
    let listening = async {
        let (stream, _) = listener.accept().await.unwrap();
        let tls = ServerTls::new(&there).unwrap();
        let mut conn = Conn::new(Box::new(stream), tls.connection().unwrap());
        conn.handshake().await.unwrap();
        conn
    };
    tokio::join!(dialing, listening)
}
