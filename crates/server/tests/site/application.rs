//! The application behind the proxy: it answers 200, or 500 to `/broken`, and records what it received.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use tollkeeper_testkit::http::header;

pub(crate) struct Application {
    pub(crate) port: u16,
    received: Arc<Mutex<Vec<Received>>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Received {
    /// The values of all lines of this name.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        header(&self.head, name)
    }

    /// The values of all lines of this name, each once.
    pub(crate) fn headers(&self, name: &str) -> Vec<&str> {
        let fields = self.head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
        let mut values: Vec<&str> =
            fields.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).collect();
        values.retain(|value| !value.is_empty());
        values.dedup();
        values
    }
}

impl Application {
    pub(crate) fn start() -> Application {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().unwrap().port();
        let received = Arc::new(Mutex::new(Vec::new()));
        let book = received.clone();
        // The thread ends with the test.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let book = book.clone();
                thread::spawn(move || serve(&stream, &book));
            }
        });
        Application { port, received }
    }

    pub(crate) fn count(&self) -> usize {
        self.received.lock().unwrap().len()
    }

    pub(crate) fn last(&self) -> Received {
        self.received.lock().unwrap().last().expect("a request reached the application").clone()
    }
}

/// One request per connection. A connection that a proxy opens ahead of use and closes is not a request.
fn serve(mut stream: &TcpStream, book: &Mutex<Vec<Received>>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = header(&head, "content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let status = if head.contains(" /broken ") { "500 Internal Server Error" } else { "200 OK" };
    book.lock().unwrap().push(Received { head, body: String::from_utf8(body).ok()? });
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 4\r\nconnection: close\r\n\r\nmine");
    stream.write_all(answer.as_bytes()).ok()
}
