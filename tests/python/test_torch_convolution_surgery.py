"""Convolutions in changes of whole models: sparsify_ and Sparsifier."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from dense_convolution import close, refused  # noqa: E402

import sparsekiln  # noqa: E402
from sparsekiln.torch import BlockSparseConv2d, BlockSparseConvTranspose2d, BlockSparseLinear, Sparsifier, sparsify_  # noqa: E402

nn = torch.nn


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def network():
    return nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1, groups=2), nn.ReLU(), nn.ConvTranspose2d(64, 32, 2, 2),
        nn.Conv2d(32, 32, 1, bias=False), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 32),
    )  # fmt: skip


def kinds(model):
    return [type(one).__name__ for one in model if any(True for _ in one.parameters())]


# ---- sparsify_ ----


def test_it_replaces_convolutions_and_says_so():
    model = network()
    report = sparsify_(model, 0.5, 16, leave_small=False)
    assert kinds(model) == ["BlockSparseConv2d"] * 2 + ["BlockSparseConvTranspose2d", "BlockSparseConv2d", "BlockSparseLinear"]
    assert [(one.name, one.shape, one.blocks, one.of) for one in report.replaced] == [
        ("0", (32, 3), 1, 2), ("2", (64, 32), 2, 4), ("4", (32, 64), 4, 8), ("5", (32, 32), 2, 4), ("8", (32, 32), 2, 4),
    ]  # fmt: skip
    assert any(line.startswith("4 ") and "32 × 64" in line and "4 of 8" in line for line in str(report).splitlines())


def test_at_full_density_a_model_gives_the_same():
    model, x = network(), torch.randn(2, 3, 12, 10)
    expected = model(x)
    report = sparsify_(model, 1, 16, leave_small=False)
    assert [one.norm_kept for one in report.replaced] == pytest.approx([1] * 5)
    close(model(x), expected)


@pytest.mark.parametrize("dense, sparse", [(nn.Conv2d(64, 96, 3), BlockSparseConv2d), (nn.ConvTranspose2d(64, 96, 3), BlockSparseConvTranspose2d)])
def test_it_keeps_the_blocks_that_from_conv_keeps(dense, sparse):
    model = nn.Sequential(dense)
    sparsify_(model, {"0": 0.25}, (32, 16))
    expected = sparse.from_conv(dense, 0.25, (32, 16))
    assert model[0].layout == expected.layout and torch.equal(model[0].weight_values, expected.weight_values)


@pytest.mark.parametrize("form", ["blocks", "elements"])
def test_scores_decide(form):
    def scores(name, layer):
        blocks = torch.tensor([[1.0, 2], [9, 3]])
        if form == "blocks":
            return blocks
        of_elements = blocks.repeat_interleave(16, 0).repeat_interleave(16, 1)[:, :, None, None].repeat(1, 1, 3, 3)
        of_elements[:16, 16:] *= torch.tensor([-9.0, 9, 0])  # whose sum is 0
        return of_elements

    model = nn.Sequential(nn.Conv2d(32, 32, 3))
    sparsify_(model, 0.25, 16, scores=scores)
    assert model[0].layout == sparsekiln.Layout([[0, 0], [1, 0]] if form == "blocks" else [[0, 1], [0, 0]])


def test_scores_of_another_shape_are_refused_with_the_name_of_the_layer():
    with refused(ValueError, "0: the scores have the shape \\(7,\\)"):
        sparsify_(nn.Sequential(nn.Conv2d(32, 32, 3)), 0.5, 16, scores=lambda name, layer: torch.ones(7))


@pytest.mark.parametrize(
    "layer, says",
    [
        (nn.Conv2d(3, 64, 7), "is small: its 3 inputs are less than two blocks of 16"),
        (nn.Conv1d(64, 64, 3, groups=8), "does not fit: each of the 8 groups has 8 output channels"),
        (nn.ConvTranspose2d(64, 24, 3), "is small: its 24 outputs are less than two blocks of 16"),
        (nn.Conv2d(64, 64, 3, padding_mode="reflect"), "has a padding_mode of 'reflect'"),
        (nn.Conv2d(64, 64, 3, dtype=torch.complex64), "is torch.complex64"),
        (nn.LazyConv2d(64, 3), "has no weight yet: call the model once"),
        (type("Sub", (nn.Conv2d,), {})(64, 64, 3), "is a Sub"),
        (nn.Conv2d(64, 64, 3, device="meta"), "is on the meta device"),
        (nn.Conv2d(64, 16, 3), "is small: its 16 outputs are less than two blocks of 16"),
        (nn.ConvTranspose2d(16, 64, 3), "is small: its 16 inputs are less than two blocks of 16"),
        (nn.Conv2d(64, 64, 3, groups=4), "is small: its 16 outputs are less"),
        (BlockSparseConv2d(64, 64, 3, block=16), "is block-sparse already"),
    ],
)
def test_what_cannot_be_is_left_alone_and_named(layer, says):
    model = nn.Sequential(layer, nn.Linear(64, 64))
    report = sparsify_(model, 0.5, 16)
    assert model[0] is layer and says in report.layers[0].skipped and says in str(report)
    assert isinstance(model[1], BlockSparseLinear)


def test_small_is_less_than_one_of_the_blocks_of_all_groups():
    def layer():
        return nn.Sequential(nn.Conv2d(64, 64, 3, groups=2))  # 8 blocks of 16

    assert "0.1 of its 8 blocks" in sparsify_(layer(), 0.1, 16).skipped[0].skipped
    assert sparsify_(layer(), 0.125, 16).replaced[0].blocks == 1


def test_a_convolution_of_one_tap_takes_float64():
    model = nn.Sequential(nn.Conv2d(64, 64, 1, dtype=torch.float64))
    x = torch.randn(1, 64, 2, 2, dtype=torch.float64)
    expected = model(x)
    assert sparsify_(model, 1, 16).replaced
    torch.testing.assert_close(model(x), expected, rtol=1e-13, atol=1e-13)


def test_a_model_that_is_one_convolution():
    with refused(ValueError, "ConvTranspose1d itself", "BlockSparseConvTranspose1d.from_conv"):
        sparsify_(nn.ConvTranspose1d(32, 32, 3))


# ---- Sparsifier ----


def train(model, steps, optimizer, sparsifier=None):
    torch.manual_seed(1)
    for _ in range(steps):
        x = torch.randn(2, 3, 8, 8)
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
        if sparsifier is not None:
            sparsifier.step()


def test_before_it_prunes_a_model_trains_as_the_dense_one_with_the_state_of_its_optimizer():
    dense = network()
    first = torch.optim.Adam(dense.parameters(), 1e-2)
    train(dense, 2, first)
    model = copy.deepcopy(dense)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    optimizer.load_state_dict(copy.deepcopy(first.state_dict()))
    sparsifier = Sparsifier(model, 0.5, 16, begin_step=9, end_step=10, optimizer=optimizer, leave_small=False)
    assert kinds(model)[1:] == ["BlockSparseConv2d", "BlockSparseConvTranspose2d", "BlockSparseConv2d", "BlockSparseLinear"]
    train(dense, 2, first)
    train(model, 2, optimizer, sparsifier)
    for place in (2, 4, 5):
        close(model[place].dense_weight(), dense[place].weight, 1e-3)
        close(model[place].weight_values.grad, model[place].blocks_of(dense[place].weight.grad), 1e-3)


def test_gradients_that_a_model_has_move_into_its_blocks():
    model = network()
    model(torch.randn(2, 3, 8, 8)).square().sum().backward()
    gradients = {place: model[place].weight.grad for place in (2, 4, 8)}
    Sparsifier(model, 0.5, 16, begin_step=1, end_step=2, leave_small=False)
    for place, gradient in gradients.items():
        assert gradient.any() and torch.equal(model[place].weight_values.grad, model[place].blocks_of(gradient))


@pytest.mark.parametrize("fixed_shapes", [False, True])
def test_it_prunes_convolutions_to_their_final_density(fixed_shapes):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    sparsifier = Sparsifier(model, 0.5, 16, end_step=3, every=1, optimizer=optimizer, leave_small=False, fixed_shapes=fixed_shapes)
    assert sparsifier.density == 1.0
    shapes = [parameter.shape for parameter in model.parameters()]
    train(model, 4, optimizer, sparsifier)
    assert sparsifier.density == 0.5 and sparsifier.done
    assert [model[place].layout.blocks for place in (2, 4, 5)] == [2, 4, 2]
    assert fixed_shapes == (shapes == [parameter.shape for parameter in model.parameters()])
    x = torch.randn(2, 3, 8, 8)
    expected = nn.Sequential(*(one.to_dense() if hasattr(one, "dense_weight") else one for one in model))(x)
    close(model(x), expected)


@pytest.mark.parametrize("form", ["blocks", "grid", "present elements", "all elements"])
def test_scores_of_convolutions_have_four_forms(form):
    model = nn.Sequential(nn.ConvTranspose2d(64, 64, 2, groups=2))
    of_blocks = torch.tensor([[3.0, 8], [7, 1], [5, 2], [4, 6]])

    def scores(name, layer):
        if form == "grid":
            return of_blocks
        of_elements = of_blocks.repeat_interleave(16, 0).repeat_interleave(16, 1)[:, :, None, None].repeat(1, 1, 2, 2)
        present = layer.blocks_of(of_elements)
        return {"blocks": present[:, 0, 0, 0], "present elements": present, "all elements": -of_elements}[form]

    sparsifier = Sparsifier(model, 3 / 8, 16, initial_density=6 / 8, end_step=1, scores=scores)
    assert model[0].layout == sparsekiln.Layout([[1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]])
    sparsifier.step()
    assert model[0].layout == sparsekiln.Layout([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]])


def test_scores_that_do_not_fit_a_convolution():
    sparsifier = Sparsifier(nn.Sequential(nn.Conv2d(32, 32, 3)), 0.5, 16, end_step=1, scores=lambda name, layer: torch.ones(7))
    with refused(ValueError, "0: the scores have the shape \\(7,\\)", "\\[4, 9, 16, 16\\] or \\[32, 32, 3, 3\\]"):
        sparsifier.step()
