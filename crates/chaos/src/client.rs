//! Clients that send requests as fast as they can, and record when each was sent and answered, and the answer.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use tollkeeper_auditor::Observation;

use crate::chance::Chance;
use crate::fleet::{Address, KINDS};

/// How many keys of each kind of rule are used.
pub(crate) const KEYS: u64 = 2;

/// What was sent, and what was observed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// An index into [`KINDS`].
    pub(crate) kind: usize,
    pub(crate) key: u64,
    pub(crate) observation: Observation,
    /// Whether a valid answer came.
    pub(crate) is_answered: bool,
}

/// Clients that run until they are stopped.
pub(crate) struct Clients {
    threads: Vec<JoinHandle<Vec<Asked>>>,
    is_over: Arc<AtomicBool>,
}

impl Clients {
    /// `per_instance` clients of each instance, each a connection and a thread.
    pub(crate) fn start(
        instances: &[Address],
        per_instance: u64,
        pause: Duration,
        begin: Instant,
        seed: u64,
    ) -> Clients {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for (instance, address) in (0..).zip(instances) {
            for number in 0..per_instance {
                let (address, is_over) = (Arc::clone(address), Arc::clone(&is_over));
                let chance = Chance::new(seed ^ (instance << 32) ^ (number << 16));
                threads.push(spawn(move || ask_until(&address, &is_over, pause, begin, chance)));
            }
        }
        Clients { threads, is_over }
    }

    /// Stops all, and returns what they observed.
    pub(crate) fn stop(self) -> Vec<Asked> {
        self.is_over.store(true, Relaxed);
        self.threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    }
}

fn ask_until(
    address: &Address,
    is_over: &AtomicBool,
    pause: Duration,
    begin: Instant,
    mut chance: Chance,
) -> Vec<Asked> {
    let mut seen = Vec::new();
    let mut connection = None;
    while !is_over.load(Relaxed) {
        let kind = chance.below(KINDS.len() as u64) as usize;
        let key = chance.below(KEYS);
        let sent = begin.elapsed();
        let answer = ask(&mut connection, address, KINDS[kind].name, key);
        let observation = Observation { sent, answered: begin.elapsed(), admitted: matches!(answer, Ok(true)) };
        if answer.is_err() {
            connection = None;
        }
        seen.push(Asked { kind, key, observation, is_answered: answer.is_ok() });
        sleep(pause);
    }
    seen
}

/// Sends `POST /v1/check` on a keep-alive connection.
fn ask(connection: &mut Option<BufReader<TcpStream>>, address: &Address, kind: &str, key: u64) -> io::Result<bool> {
    let connection = match connection {
        Some(connection) => connection,
        None => {
            let address = address.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(Duration::from_secs(3)))?;
            connection.insert(BufReader::new(stream))
        }
    };
    let body = format!(r#"{{"attributes":{{"{kind}":"{key}"}}}}"#);
    let length = body.len();
    let head = format!(
        "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    connection.get_mut().write_all((head + &body).as_bytes())?;
    let (mut status, mut length) = (String::new(), 0);
    connection.read_line(&mut status)?;
    loop {
        let mut line = String::new();
        if connection.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match line.trim_end().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse().map_err(|_| io::ErrorKind::InvalidData)?;
            }
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body)?;
    let body: serde_json::Value = serde_json::from_slice(&body)?;
    match status.split(' ').nth(1) {
        Some("200") => body["allowed"].as_bool().ok_or_else(|| io::ErrorKind::InvalidData.into()),
        // Overloaded: not decided, so not admitted.
        Some("503") => Ok(false),
        _ => Err(io::Error::other(format!("{} {body}", status.trim()))),
    }
}
