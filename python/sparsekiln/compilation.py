"""compile(): from a layout to a kernel."""

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsekiln import _core
from sparsekiln._arguments import flag, integer, path, paths, real, shown, text
from sparsekiln._core import Kernel
from sparsekiln._dtypes import NAMES
from sparsekiln._progress import tuning_bar
from sparsekiln.layout import Layout, block_of

if TYPE_CHECKING:
    import torch


class up_to:
    """A batch of any size from 0 to `bound`: compile(..., batch=up_to(8192))."""

    def __init__(self, bound: int) -> None:
        self.bound = integer("the bound of up_to", bound)

    def __str__(self) -> str:
        return f"up-to:{self.bound}"

    def __repr__(self) -> str:
        return f"up_to({self.bound})"


def compile(
    layout: Layout | Any,
    block: int | tuple[int, int] | None = None,
    batch: int | up_to = 64,
    dtype: Any = "f32",
    op: str = "forward",
    epilogue: str = "none",
    target: "str | torch.device" = "auto",
    *,
    out_dtype: Any = None,
    math: str = "ieee",
    order: str = "batch-major",
    strict_absent: bool = False,
    derivative: str = "none",
    block_scales: bool = False,
    bias_gradient: bool = False,
    block_scale_gradient: bool = False,
    in_features: int = 0,
    out_features: int = 0,
    alignment: int = 16,
    overlap_launches: bool = False,
    convolution: str = "none",
    config: str | None = None,
    tuning: str = "recorded",
    tuning_seconds: float = 30.0,
    progress: bool | Callable[[int, int, float, float], None] | None = None,
    attached: bool = False,
    tiered: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    packs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    require: str = "anything",
    **fields: Any,
) -> Kernel:
    """Compiles a block-sparse linear layer or convolution, or finds it in the cache; asking again while a Kernel lives is a look-up.

    layout: a Layout, or what Layout() takes: one entry a block, or a BSR matrix of SciPy or PyTorch.
    block: elements of a block, one number or (out, in), of 8, 16, 32, 64 and 128. Where None: that of the BSR matrix, else 32.
    batch: n, or up_to(bound).
    dtype: of W and what it is multiplied with: "f32", "bf16", "f16", "f64" (on the cpu), or, forward, "e4m3", "e5m2" and "i8"; or a dtype
        of NumPy or PyTorch. Sums are float32, of "f64" float64, of "i8" int32.
    op: "forward" y[n, out] = x[n, in] W^T; "grad_input" dx = dy W; "grad_weight" dw = dy^T x on the blocks of the layout.
    epilogue: what happens before y is stored, joined by "+": scale, bias, one of sparsekiln.activations, glu, residual.
        Convolutions may have edge_bias instead of bias: see sparsekiln.edge_situations. Operands of 8 bits may have scales of
        block rows: see Kernel.
        "lstm" or "lstm+keep" is the cell of an LSTM, with four weights of the layout; its gradients have "lstm" too,
        grad_input also "lstm+residual" and grad_weight "scale+lstm". "layer_norm" is layer normalisation, with multiply, add
        and an activation, or with multiply and lstm; grad_input has the same, and residual.
    target: "auto" (the current CUDA device, else the cpu), "cpu", "cuda", "cuda:1", "emulated", or an architecture; or a torch.device.
    out_dtype: of what is computed. Where None: as dtype, "bf16" of 8-bit floats, and "i32" of "i8".
    math: "ieee", or "tf32" for float32 on tensor cores.
    order: "batch-major" x[n, in], or "feature-major" x[in, n]; of a convolution channels-last, or channels-first.
    derivative: of gradients: dy is multiplied by the derivative of this activation at z.
    block_scales: every block of W, of a convolution with all its taps, is scaled by a number of its own. Also called gates.
    bias_gradient, block_scale_gradient: grad_weight sums these too. The latter is also called gate_gradient.
    in_features, out_features: where the last blocks are cut; 0: whole ones.
    tuning: "recorded", or "now": a problem without a record of this device is tuned first, for `tuning_seconds` at most.
        Ctrl-C ends that; what was measured is kept, and the next run goes on from there.
    progress: of tuning: True draws a bar on standard error (None: where that is a terminal); a callable is told
        (candidates settled, candidates, best so far in microseconds, seconds).
    attached: the layout is not baked into the code: layouts share compiles, and Kernel.relayout takes another one. Not for a
        mask of taps for each block, and on CUDA targets not for channels-first images.
    tiered: serves attached at once, and with the layout baked in when that has been compiled in the background, for what
        attached takes; on the cpu baked at once, for everything.
    alignment: bytes that rows of activations are multiples of: 16, or 8, 4, 2 where features do not allow it.
    overlap_launches: on CUDA devices from sm_90 on, a launch may begin before the one before it in its stream has ended:
        you promise that neither that one nor a copy writes the weight, bias or block scales.
    convolution: the geometry of a convolution over images, such as "kernel=3x3 stride=2 padding=1 input=32x32";
        the batch is a number of images. "input=up-to:64x48" takes images of any extents up to these. "transposed" and
        "output-padding=1" make it a transposed one, "taps=110100" is a mask of taps, of all blocks or of each.
    strict_absent: a non-finite x reaches no row whose blocks do not meet it.
    config: pins the configuration of a fixed batch instead of choosing one; Kernel.config has it after "batch: ".
    cache_dir: instead of the user's cache. If it cannot be used, a RuntimeWarning says why, once.
    packs: files of `sparsekiln precompile`, one or several, looked into before the cache; require="prebuilt" takes nothing else, and
        require="built" what packs or the cache have: neither compiles.
    fields: what decides the computation beside these, where the library is newer than this package.

    Raises InvalidArgument (a ValueError), or Error.
    """
    if progress is not None and not callable(progress):
        progress = flag("progress", progress)
    block = block_of(layout) if block is None else block
    texts = _texts(locals())
    layout = layout if isinstance(layout, Layout) else Layout(layout)
    options = {
        "in_features": integer("in_features", in_features), "out_features": integer("out_features", out_features),
        "target": _target(target), "config": None if config is None else text("config", config), "tuning": text("tuning", tuning),
        "tuning_seconds": real("tuning_seconds", tuning_seconds), "attached": flag("attached", attached),
        "tiered": flag("tiered", tiered), "cache_dir": b"" if cache_dir is None else path("cache_dir", cache_dir),
        "packs": paths("packs", packs), "require": text("require", require),
    }  # fmt: skip
    with tuning_bar(progress if tuning == "now" else False) as told:
        try:
            return _core.compile(layout._core, layout, texts, options, told)
        finally:
            _warn()


def _warn() -> None:
    """Says what the library has to say of caches and packs, which it says once."""
    while (sentence := _core.take_warning()) is not None:
        warnings.warn(f"sparsekiln: {sentence}", RuntimeWarning, stacklevel=3)


def _target(given: Any) -> str:
    torch = sys.modules.get("torch")
    return str(given) if torch is not None and isinstance(given, torch.device) else text("target", given)


#: Other names of flags that compile() takes.
_ALIASES = {"gates": "block_scales", "gate_gradient": "block_scale_gradient"}


def _texts(arguments: dict[str, Any]) -> dict[str, str]:
    """The arguments of compile() that decide the computation, as text, by the names of its fields."""
    known = _core.computation_fields()
    others = arguments["fields"]
    for alias, argument in _ALIASES.items():
        if alias not in others:
            continue
        if arguments[argument] is not False:
            raise TypeError(f"compile() is given {argument} and {alias}, which are one argument; {argument} alone would work")
        arguments[argument] = flag(alias, others.pop(alias))
    unknown = sorted(set(others) - {field["argument"] for field in known})
    if unknown:
        raise TypeError(f"compile() takes no argument {unknown[0]}; those that decide what is computed are "
                        + ", ".join(field["argument"] for field in known))  # fmt: skip
    texts = {}
    for field in known:
        given = (others if field["argument"] in others else arguments).get(field["argument"])
        if given is not None:
            argument = field["argument"]
            texts[field["name"]] = ("yes" if flag(argument, given) else "no") if field["is_flag"] else _text(given, argument)
    return texts


def _text(given: Any, argument: str) -> str:
    if argument in ("dtype", "out_dtype"):
        return text(argument, _dtype(argument, given))
    if argument == "block":
        sides = given if isinstance(given, (tuple, list)) else [given]
        return "x".join(str(integer("a side of the block", side)) for side in sides)
    if isinstance(given, (str, up_to)):
        return text(argument, given if isinstance(given, str) else str(given))
    if hasattr(given, "__index__"):
        return str(integer(argument, given))
    works = {"batch": "an integer, or up_to(64),", "alignment": "an integer"}.get(argument, "a str")
    raise TypeError(f"{argument} is {shown(given)}; {works} would work")


def _dtype(argument: str, given: Any) -> str:
    """As the compiler spells it, of "f32", numpy.float32, torch.float32, numpy.dtype("float32")."""
    if isinstance(given, np.dtype):
        name = given.name  # str() of one in the other byte order is ">f4"
    else:
        name = given if isinstance(given, str) else getattr(given, "__name__", None) or str(given)
    name = name.rpartition(".")[2]
    if name not in NAMES and not isinstance(given, str):
        raise TypeError(f"{argument} is {shown(given)}; one of {', '.join(NAMES)} would work")
    return NAMES.get(name, name)
