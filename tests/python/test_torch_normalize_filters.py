"""normalize_filters: filters of unit length, times a gain, against the same of dense weights in float64."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from dense_convolution import LAYERS, TRANSPOSED, blocks_of, close, dense_weight, refused  # noqa: E402

from sparsekiln.torch import normalize_filters, weight_norm  # noqa: E402

LAYOUT = [[1, 0, 1], [0, 1, 0]]
MAKERS = {
    "conv": lambda **options: LAYERS[1](48, 32, 3, layout=LAYOUT, block=16, **options),
    "transposed": lambda **options: TRANSPOSED[2](32, 48, 2, layout=LAYOUT, block=16, **options),
}


def dense_result(layer, gain, upstream, eps):
    """The dense weight normalised: its filters of length 1, times gain; and gradients of the weight, in blocks, and the gain."""
    operands = [one.detach().double().requires_grad_() for one in (dense_weight(layer), gain)]
    others = [dim for dim in range(operands[0].dim()) if dim != layer.OUTPUTS]
    shape = [-1 if dim == layer.OUTPUTS else 1 for dim in range(operands[0].dim())]
    length = operands[0].square().sum(others, keepdim=True).clamp(min=eps).sqrt()
    normal = operands[0] / length * operands[1].reshape(shape)
    blocks = blocks_of(layer, normal)
    found = torch.autograd.grad(blocks, operands, upstream.double())
    return blocks.detach(), blocks_of(layer, found[0]), found[1]


@pytest.mark.parametrize("eps", [1e-12, 5.0], ids=["small", "large"])
@pytest.mark.parametrize("name", MAKERS)
def test_filters_have_unit_length_times_their_gain_and_its_gradients(name, eps):
    torch.manual_seed(0)
    layer = MAKERS[name]()
    gain = torch.randn(layer.out_channels, requires_grad=True)
    values = layer.weight_values.detach().clone().requires_grad_()
    upstream = torch.randn_like(values)
    got = normalize_filters(values, layer.layout, gain, eps, outputs=layer.OUTPUTS)
    got.backward(upstream)
    for found, wanted in zip((got.detach(), values.grad, gain.grad), dense_result(layer, gain, upstream, eps)):
        close(found, wanted)
    without = normalize_filters(values, layer.layout, eps=eps, outputs=layer.OUTPUTS)
    close(without.detach(), dense_result(layer, torch.ones_like(gain), upstream, eps)[0])


def test_it_is_what_weight_norm_computes():
    torch.manual_seed(1)
    layer = weight_norm(MAKERS["conv"]())
    gain, v = layer.parametrizations.weight_values.original0, layer.parametrizations.weight_values.original1
    assert torch.equal(normalize_filters(v, layer.layout, gain, 0), layer.weight_values)


def test_a_feature_of_zeros_stays_zero_and_blocks_after_the_layout_are_zeros():
    layer = MAKERS["conv"](max_blocks=5)
    values = layer.weight_values.detach().clone()
    values[: layer.layout.blocks, :, 3] = 0  # in each block
    values[layer.layout.blocks :] = 7
    for eps in (0, 1e-12):
        leaf = values.clone().requires_grad_()
        got = normalize_filters(leaf, layer.layout, eps=eps)
        got.sum().backward()
        assert not got[:, :, 3].any() and not got[layer.layout.blocks :].any() and torch.isfinite(leaf.grad).all()


def test_half_precisions_are_summed_in_float32():
    layer = MAKERS["conv"]()
    values = layer.weight_values.detach().half() * 300
    got = normalize_filters(values, layer.layout)
    assert got.dtype == torch.float16
    close(got.float(), normalize_filters(values.float(), layer.layout), 1e-3)


def test_arguments_that_do_not_fit_are_refused():
    layer = MAKERS["conv"]()
    values, layout = layer.weight_values.detach(), layer.layout
    with refused(ValueError, "outputs=2"):
        normalize_filters(values, layout, outputs=2)
    with refused(ValueError, "values have the shape", "3 blocks or more"):
        normalize_filters(values[:2], layout)
    with refused(ValueError, r"gain has the shape \(31,\); \[32\]"):
        normalize_filters(values, layout, torch.ones(31))
    with refused(ValueError, "eps is -1"):
        normalize_filters(values, layout, eps=-1)
