//! A running proxy, upstreams that record what they get, and clients that write bytes.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Longer than anything here takes, and short enough to wait for when it does not come.
pub(crate) const SOON: Duration = Duration::from_secs(10);

pub(crate) fn tollkeeper(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollkeeper"));
    // Whatever the developer has set must not change the tests.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TOLLKEEPER_")) {
        command.env_remove(name);
    }
    command.args(args);
    command
}

pub(crate) fn run(args: &[&str]) -> Output {
    tollkeeper(args).output().unwrap()
}

/// A running proxy; ended when dropped.
pub(crate) struct Proxy {
    pub(crate) child: Child,
    pub(crate) address: String,
    pub(crate) greeting: Vec<String>,
}

impl Proxy {
    pub(crate) fn start(upstream: SocketAddr, args: &[&str]) -> Proxy {
        let url = format!("http://{upstream}");
        let mut command = tollkeeper(&["proxy", "--upstream", &url, "--listen", "127.0.0.1:0", "--log", "off"]);
        let mut child = command.args(args).stdout(Stdio::piped()).spawn().unwrap();
        let mut greeting: Vec<String> = Vec::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap) {
            greeting.push(line);
            if greeting.last().is_some_and(|line| line.contains("curl")) {
                break;
            }
        }
        let address = greeting.first().and_then(|line| line.split("http://").nth(1)).expect("an address").to_string();
        Proxy { child, address, greeting }
    }

    /// A proxy that limits nobody who tests it.
    pub(crate) fn wide(upstream: SocketAddr) -> Proxy {
        Proxy::start(upstream, &["--limit", "100000/s by global"])
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).await.unwrap()
    }

    /// Sends bytes on a connection of their own and reads until the proxy ends it.
    pub(crate) async fn send(&self, bytes: impl AsRef<[u8]>) -> Reply {
        let mut stream = self.connect().await;
        // It may be refused while it is sent.
        let _ = stream.write_all(bytes.as_ref()).await;
        Reply::parse(&read_to_end(&mut stream).await)
    }

    pub(crate) async fn get(&self, path: &str, headers: &str) -> Reply {
        self.send(format!("GET {path} HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n{headers}\r\n")).await
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server that records what it gets, by connection.
#[derive(Clone)]
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Vec<u8>>>>,
}

/// A connection to an upstream, on which everything that is read is recorded.
pub(crate) struct Visitor {
    pub(crate) stream: TcpStream,
    seen: Arc<Mutex<Vec<Vec<u8>>>>,
    nth: usize,
    unread: Vec<u8>,
}

impl Upstream {
    /// One that treats each connection so.
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

    /// One that answers every request with these bytes, on connections that are kept.
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

    /// What came, by connection.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().iter().map(|bytes| String::from_utf8_lossy(bytes).to_string()).collect()
    }

    /// All that came on the only connection.
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

    /// Reads until this is there, and takes everything up to its end.
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

    /// Sends everything back that comes, until the end.
    pub(crate) async fn echo(mut self) {
        self.stream.write_all(&self.unread).await.unwrap();
        let (mut reader, mut writer) = self.stream.split();
        let _ = tokio::io::copy(&mut reader, &mut writer).await;
    }

    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }
}

/// The values of all lines of a header, joined.
pub(crate) fn header(head: &str, name: &str) -> Option<String> {
    let lines = head.lines().skip(1).take_while(|line| !line.is_empty()).filter_map(|line| line.split_once(':'));
    let values: Vec<&str> =
        lines.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).collect();
    (!values.is_empty()).then(|| values.join(", "))
}

pub(crate) async fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A reset ends a connection too.
    let _ = timeout(SOON, stream.read_to_end(&mut bytes)).await.expect("the connection ends");
    bytes
}

/// Reads until this is there.
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

/// What came back.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    #[track_caller]
    pub(crate) fn parse(bytes: &[u8]) -> Reply {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Reply { status, head: format!("{head}\r\n"), body: body.to_string() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<String> {
        header(&self.head, name)
    }

    /// The problem document that this is, checked to be one.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16) -> Value {
        assert_eq!(
            (self.status, self.header("content-type").as_deref()),
            (status, Some("application/problem+json")),
            "{self:?}"
        );
        let problem: Value = serde_json::from_str(&self.body).unwrap();
        assert_eq!(problem["status"], status);
        problem
    }
}
