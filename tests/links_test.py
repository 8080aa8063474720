"""Every relative link and anchor of README.md, docs/ and the documents beside them leads somewhere, files name documents that
are there, and docs/README.md lists every document."""

import pathlib
import re
import subprocess
import unittest

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_DOCUMENTS = [*sorted(_ROOT.glob("*.md")), *sorted((_ROOT / "docs").rglob("*.md"))]
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.M | re.S)
_LINK = re.compile(r"\]\(([^()\s]+)\)")


def anchors(text: str) -> set[str]:
    """Those of the headings of a document, as GitHub makes them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found.add(anchor if anchor not in found else f"{anchor}-1")
    return found


def broken(file: pathlib.Path, text: str) -> list[str]:
    """The links of a document that lead nowhere."""
    found = []
    for link in _LINK.findall(_CODE.sub("", text)):
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", path):
            continue
        target = (file.parent / path).resolve() if path else file
        if not target.exists() or not target.is_relative_to(_ROOT):
            found.append(link)
        elif anchor and anchor not in anchors(target.read_text()):
            found.append(link)
    return found


class Links(unittest.TestCase):
    def test_every_link_leads_somewhere(self):
        for file in _DOCUMENTS:
            with self.subTest(file.relative_to(_ROOT)):
                self.assertEqual(broken(file, file.read_text()), [])

    def test_every_document_that_a_file_names_is_there(self):
        command = ["git", "grep", "--only-matching", "--extended-regexp", r"\bdocs/[A-Za-z0-9_/-]+\.md\b"]
        said = subprocess.run(command, cwd=_ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
        self.assertEqual([line for line in said if not (_ROOT / line.partition(":")[2]).exists()], [])
        self.assertTrue(said)

    def test_links_that_lead_nowhere_are_found(self):
        here = _ROOT / "docs/README.md"
        text = "# A `b`, c\n[a](no.md) [b](guide/layers.md#no) [c](#no) [d](../../x.md) `[e](no.md)`\n[f](guide/layers.md#calls) [g](https://x.org/no)"
        self.assertEqual(broken(here, text), ["no.md", "guide/layers.md#no", "#no", "../../x.md"])
        self.assertEqual(anchors("# A `b`, c\n## Same\n## Same\n```\n# no\n```\n"), {"a-b-c", "same", "same-1"})

    def test_the_index_lists_every_document_once(self):
        index = _ROOT / "docs/README.md"
        listed = [(index.parent / link).resolve() for link in _LINK.findall(index.read_text())]
        self.assertEqual(sorted(listed), sorted(set(listed)))
        self.assertEqual({file for file in _DOCUMENTS if file not in (index, _ROOT / "README.md")}, set(listed))


if __name__ == "__main__":
    unittest.main()
