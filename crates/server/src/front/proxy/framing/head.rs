//! The head of a request, line by line.

use crate::front::plain::lines::{content_length, field, request_line};

/// What the lines so far say about the body.
#[derive(Debug, Default)]
pub(super) struct Head {
    begun: bool,
    is_http_1_0: bool,
    content_length: Option<u64>,
    chunked: bool,
}

/// The length of the body, once the head is complete.
#[derive(Debug, PartialEq)]
pub(super) enum Length {
    NotYet,
    None,
    Known(u64),
    Chunked,
}

impl Head {
    #[cfg(any(test, fuzzing))]
    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Parses a line without its ending; `None` refuses it.
    pub(super) fn read_line(&mut self, line: &[u8]) -> Option<Length> {
        match (self.begun, line.is_empty()) {
            // Empty lines before a request are ignored.
            (false, true) => {}
            (false, false) => {
                self.is_http_1_0 = request_line(line)?.is_http_1_0;
                self.begun = true;
            }
            (true, false) => self.read_field(line)?,
            (true, true) => {
                return match (self.chunked, self.content_length) {
                    (true, Some(_)) => None,
                    (true, None) => Some(Length::Chunked),
                    (false, None | Some(0)) => Some(Length::None),
                    (false, Some(length)) => Some(Length::Known(length)),
                };
            }
        }
        Some(Length::NotYet)
    }

    fn read_field(&mut self, line: &[u8]) -> Option<()> {
        let (name, value) = field(line)?;
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = content_length(value)?;
            if self.content_length.replace(length).is_some_and(|other| other != length) {
                return None;
            }
        }
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            // Parsers disagree about other codings, and about the same one twice.
            let plain = value.eq_ignore_ascii_case(b"chunked") && !self.chunked && !self.is_http_1_0;
            self.chunked = plain.then_some(true)?;
        }
        Some(())
    }
}
