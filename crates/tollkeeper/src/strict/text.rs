//! Input texts, as repeated in messages.

use std::borrow::Cow;

/// An input text, shortened for a message.
pub fn shortened(text: &str) -> Cow<'_, str> {
    const MAX: usize = 60;
    match text.char_indices().nth(MAX) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// An input text, quoted for a message.
pub fn quoted(text: &str) -> String {
    format!("{:?}", shortened(text))
}
