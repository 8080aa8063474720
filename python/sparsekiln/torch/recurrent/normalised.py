"""Products whose results are normalised, as functions on BSR tensors: normalised_linear, and cells of LSTMs.

The operators torch.ops.sparsekiln.normalised and normalised_backward are what they consist of; they are differentiable once.
"""

from typing import Optional

import torch

from .. import trilinear
from ..custom_operator import Derivative, custom_operator
from ..dispatch import refuse_forward_mode, refuse_transforms_of_bsr
from ..linear.functional import check_bsr, indices_of, keep_out_of_graphs, parse_activation
from ..linear.operators import LinearProducts
from ..linear.products import check_activation
from ..operands import autocast, check_epsilon, check_matrix, check_operand, check_optional_tensors, check_tensor, check_weight, dense, readable
from . import lstm_operators
from . import normalised_products as products
from .lstm_steps import GATES, keeps_for_backward, state_type
from .normalised_products import Norm, blocks_of

Tensor = torch.Tensor


def _epilogue(activation: str, multiplier: Tensor | None, addend: Tensor | None, cell: bool) -> str:
    parts = ["layer_norm", "multiply" if multiplier is not None else "", "add" if addend is not None else ""]
    return "+".join(filter(None, [*parts, "lstm" if cell else "" if activation == "none" else activation]))


def _check(
    x, values, gain, bias, crow, col, in_features, out_features, multiplier, addend, c_before, activation, epsilon
) -> None:  # fmt: skip
    _check_form(activation, addend, c_before)
    check_epsilon(epsilon)
    check_weight(values, crow, col, in_features, out_features)
    check_matrix("the input", x, in_features, values)
    _check_numbers(gain, bias, out_features, values)
    rows = x.shape[0], out_features // (1 if c_before is None else GATES)
    _check_rows(rows, values.dtype, values, multiplier, addend, c_before)


def _check_form(activation: str, addend: Tensor | None, c_before: Tensor | None) -> None:
    """What a cell does not have."""
    check_activation(activation)
    if c_before is not None and (activation != "none" or addend is not None):
        raise ValueError("a cell with an activation or an addend; it has neither")


def _check_numbers(gain: Tensor, bias: Tensor, features: int, like: Tensor) -> None:
    check_operand("gain", gain, (features,), like.dtype, like)
    check_operand("bias", bias, (features,), like.dtype, like)


def _check_rows(shape, dtype, like, multiplier, addend, c_before) -> None:
    check_operand("multiplier", multiplier, shape, dtype, like)
    check_operand("addend", addend, shape, dtype, like)
    check_operand("c", c_before, shape, state_type(dtype), like)


def _check_backward(dy, dc, values, gain, bias, multiplier, addend, c_before, c, sums, statistics, activation) -> None:
    _check_form(activation, addend, c_before)
    if sums.dim() != 2 or values.dim() != 3:
        raise ValueError(
            f"sums have the shape {tuple(sums.shape)} and the weight {tuple(values.shape)}; they are [n, out] and [blocks, block_out, block_in]"
        )
    (n, features), dtype, state = sums.shape, values.dtype, state_type(values.dtype)
    groups = 1 if c_before is None else GATES
    rows = n, features // groups
    check_operand("sums", sums, sums.shape, dtype, values)
    check_operand("the gradient of the output", dy, rows, dtype, values)
    _check_numbers(gain, bias, features, values)
    _check_rows(rows, dtype, values, multiplier, addend, c_before)
    check_operand("statistics", statistics, (n, 2 * groups), state, values)
    if groups > 1:
        check_operand("the next c", c, rows, state, values)
        check_operand("its gradient", dc, rows, state, values)


def _results(
    x, values, gain, bias, crow, col, in_features, out_features, multiplier, addend, c_before, activation, epsilon
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    n, groups, state = x.shape[0], 1 if c_before is None else GATES, state_type(x.dtype)
    y = x.new_empty((n, out_features // groups))
    c = y.new_empty(y.shape if groups > 1 else 0, dtype=state)
    return y, c, x.new_empty((n, out_features)), x.new_empty((n, 2 * groups), dtype=state)


def _gradients_of(
    dy, dc, values, gain, bias, multiplier, addend, c_before, c, sums, statistics, activation
) -> tuple[Tensor, ...]:  # fmt: skip
    multiplies = multiplier is not None and c_before is None
    return (
        sums.new_empty(sums.shape), gain.new_empty(gain.shape), bias.new_empty(bias.shape),
        dy.new_empty(dy.shape if multiplies else 0), dy.new_empty(dy.shape if addend is not None else 0), c.new_empty(c.shape),
    )  # fmt: skip


def _save(ctx, inputs, output) -> None:
    x, values, gain, bias, crow, col, *ctx.features, multiplier, addend, c_before, ctx.activation, _ = inputs
    y, c, sums, statistics = output
    ctx.mark_non_differentiable(sums, statistics, *([] if c_before is not None else [c]))
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, values, gain, bias, crow, col, multiplier, addend, c_before, c, sums, statistics)


def _gradients(ctx, dy, dc, *_) -> tuple:
    x, values, gain, bias, crow, col, multiplier, addend, c_before, c, sums, statistics = ctx.saved_tensors
    if dy is None and dc is None:
        return (None,) * 13
    if dy is None:
        dy = x.new_zeros((x.shape[0], c.shape[1]))
    dz, dgain, dbias, dmultiplier, daddend, dc_before = normalised_backward(
        dy, dc, values, gain, bias, multiplier, addend, c_before, c, sums, statistics, ctx.activation
    )  # fmt: skip
    wanted = {role for role, needed in zip(("x", "w"), ctx.needs_input_grad) if needed}
    found = trilinear.gradients(LinearProducts(crow, col, values.shape[1:], ctx.features), {"x": x, "w": values, "dy": dz}, wanted)
    multiplies = multiplier is not None and c_before is None
    return (
        found.get("x"), found.get("w"), dgain, dbias, None, None, None, None, dmultiplier if multiplies else None, daddend if addend is not None else None,
        dc_before if c_before is not None else None, None, None,
    )  # fmt: skip


@custom_operator("sparsekiln::normalised", _check, _results, derivative=Derivative(_save, _gradients))
def normalised(
    x: Tensor, values: Tensor, gain: Tensor, bias: Tensor, crow: Tensor, col: Tensor, in_features: int, out_features: int,
    multiplier: Optional[Tensor], addend: Optional[Tensor], c_before: Optional[Tensor], activation: str, epsilon: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """y, c (empty without c_before), the sums before normalisation, and the mean and 1/σ of each batch row."""
    arguments = x, values, gain, bias, crow, col, in_features, out_features, multiplier, addend, c_before, activation, epsilon
    _check(*arguments)
    y, c, sums, statistics = _results(*arguments)
    norm = Norm(
        _epilogue(activation, multiplier, addend, c_before is not None), dense(gain), dense(bias), sums, statistics,
        *(None if one is None else readable(one, 16) for one in (multiplier, addend)),
    )  # fmt: skip
    cell = {} if c_before is None else {"c_before": readable(c_before, 16), "c": c}
    weight = blocks_of(crow, col, values, in_features, (in_features, out_features))
    products.forward(weight, readable(x, 16), y, norm, epsilon, **cell)
    return y, c, sums, statistics


@custom_operator("sparsekiln::normalised_backward", _check_backward, _gradients_of)
def normalised_backward(
    dy: Tensor, dc: Optional[Tensor], values: Tensor, gain: Tensor, bias: Tensor, multiplier: Optional[Tensor],
    addend: Optional[Tensor], c_before: Optional[Tensor], c: Tensor, sums: Tensor, statistics: Tensor, activation: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of the sums, of gain and bias, and of multiplier, addend and c_before: empty where there is none."""
    arguments = dy, dc, values, gain, bias, multiplier, addend, c_before, c, sums, statistics, activation
    _check_backward(*arguments)
    dz, _, _, dmultiplier, daddend, dc_before = _gradients_of(*arguments)
    n, features = sums.shape
    norm = Norm(
        _epilogue(activation, multiplier, addend, c_before is not None), dense(gain), dense(bias), sums, statistics,
        *(None if one is None else readable(one, 16) for one in (multiplier, addend)),
    )  # fmt: skip
    dnorm = statistics.new_zeros((products.parts(n, dy.device), 2 * features))
    others = {}
    if c_before is not None:
        dc = torch.zeros_like(c) if dc is None else readable(dc, 16)
        others = {"c_before": readable(c_before, 16), "c": c, "dc": dc, "dc_before": dc_before}
    elif multiplier is not None:
        others["dmultiplier"] = dmultiplier
    if addend is not None:
        others["daddend"] = daddend
    products.backward_of_last(values, readable(dy, 16), dz, norm, dnorm, **others)
    dgain, dbias = (one.to(gain.dtype, copy=True) for one in dnorm.sum(0).split(features))
    return dz, dgain, dbias, dmultiplier, daddend, dc_before


def _operands(x: Tensor, weight: Tensor, numbers: list, rows: dict[str, tuple[Tensor | None, int]]) -> list:
    """Rows of x, the values of the weight, `numbers`, and rows of the others, which have so many features each and the leading
    dimensions of x; all in the type of an autocast region."""
    check_tensor(x)
    refuse_transforms_of_bsr()
    refuse_forward_mode()
    if x.dim() == 0 or x.shape[-1] != weight.shape[1]:
        raise ValueError(f"the input has the shape {tuple(x.shape)}; this weight takes [..., {weight.shape[1]}]")
    for name, (one, features) in rows.items():
        if one is not None and tuple(one.shape) != (*x.shape[:-1], features):
            raise ValueError(f"{name} has the shape {tuple(one.shape)}; it is {[*x.shape[:-1], features]} for this input and weight")
    x, values, *others = autocast(x.device.type, x, weight.values(), *numbers, *(one for one, _ in rows.values()))
    numbers, others = others[: len(numbers)], others[len(numbers) :]
    return [_rows(x), values, *numbers, *map(_rows, others)]


def _rows(one: Tensor | None) -> Tensor | None:
    return one if one is None or one.dim() == 2 else one.reshape(one.shape[:-1].numel(), one.shape[-1])


def _state(c: Tensor, like: Tensor) -> Tensor:
    """The state of a cell, whose type no autocast region changes."""
    return _rows(c.to(state_type(like.dtype)))


def _units(weight: Tensor) -> int:
    """Features per gate of a weight that has the rows of four gates."""
    if weight.shape[0] % GATES:
        raise ValueError(f"a weight with {weight.shape[0]} rows; those of four gates of one size would work")
    return weight.shape[0] // GATES


def _numbers(given: Tensor | None, features: int, value: float, like: Tensor) -> Tensor:
    return like.new_full((features,), value) if given is None else given


@keep_out_of_graphs
def normalised_linear(
    x: Tensor, weight: Tensor, gain: Tensor | None = None, bias: Tensor | None = None, *, multiplier: Tensor | None = None,
    addend: Tensor | None = None, activation: str | None = None, epsilon: float = 1e-5,
) -> Tensor:  # fmt: skip
    """act((LN(x · Wᵀ) · gain + bias) · multiplier + addend), where LN is layer normalisation (Ba, Kiros & Hinton 2016) over all
    outputs, and W a BSR tensor [out, in] of PyTorch. One launch; the gradient by what is normalised is another.

    x[..., in] -> [..., out]; gain and bias [out], by default 1 and 0; multiplier and addend [..., out]. `activation` is None or one
    of sparsekiln.activations. Differentiable once.
    """
    check_bsr(weight)
    check_optional_tensors(gain=gain, bias=bias, multiplier=multiplier, addend=addend)
    out_features, in_features = weight.shape
    others = {"multiplier": (multiplier, out_features), "addend": (addend, out_features)}
    rows, values, gain, bias, multiplier, addend = _operands(x, weight, [gain, bias], others)
    entry = indices_of(weight, weight)
    y, *_ = normalised(
        rows, values, _numbers(gain, out_features, 1, rows), _numbers(bias, out_features, 0, rows), entry.crow, entry.col,
        in_features, out_features, multiplier, addend, None, parse_activation(activation), epsilon,
    )  # fmt: skip
    return y.reshape(*x.shape[:-1], out_features)


@keep_out_of_graphs
def lstm_cell(projection: Tensor, h: Tensor, c: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The next (h, c) of an LSTM: i, f, g and o are made of projection + h · Wᵀ, where W is a BSR tensor [4 · hidden, hidden] of
    PyTorch whose four parts have the same blocks. One launch, and one for the gradient by what gates are made of.

    projection[..., 4 · hidden]: what the step's input gives, with all biases; h[..., hidden]; c[..., hidden], in float32, in float64
    of float64. Differentiable once.
    """
    check_bsr(weight)
    for name, one in (("projection", projection), ("h", h), ("c", c)):
        check_tensor(one, name)
    units = _units(weight)
    if weight.shape[1] != units:
        raise ValueError(f"a weight of {tuple(weight.shape)}; the recurrent one of a cell is [{4 * weight.shape[1]}, {weight.shape[1]}]")
    others = {"projection": (projection, GATES * units), "c": (c, units)}
    h_rows, values, projection, _ = _operands(h, weight, [], others)
    entry = indices_of(weight, weight)
    keep = keeps_for_backward(projection, h_rows, c, values)
    _, h_n, c_n, *_ = lstm_operators.lstm(
        projection, h_rows, _state(c, h_rows), values, entry.crow, entry.col, [h_rows.shape[0]], False, keep
    )  # fmt: skip
    return h_n.reshape(h.shape), c_n.reshape(c.shape)


@keep_out_of_graphs
def normalised_lstm_cell(
    x: Tensor, c: Tensor, weight: Tensor, gain: Tensor | None = None, bias: Tensor | None = None, *,
    multiplier: Tensor | None = None, epsilon: float = 1e-5,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The next (h, c) of an LSTM each of whose gates is normalised by itself: i, f, g and o are parts of x · Wᵀ, where W is a BSR
    tensor [4 · hidden, in] of PyTorch; i, f, o = sigmoid(v), g = tanh(v) · multiplier, v = LN(·) · gain + bias.

    x[..., in]; c[..., hidden], in float32, in float64 of float64; gain and bias [4 · hidden], by default 1 and 0;
    multiplier[..., hidden], such as a mask of dropout, to which there is no gradient. Differentiable once.
    """
    check_bsr(weight)
    check_tensor(c, "c")
    check_optional_tensors(gain=gain, bias=bias, multiplier=multiplier)
    out_features, in_features = weight.shape
    units = _units(weight)
    if multiplier is not None and multiplier.requires_grad:
        raise ValueError("the multiplier requires a gradient, which the cell does not compute; multiplier.detach() would work")
    rows, values, gain, bias, multiplier, _ = _operands(x, weight, [gain, bias], {"multiplier": (multiplier, units), "c": (c, units)})
    entry = indices_of(weight, weight)
    h, c_n, *_ = normalised(
        rows, values, _numbers(gain, out_features, 1, rows), _numbers(bias, out_features, 0, rows), entry.crow, entry.col,
        in_features, out_features, multiplier, None, _state(c, rows), "none", epsilon,
    )  # fmt: skip
    return h.reshape(c.shape), c_n.reshape(c.shape)
