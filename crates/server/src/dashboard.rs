//! The dashboard: a single self-contained page.
//!
//! Style, script and icon are in the page itself, so there is nothing else to fetch and nothing else to guard. It
//! contains no data: its script calls the API as any client does. The content security policy admits only the
//! compiled-in script, by its hash; nothing may be loaded from elsewhere, and text never becomes markup
//! (`require-trusted-types-for`).

mod rule_fields;

use std::fmt::Write as _;
use std::sync::LazyLock;

use axum::body::{Body, Bytes};
use axum::response::Response;
use data_encoding::BASE64;
use http::HeaderValue;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use ring::digest::{SHA256, digest};

use rule_fields::rule_fields;

const FRAME: &str = include_str!("dashboard/index.html");
const STYLE: &str = include_str!("dashboard/style.css");
const ICON: &str = include_str!("dashboard/icon.svg");
/// One script, in the order in which its parts depend on each other.
const PARTS: &str = concat!(
    include_str!("dashboard/dom.js"),
    include_str!("dashboard/format.js"),
    include_str!("dashboard/api.js"),
    include_str!("dashboard/chart.js"),
    include_str!("dashboard/overview.js"),
    include_str!("dashboard/rule_card.js"),
    include_str!("dashboard/violations.js"),
    include_str!("dashboard/exceptions.js"),
    include_str!("dashboard/inspector.js"),
    include_str!("dashboard/rules.js"),
    include_str!("dashboard/when_form.js"),
    include_str!("dashboard/rule_form.js"),
    include_str!("dashboard/history.js"),
    include_str!("dashboard/main.js"),
);

struct Page {
    body: Bytes,
    policy: HeaderValue,
}

/// The script, preceded by the fields of a rule, from which it builds a form.
static SCRIPT: LazyLock<String> = LazyLock::new(|| {
    // A `<` could end the script.
    let fields = rule_fields().to_string().replace('<', "\\u003c");
    format!("const RULE_FIELDS = {fields};\n{PARTS}")
});

static PAGE: LazyLock<Page> = LazyLock::new(|| {
    let body = FRAME.replace("{icon}", &data_url(ICON)).replace("{style}", STYLE).replace("{script}", &SCRIPT);
    let policy = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; img-src data:; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
        hash(&SCRIPT),
        hash(STYLE),
    );
    Page { body: body.into(), policy: HeaderValue::try_from(policy).expect("a policy is ASCII") }
});

/// The page.
pub(crate) fn page() -> Response {
    put_into(Response::default())
}

/// A response with the page as its body; its status and other headers stay.
pub(crate) fn put_into(answer: Response) -> Response {
    let (mut parts, _) = answer.into_parts();
    for (name, value) in [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        // A client without access gets a page or a problem.
        (VARY, "accept"),
    ] {
        parts.headers.insert(name, HeaderValue::from_static(value));
    }
    parts.headers.insert(CONTENT_SECURITY_POLICY, PAGE.policy.clone());
    Response::from_parts(parts, Body::from(PAGE.body.clone()))
}

fn hash(text: &str) -> String {
    format!("sha256-{}", BASE64.encode(digest(&SHA256, text.as_bytes()).as_ref()))
}

fn data_url(svg: &str) -> String {
    let mut url = "data:image/svg+xml,".to_string();
    for byte in svg.bytes() {
        // Writing to a string cannot fail.
        let _ = if byte.is_ascii_alphanumeric() { write!(url, "{}", byte as char) } else { write!(url, "%{byte:02X}") };
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_whole_and_fetches_nothing() {
        let page = std::str::from_utf8(&PAGE.body).expect("a page is text");
        for gap in ["{icon}", "{style}", "{script}"] {
            assert!(!page.contains(gap), "{gap}");
        }
        for outside in ["src=\"", "@import", "url(", "innerHTML", "localStorage.setItem(\"token"] {
            assert!(!page.contains(outside), "{outside}");
        }
        // The hash covers the script up to where the parser sees its end.
        assert_eq!(page.matches("</script").count(), 1);
        assert_eq!(page.matches("</style").count(), 1);
        assert!(page.contains(&format!("<script type=\"module\">{}</script>", *SCRIPT)));
        assert!(page.contains(&format!("<style>{STYLE}</style>")));
    }
}
