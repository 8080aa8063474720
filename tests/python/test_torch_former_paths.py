"""Modules by the paths that they had before there were subpackages, and names that subpackages share with functions."""

import importlib
import pickle
import subprocess
import sys
import types

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from operator_calls import LAYERS, output  # noqa: E402

import sparsekiln  # noqa: E402
import sparsekiln.torch  # noqa: E402

# The module of a class, or of a function, and the one before it.
_MOVED = {
    "convolution.convolutions": "convolutions", "convolution.geometry": "convolution_geometry", "convolution.tap_masks": "tap_masks",
    "convolution.transposed": "transposed_convolutions", "linear.functional": "functional", "linear.layer": "layers",
    "linear.matmul": "matmul", "parallel.partition": "partition", "parallel.rank_entries": "rank_entries",
    "parallel.sharded_layer": "sharded_layer", "parallel.styles": "parallel_styles", "recurrent.inner_modules": "inner_modules",
    "recurrent.lstm": "recurrent", "recurrent.normalised": "normalised", "recurrent.small_world": "small_world",
}  # fmt: skip


def pickled_before(made) -> bytes:
    """A pickle that names modules by their former paths. In protocol 2, the name of a module is a line."""
    data = pickle.dumps(made, protocol=2)
    for now, before in _MOVED.items():
        data = data.replace(f"csparsekiln.torch.{now}\n".encode(), f"csparsekiln.torch.{before}\n".encode())
    return data


@pytest.mark.parametrize("name", [name for name in LAYERS if name != "weight_norm"])  # a parametrized module has no pickle
def test_a_layer_that_was_saved_whole_before_loads(name):
    make, shape = LAYERS[name]
    layer, x = make().eval(), torch.randn(shape)
    data = pickled_before(layer)
    assert data != pickle.dumps(layer, protocol=2)
    assert torch.equal(output(pickle.loads(data), x), output(layer, x))


@pytest.mark.parametrize("now, before", _MOVED.items())
def test_a_class_or_function_has_its_former_path(now, before):
    module = importlib.import_module(f"sparsekiln.torch.{now}")
    former = importlib.import_module(f"sparsekiln.torch.{before}")
    own = [one for one in vars(module).values() if getattr(one, "__module__", None) == module.__name__]
    public = [one.__name__ for one in own if isinstance(one, (type, types.FunctionType)) and not one.__name__.startswith("_")]
    assert public
    assert all(getattr(former, name) is getattr(module, name) for name in public if before != "recurrent" or name.startswith("BlockSparse"))


def test_a_former_path_has_nothing_else():
    from sparsekiln.torch import layers

    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        layers.nothing  # noqa: B018
    assert not hasattr(layers, "__file__")


@pytest.mark.parametrize("name, made", [("layers", "BlockSparseLinear"), ("rank_entries", "RankEntries")])
def test_it_is_importable_first(name, made):
    program = f"import pickle; print(pickle.loads(b'csparsekiln.torch.{name}\\n{made}\\n.').__module__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip().endswith({"layers": "torch.linear.layer"}.get(name, f"torch.parallel.{name}")), done.stderr


def test_loading_the_package_does_not_load_what_former_paths_of_parallel_name():
    program = "import sys, inspect, sparsekiln.torch; inspect.getmodule(len); print('sparsekiln.torch.parallel' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout.strip() == "False"


def test_functions_stay_where_a_subpackage_has_their_name():
    for name in ("linear", "convolution", "recurrent", "parallel"):
        importlib.import_module(f"sparsekiln.torch.{name}")
    importlib.import_module("sparsekiln.torch.linear.operators")
    assert isinstance(sparsekiln.torch.linear, types.FunctionType) and isinstance(sparsekiln.torch.matmul, types.FunctionType)
    assert pickle.loads(pickle.dumps(sparsekiln.torch.linear)) is sparsekiln.torch.linear
