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

/// The index of a command, which may be written in any case.
pub(super) fn position(command: &[u8]) -> Option<usize> {
    // Nearly all are this one. Comparing letter by letter would take as long as reading the rest of the command.
    if matches!(command, b"CL.THROTTLE" | b"cl.throttle") {
        return Some(0);
    }
    NAMES.iter().position(|name| command.eq_ignore_ascii_case(name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_in_any_case() {
        for (index, name) in NAMES.iter().enumerate() {
            let capital = name[..1].to_ascii_uppercase() + &name[1..];
            for written in [name.to_string(), name.to_ascii_uppercase(), capital] {
                assert_eq!(position(written.as_bytes()), Some(index), "{written}");
            }
        }
        assert_eq!(position(b"get"), None);
    }
}
