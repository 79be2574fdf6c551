//! One connection: read, parse, decide, answer, read on.

use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, poll_immediate};
use http::HeaderMap;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tollkeeper::{Charge, CheckError};

use super::action::{Action, Queued};
use super::command::{Step, Then, plan};
use super::group::Group;
use super::names::NAMES;
use super::reply::{Protocol, Reply};
use super::request::{MAX_COMMAND, Parsed, Word, parse};
use super::session::{Login, Session};
use super::shared::Shared;
use super::{check, throttle};
use crate::front::connections::Stream;
use crate::front::stopped::Stopped;
use crate::metrics::{CommandOutcome, Front};
use crate::telemetry::Described;

/// Commands that are decided together.
struct Batch {
    /// Those that were not answered yet.
    steps: Vec<Step>,
    /// How many bytes all of them took.
    taken: usize,
    then: Then,
    /// Whether more may have arrived.
    has_more: bool,
}

pub(super) struct Connection {
    shared: Arc<Shared>,
    stream: Stream,
    session: Session,
    stopped: Stopped,
    /// Bytes that were not parsed yet: less than a command, once all complete commands were answered.
    input: Vec<u8>,
    output: Vec<u8>,
    /// Memory for the words of a command.
    words: Vec<Word<'static>>,
    /// Since when the first command of the input is incomplete.
    waiting_since: Option<Instant>,
}

impl Connection {
    /// The size of a read: a deep pipeline of short commands.
    const CHUNK: usize = 16 * 1024;
    /// What a client sends that pipelines many commands.
    const MUCH: usize = Connection::CHUNK / 4;
    /// How much the buffers keep while the connection is idle.
    const KEPT: usize = 2 * Connection::CHUNK;
    /// For how many words of a command memory is kept.
    const WORDS: usize = 64;
    /// How long a client that is cut off gets to read why.
    const FAREWELL: Duration = Duration::from_millis(200);

    pub(super) fn new(
        shared: Arc<Shared>,
        stream: Stream,
        peer: IpAddr,
        number: u64,
        stopping: watch::Receiver<bool>,
    ) -> Connection {
        let login = shared.password.clone().map(|password| Login::new(password, shared.service.guesses.clone(), peer));
        let session = Session::new(number, login);
        let (stopped, words) = (Stopped::new(stopping), Vec::new());
        let (input, output) = (Vec::new(), Vec::new());
        Connection { shared, stream, session, stopped, input, output, words, waiting_since: None }
    }

    /// Runs until the client leaves, is cut off, or the service stops.
    pub(super) async fn serve(mut self) -> io::Result<()> {
        loop {
            let read = self.read().await?;
            if read == 0 {
                return Ok(());
            }
            if self.answer().await? == Then::Close {
                return self.farewell().await;
            }
            if read >= Self::MUCH {
                // There may be more at once, and other connections are served by this thread too.
                yield_now().await;
            }
        }
    }

    /// How many bytes have arrived; none at the end.
    async fn read(&mut self) -> io::Result<usize> {
        self.input.reserve(Self::CHUNK);
        let reading = self.stream.read_buf(&mut self.input);
        match self.waiting_since {
            Some(since) => tokio::select! {
                biased;
                () = self.stopped.wait() => Ok(0),
                read = timeout_at(since + self.shared.limits.stall, reading) => Ok(read??),
            },
            // The stream itself fails when it is idle for too long.
            None => tokio::select! {
                biased;
                () = self.stopped.wait() => Ok(0),
                read = reading => read,
            },
        }
    }

    /// Answers every complete command, a batch at a time.
    async fn answer(&mut self) -> io::Result<Then> {
        let mut at = 0;
        loop {
            let guesses = self.session.guesses();
            let Batch { steps, taken, then, has_more } = self.understand(at);
            at += taken;
            if self.shared.decides_here {
                // None of them waits, so none has to be kept beside the others.
                for step in steps {
                    let (reply, protocol) = carry_out(&self.shared, step).await;
                    self.write(&reply, protocol).await?;
                }
            } else if !steps.is_empty() {
                let replies = join_all(steps.into_iter().map(|step| carry_out(&self.shared, step))).await;
                for (reply, protocol) in replies {
                    self.write(&reply, protocol).await?;
                }
            }
            if self.session.guesses() > guesses {
                self.pause().await;
            }
            self.flush().await?;
            if then == Then::Close {
                return Ok(then);
            }
            if !has_more {
                break;
            }
        }
        self.input.drain(..at);
        if self.input.capacity() > MAX_COMMAND && self.input.len() < Self::CHUNK {
            self.input.shrink_to(Self::KEPT);
        }
        // The clock runs from a command's first byte: a client that sends a byte now and then is cut off too.
        let is_new = at > 0 || self.waiting_since.is_none();
        self.waiting_since = match self.input.is_empty() {
            true => None,
            false if is_new => Some(Instant::now()),
            false => self.waiting_since,
        };
        Ok(Then::GoOn)
    }

    /// A client that guessed a password wrong waits for the answer, twice as long each time. Other connections do not
    /// wait.
    async fn pause(&mut self) {
        const FIRST: Duration = Duration::from_millis(100);
        let pause = FIRST * 2_u32.pow(self.session.guesses().clamp(1, 5) - 1);
        let failed = self.session.take_failed();
        let wait = async {
            sleep(pause).await;
            // Longer for an address that guesses on many connections.
            for wrong in failed {
                wrong.delay().await;
            }
        };
        tokio::select! {
            () = wait => {}
            () = self.stopped.wait() => {}
        }
    }

    /// The next commands, as many as are decided together. Those that need not wait are answered at once, for as long as none
    /// before them waits.
    fn understand(&mut self, start: usize) -> Batch {
        let Connection { shared, session, input, output, words, .. } = self;
        let mut borrowed = again(std::mem::take(words));
        let mut group = Group::default();
        let batch = understand(shared, session, (&input[..], start), output, &mut borrowed, &mut group);
        // The steps are carried out after them.
        group.decide(shared, session, output);
        if borrowed.capacity() <= Self::WORDS {
            *words = again(borrowed);
        }
        batch
    }

    /// Adds a reply to those that are sent together, unless there are many bytes of them already: what a client does not read
    /// must not pile up here.
    async fn write(&mut self, reply: &Reply, protocol: Protocol) -> io::Result<()> {
        reply.write(protocol, &mut self.output);
        if self.output.len() > MAX_COMMAND { self.flush().await } else { Ok(()) }
    }

    async fn flush(&mut self) -> io::Result<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        let mut sending = pin!(async {
            self.stream.write_all(&self.output).await?;
            // With TLS, written bytes may not have been sent yet.
            self.stream.flush().await
        });
        // Nearly always the system takes them at once, and no timer is needed.
        match poll_immediate(sending.as_mut()).await {
            Some(sent) => sent?,
            None => timeout(self.shared.limits.stall, sending).await??,
        }
        self.output.clear();
        self.output.shrink_to(Self::KEPT);
        Ok(())
    }

    /// Closing while more is arriving would discard our last answer (the kernel resets the connection), so input is
    /// read and discarded for a moment.
    async fn farewell(mut self) -> io::Result<()> {
        self.stream.shutdown().await?;
        let unread = async {
            let mut ignored = [0; 4096];
            while self.stream.read(&mut ignored).await.is_ok_and(|read| read > 0) {}
        };
        let _ = timeout(Self::FAREWELL, unread).await;
        Ok(())
    }
}

/// The memory of these words, for others.
fn again<'b>(mut words: Vec<Word<'_>>) -> Vec<Word<'b>> {
    words.clear();
    words.into_iter().map(|_| Word::default()).collect()
}

/// The commands of the input from `start` on: see [`Connection::understand`].
fn understand<'b>(
    shared: &Shared,
    session: &mut Session,
    (input, start): (&'b [u8], usize),
    output: &mut Vec<u8>,
    words: &mut Vec<Word<'b>>,
    group: &mut Group,
) -> Batch {
    let (mut steps, mut at) = (Vec::new(), start);
    for _ in 0..shared.limits.depth {
        let step = match parse(&input[at..], words) {
            Ok(Parsed::Incomplete) => return Batch { steps, taken: at - start, then: Then::GoOn, has_more: false },
            Ok(Parsed::Command(taken)) => {
                at += taken;
                if words.is_empty() || (steps.is_empty() && group.take(shared, session, words, output)) {
                    continue;
                }
                group.decide(shared, session, output);
                match plan(shared, session, words) {
                    Some(step) => step,
                    None => return Batch { steps, taken: at - start, then: Then::Close, has_more: false },
                }
            }
            Err(error) => {
                group.decide(shared, session, output);
                Step::last(format!("ERR Protocol error: {error}"), session.protocol)
            }
        };
        let then = step.then;
        match step {
            step if !steps.is_empty() => steps.push(step),
            step => steps.extend(answer_now(shared, step, output)),
        }
        // What a client does not read must not pile up here.
        if then == Then::Close || output.len() > MAX_COMMAND {
            return Batch { steps, taken: at - start, then, has_more: true };
        }
    }
    Batch { steps, taken: at - start, then: Then::GoOn, has_more: true }
}

/// Counts a command that is answered already, and adds its reply; returns any other one.
fn answer_now(shared: &Shared, step: Step, output: &mut Vec<u8>) -> Option<Step> {
    let Step { name, action, protocol, then } = step;
    let Action::Answer(reply) = action else { return Some(Step { name, action, protocol, then }) };
    let (reply, outcome) = answered(reply);
    count(shared, name, &reply, outcome);
    reply.write(protocol, output);
    None
}

/// Executes a command, and counts it.
async fn carry_out(shared: &Shared, step: Step) -> (Reply, Protocol) {
    let Step { name, action, protocol, .. } = step;
    let decides = !matches!(action, Action::Answer(_));
    // This protocol cannot carry the caller's trace.
    let begun = decides.then(|| shared.service.tracer.begin(&HeaderMap::new())).flatten();
    let describe = |(_, outcome): &(Reply, CommandOutcome)| {
        let method = name.map_or("", |name| NAMES[name]);
        Described::call("redis", method, *outcome == CommandOutcome::Error)
    };
    // What is seldom needed is boxed: the commands of a pipeline are kept side by side, each with room for all that it may do.
    let (reply, outcome) = match begun {
        None => perform(shared, action, protocol).await,
        begun => Box::pin(shared.service.tracer.within(begun, perform(shared, action, protocol), describe)).await,
    };
    count(shared, name, &reply, outcome);
    (reply, protocol)
}

async fn perform(shared: &Shared, action: Action, protocol: Protocol) -> (Reply, CommandOutcome) {
    match action {
        Action::Transaction(commands) => Box::pin(execute(shared, commands, protocol)).await,
        action => answer(shared, action, protocol).await,
    }
}

fn count(shared: &Shared, name: Option<usize>, reply: &Reply, outcome: CommandOutcome) {
    // A queued command is counted when it is executed.
    if *reply != Reply::QUEUED {
        shared.service.metrics.count_command(name.unwrap_or(NAMES.len()), outcome);
    }
}

/// Executes a transaction, one command after the other. Their replies are sent together, so that of too many bytes the rest is
/// not executed.
async fn execute(shared: &Shared, commands: Vec<Queued>, protocol: Protocol) -> (Reply, CommandOutcome) {
    const MOST: usize = 2 << 20;
    let (mut replies, mut bytes) = (Vec::with_capacity(commands.len()), 0);
    for Queued { name, action } in commands {
        let action = if bytes > MOST {
            Action::Answer(Reply::error(format!(
                "ERR not executed: the replies of this transaction have more than {MOST} bytes; send fewer commands"
            )))
        } else {
            action
        };
        let (reply, outcome) = answer(shared, action, protocol).await;
        bytes += reply.size();
        shared.service.metrics.count_command(name.unwrap_or(NAMES.len()), outcome);
        replies.push(reply);
    }
    (Reply::Array(replies), CommandOutcome::Ok)
}

async fn answer(shared: &Shared, action: Action, protocol: Protocol) -> (Reply, CommandOutcome) {
    match action {
        Action::Answer(reply) => answered(reply),
        // A transaction is not queued in another one.
        Action::Transaction(_) => (Reply::error("ERR MULTI calls can not be nested"), CommandOutcome::Error),
        Action::Reset(charges) => Box::pin(reset(shared, &charges)).await,
        Action::Throttle(throttle) => throttle::reply(throttle.carry_out(&shared.service).await.as_ref().copied()),
        Action::Check(request) => match shared.service.check(Front::Resp, &request).await {
            Ok(verdict) => {
                let reply = check::answer(&verdict, protocol, &shared.service.seal);
                (reply, CommandOutcome::by(verdict.is_allowed()))
            }
            Err(CheckError::Cost(error)) => (check::bad_cost(&error), CommandOutcome::Error),
            Err(CheckError::Overloaded(overloaded)) => (Reply::busy(&overloaded), CommandOutcome::Shed),
            Err(error) => (Reply::error(format!("ERR {error}")), CommandOutcome::Error),
        },
    }
}

fn answered(reply: Reply) -> (Reply, CommandOutcome) {
    let outcome = if matches!(reply, Reply::Error(_)) { CommandOutcome::Error } else { CommandOutcome::Ok };
    (reply, outcome)
}

/// How many of the buckets were there.
async fn reset(shared: &Shared, charges: &[Charge]) -> (Reply, CommandOutcome) {
    let mut found = 0;
    for charge in charges {
        match shared.service.limiter.reset_charge(charge).await {
            Ok(was_there) => found += i64::from(was_there),
            Err(error) => return (Reply::error(format!("ERR {error}")), CommandOutcome::Error),
        }
    }
    (Reply::Integer(found), CommandOutcome::Ok)
}
