//! `/openapi.json`: what this service answers, as OpenAPI 3.1.
//!
//! The paths are those of [`Route`], and every schema comes from the wire types themselves. The document describes this
//! very service: its status of a denial, and a token only where one is set.

mod admin;
mod decisions;
mod pages;
mod rules;

use std::collections::BTreeMap;

use schemars::generate::{Contract, SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use crate::route::{Access, Route};
use crate::wire::ProblemAnswer;

/// What the description has to know of a service.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// The status of a denial.
    pub(crate) deny_status: u16,
    /// Whether the admin part asks for a token.
    pub(crate) needs_token: bool,
    /// The name of a rule that there is, for examples.
    pub(crate) example_rule: String,
}

/// The description of a service.
pub(crate) fn document(facts: &Facts) -> Value {
    let mut writer = Writer { schemas: schemas(Contract::Serialize), requests: schemas(Contract::Deserialize), facts };
    let mut paths = Map::new();
    for &route in Route::ALL {
        for path in route.paths() {
            let operations = operations(&mut writer, route, &path);
            let written = operations.into_iter().map(|(method, operation)| {
                let written = writer.write(route.access(), operation);
                (method.to_string(), written)
            });
            paths.insert(path, written.collect::<Map<_, _>>().into());
        }
    }
    let mut definitions = writer.requests.take_definitions(true);
    definitions.extend(writer.schemas.take_definitions(true));
    let mut components = json!({ "schemas": definitions });
    if facts.needs_token {
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

/// What can be done on a path of a route, by method.
fn operations(writer: &mut Writer<'_>, route: Route, path: &str) -> Vec<(&'static str, Operation)> {
    match route {
        Route::Index => vec![("get", pages::index())],
        Route::Healthz => vec![("get", pages::healthz(writer))],
        Route::Metrics => vec![("get", pages::metrics())],
        Route::Openapi => vec![("get", pages::description())],
        Route::Readyz => vec![("get", pages::readyz(writer))],
        Route::Actions => vec![("get", admin::actions(writer))],
        Route::Authorize => decisions::authorize(writer, path),
        Route::Check => vec![("post", decisions::check(writer))],
        Route::Exceptions => vec![
            ("get", admin::exceptions(writer)),
            ("put", admin::put_exception(writer)),
            ("delete", admin::lift_exception(writer)),
        ],
        Route::Insight => vec![("get", admin::insight(writer))],
        Route::Keys => vec![("get", admin::show_key(writer)), ("delete", admin::reset_key(writer))],
        Route::Release => vec![("post", decisions::release(writer))],
        Route::Settle => vec![("post", decisions::settle(writer))],
        Route::Reserve => vec![("post", decisions::reserve(writer))],
        Route::Rules => vec![("get", rules::list(writer)), ("post", rules::create(writer))],
        Route::RulesHistory => vec![("get", rules::history(writer))],
        Route::RulesRollback => vec![("post", rules::rollback(writer))],
        Route::Rule => vec![("put", rules::put(writer)), ("delete", rules::delete(writer))],
        Route::Violations => vec![("get", admin::violations(writer))],
    }
}

fn schemas(contract: Contract) -> SchemaGenerator {
    SchemaSettings::draft2020_12()
        .with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.contract = contract;
        })
        .into_generator()
}

const JSON: &str = "application/json";
const PROBLEM: &str = "application/problem+json";

struct Writer<'f> {
    /// Of what is answered.
    schemas: SchemaGenerator,
    /// Of what is sent: what has a default may be left out.
    requests: SchemaGenerator,
    facts: &'f Facts,
}

impl Writer<'_> {
    /// A reference to a type's schema.
    fn schema<T: JsonSchema>(&mut self) -> Value {
        let schema: Schema = self.schemas.subschema_for::<T>();
        schema.into()
    }

    /// The parameters of a query, as its type reads them.
    fn query<T: JsonSchema>(&mut self) -> Vec<Value> {
        let schema = T::json_schema(&mut self.requests).to_value();
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        let properties = schema["properties"].as_object().cloned().unwrap_or_default();
        let parameter = |(name, mut schema): (String, Value)| {
            let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
            let required = required.contains(&Value::from(name.as_str()));
            without_null(&mut schema);
            json!({ "name": name, "in": "query", "required": required, "description": description, "schema": schema })
        };
        properties.into_iter().map(parameter).collect()
    }

    /// A reference to the schema of what is sent.
    fn body<T: JsonSchema>(&mut self) -> Value {
        self.requests.subschema_for::<T>().into()
    }

    fn write(&mut self, access: Access, mut operation: Operation) -> Value {
        let needs_token = access == Access::Admin && self.facts.needs_token;
        if needs_token {
            operation.failures.push(401);
        }
        let problem = self.schema::<ProblemAnswer>();
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
        if needs_token {
            written["security"] = json!([{ "admin": [] }]);
            let challenge = json!({ "WWW-Authenticate": { "required": true, "schema": { "type": "string" } } });
            written["responses"]["401"]["headers"] = challenge;
        }
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
}

/// A parameter that may be left out is never null.
fn without_null(schema: &mut Value) {
    if let Some(Value::Array(types)) = schema.get("type") {
        schema["type"] = types.iter().find(|kind| *kind != "null").cloned().unwrap_or_default();
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.retain(|value| !value.is_null());
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
