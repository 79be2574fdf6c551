import unittest

from check import differing, found_compilers, found_versions, one


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

    def test_a_place_without_a_version_is_an_error(self) -> None:
        with self.assertRaises(SystemExit):
            one(r"^version: (.+)$", "name: tollkeeper\n", "Chart.yaml")


if __name__ == "__main__":
    unittest.main()
