//! The OpenTelemetry resource that describes this instance, and the headers that a collector may require.

use std::borrow::Cow;

use anyhow::Context as _;
use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;

use super::messages::{Resource, attribute};

/// This instance, with the attributes of `OTEL_RESOURCE_ATTRIBUTES`.
pub(super) fn resource(service_name: &str, instance: &str, more: Option<&str>) -> Resource {
    let mut attributes = vec![
        attribute("service.name", service_name),
        attribute("service.version", env!("CARGO_PKG_VERSION")),
        attribute("service.instance.id", instance),
    ];
    // Anything that is not a pair is ignored, as the standard says.
    let more = more.into_iter().flat_map(|text| text.split(',')).filter_map(|pair| pair.split_once('='));
    for (name, value) in more.map(|(name, value)| (name.trim(), decoded(value.trim()))) {
        if !name.is_empty() && !attributes.iter().any(|known| known.key == name) {
            attributes.push(attribute(name, &*value));
        }
    }
    Resource { attributes }
}

/// `name=value,name=value`, each sent with every call.
pub(super) fn headers(text: Option<&str>) -> anyhow::Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for pair in text.into_iter().flat_map(|text| text.split(',')).filter(|pair| !pair.trim().is_empty()) {
        // The values are secrets, so errors show only names.
        let (name, value) = pair.split_once('=').context("OTEL_EXPORTER_OTLP_HEADERS: a header has no value")?;
        let bad = || format!("OTEL_EXPORTER_OTLP_HEADERS: {:?} cannot be sent as a header", name.trim());
        let mut value = HeaderValue::from_str(&decoded(value.trim())).with_context(bad)?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_bytes(name.trim().as_bytes()).with_context(bad)?, value);
    }
    Ok(headers)
}

/// Percent-decoded.
fn decoded(text: &str) -> Cow<'_, str> {
    percent_decode_str(text).decode_utf8_lossy()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_add_to_the_resource() {
        let made = resource("gate", "here:1", Some("deployment.environment=a%20b, service.name=other,odd,=x"));
        let names: Vec<&str> = made.attributes.iter().map(|attribute| &*attribute.key).collect();
        assert_eq!(names, ["service.name", "service.version", "service.instance.id", "deployment.environment"]);
        assert_eq!(made.attributes[0], attribute("service.name", "gate"));
        assert_eq!(made.attributes[3], attribute("deployment.environment", "a b"));
    }

    #[test]
    fn headers_are_read_and_bad_ones_named_without_their_values() {
        let made = headers(Some("api-key=s3cret, x-tenant=a%2Cb")).expect("headers");
        assert_eq!(made.get("x-tenant").and_then(|value| value.to_str().ok()), Some("a,b"));
        let error = headers(Some("bad name=s3cret")).expect_err("no name");
        assert!(format!("{error:#}").contains("bad name") && !format!("{error:#}").contains("s3cret"));
    }
}
