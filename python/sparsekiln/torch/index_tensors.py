"""The buffers that say where the blocks of a layer are, for operators and in saved states, and what is done where others wrote to them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

import sparsekiln

from .graphs import see_number_of_blocks
from .kernels import LayoutKernels, kernels_of, know
from .layouts import layout_from_indices
from .slots import Slots

Tensor = torch.Tensor

# Arithmetic changes it: an average is computed of float32 numbers, which keep 24 of its bits.
_CANARY = 0x5EED_B10C_5A11_0CA7
_NAMES = ("crow_indices", "col_indices", "slot_blocks", "index_canary")


class IndexTensors(torch.nn.Module):
    """Buffers, which follow from the layout and the slots that the layer knows:

    crow_indices, col_indices  as in a BSR tensor of PyTorch; col_indices has room for as many blocks as `weight_values`
    slot_blocks                where there is room for more blocks than a layout has: see Slots
    index_canary               not saved: by it, index tensors that were averaged are known from those of another layout

    What something else writes to them is noticed before they are next used or saved: see settle_indices.
    """

    max_blocks: int | None  #: room for layouts of up to so many blocks; None for as many as the layout has
    HAS_SLOTS = True  #: whether blocks may be in other slots than the first ones
    _kernels: LayoutKernels
    _slots: Slots | None = None
    # Where blocks are not in the first slots: the slot of each block and its column, as operators take them. These are no
    # buffers, of which others might make averages.
    _gathered: Tensor | None = None
    _columns: Tensor | None = None
    _known: tuple[Tensor | None, ...] = ()  #: the buffers that the layer made, unless PyTorch does not count writes to them
    _versions: tuple[int, ...] = ()

    @property
    def layout(self) -> "sparsekiln.Layout":
        """Which blocks the weight has. relayout changes it."""
        return self._kernels.layout

    @property
    def _device(self) -> torch.device:
        return self.weight_values.device

    def _room(self, layout: "sparsekiln.Layout") -> int:
        """Blocks that `weight_values` has with this layout."""
        if self.max_blocks is None:
            return layout.blocks
        if layout.blocks > self.max_blocks:
            raise ValueError(f"the layout has {layout.blocks} blocks, and the layer was made for max_blocks={self.max_blocks}")
        return self.max_blocks

    def _slots_of(self, layout: "sparsekiln.Layout") -> Slots | None:
        """The slots of the layout that the layer has next."""
        if self.max_blocks is None or not self.HAS_SLOTS:
            return None
        return Slots.in_order(layout, self.max_blocks) if self._slots is None else self._slots.moved(layout)

    def _take(self, layout: "sparsekiln.Layout", slots: Slots | None) -> None:
        """From now on the layer has this layout."""
        see_number_of_blocks((type(self), self.block_shape, self.weight_shape), self._room(layout))
        self._kernels, self._slots = kernels_of(layout), slots
        self._make_buffer("crow_indices", layout.rows + 1, torch.int32)
        self._make_buffer("col_indices", self._room(layout), torch.int32)
        if slots is not None:
            self._make_buffer("slot_blocks", slots.owners.size, torch.int64)
        self._write_indices()

    def _make_buffer(self, name: str, size: int, dtype: torch.dtype) -> None:
        old = self._buffers.get(name)
        if old is None or old.shape[0] != size:  # else in place: a CUDA graph may hold the addresses
            self.register_buffer(name, torch.zeros(size, dtype=dtype, device=self._device))

    @torch.no_grad()
    def _write_indices(self) -> None:
        """Writes what follows from the layout and the slots."""
        layout, slots = self.layout, self._slots
        columns = np.array(layout.col, np.int32)
        _write(self.crow_indices, np.array(layout.crow, np.int32))
        _write(self.col_indices, np.pad(columns, (0, self.col_indices.shape[0] - layout.blocks)))
        if slots is not None:
            _write(self.slot_blocks, slots.owners)
        self._write_canary()
        moved = slots is not None and not slots.are_in_order
        self._gathered = self._kept(slots.numbers) if moved and slots is not None else None
        self._columns = self._kept(columns) if moved else None
        self._know_indices()

    def _kept(self, numbers: np.ndarray) -> Tensor:
        """Numbers that are no buffer, on the layer's device; for one on meta on the cpu, since no state has them."""
        return torch.from_numpy(numbers).to("cpu" if self._device.type == "meta" else self._device)

    def _write_canary(self) -> None:
        canary, device = self._buffers.get("index_canary"), self.crow_indices.device
        if device.type == "meta":  # it has values there, too, since no state has any for it
            device = torch.device("cpu")
        if canary is None or canary.device != device:
            self.register_buffer("index_canary", torch.zeros(1, dtype=torch.int64, device=device), persistent=False)
        _write(self.index_canary, np.array([_CANARY]))

    # ---- what something else writes ----

    def _know_indices(self) -> None:
        """The index tensors hold the layout: they need not be read."""
        know(self.crow_indices, self.col_indices, self._kernels, self)
        if self._columns is not None:
            know(self.crow_indices, self._columns, self._kernels, self)
        buffers = self._index_buffers()
        counted = not any(one.is_inference() for one in buffers)
        self._known = buffers if counted else ()
        self._versions = tuple(one._version for one in buffers) if counted else ()

    def _index_buffers(self) -> tuple[Tensor, ...]:
        found = (self._buffers.get(name) for name in _NAMES)
        return tuple(one for one in found if one is not None)

    def _is_settled(self) -> bool:
        """Whether nothing else has written to the index tensors, or exchanged them."""
        buffers = self._index_buffers()
        if len(buffers) != len(self._known):
            return False
        return all(one is known and one._version == count for one, known, count in zip(buffers, self._known, self._versions))

    def _check_indices(self, crow: Tensor, col: Tensor) -> None:
        """For a call, whose operator notices what was written to the index tensors that the layer made: others must hold its layout."""
        known = self._known
        if not known or crow is not known[0] or col is not known[1]:
            self.settle_indices()

    def settle_indices(self, counted: bool = True) -> None:
        """Has the index tensors hold the layout of the layer, if something else has written to them or exchanged them.

        What an average has left, or memory that was never written, says nothing: the layout is written again. ValueError for
        another layout: whose blocks `weight_values` has then is not known.

        counted  False: reads them, too, where PyTorch counted no write, as it does not of those by way of `.data`
        """
        if counted and self._is_settled():
            return
        crow, col, *others = self._index_buffers()
        if not all(map(_is_plain, (crow, col, *others[:-1]))):
            return
        held, slots = self._held(crow, col)
        own = self._slots
        if held == self.layout and (own is None or slots is None or np.array_equal(slots.owners, own.owners)):
            self._know_indices()
        elif held is None or _is_averaged(others[-1]):
            self._write_indices()
        elif own is not None and slots is not None and own.has_all_of(slots):  # the buffers of a model, copied to its average
            self._write_indices()
        else:
            kind, other = type(self).__name__, f"the layout {held.digest}, and the layer has {self.layout.digest}"
            if held == self.layout:
                other = "other slots than those of the layer's blocks"
            raise ValueError(
                f"the index tensors of this {kind} hold {other}: they were changed outside of it; use {kind}.relayout, or load_state_dict"
            )

    def _held(self, crow: Tensor, col: Tensor) -> tuple["sparsekiln.Layout | None", Slots | None]:
        """The layout that the tensors hold, and the slots of its blocks; None for no layout of this grid, or one without slots."""
        try:
            held = layout_from_indices(crow, col, self.layout.cols)
            slots = None if self._slots is None else Slots(held, self.slot_blocks.cpu().numpy())
        except ValueError:
            return None, None
        return (None if self.max_blocks is None and held.blocks != col.shape[0] else held), slots

    def _apply(self, fn: Any, recurse: bool = True) -> Any:  # to(), cuda(), to_empty(), …
        settled = not self._known or self._is_settled()
        if self.index_canary.is_meta and not self.crow_indices.is_meta:  # the rest was loaded, and meta tensors cannot move
            self._write_canary()
        result = super()._apply(fn, recurse)
        if settled and all(type(one) is Tensor for one in self._index_buffers()):
            self._write_indices()
        return result

    def __setstate__(self, state: Any) -> None:  # copies and pickles
        super().__setstate__(state)
        self._known = ()  # what the original's hold is not known: they are read before they are next used
        if {"crow_indices", "col_indices"} <= self._buffers.keys():
            know(self.crow_indices, self.col_indices if self._columns is None else self._columns, self._kernels, self, settled=False)


def saved_layout(state: Mapping[str, Tensor], prefix: str, cols: int) -> tuple["sparsekiln.Layout", Slots]:
    """The layout of a saved state, and the slots of its blocks. ValueError if it holds none."""
    col, owners = state[prefix + "col_indices"], state.get(prefix + "slot_blocks")
    layout = layout_from_indices(state[prefix + "crow_indices"], col, cols)
    return layout, Slots.in_order(layout, col.shape[0]) if owners is None else Slots(layout, owners.cpu().numpy())


def _write(target: Tensor, numbers: np.ndarray) -> None:
    target.copy_(torch.from_numpy(numbers))


def _is_plain(tensor: Tensor) -> bool:
    """Whether it has values that may be read: no meta tensor, and none that stands for several or for what is traced."""
    return type(tensor) is Tensor and not tensor.is_meta and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def _is_averaged(canary: Tensor) -> bool:
    return not canary.is_meta and int(canary) != _CANARY
