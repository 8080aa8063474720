"""sparsify_: replaces a model's dense layers by block-sparse ones."""

import warnings
from collections.abc import Callable
from typing import Any

import torch

from sparsekiln._arguments import flag, shown

from .block_sparse_layer import BlockSparseLayer
from .blocks import parse_block
from .choice import Choice, Density, Where
from .kinds import (
    how_to_make, is_of_a_kind, kind_of, of_dense, outputs_and_inputs, reason_that_it_does_not_fit, small, strongest_blocks,
)  # fmt: skip
from .report import Replaced, Report

Tensor = torch.Tensor
Make = Callable[[str, Any, float], BlockSparseLayer]  #: of a name, a dense layer and its density


def sparsify_(
    model: torch.nn.Module,
    density: Density = 0.1,
    block: int | tuple[int, int] = 32,
    where: Where = None,
    *,
    scores: Callable[[str, Any], Tensor] | None = None,
    leave_small: bool = True,
) -> Report:
    """Replaces the layers of `model` that are nn.Linear, nn.ConvNd or nn.ConvTransposeNd by block-sparse ones of their
    strongest blocks.

    density      of every layer; or by pattern of names, {"encoder.*.output": 0.05, "*": 0.2}, of which the first that fits
                 counts; or a function of a layer's name and the layer. None leaves a layer alone, as does a dict without a
                 pattern that fits
    where        which layers: a function of a layer's name and the layer, a pattern of names ("encoder.*.output"), or several;
                 None takes all
    scores       which blocks are the strongest: a function of a layer's name and the layer that returns a score for each
                 block [rows, cols], or for each element of the weight [out, in], of which a block has the sum of absolute
                 values. Without it, blocks have their Frobenius norm. A convolution has the rows and columns of its weight, whose
                 columns are those of one group, and each of its blocks has all taps of the kernel
    leave_small  leaves small layers alone, which lose the most and gain the least: those of fewer than two blocks of outputs
                 or of inputs, such as a classifier of few classes, and those where the density is less than one block

    Works on the model in place: make optimizers afterwards. Layers are not replaced, but reported with the reason, if they are
    small, share their weight with another module, have hooks, have no weight yet (nn.LazyLinear), are block-sparse already,
    are of another subclass, or are what there are no kernels for: another type, several groups whose channels fill no whole
    blocks, another padding_mode than "zeros", on CUDA devices very large kernels. Warns if a pattern fits no layer, and if nothing was there to
    replace.
    """
    sides = parse_block(block)
    check_scoring(scores)

    def make(name: str, layer: Any, of_layer: float) -> BlockSparseLayer:
        try:
            layout = strongest_blocks(layer, of_layer, sides, None if scores is None else scores(name, layer))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        return of_dense(layer, sides, layout)

    return replace_layers(model, Choice(where, density), sides, make, leave_small)


def replace_layers(model: torch.nn.Module, choice: Choice, block: tuple[int, int], make: Make, leave_small: bool, may_find_none: bool = False) -> Report:
    """Replaces what `choice` takes by what `make` makes of a layer's name, the layer and its density."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"the model is {shown(model)}; a torch.nn.Module would work")
    leave_small = flag("leave_small", leave_small)
    kind = kind_of(model)
    if kind is not None:
        raise ValueError(f"the model is a {type(model).__name__} itself, which cannot be replaced in place; take {how_to_make(kind)}")
    owners = _owners(model)
    done: list[Replaced] = []
    instead: dict[int, torch.nn.Module] = {}
    met: set[int] = set()
    for name, layer in layers_of(model):
        if id(layer) in met or not choice.takes(name, layer):
            continue
        met.add(id(layer))
        density = choice.density(name, layer)
        reason = _reason_to_skip(layer, block, owners)
        if not reason and density is None:
            reason = "no density is given for it"
        if not reason and density is not None and leave_small:
            reason = small(layer, block, density)
        if reason or density is None:
            done.append(Replaced(name, outputs_and_inputs(layer), skipped=reason))
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


def check_scoring(scores: object) -> None:
    """Raises TypeError for what is neither None nor a function that gives scores."""
    if scores is not None and not callable(scores):
        raise TypeError(f"scores is {shown(scores)}; a function of a layer's name and the layer would work")


def layers_of(model: torch.nn.Module) -> list[tuple[str, Any]]:
    """The dense and the block-sparse layers, by each of their names."""
    return [(name, one) for name, one in model.named_modules(remove_duplicate=False) if is_of_a_kind(one)]


def stored(layer: BlockSparseLayer) -> torch.nn.Parameter:
    """The weight of a layer: [blocks, …]."""
    return layer.weight_values


def has_hooks(module: torch.nn.Module) -> bool:
    """Which a module that replaces it would lack."""
    return any((module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks))


Owners = dict[int, list[tuple[str, torch.nn.Module]]]


def _owners(model: torch.nn.Module) -> Owners:
    """The modules that have a parameter, with their names, by its id()."""
    owners: Owners = {}
    for name, module in model.named_modules():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(id(parameter), []).append((name, module))
    return owners


def _row(name: str, weight: Tensor, sparse: BlockSparseLayer) -> Replaced:
    whole = torch.linalg.vector_norm(weight.detach().float()).item()
    kept = torch.linalg.vector_norm(stored(sparse).detach().float()).item()
    return Replaced(name, outputs_and_inputs(sparse), sparse.layout.blocks, sparse.places, kept / whole if whole else 1.0)


def _message(model: torch.nn.Module, choice: Choice, done: list[Replaced]) -> str:
    """What the caller may not have expected."""
    layers = layers_of(model)
    if not layers:
        return "The model has no nn.Linear and no convolution."
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


def _reason_to_skip(layer: Any, block: tuple[int, int], owners: Owners) -> str:
    if isinstance(layer, BlockSparseLayer):
        return _SPARSE_ALREADY
    if isinstance(layer, torch.nn.modules.lazy.LazyModuleMixin) and layer.has_uninitialized_params():
        return "has no weight yet: call the model once, on an example of its input, and then this again"
    reason = reason_that_it_does_not_fit(layer, block)
    if reason:
        return reason
    others = [owner for parameter in layer.parameters() for owner, module in owners[id(parameter)] if module is not layer]
    if others:
        return f"shares its weight with {others[0]}"
    if layer.weight.is_meta:
        return "is on the meta device: it has no weight to choose from"
    if has_hooks(layer):
        return "has hooks"
    return ""


def _keep_off_the_dense_path(module: torch.nn.Module) -> None:
    """For inference PyTorch's encoder has an operator that takes dense weights, and nested tensors of padded inputs."""
    if isinstance(module, torch.nn.TransformerEncoderLayer):
        if any(isinstance(child, BlockSparseLayer) for child in module.children()):
            module.activation_relu_or_gelu = 0
    elif isinstance(module, torch.nn.TransformerEncoder):
        if any(isinstance(one, BlockSparseLayer) for one in module.modules()):
            module.enable_nested_tensor = module.use_nested_tensor = False
