"""A dense convolution, or transposed one, in float64 to compare a block-sparse one with, and cases in which all pairs of options occur."""

import contextlib
import itertools
import random
from collections.abc import Sequence

import pytest
import torch

import sparsekiln
import sparsekiln.torch as layers

LAYERS = {dimensions: getattr(layers, f"BlockSparseConv{dimensions}d") for dimensions in (1, 2, 3)}
TRANSPOSED = {dimensions: getattr(layers, f"BlockSparseConvTranspose{dimensions}d") for dimensions in (1, 2, 3)}
_UNIT = {torch.float32: 16 * 2.0**-24, torch.bfloat16: 2 * 2.0**-8, torch.float16: 2 * 2.0**-11, torch.float64: 64 * 2.0**-53}


def pairwise(options: dict[str, Sequence], allowed) -> list[dict]:
    """Few cases in which every two values of different options that `allowed` lets occur together do so."""
    rng = random.Random(0)
    every = [dict(zip(options, values)) for values in itertools.product(*options.values())]
    every = [case for case in every if allowed(case)]
    rng.shuffle(every)
    pairs = {id(case): set(itertools.combinations(case.items(), 2)) for case in every}
    missing = set().union(*pairs.values())
    chosen = []
    while missing:
        best = max(every, key=lambda case: len(pairs[id(case)] & missing))
        chosen.append(best)
        missing -= pairs[id(best)]
    return chosen


def images(layer, n: int, extents: tuple[int, ...], channels_last: bool = False, seed: int = 1) -> torch.Tensor:
    """An input [n, channels, …] of this memory format."""
    generator = torch.Generator().manual_seed(seed)
    if channels_last:
        return torch.randn(n, *extents, layer.in_channels, generator=generator).to(layer.weight_values.dtype).movedim(-1, 1)
    return torch.randn(n, layer.in_channels, *extents, generator=generator).to(layer.weight_values.dtype)


def refused(error, *words):
    return pytest.raises(error, match="(?s)" + ".*".join(words))


def close(one: torch.Tensor, other: torch.Tensor, tolerance: float = 1e-5) -> None:
    assert one.shape == other.shape
    assert torch.linalg.vector_norm((one - other).double()) <= tolerance * torch.linalg.vector_norm(other.double())


def present(layer) -> list[tuple[int, int, int]]:
    """The number in `weight_values`, the row and the column of each block of the layout."""
    layout, found = layer.layout, []
    for row in range(layout.rows):
        for col in map(int, layout.col[layout.crow[row] : layout.crow[row + 1]]):
            number = len(found)
            if layer.max_blocks is not None:
                number = layer.slot_blocks.tolist().index(row * layout.cols + col)
            found.append((number, row, col))
    return found


def taps_of(layer, number: int) -> list[tuple[int, tuple[int, ...]]]:
    """Where the taps of the block of this number are in `weight_values`, and their places in the kernel."""
    places = list(itertools.product(*map(range, layer.kernel_size)))
    if layer.tap_mask is not None:
        places = [place for place in places if layer.tap_mask[place]]
    own = layer.block_tap_mask
    return [(slot, place) for slot, place in enumerate(places) if own is None or own[number, slot]]


def dense_weight(layer) -> torch.Tensor:
    """W [out, in / groups, *kernel], or of a transposed convolution [in, out / groups, *kernel], block by block."""
    layout, (height, width), groups = layer.layout, layer.block, layer.groups
    weight = torch.zeros(layout.rows * height, layout.cols * width, *layer.kernel_size, dtype=layer.weight_values.dtype)
    for number, row, col in present(layer):
        for slot, place in taps_of(layer, number):
            weight[row * height : (row + 1) * height, col * width : (col + 1) * width, *place] = layer.weight_values[number, slot]
    if groups == 1:  # the last blocks may be partial
        return weight[: layer.weight_shape[0], : layer.weight_shape[1]]
    rows, cols = layout.rows * height // groups, layout.cols * width // groups
    return torch.cat([weight[g * rows : (g + 1) * rows, g * cols : (g + 1) * cols] for g in range(groups)])


def blocks_of(layer, dense: torch.Tensor) -> torch.Tensor:
    """The entries of a dense weight at the blocks of the layer, and zeros beyond the last channel."""
    layout, (height, width), groups = layer.layout, layer.block, layer.groups
    whole = dense.new_zeros((layout.rows * height, layout.cols // groups * width, *dense.shape[2:]))
    whole[: dense.shape[0], : dense.shape[1]] = dense
    dense = whole
    blocks = dense.new_zeros(layer.weight_values.shape)
    for number, row, col in present(layer):
        first = col % (layout.cols // groups) * width
        one = dense[row * height : (row + 1) * height, first : first + width]
        for slot, place in taps_of(layer, number):
            blocks[number, slot] = one[:, :, *place]
    return blocks


def poison_beyond(layer) -> None:
    """NaN in what the blocks hold beyond the last channel, which nothing reads."""
    (height, width), (rows, columns) = layer.block, layer.weight_shape
    with torch.no_grad():
        for number, row, col in present(layer):
            layer.weight_values[number, :, max(0, rows - row * height) :] = torch.nan
            layer.weight_values[number, :, :, max(0, columns - col * width) :] = torch.nan


def check_no_images(layer, extents: tuple[int, ...]) -> None:
    """A batch without images gives one of none, and gradients of zeros. The layer keeps the extents."""
    x = images(layer, 0, extents).requires_grad_()
    y = layer(x)
    y.sum().backward()
    assert y.shape == (0, layer.out_channels, *extents) and x.grad.shape == x.shape
    assert not layer.weight_values.grad.any() and not layer.bias.grad.any()


def run_dense(layer, x, weight, bias, dy, output_size=None):
    """y, dx, dW and dbias of PyTorch, in float64."""
    operands = [one.detach().double().requires_grad_() for one in (x, weight, bias)]
    names = ("stride", "padding", "dilation", "groups") + (("output_padding",) if hasattr(layer, "output_padding") else ())
    options = {name: getattr(layer, name) for name in names}
    if output_size is not None:
        dense = layer.to_dense()
        options["output_padding"] = dense._output_padding(x, output_size, layer.stride, layer.padding, layer.kernel_size, layer.dimensions, layer.dilation)
    y = layer.dense_function(*operands, **options)
    return y.detach(), *torch.autograd.grad(y, operands, dy.double())


@contextlib.contextmanager
def _poisoned_outputs():
    """torch.empty makes tensors of NaN: what is not written is found."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(1).isnan().all()
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def randomize_edges(layer):
    """Random gains and biases of edge situations. Returns the layer."""
    with torch.no_grad():
        layer.edge_gain.normal_()
        layer.edge_bias.normal_()
    return layer


def run_with_edges(layer, x, dy):
    """y of a layer with an edge bias, and gradients of x, W, gain and bias, in float64."""
    operands = [one.detach().double().requires_grad_() for one in (x, dense_weight(layer), layer.edge_gain, layer.edge_bias)]
    sums = layer.dense_function(*operands[:2], None, layer.stride, layer.padding, layer.dilation, layer.groups)
    situations = torch.from_numpy(sparsekiln.edge_situations(layer._form.text(x.shape[2:], layer._taps)).of_position).long()
    gain, bias = (one[situations].movedim(-1, 0) for one in operands[2:])
    y = sums * gain + bias
    return y.detach(), *torch.autograd.grad(y, operands, dy.double())


def check_edges(layer, x: torch.Tensor) -> None:
    """Compares y and all gradients of a layer with an edge bias, in float32, with those of a dense convolution."""
    layer.zero_grad()
    x = x.detach().requires_grad_()
    with _poisoned_outputs():
        y = layer(x)
        dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(2))
        y.backward(dy)
    wanted = run_with_edges(layer, x, dy)
    found = y.detach(), x.grad, layer.weight_values.grad, layer.edge_gain.grad, layer.edge_bias.grad
    for number, (one, other) in enumerate(zip(found, wanted)):
        close(one, blocks_of(layer, other) if number == 2 else other)


def check(layer, x: torch.Tensor, seed: int = 2, output_size=None) -> None:
    """Compares y and all gradients of the layer at x with those of PyTorch, element by element: each is off by at most a
    multiple of the type's rounding of the sum of the magnitudes that it is made of."""
    x = x.detach().requires_grad_()
    layer.zero_grad()
    with _poisoned_outputs():
        y = layer(x) if output_size is None else layer(x, output_size)
        dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(seed)).to(y.dtype)
        y.backward(dy)
    weight = dense_weight(layer)
    bias = torch.zeros(layer.out_channels) if layer.bias is None else layer.bias
    expected = run_dense(layer, x, weight, bias, dy, output_size)
    bounds = run_dense(layer, x.abs(), weight.abs(), bias.abs(), dy.abs(), output_size)
    found = [y, x.grad, layer.weight_values.grad, None if layer.bias is None else layer.bias.grad]
    for name, is_, wanted, bound in zip(("y", "dx", "dW", "dbias"), found, expected, bounds):
        if is_ is None:
            continue
        if name == "dW":
            wanted, bound = blocks_of(layer, wanted), blocks_of(layer, bound)
        assert is_.shape == wanted.shape and is_.dtype == layer.weight_values.dtype, name
        error = (is_.detach().double() - wanted).abs()
        assert torch.isfinite(is_).all(), name
        assert (error <= _UNIT[is_.dtype] * bound + 1e-30).all(), f"{name} is off by {error.max().item():.3g}"
