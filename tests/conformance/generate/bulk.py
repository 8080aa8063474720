"""Bulk and tensor copies (PTX ISA 9.7.9.25.4, 9.7.9.27) and where they put data (5.5).

The matrix of a case is what its threads are given: 1024 bytes, 32 a lane. Tensor maps are made on the device, by
tensormap.replace, from zeros.
"""

import random
from fractions import Fraction

from family import Family, mask
from formats import F32

LANES = range(32)
WORDS = 8  # of a lane
SEED = 2401
ELEMENTS = {"u32": 2, "s32": 3, "f32": 7, "f32.ftz": 8, "tf32": 11}  # table 33
SWIZZLES = {32: 1, 64: 2, 128: 3}

MODULE = """
    .shared .align 1024 .b8 tile[2048];
    .shared .align 128 .b8 map_here[128];
    .shared .align 8 .b64 barrier;
"""
START = """
    .reg .b32 at, here, bar, word;
    .reg .b64 matrix, map;
    .reg .pred first, done;
    mov.u32 at, tile;
    mov.u32 here, map_here;
    mov.u32 bar, barrier;
    setp.eq.u32 first, lane, 0;
    mul.wide.u32 matrix, lane, 32;
    sub.s64 matrix, in_row, matrix;
    @first mbarrier.init.shared::cta.b64 [bar], 1;
    bar.warp.sync 0xffffffff;
"""
#: Lanes get the tile back, 32 bytes each.
READ = """
    mad.lo.u32 word, lane, 32, at;
    ld.shared.v4.b32 {d0, d1, d2, d3}, [word];
    ld.shared.v4.b32 {d4, d5, d6, d7}, [word+16];
"""
#: Lanes put what they are given into the tile, for the async proxy.
WRITE = """
    mad.lo.u32 word, lane, 32, at;
    st.shared.v4.b32 [word], {a0, a1, a2, a3};
    st.shared.v4.b32 [word+16], {a4, a5, a6, a7};
    fence.proxy.async.shared::cta;
    bar.warp.sync 0xffffffff;
"""
#: Lanes put zeros there.
CLEAR = WRITE.replace("{a0, a1, a2, a3}", "{0, 0, 0, 0}").replace("{a4, a5, a6, a7}", "{0, 0, 0, 0}")
#: Lanes get back 1024 bytes at scratch + 4096.
READ_GLOBAL = """
    mad.wide.u32 matrix, lane, 32, scratch;
    ld.global.v4.b32 {d0, d1, d2, d3}, [matrix+4096];
    ld.global.v4.b32 {d4, d5, d6, d7}, [matrix+4112];
"""
FINISH = """
    @first cp.async.bulk.commit_group;
    @first cp.async.bulk.wait_group 0;
    bar.warp.sync 0xffffffff;
"""


def wait():
    return "again:\nmbarrier.try_wait.parity.shared::cta.b64 done, [bar], 0;\n@!done bra again;\n"


def expect(size):
    return f"@first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {size};\n"


def make_map(base, element, sizes, strides, box, steps=None, swizzle=0, fill=0):
    """A tensor map at scratch, of a tensor at the address in the register `base`."""
    lines = ["shl.b32 word, lane, 2;", "add.u32 word, word, here;", "st.shared.b32 [word], 0;"]
    lines += ["bar.warp.sync 0xffffffff;"]

    def replace(field, value, ordinal=None, bits=32):
        where = "[here]" if ordinal is None else f"[here], {ordinal}"
        lines.append(f"@first tensormap.replace.tile.{field}.shared::cta.b1024.b{bits} {where}, {value};")

    replace("global_address", base, bits=64)
    replace("rank", len(sizes) - 1)
    for i, (size, length, step) in enumerate(zip(sizes, box, steps or [1] * len(sizes))):
        replace("global_dim", size, i)
        replace("box_dim", length, i)
        replace("element_stride", step, i)
    for i, stride in enumerate(strides):
        replace("global_stride", stride, i, 64)
    replace("elemtype", ELEMENTS[element])
    replace("interleave_layout", 0)
    replace("swizzle_mode", swizzle)
    replace("fill_mode", fill)
    lines += [
        "bar.warp.sync 0xffffffff;",
        "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [scratch], [here], 128;",
        "cvta.global.u64 map, scratch;",
        "fence.proxy.tensormap::generic.acquire.gpu [map], 128;",
    ]
    return "\n".join(lines) + "\n"


def load_tensor(rank, coordinates, size, to="at"):
    names = ", ".join(str(c) for c in coordinates)
    return (
        expect(size)
        + f"@first cp.async.bulk.tensor.{rank}d.shared::cta.global.tile.mbarrier::complete_tx::bytes"
        + f" [{to}], [map, {{{names}}}], [bar];\n"
        + wait()
    )


def box_elements(sizes, strides, box, steps, coordinates):
    """For each element of a box, the first dimension innermost: its word in the matrix, or None outside. A box begins at a
    multiple of 16 bytes in the first dimension: at others an H100 ends with an illegal instruction."""
    found = [(0, True)]
    for size, stride, length, step, first in zip(sizes, [4, *strides], box, steps, coordinates):
        taken = range(first, first + length, step)
        inner = found
        found = [(word + at * stride // 4, ok and 0 <= at < size) for at in taken for word, ok in inner]
    return [word if ok else None for word, ok in found]


def swizzled(span, address):
    """Where the byte lies that comes at `address` without a swizzle: the tables of 5.5.7, in 16-byte chunks."""
    if span == 0:
        return address
    row, chunk, byte = address // 128, address // 16 % 8, address % 16
    exchanged = chunk // (span // 16) * (span // 16) + (chunk % (span // 16) ^ row % (span // 16))
    return row * 128 + exchanged * 16 + byte


def packed(ptx):
    """Several statements a line: the files have a limit."""
    lines = [""]
    for line in filter(None, map(str.strip, ptx.splitlines())):
        if lines[-1] and len(lines[-1]) + len(line) < 106:
            lines[-1] += " " + line
        else:
            lines.append(line)
    return "\n".join(lines[1:] if not lines[0] else lines)


def case_of(family, name, ptx, given, expected, **more):
    rows = [
        (tuple(given[lane * WORDS : lane * WORDS + WORDS]), tuple(expected[lane * WORDS : lane * WORDS + WORDS]))
        for lane in LANES
    ]
    kind = "b32" if max(given) > 0xFFFF else "u32"
    outs = more.pop("outs", f"{kind} d[8]")
    family.case(name, f"{kind} a[8]", outs, packed(START + ptx), rows, target="90a", module=MODULE, **more)


def plain_copies(family, numbers):
    load = "cp.async.bulk.shared::{}.global.mbarrier::complete_tx::bytes [at], [matrix], 1024, [bar];\n"
    for space in ("cta", "cluster"):
        case_of(
            family, f"cp.async.bulk to shared::{space}", expect(1024) + "@first " + load.format(space) + wait() + READ,
            numbers, numbers,
        )  # fmt: skip
    store = "add.s64 matrix, scratch, 4096;\n@first cp.async.bulk.global.shared::cta.bulk_group [matrix], [at], 1024;\n"
    case_of(family, "cp.async.bulk to global", WRITE + store + FINISH + READ_GLOBAL, numbers, numbers)


def swizzles(family, numbers):
    for span in (0, 32, 64, 128):
        row = (span or 128) // 4
        for offset in (0, 128):
            expected = [None] * 256
            for word in range(256):
                place = swizzled(span, offset + word * 4) - offset
                if 0 <= place < 1024:
                    expected[place // 4] = numbers[word]
            sizes, box = (row, 256 // row), (row, 256 // row)
            ptx = make_map("matrix", "u32", sizes, [row * 4], box, swizzle=SWIZZLES.get(span, 0))
            ptx += f"add.u32 at, at, {offset};\n" + load_tensor(2, (0, 0), 1024) + READ
            where = f" at an offset of {offset} bytes" if offset else ""
            case_of(family, f"a box swizzled within {span} bytes{where}", ptx, numbers, expected)


def boxes(family, numbers):
    for name, sizes, strides, box, steps, first in (
        ("a box inside a matrix", (32, 8), (128,), (16, 4), (1, 1), (8, 3)),
        ("a box that begins before the matrix", (32, 8), (128,), (32, 8), (1, 1), (-8, -2)),
        ("a box that reaches beyond the matrix", (32, 8), (128,), (32, 8), (1, 1), (12, 3)),
        ("a box outside of the matrix", (32, 8), (128,), (32, 8), (1, 1), (0, 8)),
        ("a tensor that is smaller than its memory", (11, 5), (128,), (32, 8), (1, 1), (0, 0)),
        ("a box of every third row, whose length is no multiple", (32, 8), (128,), (32, 8), (1, 3), (0, 0)),
        ("a box of one dimension", (250,), (), (64,), (1,), (200,)),
        ("a box of three dimensions", (8, 8, 4), (32, 256), (4, 4, 3), (1, 1, 1), (4, 3, 1)),
        ("a box of five dimensions", (4, 4, 4, 2, 2), (16, 64, 256, 512), (4, 2, 2, 2, 2), (1,) * 5, (0, 1, 2, 0, 1)),
    ):
        elements = box_elements(sizes, strides, box, steps, first)
        expected = [0 if word is None else numbers[word] for word in elements]
        ptx = CLEAR + make_map("matrix", "u32", sizes, strides, box, steps)
        ptx += load_tensor(len(sizes), first, 4 * len(elements)) + READ
        case_of(family, name, ptx, numbers, expected + [0] * (256 - len(expected)))


def rounded_tf32(bits):
    """To the nearest, ties to even (5.5.1)."""
    return (bits + 0xFFF + (bits >> 13 & 1)) & ~0x1FFF & mask(32)


def types(family, choice):
    given = [choice.getrandbits(32) & 0xBF7FFFFF for _ in range(256)]
    given[:8] = [0x3F801000, 0x3F803000, 0x3F800FFF, 0x3F801001, 0x00000001, 0x807FFFFF, 0x00800000, 0x80000000]
    given[8:11] = [0x7F800000, 0xFF800000, 0xFF7FF000]
    # .f32.ftz says what reductions do; an H100 loads subnormals as they are.
    for element, rule in (("tf32", rounded_tf32), ("f32.ftz", lambda bits: bits), ("f32", lambda bits: bits)):
        ptx = make_map("matrix", element, (32, 8), [128], (32, 8)) + load_tensor(2, (0, 0), 1024) + READ
        case_of(family, f"a load of .{element}", ptx, given, [rule(bits) for bits in given])
    ptx = make_map("matrix", "f32", (32, 8), [128], (32, 8), fill=1) + load_tensor(2, (0, 4), 1024) + READ
    nan = given[128:] + ["nan"] * 128
    case_of(family, "elements outside become NaN", ptx, given, nan, outs="f32 d[8]")


def stores(family, numbers):
    store = "@first cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [map, {{{}, {}}}], [at];\n"
    for name, sizes, first in (
        ("a box is stored", (32, 8), (0, 0)),
        ("a store leaves out what is beyond the matrix", (32, 8), (20, 5)),
        ("a store beyond the matrix writes nothing", (32, 8), (32, 0)),
    ):
        expected = [0] * 256
        for number, word in zip(numbers, box_elements(sizes, (128,), (32, 8), (1, 1), first)):
            if word is not None:
                expected[word] = number
        ptx = WRITE + "add.s64 matrix, scratch, 4096;\n" + make_map("matrix", "u32", sizes, [128], (32, 8))
        case_of(family, name, ptx + store.format(*first) + FINISH + READ_GLOBAL, numbers, expected)


def reductions(family, choice):
    """Twice the same numbers: of the second time both operands are known."""
    rules = {
        "add.u32": lambda old, new: (old + new) & mask(32),
        "min.s32": lambda old, new: min(old, new, key=lambda bits: bits - ((bits >> 31) << 32)),
        "max.u32": max,
        "inc.u32": lambda old, new: 0 if old >= new else old + 1,
        "dec.u32": lambda old, new: new if old == 0 or old > new else old - 1,
        "or.b32": lambda old, new: old | new,
        "xor.b32": lambda old, new: old ^ new,
    }
    numbers = [choice.getrandbits(32) for _ in range(256)]
    numbers[:4] = [0, 1, mask(32), 0x80000000]
    for operation, rule in rules.items():
        reduce = f"@first cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation} [matrix], [at], 1024;\n"
        once = [rule(0, number) for number in numbers]
        expected = [rule(old, number) for old, number in zip(once, numbers)]
        ptx = WRITE + "add.s64 matrix, scratch, 4096;\n" + reduce + FINISH + reduce + FINISH + READ_GLOBAL
        case_of(family, f"cp.reduce.async.bulk.{operation}", ptx, numbers, expected)
    quarters = [F32.round(Fraction(choice.randrange(-4000, 4000), 4)) for _ in range(256)]
    doubled = [F32.round(2 * F32.value(bits)) if F32.value(bits) else 0 for bits in quarters]
    ptx = WRITE + "add.s64 matrix, scratch, 4096;\n" + make_map("matrix", "f32", (32, 8), [128], (32, 8))
    reduce = "@first cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [map, {0, 0}], [at];\n"
    case_of(
        family, "cp.reduce.async.bulk.tensor adds floats", ptx + reduce + FINISH + reduce + FINISH + READ_GLOBAL,
        quarters, doubled, outs="f32 d[8]",
    )  # fmt: skip


def open_questions(family, numbers):
    """What the ISA does not say: hardware's answers are kept."""
    ptx = CLEAR + make_map("matrix", "u32", (32, 8), [128], (16, 8), swizzle=3) + load_tensor(2, (0, 0), 512) + READ
    case_of(
        family, "a box whose rows are shorter than the swizzle", ptx, numbers, [None] * 256,
        refused="shorter than the swizzle",
    )  # fmt: skip


def families():
    choice = random.Random(SEED)
    numbers = list(range(1, 257))
    made = {}
    for name, about, cases in (
        ("bulk_copy", "Bulk copies: PTX ISA 9.7.9.25.4.1.", lambda family: plain_copies(family, numbers)),
        ("bulk_reduction", "Bulk reductions: PTX ISA 9.7.9.25.4.2.", lambda family: reductions(family, choice)),
        ("tensor_swizzle", "Swizzles of tensor copies: PTX ISA 5.5.7.", lambda family: swizzles(family, numbers)),
        ("tensor_box", "Boxes of tensor copies: PTX ISA 5.5.3.", lambda family: boxes(family, numbers)),
        ("tensor_types", "Types of tensor maps: PTX ISA 5.5.1.", lambda family: types(family, choice)),
        ("tensor_store", "Tensor copies to global memory: PTX ISA 9.7.9.27.1.", lambda family: stores(family, numbers)),
    ):
        made[name] = Family(name, about)
        cases(made[name])
    open_questions(made["tensor_swizzle"], numbers)
    return list(made.values())
