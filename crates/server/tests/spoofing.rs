//! Spoofing: the same attacks on every front, and each must land in the bucket of the client that made it.
//!
//! A client has its own address. Whatever it sends, its request is either refused or charged to that address, to the
//! path and host that the application sees, and to the one API key that it names.

mod attacks;
mod fronts;

use tollkeeper_testkit::proxy::Kind;

use super::site::Received;
use attacks::{Attack, attacks};
use fronts::Front;

#[test]
fn authorize_asked_by_headers() {
    hold(&Front::authorize_by_headers());
}

#[test]
fn authorize_asked_by_path() {
    hold(&Front::authorize_by_path());
}

#[test]
fn the_reverse_proxy() {
    hold(&Front::reverse_proxy());
}

#[test]
fn the_tower_layer() {
    hold(&Front::tower());
}

#[test]
fn behind_nginx() {
    hold(&Front::behind(Kind::Nginx));
}

#[test]
fn behind_envoy() {
    hold(&Front::behind(Kind::Envoy));
}

#[test]
fn behind_traefik() {
    hold(&Front::behind(Kind::Traefik));
}

#[test]
fn behind_caddy() {
    hold(&Front::behind(Kind::Caddy));
}

#[test]
fn behind_haproxy() {
    hold(&Front::behind(Kind::Haproxy));
}

/// If the file does not say which header the proxy writes, a client that sends the other one shares the proxy's
/// bucket with all such clients, and gains no other bucket.
#[test]
fn a_proxy_of_which_nothing_is_known() {
    let front = Front::authorize_where("auto");
    for (number, attack) in attacks().iter().enumerate() {
        let own = format!("127.0.0.{}", number + 2);
        let left = || front.remaining("by-ip", &own) + front.remaining("by-ip", "127.0.0.1");
        let (before, all) = (left(), front.remaining("everything", "global"));
        front.send(number as u8 + 2, attack);
        let charged = all - front.remaining("everything", "global");
        assert_eq!(before - left(), charged, "{attack:?} landed elsewhere");
    }
}

fn hold(front: &Front) {
    let honest = Attack::new("an honest request").key("mine").target("/login").login();
    let (mut passed, mut found) = (0, Vec::new());
    for (number, attack) in [honest].iter().chain(&attacks()).enumerate() {
        // Each attack comes from its own address, so that nothing is left over from the one before.
        let client = 2 + u8::try_from(number).expect("fewer attacks than addresses");
        let (status, wrong) = land(front, client, attack);
        assert!(number > 0 || status == 200, "{}: an honest request is answered {status}", front.name);
        passed += usize::from(status == 200);
        found.extend(wrong.iter().map(|wrong| format!("{attack:?} ({status}): {wrong}")));
    }
    assert!(found.is_empty(), "{}:\n{}", front.name, found.join("\n"));
    // A front that refused everything would be safe, but useless.
    assert!(passed > 12, "{}: only {passed} requests passed", front.name);
}

/// Sends an attack and checks where it landed: its status, and what is wrong.
fn land(front: &Front, client: u8, attack: &Attack) -> (u16, Vec<String>) {
    let own = format!("127.0.0.{client}");
    let left = |rule: &str, key: &str| front.remaining(rule, key);
    let counted = || {
        let key = attack.key.map_or(0, |key| left("by-key", key));
        [left("everything", "global"), left("by-ip", &own), left("login", &own), left("by-host", attack.lands_at), key]
    };
    let (before, reached) = (counted(), front.reached());
    let status = front.send(client, attack);
    let after = counted();
    let [all, ip, login, host, key] = [0, 1, 2, 3, 4].map(|index| before[index] - after[index]);
    let mut wrong = Vec::new();
    let mut expect = |what: &str, is: u64, should: u64| {
        if is != should {
            wrong.push(format!("{what}: {is} instead of {should}"));
        }
    };
    expect("charged to its address", ip, all);
    if status != 200 {
        expect("refused, and seen by the application", (front.reached() - reached) as u64, 0);
        return (status, wrong);
    }
    expect("charged", all, 1);
    expect("charged to its host", host, 1);
    expect("charged by the rule for /login", login, u64::from(attack.login));
    let received = front.received();
    match received.as_ref().map(|received| received.headers("x-api-key")) {
        None => expect("charged to its key", key, u64::from(attack.key.is_some())),
        // A proxy may remove a key that Connection names, or one of two: the one that reaches the application counts.
        Some(found) if found.first().copied() == attack.key => expect("charged to its key", key, found.len() as u64),
        Some(found) => {
            expect("charged to its key", key, 0);
            for other in &found {
                expect("charged to the key that the application finds", 10_000 - left("by-key", other), 1);
            }
            expect("keys that the application finds", found.len() as u64, found.len().min(1) as u64);
        }
    }
    wrong.extend(received.iter().flat_map(what_the_application_trusts));
    (status, wrong)
}

/// The application takes the nearest hop as the client, and some take addresses and paths from other headers.
fn what_the_application_trusts(received: &Received) -> Vec<String> {
    let mut wrong = Vec::new();
    for name in ["x-forwarded-for", "forwarded"] {
        let hops = received.header(name).unwrap_or_default();
        let nearest = hops.rsplit(',').next().unwrap_or_default();
        if nearest.contains("6.6.6.") {
            wrong.push(format!("the application hears {name}: {nearest}"));
        }
    }
    for name in ["x-original-url", "x-original-uri", "x-rewrite-url", "x_forwarded_for", "x_real_ip", "x_api_key"] {
        if let Some(value) = received.header(name) {
            wrong.push(format!("the application hears {name}: {value}"));
        }
    }
    wrong
}
