//! A verdict, with its headers and its response.

use std::sync::Arc;

use tollkeeper::http::{Answer, AnswerStyle};
use tollkeeper::{Row, Timestamp, Verdict};

/// A verdict, the store's time at which it was made, and the style of its response.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The verdict.
    pub verdict: Arc<Verdict>,
    /// The store's time.
    pub now: Timestamp,
    /// How answers are written.
    pub style: AnswerStyle,
}

impl Checked {
    /// Limit headers, and `retry-after` if waiting helps, in lower case.
    pub fn headers(&self) -> Vec<(String, String)> {
        let headers = self.style.response_headers(&self.verdict, self.now);
        let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
    }

    /// The response to a denied HTTP request.
    pub fn deny(&self) -> Answer {
        self.style.deny(&self.verdict, self.now)
    }

    /// Combines the verdicts of several layers on one request: the headers of all, and the response of the one that
    /// denies.
    pub fn and(&self, other: &Checked) -> Checked {
        let rows: Vec<Row> = self.verdict.rows().iter().chain(other.verdict.rows()).cloned().collect();
        Checked { verdict: Arc::new(Verdict::new(rows)), now: self.now.max(other.now), style: other.style }
    }
}
