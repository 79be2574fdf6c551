//! Writes operations and the schemas that they refer to.

use std::collections::BTreeMap;

use schemars::generate::{Contract, SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};
use tollkeeper::http::Problem;

use crate::route::{Access, Route};
use crate::wire::ProblemAnswer;

/// What the description needs to know about a service.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// The status of a denial.
    pub(crate) deny_status: u16,
    /// Whether decisions require a token.
    pub(crate) guarded_decisions: bool,
    /// Whether `/metrics` requires one.
    pub(crate) guarded_metrics: bool,
    /// The name of an existing rule, for examples.
    pub(crate) example_rule: String,
}

pub(super) const JSON: &str = "application/json";
pub(super) const PROBLEM: &str = Problem::CONTENT_TYPE;

pub(super) struct Writer<'f> {
    /// Of responses.
    schemas: SchemaGenerator,
    /// Of requests: fields with a default are optional.
    pub(super) requests: SchemaGenerator,
    pub(super) facts: &'f Facts,
}

impl<'f> Writer<'f> {
    pub(super) fn new(facts: &'f Facts) -> Writer<'f> {
        Writer { schemas: schemas(Contract::Serialize), requests: schemas(Contract::Deserialize), facts }
    }

    /// All schemas that were referenced.
    pub(super) fn definitions(&mut self) -> Map<String, Value> {
        let mut definitions = self.requests.take_definitions(true);
        for (name, schema) in self.schemas.take_definitions(true) {
            let sent = definitions.insert(name, schema.clone());
            debug_assert!(
                sent.is_none_or(|sent| sent == schema),
                "what is sent and answered under one name is one type"
            );
        }
        definitions
    }

    /// A reference to a type's schema.
    pub(super) fn schema<T: JsonSchema>(&mut self) -> Value {
        let schema: Schema = self.schemas.subschema_for::<T>();
        schema.into()
    }

    /// The parameters of a query, as its type reads them.
    pub(super) fn query<T: JsonSchema>(&mut self) -> Vec<Value> {
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

    /// A reference to the schema of a request body.
    pub(super) fn body<T: JsonSchema>(&mut self) -> Value {
        self.requests.subschema_for::<T>().into()
    }

    pub(super) fn write(&mut self, route: Route, method: &str, mut operation: Operation) -> Value {
        let needs_token = match route.access() {
            Access::Open | Access::Page => false,
            Access::Decide => self.facts.guarded_decisions,
            Access::Measure => self.facts.guarded_metrics,
            Access::Admin => true,
        };
        if needs_token {
            operation.failures.extend([401, 403, 429]);
        }
        // What changes something is not for pages of other origins.
        if !matches!(method, "get" | "head" | "options" | "trace") && route != Route::Authorize {
            operation.failures.push(403);
        }
        let problem = self.schema::<ProblemAnswer>();
        let mut responses = operation.responses;
        for status in operation.failures {
            // A denial may have the status of a failure, and says more.
            responses.entry(status).or_insert_with(|| response(failure(status), PROBLEM, &problem));
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
            written["security"] = json!([{ "token": [] }]);
            let challenge = json!({ "WWW-Authenticate": { "required": true, "schema": { "type": "string" } } });
            written["responses"]["401"]["headers"] = challenge;
        }
        written
    }
}

pub(super) struct Operation {
    id: String,
    summary: &'static str,
    parameters: Vec<Value>,
    body: Option<Value>,
    pub(super) responses: BTreeMap<u16, Value>,
    failures: Vec<u16>,
}

impl Operation {
    pub(super) fn new(id: &str, summary: &'static str) -> Operation {
        let (responses, failures) = (BTreeMap::new(), Vec::new());
        Operation { id: id.into(), summary, parameters: Vec::new(), body: None, responses, failures }
    }

    pub(super) fn parameters(mut self, parameters: Vec<Value>) -> Self {
        self.parameters = parameters;
        self
    }

    pub(super) fn body(mut self, schema: Value) -> Self {
        self.body = Some(schema);
        self
    }

    pub(super) fn answer(mut self, status: u16, what: &str, kind: &str, schema: Value) -> Self {
        self.responses.insert(status, response(what, kind, &schema));
        self
    }

    /// An answer without a body.
    pub(super) fn empty(mut self, status: u16, what: &str) -> Self {
        self.responses.insert(status, json!({ "description": what }));
        self
    }

    pub(super) fn fails(mut self, statuses: &[u16]) -> Self {
        self.failures.extend(statuses);
        self
    }
}

/// An optional parameter is never null.
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
        401 => "The token is missing or wrong.",
        403 => "The token is not sufficient, or the request is cross-origin.",
        404 => "There is no such rule, version or reservation.",
        409 => "The request conflicts with the current state; `detail` says why.",
        412 => "The rules are not at the version that If-Match names.",
        408 => "The body took too long to arrive.",
        429 => "Too many wrong tokens come from this address.",
        413 => "The body is larger than 64 KiB.",
        _ => "The service is overloaded, or the store or the database of the rules cannot answer.",
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
