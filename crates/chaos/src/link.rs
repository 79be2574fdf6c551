//! A TCP proxy between an instance and its store that fails on command.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{sleep, spawn};
use std::time::Duration;

use crate::chance::Chance;

/// What a link does to the bytes it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// Passes them on.
    Healthy,
    /// Delays each piece by `least` milliseconds, and up to `more` in addition.
    Late { least: u64, more: u64 },
    /// Delays every `one_in`th piece in either direction by 200 to 400 milliseconds, as TCP does when it has to send
    /// a lost packet again.
    Lossy { one_in: u64 },
    /// Passes requests on and drops the replies: half of the connection is dead.
    RepliesLost,
    /// Accepts everything and passes nothing on.
    Silent,
    /// Cuts the connection in the middle of every `one_in`th reply.
    CutReplies { one_in: u64 },
    /// Passes replies on a few bytes at a time.
    Dribbling,
    /// Puts random bytes before every `one_in`th reply.
    Garbage { one_in: u64 },
    /// Ends every connection at once.
    Refusing,
}

/// A running proxy, stopped when dropped.
#[derive(Debug)]
pub(crate) struct Link {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    to: Mutex<SocketAddr>,
    behaviour: Mutex<Behaviour>,
    ended: AtomicBool,
    seed: u64,
}

impl Shared {
    fn behaviour(&self) -> Behaviour {
        *self.behaviour.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link {
    /// To a port of this machine.
    pub(crate) fn to(port: u16, seed: u64) -> io::Result<Link> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (behaviour, ended) = (Mutex::new(Behaviour::Healthy), AtomicBool::new(false));
        let shared = Arc::new(Shared { to: Mutex::new(to), behaviour, ended, seed });
        let accepting = Arc::clone(&shared);
        spawn(move || {
            for client in listener.incoming().flatten() {
                if accepting.ended.load(Relaxed) {
                    return;
                }
                let shared = Arc::clone(&accepting);
                spawn(move || _ = relay(client, &shared));
            }
        });
        Ok(Link { address, shared })
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Changes the behaviour from now on.
    pub(crate) fn set(&self, behaviour: Behaviour) {
        *self.shared.behaviour.lock().unwrap_or_else(PoisonError::into_inner) = behaviour;
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.ended.store(true, Relaxed);
        // Wakes the thread that accepts.
        drop(TcpStream::connect(self.address));
    }
}

fn relay(client: TcpStream, shared: &Arc<Shared>) -> io::Result<()> {
    if shared.behaviour() == Behaviour::Refusing {
        return client.shutdown(Shutdown::Both);
    }
    let to = *shared.to.lock().unwrap_or_else(PoisonError::into_inner);
    let server = TcpStream::connect_timeout(&to, Duration::from_secs(1))?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
        // Checks now and then whether the link refuses by now.
        stream.set_read_timeout(Some(Duration::from_millis(50)))?;
    }
    let (from_client, to_server, requests) = (client.try_clone()?, server.try_clone()?, Arc::clone(shared));
    spawn(move || pass(from_client, to_server, &requests, Direction::Request));
    pass(server, client, shared, Direction::Reply);
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Request,
    Reply,
}

/// Copies bytes until one side ends.
fn pass(mut from: TcpStream, mut to: TcpStream, shared: &Shared, direction: Direction) {
    let mut chance = Chance::new(shared.seed ^ u64::from(from.peer_addr().map_or(0, |peer| peer.port())));
    let mut buffer = vec![0; 64 * 1024];
    loop {
        if shared.ended.load(Relaxed) || shared.behaviour() == Behaviour::Refusing {
            break;
        }
        let bytes = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => &buffer[..count],
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => continue,
            Err(_) => break,
        };
        if forward(bytes, &mut to, shared.behaviour(), direction, &mut chance).is_err() {
            break;
        }
    }
    // Both: the other direction ends too.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

fn forward(
    bytes: &[u8],
    to: &mut TcpStream,
    behaviour: Behaviour,
    direction: Direction,
    chance: &mut Chance,
) -> io::Result<()> {
    let is_reply = direction == Direction::Reply;
    match behaviour {
        Behaviour::Silent => Ok(()),
        Behaviour::RepliesLost if is_reply => Ok(()),
        Behaviour::Late { least, more } if is_reply => {
            sleep(Duration::from_millis(least + chance.below(more + 1)));
            to.write_all(bytes)
        }
        Behaviour::Lossy { one_in } if chance.below(one_in) == 0 => {
            sleep(Duration::from_millis(200 + chance.below(200)));
            to.write_all(bytes)
        }
        Behaviour::CutReplies { one_in } if is_reply && chance.below(one_in) == 0 => {
            to.write_all(&bytes[..bytes.len() / 2])?;
            Err(io::ErrorKind::ConnectionReset.into())
        }
        Behaviour::Dribbling if is_reply => bytes.chunks(7).try_for_each(|piece| {
            sleep(Duration::from_millis(1));
            to.write_all(piece)
        }),
        Behaviour::Garbage { one_in } if is_reply && chance.below(one_in) == 0 => {
            to.write_all(&chance.next().to_be_bytes())?;
            to.write_all(bytes)
        }
        _ => to.write_all(bytes),
    }
}
