//! Values one after the other as bytes, which cross over to JavaScript as one Latin-1 string: `lib/record.js` reads them.

use std::fmt;

use napi::bindgen_prelude::ToNapiValue;
use napi::sys;
use tollkeeper::Span;

use crate::call::latin1_string;

/// A record that is being written.
pub struct Record(Vec<u8>);

/// The bytes of a number: times are below 2^53 microseconds.
const NUMBER: usize = 7;

impl Record {
    pub(crate) fn new() -> Record {
        Record(Vec::with_capacity(384))
    }

    pub(crate) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(crate) fn flag(&mut self, flag: bool) {
        self.0.push(u8::from(flag));
    }

    /// A whole number below 2^53.
    pub(crate) fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes()[..NUMBER]);
    }

    /// Microseconds; the largest number if it never ends.
    pub(crate) fn wait(&mut self, wait: Option<Span>) {
        self.number(wait.map_or(u64::MAX, Span::as_micros));
    }

    /// A text that is written to the record.
    pub(crate) fn text_by(&mut self, write: impl FnOnce(&mut Record) -> fmt::Result) {
        let start = self.0.len();
        self.number(0);
        // Writing to memory cannot fail.
        let _ = write(self);
        let length = (self.0.len() - start - NUMBER) as u64;
        self.0[start..start + NUMBER].copy_from_slice(&length.to_le_bytes()[..NUMBER]);
    }

    /// A text in UTF-8, after its length.
    pub(crate) fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }
}

impl fmt::Write for Record {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

impl ToNapiValue for Record {
    unsafe fn to_napi_value(env: sys::napi_env, record: Record) -> napi::Result<sys::napi_value> {
        latin1_string(env, &record.0)
    }
}
