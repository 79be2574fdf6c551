//! Ports for servers that cannot pick one themselves.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Below the ephemeral range of Linux: an outgoing connection could take a port from there while a test has its
/// server stopped.
const FIRST: u32 = 20_000;
const COUNT: u32 = 12_000;

/// A free port, never given twice by one process. Another process may still take it, so start a server in a loop that
/// tries other ports.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Concurrent test runs start at different places.
    let start = std::process::id().wrapping_mul(101);
    let mut candidates = (0..COUNT).map(|_| FIRST + (start.wrapping_add(NEXT.fetch_add(1, Relaxed))) % COUNT);
    let free = candidates.find_map(|port| {
        let port = u16::try_from(port).ok()?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok().map(|_| port)
    });
    free.expect("a free port between 20000 and 32000")
}
