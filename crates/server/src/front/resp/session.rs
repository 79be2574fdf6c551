//! The state of a client: whether it is authenticated, and which protocol it uses.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use subtle::ConstantTimeEq as _;

use super::about;
use super::action::{Action, Queued};
use super::names::NAMES;
use super::reply::{Protocol, Reply, shown};
use super::request::{MAX_COMMAND, Word};
use super::throttle::Recent;
use crate::tokens::{Guesses, Wrong};

/// The password of clients.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Password(String);

impl Password {
    pub(crate) fn new(password: impl Into<String>) -> Password {
        Password(password.into())
    }

    /// In constant time: the duration of a refusal must not reveal how much of a guess was right.
    fn is(&self, guess: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(guess).into()
    }
}

/// It stays out of logs.
impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

/// How a client logs in.
#[derive(Debug)]
pub(super) struct Login {
    password: Password,
    /// Wrong passwords of all connections, by address.
    guesses: Arc<Guesses>,
    address: IpAddr,
}

impl Login {
    pub(super) fn new(password: Password, guesses: Arc<Guesses>, address: IpAddr) -> Login {
        Login { password, guesses, address }
    }
}

/// The state of one connection.
#[derive(Debug)]
pub(super) struct Session {
    /// A unique number.
    pub(super) id: u64,
    pub(super) protocol: Protocol,
    needed: Option<Login>,
    is_known: bool,
    /// Wrong passwords in a row.
    guesses: u32,
    /// Those that were not answered yet.
    failed: Vec<Wrong>,
    name: Vec<u8>,
    transaction: Option<Transaction>,
    pub(super) recent: Recent,
}

/// The commands since `MULTI`.
#[derive(Debug, Default)]
struct Transaction {
    commands: Vec<Queued>,
    /// Of all their words,
    bytes: usize,
    /// and of the answers that are known already.
    answers: usize,
    /// Whether one of them cannot be executed, so that none will be.
    is_refused: bool,
}

impl Session {
    /// The most commands of a transaction,
    const MOST_QUEUED: usize = 1_024;
    /// and the most bytes of them and of their answers: a client can keep them here for as long as it may be idle.
    const MOST_BYTES: usize = 4 * MAX_COMMAND;

    pub(super) fn new(id: u64, needed: Option<Login>) -> Session {
        let is_known = needed.is_none();
        let (protocol, recent) = (Protocol::default(), Recent::default());
        let failed = Vec::new();
        Session { id, protocol, needed, is_known, guesses: 0, failed, name: Vec::new(), transaction: None, recent }
    }

    /// Wrong passwords in a row.
    pub(super) fn guesses(&self) -> u32 {
        self.guesses
    }

    /// Wrong passwords that are about to be answered.
    pub(super) fn take_failed(&mut self) -> Vec<Wrong> {
        std::mem::take(&mut self.failed)
    }

    /// Whether it has failed so often that it is cut off.
    pub(super) fn is_guessing(&self) -> bool {
        const MOST: u32 = 5;
        self.guesses >= MOST
    }

    /// Whether it has authenticated, or needs not to.
    pub(super) fn is_known(&self) -> bool {
        self.is_known
    }

    /// `AUTH [username] password`.
    pub(super) fn auth(&mut self, words: &[Word<'_>]) -> Reply {
        let checked = match words {
            [password] => self.log_in(b"default", password),
            [user, password] => self.log_in(user, password),
            _ => return Reply::wrong_number_of_arguments("auth"),
        };
        checked.err().unwrap_or(Reply::OK)
    }

    fn log_in(&mut self, user: &[u8], password: &[u8]) -> Result<(), Reply> {
        let Some(needed) = &self.needed else {
            return Err(Reply::error(
                "ERR AUTH <password> called without any password configured for the default user. \
                 Are you sure your configuration is correct?",
            ));
        };
        let Some(attempt) = needed.guesses.begin(needed.address) else {
            self.guesses += 1;
            return Err(Reply::error(
                "ERR too many wrong passwords come from this address, so this one was not checked; try again later",
            ));
        };
        if user == b"default" && needed.password.is(password) {
            (self.is_known, self.guesses) = (true, 0);
            return Ok(());
        }
        self.guesses += 1;
        self.failed.push(attempt.count_wrong());
        Err(Reply::error("WRONGPASS invalid username-password pair or user is disabled."))
    }

    /// Whether it is between `MULTI` and `EXEC`.
    pub(super) fn is_in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    /// `MULTI`, `EXEC` or `DISCARD`.
    pub(super) fn transaction(&mut self, command: &[u8], words: &[Word<'_>]) -> Result<Action, Reply> {
        let command = String::from_utf8_lossy(command).to_ascii_lowercase();
        if !words.is_empty() {
            if let Some(transaction) = &mut self.transaction {
                transaction.is_refused = true;
            }
            return Err(Reply::wrong_number_of_arguments(&command));
        }
        if command == "multi" {
            if self.transaction.is_some() {
                return Err(Reply::error("ERR MULTI calls can not be nested"));
            }
            self.transaction = Some(Transaction::default());
            return Ok(Action::Answer(Reply::OK));
        }
        let without = || Reply::error(format!("ERR {} without MULTI", command.to_ascii_uppercase()));
        let Transaction { commands, is_refused, .. } = self.transaction.take().ok_or_else(without)?;
        match command.as_str() {
            "discard" => Ok(Action::Answer(Reply::OK)),
            _ if is_refused => Err(Reply::error("EXECABORT Transaction discarded because of previous errors.")),
            _ => Ok(Action::Transaction(commands)),
        }
    }

    /// Queues a command if there is a transaction: it is executed by `EXEC`. One that cannot be executed is refused now, and the
    /// whole transaction later, so that nothing is charged for an error.
    pub(super) fn queued(
        &mut self,
        name: Option<usize>,
        words: &[Word<'_>],
        action: Result<Action, Reply>,
    ) -> Result<Action, Reply> {
        let ends = |name: usize| matches!(NAMES[name], "multi" | "exec" | "discard" | "reset" | "quit");
        let Some(transaction) = self.transaction.as_mut().filter(|_| !name.is_some_and(ends)) else { return action };
        transaction.bytes += words.iter().map(|word| word.len()).sum::<usize>();
        transaction.answers += action.as_ref().map_or(0, Action::answered);
        let is_full = transaction.commands.len() >= Session::MOST_QUEUED
            || transaction.bytes.max(transaction.answers) > Session::MOST_BYTES;
        if transaction.is_refused || is_full {
            // Nothing of it will be executed, so nothing is kept.
            transaction.commands = Vec::new();
        }
        match action {
            Ok(Action::Answer(reply @ Reply::Error(_))) | Err(reply) => {
                (transaction.is_refused, transaction.commands) = (true, Vec::new());
                Err(reply)
            }
            Ok(_) if is_full => {
                transaction.is_refused = true;
                let (commands, bytes) = (Session::MOST_QUEUED, Session::MOST_BYTES / 1_024);
                Err(Reply::error(format!("ERR a transaction has at most {commands} commands and {bytes} KiB")))
            }
            Ok(_) if transaction.is_refused => Ok(Action::Answer(Reply::QUEUED)),
            Ok(action) => {
                transaction.commands.push(Queued { name, action });
                Ok(Action::Answer(Reply::QUEUED))
            }
        }
    }

    /// `HELLO [version [AUTH username password] [SETNAME name]]`. Applies everything that it names, or nothing.
    pub(super) fn hello(&mut self, words: &[Word<'_>]) -> Reply {
        self.try_hello(words).unwrap_or_else(|refusal| refusal)
    }

    fn try_hello(&mut self, words: &[Word<'_>]) -> Result<Reply, Reply> {
        let (protocol, mut options) = match words {
            [] => (self.protocol, words),
            [version, options @ ..] => (version_of(version)?, options),
        };
        let (mut login, mut name) = (None, None);
        while let [option, rest @ ..] = options {
            options = match rest {
                [user, password, rest @ ..] if option.eq_ignore_ascii_case(b"AUTH") => {
                    login = Some((user, password));
                    rest
                }
                [given, rest @ ..] if option.eq_ignore_ascii_case(b"SETNAME") => {
                    name = Some(name_of(given)?);
                    rest
                }
                _ => return Err(Reply::error(format!("ERR Syntax error in HELLO option '{}'", shown(option)))),
            };
        }
        if let Some((user, password)) = login {
            self.log_in(user, password)?;
        }
        if !self.is_known {
            return Err(Reply::error(
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH \
                 <user> <pass> option can be used to authenticate the client and select the RESP protocol version at \
                 the same time",
            ));
        }
        self.protocol = protocol;
        self.name = name.unwrap_or_else(|| std::mem::take(&mut self.name));
        Ok(about::hello(self.id, self.protocol))
    }

    /// `RESET`: like a new connection, except that failed guesses are remembered.
    pub(super) fn reset(&mut self) -> Reply {
        let failed = self.take_failed();
        *self = Session { guesses: self.guesses, failed, ..Session::new(self.id, self.needed.take()) };
        Reply::Simple("RESET")
    }

    /// `CLIENT`: what clients send about themselves when they connect.
    pub(super) fn client(&mut self, words: &[Word<'_>]) -> Reply {
        let Some((verb, arguments)) = words.split_first() else {
            return Reply::wrong_number_of_arguments("client");
        };
        let verb = verb.to_ascii_uppercase();
        match (verb.as_slice(), arguments) {
            (b"ID", []) => Reply::Integer(self.id as i64),
            (b"GETNAME", []) if self.name.is_empty() => Reply::Null,
            (b"GETNAME", []) => Reply::Bytes(self.name.clone()),
            (b"SETNAME", [name]) => match name_of(name) {
                Ok(name) => {
                    self.name = name;
                    Reply::OK
                }
                Err(refusal) => refusal,
            },
            (b"SETINFO", [_, _]) | (b"NO-EVICT" | b"NO-TOUCH", [_]) => Reply::OK,
            // Clients that cache what they read ask for notifications of changes (rueidis does so by default). Nothing can be read
            // here, so there is never anything to tell.
            (b"TRACKING", [switch, ..])
                if switch.eq_ignore_ascii_case(b"ON") || switch.eq_ignore_ascii_case(b"OFF") =>
            {
                Reply::OK
            }
            (b"CACHING", [answer]) if answer.eq_ignore_ascii_case(b"YES") || answer.eq_ignore_ascii_case(b"NO") => {
                Reply::OK
            }
            (b"INFO", []) => {
                let name = String::from_utf8_lossy(&self.name);
                Reply::Text(format!("id={} name={name} db=0 resp={}\n", self.id, self.protocol.version()))
            }
            (verb, _) => Reply::error(format!(
                "ERR CLIENT {} is not supported; use ID, INFO, GETNAME, SETNAME, SETINFO, NO-EVICT, NO-TOUCH, TRACKING \
                 or CACHING",
                shown(verb)
            )),
        }
    }
}

fn version_of(word: &[u8]) -> Result<Protocol, Reply> {
    match word {
        b"2" => Ok(Protocol::Resp2),
        b"3" => Ok(Protocol::Resp3),
        _ if word.iter().all(u8::is_ascii_digit) => Err(Reply::error("NOPROTO unsupported protocol version")),
        _ => Err(Reply::error("ERR Protocol version is not an integer or out of range")),
    }
}

fn name_of(word: &[u8]) -> Result<Vec<u8>, Reply> {
    const LONGEST: usize = 256;
    if word.len() <= LONGEST && word.iter().all(u8::is_ascii_graphic) {
        return Ok(word.to_vec());
    }
    Err(Reply::error("ERR Client names cannot contain spaces, newlines or special characters."))
}
