//! A client that sends exactly the bytes that a test wants, from an address of its own.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use tokio::net::TcpSocket;

#[derive(Clone, Debug)]
pub struct Client {
    address: Ipv4Addr,
    proxy: SocketAddr,
    host: &'static str,
    headers: Vec<(String, String)>,
}

impl Client {
    pub fn new(address: Ipv4Addr, proxy: SocketAddr) -> Client {
        Client { address, proxy, host: "shop.example", headers: Vec::new() }
    }

    #[allow(dead_code, reason = "not every test needs another")]
    pub fn host(self, host: &'static str) -> Client {
        Client { host, ..self }
    }

    pub fn with(mut self, name: &str, value: &str) -> Client {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub fn get(&self, target: &str) -> Answer {
        self.send("GET", target, "")
    }

    pub fn send(&self, method: &str, target: &str, body: &str) -> Answer {
        self.try_send(method, target, body).unwrap_or_else(|error| panic!("{method} {target} of {self:?}: {error}"))
    }

    pub fn try_send(&self, method: &str, target: &str, body: &str) -> std::io::Result<Answer> {
        let mut request = format!("{method} {target} HTTP/1.1\r\nhost: {}\r\n", self.host);
        for (name, value) in &self.headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        if !self.headers.iter().any(|(name, _)| name == "Connection") {
            request.push_str("connection: close\r\n");
        }
        request.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));

        let mut stream = self.connect()?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(Answer::read(&answer))
    }

    /// All of 127.0.0.0/8 is this machine, but only tokio lets one choose the address to call from.
    fn connect(&self) -> std::io::Result<TcpStream> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let stream = runtime.block_on(async {
            let socket = TcpSocket::new_v4()?;
            socket.bind((self.address, 0).into())?;
            socket.connect(self.proxy).await?.into_std()
        })?;
        stream.set_nonblocking(false)?;
        Ok(stream)
    }
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    head: String,
    pub body: String,
}

impl Answer {
    pub fn read(text: &str) -> Answer {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        Answer { status: status.unwrap_or_default(), head: head.into(), body: body.into() }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }
}

/// A header of a request or an answer, whatever the case of its name.
pub fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    let mut fields = head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
    fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}
