import unittest

from check import allowed_licences, is_allowed


class Licences(unittest.TestCase):
    def test_expressions(self) -> None:
        allowed = {"MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"}
        for expression in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0/MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
        ]:
            self.assertTrue(is_allowed(expression, allowed), expression)
        for expression in ["none", "GPL-3.0", "MIT AND GPL-3.0", "(MIT OR Apache-2.0) AND GPL-3.0", "GPL-3.0 WITH x"]:
            self.assertFalse(is_allowed(expression, allowed), expression)

    def test_the_list_is_read(self) -> None:
        self.assertEqual(allowed_licences('[licenses]\nallow = [\n    "MIT",\n    "ISC",\n]\n'), {"MIT", "ISC"})


if __name__ == "__main__":
    unittest.main()
