import unittest

from formula import formula

SUM = "0" * 63
FILE = "tollkeeper-0.2.0-{}.tar.gz"


class Formula(unittest.TestCase):
    def test_each_system_gets_its_archive_and_linux_prefers_musl(self) -> None:
        targets = ["x86_64-unknown-linux-gnu", "x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl", "aarch64-apple-darwin"]
        sums = "".join(f"{SUM}{number}  {FILE.format(target)}\n" for number, target in enumerate(targets))
        made = formula("https://example.com/tollkeeper/", sums + f"{SUM}9  tollkeeper_0.2.0_amd64.deb\n")
        self.assertIn('version "0.2.0"', made)
        self.assertIn(f'url "https://example.com/tollkeeper/releases/download/v0.2.0/{FILE.format(targets[1])}"\n      sha256 "{SUM}1"', made)
        self.assertNotIn("linux-gnu", made)
        self.assertNotIn("x86_64-apple", made)
        self.assertEqual(made.count("sha256"), 3)
        # Every block is closed.
        opened = sum(line.rstrip().endswith(" do") or line.startswith(("class ", "  def ")) for line in made.splitlines())
        self.assertEqual(opened, made.split().count("end"))

    def test_archives_of_two_versions_are_refused(self) -> None:
        sums = f"{SUM}0  tollkeeper-0.2.0-x86_64-unknown-linux-musl.tar.gz\n{SUM}1  tollkeeper-0.1.0-x86_64-unknown-linux-musl.tar.gz\n"
        for text in [sums, ""]:
            with self.assertRaises(SystemExit):
                formula("https://example.com", text)


if __name__ == "__main__":
    unittest.main()
