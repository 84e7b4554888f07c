//! Metrics of a host by HTTP, for Prometheus.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::pending;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use events::Events;
use files::Error;
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use peer::metrics::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

/// Where metrics are served: a port alone is one of loopback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MetricsAddress(pub(crate) SocketAddr);

/// The one page.
const PATH: &str = "/metrics";
/// The most connections at a time; a further one takes the place of the oldest.
const MOST_CONNECTIONS: usize = 16;
/// The time of a connection, with its one request.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most bytes of a request's head.
const MOST_HEAD: usize = 16 << 10;
/// The pause when no connection can be accepted, for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

impl FromStr for MetricsAddress {
    type Err = String;

    /// `9707`, `192.0.2.1:9707`, `[2001:db8::1]:9707`.
    fn from_str(text: &str) -> Result<MetricsAddress, String> {
        if let Ok(port) = text.parse::<u16>() {
            return Ok(MetricsAddress::from(port));
        }
        let address = text.parse().map(MetricsAddress);
        address.map_err(|_| format!("'{text}' is neither PORT nor ADDRESS:PORT"))
    }
}

impl From<u16> for MetricsAddress {
    fn from(port: u16) -> MetricsAddress {
        MetricsAddress(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
    }
}

/// Serves the figures of a host and says where, if that is wanted; it never ends.
pub(crate) async fn serve(
    server: Option<MetricsServer>,
    registry: Registry,
    events: &Events,
) -> Infallible {
    match server {
        Some(server) => {
            events.notice(format!("metrics are at {}", server.url()));
            server.serve(registry).await
        }
        None => pending().await,
    }
}

/// A server of metrics.
pub(crate) struct MetricsServer(TcpListener);

impl MetricsServer {
    /// Listens at that address alone.
    ///
    /// # Errors
    /// [`Error::System`], with whoever has the port if it is taken.
    pub(crate) fn bind(MetricsAddress(address): MetricsAddress) -> Result<MetricsServer, Error> {
        let listener = peer::listen::listen(&[address], 0)
            .map_err(|error| Error::system(format!("serve metrics at {address}"), error.source))?;
        Ok(MetricsServer(listener.into_iter().next().expect("one for each address")))
    }

    /// The URL of the page.
    fn url(&self) -> String {
        self.0
            .local_addr()
            .map_or_else(|_| PATH.into(), |address| format!("http://{address}{PATH}"))
    }

    /// Answers until it is dropped.
    async fn serve(self, registry: Registry) -> Infallible {
        let registry = Arc::new(registry);
        let mut tasks = JoinSet::new();
        let mut open: VecDeque<AbortHandle> = VecDeque::new();
        loop {
            let stream = match self.0.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::debug!(%error, "no connection for metrics");
                    sleep(PAUSE).await;
                    continue;
                }
            };
            while tasks.try_join_next().is_some() {}
            open.retain(|task| !task.is_finished());
            if open.len() >= MOST_CONNECTIONS
                && let Some(oldest) = open.pop_front()
            {
                oldest.abort();
            }
            open.push_back(tasks.spawn(attend(stream, Arc::clone(&registry))));
        }
    }
}

/// Answers the one request of a connection.
async fn attend(stream: TcpStream, registry: Arc<Registry>) {
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let answer = answer(&registry, request.method(), request.uri().path());
        std::future::ready(Ok::<_, Infallible>(answer))
    });
    let serving = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(MOST_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    match timeout(PATIENCE, serving).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "no request for metrics"),
        Err(_) => tracing::debug!("a request for metrics took too long"),
    }
}

fn answer(registry: &Registry, method: &Method, path: &str) -> Response<String> {
    let mut response = Response::new(String::new());
    if path != PATH {
        *response.status_mut() = StatusCode::NOT_FOUND;
        *response.body_mut() = format!("there is only {PATH} here\n");
    } else if method != Method::GET && method != Method::HEAD {
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        response.headers_mut().insert(ALLOW, "GET, HEAD".parse().expect("it is plain text"));
    } else {
        let content_type = peer::metrics::CONTENT_TYPE.parse().expect("it is plain text");
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        *response.body_mut() = peer::metrics::text(registry);
    }
    response
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn a_port_alone_is_one_of_loopback() {
        let parsed = |text: &str| text.parse::<MetricsAddress>().map(|address| address.0);
        assert_eq!(parsed("9707"), Ok("127.0.0.1:9707".parse().unwrap()));
        assert_eq!(parsed("[::1]:9"), Ok("[::1]:9".parse().unwrap()));
        assert_eq!(parsed("0.0.0.0:9"), Ok("0.0.0.0:9".parse().unwrap()));
        for wrong in ["", ":9", "localhost:9", "127.0.0.1", "65536", "-1"] {
            let why = parsed(wrong).unwrap_err();
            assert!(why.contains("neither PORT nor ADDRESS:PORT"), "{why}");
        }
    }

    #[test]
    fn there_is_one_page_to_read() {
        let registry = Registry::default();
        let status = |method, path| answer(&registry, &method, path).status().as_u16();
        assert_eq!(status(Method::GET, "/metrics"), 200);
        assert_eq!(status(Method::HEAD, "/metrics"), 200);
        assert_eq!(status(Method::POST, "/metrics"), 405);
        for path in ["/", "/metrics/", "/metrics/x", "//metrics", "/Metrics"] {
            assert_eq!(status(Method::GET, path), 404, "{path}");
        }
    }

    /// Connections that say nothing, or too much, leave others their turn.
    #[tokio::test]
    async fn silent_readers_of_metrics_keep_nobody_out() {
        let server = MetricsServer::bind(MetricsAddress::from(0)).unwrap();
        let address = server.0.local_addr().unwrap();
        let _serving = tokio::spawn(server.serve(Registry::default()));
        let mut silent = Vec::new();
        for _ in 0..4 * MOST_CONNECTIONS {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let mut long = TcpStream::connect(address).await.unwrap();
        let _ = long.write_all(&vec![b'x'; 4 * MOST_HEAD]).await;
        let mut reader = TcpStream::connect(address).await.unwrap();
        reader.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut said = String::new();
        let read = reader.read_to_string(&mut said);
        timeout(Duration::from_secs(5), read).await.unwrap().unwrap();
        assert!(said.starts_with("HTTP/1.1 200"), "{said}");
        assert!(said.contains("application/openmetrics-text") && said.ends_with("# EOF\n"));
        let mut octet = [0];
        let ended = timeout(Duration::from_secs(5), silent[0].read(&mut octet)).await;
        assert!(matches!(ended, Ok(Ok(0) | Err(_))), "the oldest has given way");
    }
}
