//! A log to try things on: a day of a made-up site in the combined format, the same for the same seed.
//!
//! Most clients are people who ask for little. Some are not: a scraper, a scanner at night, somebody who guesses passwords, two crawlers
//! that say so, and an office whose people share one address.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::ops::Range;

/// Of Monday, 5 January 2026.
const DAY: u64 = 86_400;

/// Random numbers that repeat with their seed: SplitMix64 (Steele, Lea, Flood 2014), small, fast, and good enough to make traffic.
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    /// The same seed gives the same numbers.
    #[must_use]
    pub fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    /// Any number.
    #[expect(clippy::should_implement_trait, reason = "it never ends, and nobody iterates")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 up to but not including this.
    pub fn below(&mut self, most: u64) -> u64 {
        self.next() % most.max(1)
    }

    /// From 0 to 1.
    pub fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Seconds that a visit takes at most.
const VISIT: u64 = 90;

/// Writes this many lines.
pub fn write_sample(lines: u64, seed: u64, out: &mut impl Write) -> io::Result<()> {
    let mut chance = Chance::new(seed);
    let clients = (lines / 6).max(50);
    let weights: Vec<f64> = (0..24).map(|hour| busy(f64::from(hour))).collect();
    let all: f64 = weights.iter().sum::<f64>() * 3_600.0;
    // What visits will still ask for, by second.
    let mut planned: VecDeque<Vec<String>> = (0..=VISIT).map(|_| Vec::new()).collect();
    let (mut people, mut others, mut written) = (0.0, [0.0; KINDS.len()], 0);
    for second in 0..DAY {
        let hour = second / 3_600;
        people += weights[hour as usize] / all * lines as f64 * PEOPLE;
        while people >= 1.0 {
            people -= plan_visit(&mut planned, second, &mut chance, clients);
        }
        for (kind, owed) in KINDS.iter().zip(&mut others) {
            if kind.hours.contains(&hour) {
                let seconds = (kind.hours.end - kind.hours.start) * 3_600;
                *owed += lines as f64 * kind.share / seconds as f64;
                while *owed >= 1.0 {
                    *owed -= 1.0;
                    let place = chance.below(planned[0].len() as u64 + 1) as usize;
                    planned[0].insert(place, line(second, (kind.request)(&mut chance)));
                }
            }
        }
        for line in planned.pop_front().unwrap_or_default() {
            if written < lines {
                written += 1;
                out.write_all(line.as_bytes())?;
            }
        }
        planned.push_back(Vec::new());
    }
    // What rounding left over.
    while written < lines {
        written += 1;
        let client = chance.below(clients);
        out.write_all(line(DAY - 1, person(client, &mut chance, "/about".into())).as_bytes())?;
    }
    Ok(())
}

/// The share of requests that people make.
const PEOPLE: f64 = 0.76;

/// Somebody who is not one person.
struct Other {
    share: f64,
    hours: Range<u64>,
    request: fn(&mut Chance) -> Asked,
}

/// A request of somebody.
struct Asked {
    ip: String,
    method: &'static str,
    path: String,
    status: u16,
    agent: String,
}

const KINDS: [Other; 5] = [
    Other {
        share: 0.12,
        hours: 9..14,
        request: |chance| {
            let path = format!("/products/{}", chance.below(200_000));
            Asked { ip: "203.0.113.7".into(), method: "GET", path, status: 200, agent: "python-requests/2.32.3".into() }
        },
    },
    Other {
        share: 0.01,
        hours: 3..4,
        request: |chance| {
            let path = PROBES[chance.below(PROBES.len() as u64) as usize].into();
            let agent = "Mozilla/5.0 zgrab/0.x".into();
            Asked { ip: "198.51.100.23".into(), method: "GET", path, status: 404, agent }
        },
    },
    Other {
        share: 0.01,
        hours: 20..23,
        request: |_| Asked {
            ip: "192.0.2.66".into(),
            method: "POST",
            path: "/login".into(),
            status: 401,
            agent: BROWSERS[0].into(),
        },
    },
    Other {
        share: 0.04,
        hours: 0..24,
        request: |chance| {
            let agent = "Mozilla/5.0 (compatible; Examplebot/2.1; +http://www.example.com/bot.html)".into();
            let path = format!("/products/{}", chance.below(50_000));
            Asked { ip: format!("192.0.2.{}", 10 + chance.below(2)), method: "GET", path, status: 200, agent }
        },
    },
    Other {
        share: 0.06,
        hours: 8..18,
        request: |chance| {
            let person = chance.below(120);
            let agent = format!("{} Office/{person}", BROWSERS[(person % 4) as usize]);
            Asked { ip: "198.51.100.200".into(), method: "GET", path: path(chance), status: 200, agent }
        },
    },
];

/// One visit of a person: pages with what belongs to them. Returns how many requests it makes.
fn plan_visit(planned: &mut VecDeque<Vec<String>>, second: u64, chance: &mut Chance, clients: u64) -> f64 {
    // Some come more often than others.
    let client = (chance.share().powf(1.3) * clients as f64) as u64;
    let pages = 1 + chance.below(3);
    let mut requests = 0;
    for page in 0..pages {
        let at = page * chance.below(VISIT / 3);
        let plan = |at: u64, asked: Asked, planned: &mut VecDeque<Vec<String>>| {
            planned[at.min(VISIT) as usize].push(line(second + at.min(VISIT), asked));
        };
        let asked = match chance.below(30) {
            0 => Asked {
                method: "POST",
                status: if chance.below(10) == 0 { 401 } else { 302 },
                ..person(client, chance, "/login".into())
            },
            1 | 2 => Asked { method: "POST", status: 201, ..person(client, chance, "/api/v1/cart".into()) },
            _ => {
                let path = path(chance);
                person(client, chance, path)
            }
        };
        plan(at, asked, planned);
        requests += 1;
        for _ in 0..chance.below(4) {
            let path = format!("/static/app.{:08x}.js", chance.below(40) * 1_234_567);
            plan(at + chance.below(2), person(client, chance, path), planned);
            requests += 1;
        }
    }
    f64::from(requests)
}

fn person(client: u64, chance: &mut Chance, path: String) -> Asked {
    let ip = match client % 5 {
        0 => format!("2001:db8:{:x}:{:x}::{:x}", client >> 16 & 0xffff, client & 0xffff, chance.below(4)),
        _ => format!("10.{}.{}.{}", client >> 16 & 0xff, client >> 8 & 0xff, client & 0xff),
    };
    let status = if chance.below(200) == 0 { 404 } else { 200 };
    Asked { ip, method: "GET", path, status, agent: BROWSERS[(client % 4) as usize].into() }
}

fn line(second: u64, asked: Asked) -> String {
    let second = second.min(DAY - 1);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    let Asked { ip, method, path, status, agent } = asked;
    let size = 200 + (path.len() as u64 * 7_919 + second * 104_729) % 20_000;
    format!(
        "{ip} - - [05/Jan/2026:{hour:02}:{minute:02}:{second:02} +0000] \"{method} {path} HTTP/1.1\" {status} {size} \"-\" \"{agent}\"\n"
    )
}

/// How busy the site is in an hour: least at four, most in the afternoon.
fn busy(hour: f64) -> f64 {
    1.2 - ((hour - 4.0) / 24.0 * std::f64::consts::TAU).cos()
}

const BROWSERS: [&str; 4] = [
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.1 Safari/605.1.15",
    "Mozilla/5.0 (X11; Linux x86_64; rv:133.0) Gecko/20100101 Firefox/133.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148",
];
const PROBES: [&str; 6] =
    ["/.env", "/wp-login.php", "/.git/config", "/phpmyadmin/index.php", "/actuator/env", "/cgi-bin/test.cgi"];

fn path(chance: &mut Chance) -> String {
    match chance.below(100) {
        0..10 => "/".into(),
        10..45 => format!("/products/{}", chance.below(20_000)),
        45..60 => format!("/users/{}/orders", chance.below(100_000)),
        60..80 => format!("/search?q={:x}", chance.next() >> 40),
        80..95 => "/api/v1/cart".into(),
        _ => "/about".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_log() {
        let sample = |seed| {
            let mut out = Vec::new();
            write_sample(2_000, seed, &mut out).expect("written");
            String::from_utf8(out).expect("text")
        };
        assert_eq!(sample(1), sample(1));
        assert_ne!(sample(1), sample(2));
        assert_eq!(sample(1).lines().count(), 2_000);
    }
}
