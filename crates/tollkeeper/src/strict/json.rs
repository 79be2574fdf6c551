//! JSON bodies, and parsed JSON values.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::invalid::Invalid;
use super::object::Object;

/// Reads the JSON object of a body. The example is shown if something else was sent.
pub fn json<'b, T: Deserialize<'b>>(text: &'b [u8], example: &str) -> Result<T, Invalid> {
    let hint = format_args!("send for example {example}");
    if text.trim_ascii().is_empty() {
        return Err(Invalid::whole(format!("there is nothing here; {hint}")));
    }
    let error = match serde_json::from_slice::<Object<T>>(text) {
        Ok(Object(value)) => return Ok(value),
        Err(error) => error,
    };
    if !error.is_data() {
        return Err(Invalid::whole(format!("this is not JSON: {error}; {hint}")));
    }
    // Tracking the place costs time, so only invalid input is read again to find it.
    let mut again = serde_json::Deserializer::from_slice(text);
    Err(match serde_path_to_error::deserialize::<_, Object<T>>(&mut again) {
        Err(found) => Invalid::explained(found.path(), &message(found.inner()), &hint.to_string()),
        Ok(_) => Invalid::whole(message(&error)),
    })
}

/// Reads a parsed JSON value.
pub fn value<T: DeserializeOwned>(value: Value, hint: &str) -> Result<T, Invalid> {
    serde_path_to_error::deserialize(value)
        .map_err(|error| Invalid::explained(error.path(), &message(error.inner()), hint))
}

/// What serde_json says, without the line and column that it appends: places are given by name.
fn message(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let end = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&end).map(str::to_string).unwrap_or(text)
}
