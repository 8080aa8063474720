"""Batch normalisation of trained models, folded into the block-sparse convolutions before it."""

import copy
from typing import Any, TypeVar

import torch

from sparsekiln._arguments import shown

from .convolution.layer import ConvolutionLayer
from .surgery import has_hooks

Tensor = torch.Tensor
_Layer = TypeVar("_Layer", bound=ConvolutionLayer)
_NORMS = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d, torch.nn.SyncBatchNorm)


def fuse_conv_bn(conv: _Layer, bn: torch.nn.Module) -> _Layer:
    """A copy of a block-sparse convolution, or transposed one, that computes bn(conv(x)), both in eval mode.

    Like torch.nn.utils.fusion.fuse_conv_bn_eval: the weights of each output feature are multiplied by γ / √(variance + ε), and
    the bias becomes (bias − mean) · γ / √(variance + ε) + β; it is made if there is none. With an edge bias, its gains are
    multiplied instead of the weights, and its biases are those that change. Computed in float32 at least.

    TypeError for other modules. ValueError in training mode, where a batch is normalised by statistics of its own, for a norm
    without running statistics, and for one of other features.
    """
    _check(conv, bn)
    result = copy.deepcopy(conv)
    with torch.no_grad():
        edges = getattr(conv, "edge_extents", None) is not None
        weight, bias = (conv.edge_gain, conv.edge_bias) if edges else (conv.weight_values, conv.bias)
        wide = torch.promote_types(torch.promote_types(weight.dtype, bn.running_var.dtype), torch.float32)
        scale = (bn.running_var.to(wide) + bn.eps).rsqrt()
        if bn.weight is not None:
            scale = scale * bn.weight
        shift = -bn.running_mean * scale if bias is None else (bias - bn.running_mean) * scale
        if bn.bias is not None:
            shift = shift + bn.bias
        if edges:
            result.edge_gain.copy_(weight * scale)
            result.edge_bias.copy_(shift)
            return result
        result.weight_values.copy_(weight * conv.of_outputs(scale))
        result.bias = torch.nn.Parameter(shift.to(weight.dtype), weight.requires_grad if bias is None else bias.requires_grad)
    return result


def fuse_conv_bn_(model: torch.nn.Module) -> list[str]:
    """Folds each batch normalisation of a model into the block-sparse convolution that it is applied to, in place.

    The convolution is replaced by fuse_conv_bn, and the norm by nn.Identity. Which norm follows which convolution is read from
    a trace of the model's forward (torch.fx), which must be traceable. Both must be called once, the result of the
    convolution must have no other use, and both must be in eval mode; where one has hooks, both stay. Returns the names of the norms that were folded.

    Raises what fuse_conv_bn does, before the model is changed.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"the model is {shown(model)}; a torch.nn.Module would work")
    graph = _Tracer().trace(model)
    calls = [node for node in graph.nodes if node.op == "call_module"]
    modules = dict(model.named_modules(remove_duplicate=False))
    times: dict[int, int] = {}
    for node in calls:
        times[id(modules[node.target])] = times.get(id(modules[node.target]), 0) + 1
    pairs = []
    for node in calls:
        source = node.args[0] if len(node.args) == 1 and not node.kwargs else None
        if not isinstance(source, torch.fx.Node) or source.op != "call_module" or len(source.users) != 1:
            continue
        conv, bn = modules[source.target], modules[node.target]
        if not isinstance(conv, ConvolutionLayer) or not isinstance(bn, _NORMS) or times[id(conv)] != 1 or times[id(bn)] != 1:
            continue
        _check(conv, bn)
        if has_hooks(conv) or has_hooks(bn):
            continue
        pairs.append((source.target, node.target))
    for conv, bn in pairs:
        _put(model, conv, fuse_conv_bn(modules[conv], modules[bn]))
        _put(model, bn, torch.nn.Identity().eval())
    return [bn for _, bn in pairs]


class _Tracer(torch.fx.Tracer):
    """Block-sparse layers, like those of torch.nn, are one node each."""

    def is_leaf_module(self, module: torch.nn.Module, name: str) -> bool:
        return isinstance(module, ConvolutionLayer) or super().is_leaf_module(module, name)


def _put(model: torch.nn.Module, name: str, module: torch.nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, module)


def _check(conv: Any, bn: Any) -> None:
    if not isinstance(conv, ConvolutionLayer):
        raise TypeError(
            f"a {type(conv).__name__}; block-sparse convolutions are taken here, and torch.nn.utils.fusion.fuse_conv_bn_eval takes "
            "dense ones"
        )
    if not isinstance(bn, _NORMS):
        raise TypeError(f"a {type(bn).__name__}; nn.BatchNorm1d, 2d or 3d, or nn.SyncBatchNorm is taken here")
    if conv.training or bn.training:
        name = " and ".join(type(one).__name__ for one in (conv, bn) if one.training)
        raise ValueError(f"{name} in training mode, where each batch is normalised by its own statistics; call eval() on both first")
    if bn.running_mean is None or bn.running_var is None:
        raise ValueError(f"a {type(bn).__name__} without running statistics, which normalises each batch by its own")
    if bn.num_features != conv.out_channels:
        raise ValueError(f"a {type(bn).__name__} of {bn.num_features} features, and a convolution of {conv.out_channels} output channels")
    if type(conv.weight_values) is not torch.nn.Parameter:
        raise ValueError(
            "weight_values is computed by a parametrization or a pruning mask; make it permanent first "
            "(torch.nn.utils.parametrize.remove_parametrizations, torch.nn.utils.prune.remove)"
        )
