//! Who decides: the classic script, one call a request, or Tollkeeper.

use std::sync::Arc;
use std::time::Duration;

use redis::Script;
use redis::aio::MultiplexedConnection;
use tollkeeper::{Algorithm, Descriptor, Limiter, Policy, RedisOptions, RedisStore, RuleSpec};

use crate::server::Server;

/// A limit that both sides can be given.
#[derive(Clone, Copy)]
pub struct Limit {
    pub algorithm: Algorithm,
    pub count: u32,
    pub per: &'static str,
    pub seconds: u32,
    /// Whether tokens are taken ahead of use.
    pub is_leased: bool,
}

impl Limit {
    pub const fn per_second(count: u32) -> Limit {
        Limit { algorithm: Algorithm::TokenBucket, count, per: "s", seconds: 1, is_leased: false }
    }

    pub const fn per_hour(count: u32) -> Limit {
        Limit { per: "hour", seconds: 3_600, ..Limit::per_second(count) }
    }

    pub const fn per_day(count: u32) -> Limit {
        Limit { per: "day", seconds: 86_400, ..Limit::per_second(count) }
    }

    pub const fn leased(self) -> Limit {
        Limit { is_leased: true, ..self }
    }

    pub const fn by(self, algorithm: Algorithm) -> Limit {
        Limit { algorithm, ..self }
    }

    /// One rule, a bucket for each user.
    pub fn policy(self) -> Policy {
        let rule = RuleSpec {
            name: RULE.into(),
            key: "{user_id}".into(),
            limit: format!("{}/{}", self.count, self.per).as_str().into(),
            algorithm: self.algorithm,
            lease: self.is_leased.then(|| "auto".into()),
            ..RuleSpec::default()
        };
        Policy::new([rule]).expect("a valid rule")
    }

    pub async fn limiter(self, server: &Server) -> (Limiter, RedisStore) {
        // No request may fail because the machine is busy with something else for a moment.
        let options = RedisOptions { deadline: Duration::from_secs(1), ..RedisOptions::default() };
        let store = RedisStore::connect(&server.url(), options).await.expect("connects");
        (Limiter::new(self.policy(), store.clone()), store)
    }
}

pub const RULE: &str = "user";

pub fn user(nth: u64) -> String {
    format!("user-{nth:07}")
}

pub fn request(user: &str) -> Descriptor {
    Descriptor::new([("user_id", user)])
}

/// The script that most people write, with one limit.
pub struct Classic {
    script: Script,
    tokens_a_second: f64,
    capacity: u32,
}

impl Classic {
    pub fn new(limit: Limit) -> Classic {
        let tokens_a_second = f64::from(limit.count) / f64::from(limit.seconds);
        Classic { script: Script::new(include_str!("classic.lua")), tokens_a_second, capacity: limit.count }
    }

    /// As long as the name of Tollkeeper's state for the same user.
    pub fn key(user: &str) -> String {
        format!("ratelimit{{{user}}}0:{RULE}")
    }

    pub async fn decide(&self, connection: &mut impl redis::aio::ConnectionLike, user: &str) -> bool {
        let mut call = self.script.key(Classic::key(user));
        call.arg(self.tokens_a_second).arg(self.capacity).arg(1);
        let (allowed, _): (u32, i64) = call.invoke_async(connection).await.expect("the script runs");
        allowed == 1
    }
}

/// One task's way to a decision.
#[derive(Clone)]
pub enum Client {
    Classic(Arc<Classic>, MultiplexedConnection),
    Tollkeeper(Arc<Limiter>),
}

impl Client {
    pub async fn decide(&mut self, user: &str) -> bool {
        match self {
            Client::Classic(classic, connection) => classic.decide(connection, user).await,
            Client::Tollkeeper(limiter) => {
                let verdict = limiter.check(&request(user)).await.expect("a cost of 1");
                assert!(!verdict.is_unavailable() && !verdict.is_degraded(), "the store did not answer");
                verdict.is_allowed()
            }
        }
    }
}

/// The clients of a number of tasks, each kind with the same limit.
pub struct Clients {
    /// A connection for each task, as a pool gives: the server reads one command at a time.
    pub classic: Vec<Client>,
    /// One connection for all tasks: commands queue up in the socket and are read together.
    pub piped: Vec<Client>,
    pub tollkeeper: Vec<Client>,
    /// To see how many requests went out together.
    pub store: RedisStore,
}

impl Clients {
    pub async fn connect(server: &Server, limit: Limit, tasks: usize) -> Clients {
        let classic = Arc::new(Classic::new(limit));
        let client = server.client();
        let connect = || async { client.get_multiplexed_async_connection().await.expect("connects") };
        let mut pool = Vec::with_capacity(tasks);
        for _ in 0..tasks {
            pool.push(Client::Classic(classic.clone(), connect().await));
        }
        let (limiter, store) = limit.limiter(server).await;
        Clients {
            classic: pool,
            piped: vec![Client::Classic(classic.clone(), connect().await); tasks],
            tollkeeper: vec![Client::Tollkeeper(Arc::new(limiter)); tasks],
            store,
        }
    }
}
