"""Averages of models, and whatever else writes to all buffers of a layer or reads them, leave layouts as they are."""

import copy
import gc
import pickle

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import sparsekiln  # noqa: E402
from sparsekiln.torch import (  # noqa: E402
    BlockSparseConv2d, BlockSparseConvTranspose2d, BlockSparseLinear, BlockSparseLSTM, SmallWorldLSTM, Sparsifier, weight_norm,
)  # fmt: skip
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn  # noqa: E402

_LAYOUT = sparsekiln.patterns.random(6, 7, 0.5, 3)
_TAPS = torch.rand(_LAYOUT.blocks, 3, 3, generator=torch.Generator().manual_seed(1)) < 0.7
_SQUARE = sparsekiln.patterns.random(4, 4, 0.6, 2)
# A layer, and the shape of its input.
LAYERS = {
    "linear": (lambda: BlockSparseLinear(7 * 16, 6 * 16, _LAYOUT, 16), (3, 7 * 16)),
    "room": (lambda: BlockSparseLinear(7 * 16, 6 * 16, _LAYOUT, 16, max_blocks=42), (3, 7 * 16)),
    "convolution": (lambda: BlockSparseConv2d(7 * 16, 6 * 16, 3, layout=_LAYOUT, block=16), (2, 7 * 16, 5, 5)),
    "taps of each block": (lambda: BlockSparseConv2d(7 * 16, 6 * 16, 3, layout=_LAYOUT, block=16, tap_mask=_TAPS), (2, 7 * 16, 5, 5)),
    "transposed": (lambda: BlockSparseConvTranspose2d(6 * 16, 7 * 16, 3, layout=_LAYOUT, block=16), (2, 6 * 16, 5, 5)),
    "weight_norm": (lambda: weight_norm(BlockSparseLinear(7 * 16, 6 * 16, _LAYOUT, 16)), (3, 7 * 16)),
    "lstm": (lambda: BlockSparseLSTM(24, 64, layout=_SQUARE, block=16), (4, 2, 24)),
    "small world": (lambda: SmallWorldLSTM(24, 64, block=16, density=0.5), (4, 2, 24)),
}  # fmt: skip


def output(layer, x):
    y = layer(x)
    return y[0] if isinstance(y, tuple) else y


def change(layer, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))


def average_of(models, decay):
    """The average that AveragedModel makes, parameter by parameter: the first is copied."""
    result = copy.deepcopy(models[0])
    for model in models[1:]:
        with torch.no_grad():
            for mine, other in zip(result.parameters(), model.parameters()):
                mine.lerp_(other, 1 - decay)
    return result


@pytest.mark.parametrize("use_buffers", [True, False])
@pytest.mark.parametrize("kind", list(LAYERS))
def test_an_averaged_layer_has_its_layout_and_the_average_of_its_weights(kind, use_buffers):
    make, shape = LAYERS[kind]
    model = make()
    averaged, taken = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=use_buffers), []
    for step in range(4):
        change(model, step)
        averaged.update_parameters(model)
        taken.append(copy.deepcopy(model))
    x, expected = torch.randn(shape), average_of(taken, 0.9)
    state = averaged.module.state_dict()  # before the layer is used
    torch.testing.assert_close(output(averaged, x), output(expected, x))
    torch.testing.assert_close(output(model, x), output(taken[-1], x))
    again = make()
    again.load_state_dict(state)
    torch.testing.assert_close(output(again, x), output(expected, x))


@pytest.mark.parametrize("read", ["to_dense", "to_bsr", "weight", "blocks_of", "relayout", "state_dict", "forward"])
def test_whatever_reads_index_tensors_after_an_average_finds_the_layout(read):
    model = LAYERS["room"][0]()
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    for _ in range(20):  # some integers lose one in a step
        averaged.update_parameters(model)
    layer, expected = averaged.module, model.to_dense()
    assert not torch.equal(layer.crow_indices, model.crow_indices)  # it is as this test is about
    if read == "blocks_of":
        assert torch.equal(layer.blocks_of(expected), model.blocks_of(expected))
    elif read == "relayout":
        layer.relayout(layer.layout)
    elif read == "state_dict":
        assert torch.equal(layer.state_dict()["col_indices"], model.col_indices)
    elif read == "forward":
        layer(torch.zeros(1, 7 * 16))
    elif read == "weight":
        assert torch.equal(layer.weight.to_dense(), expected)
    else:
        assert torch.equal(getattr(layer, read)().to_dense() if read == "to_bsr" else layer.to_dense(), expected)
    if read != "blocks_of":
        assert torch.equal(layer.crow_indices, model.crow_indices) and torch.equal(layer.col_indices, model.col_indices)


@pytest.mark.parametrize("kind", ["linear", "room", "convolution"])
@pytest.mark.parametrize("read", ["dense", "weight"])
@pytest.mark.parametrize("how", ["compile", "export", "strict export"])
@pytest.mark.parametrize("moved", [False, True])
def test_traced_code_reads_the_layout_after_an_average(kind, read, how, moved):
    class Reading(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = LAYERS[kind][0]()

        def forward(self):
            if read == "dense":
                return self.layer.dense_weight() if kind == "convolution" else self.layer.to_dense()
            dense = self.layer.weight
            return dense.to_dense() if dense.layout != torch.strided else dense

    torch._dynamo.reset()
    model = Reading()
    if moved:
        layer, layout = model.layer, model.layer.layout
        mask = layout.mask()
        mask[0, layout.col[0]] = False
        layer.relayout(sparsekiln.Layout(mask))
    averaged, expected = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True), model()
    reading = averaged.module
    compiled = torch.compile(reading, backend="aot_eager", fullgraph=True) if how == "compile" else None
    for _ in range(20):
        averaged.update_parameters(model)
    assert not torch.equal(reading.layer.crow_indices, model.layer.crow_indices)  # it is as this test is about
    if how != "compile":
        compiled = torch.export.export(reading, (), strict=how == "strict export").module()
    torch.testing.assert_close(compiled(), expected)
    if how == "compile":  # what was exported has tensors of its own
        averaged.update_parameters(model)
        torch.testing.assert_close(compiled(), expected)


@pytest.mark.parametrize("name", ["crow_indices", "col_indices"])
def test_what_was_written_to_data_is_not_saved(name):
    layer = LAYERS["linear"][0]()
    saved = {key: value.clone() for key, value in layer.state_dict().items()}
    getattr(layer, name).data.fill_(3)
    assert torch.equal(layer.state_dict()[name], saved[name])


def test_an_average_among_frozen_objects_is_found():
    model = BlockSparseLinear(64, 64, [[1, 1], [1, 0]])
    averaged = AveragedModel(model)
    gc.collect()
    gc.freeze()
    try:
        with pytest.raises(RuntimeError, match="AveragedModel"):
            model.relayout([[1, 0], [1, 0]])
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
    del averaged


def test_an_average_of_states_leaves_the_layout():
    """As libraries make it that know no difference between numbers and indices."""
    model = LAYERS["linear"][0]()
    averaged = copy.deepcopy(model)
    for step in range(3):
        change(model, step)
        with torch.no_grad():
            for mine, other in zip(averaged.state_dict().values(), model.state_dict().values()):
                mine.copy_(0.9 * mine + 0.1 * other)
    assert not torch.equal(averaged.crow_indices, model.crow_indices)  # it is as this test is about
    x = torch.ones(1, 7 * 16)
    torch.testing.assert_close(averaged(x), torch.nn.functional.linear(x, averaged.to_dense(), averaged.bias))
    assert torch.equal(averaged.col_indices, model.col_indices) and torch.equal(averaged.crow_indices, model.crow_indices)


@pytest.mark.parametrize("read", [
    lambda layer: layer(torch.zeros(1, 64)), lambda layer: layer.to_dense(), lambda layer: layer.to_bsr(), lambda layer: layer.weight.sum(),
    lambda layer: layer.blocks_of(torch.zeros(64, 64)), lambda layer: layer.relayout([[1, 1], [0, 0]]), lambda layer: layer.state_dict(),
])  # fmt: skip
@pytest.mark.parametrize("max_blocks", [None, 4])
def test_another_layout_in_the_index_tensors_is_refused_whatever_reads_them(read, max_blocks):
    layer = BlockSparseLinear(64, 64, [[1, 0], [0, 1]], max_blocks=max_blocks)
    other = BlockSparseLinear(64, 64, [[0, 1], [1, 0]], max_blocks=max_blocks)
    with torch.no_grad():
        for mine, its in zip((*layer.parameters(), *layer.buffers()), (*other.parameters(), *other.buffers())):
            mine.copy_(its)
    with pytest.raises(ValueError, match="changed outside of it; use BlockSparseLinear.relayout"):
        read(layer)


# ---- layouts that change ----


def gradual():
    model = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.ReLU(), torch.nn.Conv1d(2, 2, 1), torch.nn.Linear(96, 64))
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    sparsifier = Sparsifier(
        model, 0.2, 16, where=["0", "3"], begin_step=1, end_step=8, every=1, leave_small=False, fixed_shapes=True, optimizer=optimizer
    )
    return model, sparsifier


def train(model, sparsifier):
    """A step; whether blocks were taken away."""
    sparsifier.optimizer.zero_grad()
    model(torch.randn(5, 2, 64)).square().sum().backward()
    sparsifier.optimizer.step()
    return sparsifier.step()


@pytest.mark.parametrize("use_buffers", [True, False])
@pytest.mark.parametrize("start", [0, 4])
def test_the_average_of_a_model_that_is_pruned_is_that_of_its_dense_weights(use_buffers, start):
    torch.manual_seed(0)
    model, sparsifier = gradual()
    x = torch.randn(5, 2, 64)
    averaged, dense, removed = None, [], 0
    for step in range(10):
        removed += train(model, sparsifier)
        if step == start:
            averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.8), use_buffers=use_buffers)
        if averaged is not None:
            averaged.update_parameters(model)
            dense.append([model[0].to_dense().detach(), model[3].to_dense().detach()])
    assert removed >= 3 and model[0].layout.density < 0.25
    for number, layer in enumerate((averaged.module[0], averaged.module[3])):
        expected = dense[0][number].clone()
        for one in dense[1:]:
            expected.lerp_(one[number], 0.2)
        torch.testing.assert_close(layer.to_dense(), expected)
        whole = layer.layout
        layer.relayout(model[3 * number].layout)  # and so it becomes as sparse as the model
        kept = torch.from_numpy(model[3 * number].layout.mask()).repeat_interleave(16, 0).repeat_interleave(16, 1)
        torch.testing.assert_close(layer.to_dense(), expected * kept)
        assert whole != layer.layout
    assert torch.isfinite(averaged(x)).all()


def test_blocks_keep_their_slots_while_some_are_taken_away_or_come_back():
    layer = BlockSparseLinear(64, 64, [[1, 1], [1, 1]], max_blocks=4)
    values = layer.weight_values.detach().clone()
    origin = layer.relayout([[0, 1], [0, 1]])
    assert torch.equal(layer.weight_values, values * torch.tensor([0, 1, 0, 1])[:, None, None])
    assert origin.tolist() == [-1, 1, -1, 3] and torch.equal(layer.gather(values, origin), layer.weight_values)
    layer.relayout([[1, 0], [0, 1]])
    assert torch.equal(layer.weight_values, values * torch.tensor([0, 0, 0, 1])[:, None, None])
    other = BlockSparseLinear(64, 64, [[1, 1], [1, 1]], max_blocks=4)
    other.load_state_dict(layer.state_dict())
    plain = BlockSparseLinear(64, 64, [[1, 1], [1, 1]])
    plain.load_state_dict(layer.state_dict())
    for one in (other, plain):
        assert torch.equal(one.to_dense(), layer.to_dense()) and one.layout == layer.layout


def test_new_blocks_put_all_in_order():
    layer = BlockSparseLinear(96, 64, [[1, 0, 1], [0, 1, 0]], max_blocks=3)
    optimizer = torch.optim.Adam(layer.parameters())
    layer(torch.randn(4, 96)).square().sum().backward()
    optimizer.step()
    dense, momentum = layer.to_dense().detach().clone(), optimizer.state[layer.weight_values]["exp_avg"].clone()
    layer.relayout([[0, 0, 1], [0, 1, 0]], optimizer)
    origin = layer.relayout([[0, 1, 1], [0, 1, 0]], optimizer)
    assert origin.tolist() == [-1, 1, 2] and layer._slots.are_in_order
    kept = torch.tensor([[0, 0, 1], [0, 1, 0]]).repeat_interleave(32, 0).repeat_interleave(32, 1)
    assert torch.equal(layer.to_dense(), dense * kept)
    assert torch.equal(optimizer.state[layer.weight_values]["exp_avg"][1:], momentum[1:])


@pytest.mark.parametrize("max_blocks", [None, 4])
def test_a_layout_whose_blocks_would_be_averaged_with_others_is_refused_before_anything_moves(max_blocks):
    model = torch.nn.Sequential(BlockSparseLinear(64, 64, [[1, 0], [1, 1]], max_blocks=max_blocks))
    averaged = AveragedModel(model)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(RuntimeError, match="AveragedModel has a copy of this BlockSparseLinear.*make the AveragedModel afterwards"):
        model[0].relayout([[1, 1], [1, 0]])
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    averaged.module[0].relayout([[1, 1], [1, 0]])  # the copy first, and then the model
    model[0].relayout([[1, 1], [1, 0]])
    averaged.update_parameters(model)
    assert torch.equal(averaged(torch.ones(1, 64)), model(torch.ones(1, 64)))
    del averaged
    model[0].relayout([[0, 1], [1, 0]])


def test_states_of_a_model_and_of_its_average_load_in_any_order():
    torch.manual_seed(0)
    model, sparsifier = gradual()
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.8))
    for _ in range(9):
        train(model, sparsifier)
        averaged.update_parameters(model)
    x = torch.randn(5, 2, 64)
    for order in ((0, 1), (1, 0)):
        other, _ = gradual()
        others = other, AveragedModel(other, multi_avg_fn=get_ema_multi_avg_fn(0.8))
        for which in order:
            others[which].load_state_dict((model, averaged)[which].state_dict())
        assert torch.equal(others[0](x), model(x)) and torch.equal(others[1](x), averaged(x))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_of_an_average_that_was_never_called_has_the_layout(copied):
    model = torch.nn.Sequential(BlockSparseLinear(256, 256, sparsekiln.patterns.random(32, 32, 0.3, 1), block=8))
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9999), use_buffers=True)
    for _ in range(3):
        average.update_parameters(model)
    assert not torch.equal(average.module[0].crow_indices, model[0].crow_indices)  # else this tests nothing
    state = copied(average.module).state_dict()
    for name in ("crow_indices", "col_indices"):
        assert torch.equal(state[f"0.{name}"], model[0].state_dict()[name])


def test_blocks_are_not_put_in_order_while_an_average_has_them_in_other_slots():
    layer = BlockSparseLinear(64, 64, [[1, 1], [1, 1]], max_blocks=4)
    layer.relayout([[0, 1], [1, 1]])
    average = AveragedModel(layer)
    with pytest.raises(RuntimeError, match="put_in_order of the layer of the average first"):
        layer.put_in_order()
    average.module.put_in_order()
    layer.put_in_order()
    average.update_parameters(layer)
    assert torch.equal(average.module.to_dense(), layer.to_dense())


def test_an_average_that_is_not_used_any_more_refuses_nothing():
    layer = BlockSparseLinear(64, 64, [[1, 1], [1, 1]])
    average = AveragedModel(layer)
    average.itself = [average]
    del average
    layer.relayout([[0, 1], [1, 1]])
