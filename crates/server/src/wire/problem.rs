//! Problem documents for the API description. [`tollkeeper::http::Problem`] writes them; a test compares the members.

use schemars::JsonSchema;

/// What went wrong.
#[derive(Debug, JsonSchema)]
#[schemars(rename = "Problem")]
#[allow(dead_code, reason = "only described here")]
pub(crate) struct ProblemAnswer {
    /// `about:blank`: the status says which kind of problem it is.
    #[schemars(rename = "type")]
    kind: String,
    /// The name of the status.
    title: String,
    /// The status code, as in the response.
    status: u16,
    /// What failed, with what value, and what to do.
    detail: String,
    /// The field that is wrong, such as `checks[3].cost`.
    #[schemars(default, with = "String", skip_serializing_if = "Option::is_none")]
    field: Option<String>,
}

/// A denied request, as a problem document.
#[derive(Debug, JsonSchema)]
#[schemars(rename = "Denial")]
#[allow(dead_code, reason = "only described here")]
pub(crate) struct DenialAnswer {
    /// What kind of problem: quota exceeded, or temporarily reduced capacity.
    #[schemars(rename = "type")]
    kind: String,
    /// The title of that kind.
    title: String,
    /// The status code, as in the response.
    status: u16,
    /// Which rule, and when to retry.
    detail: String,
    /// The enforced rules that deny, in the order of the rules file.
    #[schemars(rename = "violated-policies")]
    violated_policies: Vec<String>,
    /// Milliseconds until the same request passes, rounded up; null when it never can.
    retry_after_ms: Option<u64>,
}
