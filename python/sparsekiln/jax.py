"""Block-sparse layers in JAX.

    import jax, sparsekiln
    from sparsekiln.jax import linear

    layout = sparsekiln.patterns.watts_strogatz(128, 128, density=0.1)
    w = jax.random.normal(key, (layout.blocks, 32, 32)) * 0.02
    y = jax.jit(linear, static_argnums=2)(x, w, layout)          # x [..., 4096] -> y [..., 4096]

``linear`` works under ``jit``, ``grad``, ``vmap``, ``scan``, ``checkpoint``, and ``shard_map`` with
``check_vma=False``. It launches through the XLA FFI: no Python, no GIL and no copy. Forward-mode differentiation and
second derivatives are not defined.

Kernels are compiled while JAX traces, for any batch up to 65536 rows: another batch size costs a trace, but no
kernel. vmap over activations is one launch; over weights, one launch for each. A launch names its kernel by a text
that contains everything it was made from, and JAX's persistent compilation cache and serialized programs hold that
text: a process that runs such a program without tracing it calls :func:`prepare` first. Kernels stay for the life of
the process.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sparsekiln
from sparsekiln import _core
from sparsekiln._arguments import flag, integer, shown
from sparsekiln._arrays import in_own_order
from sparsekiln._dtypes import SUMS, TRAINED, listed

__all__ = ["linear", "prepare"]

_TARGET = "sparsekiln_linear"  # of XLA's custom calls
_MOST = 65536  # rows of one launch: more take several launches, or, if they are summed, a kernel of their own


# Those that are not found in jax.nn by their name.
_NAMED_OTHERWISE = {
    "gelu": functools.partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True),
    "hardswish": jax.nn.hard_swish,
}


@dataclasses.dataclass(frozen=True)
class _Layer:
    """The properties of a layer that are known when JAX traces it. Equal layers share kernels and traces."""

    layout: sparsekiln.Layout
    block: tuple[int, int]
    dtype: str
    activation: str | None
    bias: bool
    math: str
    target: str

    @property
    def in_features(self) -> int:
        return self.layout.cols * self.block[1]

    @property
    def out_features(self) -> int:
        return self.layout.rows * self.block[0]


def linear(
    x: jax.Array,
    w: jax.Array,
    layout: sparsekiln.Layout,
    bias: jax.Array | None = None,
    activation: str | None = None,
    block: int | tuple[int, int] = 32,
    *,
    math: str = "ieee",
    target: str | None = None,
) -> jax.Array:
    """``activation(x · Wᵀ + bias)``, W of the given layout.

    Args:
      x: ``[..., in_features]``, float32, bfloat16, float16, or on the cpu, with
        ``jax_enable_x64``, float64. Any leading dimensions, also none.
      w: ``[blocks, block_out, block_in]`` of x's type: the present blocks of ``W[out, in]``, row-major over the
        layout.
      layout: rows are output features, columns input features, in blocks. Static: not traced.
      bias: ``[out_features]`` of x's type.
      activation: one of ``sparsekiln.activations``, such as ``"gelu"``. Fused into the product; where gradients are
        taken, it is computed from a stored pre-activation, rounded to x's type, unless its derivative is seen in its
        result, as that of relu is.
      block: features of a block: 8, 16, 32, 64 or 128; or ``(out, in)``.
      math: ``"ieee"``, or ``"tf32"`` for float32 on tensor cores.
      target: ``"cpu"`` or ``"cuda"``, CUDA's current device; by default that of ``jax.default_backend()``.

    Returns:
      ``[..., out_features]`` of x's type, accumulated in float32, or for float64 in float64.
    """
    x, w, bias = _array(x), _array(w), None if bias is None else _array(bias)
    layer = _layer(layout, block, x.dtype, activation, bias is not None, math, target)
    _check(layer, x, w, bias)
    lead = x.shape[:-1]
    y = _linear(layer, x.reshape(-1, layer.in_features), w, bias)
    return y.reshape(*lead, layer.out_features)


def prepare(
    layout: sparsekiln.Layout,
    dtype: Any = "float32",
    bias: bool = False,
    activation: str | None = None,
    block: int | tuple[int, int] = 32,
    *,
    math: str = "ieee",
    target: str | None = None,
    gradients: bool = True,
) -> None:
    """Compiles the kernels of a layer, so that programs compiled elsewhere find them in this process.

    The arguments are those of :func:`linear`; ``bias`` says whether there is one. Without ``gradients``, only what
    inference needs is compiled. Gradients are for batches of up to 65536 rows.
    """
    layer = _layer(layout, block, _dtype(dtype), activation, flag("bias", bias), math, target)
    needed = [("forward", activation)]
    if flag("gradients", gradients):
        # Without its activation if that is computed from the stored pre-activation.
        needed += [] if _takes_result(activation) else [("forward", None)]
        needed += [("grad_input", activation), ("grad_weight", activation)]
    for op, function in needed:
        _key(layer, op, function, _MOST)


def _array(given: Any) -> jax.Array:
    return jnp.asarray(in_own_order(given) if isinstance(given, np.ndarray) else given)


def _dtype(given: Any) -> np.dtype:
    try:
        return np.dtype(given)
    except TypeError:
        raise TypeError(f"dtype is {shown(given)}; one of {listed()} would work") from None


def _layer(layout, block, dtype, activation, bias, math, target) -> _Layer:
    if not isinstance(layout, sparsekiln.Layout):
        raise TypeError(
            f"layout must be a sparsekiln.Layout, not {type(layout).__name__}: it is static, so under jax.jit "
            "close over it or name it in static_argnums"
        )
    if np.dtype(dtype).name not in TRAINED:
        raise TypeError(f"x is {np.dtype(dtype).name}; sparsekiln multiplies {listed()}")
    if activation not in (None, *sparsekiln.activations):
        raise ValueError(f"activation {activation!r} is none of {', '.join(map(repr, sparsekiln.activations))} or None")
    sides = block if isinstance(block, (tuple, list)) else (block, block)
    block = tuple(integer("a side of the block", side) for side in sides)
    if len(block) != 2:
        raise ValueError(f"a block of {len(block)} sides; (out, in), or one integer, would work")
    return _Layer(layout, block, TRAINED[np.dtype(dtype).name], activation, bias, math, target or _target())


def _check(layer: _Layer, x, w, bias) -> None:
    if x.ndim == 0 or x.shape[-1] != layer.in_features:
        raise ValueError(
            f"x is {list(x.shape)}; its last dimension must be the {layer.in_features} input features of the "
            f"layout's {layer.layout.cols} block columns of {layer.block[1]}"
        )
    expected = {"w": (w, (layer.layout.blocks, *layer.block)), "bias": (bias, (layer.out_features,))}
    for name, (array, shape) in expected.items():
        if array is None:
            continue
        if array.shape != shape:
            raise ValueError(f"{name} is {list(array.shape)}; this layout takes {list(shape)}")
        if array.dtype != x.dtype:
            raise TypeError(f"{name} is {array.dtype.name} and x is {x.dtype.name}; cast one of them")


def _target() -> str:
    backend = jax.default_backend()
    if backend not in ("cpu", "gpu", "cuda"):
        raise NotImplementedError(f"sparsekiln has no kernels for JAX's {backend} backend; pass target='cpu' or 'cuda'")
    return "cpu" if backend == "cpu" else "cuda"


# ---- kernels, by the key under which programs find them ----

# What a custom call passes, in its order, and what it gets back.
_OPERANDS = {
    "forward": (["x", "w"], ["y"]),
    "grad_input": (["dy", "w"], ["dx"]),
    "grad_weight": (["x", "dy"], ["dw"]),
}


@functools.cache
def _register_handlers() -> None:
    if not hasattr(_core, "xla_handlers"):
        raise RuntimeError(
            "this build of sparsekiln has no XLA handlers: it was built where jaxlib was not installed. "
            "Install jax, then build sparsekiln again without build isolation"
        )
    for platform, handler in _core.xla_handlers().items():
        jax.ffi.register_ffi_target(_TARGET, handler, platform=platform)


@functools.cache
def _key(layer: _Layer, op: str, activation: str | None, most: int) -> str:
    """Compiles the kernel, if this process has not done so, and returns its key."""
    _register_handlers()
    arguments, results = _OPERANDS[op]
    options: dict[str, Any] = {"block": layer.block, "dtype": layer.dtype, "op": op, "math": layer.math}
    options["target"] = layer.target
    if op == "forward":
        parts = (["bias"] if layer.bias else []) + ([activation] if activation else [])
        options["epilogue"] = "+".join(parts) or "none"
        arguments = arguments + (["bias"] if layer.bias else [])
    elif activation:
        options["derivative"] = activation
        arguments = arguments + ["z"]
    if op == "grad_weight" and layer.bias:
        options["bias_gradient"] = True
        results = results + ["dbias"]
    # The key has everything that decides the numbers, and nothing that only this process knows.
    said = "".join(f" {name}={_text(value)}" for name, value in sorted(options.items()))
    key = f"layout={layer.layout.digest} rows={layer.layout.rows} cols={layer.layout.cols} batch<={most}{said}"
    kernel = sparsekiln.compile(layer.layout, batch=sparsekiln.up_to(most), **options)
    _core.register_xla_kernel(key, kernel, arguments, results)
    return key


def _text(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _most(op: str, rows: int) -> int:
    return 1 << (rows - 1).bit_length() if op == "grad_weight" and rows > _MOST else _MOST


def _call(layer: _Layer, op: str, activation: str | None, results, *arguments):
    """`results` are pairs of a shape and a type."""
    results = [jax.ShapeDtypeStruct(*result) for result in results]
    # Leading dimensions of vmap arrive at the handler, as 1 if an operand is not mapped. The handler counts them
    # as batch rows if it can.
    call = jax.ffi.ffi_call(_TARGET, results, vmap_method="expand_dims")
    return call(*arguments, key=_key(layer, op, activation, _most(op, arguments[0].shape[0])))


# ---- the product and its gradients ----


def _function(activation: str):
    """act(z) as JAX computes it."""
    return _NAMED_OTHERWISE.get(activation) or getattr(jax.nn, activation)


def _takes_result(activation: str | None) -> bool:
    """Whether the backward pass does with y instead of z."""
    return activation is None or _core.activations[activation]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _linear(layer: _Layer, x, w, bias):
    return _forward(layer, layer.activation, x, w, bias)


def _forward(layer: _Layer, activation: str | None, x, w, bias):
    y = ((x.shape[0], layer.out_features), x.dtype)
    return _call(layer, "forward", activation, [y], x, w, *([] if bias is None else [bias]))[0]


def _linear_fwd(layer: _Layer, x, w, bias):
    if layer.activation is None:
        return _forward(layer, None, x, w, bias), (x, w, None)
    if _takes_result(layer.activation):
        y = _forward(layer, layer.activation, x, w, bias)
        return y, (x, w, y)
    z = _forward(layer, None, x, w, bias)
    y = _function(layer.activation)(z.astype(SUMS[z.dtype.name])).astype(z.dtype)
    return y, (x, w, z)


def _linear_bwd(layer: _Layer, saved, dy):
    x, w, z = saved
    at = [] if z is None else [z]
    (dx,) = _call(layer, "grad_input", layer.activation, [(x.shape, x.dtype)], dy, w, *at)
    sums = [(w.shape, w.dtype)]
    if layer.bias:
        sums.append(((layer.out_features,), np.dtype(SUMS[x.dtype.name])))
    dw, *dbias = _call(layer, "grad_weight", layer.activation, sums, x, dy, *at)
    return dx, dw, dbias[0].astype(x.dtype) if dbias else None


_linear.defvjp(_linear_fwd, _linear_bwd)
