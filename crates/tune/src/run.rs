//! One run over logs: every request is counted, and decided where there are rules.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use tollkeeper::{Policy, Rule, RuleSpec};
use tollkeeper_logs::Entry;

use crate::block::{Block, Counter, Of, Overall};
use crate::lines::{Clerk, Lines, Questions};
use crate::reader::{self, Log, Progress, ReadReport, Worker};
use crate::request::{LogRequest, Naming};
use crate::traffic::{Said, Traffic};
use crate::trial::{Engine, Outcome, Trial};

/// Blocks that wait for those who count them.
const WAITING: usize = 4;

/// What to find out.
#[derive(Debug)]
pub struct Options {
    /// Which attributes requests have.
    pub naming: Naming,
    /// Rules to try; without them, the run finds out who sends how much.
    pub policy: Option<Policy>,
    /// Other rules to compare with these.
    pub compared: Option<(Policy, Naming)>,
    /// Threads that read lines.
    pub workers: usize,
    /// Buckets in use at the same time.
    pub max_keys: usize,
}

/// What a run found.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) read: ReadReport,
    /// All requests with an address, by address.
    pub(crate) clients: Traffic,
    /// By other kinds of keys, where there are no rules.
    pub(crate) kinds: Vec<Traffic>,
    /// Requests that sign in, by address, where there are no rules.
    pub(crate) sign_ins: Option<Traffic>,
    pub(crate) overall: Overall,
    pub(crate) trial: Option<Trial>,
    /// Other rules.
    pub(crate) compared: Option<Trial>,
}

/// Names that identify a client in other people's logs.
const IDENTIFYING: [&str; 8] = ["api-key", "api_key", "apikey", "user", "tenant", "account", "client-id", "customer"];
/// Kinds of keys beside addresses.
const MOST_KINDS: usize = 4;

/// A rule that only says what its keys are.
fn kind(name: &str, key: &str) -> Option<Arc<Rule>> {
    let spec: RuleSpec = Rule::new(name).key(key).limit("1/s");
    spec.build().ok().map(Arc::new)
}

pub(crate) fn kinds_of(names: &[String]) -> Vec<String> {
    let mut kinds: Vec<String> = Vec::new();
    for name in names {
        let is_identifying = IDENTIFYING.iter().any(|word| name.contains(word)) && name != "header.user-agent";
        // What a client may call a header or an attribute is not always a name that a rules file can hold.
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'));
        if is_identifying && is_plain && !kinds.contains(name) && kinds.len() < MOST_KINDS {
            kinds.push(name.clone());
        }
    }
    kinds
}

/// Reads logs and counts. `None` when a built-in rule is invalid, which is a bug.
pub(crate) fn run(logs: Vec<Log>, options: Options, progress: &Progress) -> Option<Found> {
    let Options { naming, policy, compared, workers, max_keys } = options;
    let names: Vec<String> = logs.iter().flat_map(|log| log.names().iter().cloned()).collect();
    let kinds: Vec<Arc<Rule>> = match policy {
        Some(_) => Vec::new(),
        None => kinds_of(&names).iter().filter_map(|name| kind(name, &format!("{{{name}}}"))).collect(),
    };
    let policy = policy.map(Arc::new);
    let (other, other_naming) = match compared {
        Some((policy, naming)) => (Some(Arc::new(policy)), naming),
        None => (None, Naming::default()),
    };
    let mut found = Found::new(policy.clone(), other.clone(), max_keys, &kinds)?;
    let questions = Questions {
        naming: &naming,
        policy: policy.as_deref(),
        kinds: &kinds,
        compared: other.as_deref().map(|policy| (policy, &other_naming)),
    };
    let (mut judge, counters) = found.parts();
    let read = thread::scope(|scope| {
        let mut hands: Vec<Vec<Counter<'_>>> = (0..workers.clamp(1, counters.len())).map(|_| Vec::new()).collect();
        let count = hands.len();
        for (place, counter) in counters.into_iter().enumerate() {
            hands[place % count].push(counter);
        }
        let hands: Vec<SyncSender<Arc<Block>>> = hands
            .into_iter()
            .map(|mut counters| {
                let (hand, blocks) = sync_channel::<Arc<Block>>(WAITING);
                scope.spawn(move || {
                    for block in blocks {
                        counters.iter_mut().for_each(|counter| counter.count(&block));
                    }
                });
                hand
            })
            .collect();
        let hand_on = |block: Block| {
            let block = Arc::new(block);
            // Fails only if counting panicked, which the scope reports.
            hands.iter().for_each(|hand| _ = hand.send(block.clone()));
        };
        let mut block = Block::default();
        let clerk = || Clerk::new(questions);
        let read = reader::read(logs, workers, progress, clerk, |at_us, lines, index| {
            judge.decide(at_us, lines, index, &mut block);
            if block.is_full() {
                hand_on(std::mem::take(&mut block));
            }
        });
        hand_on(block);
        read
    });
    found.read = read;
    Some(found)
}

/// Reads logs with this many workers: `look` turns each request into what `sink` gets in order of time.
pub fn each_request<T: Send>(
    logs: Vec<Log>,
    naming: &Naming,
    workers: usize,
    progress: &Progress,
    look: impl Fn(&LogRequest<'_, '_>) -> Result<T, String> + Sync,
    mut sink: impl FnMut(u64, T),
) -> ReadReport {
    let worker = || Each { look: |entry: &Entry<'_>| look(&LogRequest::new(entry, naming)), made: Vec::new() };
    reader::read(logs, workers, progress, worker, |at_us, made: &mut Vec<Option<T>>, index| {
        if let Some(one) = made[index].take() {
            sink(at_us, one);
        }
    })
}

/// Makes one thing of each entry.
struct Each<L, T> {
    look: L,
    made: Vec<Option<T>>,
}

impl<T: Send, L: FnMut(&Entry<'_>) -> Result<T, String>> Worker for Each<L, T> {
    type Lines = Vec<Option<T>>;

    fn add(&mut self, entry: &Entry<'_>) -> Result<(), String> {
        self.made.push(Some((self.look)(entry)?));
        Ok(())
    }

    fn take(&mut self) -> Self::Lines {
        std::mem::take(&mut self.made)
    }
}

/// Those who decide.
#[derive(Debug)]
pub(crate) struct Judge<'f> {
    engine: Option<&'f mut Engine>,
    compared: Option<&'f mut Engine>,
}

impl Judge<'_> {
    /// Decides a request and adds it to a block.
    pub(crate) fn decide(&mut self, at_us: u64, lines: &Arc<Lines>, index: usize, block: &mut Block) -> Outcome {
        let line = lines.request(index);
        let charges = lines.charges(line);
        let said = block.said().len();
        let fate = match &mut self.engine {
            Some(engine) => engine.decide(at_us, charges, block.said()),
            None => {
                block.said().extend(charges.iter().map(|_| Said::Allowed));
                Outcome::Passed
            }
        };
        let then = match &mut self.compared {
            Some(engine) => engine.decide(at_us, lines.compared(line), block.said()),
            None => fate,
        };
        block.add(at_us, (lines, index), said, [fate, then]);
        fate
    }
}

impl Found {
    /// Nothing yet. `None` when a built-in rule is invalid, which is a bug.
    pub(crate) fn new(
        policy: Option<Arc<Policy>>,
        other: Option<Arc<Policy>>,
        max_keys: usize,
        kinds: &[Arc<Rule>],
    ) -> Option<Found> {
        let clients = Traffic::new(kind("address", "{ip}")?);
        // Where there are rules, these are what other numbers are tried for.
        let (clients, sign_ins) = match policy {
            Some(_) => (clients.without_journal(), None),
            None => (clients, Some(Traffic::new(kind("sign-in", "{ip}")?))),
        };
        Some(Found {
            read: ReadReport::default(),
            clients,
            kinds: kinds.iter().map(|rule| Traffic::new(rule.clone())).collect(),
            sign_ins,
            overall: Overall::new(),
            trial: policy.map(|policy| Trial::new(policy, max_keys)),
            compared: other.map(|policy| Trial::new(policy, max_keys)),
        })
    }

    /// Those who decide, and those who count.
    pub(crate) fn parts(&mut self) -> (Judge<'_>, Vec<Counter<'_>>) {
        let (mut judge, mut counters) = (Judge { engine: None, compared: None }, Vec::new());
        let of = |of: fn(u32) -> Of, traffic| (0u32..).map(of).zip(traffic);
        counters.push(Counter::Keys(Of::Clients, &mut self.clients));
        if let Some(Trial { engine, rules }) = &mut self.trial {
            judge.engine = Some(engine);
            counters.extend(of(Of::Rule, rules).map(|(of, traffic)| Counter::Keys(of, traffic)));
        }
        counters.push(Counter::Overall(&mut self.overall));
        counters.extend(of(Of::Rule, &mut self.kinds).map(|(of, traffic)| Counter::Keys(of, traffic)));
        counters.extend(self.sign_ins.iter_mut().map(|traffic| Counter::Keys(Of::SignIns, traffic)));
        if let Some(Trial { engine, rules }) = &mut self.compared {
            judge.compared = Some(engine);
            counters.extend(of(Of::Compared, rules).map(|(of, traffic)| Counter::Keys(of, traffic)));
        }
        (judge, counters)
    }

    /// Decides and counts one request on its own.
    pub(crate) fn add(&mut self, at_us: u64, lines: Lines) -> Outcome {
        let (mut judge, counters) = self.parts();
        let mut block = Block::default();
        let outcome = judge.decide(at_us, &Arc::new(lines), 0, &mut block);
        counters.into_iter().for_each(|mut counter| counter.count(&block));
        outcome
    }
}
