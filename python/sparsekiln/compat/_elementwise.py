"""Functions of NumPy, PyTorch and TensorFlow under one name each, and what is made of them: each framework differentiates it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from sparsekiln.compat._frameworks import framework_of, type_name


class Functions(NamedTuple):
    cast: Callable[[Any, str], Any]
    reshape: Callable[[Any, Any], Any]
    shape: Callable[[Any], Any]
    total: Callable[[Any, tuple[int, ...]], Any]  #: keeps the axes
    at_least: Callable[[Any, float], Any]
    relu: Callable[[Any], Any]
    sqrt: Callable[[Any], Any]
    join: Callable[[list[Any], int], Any]
    take: Callable[[Any, np.ndarray, int], Any]
    ones_like: Callable[[Any], Any]
    zeros_like: Callable[[Any], Any]


def functions_of(*arrays: Any) -> Functions:
    return {"numpy": _numpy, "torch": _torch, "tensorflow": _tensorflow}[framework_of(*arrays)]()


@functools.cache
def _numpy() -> Functions:
    return Functions(
        cast=lambda array, name: np.asarray(array).astype(name),
        reshape=np.reshape,
        shape=np.shape,
        total=lambda array, axes: array.sum(axes, keepdims=True),
        at_least=np.maximum,
        relu=lambda array: np.maximum(array, 0),
        sqrt=np.sqrt,
        join=np.concatenate,
        take=np.take,
        ones_like=np.ones_like,
        zeros_like=np.zeros_like,
    )


@functools.cache
def _torch() -> Functions:
    import torch

    return Functions(
        cast=lambda array, name: torch.as_tensor(array).to(getattr(torch, name)),
        reshape=torch.reshape,
        shape=lambda array: array.shape,
        total=lambda array, axes: array.sum(axes, keepdim=True),
        at_least=lambda array, least: array.clamp(min=least),
        relu=torch.relu,
        sqrt=torch.sqrt,
        join=torch.cat,
        take=lambda array, index, axis: array.index_select(axis, torch.from_numpy(index).to(array.device)),
        ones_like=torch.ones_like,
        zeros_like=torch.zeros_like,
    )


@functools.cache
def _tensorflow() -> Functions:
    import tensorflow as tf

    return Functions(
        cast=tf.cast,
        reshape=tf.reshape,
        shape=tf.shape,
        total=lambda array, axes: tf.reduce_sum(array, axes, keepdims=True),
        at_least=tf.maximum,
        relu=tf.nn.relu,
        sqrt=tf.sqrt,
        join=tf.concat,
        take=lambda array, index, axis: tf.gather(array, index, axis=axis),
        ones_like=tf.ones_like,
        zeros_like=tf.zeros_like,
    )


def wide(*arrays: Any) -> str:
    """ "float64" where one of them is, else "float32"."""
    return "float64" if any(type_name(array.dtype) == "float64" for array in arrays if array is not None) else "float32"


class Filters(NamedTuple):
    """Blocks of filters [first, second, taps], one after the other in a flat array."""

    shapes: list[tuple[int, int, int]]
    outputs: int  #: the axis, 0 or 1, of output features; the norm of one is over the others

    def normalised(self, F: Any, gain: Any, epsilon: float, dtype: str) -> Any:
        f = functions_of(F, gain)
        compute = wide(F, gain)
        gains = None if gain is None else f.reshape(f.cast(gain, compute), (-1,))
        parts, first = [], 0
        for blocks in self._parts(f, f.cast(F, compute)):
            length = f.sqrt(f.at_least(f.total(blocks * blocks, self._others), epsilon))
            if gains is not None:
                shape, count = self._of_outputs(blocks)
                blocks = blocks * f.reshape(gains[first : first + count], shape)
                first += count
            parts.append(f.reshape(blocks / length, (-1,)))
        return f.cast(f.reshape(f.join(parts, 0), F.shape), dtype)

    def gradient(self, F: np.ndarray, dy: np.ndarray, gain: np.ndarray | None, epsilon: float) -> tuple[np.ndarray, np.ndarray | None]:
        """Gradients of normalised() with respect to F and to gain: NumPy's, in the types of these."""
        f, compute = functions_of(F), wide(F, gain)
        dF, dgain, first = [], [], 0
        for blocks, dblocks in zip(self._parts(f, f.cast(F, compute)), self._parts(f, f.cast(dy, compute))):
            squares = f.total(blocks * blocks, self._others)
            inverse = 1 / np.sqrt(np.maximum(squares, epsilon))
            along = f.total(dblocks * blocks, self._others) * inverse
            shape, count = self._of_outputs(blocks)
            scale = inverse if gain is None else inverse * gain[first : first + count].reshape(shape)
            first += count
            dF.append((scale * (dblocks - blocks * (squares >= epsilon) * along * inverse)).reshape(-1))
            dgain.append(along.reshape(-1))
        return (
            np.concatenate(dF).reshape(F.shape).astype(F.dtype),
            None if gain is None else np.concatenate(dgain).astype(gain.dtype),
        )

    @property
    def _others(self) -> tuple[int, int]:
        return (2, 3) if self.outputs == 0 else (1, 3)

    def _of_outputs(self, blocks: Any) -> tuple[tuple[int, ...], int]:
        """The shape of a number for each output of some blocks, and how many these are."""
        count, outputs = blocks.shape[0], blocks.shape[1 + self.outputs]
        return ((count, outputs, 1, 1) if self.outputs == 0 else (count, 1, outputs, 1)), count * outputs

    def _parts(self, f: Functions, F: Any) -> list[Any]:
        """[blocks, first, second, taps] of each stretch of blocks of one shape."""
        F, parts, start, number = f.reshape(F, (-1,)), [], 0, 0
        while number < len(self.shapes):
            shape, end = self.shapes[number], number
            while end < len(self.shapes) and self.shapes[end] == shape:
                end += 1
            size = (end - number) * shape[0] * shape[1] * shape[2]
            parts.append(f.reshape(F[start : start + size], (end - number, *shape)))
            start, number = start + size, end
        return parts


def cwise_linear(
    x: Any, gain: Any = None, bias: Any = None, relu: bool = False, bias_first: bool = False, use_tf: bool = False
) -> Any:
    """x · gain + bias, or (x + bias) · gain, with a number for each channel of x[N, C, …]; then max(·, 0) if `relu`.

    One of gain and bias may be None. Computed in x's type, with numbers of that type. `use_tf` is ignored.
    """
    if gain is None and bias is None:
        raise ValueError("cwise_linear without gain and bias; it takes one of them, or both")
    f = functions_of(x, gain, bias)
    channels = (1, -1) + (1,) * (len(x.shape) - 2)
    for is_gain in (False, True) if bias_first else (True, False):
        numbers = gain if is_gain else bias
        if numbers is not None:
            numbers = _of_channels(f, x, numbers, "gain" if is_gain else "bias", channels)
            x = x * numbers if is_gain else x + numbers
    return f.relu(x) if relu else x


def _of_channels(f: Functions, x: Any, numbers: Any, name: str, shape: Sequence[int]) -> Any:
    count = int(np.prod(numbers.shape))
    if len(x.shape) < 2 or count != x.shape[1]:
        raise ValueError(f"{name} is {list(numbers.shape)} and x {list(x.shape)}; there is one number for each of x's channels, [N, C, …]")
    return f.reshape(numbers, tuple(shape))
