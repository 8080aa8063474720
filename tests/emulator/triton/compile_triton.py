"""Compiles a few Triton kernels to PTX, without a GPU, for the emulator to run.

    compile_triton.py FOLDER

writes NAME.ptx for each kernel, without lines of comments, and kernels.json, which says how to launch each by its name: `kernel` (entry point),
`arch`, `shared` (bytes of dynamic shared memory), `num_warps` (a block has 32 times as many threads), `clusters`
(blocks of a cluster, by which the grid is multiplied), `constants` (what was compiled in), and how many `parameters`
the entry point has. The last of them point to scratch that Triton adds: the first to `global_scratch` bytes per block,
null where that is 0, the other is null. A parameter "tensordesc<fp16[64, 64]>" of a job is a tensor map made by the
host, as `tensor_maps` says; its sizes (i32) and strides (i64) follow as parameters of their own.

Pointers must be aligned to 16 bytes, and integers that a job lists as `divisible` be multiples of 16: Triton was told
so, as it is when it is called from Python.

Needs Triton from PyPI and nothing else; exits 77 (skipped) where it is missing.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import sys

os.environ.setdefault("TRITON_DISABLE_LINE_INFO", "1")  # it names folders of this machine

try:
    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
except ImportError:
    print("Triton is not installed", file=sys.stderr)
    sys.exit(77)
import hopper_kernels


@triton.jit
def matmul_kernel(a, b, c, m, n, k, a_stride, b_stride, c_stride,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """c[m, n] = a[m, k] · b[k, n], row-major, any m, n and k: a program makes one tile of c."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    a_tile = a + rows[:, None] * a_stride + depth[None, :]
    b_tile = b + depth[:, None] * b_stride + columns[None, :]
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for begin in range(0, k, BLOCK_K):
        left = k - begin
        a_values = tl.load(a_tile, mask=(rows[:, None] < m) & (depth[None, :] < left), other=0.0)
        b_values = tl.load(b_tile, mask=(depth[:, None] < left) & (columns[None, :] < n), other=0.0)
        sums = tl.dot(a_values, b_values, sums)
        a_tile += BLOCK_K
        b_tile += BLOCK_K * b_stride
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * c_stride + columns[None, :], sums.to(tl.float16), mask=inside)


@triton.jit
def block_sparse_kernel(values, lut, row_begin, x, y, n, x_stride, y_stride,
                        BLOCK: tl.constexpr, TILE_N: tl.constexpr):
    """y[n, out] = x[n, in] · Wᵀ: W has present blocks values[block, BLOCK, BLOCK], row after row of blocks; those of
    block row r are row_begin[r] … row_begin[r + 1] - 1, and lut[block] is the block's column. A program makes TILE_N
    rows of y for one block row of W."""
    block_row = tl.program_id(0)
    batch = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)
    inner = tl.arange(0, BLOCK)
    inside = batch[:, None] < n
    sums = tl.zeros((TILE_N, BLOCK), dtype=tl.float32)
    for block in range(tl.load(row_begin + block_row), tl.load(row_begin + block_row + 1)):
        column = tl.load(lut + block)
        x_tile = tl.load(x + batch[:, None] * x_stride + (column * BLOCK + inner)[None, :], mask=inside, other=0.0)
        weight = tl.load(values + block * BLOCK * BLOCK + inner[:, None] * BLOCK + inner[None, :])  # [out, in]
        sums = tl.dot(x_tile, tl.trans(weight), sums)
    y_tile = y + batch[:, None] * y_stride + (block_row * BLOCK + inner)[None, :]
    tl.store(y_tile, sums.to(tl.float16), mask=inside)


@triton.jit
def softmax_kernel(y, x, columns, x_stride, y_stride, BLOCK: tl.constexpr):
    """y[row, :] = softmax(x[row, :]); a program takes one row of at most BLOCK columns."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * x_stride + at, mask=at < columns, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(y + row * y_stride + at, powers / tl.sum(powers, axis=0), mask=at < columns)


@dataclasses.dataclass
class Job:
    name: str
    kernel: object
    types: dict  # argument → Triton's type; constants are left out
    constants: dict
    capability: int
    warps: int
    stages: int
    divisible: tuple = ()  # integers that are multiples of 16; pointers always are
    clusters: int = 1  # blocks


_MATMUL = dict(a="*fp16", b="*fp16", c="*fp16", m="i32", n="i32", k="i32", a_stride="i32", b_stride="i32",
               c_stride="i32")
_SPARSE = dict(values="*fp16", lut="*i32", row_begin="*i32", x="*fp16", y="*fp16", n="i32", x_stride="i32",
               y_stride="i32")
_SOFTMAX = dict(y="*fp32", x="*fp32", columns="i32", x_stride="i32", y_stride="i32")
_MATMUL_TILE = dict(BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)
_STRIDES = ("a_stride", "b_stride", "c_stride")
_BATCH_STRIDES = ("x_stride", "y_stride")

JOBS = [
    Job("matmul_f16_sm80", matmul_kernel, _MATMUL, _MATMUL_TILE, 80, 4, 3, _STRIDES),
    Job("matmul_f16_odd_sm80", matmul_kernel, _MATMUL, _MATMUL_TILE, 80, 4, 2),
    Job("block_sparse_f16_sm80", block_sparse_kernel, _SPARSE, dict(BLOCK=32, TILE_N=64), 80, 4, 3, _BATCH_STRIDES),
    Job("softmax_f32_sm80", softmax_kernel, _SOFTMAX, dict(BLOCK=1024), 80, 4, 1),
    Job("softmax_f32_sm90", softmax_kernel, _SOFTMAX, dict(BLOCK=1024), 90, 8, 1),
]


def _hopper_jobs() -> list[Job]:
    tile = dict(BLOCK_M=64, BLOCK_N=64, BLOCK_K=64)
    wide = dict(tile, BLOCK_M=128, BLOCK_K=32)

    def dot(name, kind, constants, transposed, warps=4, stages=3):
        types = dict(_MATMUL, a=kind, b=kind, c="*fp32")
        return Job(f"dot_{name}_sm90a", hopper_kernels.dot_kernel, types, dict(constants, TRANSPOSED=transposed), 90,
                   warps, stages, _STRIDES)

    def descriptor(name, constants, stages=3, clusters=1, flatten=False, specialize=False):
        constants = dict(constants, PROGRAMS=3, FLATTEN=flatten, SPECIALIZE=specialize)
        return Job(f"descriptor_{name}_sm90a", hopper_kernels.descriptor_kernel, _MATMUL, constants, 90, 4, stages,
                   _STRIDES, clusters)

    def attention(name, causal, rows, warps):
        types = dict(q="*fp16", k="*fp16", v="*fp16", y="*fp16", length="i32", scale="fp32")
        constants = dict(CAUSAL=causal, BLOCK_M=rows, BLOCK_N=64, HEAD=64)
        return Job(f"attention_{name}_sm90a", hopper_kernels.attention_kernel, types, constants, 90, warps, 2)

    maps = dict(a_map="tensordesc<fp16[64, 64]>", b_map="tensordesc<fp16[64, 64]>", c="*fp32", m="i32", n="i32",
                k="i32", c_stride="i32")
    return [
        dot("f16", "*fp16", tile, False),
        dot("f16_transposed", "*fp16", wide, True, warps=8),
        dot("tf32", "*fp32", dict(tile, BLOCK_K=32), True, stages=2),
        dot("e4m3", "*fp8e4nv", tile, True),
        descriptor("persistent", tile),
        descriptor("flat", tile, flatten=True),
        descriptor("specialized", dict(tile, BLOCK_M=128), specialize=True),
        descriptor("cluster", dict(tile, BLOCK_M=128), clusters=2),
        attention("whole", False, 64, 4),
        attention("causal", True, 128, 8),
        Job("host_descriptor_sm90a", hopper_kernels.host_descriptor_kernel, maps, tile, 90, 4, 3, ("c_stride",)),
    ]


JOBS += _hopper_jobs()


def parameter_count(job: Job, metadata) -> int:
    """How many parameters the entry point has: a tensor map comes with a size and a stride for each axis."""
    maps = sum(2 * (kind.count(",") + 1) for kind in job.types.values() if kind.startswith("tensordesc"))
    scratch = sum(hasattr(metadata, f"{name}_size") for name in ("global_scratch", "profile_scratch"))
    return len(job.types) + maps + scratch


def about(job: Job, metadata) -> dict:
    of_map = ("block_size", "elem_size", "elem_type", "swizzle")
    maps = [{name: tensor_map[name] for name in of_map} for tensor_map in getattr(metadata, "tensordesc_meta", [])]
    return dict(kernel=metadata.name, arch=f"sm_{job.capability}", shared=metadata.shared,
                num_warps=metadata.num_warps, clusters=job.clusters, tensor_maps=maps,
                global_scratch=getattr(metadata, "global_scratch_size", 0),
                parameters=parameter_count(job, metadata), constants=job.constants)


def without_comments(ptx: str) -> str:
    """Without the lines that have nothing else, a fifth of them."""
    return "".join(line for line in ptx.splitlines(keepends=True) if line.strip() and not line.lstrip().startswith("//"))


def compile_job(job: Job):
    order = job.kernel.arg_names
    multiples = {
        (order.index(name),): [["tt.divisibility", 16]]
        for name, kind in job.types.items() if kind.startswith("*") or name in job.divisible
    }
    signature = {name: job.types.get(name, "constexpr") for name in order}
    source = ASTSource(job.kernel, signature, constexprs=job.constants, attrs=multiples)
    return triton.compile(source, target=GPUTarget("cuda", job.capability, 32),
                          options=dict(num_warps=job.warps, num_stages=job.stages, num_ctas=job.clusters,
                                       enable_fp_fusion=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TRITON_CACHE_DIR", str(folder / "cache"))
    kernels = []
    for job in JOBS:
        compiled = compile_job(job)
        (folder / f"{job.name}.ptx").write_text(without_comments(compiled.asm["ptx"]))
        kernels.append(f" {json.dumps(job.name)}: {json.dumps(about(job, compiled.metadata))}")
        print(job.name)
    lines = [f' "triton": {json.dumps(triton.__version__)}', *kernels]
    (folder / "kernels.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
