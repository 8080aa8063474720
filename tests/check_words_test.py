"""What check_words.py says of the first words of sentences."""

import unittest

import check_words

_DANGLING = ("Those of", "That of", "The same of", "The same for", "What is")


def found(file: str, text: str) -> list[str]:
    """The lines with a finding, and the words that were found there."""
    return [": ".join(part.strip(" '") for part in one.split(":")[1:3]) for one in check_words.findings(file, text)]


class DanglingReferences(unittest.TestCase):
    def test_a_comment_of_cpp_that_begins_with_one_is_refused(self):
        for words in _DANGLING:
            for begin in ("/// ", "// ", "int a;  ///< ", "/* ", "/// Made once. ", "/// Two kinds: ", "/// - "):
                with self.subTest(begin + words):
                    self.assertEqual(found("a.h", f"int b;\n{begin}{words} a contract. */\n"), [f"2: {words}"])

    def test_a_docstring_or_comment_of_python_that_begins_with_one_is_refused(self):
        for words in _DANGLING:
            with self.subTest(words):
                text = f'def f():\n    """{words} a layout."""\n    # {words} a layout.\n'
                self.assertEqual(found("a.py", text), [f"2: {words}", f"3: {words}"])

    def test_a_sentence_of_a_document_a_build_file_or_a_message_that_begins_with_one_is_refused(self):
        for words in _DANGLING:
            with self.subTest(words):
                self.assertEqual(found("a.md", f"- {words} a layout.\n"), [f"1: {words}"])
                self.assertEqual(found("a.md", f"It is made. {words} a layout.\n"), [f"1: {words}"])
                self.assertEqual(found("meson.build", f"# {words} a layout.\n"), [f"1: {words}"])
                self.assertEqual(found("a.cpp", f'fail("It failed. {words} a layout");\n'), [f"1: {words}"])

    def test_a_heading_of_a_document_may_ask_what_something_is(self):
        self.assertEqual(found("a.md", "# What is it?\n\n## What is missing\n"), [])
        self.assertEqual(found("a.md", "## Layouts. What is missing\n"), ["1: What is"])
        self.assertEqual(found("a.md", "## Those of a layout\n"), ["1: Those of"])

    def test_the_same_words_within_a_sentence_are_no_finding(self):
        text = "/// The gains, those of a layer, and what is kept; it has that of x, the same of y and the same for z.\n"
        self.assertEqual(found("a.h", text), [])

    def test_a_finding_says_what_to_write(self):
        (finding,) = check_words.findings("a.h", "/// Those of a contract.\n")
        self.assertEqual(finding, "a.h:1: 'Those of': write the noun that it stands for, such as 'The end matrices of'")

    def test_a_heading_is_looked_at_for_other_words_too(self):
        self.assertEqual(found("a.md", "## Of layouts\n"), ["1: Of"])


if __name__ == "__main__":
    unittest.main()
