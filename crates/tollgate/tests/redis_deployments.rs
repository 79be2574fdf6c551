//! Redis as people deploy it: behind Sentinel, with TLS, and as a cluster that fails over and reshards.
#![allow(clippy::unwrap_used)]

mod servers;

use redis::{ErrorKind, ServerErrorKind};
use servers::{ClientCertificates, Cluster, Sentinels, TlsServer};

#[test]
fn sentinels_name_the_promoted_replica() {
    let mut sentinels = Sentinels::start();
    let old = sentinels.kill_primary();
    let new = sentinels.wait_for_failover(old);
    assert_ne!(new, old);
    let urls = sentinels.addresses().iter().map(|address| format!("redis://{address}/")).collect();
    let mut client = redis::sentinel::Sentinel::build::<String>(urls).unwrap();
    let mut primary = client.master_for(sentinels.service(), None).unwrap().get_connection().unwrap();
    redis::cmd("SET").arg("a").arg(1).exec(&mut primary).unwrap();

    // The old one comes back, and is made a replica; connections that it had are cut then.
    sentinels.data[0].restart();
    let returned = redis::Client::open(sentinels.data[0].url()).unwrap();
    servers::wait_until("the old primary refuses to write", || {
        let written = returned.get_connection().and_then(|mut to| redis::cmd("SET").arg("a").arg(1).exec(&mut to));
        written.is_err_and(|error| error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly))
    });
}

#[test]
fn sentinels_watch_servers_that_need_a_password() {
    let mut sentinels = Sentinels::start_with_password("limiter", "secret");
    let stranger = redis::Client::open(format!("redis://127.0.0.1:{}/", sentinels.primary_port())).unwrap();
    let refused = redis::cmd("PING").exec(&mut stranger.get_connection().unwrap()).unwrap_err();
    assert_eq!(refused.code(), Some("NOAUTH"));
    let old = sentinels.kill_primary();
    sentinels.wait_for_failover(old);
}

#[test]
fn a_private_authority_is_trusted_when_named() {
    for clients in [ClientCertificates::NotAsked, ClientCertificates::Required] {
        let server = TlsServer::start(clients);
        let read = |path| std::fs::read(path).unwrap();
        let ping = |root_cert: Option<Vec<u8>>, client_tls: Option<redis::ClientTlsConfig>| {
            let certificates = redis::TlsCertificates { client_tls, root_cert };
            let mut connection = redis::Client::build_with_tls(server.url(), certificates)?.get_connection()?;
            redis::cmd("PING").query::<String>(&mut connection)
        };
        let client =
            redis::ClientTlsConfig { client_cert: read(server.client_pem()), client_key: read(server.client_key()) };
        assert_eq!(ping(Some(read(server.ca_pem())), Some(client)).unwrap(), "PONG");
        let without_one = ping(Some(read(server.ca_pem())), None);
        assert_eq!(without_one.is_ok(), clients == ClientCertificates::NotAsked, "{without_one:?}");
        let unknown = ping(None, None).unwrap_err().to_string();
        assert!(unknown.contains("UnknownIssuer"), "{unknown}");
    }
}

#[test]
fn a_slot_answers_ask_and_try_again_while_it_moves() {
    let cluster = Cluster::start_with_password("secret");
    let slot = cluster.slot_of("{a}");
    let from = cluster.primary_of(slot);
    let to = cluster.primaries().into_iter().find(|port| *port != from).unwrap();
    let mut old = cluster.node(from).connect();
    redis::cmd("MSET").arg(&["{a}1", "1", "{a}2", "2"]).exec(&mut old).unwrap();

    cluster.begin_migration(slot, from, to);
    let ask = redis::cmd("GET").arg("{a}3").exec(&mut old).unwrap_err();
    assert_eq!(ask.kind(), ErrorKind::Server(ServerErrorKind::Ask));
    assert_eq!(ask.redirect_node(), Some((&*format!("127.0.0.1:{to}"), slot)));

    assert_eq!(cluster.move_keys(slot, 1), 1);
    let script = "return redis.call('MGET', KEYS[1], KEYS[2])";
    let half = redis::cmd("EVAL").arg(script).arg(2).arg(&["{a}1", "{a}2"]).exec(&mut old).unwrap_err();
    assert_eq!(half.kind(), ErrorKind::Server(ServerErrorKind::TryAgain));

    assert_eq!(cluster.move_keys(slot, 10), 1);
    cluster.finish_migration(slot, to);
    let moved = redis::cmd("GET").arg("{a}1").exec(&mut old).unwrap_err();
    assert_eq!(moved.redirect_node(), Some((&*format!("127.0.0.1:{to}"), slot)));

    cluster.migrate_slot(slot, from);
    assert_eq!(redis::cmd("GET").arg("{a}1").query::<i64>(&mut old).unwrap(), 1);
    cluster.flush();
    assert_eq!(redis::cmd("DBSIZE").query::<i64>(&mut old).unwrap(), 0);
}

#[test]
fn a_replica_takes_over_the_slots_of_a_dead_primary() {
    let mut cluster = Cluster::start_with(500);
    let slot = cluster.slot_of("a");
    let old = cluster.kill_primary_of(slot);
    let new = cluster.wait_for_new_primary(slot, old);
    redis::cmd("SET").arg("a").arg(1).exec(&mut cluster.node(new).connect()).unwrap();
}
