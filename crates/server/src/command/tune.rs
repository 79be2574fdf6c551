//! `tollkeeper tune`: which limits to set, from access logs.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use data_encoding::HEXLOWER;
use indicatif::{ProgressBar, ProgressStyle};
use ring::digest::{Context as Digest, SHA256};
use ring::rand::{SecureRandom as _, SystemRandom};
use tollkeeper::Rule;
use tollkeeper_logs::Format;
use tollkeeper_tune::{Log, Naming, Options, Paint, Progress, Report, Source, summary, words, write_page};

use super::configuration::ConfigArgs;
use super::ending::Ending;
use super::operations;
use crate::privacy::{MAX_KEY, Privacy, bounded};
use crate::settings::{self, Loaded};

/// Suggest limits from access logs, and show what rules would have done
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Formats are detected: nginx and Apache (common, combined, with more fields), Caddy, Traefik, Envoy, Istio, HAProxy,
AWS load balancers, CloudFront, Cloudflare, JSON of nginx and others, and the events of `tollkeeper replay`.

Examples:
  tollkeeper tune /var/log/nginx/access.log            who sends how much, and limits for it
  tollkeeper tune 'access.log*' --write rules.yaml     the same as a rules file
  tollkeeper tune access.log.gz -c rules.yaml          what these rules would have done, and to whom
  tollkeeper tune access.log -c rules.yaml --html report.html       as a page
  tollkeeper tune access.log -c rules.yaml --compare new.yaml
  tollkeeper tune access.log -c rules.yaml --max-denied-keys 1%      exit 1 if a rule denies more
  zcat access.log.*.gz | tollkeeper tune --json -
  tollkeeper tune app.log --format '$remote_addr [$time_iso8601] \"$request\" $status \"$http_x_api_key\"'
  tollkeeper tune --sample 100000 > sample.log         a generated log to try it on"
)]
pub(super) struct Args {
    /// Access logs: files, patterns in quotes, `-` for standard input; plain, gzip or zstd
    #[arg(value_name = "LOG", env = "TOLLKEEPER_LOGS", value_delimiter = '\n')]
    logs: Vec<String>,
    /// The rules to try (YAML); without them, `tune` suggests some
    #[arg(long, short, value_name = "FILE", env = "TOLLKEEPER_CONFIG")]
    config: Option<PathBuf>,
    /// Other rules to compare with those of --config: who gains, who loses
    #[arg(long, value_name = "FILE", requires = "config", env = "TOLLKEEPER_COMPARE")]
    compare: Option<PathBuf>,
    /// The format: a name such as `combined`, or as written in the configuration of nginx or Apache
    #[arg(long, value_name = "FORMAT", env = "TOLLKEEPER_FORMAT")]
    format: Option<String>,
    /// The UTC offset of times without a time zone, such as +02:00 (HAProxy)
    #[arg(long, value_name = "OFFSET", default_value = "+00:00", value_parser = offset, allow_hyphen_values = true, env = "TOLLKEEPER_UTC_OFFSET")]
    utc_offset: i64,
    /// Write the suggested rules to a new file
    #[arg(long, value_name = "FILE", env = "TOLLKEEPER_WRITE")]
    write: Option<PathBuf>,
    /// Exit with 1 if an enforced rule would deny more than this share of its keys, such as 1%
    #[arg(long, value_name = "SHARE", value_parser = share, env = "TOLLKEEPER_MAX_DENIED_KEYS")]
    max_denied_keys: Option<f64>,
    /// Write the report as a self-contained HTML page
    #[arg(long, value_name = "FILE", env = "TOLLKEEPER_HTML")]
    html: Option<PathBuf>,
    /// Print JSON
    #[arg(long, env = "TOLLKEEPER_JSON", value_parser = clap::builder::FalseyValueParser::new())]
    json: bool,
    /// Show every key as a fingerprint that differs from run to run
    #[arg(long, visible_alias = "anonymize", env = "TOLLKEEPER_ANONYMISE", value_parser = clap::builder::FalseyValueParser::new())]
    anonymise: bool,
    /// Threads that read lines; by default one for each core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256), env = "TOLLKEEPER_WORKERS")]
    workers: Option<u16>,
    /// Keys that rules may have in use at the same time, about 60 bytes each
    #[arg(long, value_name = "N", default_value_t = tollkeeper_tune::MAX_KEYS as u64, value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000), env = "TOLLKEEPER_MAX_KEYS")]
    max_keys: u64,
    /// Print a generated sample log of this many lines instead
    #[arg(long, value_name = "LINES", conflicts_with_all = ["logs", "write", "json"], env = "TOLLKEEPER_SAMPLE")]
    sample: Option<u64>,
    /// The seed of the sample log: the same seed gives the same log
    #[arg(long, value_name = "N", default_value_t = 1, env = "TOLLKEEPER_SEED")]
    seed: u64,
}

pub(super) fn run(args: Args) -> anyhow::Result<Ending> {
    if let Some(lines) = args.sample {
        let mut out = BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
        tollkeeper_tune::write_sample(lines, args.seed, &mut out)?;
        out.flush()?;
        return Ok(Ending::Fine);
    }
    if args.config.is_some() && args.write.is_some() {
        bail!("--write suggests rules for a log without rules: leave out --config");
    }
    if args.config.is_none() && args.max_denied_keys.is_some() {
        bail!("--max-denied-keys needs rules to try: name them with --config");
    }
    // Before the logs are read, which may take minutes.
    if let Some(path) = args.write.as_deref().filter(|path| path.exists()) {
        return Err(exists(path));
    }
    let logs = open(&args)?;
    let loaded = args.config.as_deref().map(load).transpose()?;
    let compared = args.compare.as_deref().map(load).transpose()?;
    // After these, whose mistakes must not cost the last report.
    let page = args.html.as_deref().map(Page::create).transpose()?;
    // What is a secret in either file is one in the report.
    let privacy = Privacy::new(loaded.iter().chain(&compared).flat_map(|loaded| &loaded.config.identify));
    let salt = salt()?;
    let shown = |rule: &Rule, variant: u16, key: &str| match args.anonymise {
        true => anonymous(&salt, key),
        false => bounded(&privacy.shown_key(rule, variant, key), MAX_KEY).into_owned(),
    };
    let options = Options {
        naming: loaded.as_ref().map(naming).unwrap_or_default(),
        policy: loaded.map(|loaded| loaded.policy),
        compared: compared.map(|loaded| {
            let naming = naming(&loaded);
            (loaded.policy, naming)
        }),
        workers: args.workers.map_or_else(cores, usize::from),
        max_keys: usize::try_from(args.max_keys)?,
    };
    let mut report = with_progress(&logs.iter().map(Log::size).collect::<Vec<_>>(), |progress| {
        Report::of(logs, options, progress, &shown)
    });
    if args.anonymise {
        report.hide_lines();
    }
    if let Some(path) = &args.write {
        write(path, &report)?;
    }
    if let Some(page) = page {
        page.write(&report)?;
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        serde_json::to_writer(&mut out, &report)?;
        writeln!(out)?;
    } else {
        let colours = out.is_terminal() && std::env::var_os("NO_COLOR").is_none();
        write!(out, "{}", summary(&report, if colours { Paint::Colours } else { Paint::Plain }))?;
        if let Some(path) = &args.write {
            writeln!(out, "\nwritten to {}; check it with `tollkeeper validate {0}`", path.display())?;
        }
    }
    match args.max_denied_keys {
        Some(_) if report.read.requests == 0 => bail!("--max-denied-keys: no request was read, so nothing was tried"),
        most => Ok(judged(&report, most)),
    }
}

fn open(args: &Args) -> anyhow::Result<Vec<Log>> {
    let named = if args.logs.is_empty() {
        if std::io::stdin().is_terminal() {
            bail!("name an access log, such as `tollkeeper tune /var/log/nginx/access.log`");
        }
        vec!["-".to_owned()]
    } else {
        args.logs.clone()
    };
    let format = args.format.as_deref().map(Format::named).transpose().context("--format")?;
    Ok(Log::open(Source::named(&named)?, format.as_ref(), args.utc_offset)?)
}

fn load(path: &Path) -> anyhow::Result<Loaded> {
    let loaded = ConfigArgs { config: Some(path.to_owned()) }.load_with_rules()?;
    operations::warn(&loaded);
    Ok(loaded)
}

fn naming(loaded: &Loaded) -> Naming {
    Naming { ipv6_prefix: loaded.config.ipv6_prefix, identify: loaded.config.identify.clone() }
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// The answer for a pipeline.
fn judged(report: &Report, most: Option<f64>) -> Ending {
    let Some((rule, share)) = report.most_denied_keys() else { return Ending::Fine };
    match most.filter(|most| share > *most) {
        None => Ending::Fine,
        Some(most) => {
            let (share, most) = (words::share(share), words::share(most));
            let _ = writeln!(std::io::stderr(), "rule `{rule}` would deny {share} of its keys: more than {most}");
            Ending::No
        }
    }
}

fn write(path: &Path, report: &Report) -> anyhow::Result<()> {
    let Some(suggestion) = &report.suggestion else {
        bail!("there is nothing to suggest: the log has no request with an address");
    };
    let name = path.display();
    // Checked as `validate` does, because paths and names come from the log.
    settings::parse(path, &suggestion.yaml)
        .map_err(|error| anyhow::anyhow!("the suggested rules are not valid: {error}"))?;
    let mut file = OpenOptions::new().write(true).create_new(true).open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => exists(path),
        _ => anyhow::anyhow!("{name}: {error}"),
    })?;
    file.write_all(suggestion.yaml.as_bytes()).with_context(|| format!("{name}"))
}

fn exists(path: &Path) -> anyhow::Error {
    anyhow::anyhow!("{} exists already: choose another name", path.display())
}

/// Where the report goes as a page.
struct Page<'a> {
    path: &'a Path,
    file: File,
}

impl Page<'_> {
    fn create(path: &Path) -> anyhow::Result<Page<'_>> {
        let file = File::create(path).with_context(|| format!("{}", path.display()))?;
        Ok(Page { path, file })
    }

    fn write(self, report: &Report) -> anyhow::Result<()> {
        let mut file = BufWriter::new(self.file);
        write_page(report, &mut file).and_then(|()| file.flush()).with_context(|| format!("{}", self.path.display()))
    }
}

/// Shows how far reading is, in a terminal only.
fn with_progress<T>(sizes: &[Option<u64>], work: impl FnOnce(&Progress) -> T) -> T {
    let progress = Progress::default();
    if !std::io::stderr().is_terminal() {
        return work(&progress);
    }
    let all: Option<u64> = sizes.iter().copied().sum();
    let (bar, template) = match all {
        Some(size) => (ProgressBar::new(size), "{bar:40} {bytes}/{total_bytes}  {msg}  {eta} left"),
        None => (ProgressBar::new_spinner(), "{spinner} {bytes}  {msg}"),
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = bar.with_style(style);
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let lines = progress.lines.load(Ordering::Relaxed);
                let rate = lines as f64 / bar.elapsed().as_secs_f64().max(0.001);
                bar.set_position(progress.bytes.load(Ordering::Relaxed));
                bar.set_message(format!("{} lines, {}/s", words::grouped(lines), words::grouped(rate as u64)));
                thread::sleep(Duration::from_millis(100));
            }
            bar.finish_and_clear();
        });
        let result = work(&progress);
        is_done.store(true, Ordering::Relaxed);
        result
    })
}

/// Drawn for each run: a fingerprint without it could be tried against all addresses there are.
fn salt() -> anyhow::Result<[u8; 16]> {
    let mut salt = [0; 16];
    SystemRandom::new().fill(&mut salt).map_err(|_| anyhow::anyhow!("the system cannot provide random numbers"))?;
    Ok(salt)
}

fn anonymous(salt: &[u8], key: &str) -> String {
    let mut digest = Digest::new(&SHA256);
    digest.update(salt);
    digest.update(key.as_bytes());
    format!("key-{}", HEXLOWER.encode(&digest.finish().as_ref()[..6]))
}

/// `1%`, `0.5 %`, or a share such as `0.01`.
fn share(text: &str) -> Result<f64, String> {
    let number = text.trim();
    if number == "1" {
        return Err("\"1\" may be 1% or all; write 1% or 100%".into());
    }
    let (number, unit) = match number.strip_suffix('%') {
        Some(number) => (number.trim_end(), 100.0),
        None => (number, 1.0),
    };
    let share = number.parse::<f64>().map_err(|_| format!("{text:?} is not a share; write 1% or 0.01"))? / unit;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err(format!("{text:?} is not between 0% and 100%")) }
}

/// `+02:00` in seconds.
pub(super) fn offset(text: &str) -> Result<i64, String> {
    let wrong = || format!("{text:?} is not an offset; write +02:00 or -05:30");
    let (sign, rest) = match text.split_at_checked(1) {
        Some(("+", rest)) => (1, rest),
        Some(("-", rest)) => (-1, rest),
        _ => return Err(wrong()),
    };
    let (hours, minutes) = rest.split_once(':').ok_or_else(wrong)?;
    let (hours, minutes): (i64, i64) = (hours.parse().map_err(|_| wrong())?, minutes.parse().map_err(|_| wrong())?);
    if !(0..=14).contains(&hours) || !(0..60).contains(&minutes) {
        return Err(wrong());
    }
    Ok(sign * (hours * 3_600 + minutes * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_offsets_as_people_write_them() {
        assert_eq!([share("1%"), share("0.5 %"), share("0.01")], [Ok(0.01), Ok(0.005), Ok(0.01)]);
        assert!(share("1").is_err() && share("2").is_err() && share("x").is_err() && share("101%").is_err());
        assert_eq!([offset("+02:00"), offset("-05:30")], [Ok(7_200), Ok(-19_800)]);
        assert!(["02:00", "+2", "+15:00", "+01:60", ""].iter().all(|text| offset(text).is_err()));
    }

    #[test]
    fn an_anonymous_key_is_the_same_within_a_run_only() {
        assert_eq!(anonymous(b"a", "10.0.0.1"), anonymous(b"a", "10.0.0.1"));
        assert_ne!(anonymous(b"a", "10.0.0.1"), anonymous(b"b", "10.0.0.1"));
    }
}
