"""What the checks of pages see. Run with `python3 -m unittest discover tests/docs`."""

import unittest

import console
import markdown
from markdown import Page


def page(text):
    return Page(markdown.DOCS / "page.md", text)


class Markdown(unittest.TestCase):
    def test_links_span_lines_and_contain_code_and_pictures(self):
        found = page("See [the\n`code`](a.md#x), [![picture](b.svg)](c.md).\n\n```\n[not](d.md)\n```\n`[nor](e.md)`\n").links
        self.assertEqual([target for _, target, _, _ in found], ["a.md#x", "c.md", "b.svg"])

    def test_anchors_are_those_of_headings_and_numbered_where_they_repeat(self):
        found = page("# One `two`\n## What's new?\n## What's new?\n```\n# not a heading\n```\n").anchors
        self.assertEqual(found, ["one-two", "whats-new", "whats-new-1"])

    def test_a_block_has_the_comment_before_it(self):
        first, second = page("<!-- not run: root -->\n\n```console\n$ a\n```\n\ntext\n\n```console\n$ b\n```\n").blocks
        self.assertEqual((first.note, second.note), ("not run: root", ""))


class Console(unittest.TestCase):
    def test_commands_and_their_outputs(self):
        block = markdown.Block(1, "console", "$ a \\\n  b\none\ntwo\n$ cat <<END\nx\nEND\n$ c")
        self.assertEqual(console.commands(block), [(2, "a \\\n  b", "one\ntwo"), (6, "cat <<END\nx\nEND", None), (9, "c", None)])

    def test_dots_stand_for_anything_and_times_may_differ(self):
        self.assertTrue(console.agrees('a ... c\nat 2026-11-15T15:36:01.921Z', "a b c\nat 2027-01-01T00:00:00Z"))
        self.assertTrue(console.agrees('{"retry_after_ms":5777,"rules":[...]}', '{"retry_after_ms":12,"rules":[1,2]}'))

    def test_other_figures_may_differ_only_where_the_page_says_so(self):
        self.assertFalse(console.agrees("remaining 9", "remaining 8"))
        self.assertTrue(console.agrees("remaining 9", "remaining 8", figures_vary=True))
        self.assertFalse(console.agrees("allowed 9", "denied 9", figures_vary=True))


if __name__ == "__main__":
    unittest.main()
