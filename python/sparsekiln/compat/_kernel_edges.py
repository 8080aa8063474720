"""An edge bias of the interface of 2017 as an epilogue of the kernel that computes the convolution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from sparsekiln._arrays import in_own_order
from sparsekiln.compat._edge_bias import EdgeBias
from sparsekiln.compat._elementwise import functions_of
from sparsekiln.compat._frameworks import framework_of


class Convolution(Protocol):
    """The part of a BlocksparseConv that KernelEdges calls. Arrays are NumPy's or PyTorch's; edges are rows of a gain and of a bias."""

    @property
    def _situations(self) -> np.ndarray | None: ...

    def _check_operands(self, x: Any, w: Any) -> None: ...

    def _y(self, x: Any, w: Any) -> Any: ...

    def _y_with_edges(self, x: Any, w: Any, edges: tuple[Any, Any]) -> Any: ...

    def _dx(self, dy: Any, w: Any) -> Any: ...

    def _dw(self, x: Any, dy: Any) -> Any: ...


class KernelEdges:
    """y = conv(x) · g + b at the edges, and conv(x) elsewhere, of arrays of NumPy, or differentiable of PyTorch.

    g, which may be None, and b are [channels, edges]. Kernels take [situations, channels] in float32, with 1 and 0 for the
    situation that is no edge.
    """

    def __init__(self, convolution: Convolution, edges: EdgeBias):
        self._convolution, self._edges = convolution, edges
        self._function: Any = None

    def __call__(self, x: Any, w: Any, g: Any, b: Any) -> Any:
        self._edges.check(g, b)
        if framework_of(x, w, g, b) == "torch":
            return self._of_torch(x, w, g, b)
        x, w = in_own_order(x), in_own_order(w)
        self._convolution._check_operands(x, w)
        return self._convolution._y_with_edges(x, w, self._rows(g, b))

    def _rows(self, g: Any, b: Any) -> tuple[Any, Any]:
        f = functions_of(b)
        gain = f.ones_like(f.cast(b, "float32")) if g is None else f.cast(g, "float32")
        return self._by_situation(gain, f.ones_like), self._by_situation(f.cast(b, "float32"), f.zeros_like)

    def _by_situation(self, numbers: Any, elsewhere: Callable[[Any], Any]) -> Any:
        f, situations = functions_of(numbers), self._convolution._situations
        return f.take(f.join([elsewhere(numbers[:, :1]), numbers], 1), situations, 1).T

    def _of_torch(self, x: Any, w: Any, g: Any, b: Any) -> Any:
        import torch

        self._function = self._function or _differentiable(self, self._convolution, self._edges)
        x, w = torch.as_tensor(x), torch.as_tensor(w)
        g, b = (None if one is None else torch.as_tensor(one).to(x.device) for one in (g, b))
        self._convolution._check_operands(x, w)
        if x.device != w.device:
            raise ValueError(f"x is on {x.device} and w on {w.device}")
        return self._function(x, w, g, b)


def _differentiable(kernels: KernelEdges, convolution: Convolution, edges: EdgeBias) -> Callable[..., Any]:
    import torch

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, w: Any, g: Any, b: Any) -> Any:
            ctx.save_for_backward(x, w, g, b)
            with torch.cuda.device_of(x):  # autograd does it for backward
                return convolution._y_with_edges(x, w, kernels._rows(g, b))

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, dy: Any) -> Any:
            x, w, g, b = ctx.saved_tensors
            wants = ctx.needs_input_grad
            # The sums matter for the gradient of g alone: kernels do not store them.
            y = convolution._y(x, w) if wants[2] else torch.zeros_like(dy)
            with torch.enable_grad():
                leaves = [None if one is None else one.detach().requires_grad_() for one in (y, g, b)]
                result = edges.apply(leaves[0], leaves[1], leaves[2])
                given = [one for one in leaves if one is not None]
                found = iter(torch.autograd.grad(result, given, dy))
            of_sums, dg, db = (None if one is None else next(found) for one in leaves)
            dx = convolution._dx(of_sums, w) if wants[0] else None
            dw = convolution._dw(x, of_sums).reshape(w.shape) if wants[1] else None
            return dx, dw, dg, db

    return torch.compiler.disable(Function.apply)
