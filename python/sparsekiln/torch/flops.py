"""What torch.utils.flop_counter counts: two operations for each element of a present block and each row of the batch, or each
output position of a convolution."""

import math

import torch
from torch.utils.flop_counter import register_flop_formula

from .convolution import edge_bias, operators  # noqa: F401, define them
from .kernels import known_blocks
from .linear import operators as _linear_operators  # noqa: F401, defines them

_ops = torch.ops.sparsekiln


def _flops(n: int, crow: torch.Tensor, col: torch.Tensor, block_out: int, block_in: int) -> int:
    return 2 * n * known_blocks(crow, col) * block_out * block_in


def _flops_of_taps(n: int, shape: tuple[int, ...], crow: torch.Tensor, col: torch.Tensor) -> int:
    """`shape` of the weight: [blocks, taps, …], or [pairs of a block and a tap, …]."""
    pairs = shape[0] if len(shape) == 3 else known_blocks(crow, col) * shape[1]
    return 2 * n * pairs * shape[-2] * shape[-1]


@register_flop_formula([_ops.linear, _ops.linear_with_preactivation], get_raw=True)
def _linear(x, values, bias, crow, col, *_, out_val=None) -> int:
    return _flops(x.shape[0], crow, col, *values.shape[1:])


@register_flop_formula(_ops.linear_grad_input, get_raw=True)
def _grad_input(dy, z, values, crow, col, *_, out_val=None) -> int:
    return _flops(dy.shape[0], crow, col, *values.shape[1:])


@register_flop_formula(_ops.linear_grad_weight, get_raw=True)
def _grad_weight(x, dy, z, crow, col, block_out, block_in, *_, out_val=None) -> int:
    return _flops(x.shape[0], crow, col, block_out, block_in)


@register_flop_formula(_ops.convolution, get_raw=True)
def _convolution(x, values, bias, crow, col, *_, out_val=None) -> int:
    return _flops_of_taps(math.prod(out_val.shape[:-1]), values.shape, crow, col)


@register_flop_formula(_ops.convolution_edge_bias, get_raw=True)
def _convolution_edge_bias(x, values, gain, bias, crow, col, *_, out_val=None) -> int:
    return _convolution(x, values, None, crow, col, out_val=out_val)


@register_flop_formula(_ops.convolution_grad_input, get_raw=True)
def _convolution_grad_input(dy, values, crow, col, *_, out_val=None) -> int:
    return _flops_of_taps(math.prod(dy.shape[:-1]), values.shape, crow, col)


@register_flop_formula(_ops.convolution_transposed, get_raw=True)
def _convolution_transposed(x, values, bias, crow, col, *_, out_val=None) -> int:
    return _flops_of_taps(math.prod(x.shape[:-1]), values.shape, crow, col)


@register_flop_formula(_ops.convolution_grad_weight, get_raw=True)
def _convolution_grad_weight(x, dy, crow, col, block_out, block_in, *_, out_val=None) -> int:
    return _flops_of_taps(math.prod(dy.shape[:-1]), out_val[0].shape, crow, col)
