"""fuse_conv_bn: batch normalisation in eval mode, folded into the convolution before it."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from dense_convolution import LAYERS, TRANSPOSED, close, refused  # noqa: E402

from sparsekiln.torch import BlockSparseConv1d, BlockSparseConv2d, BlockSparseConvTranspose2d, fuse_conv_bn, fuse_conv_bn_  # noqa: E402

nn = torch.nn


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def trained(norm):
    """A norm in eval mode with statistics, and weights, of its own."""
    for tensor in (norm.running_mean, norm.weight, norm.bias):
        if tensor is not None:
            nn.init.normal_(tensor)
    nn.init.uniform_(norm.running_var, 0.5, 3)
    return norm.eval()


@pytest.mark.parametrize("layers", [LAYERS, TRANSPOSED])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("bias, affine", [(True, True), (False, False)])
def test_a_norm_is_folded_into_a_convolution(layers, dimensions, bias, affine):
    conv = layers[dimensions](32, 64, 3, groups=2, bias=bias, density=0.5, block=(8, 16)).eval()
    norm = trained(getattr(nn, f"BatchNorm{dimensions}d")(64, affine=affine))
    x = torch.randn(2, 32, *(5, 4, 3)[:dimensions])
    before, expected = copy.deepcopy(conv.state_dict()), norm(conv(x))
    fused = fuse_conv_bn(conv, norm)
    assert type(fused) is type(conv) and fused is not conv and not fused.training
    close(fused(x), expected)
    assert all(torch.equal(conv.state_dict()[name], one) for name, one in before.items())


def test_folded_weights_are_of_the_convolutions_type_and_room():
    conv = BlockSparseConv2d(32, 32, 3, layout=[[1, 0], [1, 1]], block=16, max_blocks=4, dtype=torch.bfloat16).eval()
    conv.weight_values.requires_grad_(False)
    fused = fuse_conv_bn(conv, trained(nn.BatchNorm2d(32)))
    assert fused.weight_values.dtype == fused.bias.dtype == torch.bfloat16
    assert not fused.weight_values.requires_grad and fused.bias.requires_grad and fused.max_blocks == 4


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(BlockSparseConv2d(32, 32, 3, padding=1, block=16), nn.BatchNorm2d(32))
        self.up = BlockSparseConvTranspose2d(32, 32, 3, padding=1, bias=False, block=16)
        self.norm = nn.BatchNorm2d(32)
        self.kept = BlockSparseConv2d(32, 32, 1, block=16)
        self.after_two_uses = nn.BatchNorm2d(32)
        self.dense, self.after_dense = nn.Conv2d(32, 32, 1), nn.BatchNorm2d(32)

    def forward(self, x):
        x = torch.relu(x + self.body(x))
        y = self.kept(self.norm(self.up(x)))
        return self.after_dense(self.dense(y + self.after_two_uses(y)))


def test_norms_of_a_model_are_folded_where_the_trace_allows():
    model = Residual().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            trained(module)
    x = torch.randn(2, 32, 5, 5)
    expected = model(x)
    assert fuse_conv_bn_(model) == ["body.1", "norm"]
    assert isinstance(model.norm, nn.Identity) and model.up.bias is not None and isinstance(model.after_two_uses, nn.BatchNorm2d)
    close(model(x), expected)


def test_modules_that_are_called_twice_keep_their_norm():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = BlockSparseConv1d(16, 16, 1, block=16), nn.BatchNorm1d(16)

        def forward(self, x):
            return self.norm(self.conv(self.norm(self.conv(x))))

    assert fuse_conv_bn_(Twice().eval()) == []


def test_modules_with_hooks_stay():
    for place in (0, 1):
        model = nn.Sequential(BlockSparseConv1d(16, 16, 1, block=16), trained(nn.BatchNorm1d(16))).eval()
        model[place].register_forward_hook(lambda module, given, result: result + 1)
        x = torch.randn(2, 16, 4)
        expected = model(x)
        assert fuse_conv_bn_(model) == [] and torch.equal(model(x), expected)


def test_a_model_is_refused_before_it_is_changed():
    model = nn.Sequential(*(one for _ in range(2) for one in (BlockSparseConv1d(16, 16, 1, block=16), nn.BatchNorm1d(16)))).eval()
    model[3].train()
    with refused(ValueError, "BatchNorm1d in training mode"):
        fuse_conv_bn_(model)
    assert isinstance(model[1], nn.BatchNorm1d)


@pytest.mark.parametrize(
    "conv, norm, error, words",
    [
        ({}, lambda: nn.BatchNorm2d(32), ValueError, ("BatchNorm2d in training mode", "eval")),
        ({"training": True}, lambda: nn.BatchNorm2d(32).eval(), ValueError, ("BlockSparseConv2d in training mode",)),
        ({}, lambda: nn.BatchNorm2d(32, track_running_stats=False).eval(), ValueError, ("without running statistics",)),
        ({}, lambda: nn.BatchNorm2d(16).eval(), ValueError, ("16 features", "32 output channels")),
        ({}, lambda: nn.GroupNorm(2, 32).eval(), TypeError, ("a GroupNorm", "BatchNorm1d, 2d or 3d")),
        ({"weight_norm": True}, lambda: nn.BatchNorm2d(32).eval(), ValueError, ("parametrization", "remove_parametrizations")),
    ],
)
def test_norms_that_cannot_be_folded(conv, norm, error, words):
    layer = BlockSparseConv2d(32, 32, 3, block=16).train("training" in conv)
    if "weight_norm" in conv:
        nn.utils.parametrizations.weight_norm(layer, "weight_values")
    with refused(error, *words):
        fuse_conv_bn(layer, norm())


def test_a_dense_convolution_is_told_where_to_go():
    with refused(TypeError, "a Conv2d", "fuse_conv_bn_eval"):
        fuse_conv_bn(nn.Conv2d(8, 8, 1).eval(), nn.BatchNorm2d(8).eval())
