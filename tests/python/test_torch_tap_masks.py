"""Masks of taps of BlockSparseConvNd and BlockSparseConvTransposeNd."""

import copy
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from dense_convolution import LAYERS, TRANSPOSED, blocks_of, check, close, dense_weight, images, poison_beyond, refused  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

import sparsekiln  # noqa: E402
from sparsekiln.torch import Sparsifier, fuse_conv_bn, init, weight_norm  # noqa: E402

BOTH = pytest.mark.parametrize("layers", [LAYERS, TRANSPOSED], ids=["convolution", "transposed"])
EACH = pytest.mark.parametrize("each", [False, True], ids=["all", "each"])
LAYOUT = [[1, 0, 1], [1, 1, 0], [0, 1, 1]]  # 6 blocks


CORNER = np.array([[1, 1, 1], [1, 0, 0], [0, 0, 0]])


def make_mask(each: bool, kernel=(3, 3), blocks=6, seed=0) -> np.ndarray:
    """[*kernel], or [blocks, *kernel], of which no two are the same."""
    mask = np.random.default_rng(seed).random((blocks, *kernel) if each else kernel) < 0.5
    mask.reshape(-1)[: kernel[0]] = True
    return mask


def make_layer(layers, each, dimensions=2, seed=0, block=8, **options):
    torch.manual_seed(seed)
    options = {"layout": LAYOUT, "tap_mask": make_mask(each, (3,) * dimensions)} | options
    return layers[dimensions](3 * block, 3 * block, 3, block=block, **options)


# ---- values and gradients ----


@BOTH
@EACH
@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("options", [{}, {"stride": 2, "padding": 1}, {"dilation": 2, "bias": False, "dtype": torch.bfloat16}])
def test_values_and_gradients(layers, each, dimensions, options):
    layer = make_layer(layers, each, dimensions, **options)
    check(layer, images(layer, 3, (7, 6, 5)[:dimensions]))


@BOTH
@EACH
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_channels_that_fill_no_whole_blocks(layers, each, dtype):
    torch.manual_seed(0)
    layer = layers[2](21, 18, 3, padding=1, layout=LAYOUT, tap_mask=make_mask(each), block=8, dtype=dtype)
    assert torch.equal(layer.blocks_of(layer.dense_weight()), layer.weight_values)
    poison_beyond(layer)
    check(layer, images(layer, 3, (7, 6)))


@BOTH
@EACH
def test_values_where_there_is_no_tap_have_no_effect(layers, each):
    layer = make_layer(layers, each, padding=1, max_blocks=8)
    x = images(layer, 2, (5, 4))
    y = layer(x)
    with torch.no_grad():
        layer.weight_values[6:] = torch.nan
        if each:
            layer.weight_values[~layer.block_tap_mask] = torch.nan
    assert torch.equal(layer(x), y)
    close(layer.to_dense()(x), y)
    layer(x).sum().backward()
    assert not layer.weight_values.grad[6:].any() and not (each and layer.weight_values.grad[~layer.block_tap_mask].any())


@BOTH
def test_groups_of_a_mask_for_each_block(layers):
    torch.manual_seed(0)
    mask = make_mask(True, blocks=4)
    layer = layers[2](32, 32, 3, groups=2, layout=[[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0]], block=8, tap_mask=mask)
    assert layer.layout.blocks == 4
    check(layer, images(layer, 2, (5, 6)))


@BOTH
@pytest.mark.parametrize("kernel", [1, 3])
def test_a_block_without_taps(layers, kernel):
    torch.manual_seed(0)
    mask = np.ones((2, kernel, kernel), bool)
    mask[0] = False
    layer = layers[2](16, 16, kernel, layout=[[1, 0], [0, 1]], block=8, tap_mask=mask)
    assert layer.bias.any() and not layer.weight_values[0].any()
    check(layer, images(layer, 2, (4, 5)))


@BOTH
def test_a_mask_of_all_taps_is_none(layers):
    for mask in (np.ones((3, 3)), torch.ones(6, 3, 3, dtype=torch.bool)):
        layer = make_layer(layers, False, tap_mask=mask)
        assert layer.tap_mask is None and layer.taps == 9 and "taps" not in repr(layer)
    alike = make_layer(layers, False, tap_mask=np.broadcast_to(make_mask(False), (6, 3, 3)))
    assert alike.block_tap_mask is None and torch.equal(alike.tap_mask, make_layer(layers, False).tap_mask)


@BOTH
@EACH
def test_second_derivatives(layers, each):
    layer = make_layer(layers, each)
    dense = layer.to_dense()
    results = []
    for module, weight in ((layer, layer.weight_values), (dense, dense.weight)):
        x = images(layer, 2, (5, 4)).requires_grad_()
        dx, dw = torch.autograd.grad(module(x).square().sum(), (x, weight), create_graph=True)
        dw = dw if module is layer else dw * (dense_weight(layer) != 0)
        (dx.square().sum() + dw.square().sum()).backward()
        results.append((x.grad, weight.grad))
    close(results[0][0], results[1][0])
    close(results[0][1], blocks_of(layer, results[1][1]))


# ---- PixelCNN ----


def pixel_mask(include_centre: bool, kernel: int = 5) -> np.ndarray:
    """The taps above, and to the left in the same row: mask A of van den Oord et al. 2016, or B with the centre."""
    mask = np.zeros((kernel, kernel), bool)
    mask[: kernel // 2] = True
    mask[kernel // 2, : kernel // 2 + include_centre] = True
    return mask


def test_a_pixelcnn_reads_earlier_positions_alone():
    torch.manual_seed(0)
    layers = [
        LAYERS[2](channels, 16, 5, padding=2, density=1, block=8, tap_mask=pixel_mask(number > 0))
        for number, channels in enumerate((8, 16, 16))
    ]
    model, x = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1], torch.nn.ReLU(), layers[2]), torch.randn(1, 8, 6, 7)
    y = model(x)
    for row, column in ((0, 0), (2, 3), (5, 6)):
        changed = x.clone()
        changed[:, :, row, column] += 1
        different = (model(changed) != y).any(1)[0].flatten()
        place = row * 7 + column
        assert not different[: place + 1].any()
        assert different[place + 1 :].any() == (place + 1 < different.numel())


def test_channels_of_a_position_in_order():
    """Mask A among three colours at the centre: of the blocks of channels, those of earlier colours are read there, as masks of
    each block say."""
    torch.manual_seed(0)
    layout = sparsekiln.Layout(np.ones((3, 3), bool))
    mask = np.stack([pixel_mask(column < row, 3) for row in range(3) for column in range(3)])
    layer, x = LAYERS[2](24, 24, 3, padding=1, layout=layout, block=8, tap_mask=mask), torch.randn(1, 24, 4, 5)
    y = layer(x)
    for colour in range(3):
        changed = x.clone()
        changed[:, colour * 8 : colour * 8 + 8, 1, 2] += 1
        different = (layer(changed) != y)[0].reshape(3, 8, 20).any(1)
        assert not different[:, :7].any() and different[:, 8].all()
        assert different[:, 7].tolist() == [other > colour for other in range(3)]


# ---- from and to dense ----


@BOTH
@EACH
def test_from_and_to_dense_keep_what_has_a_tap(layers, each):
    torch.manual_seed(0)
    dense, mask = layers[2].dense_class(24, 24, 3, padding=1), make_mask(each)
    layer = layers[2].from_conv(dense, layout=LAYOUT, block=8, tap_mask=mask)
    every = np.zeros((3, 3, 3, 3), bool)
    every[np.nonzero(LAYOUT)] = mask
    every = torch.from_numpy(every).repeat_interleave(8, 0).repeat_interleave(8, 1)
    back = layer.to_dense()
    assert torch.equal(back.weight, dense.weight * every) and torch.equal(layer.dense_weight(), dense_weight(layer))
    x = images(layer, 2, (6, 5))
    close(layer(x), back(x))


@BOTH
def test_the_strongest_blocks_are_those_of_the_present_taps(layers):
    dense, mask = layers[2].dense_class(16, 16, 3), make_mask(False)
    with torch.no_grad():
        dense.weight.zero_()
        dense.weight[:8, :8] = 9 * torch.from_numpy(~mask)
        dense.weight[8:, 8:] = torch.from_numpy(mask)
    assert layers[2].from_conv(dense, 0.25, 8, tap_mask=mask).layout == sparsekiln.Layout([[0, 0], [0, 1]])


@BOTH
def test_fans_count_present_taps(layers):
    mask = np.zeros((2, 3, 3), bool)
    mask[0, 0, :2] = mask[1, 0, 1] = True
    layer = layers[2](16, 8, 3, layout=[[1, 1]] if layers is LAYERS else [[1], [1]], block=8, tap_mask=mask)
    ins, outs = [24.0], [16.0, 8.0]
    assert [init.fan_in(layer).tolist(), init.fan_out(layer).tolist()] == ([ins, outs] if layers is LAYERS else [outs, ins])
    for fill in (init.kaiming_normal_, init.xavier_uniform_):
        fill(layer)
        assert layer.weight_values[0].any() and not layer.weight_values[~layer.block_tap_mask].any()
        assert layer.weight_values[layer.block_tap_mask].all()


@EACH
def test_batch_normalisation_is_folded(each):
    layer, norm = make_layer(LAYERS, each).eval(), torch.nn.BatchNorm2d(24).eval()
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    x = images(layer, 2, (5, 6))
    close(fuse_conv_bn(layer, norm)(x), norm(layer(x)), 1e-4)


def test_it_says_what_it_is():
    assert ", density=0.6667, taps=6 of 9)" in repr(make_layer(LAYERS, False, tap_mask=[[1, 1, 1], [1, 0, 0], [1, 1, 0]]))
    mask = np.zeros((6, 3, 3), bool)
    mask[:, 0], mask[2, 1, 1] = True, True
    assert ", taps=3 to 4 of 9" in repr(make_layer(TRANSPOSED, True, tap_mask=mask))


# ---- other layouts, copies and saved state ----


@BOTH
@pytest.mark.parametrize("max_blocks", [None, 7])
def test_relayout_with_a_mask_for_all_blocks(layers, max_blocks):
    layer = make_layer(layers, False, max_blocks=max_blocks)
    before = dense_weight(layer)
    layer.relayout([[1, 1, 1], [0, 1, 0], [0, 0, 0]])
    mask = torch.tensor([[1, 0, 1], [0, 1, 0], [0, 0, 0]]).repeat_interleave(8, 0).repeat_interleave(8, 1)[:, :, None, None]
    assert torch.equal(dense_weight(layer), before * mask)
    check(layer, images(layer, 2, (5, 5)))


@BOTH
@pytest.mark.parametrize("max_blocks", [None, 7])
def test_relayout_with_a_mask_for_each_block_takes_blocks_away(layers, max_blocks):
    layer = make_layer(layers, True, max_blocks=max_blocks)
    x, before, masks = images(layer, 2, (5, 5)), dense_weight(layer), layer.block_tap_mask.clone()
    layer(x).sum().backward()
    optimizer = torch.optim.Adam(layer.parameters())
    layer.relayout([[0, 0, 1], [1, 1, 0], [0, 0, 1]], optimizer)
    stay = [1, 2, 3, 5]  # with max_blocks in the slots that they had
    assert torch.equal(layer.block_tap_mask[stay if max_blocks else slice(4)], masks[stay])
    assert layer.block_tap_mask.shape[0] == (max_blocks or 4) and layer.block_tap_mask.sum() == masks[stay].sum()
    kept = torch.tensor([[0, 0, 1], [1, 1, 0], [0, 0, 1]]).repeat_interleave(8, 0).repeat_interleave(8, 1)[:, :, None, None]
    assert torch.equal(dense_weight(layer), before * kept)
    layer.zero_grad()
    check(layer, x)
    layer.relayout([[0, 0, 1], [0, 0, 0], [0, 0, 0]])
    layer.zero_grad()
    check(layer, x)


@BOTH
def test_relayout_to_blocks_whose_taps_are_not_known_is_refused(layers):
    layer = make_layer(layers, True)
    before, text = copy.deepcopy(layer.state_dict()), repr(layer)
    with refused(ValueError, "1 blocks of the layout are new", "present would work", "tap_mask for all blocks"):
        layer.relayout([[1, 1, 0], [0, 0, 0], [0, 0, 0]])
    assert repr(layer) == text and all(torch.equal(one, before[name]) for name, one in layer.state_dict().items())


@EACH
def test_pruning_in_training(each):
    layer = make_layer(LAYERS, each, padding=1)
    model = torch.nn.Sequential(layer)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    sparsifier = Sparsifier(model, 1 / 3, 8, end_step=2, begin_step=1, every=1, optimizer=optimizer)
    x = images(layer, 2, (5, 5))
    for _ in range(2):
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        sparsifier.step()
    assert sparsifier.layers and layer.layout.blocks == 3
    check(layer, x)


@BOTH
@EACH
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])
def test_copies(layers, each, copied):
    layer = make_layer(layers, each)
    other, x = copied(layer), images(layer, 2, (5, 6))
    assert torch.equal(other(x), layer(x))


@BOTH
@EACH
@pytest.mark.parametrize("assign", [False, True])
def test_a_state_brings_its_masks_along(layers, each, assign):
    layer, other = make_layer(layers, each), make_layer(layers, each, seed=1)
    if each:
        layer.relayout([[1, 0, 0], [1, 1, 0], [0, 0, 1]])
    else:
        layer.relayout([[1, 1, 0], [1, 1, 1], [0, 1, 1]])
    x, state = images(layer, 2, (5, 6)), copy.deepcopy(layer.state_dict())
    masks = {"tap_mask", "block_tap_mask"} if each else {"tap_mask"}
    assert set(state) == {"weight_values", "bias", "crow_indices", "col_indices"} | masks
    other.load_state_dict(state, assign=assign)
    assert torch.equal(other(x), layer(x)) and repr(other) == repr(layer)
    other.zero_grad()
    check(other, x)


def test_a_state_of_the_same_blocks_with_other_taps():
    layer, other = make_layer(LAYERS, True), make_layer(LAYERS, True, seed=1, tap_mask=make_mask(True)[::-1])
    other.load_state_dict(layer.state_dict())
    x = images(layer, 2, (5, 6))
    assert torch.equal(other(x), layer(x)) and torch.equal(other.block_tap_mask, layer.block_tap_mask)


def test_a_layer_on_the_meta_device_is_filled_later():
    layer = make_layer(LAYERS, True, device="meta").to_empty(device="cpu")
    layer.reset_parameters()
    check(layer, images(layer, 2, (5, 5)))


@pytest.mark.parametrize(
    "own, saved, words",
    [
        (None, make_mask(False), ("saved state has a mask of taps and the layer none",)),
        (make_mask(False), None, ("layer has a mask of taps and the saved state none",)),
        (make_mask(False), ~make_mask(False), ("other taps than the layer",)),
        (CORNER * make_mask(True), CORNER, ("mask of taps for each block",)),
        (CORNER, CORNER * make_mask(True), ("mask of taps for each block",)),
    ],
)
def test_a_state_of_another_mask_is_refused(own, saved, words):
    layer, other = make_layer(LAYERS, False, tap_mask=own), make_layer(LAYERS, False, tap_mask=saved, seed=1)
    before = layer.weight_values.detach().clone()
    with refused(RuntimeError, *words):
        layer.load_state_dict(other.state_dict(), strict=False)
    assert torch.equal(layer.weight_values, before)


# ---- what PyTorch does with layers ----


@BOTH
@EACH
def test_compiled_and_exported_code(layers, each):
    layer = make_layer(layers, each)
    x = images(layer, 2, (5, 6))
    y = torch.compile(layer, fullgraph=True, backend="aot_eager")(x)  # of a layer that was not called before
    program = torch.export.export(make_layer(layers, each), (x,), strict=True).module()
    wanted = torch.autograd.grad(layer(x).square().sum(), layer.weight_values)[0]
    close(torch.autograd.grad(y.square().sum(), layer.weight_values)[0], wanted)
    assert torch.equal(y, layer(x)) and torch.equal(program(x), layer(x))


@BOTH
@EACH
def test_a_layer_without_memory_takes_a_state_by_assignment(layers, each):
    layer, other = make_layer(layers, each), make_layer(layers, each, device="meta")
    other.load_state_dict(layer.state_dict(), assign=True)
    assert not any(one.is_meta for one in (*other.parameters(), *other.buffers()))
    x = images(layer, 2, (5, 6))
    assert torch.equal(other(x), layer(x))
    assert not any(one.is_meta for one in other.state_dict().values())


def test_values_of_absent_taps_count_in_no_score_and_no_norm():
    mask = torch.ones(2, 3, 3, dtype=torch.bool)
    mask[0] = False
    mask[0, 1, 1] = True
    layer = LAYERS[2](16, 8, 3, padding=1, layout=[[1, 1]], block=8, tap_mask=mask)
    with torch.no_grad():
        layer.weight_values[0], layer.weight_values[1] = 5, 2  # the first is larger where it has no taps alone
    for scores in (None, lambda name, layer: layer.weight_values.abs()):
        model = torch.nn.Sequential(copy.deepcopy(layer))
        Sparsifier(
            model, final_density=0.5, block=8, begin_step=1, end_step=1, every=1, leave_small=False, scores=scores
        ).step()
        assert model[0].layout.mask().tolist() == [[False, True]]
    norms = layer.dense_weight().detach().flatten(1).norm(dim=1)
    close(weight_norm(layer).parametrizations.weight_values.original0.detach(), norms)


@BOTH
@EACH
def test_autocast_vmap_and_standard_operators(layers, each, monkeypatch):
    layer = make_layer(layers, each).requires_grad_(False)
    x = torch.randn(3, 2, 24, 5, 5)
    close(torch.vmap(layer)(x), torch.stack([layer(one) for one in x]))
    with torch.autocast("cpu", torch.bfloat16):
        close(layer(x[0]).float(), layer(x[0].float()).float(), 1e-2)
    monkeypatch.setattr(torch.onnx, "is_in_onnx_export", lambda: True)
    program = torch.export.export(layer, (x[0],))
    assert "sparsekiln" not in str(program.graph)
    close(program.module()(x[0]), layer(x[0]))


@BOTH
@EACH
def test_the_flop_counter_counts_present_taps(layers, each):
    layer = make_layer(layers, each, padding=1)
    x = images(layer, 2, (5, 6)).requires_grad_()
    with FlopCounterMode(display=False) as counter:
        layer(x).sum().backward()
    pairs = int(make_mask(each).sum()) * (1 if each else 6)
    assert counter.get_total_flops() == 3 * 2 * pairs * 8 * 8 * 2 * 5 * 6


def test_the_operators_pass_the_checks_of_pytorch():
    tests = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    operators = torch.ops.sparsekiln
    for each in (False, True):
        layer = make_layer(LAYERS, each, stride=2)
        form, taps, index = layer._form.as_list(), layer._taps, (layer.crow_indices, layer.col_indices)
        weight = layer._launched(layer.weight_values).detach().requires_grad_()
        x, dy = torch.randn(2, 5, 7, 24, requires_grad=True), torch.randn(2, 2, 3, 24, requires_grad=True)
        for operator, arguments in (
            (operators.convolution, (x, weight, layer.bias, *index, 24, form, taps)),
            (operators.convolution_transposed, (dy, weight, layer.bias, *index, 24, [5, 7], form, taps)),
            (operators.convolution_grad_input, (dy, weight, *index, 24, [5, 7], form, taps)),
            (operators.convolution_grad_weight, (x, dy, *index, 8, 8, form, True, taps)),
        ):
            torch.library.opcheck(operator.default, arguments, test_utils=tests)


# ---- refusals ----


@BOTH
@pytest.mark.parametrize(
    "options, words",
    [
        ({"tap_mask": np.ones((3, 2))}, ("tap_mask has the shape \\(3, 2\\)", "\\[3, 3\\] or \\[6, 3, 3\\]", "for all blocks or for each")),
        ({"tap_mask": np.ones((5, 3, 3))}, ("\\(5, 3, 3\\)", "\\[6, 3, 3\\]")),
        ({"tap_mask": np.zeros((3, 3))}, ("no tap", "one or more")),
        ({"tap_mask": np.full((3, 3), 2)}, ("other entries than 0 and 1",)),
        ({"tap_mask": make_mask(True), "layout": None}, ("one for each block", "layout=", "3x3 for all blocks")),
    ],
)
def test_masks_that_cannot_be(layers, options, words):
    with refused(ValueError, *words):
        make_layer(layers, False, **options)


def test_a_weight_of_other_taps():
    layer = make_layer(LAYERS, False)
    index = layer.crow_indices, layer.col_indices
    with refused(ValueError, "\\(6, 9, 8, 8\\)", "kernel of 3x3 with this mask of taps", f"\\[blocks, {layer.taps}, block_out"):
        torch.ops.sparsekiln.convolution(torch.zeros(1, 5, 5, 24), torch.zeros(6, 9, 8, 8), None, *index, 24, layer._form.as_list(), layer._taps)
