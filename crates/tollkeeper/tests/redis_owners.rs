//! How many unsettled reservations one owner may have on a real server.
//!
//! In the memory store one client could take all 100,000 places for reservations, and got a share. On a server there was
//! no bound: whoever reserves and never settles could fill it.

use std::sync::Arc;
use std::time::Duration;

use tollkeeper::{Limiter, Owner, Policy, RedisOptions, RedisStore, StoreError};
use tollkeeper_testkit::store::{Cluster, Kind, Server};

const HOLD: Duration = Duration::from_secs(600);

/// Takes 100 of the 10,000 places of a client, and of the 50,000 of an address.
const LARGE: &[u8] = &[b'{'; 64_000];

async fn limiter(url: &str) -> Arc<Limiter> {
    let options = RedisOptions { deadline: Duration::from_secs(5), ..RedisOptions::default() };
    Arc::new(Limiter::new(Policy::default(), RedisStore::connect(url, options).await.unwrap()))
}

fn is_too_many(kept: Result<(), StoreError>) -> bool {
    match kept {
        Ok(()) => false,
        Err(StoreError::TooManyReservations { .. }) => true,
        Err(error) => panic!("{error}"),
    }
}

async fn share_the_room(url: &str) {
    let (one, other) = (limiter(url).await, limiter(url).await);
    let (eve, peer) = (Owner::Key("eve"), Owner::Peer("203.0.113.6"));
    for nth in 0..100 {
        // The bound is that of all instances together.
        let limiter = [&one, &other][nth % 2];
        assert!(!is_too_many(limiter.keep(&format!("eve-{nth}"), LARGE, &[peer, eve], HOLD).await), "{nth}");
    }
    assert!(is_too_many(one.keep("more", b"{}", &[peer, eve], HOLD).await));
    assert!(is_too_many(other.keep("more", b"{}", &[eve], HOLD).await));
    assert_eq!(other.claim("more").await.unwrap(), None, "it was not kept anywhere");
    // Others have the rest.
    assert!(!is_too_many(one.keep("ann", b"{}", &[peer, Owner::Key("ann")], HOLD).await));
    assert_eq!(other.claim("ann").await.unwrap().as_deref(), Some(&b"{}"[..]));
    // Settling makes room, a moment later.
    assert_eq!(other.claim("eve-7").await.unwrap().as_deref(), Some(LARGE));
    assert_eq!(one.claim("eve-7").await.unwrap(), None);
    let mut tries = 0;
    while is_too_many(one.keep("more", LARGE, &[peer, eve], HOLD).await) {
        tries += 1;
        assert!(tries < 500, "the places of a settled reservation stay taken");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Under many names an address takes half of what all may have.
    let mut kept = 100;
    for nth in 0..1_000 {
        let name = format!("eve-{nth}");
        if is_too_many(one.keep(&format!("name-{nth}"), LARGE, &[peer, Owner::Key(&name)], HOLD).await) {
            break;
        }
        kept += 1;
    }
    assert_eq!(kept, 500);
    let from_elsewhere = [Owner::Peer("198.51.100.7"), Owner::Key("bob")];
    assert!(!is_too_many(one.keep("bob", LARGE, &from_elsewhere, HOLD).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_owner_cannot_fill_a_server() {
    for kind in Kind::ALL {
        share_the_room(&Server::start(kind).url()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_owner_cannot_fill_a_cluster() {
    share_the_room(&Cluster::start().url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reservations_that_expire_make_room() {
    let server = Server::start(Kind::Redis7);
    let limiter = limiter(&server.url()).await;
    let eve = [Owner::Key("eve")];
    let record = vec![b'{'; 640 * 10_000];
    assert!(!is_too_many(limiter.keep("one", &record, &eve, Duration::from_secs(3)).await));
    assert!(is_too_many(limiter.keep("two", b"{}", &eve, HOLD).await), "all of its places are taken");
    let expired = async {
        while is_too_many(limiter.keep("two", b"{}", &eve, HOLD).await) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), expired).await.expect("its places are free again");
    let left: u64 = redis::cmd("DBSIZE").query(&mut server.connect()).unwrap();
    assert!(left < 10, "{left} keys");
}
