//! Load for any server of the three protocols: the same bytes for each, but for eight characters that are the key.
//!
//!     load http|resp|grpc ADDRESS REQUEST_FILE [connections=50] [seconds=2] [rate=N] [pipeline=1] [keys=10000] [path=/...]
//!
//! REQUEST_FILE is one request as it is sent (for gRPC the message), with `########` where the key belongs. One thread, as `wrk -t1`.
//! In a closed loop each connection sends when the last answer has come. With `rate` requests are due at fixed times, and the latency
//! of a late one counts from when it was due (no coordinated omission). Prints one line of JSON.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderValue, TE};
use http::{Method, Request, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{sleep_until, timeout};

const PLACE: &[u8] = b"########";
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, PartialEq)]
enum Protocol {
    Http,
    Resp,
    Grpc,
}

struct Plan {
    protocol: Protocol,
    address: String,
    /// One for each key.
    requests: Vec<Bytes>,
    connections: usize,
    seconds: f64,
    rate: Option<f64>,
    pipeline: usize,
    path: String,
}

#[derive(Default)]
struct Tally {
    next: u64,
    draw: u64,
    allowed: u64,
    denied: u64,
    failed: BTreeMap<String, u64>,
    /// Microseconds.
    latencies: Vec<u32>,
}

fn main() -> anyhow::Result<()> {
    let plan = Rc::new(Plan::read()?);
    let tally = Rc::new(RefCell::new(Tally { draw: 0x9E37_79B9_7F4A_7C15, ..Tally::default() }));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let begun = Instant::now();
    LocalSet::new().block_on(&runtime, async {
        let workers: Vec<_> =
            (0..plan.connections).map(|_| spawn_local(work(plan.clone(), tally.clone(), begun))).collect();
        for worker in workers {
            let _ = worker.await;
        }
    });
    let took = begun.elapsed().as_secs_f64();
    let mut tally = tally.borrow_mut();
    tally.latencies.sort_unstable();
    let answered = tally.latencies.len();
    let quantile = |share: f64| match answered {
        0 => 0,
        _ => tally.latencies[((answered as f64 * share) as usize).min(answered - 1)],
    };
    println!(
        "{}",
        serde_json::json!({
            "seconds": took, "answered": answered, "per_second": answered as f64 / took,
            "allowed": tally.allowed, "denied": tally.denied, "failed": tally.failed,
            "p50_us": quantile(0.5), "p99_us": quantile(0.99), "max_us": quantile(1.0),
        })
    );
    Ok(())
}

impl Plan {
    fn read() -> anyhow::Result<Plan> {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let [protocol, address, file, options @ ..] = arguments.as_slice() else {
            bail!("protocol, address and request file, please")
        };
        let protocol = match protocol.as_str() {
            "http" => Protocol::Http,
            "resp" => Protocol::Resp,
            "grpc" => Protocol::Grpc,
            other => bail!("{other} is not known"),
        };
        let options: BTreeMap<&str, &str> = options.iter().filter_map(|option| option.split_once('=')).collect();
        let number = |name: &str, default: f64| match options.get(name) {
            None => Ok(default),
            Some(text) => text.parse::<f64>().with_context(|| format!("{name}={text}")),
        };
        let template = std::fs::read(file).with_context(|| file.clone())?;
        let keys = number("keys", 10_000.0)? as usize;
        Ok(Plan {
            protocol,
            address: address.clone(),
            requests: (0..keys).map(|key| filled_in(&template, key)).collect(),
            connections: number("connections", 50.0)? as usize,
            seconds: number("seconds", 2.0)?,
            rate: options.contains_key("rate").then(|| number("rate", 0.0)).transpose()?,
            pipeline: number("pipeline", 1.0)? as usize,
            path: options.get("path").unwrap_or(&"/").to_string(),
        })
    }
}

fn filled_in(template: &[u8], key: usize) -> Bytes {
    let (mut request, value) = (template.to_vec(), format!("u{key:07}"));
    let mut at = 0;
    while let Some(found) = request[at..].windows(PLACE.len()).position(|window| window == PLACE) {
        at += found;
        request[at..at + PLACE.len()].copy_from_slice(value.as_bytes());
    }
    Bytes::from(request)
}

enum Connection {
    Raw { stream: TcpStream, input: BytesMut, output: Vec<u8> },
    Grpc(http2::SendRequest<Full<Bytes>>),
}

enum Answer {
    Allowed,
    Denied,
    Failed(String),
}

async fn work(plan: Rc<Plan>, tally: Rc<RefCell<Tally>>, begun: Instant) {
    let mut connection = None;
    while let Some(asked_at) = turn(&plan, &tally, begun).await {
        if connection.is_none() {
            match connect(&plan).await {
                Ok(opened) => connection = Some(opened),
                Err(error) => {
                    *tally.borrow_mut().failed.entry(format!("cannot connect: {error}")).or_default() += 1;
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            }
        }
        let Some(open) = &mut connection else { continue };
        // A connection is opened once; what it takes is not what is measured.
        match timeout(PATIENCE, ask(open, &plan, &tally, asked_at)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                *tally.borrow_mut().failed.entry(error.to_string()).or_default() += 1;
                connection = None;
            }
            Err(_) => {
                *tally.borrow_mut().failed.entry("no answer in 5 s".into()).or_default() += 1;
                connection = None;
            }
        }
    }
}

/// When the next request is due; `None` at the end.
async fn turn(plan: &Plan, tally: &RefCell<Tally>, begun: Instant) -> Option<Instant> {
    let now = Instant::now();
    let number = {
        let mut tally = tally.borrow_mut();
        tally.next += plan.pipeline as u64;
        tally.next - plan.pipeline as u64
    };
    let due = plan.rate.map_or(now, |rate| begun + Duration::from_secs_f64(number as f64 / rate));
    if due.max(now) >= begun + Duration::from_secs_f64(plan.seconds) {
        return None;
    }
    if due <= now {
        return Some(due);
    }
    sleep_until(due.into()).await;
    // A timer that fires late is our fault, not the server's.
    Some(Instant::now())
}

async fn connect(plan: &Plan) -> io::Result<Connection> {
    let stream = TcpStream::connect(&plan.address).await?;
    stream.set_nodelay(true)?;
    if plan.protocol != Protocol::Grpc {
        return Ok(Connection::Raw { stream, input: BytesMut::with_capacity(16 * 1024), output: Vec::new() });
    }
    let builder = http2::Builder::new(TokioExecutor::new());
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    tokio::spawn(connection);
    Ok(Connection::Grpc(sender))
}

async fn ask(open: &mut Connection, plan: &Plan, tally: &RefCell<Tally>, asked_at: Instant) -> io::Result<()> {
    match open {
        Connection::Raw { stream, input, output } => {
            output.clear();
            (0..plan.pipeline).for_each(|_| output.extend_from_slice(&plan.requests[draw(plan, tally)]));
            stream.write_all(output).await?;
            let mut missing = plan.pipeline;
            while missing > 0 {
                let read = match plan.protocol {
                    Protocol::Http => http_answer(input)?,
                    _ => resp_answer(input)?,
                };
                match read {
                    Some((answer, length)) => {
                        input.advance(length);
                        count(tally, answer, asked_at);
                        missing -= 1;
                    }
                    None if stream.read_buf(input).await? == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    None => {}
                }
            }
        }
        Connection::Grpc(sender) => {
            let message = &plan.requests[draw(plan, tally)];
            let mut body = BytesMut::with_capacity(message.len() + 5);
            body.put_u8(0);
            body.put_u32(message.len() as u32);
            body.put_slice(message);
            let mut request = Request::new(Full::from(body.freeze()));
            *request.method_mut() = Method::POST;
            *request.uri_mut() =
                format!("http://{}{}", plan.address, plan.path).parse::<Uri>().map_err(io::Error::other)?;
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
            sender.ready().await.map_err(io::Error::other)?;
            let answered = sender.send_request(request).await.map_err(io::Error::other)?;
            let (head, body) = answered.into_parts();
            let body = body.collect().await.map_err(io::Error::other)?;
            let trailers = body.trailers().cloned().unwrap_or(head.headers);
            let status = trailers.get("grpc-status").and_then(|value| value.to_str().ok()).unwrap_or("none");
            let answer = match (status, body.to_bytes().get(5..7)) {
                // Field 1, `overall_code`: 2 is over the limit.
                ("0", Some([8, 2])) => Answer::Denied,
                ("0", _) => Answer::Allowed,
                (status, _) => Answer::Failed(format!("gRPC status {status}")),
            };
            count(tally, answer, asked_at);
        }
    }
    Ok(())
}

fn draw(plan: &Plan, tally: &RefCell<Tally>) -> usize {
    let draw = &mut tally.borrow_mut().draw;
    *draw ^= *draw << 13;
    *draw ^= *draw >> 7;
    *draw ^= *draw << 17;
    (*draw % plan.requests.len() as u64) as usize
}

fn count(tally: &RefCell<Tally>, answer: Answer, asked_at: Instant) {
    let mut tally = tally.borrow_mut();
    match answer {
        Answer::Allowed => tally.allowed += 1,
        Answer::Denied => tally.denied += 1,
        Answer::Failed(problem) => return *tally.failed.entry(problem).or_default() += 1,
    }
    tally.latencies.push(asked_at.elapsed().as_micros().min(u128::from(u32::MAX)) as u32);
}

fn http_answer(input: &[u8]) -> io::Result<Option<(Answer, usize)>> {
    let Some(head) = find(input, b"\r\n\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(&input[..head]).map_err(io::Error::other)?;
    let status = text.get(9..12).unwrap_or("");
    let field = |name: &str| {
        text.split("\r\n").find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    };
    let start = head + 4;
    let end = match field("content-length").map(str::parse::<usize>) {
        Some(Ok(length)) => start + length,
        _ if field("transfer-encoding") == Some("chunked") => match find(&input[start..], b"0\r\n\r\n") {
            Some(at) => start + at + 5,
            None => return Ok(None),
        },
        _ => start,
    };
    let Some(body) = input.get(start..end) else { return Ok(None) };
    let answer = match status {
        "429" => Answer::Denied,
        status if status.starts_with('2') => match find(body, b"\"allowed\":false") {
            Some(_) => Answer::Denied,
            None => Answer::Allowed,
        },
        status => Answer::Failed(format!("HTTP {status}")),
    };
    Ok(Some((answer, end)))
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// An array of integers, as CL.THROTTLE answers, or an error.
fn resp_answer(input: &[u8]) -> io::Result<Option<(Answer, usize)>> {
    let line =
        |at: usize| find(input.get(at..).unwrap_or(&[]), b"\r\n").map(|end| (&input[at..at + end], at + end + 2));
    let Some((first, mut at)) = line(0) else { return Ok(None) };
    let Some(count) = first.strip_prefix(b"*") else {
        return Ok(Some((Answer::Failed(String::from_utf8_lossy(first).into_owned()), at)));
    };
    let count: usize = std::str::from_utf8(count).map_err(io::Error::other)?.parse().map_err(io::Error::other)?;
    let mut is_denied = false;
    for nth in 0..count {
        let Some((value, next)) = line(at) else { return Ok(None) };
        is_denied |= nth == 0 && value == b":1";
        at = next;
    }
    Ok(Some((if is_denied { Answer::Denied } else { Answer::Allowed }, at)))
}
