//! A TCP proxy that makes a server far away: every reply comes so much later.
//!
//! What is sent in one go comes in one go, and replies overtake nothing: it is the way that is long, not the bandwidth that is
//! small.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// A way to a port of this machine that takes time. It ends with the process.
pub struct Distance {
    address: SocketAddr,
    round_trip_us: Arc<AtomicU64>,
}

impl Distance {
    /// A server on this port seems to be a round trip of so long away.
    pub fn to(port: u16, round_trip: Duration) -> Distance {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let round_trip_us = Arc::new(AtomicU64::new(round_trip.as_micros() as u64));
        let delay = round_trip_us.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                let (to_server, to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                carry(client, to_server, Arc::default());
                carry(server, to_client, delay.clone());
            }
        });
        Distance { address, round_trip_us }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// As a Redis server is addressed.
    pub fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    /// It is so far away from now on.
    pub fn set(&self, round_trip: Duration) {
        self.round_trip_us.store(round_trip.as_micros() as u64, Relaxed);
    }
}

/// In one direction, each piece so many microseconds after it came.
fn carry(mut from: TcpStream, mut to: TcpStream, delay_us: Arc<AtomicU64>) {
    let (sender, due) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            let at = Instant::now() + Duration::from_micros(delay_us.load(Relaxed));
            if sender.send((at, buffer[..read].to_vec())).is_err() {
                break;
            }
        }
    });
    thread::spawn(move || {
        for (at, piece) in due {
            thread::sleep(at.saturating_duration_since(Instant::now()));
            if to.write_all(&piece).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}
