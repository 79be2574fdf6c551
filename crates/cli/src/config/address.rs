//! Addresses to listen on as written: a port alone is a number to YAML, and gets an error that says what to write.

use std::fmt;

use serde::de::{Deserializer, Error, Visitor};

pub(super) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    deserializer.deserialize_any(Address).and_then(|read| read.ok_or_else(|| D::Error::custom("is empty; remove it")))
}

pub(super) fn read_maybe<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    deserializer.deserialize_any(Address)
}

struct Address;

impl Visitor<'_> for Address {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an address such as 127.0.0.1:8080")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Option<String>, E> {
        Ok(Some(text.to_string()))
    }

    fn visit_unit<E: Error>(self) -> Result<Option<String>, E> {
        Ok(None)
    }

    fn visit_u64<E: Error>(self, port: u64) -> Result<Option<String>, E> {
        let problem =
            format!("{port} is a port without a host; write 127.0.0.1:{port}, or \":{port}\" for all addresses");
        Err(E::custom(problem))
    }
}
