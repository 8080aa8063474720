"""Sequences of steps of an LSTM, by the kernels of its cell: on tensors with memory, without a gradient.

A sequence is given as PackedSequence has it: the rows of all steps one after the other, `batch_sizes` of them, which never
grow. Where all sequences are equally long, all are the same number. In reverse, steps are taken from the last one to the
first. z are the sums that the four gates i, f, g and o are made of, [rows, 4 · hidden]. Functions here are the bodies of the
operators in lstm_operators.py.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

import sparsekiln
from sparsekiln._arguments import shown

from ..kernels import LayoutKernels, Use, find
from ..launch_overlap import may_follow_early, start
from ..launches import Launch, Rows, Steps, kept_steps, run, run_steps, used
from ..memory import large_empty
from ..operands import blocks_for, check_matrix, check_operand, check_weight, dense, readable

Tensor = torch.Tensor

GATES = 4


class Step(NamedTuple):
    """One step, with the rows that it has of all."""

    rows: slice
    n: int
    before: slice | None  #: those of the step that is taken before
    n_before: int


def steps(batch_sizes: Sequence[int], reverse: bool) -> list[Step]:
    """In the order in which they are taken."""
    ends, end = [], 0
    for n in batch_sizes:
        ends.append(slice(end, end + n))
        end += n
    order = range(len(ends))
    taken: list[Step] = []
    for t in reversed(order) if reverse else order:
        last = taken[-1] if taken else None
        taken.append(Step(ends[t], batch_sizes[t], last.rows if last else None, last.n if last else 0))
    return taken


def state_type(dtype: torch.dtype) -> torch.dtype:
    """The type of c: that of sums."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def keeps_for_backward(*operands: Tensor) -> bool:
    """Whether a forward pass of these keeps what the backward pass reads. torch.jit.trace compares graphs with and without gradients: it
    records one for both. A batch of torch.func.vmap does not say whether what it is made of requires a gradient."""
    if torch.compiler.is_compiling():
        return torch.is_grad_enabled() and any(one.requires_grad for one in operands)
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return torch.is_grad_enabled()
    traced = torch._C._get_tracing_state() is not None
    return (traced or torch.is_grad_enabled()) and any(one.requires_grad for one in operands)


def pair(states: Any) -> tuple[Tensor, Tensor]:
    """(h0, c0), as recurrent layers take it; TypeError for anything else."""
    if not isinstance(states, (tuple, list)) or len(states) != 2 or not all(isinstance(one, Tensor) for one in states):
        raise TypeError(f"hx is {shown(states)}; a pair of tensors, (h0, c0), would work")
    return states[0], states[1]


def plain_size(size: int | Tensor) -> int:
    """A size of a tensor, as operators take it: torch.jit.trace has tensors of sizes, and records what they are."""
    return int(size) if isinstance(size, Tensor) else size


def check(projection, h0, c0, values, crow, col, batch_sizes, reverse, keep, overlap=False) -> None:
    """ValueError or TypeError that says what is wrong with the operands."""
    if h0.dim() != 2:
        raise ValueError(f"h0 has the shape {tuple(h0.shape)}; it is [sequences, hidden]")
    hidden = h0.shape[1]
    check_weight(values, crow, col, hidden, GATES * hidden)
    if hidden % values.shape[1] or hidden % values.shape[2]:
        raise ValueError(f"{hidden} hidden features are no multiple of blocks of {values.shape[1]}x{values.shape[2]}")
    check_matrix("the projection of the input", projection, GATES * hidden, values)
    if any(b > a for a, b in zip(batch_sizes, batch_sizes[1:])) or sum(batch_sizes) != projection.shape[0]:
        raise ValueError(
            f"batch sizes {list(batch_sizes)} for {projection.shape[0]} rows; they never grow, and are as many rows together"
        )
    n = batch_sizes[0] if batch_sizes else h0.shape[0]
    check_operand("h0", h0, (n, hidden), values.dtype, values)
    check_operand("c0", c0, (n, hidden), state_type(values.dtype), values)


def check_backward(
    dh, dh_n, dc_n, h, c, activations, h0, c0, values, crow, col, batch_sizes, reverse, needs_h0, needs_weight
) -> None:  # fmt: skip
    """ValueError or TypeError that says what is wrong with the operands of the backward pass."""
    check(activations, h0, c0, values, crow, col, batch_sizes, reverse, True)
    rows, dtype, state = (h.shape[0], h0.shape[1]), values.dtype, state_type(values.dtype)
    check_operand("h", h, (activations.shape[0], h0.shape[1]), dtype, values)
    for name, one, shape, kind in (
        ("c", c, rows, state), ("the gradient of h", dh, rows, dtype), ("that of the last h", dh_n, h0.shape, dtype),
        ("that of the last c", dc_n, c0.shape, state),
    ):  # fmt: skip
        check_operand(name, one, shape, kind, values)


def _weight(crow: Tensor, col: Tensor, values: Tensor, hidden: int) -> tuple[LayoutKernels, Tensor]:
    """The kernels of the layout of all four gates, and their blocks."""
    weight = find(crow, col, blocks_for(hidden, values.shape[2]))
    return weight.kernels, dense(used(values, weight))


def _kernel(kernels: LayoutKernels, operation: str, epilogue: str, values: Tensor, n: int) -> "sparsekiln.Kernel":
    return kernels.kernel(_use(kernels, operation, epilogue, values), n)


def _use(kernels: LayoutKernels, operation: str, epilogue: str, values: Tensor) -> Use:
    block_out, block_in = values.shape[1:]
    layout = kernels.layout
    features = layout.cols * block_in, layout.rows * block_out
    return Use(operation, (block_out, block_in), *features, values.dtype, values.device, epilogue=epilogue)


def _before(step: Step, all_rows: Tensor, first: Tensor) -> Tensor:
    """The state before a step: of sequences that it is the first step of, rows of `first`."""
    if step.before is None:
        return first[: step.n]
    known = all_rows[step.before]
    if step.n_before >= step.n:
        return known[: step.n]
    return torch.cat([known, first[step.n_before : step.n]])


def _last(taken: Sequence[Step], all_rows: Tensor) -> Iterator[Tensor]:
    """The rows of each sequence's last step, in the order of the sequences."""
    ended = 0
    for step in reversed(taken):
        yield all_rows[step.rows][ended : step.n]
        ended = max(ended, step.n)


def _first_and_later(
    kernels: LayoutKernels, use: Use, early: bool, batch_sizes: Sequence[int], device: torch.device
) -> "dict[str, sparsekiln.Kernel]":
    """The kernel of the first launch of a segment, and that of the others. These may begin early: nothing between launches of one call
    writes the weight."""
    use, n = use._replace(overlap=early), batch_sizes[0]
    overlaps = len(batch_sizes) > 1 and not early and may_follow_early(device)
    if overlaps:
        kernels.begin(use._replace(overlap=True), n)
    first = kernels.kernel(use, n)
    return {"first": first, "later": kernels.kernel(use._replace(overlap=True), n) if overlaps else first}


def _pieces(n: int, *bounds: int) -> Iterator[tuple[int, int]]:
    """The first n rows, divided at bounds."""
    ends = sorted({min(one, n) for one in (0, n, *bounds)})
    return zip(ends, ends[1:])


def _kernel_of(launches: Sequence[Launch]) -> str:
    """The name of the kernel of the next launch, see _first_and_later."""
    return "later" if launches else "first"


@kept_steps
def _forward_steps(batch_sizes: tuple[int, ...], reverse: bool, keep: bool) -> Steps:
    """The launches of a forward pass; where nothing is kept, c is that of all sequences, in place."""
    launches: list[Launch] = []
    for step in steps(batch_sizes, reverse):
        for begin, end in _pieces(step.n, step.n_before):
            rows, at = end - begin, step.rows.start + begin
            has_before = step.before is not None and end <= step.n_before
            before = step.before.start + begin if has_before else begin
            operands = {
                "x": Rows("h" if has_before else "h0", before, rows), "w": Rows("weight"), "y": Rows("h", at, rows),
                "projection": Rows("projection", at, rows),
            }  # fmt: skip
            if keep:
                operands |= {
                    "c_before": Rows("c" if has_before else "c0", before, rows), "c": Rows("c", at, rows),
                    "activations": Rows("activations", at, rows),
                }  # fmt: skip
            else:
                operands |= {"c_before": Rows("c", begin, rows), "c": Rows("c", begin, rows)}
            launches.append(Launch(_kernel_of(launches), rows, operands))
    return Steps(launches, ("h", "c", "activations"))


@kept_steps
def _backward_steps(batch_sizes: tuple[int, ...], reverse: bool) -> Steps:
    """The launches of a backward pass, which changes dc in place."""
    launches: list[Launch] = []
    after: Step | None = None
    for step in reversed(steps(batch_sizes, reverse)):
        n_after = 0 if after is None else after.n
        for begin, end in _pieces(step.n, step.n_before, n_after):
            rows, at = end - begin, step.rows.start + begin
            has_before = step.before is not None and end <= step.n_before
            operands = {
                "dy": Rows("dz", after.rows.start + begin, rows) if after is not None and end <= n_after else Rows("zeros", 0, rows),
                "w": Rows("weight"), "dx": Rows("dz", at, rows), "residual": Rows("dh", at, rows),
                "activations": Rows("activations", at, rows),
                "c_before": Rows("c", step.before.start + begin, rows) if has_before else Rows("c0", begin, rows),
                "c": Rows("c", at, rows), "dc": Rows("dc", begin, rows), "dc_before": Rows("dc", begin, rows),
            }  # fmt: skip
            launches.append(Launch(_kernel_of(launches), rows, operands))
        after = step
    return Steps(launches, ("dz", "dc"))


def lstm(
    projection, h0, c0, values, crow, col, batch_sizes, reverse, keep, overlap=False
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """h of all steps, the last h and c of each sequence, and, for the backward pass, c and the gates of all steps."""
    check(projection, h0, c0, values, crow, col, batch_sizes, reverse, keep)
    hidden, total = h0.shape[1], projection.shape[0]
    h = large_empty(projection, (total, hidden))
    c = large_empty(c0, (total if keep else 0, hidden))
    activations = large_empty(projection, (total if keep else 0, GATES * hidden))
    contiguous = torch.contiguous_format
    if total == 0:
        return h, h0.clone(memory_format=contiguous), c0.clone(memory_format=contiguous), c, activations
    kernels, weight = _weight(crow, col, values, hidden)
    of_gate = kernels.of_gate()
    use = _use(of_gate, "forward", "lstm+keep" if keep else "lstm", values)
    begin = start(False if keep else overlap, (values,), (weight,))
    kernels_of_steps = _first_and_later(of_gate, use, begin.early, batch_sizes, values.device)
    projection, h0, c0 = readable(projection, 16), readable(h0, 16), readable(c0, 16)
    taken = steps(batch_sizes, reverse)
    now = None if keep else c0.clone(memory_format=contiguous)  # c of all sequences, in place
    tensors = {"h0": h0, "weight": weight, "h": h, "projection": projection, "c": c if now is None else now, "c0": c0, "activations": activations}
    run_steps(_forward_steps(tuple(batch_sizes), reverse, keep), kernels_of_steps, tensors)
    begin.launched(of_gate, use, batch_sizes[0])
    c_n = torch.cat(list(_last(taken, c))) if now is None else now
    return h, torch.cat(list(_last(taken, h))), c_n, c, activations


def backward(
    dh, dh_n, dc_n, h, c, activations, h0, c0, values, crow, col, batch_sizes, reverse, needs_h0, needs_weight
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of the projection, of h0 and c0, and of the weight; those of h0 and the weight are empty if not needed."""
    check_backward(dh, dh_n, dc_n, h, c, activations, h0, c0, values, crow, col, batch_sizes, reverse, needs_h0, needs_weight)
    hidden, total = h0.shape[1], h.shape[0]
    dz = large_empty(activations, (total, GATES * hidden))
    dc = c0.new_zeros(c0.shape) if dc_n is None else dc_n.clone(memory_format=torch.contiguous_format)
    dw = values.new_zeros(values.shape) if needs_weight else values.new_empty(0)
    dh0 = h0.new_empty(h0.shape if needs_h0 else 0)
    if total == 0:
        return dz, dh0.zero_() if dh_n is None or not needs_h0 else dh0.copy_(dh_n), dc, dw
    kernels, weight = _weight(crow, col, values, hidden)
    of_gate = kernels.of_gate()
    use = _use(of_gate, "grad_input", "lstm+residual", values)
    c0, taken = readable(c0, 16), steps(batch_sizes, reverse)
    dh = h.new_zeros(h.shape) if dh is None else dh
    dh = readable(dh if dh_n is None else _with_last(dh, dh_n, taken), 16)
    tensors = {
        "zeros": dz.new_zeros((batch_sizes[0], dz.shape[1])), "weight": weight, "dz": dz, "dh": dh, "activations": activations, "c": c,
        "c0": c0, "dc": dc,
    }  # fmt: skip
    run_steps(_backward_steps(tuple(batch_sizes), reverse), _first_and_later(of_gate, use, False, batch_sizes, values.device), tensors)
    if needs_h0:
        plain = _kernel(kernels, "grad_input", "none", values, batch_sizes[0])
        first = list(_first(taken, dz))
        run(plain, dh0.shape[0], first[0] if len(first) == 1 else torch.cat(first), weight, dh0)
    if needs_weight:
        dw = _grad_weight(kernels, taken, h, readable(h0, 16), dz, values, dw)
    return dz, dh0, dc, dw


def _with_last(dh: Tensor, dh_n: Tensor, taken: Sequence[Step]) -> Tensor:
    """The gradient of h, with that of the last h of each sequence added."""
    dh = dh.clone(memory_format=torch.contiguous_format)
    begin = 0
    for rows in _last(taken, dh):
        rows += dh_n[begin : begin + rows.shape[0]]
        begin += rows.shape[0]
    return dh


def _first(taken: Sequence[Step], dz: Tensor) -> Iterator[Tensor]:
    """The rows of each sequence's first step, in the order of the sequences."""
    begun = 0
    for step in taken:
        if step.n > begun:
            yield dz[step.rows][begun:]
        begun = max(begun, step.n)


def _grad_weight(kernels, taken, h, h0, dz, values, dw) -> Tensor:
    """Sums over all steps: one launch of those whose h before is memory as it is, one of the others."""
    kernel = _kernel(kernels, "grad_weight", "scale", values, dz.shape[0])
    inputs, gradients = [], []
    whole = all(step.n == taken[0].n for step in taken)
    if whole and len(taken) > 1:  # h of each step but the last, in memory one after the other
        n, rest = taken[0].n, dz.shape[0] - taken[0].n
        backwards = taken[0].rows.start > 0
        inputs, gradients = [(h[n:] if backwards else h[:rest]), h0], [(dz[:rest] if backwards else dz[n:]), dz[taken[0].rows]]
    else:
        inputs = [torch.cat([_before(step, h, h0) for step in taken])]
        gradients = [torch.cat([dz[step.rows] for step in taken])]
    result = dw[: kernels.layout.blocks]
    for number, (x, dy) in enumerate(zip(inputs, gradients)):
        run(kernel, x.shape[0], x, dy, result, beta=float(number > 0))
    return dw

