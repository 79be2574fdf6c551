//! Which format a log is in, and how a line of it is read.

use std::fmt;
use std::sync::Arc;

use crate::columns::{self, Column};
use crate::entry::Entry;
use crate::field::Times;
use crate::json;
use crate::moment::Precision;
use crate::template::{BadTemplate, Template};

/// The format of a log.
#[derive(Debug, Clone)]
pub struct Format {
    name: &'static str,
    layout: Layout,
    times: Times,
}

#[derive(Debug, Clone)]
enum Layout {
    Text(Arc<Template>),
    Json,
    /// Columns separated by tabs, named by a `#Fields:` line (CloudFront).
    Columns(Vec<Column>),
}

/// A line that is not of its format, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(pub(crate) String);

/// Built-in text formats by name, in the order in which they are tried: a format that asks for more comes first.
const TEXTS: &[(&str, &str, bool)] = &[
    ("combined", COMBINED, false),
    (
        "combined with more fields",
        "$remote_addr - $remote_user [$time_local] \"$request\" $status $number \"$http_referer\" \"$http_user_agent\" ",
        true,
    ),
    (
        "combined with a virtual host",
        "$host $remote_addr - $remote_user [$time_local] \"$request\" $status $number \"$http_referer\" \"$http_user_agent\"",
        true,
    ),
    ("common", "$remote_addr $ident $remote_user [$time_local] \"$request\" $status $number", false),
    ("common with more fields", "$remote_addr $ident $remote_user [$time_local] \"$request\" $status $number ", true),
    (
        "haproxy",
        "$remote_addr_and_port [$time_local] $frontend $backend $timers $status $number $request_cookie $response_cookie $state $connections $queue_and_headers \"$request\"",
        true,
    ),
    (
        "envoy",
        "[$time_iso8601] \"$request\" $status $flags $number $number $number $service_time \"$forwarded_for\" \"$http_user_agent\" \"$http_x_request_id\" \"$host\" \"$upstream\"",
        true,
    ),
    (
        "istio",
        "[$time_iso8601] \"$request\" $status $flags $details $termination \"$failure\" $number $number $number $service_time \"$forwarded_for\" \"$http_user_agent\" \"$http_x_request_id\" \"$host\" \"$upstream\" $cluster $source_address $local_address $peer_and_port ",
        true,
    ),
    (
        "aws-alb",
        "$type $answered $elb $remote_addr_and_port $target $timer $timer $timer $status $target_status $number $number \"$request\" \"$http_user_agent\" $cipher $protocol $group \"$trace\" \"$sni\" \"$certificate\" $priority $time_iso8601 ",
        true,
    ),
    (
        // Before 2018 there was no time of arrival.
        "aws-alb with few fields",
        "$type $time_iso8601 $elb $remote_addr_and_port $target $timer $timer $timer $status $target_status $number $number \"$request\" \"$http_user_agent\" ",
        true,
    ),
    (
        "aws-elb",
        "$time_iso8601 $elb $remote_addr_and_port $backend $timer $timer $timer $status $backend_status $number $number \"$request\"",
        true,
    ),
];
const COMBINED: &str =
    "$remote_addr - $remote_user [$time_local] \"$request\" $status $number \"$http_referer\" \"$http_user_agent\"";

/// Every name that [`Format::named`] takes.
const NAMES: &[&str] = &["combined", "common", "haproxy", "envoy", "istio", "aws-alb", "aws-elb", "cloudfront", "json"];

impl Format {
    /// A format by name (`combined`, `haproxy`, `json`, ...), or as written in the configuration of nginx or Apache.
    pub fn named(name: &str) -> Result<Format, BadTemplate> {
        match name {
            "json" => Ok(Format::of("json", Layout::Json)),
            "cloudfront" => Ok(Format::of("cloudfront", Layout::Columns(Vec::new()))),
            _ if name.contains(['$', '%']) => {
                Ok(Format::of("custom", Layout::Text(Arc::new(Template::compile(name)?))))
            }
            _ => built_in(name).ok_or_else(|| BadTemplate::unknown(name, NAMES)),
        }
    }

    /// The format that reads most of these lines; `None` when none reads half of them.
    #[must_use]
    pub fn detect(sample: &[&str]) -> Option<Format> {
        let lines: Vec<&str> = sample.iter().copied().filter(|line| !line.trim().is_empty()).collect();
        let json = Format::of("json", Layout::Json);
        let columns = Format::of("cloudfront", Layout::Columns(Vec::new()));
        let texts = TEXTS.iter().filter_map(|(name, ..)| built_in(name));
        let mut best: Option<(usize, Format)> = None;
        for mut format in texts.chain([json, columns]) {
            let (mut read, mut unreadable) = (0, 0);
            for line in &lines {
                match format.read(line) {
                    Ok(Some(_)) => read += 1,
                    Ok(None) => {}
                    Err(_) => unreadable += 1,
                }
            }
            if read > unreadable && best.as_ref().is_none_or(|(most, _)| read > *most) {
                best = Some((read, format));
            }
        }
        best.map(|(_, mut format)| {
            if matches!(format.layout, Layout::Json) {
                format.name = lines.iter().find_map(|line| json::dialect(line)).unwrap_or("json");
            }
            format
        })
    }

    /// Reads times that name no zone as being this many seconds east of UTC. HAProxy writes such times.
    #[must_use]
    pub fn at_offset(mut self, seconds: i64) -> Format {
        self.times.at_offset(seconds);
        self
    }

    /// How precise the times of the lines read so far are.
    #[must_use]
    pub fn precision(&self) -> Precision {
        self.times.precision
    }

    /// Whether this format's times name no zone.
    #[must_use]
    pub fn is_zoneless(&self) -> bool {
        self.name == "haproxy"
    }

    /// Reads one line. `None` is a line that holds no request: an empty one, or one that names columns.
    pub fn read<'l>(&mut self, line: &'l str) -> Result<Option<Entry<'l>>, Unreadable> {
        let mut entry = Entry::default();
        Ok(self.read_into(line, &mut entry)?.then_some(entry))
    }

    /// The same into an entry that is used again for every line; false when the line holds no request.
    pub fn read_into<'l>(&mut self, line: &'l str, entry: &mut Entry<'l>) -> Result<bool, Unreadable> {
        entry.clear();
        let line = line.trim_end_matches(['\r', '\n']);
        if line.is_empty() {
            return Ok(false);
        }
        match &mut self.layout {
            Layout::Text(template) => {
                let line = if self.name == "haproxy" { without_syslog(line) } else { line };
                template.read(line, &mut self.times, entry)
            }
            Layout::Json => json::read(line, &mut self.times, entry),
            Layout::Columns(columns) => match line.strip_prefix('#') {
                Some(directive) => {
                    if let Some(names) = directive.strip_prefix("Fields:") {
                        *columns = names.split_whitespace().map(Column::named).collect();
                    }
                    return Ok(false);
                }
                None => columns::read(line, columns, &mut self.times, entry),
            },
        }
        .map(|()| true)
        .map_err(Unreadable)
    }

    fn of(name: &'static str, layout: Layout) -> Format {
        Format { name, layout, times: Times::new() }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

fn built_in(name: &str) -> Option<Format> {
    let (name, text, open) = TEXTS.iter().find(|(known, ..)| *known == name)?;
    Template::built_in(text, *open).ok().map(|template| Format::of(name, Layout::Text(Arc::new(template))))
}

/// What comes after `haproxy[14389]: `, which syslog puts before the line.
fn without_syslog(line: &str) -> &str {
    match line.find("]: ") {
        Some(at)
            if line[..at]
                .rsplit_once('[')
                .is_some_and(|(_, process)| process.bytes().all(|byte| byte.is_ascii_digit())) =>
        {
            &line[at + 3..]
        }
        _ => line,
    }
}
