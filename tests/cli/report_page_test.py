"""The page of `sparsekiln report --html`, opened in a browser without a window (Debian's chromium)."""

import html
import html.parser
import pathlib
import re
import shutil
import subprocess
import unittest

import tuning_records as made
from command import CommandTest

_BROWSER = shutil.which("chromium")
_HOSTILE = 'A "device" </script><script>document.title = "taken"</script><!-- <b>bold</b> & more'
# Shows a page as a phone does, in a frame that is 360 pixels wide (a window cannot be), and says what it was like.
_PHONE = """<!doctype html><meta charset="utf-8"><body>
<iframe width="360" height="800" srcdoc="{}"></iframe>
<script>onload = () => setTimeout(() => Object.assign(document.documentElement.dataset,
  document.querySelector("iframe").contentDocument.documentElement.dataset), 500);</script>"""


class Page(html.parser.HTMLParser):
    """Attributes of <html>, the title, rows of tables by the table's name, text, and elements of some kinds."""

    def __init__(self, text: str):
        super().__init__()
        self.root: dict = {}
        self.title = ""
        self.rows: dict[str, list[list[str]]] = {}
        self.text = ""
        self.plots: list[str] = []
        self.paths = 0
        self.bold = 0
        self._open: list[str] = []
        self._table = ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        self._open.append(tag)
        if tag == "html":
            self.root = named
        elif tag == "table":
            self._table = named["data-table"]
        elif tag == "tr" and "tbody" in self._open:
            self.rows.setdefault(self._table, []).append([])
        elif tag == "td":
            self.rows[self._table][-1].append("")
        elif tag == "canvas" and named.get("height", "0") != "0":
            self.plots.append(named["data-plot"])
        self.paths += tag == "path"
        self.bold += tag == "b"

    def handle_endtag(self, tag):
        while tag in self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data):
        if "title" in self._open:
            self.title += data
        if "td" in self._open:
            self.rows[self._table][-1][-1] += data
        if "script" not in self._open:
            self.text += data


class PageTest(CommandTest):
    def make_page(self, *arguments: object, records: list[dict] | None = None) -> pathlib.Path:
        if records is not None:
            arguments = (self.write("R.jsonl", made.lines(*records)),)
        self.answer("report", *arguments, "--html", "page.html")
        return self.folder / "page.html"

    def open(self, page: pathlib.Path, *options: str) -> Page:
        """The page after its scripts have run, which must not complain."""
        if _BROWSER is None:
            self.skipTest("there is no chromium: apt-get install chromium, or ./dev test, which does")
        command = [_BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=8000",
                   "--enable-logging=stderr", f"--user-data-dir={self.folder}/browser", "--window-size=1200,900",
                   *options, "--dump-dom", page.as_uri()]  # fmt: skip
        for _ in range(3):  # where cores are busy, it may end before it has begun with the page
            done = subprocess.run(command, capture_output=True, text=True, timeout=200)
            self.assertEqual(re.findall(r".*CONSOLE.*", done.stderr), [])
            opened = Page(done.stdout)
            if "data-state" in opened.root:
                break
        self.assertEqual(opened.root.get("data-state"), "done", done.stderr[-2000:])
        return opened

    def test_every_plot_and_every_row_is_there(self):
        densities = (1600, 420, 173)
        layouts = [made.record()["layout"] | {"blocks": blocks} for blocks in densities]
        page = self.open(self.make_page(records=[made.record(layout=layout) for layout in layouts]))
        self.assertEqual(sorted(page.plots), ["candidates"] * 3 + ["roofline"] * 3 + ["sparsity"])
        self.assertEqual(page.root["data-plots"], "7")
        self.assertEqual(len(page.rows["overview"]), 3)
        self.assertEqual(len(page.rows["times"]), 3 * 5, "best, default, second, floor and dense")
        self.assertEqual(len(page.rows["candidates"]), 3 * 3)
        self.assertEqual(len(page.rows["reasons"]), 3 * 4)
        self.assertEqual(page.paths, 3 * 15, "a path for every shade of the layout's picture")
        self.assertIn("forward, 80x80 blocks of 32x32, 25 % dense", page.rows["overview"][0][0])
        self.assertEqual(page.rows["overview"][0][2:7], ["100", "150", "1.50×", "50 %", "50 %"])
        self.assertIn("3 problems; tuned 1.50× as fast as the default", page.text)

    def test_texts_of_records_stay_texts(self):
        environment = made.record()["environment"] | {"device": _HOSTILE}
        page = self.open(self.make_page(records=[made.record(environment=environment)]))
        self.assertEqual(page.title, "Sparsekiln: tuning report")
        self.assertEqual(page.bold, 0)
        self.assertEqual(page.rows["overview"][0][1], _HOSTILE)

    def test_on_a_phone_nothing_sticks_out(self):
        content = self.make_page(records=[made.record()] * 2).read_text()
        page = self.open(pathlib.Path(self.folder, self.write("phone.html", _PHONE.format(html.escape(content)))))
        self.assertLessEqual(int(page.root["data-width"]), 360)
        self.assertEqual(page.root["data-overflow"], "0")
        self.assertEqual(page.root["data-plots"], "5")

    def test_many_problems_are_closed_until_one_is_named(self):
        page = self.make_page(records=[made.record()] * 8)
        self.assertEqual(self.open(page).plots, ["sparsity"])
        named = page.with_name("named.html")
        named.write_text(page.read_text().replace("<head>", '<head><script>location.hash = "problem-5"</script>'))
        self.assertEqual(sorted(self.open(named).plots), ["candidates", "roofline", "sparsity"])

    def test_finals_rank_before_what_was_timed_on_other_occasions(self):
        finalist = made.candidate(32, samples=made.around(80), final_us=made.around(120))
        contest = made.contest() | {"candidates": [made.candidate(64, samples=made.around(100)), finalist]}
        page = self.open(self.make_page(records=[made.record(contests=[contest])]))
        self.assertEqual([row[1] for row in page.rows["candidates"]], ["120", "100"])

    def test_printing_opens_and_draws_every_problem(self):
        page = self.make_page(records=[made.record()] * 8)
        event = '<script>addEventListener("load", () => dispatchEvent(new Event("beforeprint")))</script></body>'
        page.write_text(page.read_text().replace("</body>", event))
        self.assertEqual(len(self.open(page).plots), 1 + 2 * 8)

    def test_a_heading_sorts_its_table_both_ways(self):
        records = [made.record(contests=[made.contest(best)], layout=made.record()["layout"]) for best in (90, 9, 100)]
        page = self.make_page(records=records)
        for clicks, expected in [(1, ["9", "90", "100"]), (2, ["100", "90", "9"])]:
            press = '<script>addEventListener("load", () => { for (let i = 0; i < %d; ++i) ' % clicks
            press += "document.querySelectorAll('[data-table=overview] th button')[2].click(); })</script></body>"
            clicked = page.with_name("clicked.html")
            clicked.write_text(page.read_text().replace("</body>", press))
            self.assertEqual([row[2] for row in self.open(clicked).rows["overview"]], expected)

    def test_a_comparison_has_a_table_of_its_own(self):
        self.write("A.jsonl", made.lines(made.record()))
        self.write("B.jsonl", made.lines(made.record(contests=[made.contest(120)])))
        page = self.open(self.make_page("--compare", "A.jsonl", "B.jsonl"))
        self.assertEqual([row[1:] for row in page.rows["comparison"]], [["100", "120", "1.2", "regression"]])
        self.assertEqual(len(page.rows["overview"]), 2)

    def test_no_records_are_a_page_as_well(self):
        page = self.open(self.make_page(records=[]))
        self.assertIn("No records.", page.text)

    def test_a_problem_without_times_or_peak_is_shown(self):
        contest = made.contest() | {"candidates": [made.candidate(64, "failed", reason="it hangs")]}
        record = made.record(contests=[contest], peak={"gflops": 0, "gbytes": 0, "measured": False})
        page = self.open(self.make_page(records=[record]))
        self.assertEqual(page.plots, [])
        self.assertIn("it hangs", page.text)

    def test_the_page_asks_no_network_and_keeps_the_licence(self):
        content = self.make_page(records=[made.record()]).read_text()
        self.assertIn("default-src 'none'", content)
        self.assertIsNone(re.search(r"<(link|img|script|iframe)[^>]*\b(src|href)=", content))
        self.assertIn("Chart.js Contributors", content)
        self.assertIn("The above copyright notice and this permission notice", content)


if __name__ == "__main__":
    unittest.main()
