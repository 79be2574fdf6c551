//! What a line tells about its client beside its key: signs of bots and scanners, and which route it asked for.

use tollkeeper_logs::Entry;

use crate::hash::{ByHash, hash_of};
use crate::routes;

/// What a request tells of its client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) status: u16,
    /// The hash of its route.
    pub(crate) route: u64,
    /// The hash of its user agent; 0 where the log tells none.
    pub(crate) agent: u64,
    pub(crate) client: Client,
    pub(crate) asks: Asks,
}

impl Facts {
    /// Whether it is not what people and their programs usually get.
    pub(crate) fn is_odd(&self) -> bool {
        self.asks == Asks::Probe || matches!(self.status, 400..429)
    }
}

/// What a client says that it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Client {
    /// The log does not tell.
    #[default]
    Unknown,
    /// A browser, or what claims to be one.
    Browser,
    /// A crawler that says so.
    Crawler,
    /// A script or a library.
    Script,
    /// It sends no user agent although others do.
    Nameless,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Asks {
    #[default]
    Ordinary,
    /// For files that only an attacker looks for, such as `/.env`.
    Probe,
    /// To sign in, to register or for a password: what guessing hits.
    SignIn,
}

/// Turns entries into facts; each worker has its own, because it remembers what it has seen. Facts depend on the entry alone: which worker
/// reads a line, and what it read before, changes nothing.
#[derive(Debug)]
pub(crate) struct Witness {
    agents: ByHash<Client>,
    text: String,
    /// Paths that came lately, each in the place that its hash gives it.
    seen: Box<[Seen]>,
}

impl Default for Witness {
    fn default() -> Witness {
        let seen = vec![Seen::default(); SEEN].into_boxed_slice();
        Witness { agents: ByHash::default(), text: String::new(), seen }
    }
}

/// A path, the route that it belongs to, and what it asks for.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    asked: u64,
    route: u64,
    asks: Asks,
}

/// Paths that a worker has at hand.
const SEEN: usize = 4_096;

/// User agents that a worker remembers; with more it looks at each again.
const REMEMBERED: usize = 50_000;

impl Witness {
    /// What a request to this path tells.
    pub(crate) fn see(&mut self, entry: &Entry<'_>, path: &str) -> Facts {
        let agent = entry.others.iter().find(|(name, _)| name == "header.user-agent").map(|(_, agent)| agent.as_ref());
        let (agent, client) = self.client(agent, entry);
        let method = method_of(entry);
        let asked = hash_of(hash_of(0, method.as_bytes()), path.as_bytes());
        let mut seen = self.seen[asked as usize % SEEN];
        if seen.asked != asked {
            seen = Seen { asked, route: hash_of(0, self.route(entry, path).as_bytes()), asks: asks(method, path) };
            self.seen[asked as usize % SEEN] = seen;
        }
        let asks = if entry.target.as_deref().is_some_and(climbs) { Asks::Probe } else { seen.asks };
        Facts { status: entry.status.unwrap_or(0), route: seen.route, agent, client, asks }
    }

    /// The text of its route.
    pub(crate) fn route(&mut self, entry: &Entry<'_>, path: &str) -> &str {
        self.text.clear();
        routes::write_route(&mut self.text, method_of(entry), path);
        &self.text
    }

    fn client(&mut self, agent: Option<&str>, entry: &Entry<'_>) -> (u64, Client) {
        let Some(agent) = agent else {
            // Formats that log user agents log others of the same request too.
            let logs_agents = entry.others.iter().any(|(name, _)| name == "header.referer");
            return (0, if logs_agents { Client::Nameless } else { Client::Unknown });
        };
        let hash = hash_of(0, agent.as_bytes());
        if let Some(known) = self.agents.get(&hash) {
            return (hash, *known);
        }
        let client = claimed(agent);
        if self.agents.len() < REMEMBERED {
            self.agents.insert(hash, client);
        }
        (hash, client)
    }
}

fn claimed(agent: &str) -> Client {
    const CRAWLERS: &[&str] =
        &["bot", "crawl", "spider", "slurp", "archiver", "facebookexternalhit", "scan", "monitor"];
    const SCRIPTS: &[&str] = &[
        "curl",
        "wget",
        "python",
        "go-http-client",
        "java/",
        "okhttp",
        "libwww",
        "httpclient",
        "aiohttp",
        "axios",
        "node-fetch",
        "undici",
        "ruby",
        "perl",
        "php",
        "scrapy",
        "headless",
        "phantom",
        "guzzle",
        "httpie",
        "postman",
        "nikto",
        "sqlmap",
        "masscan",
        "zgrab",
        "nmap",
    ];
    let agent = agent.to_ascii_lowercase();
    let any = |words: &[&str]| words.iter().any(|word| agent.contains(word));
    match () {
        () if any(CRAWLERS) => Client::Crawler,
        () if any(SCRIPTS) => Client::Script,
        () => Client::Browser,
    }
}

fn method_of<'e>(entry: &'e Entry<'_>) -> &'e str {
    entry.method.as_deref().unwrap_or("-")
}

/// What a segment of a path begins with that only attackers look for.
const PROBES: &[&[u8]] = &[
    b".env",
    b".git",
    b".aws",
    b".ssh",
    b".svn",
    b".htaccess",
    b".DS_Store",
    b"wp-login",
    b"wp-admin",
    b"xmlrpc.php",
    b"phpmyadmin",
    b"phpunit",
    b"cgi-bin/",
    b"boaform",
    b"HNAP1",
    b"actuator",
    b"etc/passwd",
    b"server-status",
    b"shell",
    b"setup.php",
    b"config.php",
    b"vendor/",
    b"manager/html",
    b"solr/admin",
    b"_ignition",
    b"eval-stdin",
    b"owa/",
    b"autodiscover",
];

/// What the path of a request that signs in contains.
const SIGN_IN: &[&[u8]] = &[
    b"login",
    b"signin",
    b"sign-in",
    b"sign_in",
    b"logon",
    b"auth",
    b"token",
    b"password",
    b"passwd",
    b"register",
    b"signup",
    b"sign-up",
    b"otp",
    b"session",
    b"forgot",
    b"reset",
];

/// Whether it asks for what is above a folder.
fn climbs(target: &str) -> bool {
    let target = target.as_bytes();
    memchr::memchr_iter(b'.', target).any(|dot| target[dot..].starts_with(b"../"))
}

fn asks(method: &str, path: &str) -> Asks {
    let path = path.as_bytes();
    let mut segments = memchr::memchr_iter(b'/', path).map(|slash| &path[slash + 1..]);
    if segments.any(|rest| PROBES.iter().any(|probe| rest.first() == probe.first() && rest.starts_with(probe))) {
        return Asks::Probe;
    }
    if matches!(method, "POST" | "PUT" | "PATCH") && (0..path.len()).any(|at| has_sign_in(&path[at..])) {
        return Asks::SignIn;
    }
    Asks::Ordinary
}

/// Whether a text begins with such a word, in any case.
fn has_sign_in(text: &[u8]) -> bool {
    let first = text.first().map(u8::to_ascii_lowercase);
    let begins = |word: &&[u8]| text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    SIGN_IN.iter().any(|word| word.first().copied() == first && begins(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_by_what_they_say() {
        let cases = [
            ("Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)", Client::Crawler),
            ("python-requests/2.31", Client::Script),
            ("Mozilla/5.0 (X11; Linux x86_64) Chrome/120.0", Client::Browser),
        ];
        for (agent, expected) in cases {
            assert_eq!(claimed(agent), expected, "{agent}");
        }
    }

    #[test]
    fn requests_by_what_they_ask_for() {
        let cases = [
            ("GET", "/.env", Asks::Probe),
            ("GET", "/wp-login.php", Asks::Probe),
            ("POST", "/api/v1/Login", Asks::SignIn),
            ("GET", "/login", Asks::Ordinary),
            ("PUT", "/users/me/resetPassword", Asks::SignIn),
            ("POST", "/orders", Asks::Ordinary),
            ("GET", "/old/vendor/phpunit/phpunit/src/Util/PHP/eval-stdin.php", Asks::Probe),
            ("GET", "/vendors", Asks::Ordinary),
            ("GET", "/", Asks::Ordinary),
        ];
        for (method, path, expected) in cases {
            assert_eq!(asks(method, path), expected, "{path}");
        }
    }

    /// What a path asks for was once remembered for its route, by each worker for itself: after `POST /files/auth-20260105`, every
    /// `POST /files/{id}` that this worker read counted as an attempt to sign in, so the answer depended on the number of workers.
    #[test]
    fn what_came_before_on_the_same_route_changes_nothing() {
        let told = |targets: &[&'static str]| {
            let mut witness = Witness::default();
            let facts = targets.iter().map(|target| {
                let entry = Entry { method: Some("POST".into()), target: Some((*target).into()), ..Entry::default() };
                witness.see(&entry, target)
            });
            facts.last().expect("one")
        };
        let (odd, plain) = ("/files/auth-20260105", "/files/98765432");
        assert_eq!(told(&[odd]).route, told(&[plain]).route);
        assert_eq!((told(&[odd, plain]), told(&[plain, odd])), (told(&[plain]), told(&[odd])));
        assert_ne!(told(&[odd]).asks, told(&[plain]).asks);
    }
}
