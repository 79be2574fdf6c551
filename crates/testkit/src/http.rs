//! HTTP/1.1 by hand: requests are exactly the bytes a test wants, and responses are read as they came.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::ops::Deref;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use socket2::{Domain, Socket, Type};

use crate::wait::PATIENCE;

/// What services show or change only for a token.
const ADMIN_PATHS: [&str; 6] =
    ["/v1/actions", "/v1/exceptions", "/v1/insight", "/v1/keys", "/v1/rules", "/v1/violations"];

/// The tokens that running services have made, by their addresses.
static TOKENS: Mutex<BTreeMap<SocketAddr, String>> = Mutex::new(BTreeMap::new());

/// Has clients of this address send a token with what needs one.
pub(crate) fn remember_token(address: &str, token: &str) {
    let address = address.to_socket_addrs().ok().and_then(|mut found| found.next());
    let mut tokens = TOKENS.lock().unwrap_or_else(PoisonError::into_inner);
    tokens.extend(address.map(|address| (address, token.to_string())));
}

/// Sends each request on a connection of its own, closed after the response.
#[derive(Clone, Debug)]
pub struct Client {
    to: SocketAddr,
    from: Ipv4Addr,
    host: String,
    headers: Vec<(String, String)>,
}

impl Client {
    /// A client of this address, from 127.0.0.1.
    pub fn to(address: &str) -> Client {
        let to = address.to_socket_addrs().ok().and_then(|mut found| found.next());
        let to = to.unwrap_or_else(|| panic!("{address:?} is not an address"));
        Client { to, from: Ipv4Addr::LOCALHOST, host: address.into(), headers: Vec::new() }
    }

    /// The same from another source address. All of 127.0.0.0/8 is this machine.
    pub fn from(self, from: Ipv4Addr) -> Client {
        Client { from, ..self }
    }

    /// The same with another `Host`.
    pub fn host(self, host: &str) -> Client {
        Client { host: host.into(), ..self }
    }

    /// The same with one more header.
    pub fn with(mut self, name: &str, value: &str) -> Client {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The same with more headers, each a line.
    pub fn with_lines(self, lines: &str) -> Client {
        let fields =
            lines.lines().map(|line| line.split_once(": ").unwrap_or_else(|| panic!("{line:?} is not a header")));
        fields.fold(self, |client, (name, value)| client.with(name, value))
    }

    /// Sends a GET.
    #[track_caller]
    pub fn get(&self, target: &str) -> Answer {
        self.send("GET", target, "")
    }

    /// Sends a POST.
    #[track_caller]
    pub fn post(&self, target: &str, body: &str) -> Answer {
        self.send("POST", target, body)
    }

    /// Sends a request with any method.
    #[track_caller]
    pub fn send(&self, method: &str, target: &str, body: &str) -> Answer {
        self.try_send(method, target, body).unwrap_or_else(|error| panic!("{method} {target} of {self:?}: {error}"))
    }

    /// The same, where the connection may break.
    pub fn try_send(&self, method: &str, target: &str, body: &str) -> io::Result<Answer> {
        let mut request = format!("{method} {target} HTTP/1.1\r\nhost: {}\r\n", self.host);
        for (name, value) in &self.headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(token) = self.token_for(target) {
            request.push_str(&format!("authorization: Bearer {token}\r\n"));
        }
        if !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("connection")) {
            request.push_str("connection: close\r\n");
        }
        request.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
        self.try_write(request.as_bytes())
    }

    /// Sends these bytes and nothing else.
    #[track_caller]
    pub fn write(&self, bytes: &[u8]) -> Answer {
        self.try_write(bytes).unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<Answer> {
        let mut stream = self.connect()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(bytes)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Answer::try_parse(&answer).ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "no whole head came"))
    }

    /// The token that the service here has made, for what always needs one. A test about tokens sends its own
    /// `Authorization`, which may be empty.
    fn token_for(&self, target: &str) -> Option<String> {
        let is_admin = ADMIN_PATHS.iter().any(|path| target.starts_with(path));
        let is_given = self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        let tokens = TOKENS.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.get(&self.to).filter(|_| is_admin && !is_given).cloned()
    }

    /// A connection on which nothing is said yet.
    pub fn connect(&self) -> io::Result<TcpStream> {
        let socket = Socket::new(Domain::for_address(self.to), Type::STREAM, None)?;
        if self.to.is_ipv4() {
            socket.bind(&SocketAddr::from((self.from, 0)).into())?;
        }
        socket.connect(&self.to.into())?;
        Ok(socket.into())
    }
}

/// A response. As a string it is everything, the status line first.
#[derive(Clone, Debug)]
pub struct Answer {
    /// From the status line.
    pub status: u16,
    /// Up to the empty line.
    pub head: String,
    /// Everything after it, as it came.
    pub body: String,
    text: String,
}

impl Answer {
    /// Parses a response. Its body may be truncated, its head may not.
    #[track_caller]
    pub fn parse(bytes: &[u8]) -> Answer {
        Answer::try_parse(bytes).unwrap_or_else(|| panic!("no answer: {:?}", String::from_utf8_lossy(bytes)))
    }

    fn try_parse(bytes: &[u8]) -> Option<Answer> {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let (head, body) = (format!("{head}\r\n"), body.to_string());
        Some(Answer { status, head, body, text })
    }

    /// The values of all lines of a header, joined.
    pub fn header(&self, name: &str) -> Option<String> {
        header(&self.head, name)
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self}"))
    }

    /// The body as a problem document, checked to be one.
    #[track_caller]
    pub fn problem(&self, status: u16) -> Value {
        let kind = self.header("content-type");
        assert_eq!((self.status, kind.as_deref()), (status, Some("application/problem+json")), "{self}");
        let problem = self.json();
        assert_eq!(problem["status"], status);
        problem
    }
}

impl Deref for Answer {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(&self.text)
    }
}

/// The values of all lines of a header, joined; names are case-insensitive.
pub fn header(head: &str, name: &str) -> Option<String> {
    let lines = head.lines().skip(1).take_while(|line| !line.is_empty()).filter_map(|line| line.split_once(':'));
    let values: Vec<&str> =
        lines.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).collect();
    (!values.is_empty()).then(|| values.join(", "))
}

/// The value of a series on a page of metrics, if it is there.
pub fn metric(page: &str, series: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.trim().parse().ok())
}
