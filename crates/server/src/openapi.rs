//! `/openapi.json`: what this service answers, as OpenAPI 3.1.
//!
//! Paths are written here; every schema comes from the wire types themselves. The document describes this very
//! service: its status of a denial, and a token only where one is set.

mod actions;
mod rules;

use std::collections::BTreeMap;

use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use crate::audit::Query;
use crate::front::http::Problem;
use crate::insight::Report;
use crate::service::{Admin, Service};
use crate::wire::{
    AuthorizeAnswer, BatchAnswer, CheckAnswer, CheckBody, DenialAnswer, ExceptionBody, ExceptionView, ExceptionsAnswer,
    HealthAnswer, KeyAnswer, LiftedAnswer, Release, ReleaseAnswer, Reserve, ReserveAnswer, ResetAnswer, Settle,
    SettleAnswer, ViolationsAnswer,
};

/// The description of a service.
pub(crate) fn document(service: &Service) -> Value {
    let mut writer = Writer { schemas: schemas(), token: matches!(service.admin, Admin::Token(_)) };
    let paths = paths(&mut writer, service);
    let mut components = json!({ "schemas": writer.schemas.take_definitions(true) });
    if writer.token {
        components["securitySchemes"] = json!({ "admin": { "type": "http", "scheme": "bearer" } });
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tollkeeper",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "An exact rate limiter: decisions, buckets and rules.",
            "license": { "name": "MIT OR Apache-2.0" },
        },
        "paths": paths,
        "components": components,
    })
}

fn schemas() -> SchemaGenerator {
    SchemaSettings::draft2020_12()
        .with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.contract = schemars::generate::Contract::Serialize;
        })
        .into_generator()
}

fn paths(writer: &mut Writer, service: &Service) -> Value {
    let deny_status = service.answer.deny_status.as_u16();
    let verdict = writer.schema::<CheckAnswer<'_>>();
    let verdicts = writer.schema::<BatchAnswer<'_>>();
    let check = Operation::new("check", "Decide a request, or a batch of them in order")
        .body(writer.schema::<CheckBody<'_>>())
        .answer(200, "Decided, whether allowed or not.", JSON, json!({ "anyOf": [verdict, verdicts] }))
        .fails(&[400, 408, 413]);
    let release = Operation::new("release", "Give a slot of a concurrency rule back")
        .body(writer.schema::<Release<'_>>())
        .answer(200, "Done, or it was free already.", JSON, writer.schema::<ReleaseAnswer>())
        .fails(&[400, 404, 408, 413, 503]);
    let reserve = Operation::new("reserve", "Charge an estimate that is corrected later")
        .body(writer.schema::<Reserve<'_>>())
        .answer(200, "Decided, whether allowed or not.", JSON, writer.schema::<ReserveAnswer<'_>>())
        .fails(&[400, 408, 413, 503]);
    let settle = Operation::new("settle", "Correct an estimate to what it did cost, once")
        .parameters(vec![json!({
            "name": "id", "in": "path", "required": true, "description": "What /v1/reserve answered.",
            "schema": { "type": "string", "pattern": "^[0-9a-f]{32}$" },
        })])
        .body(writer.schema::<Settle<'_>>())
        .answer(200, "Corrected.", JSON, writer.schema::<SettleAnswer<'_>>())
        .fails(&[400, 404, 408, 413, 503]);
    let show = Operation::new("showKey", "Show a bucket without touching it")
        .parameters(bucket(service))
        .answer(200, "The bucket as it is now.", JSON, writer.schema::<KeyAnswer<'_>>())
        .fails(&[400, 404, 503]);
    let reset = Operation::new("resetKey", "Forget a bucket")
        .parameters([bucket(service), vec![actions::by()]].concat())
        .answer(200, "Forgotten, or there was nothing to forget.", JSON, writer.schema::<ResetAnswer>())
        .fails(&[400, 404, 503]);
    let insight = Operation::new("insight", "What traffic looks like: series, hot keys, findings, the store").answer(
        200,
        "As far as this process knows.",
        JSON,
        writer.schema::<Report>(),
    );
    let violations = Operation::new("listViolations", "Who was denied: the audit")
        .parameters(violation_filters())
        .answer(200, "The newest first.", JSON, writer.schema::<ViolationsAnswer>())
        .fails(&[400, 503]);
    let exceptions = Operation::new("listExceptions", "The exceptions for single keys").answer(
        200,
        "Those in force.",
        JSON,
        writer.schema::<ExceptionsAnswer>(),
    );
    let except = Operation::new("putException", "Block or allow a key, or grant it a limit of its own")
        .parameters(vec![actions::by()])
        .body(writer.schema::<ExceptionBody<'_>>())
        .answer(
            200,
            "In force here now, and within a second wherever the store is shared.",
            JSON,
            writer.schema::<ExceptionView>(),
        )
        .fails(&[400, 404, 408, 409, 413, 503]);
    let lift = Operation::new("liftException", "End an exception")
        .parameters([bucket(service), vec![actions::by()]].concat())
        .answer(200, "Ended, or there was none.", JSON, writer.schema::<LiftedAnswer>())
        .fails(&[400, 503]);
    let text = json!({ "type": "string" });
    let page = Operation::new("index", "The dashboard").answer(200, "A page.", "text/html", text.clone());
    let metrics =
        Operation::new("metrics", "Metrics for Prometheus").answer(200, "The text format.", "text/plain", text);
    let description =
        Operation::new("describe", "This description").answer(200, "OpenAPI 3.1.", JSON, json!({ "type": "object" }));
    let health = writer.schema::<HealthAnswer>();
    let healthz = Operation::new("healthz", "Whether the process runs").answer(200, "It does.", JSON, health.clone());
    let readyz =
        Operation::new("readyz", "Whether the store can decide").answer(200, "It can.", JSON, health).fails(&[503]);
    let mut paths = json!({
        "/": { "get": writer.admin(page) },
        "/healthz": { "get": writer.open(healthz) },
        "/metrics": { "get": writer.admin(metrics) },
        "/openapi.json": { "get": writer.admin(description) },
        "/readyz": { "get": writer.open(readyz) },
        "/v1/authorize": authorize(writer, deny_status, "", &[]),
        "/v1/authorize/{path}": authorize(writer, deny_status, "Below", &[below()]),
        "/v1/check": { "post": writer.open(check) },
        "/v1/insight": { "get": writer.admin(insight.fails(&[400])) },
        "/v1/exceptions": { "get": writer.admin(exceptions), "put": writer.admin(except), "delete": writer.admin(lift) },
        "/v1/keys": { "get": writer.admin(show), "delete": writer.admin(reset) },
        "/v1/release": { "post": writer.open(release) },
        "/v1/reservations/{id}/settle": { "post": writer.open(settle) },
        "/v1/reserve": { "post": writer.open(reserve) },
        "/v1/violations": { "get": writer.admin(violations) },
    });
    paths["/v1/actions"] = actions::path(writer);
    for (path, operations) in rules::paths(writer) {
        paths[path] = operations;
    }
    paths
}

/// Every method that OpenAPI knows: they all do the same.
fn authorize(writer: &mut Writer, deny_status: u16, name: &str, parameters: &[Value]) -> Value {
    const METHODS: [&str; 8] = ["get", "head", "post", "put", "patch", "delete", "options", "trace"];
    let allowed = writer.schema::<AuthorizeAnswer>();
    let denied = writer.schema::<DenialAnswer>();
    let mut operations = Map::new();
    for method in METHODS {
        let id = format!("authorize{name}{}{}", method[..1].to_uppercase(), &method[1..]);
        let mut all = parameters.to_vec();
        all.extend(if parameters.is_empty() { original() } else { Vec::new() });
        let mut operation = Operation::new(&id, "Decide a request that a proxy asks about")
            .parameters(all)
            .answer(200, "It may pass.", JSON, allowed.clone())
            .fails(&[400])
            .answer(deny_status, "It may not pass now.", PROBLEM, denied.clone())
            .answer(503, "Nobody can tell, and a rule says to let nothing pass then.", PROBLEM, denied.clone());
        operation.limit_headers(&[200, deny_status]);
        operations.insert(method.into(), writer.open(operation));
    }
    Value::Object(operations)
}

const JSON: &str = "application/json";
const PROBLEM: &str = "application/problem+json";

/// Parameters that name a bucket, with a rule that exists as the example.
fn bucket(service: &Service) -> Vec<Value> {
    let policy = service.limiter.policy();
    let rule = policy.rules().first().map_or("free-user", |rule| &*rule.name);
    let required = |name: &str, example: &str, what: &str| {
        json!({
            "name": name, "in": "query", "required": true, "description": what, "example": example,
            "schema": { "type": "string", "minLength": 1 },
        })
    };
    vec![required("rule", rule, "The rule's name."), required("key", "42", "The key's text, as in the row of a check.")]
}

/// What narrows the audit. All are optional.
fn violation_filters() -> Vec<Value> {
    let text = |name: &str, what: &str| {
        let schema = json!({ "type": "string", "minLength": 1 });
        json!({ "name": name, "in": "query", "required": false, "description": what, "schema": schema })
    };
    let mut all = vec![
        text("user_id", "The request's user."),
        text("ip", "An address, or a network such as 10.0.0.0/8."),
        text("rule", "The rule's name."),
        text("key", "The bucket's key; a secret is found by itself or by its fingerprint."),
        text("since", "From here on: 1h for so long ago, or 2026-01-31T12:00:00Z."),
        text("until", "Before here, written the same way."),
        text("limit", "How many at most; 100 unless given."),
        text("cursor", "Where to go on: `next` of an answer."),
    ];
    let pattern = |pattern: &str, example: &str| json!({ "type": "string", "pattern": pattern, "examples": [example] });
    let octet = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
    // Shorter spellings of IPv6 are taken too, but no pattern tells them.
    let ip = format!(r"^({octet}\.){{3}}{octet}(/(3[0-2]|[12]?[0-9]))?$|^([0-9a-f]{{1,4}}:){{7}}[0-9a-f]{{1,4}}$");
    all[1]["schema"] = pattern(&ip, "203.0.113.9");
    all[4]["schema"] = pattern(
        "^[1-9][0-9]{0,3}(s|min|h)$|^20[0-9]{2}-(0[1-9]|1[0-2])-([01][1-9]|2[0-8])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z$",
        "1h",
    );
    all[5]["schema"] = all[4]["schema"].clone();
    all[6]["schema"] =
        json!({ "type": "integer", "minimum": 1, "maximum": Query::MAX_LIMIT, "default": Query::USUAL_LIMIT });
    all[7]["schema"] = pattern("^[0-9]{1,16}\\.[0-9]{1,15}$", "1767225600000000.7");
    all
}

/// What proxies tell of the original request. An empty header is an absent one. The older names are told in words
/// only: whether one of them is read at all depends on the other, which no schema can say.
fn original() -> Vec<Value> {
    let header = |name: &str, pattern: &str, what: &str| {
        json!({
            "name": name, "in": "header", "required": false, "description": what,
            "schema": { "type": "string", "pattern": pattern },
        })
    };
    vec![
        header(
            "X-Forwarded-Method",
            "^[!#$%&'*+.^_`|~0-9A-Za-z-]*$",
            "The method of the original request; X-Original-Method is read where this is absent.",
        ),
        header(
            "X-Forwarded-Uri",
            "^(/.*|[A-Za-z]+://.*)?$",
            "Path and query of the original request; X-Original-URI is read where this is absent.",
        ),
        header("X-Forwarded-Host", "", "The host of the original request; Host is read where this is absent."),
    ]
}

fn below() -> Value {
    json!({
        "name": "path", "in": "path", "required": true,
        "description": "The path of the original request; the query and the method are its own too.",
        "schema": { "type": "string", "minLength": 1 },
    })
}

struct Writer {
    schemas: SchemaGenerator,
    /// Whether the admin part asks for one.
    token: bool,
}

impl Writer {
    /// A reference to a type's schema.
    fn schema<T: JsonSchema>(&mut self) -> Value {
        let schema: Schema = self.schemas.subschema_for::<T>();
        schema.into()
    }

    /// Writes an operation for everybody.
    fn open(&mut self, operation: Operation) -> Value {
        let problem = self.schema::<Problem>();
        let mut responses = operation.responses;
        for status in operation.failures {
            responses.insert(status, response(failure(status), PROBLEM, &problem));
        }
        let mut written = json!({
            "operationId": operation.id,
            "summary": operation.summary,
            "responses": responses,
        });
        if !operation.parameters.is_empty() {
            written["parameters"] = operation.parameters.into();
        }
        if let Some(body) = operation.body {
            written["requestBody"] = json!({ "required": true, "content": { JSON: { "schema": body } } });
        }
        written
    }

    /// Writes an operation of the admin part.
    fn admin(&mut self, mut operation: Operation) -> Value {
        if !self.token {
            return self.open(operation);
        }
        operation.failures.push(401);
        let mut written = self.open(operation);
        written["security"] = json!([{ "admin": [] }]);
        let challenge = json!({ "WWW-Authenticate": { "required": true, "schema": { "type": "string" } } });
        written["responses"]["401"]["headers"] = challenge;
        written
    }
}

struct Operation {
    id: String,
    summary: &'static str,
    parameters: Vec<Value>,
    body: Option<Value>,
    responses: BTreeMap<u16, Value>,
    failures: Vec<u16>,
}

impl Operation {
    fn new(id: &str, summary: &'static str) -> Operation {
        let (responses, failures) = (BTreeMap::new(), Vec::new());
        Operation { id: id.into(), summary, parameters: Vec::new(), body: None, responses, failures }
    }

    fn parameters(mut self, parameters: Vec<Value>) -> Self {
        self.parameters = parameters;
        self
    }

    fn body(mut self, schema: Value) -> Self {
        self.body = Some(schema);
        self
    }

    fn answer(mut self, status: u16, what: &str, kind: &str, schema: Value) -> Self {
        self.responses.insert(status, response(what, kind, &schema));
        self
    }

    fn fails(mut self, statuses: &[u16]) -> Self {
        self.failures.extend(statuses);
        self
    }

    fn limit_headers(&mut self, statuses: &[u16]) {
        for status in statuses {
            if let Some(response) = self.responses.get_mut(status) {
                response["headers"] = json!({
                    "RateLimit-Policy": { "description": "Each rule's limit, in the default style.", "schema": { "type": "string" } },
                    "RateLimit": { "description": "What each rule has left.", "schema": { "type": "string" } },
                    "Retry-After": { "description": "Seconds, rounded up; on a denial that passes.", "schema": { "type": "integer" } },
                });
            }
        }
    }
}

fn response(what: &str, kind: &str, schema: &Value) -> Value {
    json!({ "description": what, "content": { kind: { "schema": schema } } })
}

fn failure(status: u16) -> &'static str {
    match status {
        400 => "Something is wrong with the request; `field` names it.",
        401 => "The admin token is missing or wrong.",
        404 => "There is no such rule, version or reservation.",
        409 => "It cannot be done as things are; `detail` says why.",
        412 => "The rules are not at the version that If-Match names.",
        408 => "The body took too long to arrive.",
        413 => "The body is larger than 64 KiB.",
        _ => "The store, or the database of the rules, cannot answer.",
    }
}

#[cfg(test)]
mod tests;
