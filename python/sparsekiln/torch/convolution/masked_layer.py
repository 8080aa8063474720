"""A layer of blocks with several taps, of which a mask may take some from all blocks or from each."""

import math
from typing import Any

import numpy as np
import torch

import sparsekiln

from ..block_sparse_layer import BlockSparseLayer
from ..blocks import moved
from ..index_tensors import saved_layout
from ..resizing import Optimizers
from .tap_masks import TapMask, array_of, parse_mask

Tensor = torch.Tensor


class MaskedLayer(BlockSparseLayer):
    """Buffers: `tap_mask` [*kernel_size], the taps that `weight_values` has, and `block_tap_mask` [blocks, taps], which of these each
    block has, where blocks differ. Values of the others are zeros, and have no effect."""

    kernel_size: tuple[int, ...]
    _mask: TapMask | None = None
    _pairs: Tensor | None = None  #: where blocks differ: what they have, by numbers in `weight_values` [slots · taps, …]; no buffer

    def _make_masks(self, tap_mask: Any, layout: Any) -> None:
        self._mask = parse_mask(tap_mask, self.kernel_size, None if layout is None else self._fitting(layout).blocks)
        of_blocks = self._mask is not None and self._mask.of_blocks is not None
        for name, there in (("tap_mask", self._mask is not None), ("block_tap_mask", of_blocks)):
            if there:  # filled by _write_indices
                self.register_buffer(name, torch.zeros(0))
            else:  # no buffer of None: torch.export of PyTorch 2.13 miscounts those
                setattr(self, name, None)

    @property
    def taps(self) -> int:
        return math.prod(self.kernel_size) if self._mask is None else self._mask.numbers.size

    @property
    def _taps(self) -> str:
        """As operators take it."""
        return "" if self._mask is None else self._mask.text

    def present_taps(self) -> Tensor | None:
        if self._mask is None or self._mask.of_blocks is None:
            return None
        return torch.from_numpy(self._mask.of_blocks)

    def _of_mask(self, values: Tensor) -> Tensor:
        """values [blocks of the layout, taps of the kernel, *block] of the taps of `weight_values`; zeros where a block lacks one."""
        if self._mask is not None:
            values = values[:, torch.from_numpy(self._mask.numbers).to(values.device)]
        return self._without_absent(values)

    def _of_kernel(self, values: Tensor) -> Tensor:
        """The inverse, with zeros where there is no tap."""
        values = self._without_absent(values)
        if self._mask is None:
            return values
        every = values.new_zeros((values.shape[0], self._mask.present.size, *self.block))
        return every.index_copy(1, torch.from_numpy(self._mask.numbers).to(values.device), values)

    def _without_absent(self, values: Tensor) -> Tensor:
        present = self.present_taps()
        if present is not None and torch.compiler.is_dynamo_compiling():  # of values as _present_blocks gives them there
            present = self.block_tap_mask if self._gathered is None else self.block_tap_mask.index_select(0, self._gathered)
        return values if present is None else torch.where(present.to(values.device)[..., None, None], values, 0)

    def _launched(self, weight: Tensor) -> Tensor:
        """Where blocks have different taps, a copy of those that they have."""
        return super()._launched(weight) if self._pairs is None else weight.flatten(0, 1).index_select(0, self._pairs.to(self._device))

    def _write_indices(self) -> None:
        if self._mask is not None:
            device = self.crow_indices.device
            self.tap_mask = torch.from_numpy(self._mask.present.reshape(self.kernel_size)).to(device, copy=True)
            if self._mask.of_blocks is not None:
                self.block_tap_mask = torch.from_numpy(self._mask_of_slots()).to(device)
                self._pairs = self._kept(self._pairs_of_slots())
        super()._write_indices()

    def _slot_numbers(self) -> np.ndarray:
        return np.arange(self.layout.blocks) if self._slots is None else self._slots.numbers

    def _mask_of_slots(self) -> np.ndarray:
        """bool [room, taps]"""
        every = np.zeros((self.col_indices.shape[0], self.taps), bool)
        every[self._slot_numbers()] = self._mask.of_blocks
        return every

    def _pairs_of_slots(self) -> np.ndarray:
        """The pairs of the mask, whose blocks are those of the layout, as numbers in `weight_values`."""
        blocks, taps = np.divmod(self._mask.pairs, self.taps)
        return self._slot_numbers()[blocks] * self.taps + taps

    def relayout(self, layout: Any, optimizer: Optimizers = None) -> Tensor:
        if self._mask is None:
            return super().relayout(layout, optimizer)
        self.settle_indices()
        layout, before = self._fitting(layout), self._mask
        self._mask = before.moved(moved(self.layout, layout).numpy())
        try:
            return super().relayout(layout, optimizer)
        except Exception:
            self._mask = before if self.layout != layout else self._mask
            raise

    relayout.__doc__ = BlockSparseLayer.relayout.__doc__

    # ---- saved state ----

    def _load_from_state_dict(
        self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
    ) -> None:  # fmt: skip
        try:
            error = self._refuse_another_mask(state_dict, prefix) if prefix + "crow_indices" in state_dict else None
        except ValueError as refused:
            error = str(refused)
        if error is not None:
            error_msgs.append(f"{prefix[:-1] or type(self).__name__}: {error}")
            return
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)

    def _refuse_another_mask(self, state: dict, prefix: str) -> str | None:
        saved, own = state.get(prefix + "tap_mask"), self._mask
        of_blocks = state.get(prefix + "block_tap_mask")
        if saved is None and own is None:
            return None
        if saved is None or own is None:
            has, lacks = ("layer", "saved state") if saved is None else ("saved state", "layer")
            return f"the {has} has a mask of taps and the {lacks} none; a layer made with the tap_mask of the state would work"
        if tuple(saved.shape) != self.kernel_size or not np.array_equal(array_of(saved).reshape(-1), own.present):
            return "the saved state has other taps than the layer; a layer made with the tap_mask of the state would work"
        if (of_blocks is None) != (own.of_blocks is None):
            return "one of the saved state and the layer has a mask of taps for each block; a layer made with one like the state's would work"
        if of_blocks is not None and type(self.weight_values) is not torch.nn.Parameter:
            if not np.array_equal(array_of(of_blocks)[self._slot_numbers()], own.of_blocks):
                return "the saved blocks have other taps, and weight_values is sharded or computed, so that they cannot change"
        return None

    def _take_saved(self, state: dict, prefix: str) -> str | None:
        if self._mask is None or self._mask.of_blocks is None:
            return super()._take_saved(state, prefix)
        before, name = self._mask, prefix + "block_tap_mask"
        values = state[prefix + "weight_values"]
        if tuple(state[name].shape) != tuple(values.shape[:2]):
            return f"block_tap_mask has the shape {tuple(state[name].shape)}, and weight_values {tuple(values.shape)}"
        try:
            _, slots = saved_layout(state, prefix, self.layout.cols)
            self._mask = before.with_blocks(array_of(state[name])[slots.numbers])
        except ValueError as error:
            return str(error)
        error = super()._take_saved(state, prefix)
        if error is not None:
            self._mask = before
            return error
        self._write_indices()
        state[name] = torch.from_numpy(self._mask_of_slots()).to(state[name].device)
        return None
