//! `tollkeeper serve`: the service.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ServerConfig;
use tokio::task::JoinSet;
use tollkeeper::{HeaderStyle, Policy, Store};

use super::access::TokenArgs;
use super::configuration::{ConfigArgs, header_style};
use super::ending::Ending;
use super::listening::ListeningArgs;
use super::operations::{self, OperationsArgs};
use super::reload::WatchArgs;
use super::tls::{TlsArgs, certificates};
use super::{access, greeting, listening, signals, source, store, unused_memory};
use crate::config::Config;
use crate::example;
use crate::front::connections::{Listener, MostConnections, Workers};
use crate::front::http;
use crate::front::resp;
use crate::front::{self, connections, grpc};
use crate::service::Service;
use crate::settings;
use crate::tls::{Acceptor, Protocol, Renew, Renewable};
use crate::tokens::{TokenFile, Tokens};

/// Run the service
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  tollkeeper serve
  tollkeeper serve --config tollkeeper.yaml --http 127.0.0.1:0      a free port, printed at start
  export TOLLKEEPER_ADMIN_TOKEN=$(openssl rand -hex 16); tollkeeper serve --http 0.0.0.0:8080
  tollkeeper serve --tls-cert server.pem --tls-key server.key --tls-client-ca ca.pem

Flags override the file. Rules are reloaded when the file changes and on SIGHUP, certificates on SIGHUP; an invalid file changes nothing. SIGINT and SIGTERM stop the service after the requests in flight.")]
pub(super) struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    watch: WatchArgs,
    /// The address of the HTTP API; `:8080` is every address of this machine, and port 0 picks a free one
    #[arg(long, value_name = "ADDRESS", env = "TOLLKEEPER_HTTP")]
    http: Option<String>,
    /// The address of the Redis protocol; port 0 picks a free one
    #[arg(long, value_name = "ADDRESS", env = "TOLLKEEPER_RESP")]
    resp: Option<String>,
    /// The password that clients of the Redis protocol send with AUTH
    #[arg(long, value_name = "PASSWORD", env = "TOLLKEEPER_RESP_PASSWORD", hide_env_values = true)]
    resp_password: Option<String>,
    /// The address of Envoy's rate limit service (gRPC); port 0 picks a free one
    #[arg(long, value_name = "ADDRESS", env = "TOLLKEEPER_GRPC")]
    grpc: Option<String>,
    #[command(flatten)]
    tls: TlsArgs,
    /// Where state lives: `memory:`, `redis://HOST:PORT`, `redis+cluster://A,B,C` or `redis+sentinel://A,B,C/NAME`
    #[arg(long, value_name = "URL", env = "TOLLKEEPER_STORE")]
    store: Option<String>,
    /// Whether to refuse to start while that store is unreachable (default true); otherwise rules use on_store_failure
    /// until it is reachable
    #[arg(long, value_name = "BOOL", env = "TOLLKEEPER_STORE_REQUIRED")]
    store_required: Option<bool>,
    #[command(flatten)]
    rules: source::RulesArgs,
    /// The maximum number of keys in the memory store
    #[arg(long, value_name = "N", env = "TOLLKEEPER_MAX_KEYS")]
    max_keys: Option<usize>,
    /// The maximum size of its logs for `sliding_window_log` and `concurrency`, in bytes (default 64 MiB)
    #[arg(long, value_name = "BYTES", env = "TOLLKEEPER_MAX_LOG_BYTES")]
    max_log_bytes: Option<usize>,
    #[command(flatten)]
    listening: ListeningArgs,
    #[command(flatten)]
    tokens: TokenArgs,
    /// The style of the limit headers: draft-11, draft-03, draft-06, draft-07, x-ratelimit-epoch, x-ratelimit-delta, none
    #[arg(long, value_name = "STYLE", env = "TOLLKEEPER_HEADERS", value_parser = header_style)]
    headers: Option<HeaderStyle>,
    #[command(flatten)]
    operations: OperationsArgs,
}

pub(super) fn run(args: Args) -> anyhow::Result<Ending> {
    let mut loaded = args.config.load()?;
    loaded.override_by(|config| override_by_flags(config, &args), str::to_string);
    if let Some((field, problem)) = settings::problems(&loaded.config).into_iter().next() {
        anyhow::bail!("{field}: {problem}");
    }
    args.operations.start_log()?;
    operations::warn(&loaded);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(loaded.config, loaded.policy, args))?;
    Ok(Ending::Fine)
}

fn override_by_flags(config: &mut Config, args: &Args) {
    if let Some(http) = &args.http {
        config.listen.http.clone_from(http);
    }
    if args.resp.is_some() {
        config.listen.resp.clone_from(&args.resp);
    }
    if args.resp_password.is_some() {
        config.listen.resp_password.clone_from(&args.resp_password);
    }
    if args.grpc.is_some() {
        config.listen.grpc.clone_from(&args.grpc);
    }
    args.tls.override_in(config);
    args.operations.override_in(config);
    if let Some(store) = &args.store {
        config.store.url.clone_from(store);
    }
    config.store.required = args.store_required.unwrap_or(config.store.required);
    args.rules.override_config(config, args.config.config.is_none());
    config.store.max_keys = args.max_keys.unwrap_or(config.store.max_keys);
    config.store.max_log_bytes = args.max_log_bytes.unwrap_or(config.store.max_log_bytes);
    config.headers = args.headers.unwrap_or(config.headers);
    args.tokens.override_in(config);
    args.listening.override_in(config);
}

/// The open listeners and their addresses.
struct Doors {
    http: Door,
    grpc: Option<Door>,
    resp: Option<Door>,
}

/// A listener and the address it was given.
struct Door {
    listener: Listener,
    bound: SocketAddr,
}

impl Doors {
    async fn open(config: &Config, args: &Args) -> anyhow::Result<Doors> {
        let asked = |flag: &Option<String>| flag.is_some() || args.config.config.is_some();
        let (grpc, resp) = (config.listen.grpc.as_deref(), config.listen.resp.as_deref());
        let listeners = 1 + usize::from(grpc.is_some()) + usize::from(resp.is_some());
        let most = listening::most_connections(config, listeners, 1);
        Ok(Doors {
            http: Door::open("listen.http", &config.listen.http, most).await?,
            grpc: Door::open_if_wanted("listen.grpc", grpc, most, asked(&args.grpc)).await?,
            resp: Door::open_if_wanted("listen.resp", resp, most, asked(&args.resp)).await?,
        })
    }

    /// Lets these threads serve their connections.
    fn staff(&mut self, workers: &Arc<Workers>) {
        self.each(|door, _| door.listener.workers = Some(workers.clone()));
    }

    /// Enables TLS on all of them.
    fn encrypt(&mut self, certificates: &Arc<Renewable<ServerConfig>>) {
        self.each(|door, protocol| door.listener.tls = Some(Acceptor::new(certificates.clone(), protocol)));
    }

    fn each(&mut self, mut change: impl FnMut(&mut Door, Protocol)) {
        let doors = [(Some(&mut self.http), Protocol::Http), (self.grpc.as_mut(), Protocol::Grpc)];
        for (door, protocol) in doors.into_iter().chain([(self.resp.as_mut(), Protocol::Resp)]) {
            if let Some(door) = door {
                change(door, protocol);
            }
        }
    }
}

impl Door {
    async fn open(field: &str, address: &str, most: MostConnections) -> anyhow::Result<Door> {
        let flag = field.replace("listen.", "--");
        let listener = connections::listen(address).await;
        let listener = listener.map_err(|error| listening::cannot_listen(field, &flag, address, error))?;
        let bound = listener.local_addr()?;
        Ok(Door { listener: Listener { tcp: listener, tls: None, most, workers: None }, bound })
    }

    /// An address that the user gave must be bound. An address of the embedded default may be in use, which is no
    /// reason not to serve the rest.
    async fn open_if_wanted(
        field: &str,
        address: Option<&str>,
        most: MostConnections,
        asked: bool,
    ) -> anyhow::Result<Option<Door>> {
        let Some(address) = address else { return Ok(None) };
        match Door::open(field, address, most).await {
            Err(error) if !asked && is_taken(&error) => {
                tracing::warn!("{error:#}; continuing without it");
                Ok(None)
            }
            opened => opened.map(Some),
        }
    }
}

fn is_taken(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::AddrInUse)
}

async fn serve(config: Config, policy: Policy, args: Args) -> anyhow::Result<()> {
    let certificates = certificates(&config)?;
    let mut doors = Doors::open(&config, &args).await?;
    let workers = Workers::start()?;
    doors.staff(&workers);
    if let Some(certificates) = &certificates {
        doors.encrypt(certificates);
    }
    let store = store::open(&config).await?;
    let tokens = Tokens::for_address(&config, doors.http.bound)?;
    let kept = access::keep(&tokens, doors.http.bound);
    let rules = source::open(&config, policy).await?;
    let service = Service::new(&config, rules, store, tokens, front::metrics())?;
    operations::start(&service, &config, doors.http.bound)?;
    store::start(&service, &config).await;
    // Before the first lines are printed: a signal that comes at once must find its handler.
    let file = args.watch.file(args.config.config.as_ref());
    let load = move || args.config.load().map(|loaded| loaded.policy);
    source::follow(&service, load, file)?;
    let renewing = signals::renew_on_hangup(certificates.into_iter().map(|it| it as Arc<dyn Renew>).collect())?;
    let asked_to_stop = signals::Stop::new()?;
    let health = listening::serve_health(&config, &service).await?;
    unused_memory::give_back();
    greet(&doors, &config, &service, kept.as_ref(), health.as_deref())?;
    crate::background::spawn(renewing);
    let watching = crate::background::spawn(service.clone().watch_traffic());
    let (stop, stopping) = tokio::sync::watch::channel(false);
    let (winding, delay) = (service.clone(), settings::shutdown_delay(&config.shutdown)?);
    crate::background::spawn(async move {
        listening::wind_down(asked_to_stop, &winding, delay).await;
        let _ = stop.send(true);
    });
    // Every front gets the signal, and finishes its requests in flight.
    let shutdown = || {
        let mut stopping = stopping.clone();
        async move {
            // An error means that the sender is gone.
            let _ = stopping.wait_for(|stop| *stop).await;
        }
    };
    let mut fronts = JoinSet::new();
    fronts.spawn(http::run(doors.http.listener, service.clone(), shutdown()));
    if let Some(door) = doors.resp {
        let password = config.listen.resp_password.map(resp::Password::new);
        fronts.spawn(resp::run(door.listener, service.clone(), password, shutdown()));
    }
    if let Some(door) = doors.grpc {
        fronts.spawn(grpc::run(door.listener, service.clone(), shutdown()));
    }
    let mut ended = Ok(());
    while let Some(front) = fronts.join_next().await {
        ended = ended.and(front?);
    }
    watching.abort();
    service.end_watch().await;
    if let Store::Redis(redis) = service.limiter.store() {
        redis.leave().await;
    }
    service.tracer.finish().await;
    drop(workers);
    ended
}

/// The first lines: what runs, which rules, and what to try.
fn greet(
    doors: &Doors,
    config: &Config,
    service: &Service,
    kept: Option<&TokenFile>,
    health: Option<&str>,
) -> anyhow::Result<()> {
    let bound = doors.http.bound;
    let mut out = std::io::stdout().lock();
    // The suffix of URL schemes and commands with TLS.
    let (s, with_tls) = if config.listen.tls.is_some() { ("s", ", with TLS") } else { ("", "") };
    let show = greeting::certificate_flags(config);
    writeln!(out, "tollkeeper {} listening on http{s}://{bound}", env!("CARGO_PKG_VERSION"))?;
    if let Some(Door { bound, .. }) = &doors.grpc {
        writeln!(out, "grpc: {bound}, Envoy's rate limit service{with_tls}")?;
    }
    if let Some(Door { bound, .. }) = &doors.resp {
        writeln!(out, "listening on redis{s}://{bound}")?;
    }
    if let Some(health) = health {
        writeln!(out, "health: http://{health}")?;
    }
    greeting::store(&mut out, config, &service.limiter)?;
    access::greet(&mut out, &service.tokens, kept, &format!("http{s}://{bound}"))?;
    greeting::clients(&mut out, config, &service.limiter.policy())?;
    greeting::rules(&mut out, service)?;
    let try_it = serde_json::json!({ "attributes": example::attributes(&service.limiter.policy()) });
    // For a shell, between single quotes.
    let try_it = try_it.to_string().replace('\'', r"'\''");
    writeln!(out, "try:")?;
    if let Some(Door { bound, .. }) = &doors.resp {
        let tls = if show.is_empty() { String::new() } else { format!(" --tls{show}") };
        writeln!(out, "  redis-cli -h {} -p {}{tls} CL.THROTTLE user:42 15 30 60", bound.ip(), bound.port())?;
    }
    writeln!(out, "  curl{show} -d '{try_it}' http{s}://{bound}/v1/check")?;
    writeln!(out, "  curl{show} -i http{s}://{bound}/v1/authorize")?;
    out.flush()?;
    Ok(())
}
