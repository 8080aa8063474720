"""torchao's block-sparse weights: masked models, filter functions, and files that torchao saved."""

import copy
import io
import pathlib
import pickle

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from sparsekiln.compat.torchao import BlockSparseTensor, BlockSparseWeightConfig, block_sparse_weight, load, sparsify_  # noqa: E402
from sparsekiln.torch import BlockSparseLinear  # noqa: E402

F = torch.nn.functional
_FILES = pathlib.Path(__file__).resolve().parent / "files"


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def masked(blocksize=32):
    """A model whose weights lack some blocks."""
    model = torch.nn.Sequential(torch.nn.Linear(128, 192), torch.nn.ReLU(), torch.nn.Linear(192, 64, bias=False))
    with torch.no_grad():
        for layer in (model[0], model[2]):
            blocks = torch.rand(layer.out_features // blocksize, layer.in_features // blocksize) < 0.4
            blocks[0, 0] = True
            layer.weight *= blocks.repeat_interleave(blocksize, 0).repeat_interleave(blocksize, 1)
    return model


def is_sparse(layer):
    return isinstance(layer.weight, BlockSparseTensor)


@pytest.mark.parametrize("blocksize", [8, 16, 32, 64])
def test_blocks_that_are_all_zero_become_absent_and_results_stay(blocksize):
    dense = masked(max(blocksize, 32))
    model = sparsify_(copy.deepcopy(dense), BlockSparseWeightConfig(blocksize=blocksize))
    assert type(model[0]) is torch.nn.Linear and is_sparse(model[0]) and is_sparse(model[2])
    for one, other in ((model[0], dense[0]), (model[2], dense[2])):
        grid = other.weight.reshape(other.out_features // blocksize, blocksize, -1, blocksize).ne(0).any(3).any(1)
        assert 0 < grid.sum() < grid.numel()
        assert one.weight.bsr_values.shape == (grid.sum(), blocksize, blocksize) and one.weight.blocksize == blocksize
        assert torch.equal(one.weight.bsr_col_indices, grid.nonzero()[:, 1])
        assert torch.equal(one.weight.to_dense(), other.weight) and one.weight.shape == other.weight.shape
    x = torch.randn(2, 5, 128)
    torch.testing.assert_close(model(x), dense(x), rtol=1e-4, atol=1e-5)


def test_its_weights_are_frozen_and_gradients_flow_to_the_input():
    dense = masked()
    model = sparsify_(copy.deepcopy(dense), block_sparse_weight(32))
    assert not model[0].weight.requires_grad and model[0].bias.requires_grad
    x = torch.randn(3, 128, requires_grad=True)
    model(x).square().sum().backward()
    found, x.grad = x.grad, None
    dense(x).square().sum().backward()
    torch.testing.assert_close(found, x.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(model[0].bias.grad, dense[0].bias.grad, rtol=1e-4, atol=1e-4)


def test_a_filter_function_is_asked_about_modules_by_name_from_the_top():
    asked = []

    def chosen(module, fqn):
        asked.append((type(module).__name__, fqn))
        return fqn == "2"

    model = sparsify_(masked(), BlockSparseWeightConfig(32), chosen)
    assert asked == [("Sequential", ""), ("Linear", "0"), ("ReLU", "1"), ("Linear", "2")]
    assert not is_sparse(model[0]) and is_sparse(model[2])


def test_by_default_each_linear_layer_is_taken_but_the_output_of_attention():
    model = torch.nn.TransformerEncoderLayer(64, 2, 128, batch_first=True)
    sparsify_(model, BlockSparseWeightConfig(32))
    assert is_sparse(model.linear1) and is_sparse(model.linear2) and not is_sparse(model.self_attn.out_proj)
    alone = sparsify_(torch.nn.Linear(64, 64), BlockSparseWeightConfig())
    assert is_sparse(alone) and alone.weight.blocksize == 64
    before = alone.weight
    assert sparsify_(alone, BlockSparseWeightConfig()).weight is before


def test_what_cannot_be_done_is_said_with_the_name_of_the_layer():
    model = torch.nn.Sequential(torch.nn.Linear(96, 80))
    with pytest.raises(ValueError, match=r"^0: a weight of \(80, 96\) is not made of blocks of 32x32"):
        sparsify_(model, BlockSparseWeightConfig(32))
    with pytest.raises(ValueError, match="no kernels for blocks of 48"):
        sparsify_(model, BlockSparseWeightConfig(48))
    with pytest.raises(TypeError, match="chose 0, a Embedding"):
        sparsify_(torch.nn.Sequential(torch.nn.Embedding(8, 64)), BlockSparseWeightConfig(), lambda module, fqn: fqn == "0")
    with pytest.raises(TypeError, match="the config is a dict"):
        sparsify_(model, {})
    with pytest.raises(ValueError, match="no gradient; BlockSparseLinear"):
        weight = BlockSparseTensor.from_dense(torch.ones(32, 32), 32)
        BlockSparseTensor((32, 32), 32, weight.bsr_crow_indices, weight.bsr_col_indices, weight.bsr_values, requires_grad=True)
    with pytest.raises(NotImplementedError, match="aten.add.Tensor takes no BlockSparseTensor"):
        weight + 1


@pytest.mark.parametrize("version", ["0_13", "0_17"])
def test_a_file_that_torchao_saved_is_loaded_without_torchao(version):
    state = load(_FILES / f"torchao_{version}.pt")
    model = torch.nn.Sequential(torch.nn.Linear(32, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8, bias=False))
    model.load_state_dict(state, assign=True)
    expected = copy.deepcopy(model)
    for index, blocks in ((0, 7), (2, 1)):
        out, into = model[index].out_features, model[index].in_features
        weight = torch.arange(1.0, out * into + 1).reshape(out, into) / 256
        weight[:8, :8] = 0
        assert is_sparse(model[index]) and model[index].weight.bsr_values.shape == (blocks, 8, 8)
        assert torch.equal(model[index].weight.to_dense(), weight)
        expected[index].weight = torch.nn.Parameter(weight)
    assert torch.equal(model[0].bias, torch.arange(16.0))
    x = torch.randn(3, 32)
    torch.testing.assert_close(model(x), expected(x), rtol=1e-4, atol=1e-4)


def test_a_state_goes_into_a_dense_model_by_assign_and_into_a_sparse_one_of_the_same_blocks():
    model = sparsify_(masked(), BlockSparseWeightConfig(32))
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    state = torch.load(file)
    x = torch.randn(3, 128)
    other = sparsify_(masked(), BlockSparseWeightConfig(32))
    with pytest.raises(RuntimeError, match="other blocks; .*assign=True"):
        other.load_state_dict(state)
    with pytest.raises(RuntimeError, match="cannot be copied .*assign=True"):
        masked().load_state_dict(state)
    other.load_state_dict(copy.deepcopy(state), assign=True)
    assert torch.equal(other(x), model(x))
    same = copy.deepcopy(model)
    with torch.no_grad():
        same[0].weight.bsr_values.zero_()
    assert not torch.equal(same(x), model(x))
    same.load_state_dict(state)
    assert torch.equal(same(x), model(x))


def test_copies_types_and_compiled_models_compute_the_same():
    model = sparsify_(masked(), BlockSparseWeightConfig(32))
    x = torch.randn(3, 128)
    expected = model(x)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.compile(model, backend="aot_eager", fullgraph=True)):
        torch.testing.assert_close(other(x), expected)
    model.to(torch.float64)
    assert model[0].weight.dtype == torch.float64 and model[0].weight.bsr_col_indices.dtype == torch.int64
    torch.testing.assert_close(model(x.double()), expected.double(), rtol=1e-4, atol=1e-5)


def test_a_weight_becomes_a_layer_that_trains():
    model = sparsify_(masked(), BlockSparseWeightConfig(32))
    assert torch.equal(model[0].weight.values(), model[0].weight.bsr_values)
    layer = BlockSparseLinear.from_bsr(model[0].weight.to_bsr(), model[0].bias)
    x = torch.randn(3, 128)
    torch.testing.assert_close(layer(x), model[0](x))
    layer(x).sum().backward()
    assert all(one.grad is not None for one in layer.parameters())
