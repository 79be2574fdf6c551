//! What clients ask about the server when they connect. The minimum they need.

use std::sync::LazyLock;

use super::names::NAMES;
use super::reply::{Protocol, Reply, shown};
use super::request::Word;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Some clients compare it before they use newer features. Ours behaves like this one.
const REDIS_VERSION: &str = "7.2.0";

/// What `CONFIG GET` returns: the settings that redis-benchmark and some libraries read.
const SETTINGS: [(&str, &str); 4] = [("save", ""), ("appendonly", "no"), ("databases", "1"), ("maxmemory", "0")];

/// The answer to `HELLO`.
pub(super) fn hello(connection: u64, protocol: Protocol) -> Reply {
    Reply::Map(vec![
        ("server", Reply::text("tollkeeper")),
        ("version", Reply::text(VERSION)),
        ("proto", Reply::Integer(protocol.version())),
        ("id", Reply::Integer(connection as i64)),
        ("mode", Reply::text("standalone")),
        ("role", Reply::text("master")),
        ("modules", Reply::Array(Vec::new())),
    ])
}

/// `INFO`: clients wait until nothing is loading. The requested section is ignored.
pub(super) fn info() -> Reply {
    Reply::Text(format!(
        "# Server\r\nredis_version:{REDIS_VERSION}\r\ntollkeeper_version:{VERSION}\r\nredis_mode:standalone\r\n\
         # Persistence\r\nloading:0\r\n# Replication\r\nrole:master\r\nconnected_slaves:0\r\n"
    ))
}

/// `CONFIG GET name [name ...]`.
pub(super) fn config(words: &[Word<'_>]) -> Reply {
    match words {
        [verb, names @ ..] if verb.eq_ignore_ascii_case(b"GET") && !names.is_empty() => {
            let is_asked = |setting: &str| {
                names.iter().any(|name| **name == *b"*" || name.eq_ignore_ascii_case(setting.as_bytes()))
            };
            let asked = SETTINGS.iter().filter(|(setting, _)| is_asked(setting));
            Reply::Map(asked.map(|(setting, value)| (*setting, Reply::text(*value))).collect())
        }
        _ => Reply::error("ERR only CONFIG GET is supported; settings are in the configuration file"),
    }
}

/// `SELECT index`: there is one database. Another number is refused, since what a client keeps in one database of Redis
/// must not meet what it keeps in another.
pub(super) fn select(database: &[u8]) -> Reply {
    match std::str::from_utf8(database).ok().and_then(|text| text.parse::<i64>().ok()) {
        Some(0) => Reply::OK,
        Some(number) => Reply::error(format!(
            "ERR DB index is out of range: there is only database 0, not {number}; use it, with a key prefix for each \
             application"
        )),
        None => Reply::error("ERR value is not an integer or out of range"),
    }
}

/// The descriptions of all commands, each and together. They are long, and a client can ask for them in a few bytes.
static DESCRIBED: LazyLock<(Vec<Vec<u8>>, Vec<u8>)> = LazyLock::new(|| {
    let written = |reply: &Reply| {
        let mut out = Vec::new();
        // Arrays, texts and integers are the same in both versions.
        reply.write(Protocol::Resp2, &mut out);
        out
    };
    let all: Vec<Reply> = NAMES.iter().map(|name| describe(name)).collect();
    (all.iter().map(written).collect(), written(&Reply::Array(all)))
});

/// `COMMAND`: the list of commands.
pub(super) fn commands(words: &[Word<'_>]) -> Reply {
    let described = || Reply::Written(&DESCRIBED.1);
    let Some((verb, names)) = words.split_first() else { return described() };
    match verb.to_ascii_uppercase().as_slice() {
        b"COUNT" => Reply::Integer(NAMES.len() as i64),
        b"LIST" => Reply::Array(NAMES.iter().map(|name| Reply::text(*name)).collect()),
        // For hints while typing; there are none.
        b"DOCS" => Reply::Map(Vec::new()),
        b"INFO" if names.is_empty() => described(),
        b"INFO" => {
            let find = |word: &Word<'_>| NAMES.iter().position(|name| word.eq_ignore_ascii_case(name.as_bytes()));
            let described = |word| find(word).map_or(Reply::Null, |at| Reply::Written(&DESCRIBED.0[at]));
            Reply::Array(names.iter().map(described).collect())
        }
        _ => Reply::error(format!("ERR COMMAND {} is not supported; use COUNT, DOCS, INFO or LIST", shown(verb))),
    }
}

/// Name, arity (negative: at least that many), flags, and the positions of first key, last key and the step between.
fn describe(name: &str) -> Reply {
    let (arity, flag, key) = match name {
        "cl.throttle" => (-5, "write", 1),
        "tollkeeper.check" => (-3, "write", 0),
        "del" | "unlink" | "watch" => (-2, "write", 1),
        "multi" | "exec" | "discard" | "unwatch" => (1, "fast", 0),
        "echo" | "select" => (2, "fast", 0),
        "auth" | "client" | "config" => (-2, "fast", 0),
        "quit" | "reset" => (1, "fast", 0),
        _ => (-1, "fast", 0),
    };
    let places = [key; 3].map(Reply::Integer);
    let flags = Reply::Array(vec![Reply::Simple(flag)]);
    let mut description = vec![Reply::text(name), Reply::Integer(arity), flags];
    description.extend(places);
    // Categories, tips, key specifications and subcommands, as Redis 7 has them.
    description.extend([const { Reply::Array(Vec::new()) }; 4]);
    Reply::Array(description)
}
