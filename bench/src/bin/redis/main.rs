//! The Redis store beside the script that most people write: the server's processor time, speed, latency and memory.
//!
//! Starts its own `redis-server`s on the loopback interface. Arguments pick sections: load, latency, blocking, space.

mod blocking;
mod contestant;
mod latency;
mod load;
mod promises;
#[allow(dead_code)] // The benchmark of leases uses the rest.
mod server;
mod space;

use promises::Promises;
use server::Server;

#[tokio::main]
async fn main() {
    let picked: Vec<String> = std::env::args().skip(1).collect();
    let runs = |section: &str| picked.is_empty() || picked.iter().any(|name| name == section);
    println!("Redis {}\n", Server::start().version());
    let mut promises = Promises::default();
    if runs("load") {
        load::compare(&mut promises).await;
    }
    if runs("latency") {
        latency::compare(&mut promises).await;
    }
    if runs("blocking") {
        blocking::measure(&mut promises).await;
    }
    if runs("space") {
        space::measure(&mut promises).await;
    }
    promises.print();
}
