//! A running proxy, upstreams that record what they get, and clients that write bytes.

use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::process::Output;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tollkeeper_testkit::http::{Answer, header};
use tollkeeper_testkit::{Service, tollkeeper};

/// Longer than anything here takes, and short enough to wait for if it does not happen.
pub(crate) const SOON: Duration = Duration::from_secs(10);

pub(crate) fn run(args: &[&str]) -> Output {
    tollkeeper(args).output().unwrap()
}

/// A running proxy, stopped when dropped.
pub(crate) struct Proxy(Service);

impl Proxy {
    pub(crate) fn start(upstream: SocketAddr, args: &[&str]) -> Proxy {
        let url = format!("http://{upstream}");
        let free = ["proxy", "--upstream", &url, "--listen", "127.0.0.1:0", "--log", "off"];
        Proxy(Service::start(&[&free, args].concat()))
    }

    /// A proxy whose limits no test reaches.
    pub(crate) fn wide(upstream: SocketAddr) -> Proxy {
        Proxy::start(upstream, &["--limit", "100000/s by global"])
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.http).await.unwrap()
    }

    /// Sends bytes on a new connection and reads until the proxy closes it.
    pub(crate) async fn send(&self, bytes: impl AsRef<[u8]>) -> Answer {
        let mut stream = self.connect().await;
        // The proxy may refuse it while it is being sent.
        let _ = stream.write_all(bytes.as_ref()).await;
        Answer::parse(&read_to_end(&mut stream).await)
    }

    pub(crate) async fn get(&self, path: &str, headers: &str) -> Answer {
        self.send(format!("GET {path} HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n{headers}\r\n")).await
    }

    /// Waits for it to exit after a signal; its exit code.
    pub(crate) async fn ended(mut self) -> Option<i32> {
        tokio::task::spawn_blocking(move || self.wait()).await.unwrap()
    }
}

impl Deref for Proxy {
    type Target = Service;

    fn deref(&self) -> &Service {
        &self.0
    }
}

impl DerefMut for Proxy {
    fn deref_mut(&mut self) -> &mut Service {
        &mut self.0
    }
}

/// A server that records what it gets, by connection.
#[derive(Clone)]
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Vec<u8>>>>,
}

/// An upstream's connection, on which everything read is recorded.
pub(crate) struct Visitor {
    pub(crate) stream: TcpStream,
    seen: Arc<Mutex<Vec<Vec<u8>>>>,
    nth: usize,
    unread: Vec<u8>,
}

impl Upstream {
    /// One that handles each connection with this function.
    pub(crate) async fn serving<F>(serve: impl Fn(Visitor) -> F + Send + 'static) -> Upstream
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = Upstream { address: listener.local_addr().unwrap(), seen: Arc::default() };
        let seen = upstream.seen.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let nth = seen.lock().unwrap().len();
                seen.lock().unwrap().push(Vec::new());
                tokio::spawn(serve(Visitor { stream, seen: seen.clone(), nth, unread: Vec::new() }));
            }
        });
        upstream
    }

    /// One that answers every request with these bytes, on keep-alive connections.
    pub(crate) async fn answering(answer: &'static str) -> Upstream {
        Upstream::serving(move |mut visitor| async move {
            while let Some(head) = visitor.head().await {
                visitor.body(&head).await;
                if visitor.stream.write_all(answer.as_bytes()).await.is_err() {
                    break;
                }
            }
        })
        .await
    }

    pub(crate) async fn plain() -> Upstream {
        Upstream::answering("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").await
    }

    /// What was received, by connection.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().iter().map(|bytes| String::from_utf8_lossy(bytes).to_string()).collect()
    }

    /// All that was received on the only connection.
    pub(crate) fn only(&self) -> String {
        let seen = self.seen();
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen[0].clone()
    }
}

impl Visitor {
    /// Reads some more; false at the end.
    async fn more(&mut self) -> bool {
        let mut piece = [0; 65_536];
        match self.stream.read(&mut piece).await {
            Ok(0) | Err(_) => false,
            Ok(count) => {
                self.seen.lock().unwrap()[self.nth].extend_from_slice(&piece[..count]);
                self.unread.extend_from_slice(&piece[..count]);
                true
            }
        }
    }

    /// Reads until this text arrives, and takes everything up to its end.
    pub(crate) async fn until(&mut self, end: &str) -> Option<String> {
        loop {
            if let Some(at) = self.unread.windows(end.len()).position(|window| window == end.as_bytes()) {
                return Some(String::from_utf8(self.unread.drain(..at + end.len()).collect()).unwrap());
            }
            if !self.more().await {
                return None;
            }
        }
    }

    pub(crate) async fn head(&mut self) -> Option<String> {
        self.until("\r\n\r\n").await
    }

    /// The body that this head announces.
    pub(crate) async fn body(&mut self, head: &str) {
        if header(head, "transfer-encoding").is_some() {
            self.until("0\r\n\r\n").await;
        } else if let Some(length) = header(head, "content-length") {
            let length: usize = length.parse().unwrap();
            while self.unread.len() < length && self.more().await {}
            self.unread.drain(..length.min(self.unread.len()));
        }
    }

    /// Echoes everything, until the end.
    pub(crate) async fn echo(mut self) {
        self.stream.write_all(&self.unread).await.unwrap();
        let (mut reader, mut writer) = self.stream.split();
        let _ = tokio::io::copy(&mut reader, &mut writer).await;
    }

    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }
}

pub(crate) async fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A reset ends a connection too.
    let _ = timeout(SOON, stream.read_to_end(&mut bytes)).await.expect("the connection ends");
    bytes
}

/// Reads until this text arrives.
pub(crate) async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut bytes = Vec::new();
    let reading = async {
        while !bytes.ends_with(end.as_bytes()) {
            bytes.push(stream.read_u8().await.unwrap());
        }
    };
    let in_time = timeout(SOON, reading).await.is_ok();
    let text = String::from_utf8_lossy(&bytes).to_string();
    assert!(in_time, "{end:?} did not come, only {text:?}");
    text
}
