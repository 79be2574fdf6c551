//! Our structs against the descriptors that reflection shows: a message with every field set must survive a round
//! trip.

use std::collections::HashMap;

use prost::Message as _;
use prost::encoding::{WireType, encode_key, encode_varint};
use prost_types::field_descriptor_proto::Type;
use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorSet};

use crate::envoy_client::*;

/// The types of `descriptors.bin` by full name, as fields refer to them: `.envoy.type.v3.RateLimitUnit`.
#[derive(Default)]
struct Schema {
    messages: HashMap<String, DescriptorProto>,
    enums: HashMap<String, EnumDescriptorProto>,
}

impl Schema {
    fn read() -> Schema {
        let set = FileDescriptorSet::decode(DESCRIPTORS).expect("a set of files");
        let mut schema = Schema::default();
        for file in &set.file {
            let package = format!(".{}", file.package());
            schema.add(&package, &file.message_type, &file.enum_type);
        }
        schema
    }

    fn add(&mut self, parent: &str, messages: &[DescriptorProto], enums: &[EnumDescriptorProto]) {
        for one in enums {
            self.enums.insert(format!("{parent}.{}", one.name()), one.clone());
        }
        for one in messages {
            let name = format!("{parent}.{}", one.name());
            self.add(&name, &one.nested_type, &one.enum_type);
            self.messages.insert(name, one.clone());
        }
    }

    /// The encoding of a message that sets every field to something other than its default, in the order of field
    /// numbers, as prost writes them.
    fn sample(&self, message: &str) -> Vec<u8> {
        let mut fields = self.messages[message].field.clone();
        fields.sort_by_key(|field| field.number());
        let mut out = Vec::new();
        for field in fields {
            let number = field.number() as u32;
            let content = match field.r#type() {
                Type::Bool | Type::Uint32 | Type::Uint64 | Type::Int32 | Type::Int64 => {
                    encode_key(number, WireType::Varint, &mut out);
                    encode_varint(1, &mut out);
                    continue;
                }
                Type::Enum => {
                    let last = self.enums[field.type_name()].value.last().expect("a value").number();
                    encode_key(number, WireType::Varint, &mut out);
                    encode_varint(last as u64, &mut out);
                    continue;
                }
                Type::String | Type::Bytes => format!("field {number}").into_bytes(),
                // prost's own type, which is recursive.
                Type::Message if field.type_name() == ".google.protobuf.Struct" => Vec::new(),
                Type::Message => self.sample(field.type_name()),
                other => panic!("{message}.{}: no sample of {other:?}", field.name()),
            };
            encode_key(number, WireType::LengthDelimited, &mut out);
            encode_varint(content.len() as u64, &mut out);
            out.extend(content);
        }
        out
    }
}

#[test]
fn every_field_of_the_messages_is_kept() {
    let schema = Schema::read();
    let request = schema.sample(".envoy.service.ratelimit.v3.RateLimitRequest");
    let read = RateLimitRequest::decode(&*request).expect("a request");
    assert_eq!(read.encode_to_vec(), request, "{read:#?}");
    let response = schema.sample(".envoy.service.ratelimit.v3.RateLimitResponse");
    let read = RateLimitResponse::decode(&*response).expect("a response");
    assert_eq!(read.encode_to_vec(), response, "{read:#?}");
}

#[test]
fn every_enum_value_has_its_number() {
    let schema = Schema::read();
    let same = |name: &str, ours: fn(i32) -> Option<String>| {
        for value in &schema.enums[name].value {
            let ours = ours(value.number()).unwrap_or_default();
            assert_eq!(ours.to_uppercase(), value.name().replace('_', ""), "{name} {}", value.number());
        }
    };
    same(".envoy.type.v3.RateLimitUnit", |number| Some(format!("{:?}", RateLimitUnit::try_from(number).ok()?)));
    same(".envoy.service.ratelimit.v3.RateLimitResponse.Code", |number| {
        Some(format!("{:?}", Code::try_from(number).ok()?))
    });
    same(".envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.Unit", |number| {
        Some(format!("{:?}", Unit::try_from(number).ok()?))
    });
}

#[test]
fn the_service_has_one_method_of_these_messages() {
    let set = FileDescriptorSet::decode(DESCRIPTORS).expect("a set of files");
    let file = set.file.iter().find(|file| file.package() == "envoy.service.ratelimit.v3").expect("rls.proto");
    let [service] = &*file.service else { panic!("one service: {:?}", file.service) };
    let [method] = &*service.method else { panic!("one method: {:?}", service.method) };
    let name = format!("{}.{}", file.package(), service.name());
    assert_eq!(name, SERVICE);
    assert_eq!(format!("{name}/{}", method.name()), METHOD);
    assert_eq!(method.input_type(), ".envoy.service.ratelimit.v3.RateLimitRequest");
    assert_eq!(method.output_type(), ".envoy.service.ratelimit.v3.RateLimitResponse");
}

/// A string that was not UTF-8 got `INTERNAL`, as if the service had failed.
#[test]
fn a_message_that_cannot_be_read_is_the_callers_mistake() {
    let service = tollkeeper_testkit::Service::on("rules: [{ name: a, key: '{user}', limit: 2/h }]", &[]);
    // `domain` of two bytes that are not UTF-8; then a truncated field.
    for message in [&[0x0a, 2, 0xff, 0xfe][..], &[0x0a, 9, b'x']] {
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        let body = tollkeeper_testkit::file("", "bin");
        std::fs::write(&body, [&[0][..], &length, message].concat()).unwrap();
        let url = format!(
            "http://{}/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
            service.grpc.as_ref().unwrap()
        );
        let data = format!("@{body}");
        let kind = "content-type: application/grpc";
        let args = [
            "--http2-prior-knowledge",
            "-sS",
            "-D",
            "-",
            "-H",
            kind,
            "-H",
            "te: trailers",
            "--data-binary",
            &data,
            &url,
        ];
        let output = tollkeeper_testkit::run("curl", &args);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("grpc-status: 3"), "{said}");
    }
}
