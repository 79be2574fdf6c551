//! Texts from outside, as messages repeat them.

use std::borrow::Cow;

/// A text from outside, short enough to be repeated.
pub(crate) fn shortened(text: &str) -> Cow<'_, str> {
    const MAX: usize = 60;
    match text.char_indices().nth(MAX) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// A text from outside as it is shown in a message.
pub(crate) fn quoted(text: &str) -> String {
    format!("{:?}", shortened(text))
}
