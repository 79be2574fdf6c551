//! What a command asks for. Everything that needs no store is answered here and in order, so that the connection's
//! state is always that after the commands before; the others become a [`Step`] to be executed with others.

use super::action::Action;
use super::names::{NAMES, position};
use super::reply::{Protocol, Reply, shown};
use super::request::Word;
use super::session::Session;
use super::shared::Shared;
use super::{about, check};
use crate::metrics::Front;

/// A parsed command.
#[derive(Debug)]
pub(super) struct Step {
    /// Its index in [`NAMES`]; `None` if unknown.
    pub(super) name: Option<usize>,
    pub(super) action: Action,
    /// The protocol of its answer: a later `HELLO` does not change it.
    pub(super) protocol: Protocol,
    /// What happens to the connection.
    pub(super) then: Then,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    GoOn,
    Close,
}

impl Step {
    /// The last answer, after a protocol error.
    pub(super) fn last(problem: String, protocol: Protocol) -> Step {
        Step { name: None, action: Action::Answer(Reply::Error(problem)), protocol, then: Then::Close }
    }
}

/// Parses a command; `None` if the connection must end without an answer.
pub(super) fn plan(shared: &Shared, session: &mut Session, words: &[Word<'_>]) -> Option<Step> {
    let (command, arguments) = words.split_first()?;
    let name = position(command);
    if name.is_none() && is_http(command) {
        return None;
    }
    let action = match name.map(|name| NAMES[name]) {
        // What they change could not be undone by `DISCARD`.
        Some(name @ ("auth" | "hello" | "client" | "watch")) if session.is_in_transaction() => {
            Err(Reply::error(format!("ERR {} inside MULTI is not allowed", name.to_ascii_uppercase())))
        }
        Some("multi" | "exec" | "discard") if session.is_known() => session.transaction(command, arguments),
        Some(name) => understand(shared, session, name, arguments),
        None if !session.is_known() => no_password(),
        None => unknown(command),
    };
    let action = session.queued(name, words, action);
    let is_last = name.is_some_and(|name| NAMES[name] == "quit") || session.is_guessing();
    let then = if is_last { Then::Close } else { Then::GoOn };
    // After the action: the answer to `HELLO 3` already uses the new version.
    Some(Step { name, action: action.unwrap_or_else(Action::Answer), protocol: session.protocol, then })
}

/// A refusal is an answer too.
fn understand(shared: &Shared, session: &mut Session, name: &str, words: &[Word<'_>]) -> Result<Action, Reply> {
    if !session.is_known() && !matches!(name, "auth" | "hello" | "quit" | "reset") {
        return no_password();
    }
    let reply = match (name, words) {
        ("cl.throttle", _) => {
            return Ok(Action::Throttle(counted(shared, shared.quotas.understand(words, &mut session.recent))?));
        }
        ("tollkeeper.check", _) => return Ok(Action::Check(counted(shared, check::understand(words))?)),
        ("ping", []) => Reply::Simple("PONG"),
        ("ping" | "echo", [text]) => Reply::Bytes(text.to_vec()),
        ("hello", _) => session.hello(words),
        ("auth", _) => session.auth(words),
        ("client", _) => session.client(words),
        ("command", _) => about::commands(words),
        ("info", _) => about::info(),
        ("config", _) => about::config(words),
        ("select", [database]) => about::select(database),
        ("del" | "unlink", [_, ..]) => return Ok(Action::Reset(shared.quotas.buckets(words))),
        // Nobody else's change can come in between: a bucket is changed by one command.
        ("watch", [_, ..]) | ("unwatch", []) => Reply::OK,
        ("reset", []) => session.reset(),
        ("quit", _) => Reply::OK,
        _ => Reply::wrong_number_of_arguments(name),
    };
    Ok(Action::Answer(reply))
}

/// A request that cannot be read is one too.
fn counted<T>(shared: &Shared, understood: Result<T, Reply>) -> Result<T, Reply> {
    understood.inspect_err(|_| shared.service.refused(Front::Resp, 1))
}

fn no_password() -> Result<Action, Reply> {
    Err(Reply::error("NOAUTH Authentication required."))
}

fn unknown(command: &[u8]) -> Result<Action, Reply> {
    let there_are = NAMES.map(str::to_ascii_uppercase).join(", ");
    Err(Reply::error(format!("ERR unknown command '{}'; there are {there_are}", shown(command))))
}

/// An HTTP request from a browser that was tricked into sending it. Its body could contain commands, so nothing of it
/// is read.
fn is_http(command: &[u8]) -> bool {
    command.eq_ignore_ascii_case(b"POST") || command.eq_ignore_ascii_case(b"HOST:")
}
