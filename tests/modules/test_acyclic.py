"""What the check of modules sees and what it does not. Run with `python3 -m unittest discover tests/modules`."""

import tempfile
import unittest
from pathlib import Path

from graph import Crate
from source import read_crate


def cycles(files):
    """The cycles of a crate with these files, as lists of `user -> used`."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            file = Path(folder, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        found = Crate(read_crate(Path(folder, "lib.rs"))).cycles()
        return [[f"{'::'.join(user)} -> {'::'.join(used)}" for user, used, _ in cycle] for cycle in found]


class Acyclic(unittest.TestCase):
    def test_siblings_that_use_each_other(self):
        for there in ["use crate::b::B;", "use super::b::{self, B};", "use crate::{b::{B as C}, c};", "fn f() { crate::b::g() }"]:
            for back in ["use crate::a::A;", "fn f(a: &super::a::A) {}", "use crate::a::*;"]:
                found = cycles({"lib.rs": "mod a; mod b; mod c;", "a.rs": there, "b.rs": back, "c.rs": ""})
                self.assertEqual(found, [["crate::a -> crate::b", "crate::b -> crate::a"]], (there, back))

    def test_captured_lifetimes_are_not_imports(self):
        found = cycles({"lib.rs": "mod a; mod b;", "a.rs": "fn f() -> impl Sized + use<> { crate::b::g() }", "b.rs": "use crate::a::f;"})
        self.assertEqual(found, [["crate::a -> crate::b", "crate::b -> crate::a"]])

    def test_a_child_that_uses_what_its_parent_defines(self):
        parent = "mod a { mod child; use child::C; pub struct A; }"
        found = cycles({"lib.rs": parent, "a/child.rs": "pub struct C(super::A);"})
        self.assertEqual(found, [["crate::a -> crate::a::child", "crate::a::child -> crate::a"]])

    def test_a_child_that_its_parent_never_names(self):
        """It adds methods to the parent's type: the arrow is one way."""
        self.assertEqual(cycles({"lib.rs": "mod a;", "a.rs": "mod c; struct A;", "a/c.rs": "impl super::A { fn f() {} }"}), [])

    def test_deeper_modules_stand_for_those_that_they_are_in(self):
        files = {"lib.rs": "mod a; mod b;", "a.rs": "mod x; mod y;", "b.rs": "mod z;"}
        found = cycles(files | {"a/x.rs": "use crate::b::Z;", "a/y.rs": "", "b/z.rs": "use crate::a::y::Y;"})
        self.assertEqual(found, [["crate::a -> crate::b", "crate::b -> crate::a"]])

    def test_a_name_that_is_passed_on_belongs_to_where_it_is_defined(self):
        """`super::X` is X's module, though it is read from the parent."""
        files = {"lib.rs": "mod a;", "a.rs": "mod x; mod y; pub use x::X; pub use y::Y;"}
        self.assertEqual(cycles(files | {"a/x.rs": "pub struct X;", "a/y.rs": "use super::X; use crate::a::X as Z;"}), [])
        self.assertEqual(len(cycles(files | {"a/x.rs": "use super::Y;", "a/y.rs": "use super::X;"})), 1)

    def test_a_module_that_was_imported(self):
        files = {"lib.rs": "mod a; mod b;", "a.rs": "use crate::b; fn f() { b::g() }", "b.rs": "use crate::a as c; fn g() { c::f() }"}
        self.assertEqual(len(cycles(files)), 1)

    def test_what_is_built_for_tests_only(self):
        tests = """
            #[cfg(test)] use crate::a::A;
            #[cfg(test)] mod tests { use crate::a::A; }
            #[cfg(test)] mod more;
            #[cfg(test)] impl B { fn example<T, U>() -> crate::a::A { crate::a::A } }
            struct S { #[cfg(test)] a: crate::a::A, b: u8 }
        """
        self.assertEqual(cycles({"lib.rs": "mod a; mod b;", "a.rs": "use crate::b::B;", "b.rs": tests}), [])

    def test_who_may_see_an_item_is_no_use(self):
        files = {"lib.rs": "mod a;", "a.rs": "mod b; use b::B; struct A;", "a/b.rs": "pub(in crate::a) struct B; pub(super) use std::io;"}
        self.assertEqual(cycles(files), [])

    def test_comments_and_literals_are_no_paths(self):
        text = '''
            /// [`A`](crate::a::A) // crate::a::A /* nested /* crate::a::A */ */
            /* crate::a::A /* nested */ crate::a::A */
            const TEXT: &str = "crate::a::A \\" crate::a::A"; const RAW: &str = r#"crate::a::A " crate::a::A"#;
            const QUOTE: char = '"'; fn f<'a>(b: &'a u8) {} const END: char = '\\'';
        '''
        self.assertEqual(cycles({"lib.rs": "mod a; mod b;", "a.rs": "use crate::b::TEXT;", "b.rs": text}), [])

    def test_other_crates_may_have_the_names_of_ours(self):
        files = {"lib.rs": "mod http; mod b;", "http.rs": "use crate::b::B;", "b.rs": "use http::Uri; use tokio::http::http; fn f() { http::g() }"}
        self.assertEqual(cycles(files), [])


if __name__ == "__main__":
    unittest.main()
