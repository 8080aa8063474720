"""How blocks of any channels become a layout: which channels each block of the kernels has, and where elements of the filters go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import sparsekiln
from sparsekiln.compat._index_map import IndexMap

_SIDES = (64, 32, 16, 8)  # of blocks, the largest first


class Side(NamedTuple):
    """The input or the output features, as kernels have them."""

    block: int
    features: int  #: a multiple of the block
    #: From features of the kernels to channels. The identity if all lists are made of whole aligned runs of channels; else each
    #: set of channels that is a list has features of its own, and those that fill up its last block have no channel.
    channels: IndexMap
    slots: list[np.ndarray]  #: of each list, the features of its channels


class Plan(NamedTuple):
    layout: sparsekiln.Layout
    input: Side
    output: Side
    #: From elements of the filters, [K, C, taps] of each block after the other, to those of the kernels' weight
    #: [blocks, taps, block_out, block_in]. Where blocks have a pair of channels in common, their elements have one target.
    weight: IndexMap


def channel_lists(name: str, lists: Sequence[Any]) -> tuple[list[np.ndarray], int, bool]:
    """Checked, with the number of channels, and whether one of them is in several lists."""
    arrays = []
    for number, one in enumerate(lists):
        channels = np.asarray(one)
        if channels.ndim != 1 or channels.size == 0 or channels.dtype.kind not in "iu" or channels.min() < 0:
            raise ValueError(f"block {number} of BCK has {one!r} as its {name}; they are a list of channel numbers from 0 on")
        channels = channels.astype(np.intp)
        if len(np.unique(channels)) != len(channels):
            raise ValueError(f"block {number} of BCK has a number twice among its {name} {list(channels)}; once would work")
        arrays.append(channels)
    together = np.concatenate(arrays)
    present = np.unique(together)
    if present[-1] != len(present) - 1:
        absent = np.setdiff1d(np.arange(present[-1]), present)
        raise ValueError(f"no block of BCK has {absent[0]} among its {name}, and one has {present[-1]}; each number from 0 on is in some block")
    return arrays, len(present), len(together) != len(present)


def planned(inputs: list[np.ndarray], outputs: list[np.ndarray], channels: tuple[int, int], taps: int) -> Plan:
    """`channels`: how many there are, of the input and of the output."""
    input, output = _side(inputs, channels[0]), _side(outputs, channels[1])
    rows, cols = output.features // output.block, input.features // input.block
    places = [
        (np.unique(out // output.block)[:, None] * cols + np.unique(in_ // input.block)).reshape(-1)
        for out, in_ in zip(output.slots, input.slots)
    ]
    present = np.unique(np.concatenate(places))  # row-major
    crow = np.searchsorted(present, np.arange(rows + 1) * cols)
    layout = sparsekiln.Layout.from_csr(rows, cols, crow.astype(np.int32), (present % cols).astype(np.int32))

    targets = []
    for out, in_ in zip(output.slots, input.slots):
        row, o = np.divmod(out, output.block)
        col, i = np.divmod(in_, input.block)
        block = np.searchsorted(present, row[:, None] * cols + col)[:, :, None]
        target = ((block * taps + np.arange(taps)) * output.block + o[:, None, None]) * input.block + i[:, None]
        targets.append(target.reshape(-1))
    size = len(present) * taps * output.block * input.block
    return Plan(layout, input, output, IndexMap(np.concatenate(targets), size))


def _side(lists: list[np.ndarray], channels: int) -> Side:
    for block in _SIDES:
        if all(_is_of_runs(one, block) for one in lists):
            return Side(block, channels, IndexMap(np.arange(channels), channels), lists)
    kinds = {tuple(one): one for one in map(np.sort, lists)}  # lists of the same channels share their features
    lengths = np.array([len(one) for one in kinds])
    padded = {block: -(-lengths // block) * block for block in _SIDES}
    block = min(_SIDES, key=lambda block: padded[block].sum())  # the largest of the least
    starts = dict(zip(kinds, np.cumsum(padded[block]) - padded[block]))
    features = int(padded[block].sum())
    channel_of = np.full(features, -1)
    for kind, start in starts.items():
        channel_of[start : start + len(kind)] = kinds[kind]
    slots = [starts[tuple(np.sort(one))] + np.argsort(np.argsort(one)) for one in lists]
    return Side(block, features, IndexMap(channel_of, channels), slots)


def _is_of_runs(channels: np.ndarray, block: int) -> bool:
    """Whether they are runs of `block` consecutive channels, each of which begins at a multiple of it."""
    if len(channels) % block:
        return False
    runs = channels.reshape(-1, block)
    return bool((runs[:, 0] % block == 0).all() and (runs == runs[:, :1] + np.arange(block)).all())
