//! Sockets that take records.

use events::EventId;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UnixStream};
use wire::feed::Records;

use super::*;

type Pieces = mpsc::Receiver<io::Result<Piece>>;

async fn listening(at: &str, form: Form) -> (Listen, Pieces, Events) {
    let listener = Listener::bind(&at.parse().unwrap()).await.unwrap();
    let (at, events) = (listener.at.clone(), Events::new());
    let (sender, pieces) = mpsc::channel(4);
    tokio::spawn(listener.run(form, sender, (events.clone(), Dropped::default())));
    (at, pieces, events)
}

/// The next records, as text.
async fn records(pieces: &mut Pieces, count: usize) -> Vec<String> {
    let mut all = Vec::new();
    while all.len() < count {
        let piece = pieces.recv().await.unwrap().unwrap();
        let Piece::Records(body) = piece else { panic!("only records are handed over") };
        let text = |record: &[u8]| String::from_utf8(record.to_vec()).unwrap();
        all.extend(Records::of(0, &body).unwrap().iter().map(text));
    }
    all
}

fn tcp(at: &Listen) -> SocketAddr {
    match at {
        Listen::Tcp(address) | Listen::Udp(address) => *address,
        _ => panic!("it has a port"),
    }
}

#[test]
fn places_are_written_as_they_are_read() {
    for (text, same) in [
        ("tcp:5140", "tcp:127.0.0.1:5140"),
        ("udp:[::1]:514", "udp:[::1]:514"),
        ("unix:/run/a b", "unix:/run/a b"),
        ("unixgram:log", "unixgram:log"),
    ] {
        assert_eq!(text.parse::<Listen>().unwrap().to_string(), same);
    }
    for wrong in ["5140", "tcp:", "tcp:70000", "udp:host:5140", "unix:", "sctp:1"] {
        assert!(wrong.parse::<Listen>().is_err(), "{wrong}");
    }
}

#[tokio::test]
async fn records_of_connections_stay_whole() {
    let (at, mut pieces, _) = listening("tcp:0", Form::Lines).await;
    let mut one = TcpStream::connect(tcp(&at)).await.unwrap();
    let mut two = TcpStream::connect(tcp(&at)).await.unwrap();
    one.write_all(b"fir").await.unwrap();
    two.write_all(b"second\n").await.unwrap();
    assert_eq!(records(&mut pieces, 1).await, ["second"]);
    one.write_all(b"st\n\nthe last").await.unwrap();
    drop(one);
    assert_eq!(records(&mut pieces, 3).await, ["first", "", "the last"]);
}

#[tokio::test]
async fn a_connection_with_a_wrong_length_ends_and_others_go_on() {
    let (at, mut pieces, events) = listening("tcp:0", Form::Counted).await;
    let mut one = TcpStream::connect(tcp(&at)).await.unwrap();
    let mut two = TcpStream::connect(tcp(&at)).await.unwrap();
    one.write_all(b"2 ok3 now<13>no").await.unwrap();
    assert_eq!(records(&mut pieces, 2).await, ["ok", "now"]);
    assert_eq!(one.read(&mut [0; 1]).await.unwrap(), 0, "it is closed");
    two.write_all(b"11 two\nof lines").await.unwrap();
    two.write_all(b"4 cut").await.unwrap();
    drop(two);
    assert_eq!(records(&mut pieces, 1).await, ["two\nof line"]);
    let said = format!("{:?}", events.since(EventId(0)));
    assert!(said.contains("octet 9: the length of a record"), "{said}");
}

#[tokio::test]
async fn a_datagram_is_a_record_or_several_lines() {
    let (at, mut pieces, _) = listening("udp:0", Form::Lines).await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for datagram in ["<13>one\n", "two", "three\nfour"] {
        socket.send_to(datagram.as_bytes(), tcp(&at)).await.unwrap();
    }
    assert_eq!(records(&mut pieces, 4).await, ["<13>one", "two", "three", "four"]);
    let (at, mut pieces, _) = listening("udp:0", Form::Counted).await;
    socket.send_to(b"7 as it is\n", tcp(&at)).await.unwrap();
    assert_eq!(records(&mut pieces, 1).await, ["7 as it is\n"]);
}

#[tokio::test]
async fn a_socket_that_is_left_is_taken_over_and_one_in_use_is_not() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("log");
    for kind in ["unix", "unixgram"] {
        let at = format!("{kind}:{}", path.display());
        // As a process that was killed leaves it.
        if kind == "unix" {
            drop(UnixListener::bind(&path).unwrap());
        } else {
            drop(UnixDatagram::bind(&path).unwrap());
        }
        let (_, mut pieces, _) = listening(&at, Form::Lines).await;
        let error = Listener::bind(&at.parse().unwrap()).await.err().unwrap().to_string();
        assert!(error.contains("another process listens there"), "{error}");
        if kind == "unix" {
            let mut stream = UnixStream::connect(&path).await.unwrap();
            stream.write_all(b"line\n").await.unwrap();
        } else {
            UnixDatagram::unbound().unwrap().send_to(b"line", &path).await.unwrap();
        }
        assert_eq!(records(&mut pieces, 1).await, ["line"]);
        drop(pieces);
        while path.exists() {
            sleep(Duration::from_millis(1)).await;
        }
    }
    fs::write(&path, "").unwrap();
    let at = format!("unix:{}", path.display()).parse().unwrap();
    let error = Listener::bind(&at).await.err().unwrap().to_string();
    assert!(error.contains("which is no socket") && path.exists(), "{error}");
}

/// A stranger who opens connections and says nothing costs what that many hold, and keeps
/// nobody out who came before.
#[tokio::test]
async fn connections_are_bounded() {
    let (at, mut pieces, _) = listening("tcp:0", Form::Lines).await;
    let mut open = Vec::new();
    for _ in 0..=LOCAL_CONNECTIONS {
        open.push(TcpStream::connect(tcp(&at)).await.unwrap());
    }
    let mut last = open.pop().unwrap();
    last.write_all(b"last\n").await.unwrap();
    open[0].write_all(b"first\n").await.unwrap();
    assert_eq!(records(&mut pieces, 1).await, ["first"]);
    assert!(pieces.try_recv().is_err(), "the last one has no place");
    drop(open.remove(1));
    assert_eq!(records(&mut pieces, 1).await, ["last"]);
}

#[tokio::test(start_paused = true)]
async fn troubles_are_told_once_in_a_while() {
    let events = Events::new();
    let troubles = Troubles::new("tcp:1".into(), events.clone());
    let told: Vec<bool> = (0..100).map(|_| troubles.tell("no")).collect();
    assert_eq!(told.iter().filter(|told| **told).count(), 1);
    sleep(QUIET).await;
    assert!(troubles.tell("still no"));
    let said = format!("{:?}", events.since(EventId(0)));
    assert!(said.contains("tcp:1: still no; 99 such messages before were left out"), "{said}");
}
