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
    relu: Callable[[Any], Any]
    #: Blocks [blocks, first, second, taps], where the outputs are axis 1 or 2 (given as 0 or 1), times a gain for each output
    #: of each block (or None), over its length, whose square is at least some number.
    normalised: Callable[[Any, int, Any, float], Any]
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
        relu=lambda array: np.maximum(array, 0),
        normalised=lambda blocks, outputs, gain, least: _normalised(
            blocks, outputs, gain, np.sqrt(np.maximum((blocks * blocks).sum(_others(outputs), keepdims=True), least))
        ),
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
        relu=torch.relu,
        normalised=_normalised_by_torch,
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
        relu=tf.nn.relu,
        normalised=lambda blocks, outputs, gain, least: _normalised(
            blocks, outputs, gain, tf.sqrt(tf.maximum(tf.reduce_sum(blocks * blocks, _others(outputs), keepdims=True), least))
        ),
        join=tf.concat,
        take=lambda array, index, axis: tf.gather(array, index, axis=axis),
        ones_like=tf.ones_like,
        zeros_like=tf.zeros_like,
    )


def _others(outputs: int) -> tuple[int, int]:
    return (2, 3) if outputs == 0 else (1, 3)


def _of_outputs(blocks: Any, outputs: int) -> tuple[int, ...]:
    """The shape of a number for each output of some blocks."""
    count, side = blocks.shape[0], blocks.shape[1 + outputs]
    return (count, side, 1, 1) if outputs == 0 else (count, 1, side, 1)


def _normalised(blocks: Any, outputs: int, gain: Any, length: Any) -> Any:
    if gain is not None:
        blocks = blocks * functions_of(blocks).reshape(gain, _of_outputs(blocks, outputs))
    return blocks / length


def _normalised_by_torch(blocks: Any, outputs: int, gain: Any, least: float) -> Any:
    """Each block is a row of its own, or a column, of a layout."""
    import torch

    from sparsekiln.torch.normalisation import normalized

    places = torch.arange(blocks.shape[0], device=blocks.device)
    features = blocks.shape[0] * blocks.shape[1 + outputs]
    return normalized(blocks.movedim(-1, 1), places, features, outputs, gain, least).movedim(1, -1)


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
            count = blocks.shape[0] * blocks.shape[1 + self.outputs]
            gain_here = None if gains is None else gains[first : first + count]
            first += count
            parts.append(f.reshape(f.normalised(blocks, self.outputs, gain_here, epsilon), (-1,)))
        return f.cast(f.reshape(f.join(parts, 0), F.shape), dtype)

    def gradient(self, F: np.ndarray, dy: np.ndarray, gain: np.ndarray | None, epsilon: float) -> tuple[np.ndarray, np.ndarray | None]:
        """Gradients of normalised() with respect to F and to gain: NumPy's, in the types of these."""
        f, compute = functions_of(F), wide(F, gain)
        dF, dgain, first = [], [], 0
        for blocks, dblocks in zip(self._parts(f, f.cast(F, compute)), self._parts(f, f.cast(dy, compute))):
            others, shape = _others(self.outputs), _of_outputs(blocks, self.outputs)
            squares = (blocks * blocks).sum(others, keepdims=True)
            inverse = 1 / np.sqrt(np.maximum(squares, epsilon))
            along = (dblocks * blocks).sum(others, keepdims=True) * inverse
            count = along.size
            scale = inverse if gain is None else inverse * gain[first : first + count].reshape(shape)
            first += count
            dF.append((scale * (dblocks - blocks * (squares >= epsilon) * along * inverse)).reshape(-1))
            dgain.append(along.reshape(-1))
        return (
            np.concatenate(dF).reshape(F.shape).astype(F.dtype),
            None if gain is None else np.concatenate(dgain).astype(gain.dtype),
        )

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
