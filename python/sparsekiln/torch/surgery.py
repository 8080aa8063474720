"""sparsify_: replaces a model's dense layers by block-sparse ones."""

import warnings
from collections.abc import Callable
from typing import Any

import torch

from sparsekiln._dtypes import CPU_ONLY

from .blocks import parse_block, strongest
from .choice import Choice, Density, Where, reason_that_it_is_small
from .kernels import DTYPES
from .layers import BlockSparseLinear
from .report import Replaced, Report

Tensor = torch.Tensor
Make = Callable[[str, torch.nn.Linear, float], BlockSparseLinear]


def sparsify_(
    model: torch.nn.Module,
    density: Density = 0.1,
    block: int | tuple[int, int] = 32,
    where: Where = None,
    *,
    scores: Callable[[str, Any], Tensor] | None = None,
    leave_small: bool = True,
) -> Report:
    """Replaces the nn.Linear layers of `model` by BlockSparseLinear with their strongest blocks.

    density      of every layer; or by pattern of names, {"encoder.*.output": 0.05, "*": 0.2}, of which the first that fits
                 counts; or a function of a layer's name and the layer. None leaves a layer alone, as does a dict without a
                 pattern that fits
    where        which layers: a function of a layer's name and the layer, a pattern of names ("encoder.*.output"), or several;
                 None takes all
    scores       which blocks are the strongest: a function of a layer's name and the layer that returns a score for each
                 block [rows, cols], or for each element of the weight [out, in], of which a block has the sum of absolute
                 values. Without it, blocks have their Frobenius norm
    leave_small  leaves small layers alone, which lose the most and gain the least: those of fewer than two blocks of outputs
                 or of inputs, such as a classifier of few classes, and those where the density is less than one block

    Works on the model in place: make optimizers afterwards. Layers are not replaced, but reported with the reason, if they are
    small, share their weight with another module, have hooks, have no weight yet (nn.LazyLinear), are block-sparse already,
    or are of another subclass or a type without kernels. Warns if a pattern fits no layer, and if nothing was there to replace.
    """
    sides = parse_block(block)

    def make(name: str, layer: torch.nn.Linear, of_layer: float) -> BlockSparseLinear:
        weight = layer.weight.detach()
        try:
            layout = strongest(weight, of_layer, sides, None if scores is None else scores(name, layer))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        return BlockSparseLinear.from_linear(layer, block=sides, layout=layout)

    return replace_layers(model, Choice(where, density), sides, make, leave_small)


def replace_layers(model: torch.nn.Module, choice: Choice, block: tuple[int, int], make: Make, leave_small: bool, may_find_none: bool = False) -> Report:
    """Replaces what `choice` takes by what `make` makes of a layer's name, the layer and its density."""
    if isinstance(model, torch.nn.Linear):
        raise ValueError("the model is a nn.Linear itself, which cannot be replaced in place; take BlockSparseLinear.from_linear")
    owners = _owners(model)
    done: list[Replaced] = []
    instead: dict[int, torch.nn.Module] = {}
    met: set[int] = set()
    for name, layer in linear_layers(model):
        if id(layer) in met or not choice.takes(name, layer):
            continue
        met.add(id(layer))
        density = choice.density(name, layer)
        reason = _reason_to_skip(layer, owners)
        if not reason and density is None:
            reason = "no density is given for it"
        if not reason and density is not None and leave_small:
            reason = reason_that_it_is_small(_shape(layer), block, density)
        if reason or density is None or not isinstance(layer, torch.nn.Linear):
            done.append(Replaced(name, _shape(layer), skipped=reason))
        else:
            sparse = make(name, layer, density)
            done.append(_row(name, layer.weight, sparse))
            instead[id(layer)] = sparse
    for parent in list(model.modules()):
        for key, child in list(parent._modules.items()):
            if child is not None and id(child) in instead:
                setattr(parent, key, instead[id(child)])
    for module in model.modules():
        _keep_off_the_dense_path(module)
    report = Report(tuple(done), _message(model, choice, done))
    all_sparse_already = bool(done) and all(one.skipped == _SPARSE_ALREADY for one in done)
    if choice.unused or (report.message and not may_find_none and not all_sparse_already):
        warnings.warn(report.message, stacklevel=3)
    return report


def linear_layers(model: torch.nn.Module) -> list[tuple[str, torch.nn.Linear | BlockSparseLinear]]:
    """The dense and the block-sparse layers, by each of their names."""
    named = model.named_modules(remove_duplicate=False)
    return [(name, one) for name, one in named if isinstance(one, (torch.nn.Linear, BlockSparseLinear))]


def stored(layer: BlockSparseLinear) -> torch.nn.Parameter:
    """The weight of a layer: [blocks, block_out, block_in]."""
    return layer.weight_values


def _shape(layer: torch.nn.Linear | BlockSparseLinear) -> tuple[int, int]:
    """[out, in]; 0 inputs if they are not known yet."""
    return int(layer.out_features), int(layer.in_features)


Owners = dict[int, list[tuple[str, torch.nn.Module]]]


def _owners(model: torch.nn.Module) -> Owners:
    """The modules that have a parameter, with their names, by its id()."""
    owners: Owners = {}
    for name, module in model.named_modules():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(id(parameter), []).append((name, module))
    return owners


def _row(name: str, weight: Tensor, sparse: BlockSparseLinear) -> Replaced:
    whole = torch.linalg.vector_norm(weight.detach().float()).item()
    kept = torch.linalg.vector_norm(stored(sparse).detach().float()).item()
    layout = sparse.layout
    return Replaced(name, _shape(sparse), layout.blocks, layout.rows * layout.cols, kept / whole if whole else 1.0)


def _message(model: torch.nn.Module, choice: Choice, done: list[Replaced]) -> str:
    """What the caller may not have expected."""
    layers = linear_layers(model)
    if not layers:
        return "The model has no nn.Linear."
    lines = [f"No layer's name fits {pattern!r}." for pattern in choice.unused]
    if not done:
        some = ", ".join(name for name, _ in layers[:4]) + (", …" if len(layers) > 4 else "")
        lines.append(f"No layer was chosen; the model has {some}.")
    elif all(one.skipped == _SPARSE_ALREADY for one in done):
        lines.append("Every layer that was chosen was block-sparse already.")
    elif all(one.skipped for one in done):
        lines.append("No layer was replaced; the report has the reasons.")
    return " ".join(lines)


_SPARSE_ALREADY = "is block-sparse already"


def _reason_to_skip(layer: torch.nn.Linear | BlockSparseLinear, owners: Owners) -> str:
    if isinstance(layer, BlockSparseLinear):
        return _SPARSE_ALREADY
    if isinstance(layer, torch.nn.LazyLinear) and layer.has_uninitialized_params():
        return "has no weight yet: call the model once, on an example of its input, and then this again"
    if type(layer) is not torch.nn.Linear:
        return f"is a {type(layer).__name__}"
    others = [owner for parameter in layer.parameters() for owner, module in owners[id(parameter)] if module is not layer]
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
