"""Block-sparse layers made of dense ones and of BSR tensors, one by one and in whole models."""

import gc

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from dense_layer import FUNCTIONS  # noqa: E402

import sparsekiln  # noqa: E402
from sparsekiln.torch import BlockSparseLinear, linear, sparsify_  # noqa: E402

F = torch.nn.functional


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def random_bsr(out_features=96, in_features=64, block=(32, 32), density=0.5):
    mask = torch.rand(out_features // block[0], in_features // block[1]) < density
    mask[0, 0], mask[-1] = True, False
    dense = torch.randn(out_features, in_features) * mask.repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)
    return dense.to_sparse_bsr(block), dense


# ---- from_linear ----


def test_from_linear_keeps_the_blocks_of_largest_norm():
    dense = torch.nn.Linear(64, 96)
    with torch.no_grad():
        dense.weight[32:64, :32] *= 10
        dense.weight[64:, 32:] *= 5
    layer = BlockSparseLinear.from_linear(dense, density=0.34)
    assert layer.layout == sparsekiln.Layout([[0, 0], [1, 0], [0, 1]])
    mask = torch.zeros(96, 64)
    mask[32:64, :32] = mask[64:, 32:] = 1
    assert torch.equal(layer.to_dense(), dense.weight * mask)
    assert torch.equal(layer.bias, dense.bias)


@pytest.mark.parametrize("features", [(64, 96), (33, 50), (8, 8)])
@pytest.mark.parametrize("bias", [True, False])
def test_from_linear_of_full_density_is_the_layer_itself(features, bias):
    dense = torch.nn.Linear(*features, bias=bias)
    layer = BlockSparseLinear.from_linear(dense, density=1)
    x = torch.randn(5, features[0])
    assert torch.equal(layer.to_dense(), dense.weight)
    torch.testing.assert_close(layer(x), dense(x), rtol=1e-4, atol=1e-5)


def test_from_linear_keeps_type_mode_and_frozen_weights():
    dense = torch.nn.Linear(64, 32, dtype=torch.bfloat16).eval()
    dense.weight.requires_grad_(False)
    layer = BlockSparseLinear.from_linear(dense, 0.5)
    assert layer.weight_values.dtype == torch.bfloat16 and not layer.training
    assert not layer.weight_values.requires_grad and layer.bias.requires_grad


def test_from_linear_keeps_one_block_at_least():
    assert BlockSparseLinear.from_linear(torch.nn.Linear(64, 64), 0.001).layout.blocks == 1


def test_from_linear_takes_a_layout():
    dense = torch.nn.Linear(64, 32)
    layer = BlockSparseLinear.from_linear(dense, layout=[[0, 1]], activation="relu")
    x = torch.randn(3, 64)
    torch.testing.assert_close(layer(x), torch.relu(F.linear(x[:, 32:], dense.weight[:, 32:], dense.bias)))


# ---- BSR tensors ----


@pytest.mark.parametrize("block", [(32, 32), (8, 16), (16, 16)])
def test_from_bsr(block):
    bsr, dense = random_bsr(block=block)
    layer = BlockSparseLinear.from_bsr(bsr, torch.arange(96.0), activation="relu")
    x = torch.randn(3, 64)
    torch.testing.assert_close(layer(x), torch.relu(F.linear(x, dense, torch.arange(96.0))), rtol=1e-4, atol=1e-4)
    assert torch.equal(layer.to_bsr().detach().to_dense(), dense)
    with torch.no_grad():
        layer.weight_values.zero_()
    assert bsr.values().any()


@pytest.mark.parametrize("activation", [None, "gelu"])
@pytest.mark.parametrize("index_type", [torch.int32, torch.int64])
def test_linear_on_a_bsr_tensor(activation, index_type):
    bsr, dense = random_bsr()
    indices = bsr.crow_indices().to(index_type), bsr.col_indices().to(index_type)
    values = bsr.values().clone().requires_grad_()
    weight = torch.sparse_bsr_tensor(*indices, values, size=bsr.shape, check_invariants=True)
    x, bias = torch.randn(2, 5, 64, requires_grad=True), torch.randn(96, requires_grad=True)
    dy = torch.randn(2, 5, 96)
    linear(x, weight, bias, activation).backward(dy)
    found = x.grad, bias.grad
    dense.requires_grad_()
    y = FUNCTIONS[activation or "none"](F.linear(x, dense, bias))
    expected = torch.autograd.grad(y, (x, bias, dense), dy)
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    layout = sparsekiln.Layout(bsr)
    kept = BlockSparseLinear.from_linear(torch.nn.Linear(64, 96), layout=layout)
    kept._copy_dense(expected[2], None)
    torch.testing.assert_close(values.grad, kept.weight_values.detach(), rtol=1e-4, atol=1e-4)


def test_a_bsr_tensor_that_is_a_leaf_has_a_gradient_by_torch_autograd_grad():
    bsr, dense = random_bsr()
    x = torch.randn(3, 64)
    bsr.requires_grad_()
    (gradient,) = torch.autograd.grad(linear(x, bsr).square().sum(), bsr)
    dense.requires_grad_()
    (expected,) = torch.autograd.grad(F.linear(x, dense).square().sum(), dense)
    mask = bsr.detach().to_dense() != 0
    torch.testing.assert_close(gradient.to_dense(), expected * mask, rtol=1e-4, atol=1e-3)


def test_linear_reads_the_values_where_they_are():
    bsr, dense = random_bsr()
    x = torch.randn(3, 64)
    before = linear(x, bsr)
    bsr.values().mul_(2)
    torch.testing.assert_close(linear(x, bsr), 2 * before)


def test_bsr_tensors_that_follow_one_another_are_told_apart():
    x = torch.randn(3, 64)
    for density in (0.3, 0.6, 0.3, 0.9, 0.5):
        bsr, dense = random_bsr(density=density)
        torch.testing.assert_close(linear(x, bsr), F.linear(x, dense), rtol=1e-4, atol=1e-4)
        del bsr
        gc.collect()


def test_indices_of_a_bsr_tensor_that_are_written_to_are_heeded():
    mask = torch.tensor([[1.0, 0], [0, 1]]).repeat_interleave(32, 0).repeat_interleave(32, 1)
    bsr = (torch.randn(64, 64) * mask).to_sparse_bsr((32, 32))
    x = torch.randn(3, 64)
    linear(x, bsr)
    bsr.col_indices().copy_(torch.tensor([1, 0]))
    torch.testing.assert_close(linear(x, bsr), F.linear(x, bsr.to_dense()), rtol=1e-4, atol=1e-4)


def test_linear_and_what_it_calls_are_not_compiled():
    bsr, dense = random_bsr()
    graphs = []

    def backend(module, inputs):
        graphs.append(module)
        return module.forward

    def model(x):
        return linear(x, bsr)

    torch.compiler.reset()
    compiled, x = torch.compile(model, backend=backend), torch.randn(3, 64)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), F.linear(x, dense), rtol=1e-4, atol=1e-4)
    assert not graphs


# ---- sparsify_ ----


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(10, 64)
        self.encoder = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 64, bias=False))
        self.head = torch.nn.Linear(64, 10)

    def forward(self, tokens):
        return self.head(self.encoder(self.embed(tokens)))


def kinds(model):
    return {name: type(one).__name__ for name, one in model.named_modules() if "Linear" in type(one).__name__}


def test_it_replaces_all_dense_layers_and_says_so():
    model = Model()
    report = sparsify_(model, density=0.5, block=16, leave_small=False)
    assert set(kinds(model).values()) == {"BlockSparseLinear"}
    assert [one.name for one in report.replaced] == ["encoder.0", "encoder.2", "head"]
    first = next(one for one in report.layers if one.name == "encoder.0")
    assert (first.shape, first.blocks, first.of) == ((128, 64), 16, 32)
    assert 0.5 < first.norm_kept < 1
    lines = str(report).splitlines()
    assert any("encoder.0" in line and "128 × 64" in line and "16 of 32" in line and "%" in line for line in lines)
    assert lines[-1].startswith("3 of 3 layers replaced, ")
    assert model(torch.tensor([[1, 2]])).shape == (1, 2, 10)


def test_at_full_density_a_model_gives_the_same():
    model, tokens = Model(), torch.tensor([[1, 2, 3], [4, 5, 6]])
    expected = model(tokens)
    report = sparsify_(model, density=1, leave_small=False)
    assert all(one.norm_kept == pytest.approx(1) for one in report.layers)
    torch.testing.assert_close(model(tokens), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "where", ["encoder.*", ["encoder.0", "encoder.2"], lambda name, layer: name != "head" and layer.in_features >= 64]
)
def test_where_chooses(where):
    model = Model()
    report = sparsify_(model, 0.5, 32, where)
    assert kinds(model) == {"encoder.0": "BlockSparseLinear", "encoder.2": "BlockSparseLinear", "head": "Linear"}
    assert len(report.layers) == 2


def test_a_tied_weight_stays_tied():
    model = Model()
    model.embed = torch.nn.Embedding(10, 64)
    model.head.weight = model.embed.weight
    report = sparsify_(model, 0.5)
    assert model.head.weight is model.embed.weight
    assert [(one.name, one.skipped) for one in report.skipped] == [("head", "shares its weight with embed")]
    assert "shares its weight with embed" in str(report)


def test_a_layer_that_stands_in_two_places_stays_one_layer():
    shared = torch.nn.Linear(64, 64)
    model = torch.nn.Sequential(shared, torch.nn.ReLU(), shared)
    report = sparsify_(model, 0.5)
    assert isinstance(model[0], BlockSparseLinear) and model[0] is model[2]
    assert len(report.layers) == 1


def test_a_layer_in_two_places_is_found_by_either_name():
    shared = torch.nn.Linear(64, 64)
    model = torch.nn.Sequential(shared, torch.nn.ReLU(), shared)
    assert [one.name for one in sparsify_(model, 0.5, where="2").replaced] == ["2"]
    assert isinstance(model[0], BlockSparseLinear) and model[0] is model[2]


def test_subclasses_hooks_and_complex_weights_are_left_alone():
    model = torch.nn.Sequential(
        torch.nn.modules.linear.NonDynamicallyQuantizableLinear(32, 32), torch.nn.Linear(32, 32), torch.nn.Linear(32, 32, dtype=torch.complex64)
    )
    model[1].register_forward_hook(lambda *_: None)
    report = sparsify_(model, 0.5)
    assert [one.skipped for one in report.layers] == ["is a NonDynamicallyQuantizableLinear", "has hooks", "is torch.complex64"]
    assert not any(isinstance(one, BlockSparseLinear) for one in model)


@pytest.mark.parametrize("mask", [False, True])
def test_a_transformer_encoder_goes_on_working(mask):
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0, batch_first=True, activation="gelu")
    model = torch.nn.TransformerEncoder(layer, 2).eval()
    x = torch.randn(2, 6, 64)
    padding = torch.tensor([[False] * 6, [False] * 4 + [True] * 2]) if mask else None
    keep = slice(None) if padding is None else ~padding
    with torch.no_grad():
        expected = model(x, src_key_padding_mask=padding)
    report = sparsify_(model, density=1)
    assert len(report.replaced) == 4 and len(report.skipped) == 2
    with torch.no_grad():
        torch.testing.assert_close(model(x, src_key_padding_mask=padding)[keep], expected[keep], rtol=1e-4, atol=1e-5)
    trained = model(x, src_key_padding_mask=padding)[keep]
    torch.testing.assert_close(trained, expected[keep], rtol=1e-4, atol=1e-5)


def test_a_pruned_model_trains():
    model, tokens, target = Model(), torch.randint(0, 10, (16, 4)), torch.randint(0, 10, (64,))
    sparsify_(model, 0.5, 16)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(20):
        optimiser.zero_grad()
        loss = F.cross_entropy(model(tokens).reshape(-1, 10), target)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


# ---- sparsify_: a density for each layer ----


def blocks_by_name(report):
    return {one.name: one.blocks for one in report.replaced}


def test_densities_are_given_by_patterns_of_which_the_first_that_fits_counts():
    model = Model()
    report = sparsify_(model, {"encoder.0": 0.25, "head": None, "*": 0.75}, 16)
    assert blocks_by_name(report) == {"encoder.0": 8, "encoder.2": 24}
    assert [(one.name, one.skipped) for one in report.skipped] == [("head", "no density is given for it")]


def test_a_layer_that_no_pattern_of_a_density_fits_stays_dense():
    model = Model()
    report = sparsify_(model, {"encoder.2": 0.5}, 16)
    assert kinds(model) == {"encoder.0": "Linear", "encoder.2": "BlockSparseLinear", "head": "Linear"}
    assert [one.name for one in report.skipped] == ["encoder.0", "head"]


def test_a_density_is_a_function_of_name_and_layer():
    model = Model()
    report = sparsify_(model, lambda name, layer: 0.5 if layer.out_features == 128 else 1 if "encoder" in name else None, 16)
    assert blocks_by_name(report) == {"encoder.0": 16, "encoder.2": 32}


@pytest.mark.parametrize("density", [0, -0.1, 1.5, {"encoder.2": 7.0}, lambda name, layer: 0.0])
def test_what_is_no_density_is_refused_by_name_before_anything_is_replaced(density):
    model = Model()
    with pytest.raises(ValueError, match="a density of .* for encoder"):
        sparsify_(model, density, 16)
    assert set(kinds(model).values()) == {"Linear"}


# ---- sparsify_: scores ----


def linear_with_scores(scores, density=0.25):
    model = torch.nn.Sequential(torch.nn.Linear(64, 64))
    sparsify_(model, density, 32, scores=scores)
    return model[0].layout


def test_a_score_for_each_block_decides():
    assert linear_with_scores(lambda name, layer: torch.tensor([[1, 2], [9, 3]])) == sparsekiln.Layout([[0, 0], [1, 0]])
    assert linear_with_scores(lambda name, layer: -torch.tensor([[1, 2], [9, 3]])) == sparsekiln.Layout([[1, 0], [0, 0]])


def test_scores_of_elements_are_summed_by_their_absolute_values():
    def scores(name, layer):
        each = torch.zeros(64, 64)
        each[:32, :32] = 1.0
        each[:32, 32:] = torch.tensor([3.0, -3.0]).repeat(16)  # their sum is 0
        each[40, 50] = 500.0
        return each

    assert linear_with_scores(scores) == sparsekiln.Layout([[0, 1], [0, 0]])


def test_gradient_times_weight_is_a_score():
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64))
    x = torch.cat([torch.zeros(8, 32), torch.randn(8, 32)], 1)  # the first inputs have no influence
    with torch.no_grad():
        model[0].weight[:, :32] *= 100
    model(x).square().sum().backward()
    sparsify_(model, 0.5, 32, scores=lambda name, layer: layer.weight.grad * layer.weight)
    assert model[0].layout == sparsekiln.Layout([[0, 1], [0, 1]])


def test_the_squares_of_the_weight_are_the_default_score():
    dense = torch.nn.Linear(96, 80)
    expected = BlockSparseLinear.from_linear(dense, 0.4, 16).layout
    model = torch.nn.Sequential(dense)
    sparsify_(model, 0.4, 16, scores=lambda name, layer: layer.weight**2)
    assert model[0].layout == expected


@pytest.mark.parametrize(
    "scores, says", [(torch.ones(3, 2), r"0: .*\(3, 2\); \[2, 2\], .* or \[64, 64\]"), (torch.full((2, 2), torch.nan), "0: .*NaN")]
)
def test_scores_of_another_shape_and_nan_are_refused(scores, says):
    with pytest.raises(ValueError, match=says):
        linear_with_scores(lambda name, layer: scores)


# ---- sparsify_: what it leaves alone, and says ----


@pytest.mark.parametrize(
    "layer, density, says",
    [
        (torch.nn.Linear(768, 40), 0.5, "its 40 outputs are less than two blocks of 32"),
        (torch.nn.Linear(10, 256), 0.5, "its 10 inputs are less than two blocks of 32"),
        (torch.nn.Linear(96, 96), 0.1, "0.1 of its 9 blocks is less than one"),
    ],
)
def test_small_layers_are_left_alone_and_named(layer, density, says):
    model = torch.nn.Sequential(layer)
    report = sparsify_(model, density)
    assert model[0] is layer
    assert says in report.layers[0].skipped and "leave_small=False" in str(report)
    assert len(sparsify_(model, density, leave_small=False).replaced) == 1


def test_a_layer_of_two_blocks_each_way_is_not_small():
    assert sparsify_(torch.nn.Sequential(torch.nn.Linear(64, 64)), 0.25).replaced


def test_a_lazy_layer_is_reported_until_it_has_a_weight():
    model = torch.nn.Sequential(torch.nn.LazyLinear(64), torch.nn.Linear(64, 64))
    report = sparsify_(model, 0.5)
    (lazy,) = report.skipped
    assert (lazy.name, lazy.shape) == ("0", (64, 0))
    assert "has no weight yet: call the model once" in lazy.skipped and "64 × ?" in str(report)
    model(torch.randn(2, 96))
    assert [one.name for one in sparsify_(model, 0.5).replaced] == ["0"]


def test_a_pattern_that_fits_no_layer_is_named_in_a_warning_and_in_the_report():
    with pytest.warns(UserWarning, match="No layer's name fits 'encodr.*'"):
        report = sparsify_(Model(), 0.5, 16, where=["encoder.0", "encodr.*"])
    assert [one.name for one in report.replaced] == ["encoder.0"]
    assert "encodr" in str(report).splitlines()[-1]
    with pytest.warns(UserWarning, match="'decoder.*'"):
        sparsify_(Model(), {"encoder.*": 0.5, "decoder.*": 0.1}, 16)


def test_where_nothing_was_chosen_the_warning_has_names_of_layers():
    with pytest.warns(UserWarning, match=r"No layer was chosen; the model has encoder\.0, encoder\.2, head"):
        assert not sparsify_(Model(), 0.5, 16, where=lambda name, layer: False).layers
    with pytest.warns(UserWarning, match="has no nn.Linear"):
        sparsify_(torch.nn.Sequential(torch.nn.ReLU()))


def test_a_model_that_is_sparse_already_says_so_without_a_warning(recwarn):
    model = Model()
    sparsify_(model, 0.5, 16, where="encoder.*")
    before = model.encoder[0]
    report = sparsify_(model, 0.5, 16, where="encoder.*")
    assert model.encoder[0] is before and not report.replaced and not recwarn.list
    assert "block-sparse already" in report.message and "is block-sparse already" in str(report)
