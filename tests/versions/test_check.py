import unittest

from check import differing, found_compilers, found_versions, loose_actions, one, outdated_notes


class Versions(unittest.TestCase):
    def test_what_is_not_as_the_first_is_named_with_its_place(self) -> None:
        found = [("Cargo.toml", "0.2.0"), ("package.json", "0.1.0"), ("Chart.yaml", "0.2.0")]
        self.assertEqual(differing(found), ["package.json says 0.1.0, and Cargo.toml says 0.2.0"])
        self.assertEqual(differing(found[:1]), [])

    def test_every_place_is_found(self) -> None:
        places = " ".join(place for place, _ in found_versions())
        for place in ["tollkeeper-core", "bindings/Cargo.toml", "package.json, tollkeeper-linux-x64-gnu", "Cargo.lock, tollkeeper-server", "Chart.yaml", "kubernetes"]:
            self.assertIn(place, places)
        self.assertGreater(len(found_compilers()), 8)

    def test_actions_are_pinned_by_commit_or_full_version(self) -> None:
        pinned = f"uses: actions/checkout@{'0' * 40} # v6.0.0\nuses: pypa/publish@v1.13.0\n"
        self.assertEqual(loose_actions(pinned), [])
        self.assertEqual(loose_actions("- uses: a/b@v4\n- uses: c/d@main\n"), ["a/b@v4", "c/d@main"])

    def test_notes_for_the_time_before_a_release_go_when_it_is_published(self) -> None:
        pages = {"a.md": "Until the first release, compile it.", "b.md": "Install it."}
        self.assertEqual(outdated_notes("# Changelog\n\n## 0.2.0, not published yet\n\n## 0.1.0\n", pages), [])
        [problem] = outdated_notes("# Changelog\n\n## 0.2.0, 1 December 2026\n\n## 0.1.0\n", pages)
        self.assertIn("a.md says 'Until the first release'", problem)

    def test_a_place_without_a_version_is_an_error(self) -> None:
        with self.assertRaises(SystemExit):
            one(r"^version: (.+)$", "name: tollkeeper\n", "Chart.yaml")


if __name__ == "__main__":
    unittest.main()
