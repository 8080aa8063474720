"""States of optimizers of sharded layers, in the form that torch.distributed.checkpoint saves for any number of ranks."""

from collections.abc import Callable
from typing import Any

import torch

from .partition import Numbers
from .rank_entries import RankEntries
from .sharded_layer import ShardedBlockSparseLinear

_WRAPPERS = ("module.", "_orig_mod.")  # what DistributedDataParallel and torch.compile put before names


def whole_state(model: torch.nn.Module, state: dict[str, Any]) -> dict[str, Any]:
    """A state by names of parameters, such as get_optimizer_state_dict returns, as it would be in one process.

    What it has for a parameter that is sharded, and is shaped like it, such as momentum and squares, becomes a RankEntries of the same
    memory: torch.distributed.checkpoint saves it, and loads into it, in place. local_state undoes that. The state of a model
    is of this form already.
    """
    sharded = {
        f"{_bare(name)}.{parameter}": (getattr(layer, parameter), layer.entries_of_rank(parameter))
        for name, layer in model.named_modules()
        if isinstance(layer, ShardedBlockSparseLinear)
        for parameter in ("weight_values", "bias")
        if getattr(layer, parameter) is not None and layer.entries_of_rank(parameter) is not None
    }

    def convert(one: Any, key: str) -> Any:
        if isinstance(one, dict):
            if key in sharded:
                return {name: of_parameter(kept, key) for name, kept in one.items()}
            return {name: convert(kept, str(name)) for name, kept in one.items()}
        if isinstance(one, (list, tuple)):
            return type(one)(convert(kept, "") for kept in one)
        return of_parameter(one, key) if key in sharded else one

    def of_parameter(kept: Any, key: str) -> Any:
        parameter, entries = sharded[key]
        if isinstance(kept, torch.Tensor) and not isinstance(kept, RankEntries) and kept.shape == parameter.shape:
            return _viewed(kept, entries)
        return kept

    return {key: convert(one, _bare(key)) for key, one in state.items()}


def local_state(state: dict[str, Any]) -> dict[str, Any]:
    """The state that whole_state was given, with the tensors in it that it was made of."""
    return {key: _mapped(one, lambda tensor: tensor.source) for key, one in state.items()}


def _viewed(kept: torch.Tensor, entries: tuple[Numbers, int] | None) -> RankEntries:
    assert entries is not None
    return RankEntries(kept, *entries)


def _mapped(one: Any, change: Callable[[RankEntries], torch.Tensor]) -> Any:
    if isinstance(one, RankEntries):
        return change(one)
    if isinstance(one, dict):
        return {key: _mapped(kept, change) for key, kept in one.items()}
    return type(one)(_mapped(kept, change) for kept in one) if isinstance(one, (list, tuple)) else one


def _bare(name: str) -> str:
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "") if name.startswith(wrapper) else name
    return name
