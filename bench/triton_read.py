"""A kernel in Triton that only reads a weight: no product with it is faster."""

import torch
import triton
import triton.language as tl

_WORDS = 4096  # of a program: a thread of four warps has eight loads of 16 bytes


@triton.jit
def _read(words, sums, count, WORDS: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * WORDS + tl.arange(0, WORDS)
    tl.store(sums + tl.program_id(0), tl.sum(tl.load(words + at, at < count, 0)))


def programs(weight: torch.Tensor) -> int:
    """How many sums `read` writes."""
    return triton.cdiv(weight.numel() * weight.element_size(), 4 * _WORDS)


def read(weight: torch.Tensor, sums: torch.Tensor) -> None:
    """The sum of the 32-bit words, modulo 2^32: of each program, int32."""
    words = weight.view(-1).view(torch.int32)
    _read[programs(weight),](words, sums, words.numel(), WORDS=_WORDS)
