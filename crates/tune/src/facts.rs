//! What a line tells about its client beside its key: signs of bots and scanners, and which route it asked for.

use memchr::memmem;
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

/// Turns entries into facts; each worker has its own, because it remembers what it has seen.
#[derive(Debug)]
pub(crate) struct Witness {
    agents: ByHash<Client>,
    /// Routes whose text was handed on, and what they ask for.
    routes: ByHash<Asks>,
    text: String,
    /// Paths that came lately, each in the place that its hash gives it.
    seen: Box<[Seen]>,
    climbing: memmem::Finder<'static>,
}

impl Default for Witness {
    fn default() -> Witness {
        let climbing = memmem::Finder::new(b"../");
        let seen = vec![Seen::default(); SEEN].into_boxed_slice();
        Witness { agents: ByHash::default(), routes: ByHash::default(), text: String::new(), seen, climbing }
    }
}

/// A path and the route that it belongs to.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    asked: u64,
    route: u64,
    asks: Asks,
}

/// Paths that a worker has at hand.
const SEEN: usize = 4_096;

/// Texts that a worker remembers; with more it looks at each again.
const REMEMBERED: usize = 50_000;

impl Witness {
    /// The facts, and the text of a route that this worker sees for the first time.
    pub(crate) fn see(&mut self, entry: &Entry<'_>, path: &str) -> (Facts, Option<&str>) {
        let agent = entry.others.iter().find(|(name, _)| name == "header.user-agent").map(|(_, agent)| agent.as_ref());
        let (agent, client) = self.client(agent, entry);
        let method = entry.method.as_deref().unwrap_or("-");
        let asked = hash_of(hash_of(0, method.as_bytes()), path.as_bytes());
        let seen = self.seen[asked as usize % SEEN];
        let (route, asks, is_new) = if seen.asked == asked {
            (seen.route, seen.asks, false)
        } else {
            let (route, asks, is_new) = self.route(method, path);
            self.seen[asked as usize % SEEN] = Seen { asked, route, asks };
            (route, asks, is_new)
        };
        let climbs = entry.target.as_deref().is_some_and(|target| self.climbing.find(target.as_bytes()).is_some());
        let asks = if climbs { Asks::Probe } else { asks };
        let facts = Facts { status: entry.status.unwrap_or(0), route, agent, client, asks };
        (facts, is_new.then_some(self.text.as_str()))
    }

    /// The hash of a route, what it asks for, and whether this worker sees it for the first time; then its text is in `text`.
    fn route(&mut self, method: &str, path: &str) -> (u64, Asks, bool) {
        self.text.clear();
        routes::write_route(&mut self.text, method, path);
        let route = hash_of(0, self.text.as_bytes());
        // Looking for words in each path would take most of the time.
        let known = self.routes.get(&route).copied();
        let asks = known.unwrap_or_else(|| asks(method, path));
        if known.is_none() && self.routes.len() < REMEMBERED {
            self.routes.insert(route, asks);
        }
        (route, asks, known.is_none())
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

fn asks(method: &str, path: &str) -> Asks {
    const PROBES: &[&str] = &[
        "/.env",
        "/.git",
        "/.aws",
        "/.ssh",
        "/.svn",
        "/.htaccess",
        "/.DS_Store",
        "/wp-login",
        "/wp-admin",
        "/xmlrpc.php",
        "/phpmyadmin",
        "/phpunit",
        "/cgi-bin/",
        "/boaform",
        "/HNAP1",
        "/actuator",
        "/etc/passwd",
        "/server-status",
        "/shell",
        "/setup.php",
        "/config.php",
        "/vendor/",
        "/manager/html",
        "/solr/admin",
        "/_ignition",
        "/eval-stdin",
        "/owa/",
        "/autodiscover",
    ];
    const SIGN_IN: &[&str] = &[
        "login", "signin", "sign-in", "sign_in", "logon", "auth", "token", "password", "passwd", "register", "signup",
        "sign-up", "otp", "session", "forgot", "reset",
    ];
    if PROBES.iter().any(|probe| path.contains(probe)) {
        return Asks::Probe;
    }
    if matches!(method, "POST" | "PUT" | "PATCH") {
        let path = path.to_ascii_lowercase();
        if SIGN_IN.iter().any(|word| path.contains(word)) {
            return Asks::SignIn;
        }
    }
    Asks::Ordinary
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
            ("GET", "/", Asks::Ordinary),
        ];
        for (method, path, expected) in cases {
            assert_eq!(asks(method, path), expected, "{path}");
        }
    }
}
