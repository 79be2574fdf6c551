//! A connection that is kept open, and what is asked on it.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

pub(crate) struct Client {
    stream: TcpStream,
    read: Vec<u8>,
}

/// An answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    /// Without reading all of it: this is asked of every answer.
    pub(crate) fn is_allowed(&self) -> bool {
        self.status == 200 && self.body.starts_with(r#"{"allowed":true"#)
    }
}

impl Client {
    pub(crate) async fn connect(address: &str) -> std::io::Result<Client> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Client { stream, read: Vec::new() })
    }

    pub(crate) async fn post(&mut self, path: &str, body: &str) -> std::io::Result<Answer> {
        let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len());
        self.stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await?;
        loop {
            if let Some(answer) = self.parse() {
                return Ok(answer);
            }
            let mut buffer = [0; 4096];
            match self.stream.read(&mut buffer).await? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                read => self.read.extend_from_slice(&buffer[..read]),
            }
        }
    }

    fn parse(&mut self) -> Option<Answer> {
        let end = self.read.windows(4).position(|bytes| bytes == b"\r\n\r\n")? + 4;
        let head = String::from_utf8_lossy(&self.read[..end]).to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
        let whole = end + length?;
        if self.read.len() < whole {
            return None;
        }
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let body = String::from_utf8_lossy(&self.read[end..whole]).into_owned();
        self.read.drain(..whole);
        Some(Answer { status, body })
    }
}
