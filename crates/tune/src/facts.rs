//! What a line tells about its client beside its key: signs of bots and scanners, and which route it asked for.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hasher as _};

use tollkeeper::http::normal_path;
use tollkeeper_logs::Entry;

use crate::census::ByHash;
use crate::routes;

/// The same in every run, so that reports can be compared.
pub(crate) fn hash_of(parts: &[&[u8]]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for part in parts {
        hasher.write(part);
        hasher.write_u8(0xff);
    }
    hasher.finish()
}

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
#[derive(Debug, Default)]
pub(crate) struct Witness {
    agents: ByHash<Client>,
    /// Routes whose text was handed on, and what they ask for.
    routes: ByHash<Asks>,
    text: String,
}

/// Texts that a worker remembers; with more it looks at each again.
const REMEMBERED: usize = 50_000;

impl Witness {
    /// The facts, and the text of a route that this worker sees for the first time.
    pub(crate) fn see(&mut self, entry: &Entry<'_>) -> (Facts, Option<Box<str>>) {
        let agent = entry.others.iter().find(|(name, _)| name == "header.user-agent").map(|(_, agent)| agent.as_ref());
        let (agent, client) = self.client(agent, entry);
        let path = entry.path().map_or(Cow::Borrowed(""), normal_path);
        let method = entry.method.as_deref().unwrap_or("-");
        self.text.clear();
        routes::write_route(&mut self.text, method, &path);
        let route = hash_of(&[self.text.as_bytes()]);
        // Looking for words in each path would take most of the time.
        let known = self.routes.get(&route).copied();
        let asks = known.unwrap_or_else(|| asks(method, &path));
        if known.is_none() && self.routes.len() < REMEMBERED {
            self.routes.insert(route, asks);
        }
        let climbs =
            entry.target.as_deref().is_some_and(|target| memchr::memmem::find(target.as_bytes(), b"../").is_some());
        let asks = if climbs { Asks::Probe } else { asks };
        let facts = Facts { status: entry.status.unwrap_or(0), route, agent, client, asks };
        (facts, known.is_none().then(|| self.text.as_str().into()))
    }

    fn client(&mut self, agent: Option<&str>, entry: &Entry<'_>) -> (u64, Client) {
        let Some(agent) = agent else {
            // Formats that log user agents log others of the same request too.
            let logs_agents = entry.others.iter().any(|(name, _)| name == "header.referer");
            return (0, if logs_agents { Client::Nameless } else { Client::Unknown });
        };
        let hash = hash_of(&[agent.as_bytes()]);
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
