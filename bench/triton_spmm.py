"""A plain block-sparse product in Triton, to compare with: the layout is read at run time, a program computes a tile of a
block row by tl.dot over the present blocks. What tunes it chooses the tile of batch rows, warps and stages.

W is a matrix of blocks values[blocks, block_out, block_in]; activations are batch-major.
"""

import torch
import triton
import triton.language as tl

_LEAST_SIDE = 16  # of an operand of tl.dot; smaller blocks are padded with zeros
_LEAST_TILE = 16


def configs(n: int) -> list[dict[str, int]]:
    """How the kernels may be launched for a batch of n: tiles of at most twice as many rows, the largest first."""
    tiles = [tile_n for tile_n in (128, 64, 32, _LEAST_TILE) if tile_n < 2 * n or tile_n == _LEAST_TILE]
    return [
        {"TILE_N": tile_n, "num_warps": warps, "num_stages": stages}
        for warps, stages in ((4, 4), (8, 4), (4, 2), (8, 2))
        for tile_n in tiles
    ]  # fmt: skip


@triton.jit
def _spmm(
    x, values, begins, inner, numbers, y, n, x_stride, y_stride, out_stride, in_stride,
    SIDE: tl.constexpr, PADDED: tl.constexpr, PRECISION: tl.constexpr, TILE_N: tl.constexpr,
):  # fmt: skip
    """y[n, block row] = the sum over its blocks of x[n, block column] times the block, transposed."""
    row = tl.program_id(1)
    batch = tl.program_id(0) * TILE_N + tl.arange(0, TILE_N)
    side = tl.arange(0, PADDED)
    inside = side < SIDE
    present = (batch < n)[:, None] & inside[None, :]
    total = tl.zeros((TILE_N, PADDED), tl.float32)
    for at in range(tl.load(begins + row), tl.load(begins + row + 1)):
        column = tl.load(inner + at)
        number = tl.load(numbers + at).to(tl.int64)
        of_x = x + batch.to(tl.int64)[:, None] * x_stride + (column * SIDE + side)[None, :]
        of_w = values + number * SIDE * SIDE + side[None, :] * out_stride + side[:, None] * in_stride
        tile = tl.load(of_x, present, 0.0)
        block = tl.load(of_w, inside[:, None] & inside[None, :], 0.0)
        total = tl.dot(tile, block, total, input_precision=PRECISION)
    of_y = y + batch.to(tl.int64)[:, None] * y_stride + (row * SIDE + side)[None, :]
    tl.store(of_y, total.to(y.dtype.element_ty), present)


@triton.jit
def _sddmm(
    dy, x, rows, columns, dw, n, dy_stride, x_stride,
    SIDE: tl.constexpr, PADDED: tl.constexpr, PRECISION: tl.constexpr, TILE_N: tl.constexpr,
):  # fmt: skip
    """dw[block] = dy[n, block row], transposed, times x[n, block column]."""
    number = tl.program_id(0)
    row, column = tl.load(rows + number), tl.load(columns + number)
    side = tl.arange(0, PADDED)
    inside = side < SIDE
    total = tl.zeros((PADDED, PADDED), tl.float32)
    for begin in range(0, n, TILE_N):
        batch = begin + tl.arange(0, TILE_N)
        of_dy = dy + batch.to(tl.int64)[None, :] * dy_stride + (row * SIDE + side)[:, None]
        of_x = x + batch.to(tl.int64)[:, None] * x_stride + (column * SIDE + side)[None, :]
        left = tl.load(of_dy, inside[:, None] & (batch < n)[None, :], 0.0)
        right = tl.load(of_x, (batch < n)[:, None] & inside[None, :], 0.0)
        total = tl.dot(left, right, total, input_precision=PRECISION)
    of_dw = dw + number.to(tl.int64) * SIDE * SIDE + side[:, None] * SIDE + side[None, :]
    tl.store(of_dw, total.to(dw.dtype.element_ty), inside[:, None] & inside[None, :])


class Index:
    """The present blocks of a layout, by rows of the result. `crow` and `col` are those of a BSR tensor, int32."""

    def __init__(self, crow: torch.Tensor, col: torch.Tensor, columns: int, transposed: bool):
        self.row_of = torch.repeat_interleave(torch.arange(crow.numel() - 1, device=crow.device), crow.diff()).int()
        self.col = col
        self.transposed = transposed
        if transposed:
            self.numbers = torch.argsort(col.long() * (crow.numel() - 1) + self.row_of).int()
            self.inner = self.row_of[self.numbers.long()].contiguous()
            counts = torch.bincount(col.long(), minlength=columns)
            self.begins = torch.cat([counts.new_zeros(1), counts.cumsum(0)]).int()
        else:
            self.numbers = torch.arange(col.numel(), device=col.device, dtype=torch.int32)
            self.inner, self.begins = col, crow


def spmm(index: Index, x: torch.Tensor, values: torch.Tensor, y: torch.Tensor, precision: str, config: dict) -> None:
    """y = x · Wᵀ, or x · W where the index is transposed."""
    n, side = len(x), values.shape[-1]
    strides = (1, side) if index.transposed else (side, 1)
    _spmm[triton.cdiv(n, config["TILE_N"]), index.begins.numel() - 1](
        x, values, index.begins, index.inner, index.numbers, y, n, x.stride(0), y.stride(0), *strides,
        SIDE=side, PADDED=max(side, _LEAST_SIDE), PRECISION=precision, **config,
    )  # fmt: skip


def sddmm(index: Index, dy: torch.Tensor, x: torch.Tensor, dw: torch.Tensor, precision: str, config: dict) -> None:
    """dw = dyᵀ · x on the present blocks."""
    side = dw.shape[-1]
    _sddmm[(len(dw),)](
        dy, x, index.row_of, index.col, dw, len(x), dy.stride(0), x.stride(0),
        SIDE=side, PADDED=max(side, _LEAST_SIDE), PRECISION=precision, **config,
    )  # fmt: skip
