//! The commands that are served.

/// The commands, as named in metrics. The busiest come first: names are compared one by one.
pub(crate) const NAMES: [&str; 20] = [
    "cl.throttle",
    "tollkeeper.check",
    "ping",
    "echo",
    "hello",
    "auth",
    "client",
    "command",
    "info",
    "config",
    "select",
    "reset",
    "quit",
    "del",
    "unlink",
    "multi",
    "exec",
    "discard",
    "watch",
    "unwatch",
];
