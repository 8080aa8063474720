"""sparsify_: replaces a model's dense layers by block-sparse ones."""

import fnmatch
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from sparsekiln._dtypes import CPU_ONLY

from .kernels import DTYPES
from .layers import BlockSparseLinear

Where = Callable[[str, torch.nn.Linear], bool] | str | Iterable[str] | None


@dataclass(frozen=True)
class Replaced:
    """What was done with one nn.Linear."""

    name: str  #: as in named_modules
    shape: tuple[int, int]  #: [out, in]
    blocks: int = 0  #: kept
    of: int = 0  #: blocks of the grid
    norm_kept: float = 0.0  #: Frobenius norm of what was kept, over that of all of the weight
    skipped: str = ""  #: why it was not replaced; empty if it was


@dataclass(frozen=True)
class Report:
    """What sparsify_ did. str() is a table."""

    layers: tuple[Replaced, ...]

    @property
    def replaced(self) -> tuple[Replaced, ...]:
        return tuple(one for one in self.layers if not one.skipped)

    @property
    def skipped(self) -> tuple[Replaced, ...]:
        return tuple(one for one in self.layers if one.skipped)

    def __str__(self) -> str:
        rows = [("layer", "out × in", "blocks kept", "norm kept")]
        for one in self.layers:
            kept = ("", one.skipped) if one.skipped else (f"{one.blocks} of {one.of}", f"{100 * one.norm_kept:.1f} %")
            rows.append((one.name, f"{one.shape[0]} × {one.shape[1]}", *kept))
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = ["  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[3]]).rstrip() for row in rows]
        kept, of = sum(one.blocks for one in self.replaced), sum(one.of for one in self.replaced)
        share = f", {kept} of {of} blocks kept ({100 * kept / of:.1f} %)" if of else ""
        return "\n".join([*lines, f"{len(self.replaced)} of {len(self.layers)} layers replaced{share}"])


def sparsify_(
    model: torch.nn.Module, density: float = 0.1, block: int | tuple[int, int] = 32, where: Where = None
) -> Report:
    """Replaces the nn.Linear layers of `model` by BlockSparseLinear with their blocks of largest norm.

    where  which of them: a function of a layer's name and the layer, a pattern of names ("encoder.*.output"), or
           several; None takes all

    Works on the model in place: make optimizers afterwards. Layers are not replaced, but reported with the reason, if they
    share their weight with another module, have hooks, or are of a subclass or a type without kernels.
    """
    if isinstance(model, torch.nn.Linear):
        raise ValueError("the model is a nn.Linear itself, which cannot be replaced in place; take BlockSparseLinear.from_linear")
    chosen = _chooser(where)
    owners = _owners(model)
    done: list[Replaced] = []
    instead: dict[int, torch.nn.Module] = {}
    for parent_name, parent in list(model.named_modules()):
        for key, child in list(parent.named_children()):
            name = f"{parent_name}.{key}" if parent_name else key
            if isinstance(child, torch.nn.Linear) and id(child) not in instead and chosen(name, child):
                row, layer = _replace(name, child, density, block, owners)
                done.append(row)
                instead[id(child)] = layer
    for parent in list(model.modules()):
        for key, child in list(parent._modules.items()):
            if child is not None and instead.get(id(child), child) is not child:
                setattr(parent, key, instead[id(child)])
    for module in model.modules():
        _keep_off_the_dense_path(module)
    return Report(tuple(done))


def _chooser(where: Where) -> Callable[[str, torch.nn.Linear], bool]:
    if where is None:
        return lambda name, layer: True
    if callable(where):
        return where
    patterns = (where,) if isinstance(where, str) else tuple(where)
    return lambda name, layer: any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _owners(model: torch.nn.Module) -> dict[int, list[str]]:
    """Names of the modules that have a parameter, by its id()."""
    owners: dict[int, list[str]] = {}
    for name, module in model.named_modules():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(id(parameter), []).append(name)
    return owners


def _replace(
    name: str, layer: torch.nn.Linear, density: float, block: int | tuple[int, int], owners: dict[int, list[str]]
) -> tuple[Replaced, torch.nn.Module]:
    shape = tuple(layer.weight.shape)
    reason = _reason_to_skip(name, layer, owners)
    if reason:
        return Replaced(name, shape, skipped=reason), layer
    sparse = BlockSparseLinear.from_linear(layer, density, block)
    whole = torch.linalg.vector_norm(layer.weight.detach().float()).item()
    kept = torch.linalg.vector_norm(sparse.weight_values.detach().float()).item()
    layout = sparse.layout
    return Replaced(name, shape, layout.blocks, layout.rows * layout.cols, kept / whole if whole else 1.0), sparse


def _reason_to_skip(name: str, layer: torch.nn.Linear, owners: dict[int, list[str]]) -> str:
    if type(layer) is not torch.nn.Linear:
        return f"is a {type(layer).__name__}"
    others = [owner for parameter in layer.parameters() for owner in owners[id(parameter)] if owner != name]
    if others:
        return f"shares its weight with {others[0]}"
    if layer.weight.dtype not in DTYPES:
        return f"is {layer.weight.dtype}"
    if layer.weight.is_cuda and str(layer.weight.dtype).removeprefix("torch.") in CPU_ONLY:
        return f"is {layer.weight.dtype}, which runs on the cpu target alone"
    if layer.weight.is_meta:
        return "is on the meta device: it has no weight to choose from"
    if any((layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)):
        return "has hooks"
    return ""


def _keep_off_the_dense_path(module: torch.nn.Module) -> None:
    """For inference PyTorch's encoder has an operator that takes dense weights, and nested tensors of padded inputs."""
    if isinstance(module, torch.nn.TransformerEncoderLayer):
        if any(isinstance(child, BlockSparseLinear) for child in module.children()):
            module.activation_relu_or_gelu = 0
    elif isinstance(module, torch.nn.TransformerEncoder):
        if any(isinstance(one, BlockSparseLinear) for one in module.modules()):
            module.enable_nested_tensor = module.use_nested_tensor = False
