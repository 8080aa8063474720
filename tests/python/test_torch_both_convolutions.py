"""What holds for BlockSparseConvNd and BlockSparseConvTransposeNd alike."""

import copy
import pickle

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from dense_convolution import (  # noqa: E402
    LAYERS, TRANSPOSED, blocks_of, check, check_no_images, close, images, pairwise, poison_beyond, refused,
)  # fmt: skip
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

pytestmark = pytest.mark.parametrize("layers", [LAYERS, TRANSPOSED], ids=["convolution", "transposed"])
KERNELS = pytest.mark.parametrize("kernel", [1, 3])


def make_layer(layers, dimensions=2, kernel=3, in_channels=48, out_channels=32, block=16, seed=0, density=0.5, **options):
    torch.manual_seed(seed)
    return layers[dimensions](in_channels, out_channels, kernel, density=density, block=block, **options)


# ---- values and gradients ----


def test_rows_and_columns_without_blocks(layers):
    layer = make_layer(layers, out_channels=48, padding=1, layout=[[1, 0, 0], [0, 0, 0], [0, 1, 0]])
    check(layer, images(layer, 2, (5, 5)))


def test_no_images(layers):
    check_no_images(make_layer(layers, padding=1), (5, 6))


RAGGED = pairwise(
    {
        "dimensions": (1, 2, 3), "kernel": (1, 2, 3), "stride": (1, 2), "padding": (0, 1), "in_channels": (3, 16, 20, 37),
        "out_channels": (1, 10, 32, 37), "block": (8, 16, (16, 32), (32, 16)), "dtype": ("float32", "bfloat16", "float16", "float64"),
        "channels_last": (False, True), "bias": (True, False),
    },
    lambda case: case["in_channels"] % 16 or case["out_channels"] % 16,
)  # fmt: skip


@pytest.mark.parametrize("case", RAGGED, ids=lambda case: "-".join(map(str, case.values())))
def test_channels_that_fill_no_whole_blocks(layers, case):
    options = {name: value for name, value in case.items() if name not in ("dtype", "channels_last")}
    layer = make_layer(layers, **options, density=0.7, dtype=getattr(torch, case["dtype"]))
    poison_beyond(layer)
    check(layer, images(layer, 3, (6, 5, 4)[: case["dimensions"]], case["channels_last"]))


@KERNELS
@pytest.mark.parametrize("stride", [1, 2])
def test_second_derivatives(layers, kernel, stride):
    layer = make_layer(layers, kernel=kernel, in_channels=8, out_channels=8, block=8, density=1, stride=stride, padding=kernel // 2)
    dense = layer.to_dense()
    results = []
    for module, weight in ((layer, layer.weight_values), (dense, dense.weight)):
        x = images(layer, 2, (5, 4)).requires_grad_()
        dx, dw = torch.autograd.grad(module(x).square().sum(), (x, weight), create_graph=True)
        (dx.square().sum() + dw.square().sum()).backward()
        results.append((x.grad, weight.grad))
    close(results[0][0], results[1][0])
    close(results[0][1], blocks_of(layer, results[1][1]))


@KERNELS
def test_gradients_are_those_of_finite_differences(layers, kernel):
    layer = make_layer(layers, kernel=kernel, in_channels=16, out_channels=16, block=8, stride=kernel)
    x = images(layer, 2, (4, 3)).requires_grad_()
    operands = {"x": x, "weight_values": layer.weight_values, "bias": layer.bias}
    dy = torch.randn(layer(x).shape)
    gradients = dict(zip(operands, torch.autograd.grad(layer(x), operands.values(), dy)))

    def loss(**changed):
        x, *weights = (operands | changed).values()
        y = torch.func.functional_call(layer, dict(zip(("weight_values", "bias"), weights)), (x,))
        return (y.detach().double() * dy).sum()

    for name, operand in operands.items():  # y is linear in each of them, so that large steps are exact
        direction = torch.randn(operand.shape)
        difference = (loss(**{name: operand + direction}) - loss(**{name: operand - direction})) / 2
        derivative = (gradients[name].double() * direction).sum()
        assert abs(difference - derivative) <= 1e-5 * gradients[name].norm() * direction.norm()
        assert abs(derivative) > 1e-3 * gradients[name].norm()


def test_batched_gradients(layers):
    layer = make_layer(layers, padding=1)
    layer.weight_values.requires_grad_(False)
    x = images(layer, 2, (5, 6)).requires_grad_()
    y = layer(x)
    dys = torch.randn(3, *y.shape)
    for number, batched in enumerate(torch.autograd.grad(y, (x, layer.bias), dys, is_grads_batched=True, retain_graph=True)):
        close(batched, torch.stack([torch.autograd.grad(y, (x, layer.bias), dy, retain_graph=True)[number] for dy in dys]))


def test_memory_formats_of_dense_weights_leave_the_blocks_as_they_are(layers):
    for dimensions, form in ((2, torch.channels_last), (3, torch.channels_last_3d)):
        layer = make_layer(layers, dimensions)
        before = layer.weight_values.detach().clone()
        layer.to(memory_format=form)
        assert layer.weight_values.is_contiguous() and torch.equal(layer.weight_values, before)
        check(layer, images(layer, 2, (5, 4, 3)[:dimensions], True))


def test_a_bias_without_a_gradient_of_the_weight(layers):
    layer = make_layer(layers, padding=1)
    layer.weight_values.requires_grad_(False)
    y = layer(images(layer, 2, (5, 6)))
    y.sum().backward()
    close(layer.bias.grad, torch.full((32,), 60.0))


# ---- memory formats and shapes ----


@KERNELS
@pytest.mark.parametrize("extents", [(1, 1), (3, 1), (3, 4)])
@pytest.mark.parametrize("n", [0, 1, 2])
@pytest.mark.parametrize("channels_last", [False, True])
def test_strides_are_those_of_a_dense_layer(layers, kernel, extents, n, channels_last):
    layer = make_layer(layers, kernel=kernel, padding=kernel // 2)
    x = images(layer, n, extents)
    x = x.to(memory_format=torch.channels_last) if channels_last and n else x
    y = layer(x)
    assert y.is_contiguous(memory_format=torch.channels_last) if channels_last and n else y.is_contiguous()
    if layers is LAYERS or min(extents) > 1 or not channels_last:
        assert y.stride() == layer.to_dense()(x).stride()


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_an_image_without_a_batch(layers, dimensions):
    layer = make_layer(layers, dimensions, stride=2)
    x = images(layer, 1, (5, 6, 4)[:dimensions])
    y = layer(x[0])
    assert y.dim() == dimensions + 1 and torch.equal(y, layer(x)[0])


# ---- from and to dense, copies ----


@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
def test_all_blocks_of_a_dense_layer_are_that_layer(layers, dimensions, groups):
    torch.manual_seed(0)
    dense = layers[dimensions].dense_class(32, 64, 3, stride=2, padding=1, groups=groups)
    layer = layers[dimensions].from_conv(dense, density=1, block=16)
    assert layer.layout.shape == ((4, 2) if layers is LAYERS else (2, 4)) and layer.layout.blocks == 8 // groups
    back = layer.to_dense()
    assert torch.equal(back.weight, dense.weight) and torch.equal(back.bias, dense.bias)
    assert repr(back) == repr(dense)
    x = images(layer, 2, (7, 6, 5)[:dimensions])
    close(layer(x), dense(x))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("block", [(16, 8), (8, 16)])
def test_the_strongest_blocks_are_taken(layers, groups, block):
    torch.manual_seed(0)
    dense = layers[2].dense_class(64, 64, 3, groups=groups, bias=False).eval().requires_grad_(False)
    rows, columns = 64 // block[0], 64 // groups // block[1]
    norms = dense.weight.reshape(rows, block[0], columns, block[1], 9).square().sum((1, 3, 4)).flatten()
    layer = layers[2].from_conv(dense, density=0.25, block=block)
    assert layer.layout.blocks == norms.numel() // 4
    assert layer.bias is None and not layer.training and not layer.weight_values.requires_grad
    kept = layer.weight_values.square().sum((1, 2, 3)).sort().values
    close(kept, norms.sort().values[-kept.numel() :])


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])
def test_copies_and_states(layers, copied):
    layer, other = make_layer(layers, stride=2), make_layer(layers, stride=2, seed=1, density=0.9)
    x = images(layer, 2, (5, 6))
    other.load_state_dict(layer.state_dict())
    for one in (copied(layer), other):
        assert one.layout == layer.layout and torch.equal(one(x), layer(x))


# ---- other layouts ----


@KERNELS
@pytest.mark.parametrize("max_blocks", [None, 5])
def test_relayout_keeps_the_blocks_that_stay_and_what_the_optimizer_knows(layers, kernel, max_blocks):
    layer = make_layer(layers, kernel=kernel, out_channels=48, layout=[[1, 0, 0], [1, 1, 0], [0, 0, 1]], max_blocks=max_blocks)
    optimizer = torch.optim.Adam(layer.parameters())
    x = images(layer, 2, (5, 4))
    for _ in range(2):
        layer(x).square().sum().backward()
        optimizer.step()
    before, gradient = layer.dense_weight().detach(), layer.weight_values.grad.clone()
    moments = optimizer.state[layer.weight_values]["exp_avg"].clone()
    origin = layer.relayout([[0, 1, 0], [1, 1, 1], [0, 0, 1]], optimizer)
    assert origin.tolist() == [-1, 1, 2, -1, 3]
    mask = torch.from_numpy(layer.layout.mask()).repeat_interleave(16, 0).repeat_interleave(16, 1)[:, :, None, None]
    assert torch.equal(layer.dense_weight(), before * mask)
    for moved, old in ((layer.weight_values.grad, gradient), (optimizer.state[layer.weight_values]["exp_avg"], moments)):
        assert torch.equal(moved[[1, 2, 4]], old[1:4]) and not moved[[0, 3]].any() and old[1:4].any()
    check(layer, x)
    optimizer.step()


@KERNELS
def test_room_for_blocks_has_no_effect_and_gradients_of_zeros(layers, kernel):
    layer = make_layer(layers, kernel=kernel, in_channels=32, layout=[[1, 0], [1, 1]], max_blocks=4)
    with torch.no_grad():
        layer.weight_values[3] = torch.nan
    x = images(layer, 2, (5, 4)).requires_grad_()
    y, wanted = layer(x), layer.to_dense()(x)
    close(y, wanted)
    gradient, dx = torch.autograd.grad(y.square().sum(), (layer.weight_values, x))
    assert gradient.shape == (4, kernel * kernel, 16, 16) and not gradient[3].any() and gradient[:3].any()
    close(dx, torch.autograd.grad(wanted.square().sum(), x)[0])


# ---- what PyTorch does with layers ----


def test_the_operators_pass_the_checks_of_pytorch(layers):
    layer = make_layer(layers, in_channels=16, out_channels=8, block=8, stride=2)
    form, output = layer._form.as_list(), [] if layers is LAYERS else [[5, 7]]
    x = torch.randn(2, *((5, 7) if layers is LAYERS else (2, 3)), 16, requires_grad=True)
    name = "convolution" if layers is LAYERS else "convolution_transposed"
    torch.library.opcheck(
        getattr(torch.ops.sparsekiln, name).default,
        (x, layer.weight_values, layer.bias, layer.crow_indices, layer.col_indices, 8, *output, form, ""),
        test_utils=("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"),
    )


@KERNELS
def test_compiled_code_is_one_graph(layers, kernel):
    layer = make_layer(layers, kernel=kernel, stride=kernel)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for n, channels_last in ((3, False), (5, False), (3, True)):
        x = images(layer, n, (6, 5), channels_last)
        layer.zero_grad()
        layer(x).square().sum().backward()
        wanted = [one.grad.clone() for one in layer.parameters()]
        layer.zero_grad()
        y = compiled(x)
        y.square().sum().backward()
        assert torch.equal(y, layer(x)) and y.stride() == layer(x).stride()
        for one, gradient in zip(layer.parameters(), wanted):
            close(one.grad, gradient)


@KERNELS
def test_an_exported_program_takes_any_batch(layers, kernel):
    layer = make_layer(layers, kernel=kernel)
    shapes = {"x": {0: torch.export.Dim("n", min=1, max=64)}}
    program = torch.export.export(layer, (images(layer, 3, (6, 5)),), dynamic_shapes=shapes).module()
    for n in (1, 7):
        x = images(layer, n, (6, 5))
        assert torch.equal(program(x), layer(x))


@KERNELS
def test_autocast(layers, kernel):
    layer = make_layer(layers, kernel=kernel)
    x = images(layer, 2, (6, 5))
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
    assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert layer.weight_values.grad.dtype == torch.float32
    close(y.float(), layer(x), 1e-2)


@KERNELS
def test_vmap_over_a_batch_of_batches(layers, kernel):
    layer = make_layer(layers, kernel=kernel, stride=kernel).requires_grad_(False)
    x = torch.randn(3, 2, 48, 5, 5)
    close(torch.vmap(layer)(x), torch.stack([layer(one) for one in x]))


def test_meta_tensors(layers):
    y = make_layer(layers, stride=2, device="meta")(torch.randn(2, 48, 5, 6, device="meta"))
    assert y.is_meta and y.shape == ((2, 32, 2, 2) if layers is LAYERS else (2, 32, 11, 13))


@KERNELS
def test_the_flop_counter_counts_present_blocks(layers, kernel):
    layer = make_layer(layers, kernel=kernel, padding=kernel // 2)
    x = images(layer, 2, (5, 6)).requires_grad_()
    with FlopCounterMode(display=False) as counter:
        layer(x).sum().backward()
    assert counter.get_total_flops() == 3 * 2 * layer.weight_values.numel() * 2 * 5 * 6


def test_derivatives_of_torch_func_where_it_is_a_linear_layer(layers):
    layer, x = make_layer(layers, kernel=1), torch.randn(2, 48, 3, 4)
    dense = layer.to_dense()
    found, wanted = (torch.func.grad(lambda x: module(x).square().sum())(x) for module in (layer, dense))
    close(found, wanted)


# ---- refusals ----


def test_an_input_of_other_channels(layers):
    for shape in ((2, 32, 5, 5), (48, 5), (1, 2, 48, 5, 5), (5, 5, 48)):
        with refused(ValueError, "shape", "\\[n, 48, height, width\\] or \\[48, height, width\\]"):
            make_layer(layers)(torch.zeros(shape))


@KERNELS
def test_an_input_of_another_type(layers, kernel):
    with refused(TypeError, "float64", "float32", "to()"):
        make_layer(layers, kernel=kernel)(torch.zeros(1, 48, 5, 5, dtype=torch.float64))


def test_from_conv_of_another_layer(layers):
    other = torch.nn.ConvTranspose2d if layers is LAYERS else torch.nn.Conv2d
    for dense in (other(8, 8, 1), torch.nn.Linear(8, 8), layers[1].dense_class(8, 8, 1)):
        with refused(TypeError, f"given a {type(dense).__name__}", f"it takes a {layers[2].dense_class.__name__}"):
            layers[2].from_conv(dense, block=8)


@KERNELS
def test_forward_mode_derivatives(layers, kernel):
    layer = make_layer(layers, kernel=kernel)
    x = images(layer, 1, (5, 5))
    with torch.autograd.forward_ad.dual_level(), refused(NotImplementedError, "forward-mode"):
        layer(torch.autograd.forward_ad.make_dual(x, x))


def test_derivatives_of_torch_func(layers):
    layer = make_layer(layers)
    dense, x = layer.to_dense(), images(layer, 2, (5, 5))

    def loss(one, parameters, x):
        return torch.func.functional_call(one, parameters, (x,)).square().sum()

    ours = {name: one.detach() for name, one in layer.named_parameters()}
    theirs = {name: one.detach() for name, one in dense.named_parameters()}
    of_x = torch.func.grad(loss, 2)
    torch.testing.assert_close(of_x(layer, ours, x), of_x(dense, theirs, x), rtol=1e-4, atol=1e-4)
    found = torch.func.grad(loss, 1)(layer, ours, x)
    loss(layer, dict(layer.named_parameters()), x).backward()
    for name, one in layer.named_parameters():
        torch.testing.assert_close(found[name], one.grad)
    each = torch.func.vmap(torch.func.grad(loss, 1), (None, None, 0))(layer, ours, torch.stack([x, 2 * x]))
    for name, one in torch.func.grad(loss, 1)(layer, ours, 2 * x).items():
        torch.testing.assert_close(each[name][1], one)


def test_a_hessian_by_two_reverse_passes(layers):
    layer = make_layer(layers)
    dense, x = layer.to_dense(), images(layer, 1, (3, 3))
    found, wanted = (torch.func.jacrev(torch.func.jacrev(lambda x: one(x).square().sum()))(x) for one in (layer, dense))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-3)
