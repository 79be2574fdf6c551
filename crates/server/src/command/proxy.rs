//! `tollkeeper proxy`: a reverse proxy that limits what passes it.

mod limit;

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use rustls::ClientConfig;
use tokio::sync::watch;
use tollkeeper::{HeaderStyle, Policy, RuleSpec, Shorthand, Store, parse_span};

use super::access::TokenArgs;
use super::configuration::header_style;
use super::ending::Ending;
use super::listening::ListeningArgs;
use super::operations::{self, OperationsArgs};
use super::reload::WatchArgs;
use super::tls::{TlsArgs, certificates};
use super::{access, greeting, listening, signals, source, store, unused_memory};
use crate::config::Config;
use crate::front::connections::{self, Listener, Workers};
use crate::front::http as api;
use crate::front::proxy::{self, Address, Pace, Proxy, Timeouts, Upstream, WaitingRoom, parse_upstream};
use crate::service::Service;
use crate::settings::{self, Loaded};
use crate::tls::{Acceptor, Protocol, Renew, Renewable, UpstreamFiles, upstream_config};
use crate::tokens::{TokenFile, Tokens};

/// Run a reverse proxy that rate limits requests
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  tollkeeper proxy --upstream http://127.0.0.1:3000 --limit \"100/min burst 20 by header.x-api-key|ip\"
  tollkeeper proxy --upstream http://127.0.0.1:3000 --config tollkeeper.yaml --listen 0.0.0.0:8080
  tollkeeper proxy --upstream http://127.0.0.1:3000 --limit \"50/s by global algorithm leaky_bucket\"
  tollkeeper proxy --upstream http://127.0.0.1:3000 --limit 5/s --wait 2s
  tollkeeper proxy --upstream https://app.internal --upstream-ca ca.pem --limit 100/min --tls-cert server.pem --tls-key server.key

A limit is N/unit [burst B] [by KEY[|KEY...]] [algorithm NAME] [hold TIME].

KEY is ip (the default), method, path, host, header.NAME, query.NAME, cookie.NAME, tls.client, a name under `identify` in the file, or global.

All limits and the rules of the file are enforced together. Rules are reloaded when the file changes and on SIGHUP, certificates on SIGHUP. SIGINT and SIGTERM stop the proxy after the requests in flight.")]
pub(super) struct Args {
    /// The server to forward to
    // Not parsed by clap, which repeats a value that it refuses: it may hold a password.
    #[arg(long, value_name = "URL", env = "TOLLKEEPER_UPSTREAM", hide_env_values = true)]
    upstream: String,
    #[command(flatten)]
    upstream_files: UpstreamFiles,
    /// A limit; may be given several times (separated by `;` in the environment variable)
    #[arg(long, value_name = "LIMIT", env = "TOLLKEEPER_LIMIT", value_delimiter = ';')]
    limit: Vec<Shorthand>,
    /// A configuration file (YAML) with rules and settings
    #[arg(long, short, value_name = "FILE", env = "TOLLKEEPER_CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    watch: WatchArgs,
    /// The address to listen on; port 0 picks a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080", env = "TOLLKEEPER_LISTEN")]
    listen: String,
    #[command(flatten)]
    tls: TlsArgs,
    /// A second address, for health, metrics and the rest of the HTTP API; off by default
    #[arg(long, value_name = "ADDRESS", env = "TOLLKEEPER_ADMIN")]
    admin: Option<String>,
    #[command(flatten)]
    listening: ListeningArgs,
    #[command(flatten)]
    tokens: TokenArgs,
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
    /// Addresses or CIDRs of trusted proxies in front, whose forwarding headers are used
    #[arg(long, value_name = "CIDR", env = "TOLLKEEPER_TRUSTED_PROXIES", value_delimiter = ',')]
    trusted_proxies: Vec<String>,
    /// The header in which these proxies report the client's address: auto, forwarded, x-forwarded-for, or one that
    /// contains only the address, such as x-real-ip or cf-connecting-ip
    #[arg(long, value_name = "HEADER", env = "TOLLKEEPER_CLIENT_ADDRESS")]
    client_address: Option<String>,
    /// The style of the limit headers: draft-11, draft-03, draft-06, draft-07, x-ratelimit-epoch, x-ratelimit-delta, none
    #[arg(long, value_name = "STYLE", env = "TOLLKEEPER_HEADERS", value_parser = header_style)]
    headers: Option<HeaderStyle>,
    /// How long a request that would be denied may wait to pass
    #[arg(long, value_name = "TIME", default_value = "0s", env = "TOLLKEEPER_WAIT", value_parser = duration)]
    wait: Duration,
    /// How many requests of one bucket may wait at the same time, for `leaky_bucket` rules or by --wait; ten times as many in all
    #[arg(long, value_name = "N", default_value_t = 1_000, env = "TOLLKEEPER_QUEUE")]
    queue: usize,
    /// How long the upstream may take to accept a connection
    #[arg(long, value_name = "TIME", default_value = "5s", env = "TOLLKEEPER_CONNECT_TIMEOUT", value_parser = timeout)]
    connect_timeout: Duration,
    /// How long the upstream may take to begin its response, once it has the request
    #[arg(long, value_name = "TIME", default_value = "60s", env = "TOLLKEEPER_RESPONSE_TIMEOUT", value_parser = timeout)]
    response_timeout: Duration,
    /// How long a body or a WebSocket may be idle
    #[arg(long, value_name = "TIME", default_value = "60s", env = "TOLLKEEPER_IDLE_TIMEOUT", value_parser = timeout)]
    idle_timeout: Duration,
    /// The minimum rate of a request body in bytes per second, on average after ten seconds; 0 for no minimum
    #[arg(long, value_name = "BYTES", default_value_t = 128, env = "TOLLKEEPER_UPLOAD_RATE")]
    upload_rate: u64,
    /// How long a client may take to send the whole body of a request
    #[arg(long, value_name = "TIME", default_value = "1h", env = "TOLLKEEPER_UPLOAD_TIMEOUT", value_parser = timeout)]
    upload_timeout: Duration,
    /// How long requests in flight may take after a signal to stop
    #[arg(long, value_name = "TIME", default_value = "10s", env = "TOLLKEEPER_DRAIN_TIMEOUT", value_parser = duration)]
    drain_timeout: Duration,
    #[command(flatten)]
    operations: OperationsArgs,
}

/// `0` needs no unit.
fn duration(text: &str) -> Result<Duration, String> {
    let span = if text == "0" { parse_span("0s") } else { parse_span(text) };
    span.map(|span| span.as_duration()).map_err(|error| error.to_string())
}

fn timeout(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|timeout| match timeout.is_zero() {
        true => Err("must be longer than zero; write for example 30s".into()),
        false => Ok(timeout),
    })
}

pub(super) fn run(args: Args) -> anyhow::Result<Ending> {
    let loaded = load(&args)?;
    let upstream = parse_upstream(&args.upstream).map_err(|problem| anyhow::anyhow!("--upstream: {problem}"))?;
    args.operations.start_log()?;
    operations::warn(&loaded);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(loaded.config, loaded.policy, upstream, args))?;
    Ok(Ending::Fine)
}

/// The file, overridden by the flags, with the rules that they add.
fn load(args: &Args) -> anyhow::Result<Loaded> {
    let mut loaded = match &args.config {
        Some(path) => settings::load(path)?,
        None => Loaded { config: Config::default(), policy: Policy::default(), warnings: Vec::new() },
    };
    if args.config.is_none() && args.limit.is_empty() && !args.rules.is_given() {
        bail!("there is no limit; add for example --limit \"100/min by ip\", or --config FILE with rules");
    }
    let identify = &loaded.config.identify;
    let limits = args.limit.iter().enumerate().map(|(index, limit)| {
        let name = if index == 0 { "limit".into() } else { format!("limit-{}", index + 1) };
        limit::rule(limit, name, identify).map_err(|problem| anyhow::anyhow!("--limit: {problem}"))
    });
    let limits = limits.collect::<anyhow::Result<Vec<_>>>()?;
    loaded.override_by(|config| override_by_flags(config, args, limits), |field| flag_of(field, args));
    let config = &loaded.config;
    let asks_for_certificates = config.listen.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
    if !asks_for_certificates && args.limit.iter().any(limit::is_by_certificate_alone) {
        bail!(
            "--limit: by tls.client: clients need no certificate, so nobody would be limited; add --tls-client-ca FILE"
        );
    }
    if let Some((field, problem)) = settings::problems(config).into_iter().next() {
        bail!("{}: {problem}", flag_of(&field, args));
    }
    let in_file = config.rules.len() - args.limit.len();
    loaded.policy = Policy::new(config.rules.clone()).map_err(|errors| {
        let problems = errors.iter().map(|error| {
            let place = if error.index < in_file { format!("rules[{}]", error.index) } else { "--limit".into() };
            format!("{place}: {}: {}", error.error.field, error.error.problem)
        });
        anyhow::anyhow!(problems.collect::<Vec<_>>().join("\n"))
    })?;
    Ok(loaded)
}

/// Flags override the file, and `limits` are added to its rules.
fn override_by_flags(config: &mut Config, args: &Args, limits: Vec<RuleSpec>) {
    // The Redis protocol is for `serve`: a proxy does not speak it.
    (config.listen.resp, config.listen.resp_password) = (None, None);
    if let Some(store) = &args.store {
        config.store.url.clone_from(store);
    }
    config.store.required = args.store_required.unwrap_or(config.store.required);
    args.rules.override_config(config, args.config.is_none());
    config.store.max_keys = args.max_keys.unwrap_or(config.store.max_keys);
    config.store.max_log_bytes = args.max_log_bytes.unwrap_or(config.store.max_log_bytes);
    config.headers = args.headers.unwrap_or(config.headers);
    config.trusted_proxies.extend(args.trusted_proxies.iter().cloned());
    if let Some(header) = &args.client_address {
        config.client_address.clone_from(header);
    }
    config.listen.http.clone_from(&args.listen);
    args.tls.override_in(config);
    args.operations.override_in(config);
    args.tokens.override_in(config);
    args.listening.override_in(config);
    config.rules.extend(limits);
}

/// The name under which a setting was given: a flag, or a field of the file.
fn flag_of(field: &str, args: &Args) -> String {
    match field {
        "listen.http" => "--listen".into(),
        "client_address" if args.client_address.is_some() => "--client-address".into(),
        field => field.into(),
    }
}

async fn serve(config: Config, policy: Policy, upstream: Address, args: Args) -> anyhow::Result<()> {
    let certificates = certificates(&config)?;
    let upstream_certificates = upstream_certificates(&upstream, &args)?;
    let tls = certificates.clone().map(|certificates| Acceptor::new(certificates, Protocol::Http));
    // A connection to the upstream for each of a client.
    let most = listening::most_connections(&config, 1 + usize::from(args.admin.is_some()), 2);
    let workers = Workers::start()?;
    let listen = |flag: &'static str, address: String| {
        let (tls, workers) = (tls.clone(), Some(workers.clone()));
        async move {
            let listener = connections::listen(&address).await;
            let tcp = listener.map_err(|error| listening::cannot_listen(flag, flag, &address, error))?;
            anyhow::Ok(Listener { tcp, tls, most, workers })
        }
    };
    let listener = listen("--listen", args.listen.clone()).await?;
    let bound = listener.tcp.local_addr()?;
    let admin = match &args.admin {
        Some(address) => Some(listen("--admin", address.clone()).await?),
        None => None,
    };
    let admin_bound = admin.as_ref().map(|admin| admin.tcp.local_addr()).transpose()?;
    let store = store::open(&config).await?;
    let tokens = Tokens::for_address(&config, admin_bound.unwrap_or(bound))?;
    let kept = admin_bound.and_then(|bound| access::keep(&tokens, bound));
    let rules = source::open(&config, policy).await?;
    let service = Service::new(&config, rules, store, tokens, crate::front::metrics())?;
    operations::start(&service, &config, bound)?;
    store::start(&service, &config).await;
    let timeouts = Timeouts {
        connect: args.connect_timeout,
        response: args.response_timeout,
        idle: args.idle_timeout,
        upload: Pace { rate: args.upload_rate, longest: args.upload_timeout },
    };
    let proxy = Arc::new(Proxy {
        service: service.clone(),
        upstream: Upstream::new(upstream, upstream_certificates.clone(), timeouts, workers.count()),
        waiting: WaitingRoom::new(args.queue, args.wait, service.metrics.proxy.clone()),
        drain: args.drain_timeout,
    });
    // Before the first lines are printed: a signal that comes at once must find its handler.
    let again = args.clone();
    let file = args.watch.file(args.config.as_ref());
    source::follow(&service, move || load(&again).map(|loaded| loaded.policy), file)?;
    let listeners = certificates.into_iter().map(|it| it as Arc<dyn Renew>);
    let renewed = listeners.chain(upstream_certificates.into_iter().map(|it| it as Arc<dyn Renew>)).collect();
    let renewing = signals::renew_on_hangup(renewed)?;
    let asked_to_stop = signals::Stop::new()?;
    let health = listening::serve_health(&config, &service).await?;
    unused_memory::give_back();
    greet(bound, admin_bound.map(|bound| (bound, kept.as_ref())), health.as_deref(), &config, &proxy)?;
    crate::background::spawn(renewing);
    let watching = crate::background::spawn(service.clone().watch_traffic());
    let (stop, stopping) = watch::channel(false);
    let (winding, delay) = (service.clone(), settings::shutdown_delay(&config.shutdown)?);
    crate::background::spawn(async move {
        listening::wind_down(asked_to_stop, &winding, delay).await;
        let _ = stop.send(true);
    });
    let shutdown = |mut stopping: watch::Receiver<bool>| async move {
        // An error means that the sender is gone.
        let _ = stopping.wait_for(|stop| *stop).await;
    };
    if let Some(admin) = admin {
        crate::background::spawn(api::run(admin, service.clone(), shutdown(stopping.clone())));
    }
    proxy::run(listener, proxy, shutdown(stopping)).await;
    watching.abort();
    service.end_watch().await;
    if let Store::Redis(redis) = service.limiter.store() {
        redis.leave().await;
    }
    service.tracer.finish().await;
    drop(workers);
    Ok(())
}

/// The CA and client certificates for an upstream with TLS.
fn upstream_certificates(upstream: &Address, args: &Args) -> anyhow::Result<Option<Arc<Renewable<ClientConfig>>>> {
    let files = args.upstream_files.clone();
    match (&upstream.certified, files.first_given()) {
        (Some(_), _) => Renewable::new("the upstream's", move || upstream_config(&files)).map(Some),
        (None, Some(flag)) => bail!("{flag}: is for an upstream with TLS; write --upstream https://..., or remove it"),
        (None, None) => Ok(None),
    }
}

/// The first lines: what runs, which rules, and what to try.
fn greet(
    bound: SocketAddr,
    admin: Option<(SocketAddr, Option<&TokenFile>)>,
    health: Option<&str>,
    config: &Config,
    proxy: &Proxy,
) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let (s, show) = (if config.listen.tls.is_some() { "s" } else { "" }, greeting::certificate_flags(config));
    writeln!(out, "tollkeeper {} listening on http{s}://{bound}", env!("CARGO_PKG_VERSION"))?;
    writeln!(out, "upstream: {}", proxy.upstream.address())?;
    if let Some((admin, kept)) = admin {
        let base = format!("http{s}://{admin}");
        writeln!(out, "admin: {base}")?;
        access::greet(&mut out, &proxy.service.tokens, kept, &base)?;
    }
    if let Some(health) = health {
        writeln!(out, "health: http://{health}")?;
    }
    greeting::store(&mut out, config, &proxy.service.limiter)?;
    greeting::clients(&mut out, config, &proxy.service.limiter.policy())?;
    greeting::rules(&mut out, &proxy.service)?;
    writeln!(out, "try:\n  curl{show} -i http{s}://{bound}/")?;
    out.flush()?;
    Ok(())
}
