"""What does not go together is refused with a sentence that says so."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from dense_layer import make_layer  # noqa: E402

import sparsekiln  # noqa: E402
from sparsekiln.torch import (  # noqa: E402
    BlockSparseConv2d, BlockSparseConvTranspose2d, BlockSparseLinear, BlockSparseLSTM, BlockSparseLSTMCell, SmallWorldLSTM, Sparsifier,
    batched_linear, fuse_conv_bn_, init, linear, lstm_cell, normalised_linear, normalised_lstm_cell, sparsify_,
)  # fmt: skip

_BSR = torch.eye(32).to_sparse_bsr((32, 32))
_FOUR = torch.ones(128, 32).to_sparse_bsr((32, 32))


def refused(error, *words):
    return pytest.raises(error, match="(?s)" + ".*".join(words))


@pytest.mark.parametrize("grad", [True, False])
def test_an_input_of_another_type(grad):
    layer = make_layer()
    with torch.set_grad_enabled(grad), refused(TypeError, "float64", "float32", "to()"):
        layer(torch.zeros(2, 100, dtype=torch.float64))


def test_integers():
    with refused(TypeError, "int64", "float32"):
        make_layer()(torch.zeros(2, 100, dtype=torch.int64))


@pytest.mark.parametrize("shape", [(2, 99), (2, 200), (50, 2), ()])
def test_an_input_of_another_shape(shape):
    with refused(ValueError, "shape", "100"):
        make_layer()(torch.zeros(shape))


def test_an_input_on_another_device():
    with refused(ValueError, "meta", "cpu"):
        make_layer()(torch.zeros(2, 100, device="meta"))


def test_complex_weights():
    with refused(TypeError, "complex64", "float32", "float64"):
        BlockSparseLinear(32, 32, [[1]], dtype=torch.complex64)


def test_a_layer_that_was_made_complex_afterwards():
    with refused(TypeError, "complex64", "float32"):
        make_layer().to(torch.complex64)(torch.zeros(2, 100, dtype=torch.complex64))


def test_a_grid_that_does_not_fit_the_features():
    with refused(ValueError, "1 × 2", "32 output and 32 input", "1 × 1"):
        BlockSparseLinear(32, 32, [[1, 1]])


@pytest.mark.parametrize("block", [0, 7, 24, (32,), (32, 12), 256])
def test_blocks_without_kernels(block):
    with refused(ValueError, "blocks", "8, 16, 32, 64, 128"):
        BlockSparseLinear(32, 32, [[1]], block=block)


def test_an_unknown_activation():
    with refused(ValueError, "cube", "relu"):
        BlockSparseLinear(32, 32, [[1]], activation="cube")


def test_a_dense_weight():
    with refused(TypeError, "torch.strided", "to_sparse_bsr"):
        linear(torch.zeros(2, 32), torch.zeros(32, 32))


def test_a_bias_of_another_length():
    with refused(ValueError, "bias", "31", "32"):
        linear(torch.zeros(2, 32), torch.ones(32, 32).to_sparse_bsr((32, 32)), torch.zeros(31))


def test_a_bsr_tensor_of_blocks_without_kernels():
    with refused(ValueError, "8, 16, 32, 64, 128"):
        linear(torch.zeros(2, 32), torch.ones(32, 32).to_sparse_bsr((4, 4)))


def test_index_tensors_that_were_written_to():
    layer = BlockSparseLinear(64, 64, [[1, 0], [0, 1]])
    layer(torch.zeros(1, 64))
    layer.col_indices.copy_(torch.tensor([1, 0]))
    with refused(ValueError, "relayout"):
        layer(torch.zeros(1, 64))


def test_index_tensors_that_were_exchanged():
    layer = BlockSparseLinear(64, 64, [[1, 0], [0, 1]])
    layer.col_indices = torch.tensor([1, 0], dtype=torch.int32)
    with refused(ValueError, "relayout"):
        layer(torch.zeros(1, 64))


def test_a_backward_pass_across_a_relayout():
    layer = BlockSparseLinear(64, 64, [[1, 0], [0, 1]])
    y = layer(torch.ones(1, 64)).sum()
    layer.relayout([[0, 1], [1, 0]])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_a_relayout_to_another_grid():
    with refused(ValueError, "1 × 1", "2 × 2"):
        BlockSparseLinear(64, 64, [[1, 0], [0, 1]]).relayout([[1]])


def test_a_model_that_is_one_linear_layer():
    with refused(ValueError, "from_linear"):
        sparsify_(torch.nn.Linear(32, 32))


def test_a_density_that_is_none():
    with refused(ValueError, "density", "10"):
        BlockSparseLinear.from_linear(torch.nn.Linear(32, 32), density=10)


def test_a_bsr_form_of_cut_features():
    with refused(ValueError, "multiple", "to_dense"):
        make_layer(100, 120).to_bsr()


def test_index_tensors_of_another_width():
    layer = BlockSparseLinear(64, 64, [[1, 0], [0, 1]], bias=False)
    with refused(ValueError, "2 block columns", "3"):
        torch.ops.sparsekiln.linear(
            torch.zeros(1, 96), layer.weight_values, None, layer.crow_indices, layer.col_indices, 96, 64, "none"
        )


def test_forward_mode_derivatives_are_refused_and_never_zeros():
    layer = make_layer()
    x = torch.ones(1, 100)
    with pytest.raises(NotImplementedError, match="forward-mode"):
        torch.func.jvp(layer, (x,), (x,))
    with torch.no_grad(), torch.autograd.forward_ad.dual_level():
        with pytest.raises(NotImplementedError, match="forward-mode"):
            layer(torch.autograd.forward_ad.make_dual(x, x))


def test_a_negated_view_is_read_with_its_sign():
    layer = make_layer()
    x = torch.randn(3, 100)
    torch.testing.assert_close(layer(torch._neg_view(x)), layer(-x), rtol=0, atol=0)


@pytest.mark.parametrize("dynamic", [False, True])
def test_an_input_beyond_the_largest_in_a_compiled_graph(dynamic):
    layer = BlockSparseConv2d(32, 32, 3, layout=[[1]], max_input=8)
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    compiled(torch.zeros(1, 32, 7, 8))
    with refused(Exception, "images of 9x8; max_input of this layer is 8x8"):
        compiled(torch.zeros(1, 32, 9, 8))


@pytest.mark.parametrize("make, words", [
    (lambda: BlockSparseLinear(128.0, 128, [[1]], 128), ("in_features is 128.0", "an integer would work")),
    (lambda: BlockSparseLinear(128, "128", [[1]], 128), ("out_features is '128'", "an integer would work")),
    (lambda: BlockSparseLinear(32, 32, [[1]], bias="no"), ("bias is 'no'", "True or False would work")),
    (lambda: BlockSparseLinear(32, 32, [[1]], max_blocks=1.5), ("max_blocks is 1.5", "an integer would work")),
    (lambda: BlockSparseLinear(32, 32, [[1]], block=32.0), ("a side of the block is 32.0", "an integer would work")),
    (lambda: BlockSparseLinear(32, 32, "L.npy"), ("L.npy", "Layout.load")),
    (lambda: BlockSparseLinear.from_linear(torch.nn.Linear(64, 64), density="0.5"), ("density is '0.5'", "a number would work")),
    (lambda: BlockSparseConv2d(32.0, 32, 3, layout=[[1]]), ("in_channels is 32.0", "an integer would work")),
    (lambda: BlockSparseConv2d(64, 64, 3, groups=2.0), ("groups is 2.0", "an integer would work")),
    (lambda: BlockSparseConv2d(64, 64, 3, density=None), ("density is None", "a number would work")),
    (lambda: BlockSparseLSTM(32, 32.0, layout=[[1]]), ("hidden_size is 32.0", "an integer would work")),
    (lambda: BlockSparseLSTM(32, 32, num_layers="2", layout=[[1]]), ("num_layers is '2'", "an integer would work")),
    (lambda: BlockSparseLSTM(32, 32, bidirectional="no", layout=[[1]]), ("bidirectional is 'no'", "True or False would work")),
    (lambda: SmallWorldLSTM(32, 64, internal_steps=2.5, block=32), ("internal_steps is 2.5", "an integer would work")),
    (lambda: SmallWorldLSTM(32, 64, 3), ("layouts is 3", "6 layouts would work")),
    (lambda: BlockSparseLSTM(32, 32, layout=[[1]])(np.ones((2, 1, 32))), ("input is array", "a tensor would work")),
    (lambda: BlockSparseLSTMCell(32.0, 32, layout=[[1]]), ("input_size is 32.0", "an integer would work")),
    (lambda: BlockSparseLSTM.from_lstm(torch.nn.GRU(32, 32)), ("a GRU", "an nn.LSTM would work")),
    (lambda: BlockSparseLinear.from_linear(torch.nn.Conv2d(32, 32, 3)), ("a Conv2d", "an nn.Linear would work")),
    (lambda: BlockSparseLinear(32, 32, [[1]])(np.ones((2, 32), np.float32)), ("input is array", "a tensor would work")),
    (lambda: BlockSparseConv2d(32, 32, 3, layout=[[1]])(None), ("input is None", "a tensor would work")),
    (lambda: BlockSparseLinear(32, 32, [[1]]).relayout([[1]], optimizer=3), ("optimizer is 3", "torch.optim, or several, would work")),
    (lambda: BlockSparseConvTranspose2d(32, 32, 3, layout=[[1]])(torch.ones(1, 32, 4, 4), 8), ("output_size is 8", "2 integers would work")),
    (lambda: batched_linear(torch.ones(1, 2, 32), torch.ones(1, 1, 32, 32), [[1]]), ("layout is ", "a sparsekiln.Layout")),
    (lambda: init.xavier_normal_(torch.nn.Linear(32, 32)), ("a Linear", "torch.nn.init would work")),
    (lambda: BlockSparseLSTM(32, 32, layout=[[1]])(torch.ones(2, 1, 32), 3), ("hx is 3", "a pair of tensors")),
    (lambda: BlockSparseLSTMCell(32, 32, layout=[[1]])(torch.ones(1, 32), torch.ones(1, 32)), ("hx is tensor", "a pair of tensors")),
    (lambda: SmallWorldLSTM(32, 64)(torch.ones(2, 1, 32), (3, 3)), ("hx is .3, 3", "a pair of tensors")),
    (lambda: sparsify_(torch.nn.Sequential(torch.nn.Linear(64, 64)), scores=3), ("scores is 3", "a function")),
    (lambda: sparsify_(torch.nn.Sequential(torch.nn.Linear(64, 64)), 0.5, scores=lambda *_: np.ones((2, 2))), ("scores are array", "a tensor")),
    (lambda: sparsify_(3), ("model is 3", "a torch.nn.Module would work")),
    (lambda: sparsify_(torch.nn.Sequential(torch.nn.Linear(64, 64)), where=3), ("where is 3", "would work")),
    (lambda: sparsify_(torch.nn.Sequential(torch.nn.Linear(64, 64)), leave_small="no"), ("leave_small is 'no'", "True or False would work")),
    (lambda: sparsify_(torch.nn.Sequential(torch.nn.Linear(64, 64)), "0.5"), ("density of 0 is '0.5'", "a number would work")),
    (lambda: Sparsifier(torch.nn.Sequential(torch.nn.Linear(64, 64)), 0.5, end_step=10.5), ("end_step is 10.5", "an integer would work")),
    (lambda: Sparsifier([3], 0.5, end_step=10), ("model is .3", "a torch.nn.Module would work")),
    (lambda: Sparsifier(torch.nn.Sequential(torch.nn.Linear(64, 64)), 0.5, end_step=10, optimizer="adam"), ("optimizer is 'adam'", "torch.optim")),
    (lambda: BlockSparseLinear(32, 32, [[1]]).blocks_of(3), ("dense weight is 3", "a tensor .32, 32. would work")),
    (lambda: torch.nn.init.normal_(BlockSparseConv2d(32, 32, 3, layout=[[1]]).weight), ("would write to a copy", "weight_values")),
    (lambda: init.kaiming_uniform_(torch.ones(1, 32, 32)), ("a Tensor", "block-sparse layers are taken here")),
    (lambda: init.fan_in(torch.nn.Linear(32, 32)), ("a Linear", "block-sparse layers are taken here")),
    (lambda: init.fan_out(torch.nn.Linear(32, 32)), ("a Linear", "block-sparse layers are taken here")),
    (lambda: fuse_conv_bn_(None), ("model is None", "a torch.nn.Module would work")),
    (lambda: BlockSparseLinear(32, 32, [[1]], dtype=[torch.float32]), ("a weight of .torch.float32.", "there are kernels for")),
    (lambda: BlockSparseLSTM(32, 32, proj_size=np.ones(2), layout=[[1]]), ("proj_size is array", "an integer would work")),
    (lambda: linear(torch.ones(2, 32), _BSR, bias=[0.0] * 32), ("bias is ", "a tensor would work")),
    (lambda: linear(np.ones((2, 32)), _BSR), ("input is array", "a tensor would work")),
    (lambda: normalised_linear(np.ones((2, 32)), _BSR), ("input is array", "a tensor would work")),
    (lambda: normalised_linear(torch.ones(2, 32), _BSR, gain=1.0), ("gain is 1.0", "a tensor would work")),
    (lambda: lstm_cell(None, torch.ones(2, 32), torch.ones(2, 32), _FOUR), ("projection is None", "a tensor would work")),
    (lambda: lstm_cell(torch.ones(2, 128), torch.ones(2, 32), 3, _FOUR), ("c is 3", "a tensor would work")),
    (lambda: normalised_lstm_cell(torch.ones(2, 32), None, _FOUR), ("c is None", "a tensor would work")),
    (lambda: batched_linear(torch.ones(1, 2, 32), [1], sparsekiln.Layout([[1]])), ("weight_values is .1", "a tensor would work")),
    (lambda: BlockSparseLinear.gather([1], torch.zeros(1)), ("tensor is .1", "a tensor would work")),
])  # fmt: skip
def test_arguments_of_another_type(make, words):
    with refused(TypeError, *words):
        make()


def test_integers_of_numpy_are_integers():
    layer = BlockSparseLinear(np.int64(64), np.int32(64), [[1, 0], [0, 1]], np.int64(32), np.bool_(True), max_blocks=np.int64(3))
    assert (layer.in_features, layer.block, layer.max_blocks) == (64, (32, 32), 3)
    assert all(type(number) is int for number in (layer.in_features, layer.out_features, layer.max_blocks, *layer.block))
    assert layer(torch.ones(2, 64)).shape == (2, 64)
    assert BlockSparseConv2d(32, 32, np.int64(3), stride=np.array([2, 1]), padding=torch.tensor([1, 1]), layout=[[1]]).stride == (2, 1)
    assert BlockSparseLinear(32, 32, [[1]], bias=None).bias is None  # as nn.Linear takes it


@pytest.mark.parametrize("make, words", [
    (lambda: BlockSparseLinear(32, 32, [[1]]).blocks_of(torch.ones(64, 64)), (r"\[64, 64\]", r"\[32, 32\], would work")),
    (lambda: BlockSparseConv2d(32, 32, 3, layout=[[1]]).blocks_of(torch.ones(32, 32)), (r"\[32, 32\]", r"\[32, 32, 3, 3\], would work")),
    (lambda: BlockSparseLinear(32, 32, [[1]]).of_outputs(torch.ones(16)), (r"\[16\]", r"\[32\], one for each output feature")),
    (lambda: BlockSparseLinear.from_bsr(BlockSparseLinear(32, 32, [[1]]).to_bsr(), torch.ones(1)), (r"\[1\]", r"a tensor \[32\] would work")),
    (lambda: BlockSparseLinear.from_bsr(BlockSparseLinear(32, 32, [[1]]).to_bsr(), True), ("bias is True", r"a tensor \[32\] would work")),
    (lambda: BlockSparseLinear(32, 32, [[1]], activation=np.ones(300)), ("there is no activation array", "there are None, ")),
    (lambda: BlockSparseConv2d(32, 32, 3, layout=[[1]], padding_mode=np.ones(3)), ("padding_mode of array", "pad with 'zeros'")),
    (lambda: batched_linear(torch.ones(1, 2, 32), torch.ones(32, 32), sparsekiln.Layout([[1]])), (r"\(32, 32\)", "block_out, block_in. would work")),
])  # fmt: skip
def test_tensors_of_another_shape(make, words):
    with refused(ValueError, *words):
        make()


def test_a_sparsifier_takes_optimizers_from_a_generator():
    model = torch.nn.Sequential(torch.nn.Linear(64, 64, dtype=torch.float32))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    sparsifier = Sparsifier(model, 0.5, 32, end_step=1, every=1, optimizer=(one for one in [optimizer]), leave_small=False)
    for _ in range(2):
        model(torch.ones(2, 64)).sum().backward()
        optimizer.step()
        sparsifier.step()
    assert model[0].layout.blocks == 2


def test_a_layer_on_meta_moves_to_another_layout():
    layer = BlockSparseLinear(64, 64, [[1, 1], [1, 1]], device="meta")
    layer.relayout([[1, 0], [0, 1]])
    assert layer.layout.blocks == 2 and layer.weight_values.shape == (2, 32, 32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int16])
def test_index_tensors_of_another_type_are_refused_by_operators_and_by_their_fakes(dtype):
    values, crow, col = torch.ones(1, 32, 32), torch.tensor([0, 1]), torch.tensor([0])
    wrong = (crow.to(dtype), col), (crow, col.to(dtype))
    for device in ("cpu", "meta"):
        for one in wrong:
            with refused(ValueError, "_indices is", "of int32 or int64"):
                x, w = torch.ones(2, 32, device=device), values.to(device)
                torch.ops.sparsekiln.linear(x, w, None, *(part.to(device) for part in one), 32, 32, "none")
