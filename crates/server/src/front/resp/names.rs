//! The commands that are served.

/// What is served, as it is called in metrics. The busiest are first: names are compared one by one.
pub(crate) const NAMES: [&str; 13] = [
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
];
