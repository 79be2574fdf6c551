//! The report as one page: everything in it, nothing from elsewhere, for light and dark, phone and print.
//!
//! The page holds the report as JSON and draws it with a script of its own. Clients choose keys and paths, so the script sets text, never markup.

use std::io::{self, Write};

use crate::report::Report;

const HEAD: &str = include_str!("html/head.html");
const STYLE: &str = include_str!("html/style.css");
const SCRIPT: &str = include_str!("html/page.js");

/// Writes the page.
pub fn write_page(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let json = serde_json::to_string(report).map_err(io::Error::other)?;
    // A path such as `</script>` must not end the element.
    let json = json.replace('<', "\\u003c");
    let head = HEAD.replace("/*style*/", STYLE);
    write!(
        out,
        "{head}<script type=\"application/json\" id=\"report\">{json}</script>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n"
    )
}
