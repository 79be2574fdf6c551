//! A verdict, with its headers and its response.

use std::sync::Arc;

use tollkeeper::http::{Answer, AnswerStyle, PlainAnswer};
use tollkeeper::{HeaderStyle, LimitHeader, Row, Timestamp, Verdict, each_limit_header, retry_after_seconds};

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
        let mut fields: Vec<_> = self.limits().map(|header| (header.name.to_string(), header.to_string())).collect();
        fields.extend(retry_after_seconds(&self.verdict).map(|wait| ("retry-after".to_string(), wait.to_string())));
        fields
    }

    /// Limit headers alone, in lower case. Not by way of a header map, which costs more than the decision.
    pub fn limits(&self) -> impl Iterator<Item = LimitHeader<'_>> {
        each_limit_header(self.style.headers, &self.verdict, self.now)
    }

    /// The response to a denied HTTP request.
    pub fn deny(&self) -> Answer {
        self.style.deny(&self.verdict, self.now)
    }

    /// The same as plain texts.
    pub fn deny_plainly(&self) -> PlainAnswer {
        self.style.deny_plainly(&self.verdict, self.now)
    }

    /// Combines the verdicts of several layers on one request: the headers of all, and the response of the one that
    /// denies. The headers have the style of the other one, which is the more specific layer, unless that is the default.
    pub fn and(&self, other: &Checked) -> Checked {
        let rows: Vec<Row> = self.verdict.rows().iter().chain(other.verdict.rows()).cloned().collect();
        let is_default = other.style.headers == HeaderStyle::default();
        let headers = if is_default { self.style.headers } else { other.style.headers };
        let style = AnswerStyle { headers, ..other.style.clone() };
        Checked { verdict: Arc::new(Verdict::new(rows)), now: self.now.max(other.now), style }
    }
}
