//! Tickets of a relay for a program that measures it: `relay_tickets KEY RELAY FINGERPRINT TARGET`
//! prints as many as each line of standard input says, in hexadecimal, one a line.
//!
//! KEY is the file of this host's key, which is made if there is none; without further words its
//! fingerprint is printed.

use std::env;
use std::error::Error;
use std::io::{self, BufRead};
use std::path::Path;

use peer::tls::ClientTls;
use peer::{Conn, Identity};
use reach::parse_target;
use tokio::net::TcpStream;
use wire::relay::{MOST_TICKETS, RelayFrame, SERVICE, Wish};
use wire::session::{Hello, SessionFrame};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let own = Identity::load_or_generate(Path::new(words.first().ok_or("no key")?))?;
    let [_, relay, fingerprint, target] = &words[..] else {
        println!("{}", own.fingerprint());
        return Ok(());
    };
    let target = parse_target(target)?;
    let stream = TcpStream::connect(relay).await?;
    let tls = ClientTls::new(&own, fingerprint.parse()?)?;
    let mut conn = Conn::new(Box::new(stream), tls.connection()?);
    conn.handshake().await?;
    conn.push(&SessionFrame::Hello(Hello::new(SERVICE, None, peer::random()?)));
    conn.push(&SessionFrame::Pong(0));
    for line in io::stdin().lock().lines() {
        let mut wanted: usize = line?.trim().parse()?;
        while wanted > 0 {
            let count = u8::try_from(wanted.min(MOST_TICKETS))?;
            conn.push(&RelayFrame::Wish(Wish { number: 1, count, target: target.clone() }));
            conn.flush().await?;
            let issued = loop {
                let told = conn.receive(|frame| match RelayFrame::try_from(frame)? {
                    RelayFrame::Tickets(issued) => Ok(Some(Ok(issued.tickets))),
                    RelayFrame::Denied(_, reason) => Ok(Some(Err(reason.text))),
                    RelayFrame::Session(SessionFrame::Abort(_, why)) => Ok(Some(Err(why))),
                    _ => Ok(None),
                });
                if let Some(issued) = told.await? {
                    break issued?;
                }
            };
            for ticket in issued {
                println!("{:032x}", u128::from_be_bytes(*ticket.octets()));
                wanted -= 1;
            }
        }
    }
    Ok(())
}
