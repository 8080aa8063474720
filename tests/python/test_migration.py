"""The examples of docs/migration.md compute the product of the layer that they begin with, there and here."""

import ast
import functools
import importlib
import importlib.metadata
import importlib.util
import pathlib
import re

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

_PAGE = (pathlib.Path(__file__).resolve().parent.parent.parent / "docs/migration.md").read_text()
_MARKED = re.compile(r"<!-- example: (.*?) -->\n```python\n(.*?)```\n", re.S)
EXAMPLES = dict(_MARKED.findall(_PAGE))
PACKAGES = ["torchao", "bsr", "stk", "blksprs", "blocksparse", "scipy"]
DISTRIBUTIONS = {"stk": "stanford-stk"}  # stk is the name of another package, too
HERE = [name for name in EXAMPLES if name.endswith(", here")]
THERE = [name for name in EXAMPLES if ", there" in name]


def run(name):
    """The variables of the example, and what its y has to be."""
    left = {}
    exec(compile(EXAMPLES["setup"], "setup", "exec"), left)
    expected = torch.nn.functional.linear(left["x"], left["linear"].weight, left["linear"].bias).detach()
    exec(compile(EXAMPLES[name], name, "exec"), left)
    return left, expected


def imported(name):
    """The syntax tree of an example of there, whose modules have been imported. Skips if one cannot be."""
    tree = ast.parse(EXAMPLES[name])
    modules = [one.module for one in tree.body if isinstance(one, ast.ImportFrom)]
    modules += [alias.name for one in tree.body if isinstance(one, ast.Import) for alias in one.names]
    for module in modules:
        package = module.partition(".")[0]
        distributions = importlib.metadata.packages_distributions().get(package, [package])
        if importlib.util.find_spec(package) is None or DISTRIBUTIONS.get(package, package) not in distributions:
            pytest.skip(f"{DISTRIBUTIONS.get(package, package)} is not installed")
        try:
            importlib.import_module(module)
        except Exception as error:
            pytest.skip(f"{module} cannot be imported here: {error!r}")
    return tree


def test_every_package_has_an_example_of_there_and_one_of_here():
    assert [name.partition(",")[0] for name in THERE] == PACKAGES and [name.partition(",")[0] for name in HERE] == PACKAGES
    assert len(EXAMPLES) == 1 + 2 * len(PACKAGES) == _PAGE.count("```python")
    assert all(len(code.splitlines()) <= 10 for code in EXAMPLES.values())


@pytest.mark.parametrize("name", HERE)
def test_an_example_of_here_computes_the_product(name):
    if "scipy" in EXAMPLES[name]:
        pytest.importorskip("scipy", reason="SciPy is not installed")
    left, expected = run(name)
    torch.testing.assert_close(torch.as_tensor(left["y"]).detach(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", THERE)
def test_an_example_of_there_computes_the_same(name):
    imported(name)
    if "on a GPU" in name and not torch.cuda.is_available():
        pytest.skip("the other package needs a GPU")
    left, expected = run(name)
    if "y" in left:  # TensorFlow 1 needs a session
        half = torch.as_tensor(left["y"]).dtype == torch.float16 or "half()" in EXAMPLES[name]
        near = 2e-2 if half else 1e-3
        torch.testing.assert_close(torch.as_tensor(left["y"]).detach().cpu().float(), expected, rtol=near, atol=near)


@pytest.mark.parametrize("name", [name for name in THERE if "import " in EXAMPLES[name]])
def test_the_names_that_an_example_of_there_uses_exist(name):
    tree = imported(name)
    known = {}
    for one in tree.body:
        if isinstance(one, (ast.Import, ast.ImportFrom)):
            exec(compile(ast.Module([one], []), name, "exec"), known)
    for one in ast.walk(tree):
        if isinstance(one, ast.Attribute):
            path = ast.unparse(one).split(".")
            if path[0] in known and all(part.isidentifier() for part in path):
                functools.reduce(getattr, path[1:], known[path[0]])


def test_the_page_has_no_figure_of_speed():
    prose = re.sub(r"```.*?```", "", _PAGE, flags=re.S)
    assert not re.search(r"\d\s?(×|x\b|ms\b|µs|%|times)", prose), "a figure that no script writes"
