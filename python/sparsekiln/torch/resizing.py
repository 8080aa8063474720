"""A Parameter that changes its shape in training: whether it can, what moves along, and what is refused."""

import gc
from collections.abc import Callable, Iterable, Sequence

import torch

from sparsekiln._arguments import shown

from .averages import objects_of

Tensor = torch.Tensor

# They keep what they know about a parameter in other places than their `state` of it.
_WITHOUT_STATE_OF_ONE_PARAMETER = ("LBFGS", "ZeroRedundancyOptimizer")


def check_whole(parameter: object, name: str, shape: tuple[int, ...]) -> None:
    """Raises RuntimeError unless `parameter` is an ordinary Parameter of this shape: not sharded, and not computed from another."""
    if type(parameter) is torch.nn.Parameter and tuple(parameter.shape) == shape and not hasattr(parameter, "_fsdp_flattened"):
        return
    if type(parameter).__name__ == "DTensor" or hasattr(parameter, "_fsdp_flattened") or type(parameter) is torch.nn.Parameter:
        raise RuntimeError(
            f"{name} is {_described(parameter)}, sharded over processes (FSDP, DTensor), and a layer cannot move to another layout "
            "there; do it before the model is sharded, or load a state of the new layout into a new model"
        )
    raise RuntimeError(
        f"{name} is {_described(parameter)}, computed by a parametrization or a pruning mask, and a layer cannot move to another "
        "layout then; make it permanent first (torch.nn.utils.parametrize.remove_parametrizations, torch.nn.utils.prune.remove)"
    )


def _described(parameter: object) -> str:
    shape = tuple(parameter.shape) if isinstance(parameter, torch.Tensor) else "?"
    return f"a {type(parameter).__name__} of shape {shape}"


def check_free(parameter: torch.nn.Parameter, name: str) -> None:
    """Raises RuntimeError if something waits for the gradient of `parameter` by a hook that a change of the shape would lose."""
    waiting = None
    if _accumulator_lives(parameter):
        if _in_distributed_data_parallel(parameter):
            waiting = "DistributedDataParallel averages its gradient"
        elif _has_hooks(torch.autograd.graph.get_gradient_edge(parameter).node):
            waiting = "hooks of its gradient accumulator would be lost"
    if waiting is not None:
        raise RuntimeError(
            f"{name} cannot change its number of blocks: {waiting}. Make the layer with max_blocks=, so that its shape "
            "is constant, or unwrap the model, move the layer, and wrap it again"
        )


def _accumulator_lives(parameter: torch.nn.Parameter) -> bool:
    """Whether a graph, or a hook's owner, holds the parameter's AccumulateGrad node."""
    before = parameter._use_count()
    with torch.enable_grad():
        edge = torch.autograd.graph.get_gradient_edge(parameter) if parameter.requires_grad else None
    return edge is not None and parameter._use_count() == before


def _has_hooks(accumulator) -> bool:
    for register in (accumulator.register_hook, accumulator.register_prehook):
        handle = register(lambda *_: None)
        others = len(handle.hooks_dict_ref()) > 1
        handle.remove()
        if others:
            return True
    return False


def _in_distributed_data_parallel(parameter: torch.nn.Parameter) -> bool:
    # DDP leaves no mark on a parameter, and its hooks are not visible from Python: its objects are looked for.
    if not torch.distributed.is_available() or not torch.distributed.is_initialized() or not _wrapped(parameter):
        return False
    gc.collect()  # a wrapper that was dropped may wait for it, being part of a cycle
    return _wrapped(parameter)


def _wrapped(parameter: torch.nn.Parameter) -> bool:
    wrappers = objects_of(torch.nn.parallel.DistributedDataParallel)
    return any(one is parameter for wrapper in wrappers for one in wrapper.parameters())


def reshape_(parameter: torch.nn.Parameter, data: Tensor) -> None:
    """Gives the parameter these elements: in place if it has their shape, else instead of its own (see check_free)."""
    if parameter.shape == data.shape:
        parameter.detach().copy_(data)
        return
    # A live graph holds the AccumulateGrad node, which knows the old shape. A write of another type makes PyTorch drop it.
    other = torch.float64 if parameter.dtype != torch.float64 else torch.float32
    parameter.data = torch.empty(0, dtype=other, device=parameter.device)
    parameter.data = data
    torch.autograd.graph.increment_version(parameter)  # a backward pass of the old shape is an error


def write_(parameter: Tensor, data: Tensor) -> None:
    """Sets a parameter, which may be sharded over processes: then to what the first of them was given, each to its part."""
    if type(parameter.data).__name__ == "DTensor":
        from torch.distributed.tensor import distribute_tensor  # which takes PyTorch a second to load

        data = distribute_tensor(data, parameter.device_mesh, parameter.placements)
    parameter.detach().copy_(data)


#: One, several, or none.
Optimizers = torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None


def each_of(optimizers: Optimizers) -> Sequence[torch.optim.Optimizer]:
    if optimizers is None:
        return ()
    each = (optimizers,) if isinstance(optimizers, (torch.optim.Optimizer, str)) or not isinstance(optimizers, Iterable) else tuple(optimizers)
    for one in each:
        if not hasattr(one, "param_groups"):
            raise TypeError(f"the optimizer is {shown(one)}; one of torch.optim, or several, would work")
    return each


def holds(optimizer: torch.optim.Optimizer, parameter: Tensor) -> bool:
    return any(one is parameter for group in optimizer.param_groups for one in group["params"])


def check_optimizer(optimizer: torch.optim.Optimizer, parameter: torch.nn.Parameter, name: str) -> None:
    """Raises ValueError if `optimizer` does not hold the parameter, or keeps something for it that cannot move block by block."""
    kind = type(optimizer).__name__
    if not holds(optimizer, parameter):
        raise ValueError(f"{kind} does not hold {name}; give relayout the optimizer that the layer is trained with")
    if optimizer.state and any(base.__name__ in _WITHOUT_STATE_OF_ONE_PARAMETER for base in type(optimizer).__mro__):
        raise ValueError(
            f"{kind} keeps its state of {name} together with that of other parameters, so that it cannot move with the blocks; call "
            "relayout without it, and make a new optimizer"
        )
    for key, kept in optimizer.state.get(parameter, {}).items():
        if not _moves(kept, parameter) and not _stays(kept, parameter):
            form = f"of shape {tuple(kept.shape)}" if isinstance(kept, torch.Tensor) else f"a {type(kept).__name__}"
            raise ValueError(
                f"{kind} keeps {key!r} for {name}, {form}, which is not block by block like {tuple(parameter.shape)} and cannot move "
                "with the blocks; call relayout without it, and make a new optimizer"
            )


def _moves(kept: object, parameter: Tensor) -> bool:
    """What has an entry for each block: shaped like the parameter, or with sums along a block's sides in their place."""
    if not isinstance(kept, torch.Tensor) or kept.dim() != parameter.dim():
        return False
    return kept.shape == parameter.shape or (kept.shape[0] == parameter.shape[0] != 1 and _within_blocks(kept, parameter))


def _stays(kept: object, parameter: Tensor) -> bool:
    """What does not depend on blocks: numbers, text, nothing, sums over all blocks."""
    if isinstance(kept, torch.Tensor):
        over_all = kept.dim() == parameter.dim() and kept.shape[0] == 1 != parameter.shape[0] and _within_blocks(kept, parameter)
        return kept.numel() == 1 or over_all
    return kept is None or isinstance(kept, (bool, int, float, str))


def _within_blocks(kept: Tensor, parameter: Tensor) -> bool:
    return all(one in (1, side) for one, side in zip(kept.shape[1:], parameter.shape[1:]))


def moved_state(optimizer: torch.optim.Optimizer, parameter: Tensor, move: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    """What `optimizer` keeps for the parameter, moved; see write_state."""
    return {key: move(kept) for key, kept in optimizer.state.get(parameter, {}).items() if _moves(kept, parameter)}


def write_state(optimizer: torch.optim.Optimizer, parameter: Tensor, moved: dict[str, Tensor]) -> None:
    """Makes `moved` what the optimizer keeps: in place where the shape is the same, since a CUDA graph may hold the address."""
    for key, new in moved.items():
        kept = optimizer.state[parameter][key]
        if kept.shape == new.shape:
            kept.copy_(new)
        else:
            optimizer.state[parameter][key] = new
