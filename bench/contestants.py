"""Who computes a workload in the contest of gpu_contest.py: our kernel, and what a user of PyTorch could use instead of it.

A contestant prepares, uncounted, what depends on the layout alone (index tensors, a transposed copy of the weight, tuning).
What one refuses, or lacks, is an exception whose text says why.
"""

import contextlib
import dataclasses
import math
import signal
import time
from collections.abc import Callable

import torch

from workloads import Workload

_DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
_TUNING_SECONDS = 6  # of a contestant


class Refusal(Exception):
    """Why this contestant does not compute this workload."""


@dataclasses.dataclass
class Operands:
    """One set: what is read, what is written, and what else a launch needs."""

    inputs: tuple[torch.Tensor, ...]
    output: torch.Tensor
    scratch: tuple[torch.Tensor, ...] = ()
    prepared: object = None

    @property
    def bytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in (*self.inputs, self.output))


class Case:
    """A workload's layout and small integers to check it with, on a device; and what is to come of them, in float32."""

    def __init__(self, workload: Workload, mask: torch.Tensor, device: str):
        self.workload, self.device, self.mask = workload, device, mask
        self.dtype = _DTYPES[workload.dtype]
        self.rows, self.columns = mask.shape
        self.crow = torch.cat([torch.zeros(1, dtype=torch.long), mask.sum(1).cumsum(0)]).int().to(device)
        row, col = mask.nonzero(as_tuple=True)
        self.row_of, self.col = row.int().to(device), col.int().to(device)
        torch.manual_seed(1)
        side, n = workload.block, workload.batch
        self.values = self._integers(len(col), side, side)
        self.x, self.dy = self._integers(n, workload.in_features), self._integers(n, workload.out_features)
        self.expected = self._expected()

    def _integers(self, *shape: int) -> torch.Tensor:
        return torch.randint(-2, 3, shape, device=self.device).to(self.dtype)

    def dense_weight(self, dtype: torch.dtype) -> torch.Tensor:
        side = self.workload.block
        tiles = torch.zeros(self.rows, self.columns, side, side, dtype=dtype, device=self.device)
        tiles[self.row_of.long(), self.col.long()] = self.values.to(dtype)
        return tiles.transpose(1, 2).reshape(self.workload.out_features, self.workload.in_features)

    def blocks_of(self, dense: torch.Tensor) -> torch.Tensor:
        side = self.workload.block
        return dense.view(self.rows, side, self.columns, side).transpose(1, 2)[self.row_of.long(), self.col.long()]

    def _expected(self) -> torch.Tensor:
        torch.backends.cuda.matmul.allow_tf32 = False
        if self.workload.operation == "forward":
            return self.x.float() @ self.dense_weight(torch.float32).t()
        if self.workload.operation == "grad_input":
            return self.dy.float() @ self.dense_weight(torch.float32)
        return self.blocks_of(self.dy.float().t() @ self.x.float())

    def activations(self) -> tuple[torch.Tensor, ...]:
        """Copies of those that the operation reads."""
        read = {"forward": (self.x,), "grad_input": (self.dy,), "grad_weight": (self.x, self.dy)}
        return tuple(one.clone() for one in read[self.workload.operation])

    def product_with_weight(self) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        """Copies of the activations and of the blocks, and the result's place."""
        if self.workload.operation == "grad_weight":
            return self.activations(), torch.empty_like(self.values)
        return (*self.activations(), self.values.clone()), torch.empty_like(self.expected, dtype=self.dtype)


class Ours:
    name = "Sparsekiln"

    def __init__(self, case: Case):
        import sparsekiln

        workload = case.workload
        self._case = case
        self._kernel = sparsekiln.compile(
            sparsekiln.Layout(case.mask.numpy()), block=workload.block, batch=workload.batch, dtype=workload.dtype,
            op=workload.operation, math=workload.math, target=case.device,
        )  # fmt: skip
        self.note = self._kernel.config

    def operands(self) -> Operands:
        inputs, output = self._case.product_with_weight()
        if self._case.device == "cpu":
            return Operands(inputs, output)
        size = max(1, self._kernel.workspace_bytes(self._case.workload.batch))
        return Operands(inputs, output, (torch.zeros(size, dtype=torch.uint8, device=self._case.device),))

    def launch(self, one: Operands) -> None:
        result = {"forward": "y", "grad_input": "dx", "grad_weight": "dw"}[self._case.workload.operation]
        workspace = {"workspace": one.scratch[0]} if one.scratch else {}
        self._kernel(*one.inputs, **{result: one.output}, **workspace)

    def result(self, one: Operands) -> torch.Tensor:
        return one.output


class Dense:
    """The same product with zeros in place of absent blocks."""

    name = "cuBLAS, dense"

    def __init__(self, case: Case):
        self._case = case
        self.note = f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}"
        torch.backends.cuda.matmul.allow_tf32 = case.workload.math == "tf32"
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False

    def operands(self) -> Operands:
        case = self._case
        if case.workload.operation == "grad_weight":
            size = (case.workload.out_features, case.workload.in_features)
            return Operands(case.activations(), torch.empty(size, dtype=case.dtype, device=case.device))
        weight = case.dense_weight(case.dtype)
        return Operands((*case.activations(), weight), torch.empty_like(case.expected, dtype=case.dtype))

    def launch(self, one: Operands) -> None:
        left, right = one.inputs
        if self._case.workload.operation == "forward":
            torch.mm(left, right.t(), out=one.output)
        elif self._case.workload.operation == "grad_input":
            torch.mm(left, right, out=one.output)
        else:
            torch.mm(right.t(), left, out=one.output)

    def result(self, one: Operands) -> torch.Tensor:
        return one.output if self._case.workload.operation != "grad_weight" else self._case.blocks_of(one.output)


class _Bsr:
    """A product of a BSR matrix with activations: W, or for grad_input a transposed copy of W."""

    def __init__(self, case: Case):
        if case.device == "cpu":
            raise Refusal("it needs a CUDA device")
        self._case = case
        if case.workload.operation == "grad_input":
            order = torch.argsort(case.col.long() * case.rows + case.row_of)
            counts = torch.bincount(case.col.long(), minlength=case.columns)
            self._crow = torch.cat([counts.new_zeros(1), counts.cumsum(0)]).int()
            self._col, self._values = case.row_of[order].contiguous(), case.values[order].transpose(1, 2).contiguous()
            self.note = "of a transposed copy of the weight"
        else:
            self._crow, self._col, self._values, self.note = case.crow, case.col, case.values, ""

    @property
    def _size(self) -> tuple[int, int]:
        shape = (self._case.workload.out_features, self._case.workload.in_features)
        return shape[::-1] if self._case.workload.operation == "grad_input" else shape

    def result(self, one: Operands) -> torch.Tensor:
        return one.output


class _Cusparse(_Bsr):
    _product: str

    def __init__(self, case: Case):
        super().__init__(case)
        if case.workload.operation == "grad_weight":
            raise Refusal("it has no product of two dense matrices on the blocks of a BSR matrix that is called here")
        import cusparse_bsr

        self._library, self._make = cusparse_bsr.Cusparse(), getattr(cusparse_bsr, self._product)
        if case.workload.math == "tf32":
            self.note = f"{self.note}; in float32".lstrip("; ")

    def operands(self) -> Operands:
        (x,), values = self._case.activations(), self._values.clone()
        y = torch.empty_like(self._case.expected, dtype=self._case.dtype)
        return Operands((x, values), y, prepared=self._make(self._library, self._crow, self._col, values, x, y))

    def launch(self, one: Operands) -> None:
        one.prepared.launch()


class CusparseSpMM(_Cusparse):
    name, _product = "cuSPARSE SpMM, BSR", "SpMM"


class CusparseSbsrmm(_Cusparse):
    name, _product = "cuSPARSE sbsrmm", "Sbsrmm"

    def __init__(self, case: Case):
        if case.dtype != torch.float32:
            raise Refusal(f"it has no {case.workload.dtype}")
        super().__init__(case)


class _TimeIsUp(BaseException):
    """No Exception, which a tuner takes for a candidate that fails."""


@contextlib.contextmanager
def _time_limit(seconds: int):
    """_TimeIsUp in the main thread after so many seconds."""

    def ring(*_):
        raise _TimeIsUp

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class TorchBsr(_Bsr):
    """bsr_dense_addmm, PyTorch's product of a BSR tensor in Triton, tuned by its own tuner; for grad_weight sampled_addmm."""

    name, _feature_major = "PyTorch BSR", False
    _found: dict[Workload, dict | None] = {}  # what tuning found, also for the other order of activations

    def __init__(self, case: Case):
        super().__init__(case)
        from torch.sparse import _triton_ops

        self._operations = _triton_ops
        for function in ("bsr_dense_addmm", "sampled_addmm"):
            if getattr(_triton_ops, function, None) is None:
                raise Refusal(f"PyTorch {torch.__version__} has no {function} here: {_why_no_triton()}")
        self._meta = None
        if case.workload.operation == "grad_weight":
            self.note = "sampled_addmm, which has no tuner"
        elif self._feature_major and case.workload in self._found:
            self._meta = self._found[case.workload]
            self.note = f"{self.note}; as tuned batch-major".lstrip("; ")
        else:
            self._meta = self._found[case.workload] = self._tune(self.operands())

    def _tune(self, one: Operands) -> dict | None:
        """The best that its tuner meets in so many seconds, in samples that are shorter than its own (half a second each)."""
        import triton.testing
        from torch.sparse import _triton_ops_meta

        long, launch = triton.testing.do_bench, self._operations.bsr_dense_addmm
        tried: list[tuple[float, dict | None]] = []
        at: dict[str, dict | None] = {"meta": None}

        def remembered(*given, meta=None, **more):
            at["meta"] = meta
            return launch(*given, meta=meta, **more)

        def timed(run, **_):
            milliseconds = long(run, warmup=10, rep=30)
            tried.append((milliseconds if isinstance(milliseconds, float) else math.inf, at["meta"]))
            return milliseconds

        triton.testing.do_bench, self._operations.bsr_dense_addmm = timed, remembered
        weight, dense, out = one.prepared
        said = "tuned"
        try:
            with _time_limit(_TUNING_SECONDS):
                _triton_ops_meta.tune_bsr_dense_addmm(out, weight, dense, beta=0, alpha=1, out=out, store=True)
        except _TimeIsUp:
            said = f"the best that its tuner met in {_TUNING_SECONDS} s"
        finally:
            triton.testing.do_bench, self._operations.bsr_dense_addmm = long, launch
        found = min(tried, key=lambda one: one[0], default=(math.inf, None))[1]
        self.note = f"{self.note}; {said}, of {len(tried)}: {found}".lstrip("; ")
        return found

    def operands(self) -> Operands:
        case = self._case
        if case.workload.operation == "grad_weight":
            if self._feature_major:
                raise Refusal("grad_weight is measured batch-major")
            (x, dy), values = case.activations(), torch.zeros_like(case.values)
            like = torch.sparse_bsr_tensor(self._crow, self._col, values, size=self._size)
            return Operands((x, dy), like.values(), prepared=(like, dy.t(), x))
        (x,), values = case.activations(), self._values.clone()
        y = torch.empty_like(case.expected, dtype=case.dtype)
        dense, out = x.t(), y.t()
        if self._feature_major:
            dense, out = dense.contiguous(), out.contiguous()
        weight = torch.sparse_bsr_tensor(self._crow, self._col, values, size=self._size)
        return Operands((dense, weight.values()), out, prepared=(weight, dense, out))

    def launch(self, one: Operands) -> None:
        if self._case.workload.operation == "grad_weight":
            like, left, right = one.prepared
            self._operations.sampled_addmm(like, left, right, beta=0.0, alpha=1.0, out=like, skip_checks=True)
            return
        weight, dense, out = one.prepared
        self._operations.bsr_dense_addmm(out, weight, dense, beta=0, alpha=1, out=out, meta=self._meta)

    def result(self, one: Operands) -> torch.Tensor:
        return one.output if self._case.workload.operation == "grad_weight" else one.output.t()


class TorchBsrFeatureMajor(TorchBsr):
    """With activations [features, n], which its product is made for."""

    name, _feature_major = "PyTorch BSR, feature-major", True

    def __init__(self, case: Case):
        if case.workload.operation == "grad_weight":
            raise Refusal("grad_weight is measured batch-major")
        super().__init__(case)


def _why_no_triton() -> str:
    try:
        import triton
    except ImportError as error:
        return str(error)
    return f"Triton {triton.__version__}"


class PlainTriton:
    """The kernel of triton_spmm.py, with the fastest of its configs that there was time to try."""

    name = "plain Triton"

    def __init__(self, case: Case):
        if case.device == "cpu":
            raise Refusal("it needs a CUDA device")
        import triton
        import triton_spmm

        self._case, self._product = case, triton_spmm
        self._precision = "tf32" if case.workload.math == "tf32" else "ieee"
        self._index = triton_spmm.Index(case.crow, case.col, case.columns, case.workload.operation == "grad_input")
        self._config, tried, all_of_them = self._tune(triton.testing.do_bench)
        self.note = f"Triton {triton.__version__}, {self._config}, the fastest of {tried} of {all_of_them}"

    def _tune(self, time_of: Callable) -> tuple[dict, int, int]:
        """The fastest config, how many were tried, and of how many."""
        one, begin, times = self.operands(), time.monotonic(), []
        every = self._product.configs(self._case.workload.batch)
        for config in every:
            if time.monotonic() - begin > _TUNING_SECONDS and any(us < math.inf for us, _ in times):
                break
            try:
                times.append((time_of(lambda: self._launch(one, config), warmup=5, rep=20, return_mode="median"), config))  # noqa: B023
            except Exception as error:  # too much shared memory, or too many registers
                times.append((math.inf, config))
                failure = error
        best, config = min(times, key=lambda pair: pair[0])
        if best == math.inf:
            raise failure
        return config, len(times), len(every)

    def operands(self) -> Operands:
        return Operands(*self._case.product_with_weight())

    def launch(self, one: Operands) -> None:
        self._launch(one, self._config)

    def _launch(self, one: Operands, config: dict) -> None:
        first, second = one.inputs
        if self._case.workload.operation == "grad_weight":
            self._product.sddmm(self._index, second, first, one.output, self._precision, config)
        else:
            self._product.spmm(self._index, first, second, one.output, self._precision, config)

    def result(self, one: Operands) -> torch.Tensor:
        return one.output


class ReadWeight:
    """The floor: a kernel that reads the weight and does nothing else (triton_read.py). Right if it saw every word."""

    name = "reads W"

    def __init__(self, case: Case):
        if case.device == "cpu":
            raise Refusal("it needs a CUDA device")
        if case.workload.operation == "grad_weight":
            raise Refusal("the weight is not read")
        import triton_read

        self._case, self._reader, self.note = case, triton_read, ""
        self.expected = self._low_bits(case.values.view(-1).view(torch.int32))

    @staticmethod
    def _low_bits(words: torch.Tensor) -> torch.Tensor:
        """The 20 lowest bits of the words' sum: a number that float32 has."""
        return (words.sum(dtype=torch.int64) & 0xFFFFF).float()

    def operands(self) -> Operands:
        weight = self._case.values.clone()
        return Operands((weight,), torch.empty(self._reader.programs(weight), dtype=torch.int32, device=weight.device))

    def launch(self, one: Operands) -> None:
        self._reader.read(one.inputs[0], one.output)

    def result(self, one: Operands) -> torch.Tensor:
        return self._low_bits(one.output)


CONTESTANTS: tuple[Callable[[Case], object], ...] = (
    Ours, Dense, TorchBsr, TorchBsrFeatureMajor, PlainTriton, ReadWeight, CusparseSpMM, CusparseSbsrmm,
)  # fmt: skip
