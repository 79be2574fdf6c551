//! A verdict, with the headers and the answer that belong to it.

use std::sync::Arc;

use tollkeeper::http::{Answer, AnswerStyle};
use tollkeeper::{Row, Timestamp, Verdict};

/// A verdict as it was at a time of the store, and how it is to be written.
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
    /// Limit headers, and `retry-after` where waiting helps, in lower case.
    pub fn headers(&self) -> Vec<(String, String)> {
        let headers = self.style.response_headers(&self.verdict, self.now);
        let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
    }

    /// What a denied HTTP request gets.
    pub fn deny(&self) -> Answer {
        self.style.deny(&self.verdict, self.now)
    }

    /// What several layers said to one request, as one: the headers of all, and the answer of the one that denies.
    pub fn and(&self, other: &Checked) -> Checked {
        let rows: Vec<Row> = self.verdict.rows().iter().chain(other.verdict.rows()).cloned().collect();
        Checked { verdict: Arc::new(Verdict::new(rows)), now: self.now.max(other.now), style: other.style }
    }
}
