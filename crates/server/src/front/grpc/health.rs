//! `grpc.health.v1.Health`: the status of the service, checked, watched and listed.
//!
//! `Check` and `Watch` are those of tonic. It does not have `List` yet, so that is here, and is added to what reflection
//! shows.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request as HttpRequest;
use axum::response::Response as HttpResponse;
use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet, MessageOptions, MethodDescriptorProto};
use tollkeeper::Store;
use tonic::server::Grpc;
use tonic::{Request, Response, Status};
use tonic_health::ServingStatus;
use tonic_health::pb::{FILE_DESCRIPTOR_SET, HealthCheckResponse};
use tonic_health::server::HealthReporter;
use tower::service_fn;

use super::codec::{MAX_MESSAGE, StrictCodec};
use super::envoy::SERVICE;
use crate::service::{Readiness, Service};

/// The path of `List`.
pub(super) const LIST: &str = "/grpc.health.v1.Health/List";
/// How often the status is updated from a store that others share.
const HEARTBEAT: Duration = Duration::from_millis(200);
/// The names under which the status can be asked for: all services together, and the only one.
const NAMES: [&str; 2] = ["", SERVICE];

#[derive(Clone, PartialEq, Message)]
struct HealthListRequest {}

#[derive(Clone, PartialEq, Message)]
struct HealthListResponse {
    #[prost(map = "string, message", tag = "1")]
    statuses: HashMap<String, HealthCheckResponse>,
}

/// Answers `List`.
pub(super) async fn list(service: Arc<Service>, request: HttpRequest) -> HttpResponse {
    let answer = service_fn(|_: Request<HealthListRequest>| {
        let status = HealthCheckResponse { status: status(service.readiness()) as i32 };
        let statuses = NAMES.iter().map(|name| (name.to_string(), status)).collect();
        std::future::ready(Ok::<_, Status>(Response::new(HealthListResponse { statuses })))
    });
    let mut grpc = Grpc::new(StrictCodec::default()).max_decoding_message_size(MAX_MESSAGE);
    grpc.unary(answer, request).await.map(axum::body::Body::new)
}

/// Keeps the status up to date.
pub(super) async fn follow(health: HealthReporter, service: Arc<Service>) {
    let mut known = None;
    loop {
        let ready = service.readiness();
        // Watchers only get changes.
        if known.replace(ready) != Some(ready) {
            report(&health, ready).await;
        }
        match service.limiter.store() {
            // It can always decide, so nothing happens until the service drains.
            Store::Memory(_) => service.drains.notified().await,
            _ => tokio::time::sleep(HEARTBEAT).await,
        }
    }
}

pub(super) async fn report(health: &HealthReporter, readiness: Readiness) {
    for name in NAMES {
        health.set_service_status(name, status(readiness)).await;
    }
}

/// Ends the streams of watchers, which would never end otherwise.
pub(super) async fn end(mut health: HealthReporter) {
    for name in NAMES {
        health.clear_service_status(name).await;
    }
}

fn status(readiness: Readiness) -> ServingStatus {
    if readiness == Readiness::Ready { ServingStatus::Serving } else { ServingStatus::NotServing }
}

/// What reflection shows: tonic's descriptors, with `List` as gRPC defines it.
pub(super) fn descriptors() -> anyhow::Result<FileDescriptorSet> {
    let mut set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET)?;
    for file in &mut set.file {
        for service in file.service.iter_mut().filter(|service| service.name() == "Health") {
            service.method.push(MethodDescriptorProto {
                name: Some("List".into()),
                input_type: Some(".grpc.health.v1.HealthListRequest".into()),
                output_type: Some(".grpc.health.v1.HealthListResponse".into()),
                ..MethodDescriptorProto::default()
            });
            let entry = DescriptorProto {
                field: vec![
                    field("key", 1, Label::Optional, Type::String, None),
                    field("value", 2, Label::Optional, Type::Message, Some(".grpc.health.v1.HealthCheckResponse")),
                ],
                options: Some(MessageOptions { map_entry: Some(true), ..MessageOptions::default() }),
                ..message("StatusesEntry")
            };
            let statuses = ".grpc.health.v1.HealthListResponse.StatusesEntry";
            file.message_type.extend([
                message("HealthListRequest"),
                DescriptorProto {
                    field: vec![field("statuses", 1, Label::Repeated, Type::Message, Some(statuses))],
                    nested_type: vec![entry],
                    ..message("HealthListResponse")
                },
            ]);
        }
    }
    Ok(set)
}

fn message(name: &str) -> DescriptorProto {
    DescriptorProto { name: Some(name.into()), ..DescriptorProto::default() }
}

fn field(name: &str, number: i32, label: Label, kind: Type, of: Option<&str>) -> FieldDescriptorProto {
    FieldDescriptorProto {
        name: Some(name.into()),
        json_name: Some(name.into()),
        number: Some(number),
        label: Some(label.into()),
        r#type: Some(kind.into()),
        type_name: of.map(str::to_string),
        ..FieldDescriptorProto::default()
    }
}
