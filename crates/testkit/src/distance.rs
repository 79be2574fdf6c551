//! A TCP proxy that makes a server seem distant: every reply is delayed.
//!
//! Only latency is simulated: what is sent at once arrives at once, in order, and bandwidth is not limited.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// A delayed connection to a local port. It ends with the process.
pub struct Distance {
    address: SocketAddr,
    round_trip_us: Arc<AtomicU64>,
}

impl Distance {
    /// Makes the server on this port seem this round trip away.
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

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Its URL as a Redis server.
    pub fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    /// Changes the round trip from now on.
    pub fn set(&self, round_trip: Duration) {
        self.round_trip_us.store(round_trip.as_micros() as u64, Relaxed);
    }
}

/// Copies one direction, each piece delayed by this many microseconds.
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
