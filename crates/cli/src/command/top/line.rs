//! Lines of styled text that are safe to print: nothing in them moves the cursor or changes the text direction.

use crate::command::visible::visible;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// The style of a piece of text, where styles are supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Strong,
    Quiet,
    Good,
    Warn,
    Bad,
    Chosen,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line(pub(super) Vec<(Style, String)>);

impl Line {
    pub(super) fn of(style: Style, text: &str) -> Line {
        Line::default().and(style, text)
    }

    /// Appends text. Clients choose some of it, so characters that are not visible are replaced.
    pub(super) fn and(mut self, style: Style, text: &str) -> Line {
        match self.0.last_mut() {
            Some((last, before)) if *last == style => before.push_str(&visible(text)),
            _ => self.0.push((style, visible(text))),
        }
        self
    }

    /// Appends a cell of exactly this width, and a space.
    pub(super) fn cell(self, style: Style, text: &str, width: usize) -> Line {
        let text = clipped(&visible(text), width);
        let fill = " ".repeat(width - text.width() + 1);
        self.and(style, &(text + &fill))
    }

    /// The same, if there is room for it.
    pub(super) fn cell_if(self, fits: bool, style: Style, text: &str, width: usize) -> Line {
        if fits { self.cell(style, text, width) } else { self }
    }

    /// The same, right-aligned.
    pub(super) fn number(self, style: Style, text: &str, width: usize) -> Line {
        let text = clipped(&visible(text), width);
        let fill = " ".repeat(width - text.width());
        self.and(style, &format!("{fill}{text} "))
    }

    pub(super) fn plain(&self) -> String {
        self.0.iter().map(|(_, text)| text.as_str()).collect()
    }

    /// Cut to this width.
    pub(super) fn within(mut self, mut width: usize) -> Line {
        for (_, text) in &mut self.0 {
            *text = clipped(text, width);
            width -= text.width();
        }
        self
    }
}

fn clipped(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_string();
    }
    let (mut taken, mut used) = (String::new(), 0);
    for c in text.chars() {
        let more = c.width().unwrap_or(0);
        // One column is kept for the mark that something is missing.
        if used + more >= width {
            break;
        }
        used += more;
        taken.push(c);
    }
    if width > 0 { taken + "…" } else { taken }
}

/// A sentence, wrapped.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in visible(text).split(' ') {
        let last = lines.last_mut().expect("there is a first line");
        if !last.is_empty() && last.width() + 1 + word.width() > width {
            lines.push(word.to_string());
        } else {
            *last = if last.is_empty() { word.to_string() } else { format!("{last} {word}") };
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_client_chose_moves_a_cursor() {
        let line = Line::of(Style::Plain, "a\u{1b}[2J\u{202e}b\r\nc\u{200b}");
        assert_eq!(line.plain(), "a\u{fffd}[2J\u{fffd}b\u{fffd}\u{fffd}c\u{fffd}");
    }

    #[test]
    fn cells_have_their_width_whatever_is_in_them() {
        for text in ["", "a", "exactly8", "much too long", "日本語日本語", "é\u{301}tude"] {
            let line = Line::default().cell(Style::Plain, text, 8).number(Style::Plain, text, 8);
            assert_eq!(line.plain().width(), 18, "{text}");
        }
        assert_eq!(Line::of(Style::Plain, "abcdef").and(Style::Bad, "ghi").within(4).plain(), "abc…");
        assert_eq!(Line::of(Style::Plain, "abc").within(0).plain(), "");
    }

    #[test]
    fn sentences_are_wrapped_at_words() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("unbreakable", 4), ["unbreakable"]);
        assert_eq!(wrapped("", 4), [""]);
    }
}
