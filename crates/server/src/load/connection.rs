//! One connection to the service, in any of its protocols.

use std::io;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, TE};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::answer::Answer;
use super::resp;
use super::target::{Protocol, Target, header};
use crate::front::grpc::envoy::{Code, Entry, METHOD, RateLimitDescriptor, RateLimitRequest, RateLimitResponse};

/// An open connection.
pub(super) enum Connection {
    Http(http1::SendRequest<Full<Bytes>>),
    Grpc(http2::SendRequest<Full<Bytes>>),
    Resp { stream: TcpStream, buffer: BytesMut },
}

impl Connection {
    pub(super) async fn open(target: &Target) -> io::Result<Connection> {
        let stream = TcpStream::connect((target.host.as_str(), target.port)).await?;
        stream.set_nodelay(true)?;
        match target.protocol {
            Protocol::Check | Protocol::Get(_) => {
                let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
                crate::background::spawn(connection);
                Ok(Connection::Http(sender))
            }
            Protocol::Grpc => {
                let builder = http2::Builder::new(TokioExecutor::new());
                let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
                crate::background::spawn(connection);
                Ok(Connection::Grpc(sender))
            }
            Protocol::Resp => {
                let mut connection = Connection::Resp { stream, buffer: BytesMut::with_capacity(16 * 1024) };
                if let (Connection::Resp { stream, .. }, Some(token)) = (&mut connection, &target.token) {
                    authenticate(stream, token).await?;
                }
                Ok(connection)
            }
        }
    }

    /// Asks once for each key. What was answered is in `answers`, even if the connection breaks then.
    pub(super) async fn ask(&mut self, target: &Target, keys: &[u64], answers: &mut Vec<Answer>) -> io::Result<()> {
        match self {
            Connection::Http(sender) => {
                for key in keys {
                    sender.ready().await.map_err(io::Error::other)?;
                    let answered = sender.send_request(http_request(target, *key)?).await.map_err(io::Error::other)?;
                    answers.push(http_answer(target, answered).await?);
                }
            }
            Connection::Grpc(sender) => {
                for key in keys {
                    sender.ready().await.map_err(io::Error::other)?;
                    let answered = sender.send_request(grpc_request(target, *key)?).await.map_err(io::Error::other)?;
                    answers.push(grpc_answer(answered).await?);
                }
            }
            Connection::Resp { stream, buffer } => {
                let mut commands = Vec::with_capacity(64 * keys.len());
                for key in keys {
                    let value = Target::value(*key);
                    let constant = target.attributes.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]);
                    let words = ["TOLLKEEPER.CHECK"].into_iter().chain(constant).chain([target.key.as_str(), &value]);
                    resp::command(words.collect::<Vec<_>>().into_iter(), &mut commands);
                }
                stream.write_all(&commands).await?;
                while answers.len() < keys.len() {
                    match resp::answer(buffer).map_err(io::Error::other)? {
                        Some((answer, length)) => {
                            answers.push(answer);
                            drop(buffer.split_to(length));
                        }
                        None if stream.read_buf(buffer).await? == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                        None => {}
                    }
                }
            }
        }
        Ok(())
    }
}

async fn authenticate(stream: &mut TcpStream, token: &str) -> io::Result<()> {
    let mut command = Vec::new();
    resp::command(["AUTH", token].into_iter(), &mut command);
    stream.write_all(&command).await?;
    let mut answer = [0; 128];
    let length = stream.read(&mut answer).await?;
    if answer[..length].starts_with(b"+OK") {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&answer[..length]).trim().trim_start_matches('-').to_string()))
}

fn http_request(target: &Target, key: u64) -> io::Result<Request<Full<Bytes>>> {
    let value = Target::value(key);
    let mut request = match &target.protocol {
        Protocol::Get(path) => {
            let mut request = Request::new(Full::default());
            *request.uri_mut() = Uri::from(path.clone());
            let constant = target.attributes.iter().map(|(name, value)| (name, value.as_str()));
            let headers = constant.chain([(&target.key, value.as_str())]);
            request.headers_mut().extend(headers.filter_map(|(name, value)| header(name, value)));
            request
        }
        _ => {
            let constant = target.attributes.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            let attributes: serde_json::Map<String, serde_json::Value> = constant
                .chain([(target.key.as_str(), value.as_str())])
                .map(|(name, value)| (name.into(), value.into()))
                .collect();
            let body = serde_json::json!({ "attributes": attributes }).to_string();
            let mut request = Request::new(Full::from(body));
            *request.method_mut() = Method::POST;
            *request.uri_mut() = Uri::from_static("/v1/check");
            request.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
            request
        }
    };
    let host = target.authority().parse().map_err(io::Error::other)?;
    request.headers_mut().insert(HOST, host);
    authorize(target, request.headers_mut())?;
    Ok(request)
}

fn authorize(target: &Target, headers: &mut http::HeaderMap) -> io::Result<()> {
    if let Some(token) = &target.token {
        headers.insert(AUTHORIZATION, format!("Bearer {token}").parse().map_err(io::Error::other)?);
    }
    Ok(())
}

async fn http_answer(target: &Target, answered: Response<Incoming>) -> io::Result<Answer> {
    #[derive(Deserialize)]
    struct Decided {
        allowed: bool,
    }
    let (status, body) =
        (answered.status(), answered.into_body().collect().await.map_err(io::Error::other)?.to_bytes());
    Ok(match status {
        StatusCode::OK if target.protocol == Protocol::Check => match serde_json::from_slice::<Decided>(&body) {
            Ok(Decided { allowed: true }) => Answer::Allowed,
            Ok(Decided { allowed: false }) => Answer::Denied,
            Err(_) => {
                Answer::Failed("this is not an answer to /v1/check; is this the HTTP address of the service?".into())
            }
        },
        status if status.is_success() => Answer::Allowed,
        StatusCode::TOO_MANY_REQUESTS => Answer::Denied,
        StatusCode::SERVICE_UNAVAILABLE => Answer::Shed,
        status => Answer::Failed(format!("HTTP {status}")),
    })
}

fn grpc_request(target: &Target, key: u64) -> io::Result<Request<Full<Bytes>>> {
    let entry = |(key, value): (&String, String)| Entry { key: key.clone(), value };
    let constant = target.attributes.iter().filter(|(name, _)| name != "domain");
    let constant = constant.map(|(name, value)| (name, value.clone()));
    let entries = constant.chain([(&target.key, Target::value(key))]).map(entry).collect();
    let domain = target.attributes.iter().find(|(name, _)| name == "domain").map(|(_, value)| value.clone());
    let message = RateLimitRequest {
        domain: domain.unwrap_or_else(|| "bench".into()),
        descriptors: vec![RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }],
        hits_addend: 0,
    };
    let mut body = BytesMut::with_capacity(64);
    body.put_u8(0);
    body.put_u32(u32::try_from(message.encoded_len()).map_err(io::Error::other)?);
    message.encode(&mut body).map_err(io::Error::other)?;
    let mut request = Request::new(Full::from(body.freeze()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = format!("http://{}/{METHOD}", target.authority()).parse().map_err(io::Error::other)?;
    request.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/grpc"));
    request.headers_mut().insert(TE, http::HeaderValue::from_static("trailers"));
    authorize(target, request.headers_mut())?;
    Ok(request)
}

async fn grpc_answer(answered: Response<Incoming>) -> io::Result<Answer> {
    let (head, body) = answered.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?;
    let trailers = body.trailers().cloned().unwrap_or(head.headers);
    let field = |name: &str| trailers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
    Ok(match field("grpc-status") {
        "0" => {
            let bytes = body.to_bytes();
            let message = bytes.get(5..).and_then(|bytes| RateLimitResponse::decode(bytes).ok());
            match message.map(|message| message.overall_code()) {
                Some(Code::Ok) => Answer::Allowed,
                Some(Code::OverLimit) => Answer::Denied,
                _ => Answer::Failed("this is not an answer from a rate limit service".into()),
            }
        }
        // UNAVAILABLE, RESOURCE_EXHAUSTED
        "14" | "8" => Answer::Shed,
        "" => Answer::Failed(format!("HTTP {}; is this the gRPC address of the service?", head.status)),
        status => Answer::Failed(format!("gRPC status {status}: {}", field("grpc-message"))),
    })
}
