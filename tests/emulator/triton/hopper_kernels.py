"""Kernels that Triton compiles to sm_90a's own instructions: wgmma, TMA, mbarriers, warpgroups of several kinds."""

import triton
import triton.language as tl


@triton.jit
def dot_kernel(a, b, c, m, n, k, a_stride, b_stride, c_stride,
               BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, TRANSPOSED: tl.constexpr):
    """c[m, n] = a[m, k] · b, where b is [k, n], or [n, k] if TRANSPOSED; any m, n and k; c in float32."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for begin in range(0, k, BLOCK_K):
        at = begin + depth
        a_values = tl.load(a + rows[:, None] * a_stride + at[None, :], mask=(rows[:, None] < m) & (at[None, :] < k),
                           other=0.0)
        if TRANSPOSED:
            b_values = tl.load(b + columns[:, None] * b_stride + at[None, :],
                               mask=(columns[:, None] < n) & (at[None, :] < k), other=0.0).T
        else:
            b_values = tl.load(b + at[:, None] * b_stride + columns[None, :],
                               mask=(at[:, None] < k) & (columns[None, :] < n), other=0.0)
        sums = tl.dot(a_values, b_values, sums)
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * c_stride + columns[None, :], sums, mask=inside)


@triton.jit
def descriptor_kernel(a, b, c, m, n, k, a_stride, b_stride, c_stride,
                      BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PROGRAMS: tl.constexpr,
                      FLATTEN: tl.constexpr, SPECIALIZE: tl.constexpr):
    """c[m, n] = a[m, k] · b[n, k]ᵀ through tensor descriptors that are made on the device; PROGRAMS programs share
    the tiles out. With SPECIALIZE, other warps copy than multiply."""
    a_map = tl.make_tensor_descriptor(a, [m, k], [a_stride, 1], [BLOCK_M, BLOCK_K])
    b_map = tl.make_tensor_descriptor(b, [n, k], [b_stride, 1], [BLOCK_N, BLOCK_K])
    c_map = tl.make_tensor_descriptor(c, [m, n], [c_stride, 1], [BLOCK_M, BLOCK_N])
    across = tl.cdiv(n, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tl.cdiv(m, BLOCK_M) * across, PROGRAMS, flatten=FLATTEN):
        row = tile // across * BLOCK_M
        column = tile % across * BLOCK_N
        sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for begin in tl.range(0, k, BLOCK_K, warp_specialize=SPECIALIZE):
            sums = tl.dot(a_map.load([row, begin]), b_map.load([column, begin]).T, sums)
        c_map.store([row, column], sums.to(tl.float16))


@triton.jit
def attention_kernel(q, k, v, y, length, scale, CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                     HEAD: tl.constexpr):
    """y = softmax(q · kᵀ · scale) · v for one head: [length, HEAD] each, f16; a program takes BLOCK_M queries."""
    q_map = tl.make_tensor_descriptor(q, [length, HEAD], [HEAD, 1], [BLOCK_M, HEAD])
    k_map = tl.make_tensor_descriptor(k, [length, HEAD], [HEAD, 1], [BLOCK_N, HEAD])
    v_map = tl.make_tensor_descriptor(v, [length, HEAD], [HEAD, 1], [BLOCK_N, HEAD])
    y_map = tl.make_tensor_descriptor(y, [length, HEAD], [HEAD, 1], [BLOCK_M, HEAD])
    first = tl.program_id(0) * BLOCK_M
    rows = first + tl.arange(0, BLOCK_M)
    queries = q_map.load([first, 0])
    greatest = tl.full((BLOCK_M,), -1e30, dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    sums = tl.zeros((BLOCK_M, HEAD), dtype=tl.float32)
    end = tl.minimum(first + BLOCK_M, length) if CAUSAL else length
    for begin in range(0, end, BLOCK_N):
        columns = begin + tl.arange(0, BLOCK_N)
        scores = tl.dot(queries, k_map.load([begin, 0]).T) * scale
        inside = columns[None, :] < length
        if CAUSAL:
            inside = inside & (columns[None, :] <= rows[:, None])
        scores = tl.where(inside, scores, -1e30)
        now = tl.maximum(greatest, tl.max(scores, 1))
        powers = tl.exp(scores - now[:, None])
        shrink = tl.exp(greatest - now)
        total = total * shrink + tl.sum(powers, 1)
        sums = tl.dot(powers.to(tl.float16), v_map.load([begin, 0]), sums * shrink[:, None])
        greatest = now
    y_map.store([first, 0], (sums / total[:, None]).to(tl.float16))


@triton.jit
def host_descriptor_kernel(a_map, b_map, c, m, n, k, c_stride,
                           BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """c[m, n] = a[m, k] · b[n, k]ᵀ through tensor maps that the host made; c in float32."""
    row = tl.program_id(0) * BLOCK_M
    column = tl.program_id(1) * BLOCK_N
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for begin in range(0, k, BLOCK_K):
        sums = tl.dot(a_map.load([row, begin]), b_map.load([column, begin]).T, sums)
    rows = row + tl.arange(0, BLOCK_M)
    columns = column + tl.arange(0, BLOCK_N)
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * c_stride + columns[None, :], sums, mask=inside)
