"""Products of a warpgroup (PTX ISA 9.7.15): where elements lie in shared memory and in registers.

The canonical layouts of 9.7.15.5.1.2 say where an element lies before it is swizzled, the figures of 9.7.15.5.1.1
which thread has it in a register. Numbers are small and whole, so the sums are exact whatever their order.
"""

import random
from dataclasses import dataclass

from bulk import packed, swizzled
from family import Family
from formats import BF16, F16, F32, Format

THREADS = range(128)
SEED = 2402
M, N = 64, 8
E4M3, E5M2 = Format("e4m3", 4, 3), Format("e5m2", 5, 2)  # as far as small numbers go
SWIZZLE_MODES = {0: 0, 128: 1, 64: 2, 32: 3}


@dataclass(frozen=True)
class Element:
    name: str
    size: int  # bytes
    form: Format = None  # None: an integer
    column: str = "b32"  # of a case file, where 32 bits of them are one

    def bits(self, number):
        return self.form.round(number) if self.form else number & 0xFF


TYPES = {
    "f16": Element("f16", 2, F16, "f16x2"),
    "bf16": Element("bf16", 2, BF16, "bf16x2"),
    "tf32": Element("tf32", 4, F32, "tf32"),
    "e4m3": Element("e4m3", 1, E4M3),
    "e5m2": Element("e5m2", 1, E5M2),
    "s8": Element("s8", 1),
    "u8": Element("u8", 1),
}


@dataclass(frozen=True)
class Place:
    """A matrix in shared memory; strides are those of a pattern next to the next one, in bytes."""

    start: int
    span: int  # of the swizzle: 0, 32, 64, 128
    mn_major: bool = False
    leading: int = 0
    stride: int = 0

    def offset(self, size, row, k):
        unit, wide = 16 // size, max(self.span, 16) // 16
        if self.mn_major:
            next_rows, next_k = (self.leading, self.stride) if self.span else (self.stride, self.leading)
            rows, within = divmod(row, unit)
            at = rows % wide * 16 + rows // wide * next_rows + k % 8 * wide * 16 + k // 8 * next_k
        else:
            units, within = divmod(k, unit)
            at = row % 8 * wide * 16 + row // 8 * self.stride + units * (16 if self.span else self.leading)
        return swizzled(self.span, self.start + at) + within * size

    def descriptor(self, step=0):
        """Without the address of shared memory; 16-byte units."""
        fields = (self.start + step) // 16 | self.leading // 16 << 16 | self.stride // 16 << 32
        return fields | SWIZZLE_MODES[self.span] << 62


def k_major(start, span, rows):
    """Rows of as many bytes as the swizzle spans, all next to each other."""
    return Place(start, span, False, rows * 16, max(span, 16) * 8)


def mn_major(start, span, rows):
    """The patterns of 8 k next to each other, those of the next rows after them."""
    wide = max(span, 16)
    patterns = -(-rows * 2 // wide)
    if span == 0:
        return Place(start, span, True, patterns * 128, 128)
    return Place(start, span, True, wide * 16, wide * 8)


def accumulator(thread, i):
    """Row and column of the element i of D: figures 149, 151 and 153."""
    warp, lane = divmod(thread, 32)
    return 16 * warp + lane // 4 + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * (lane % 4) + i % 2


def fragment(thread, register):
    """Row, and byte of the row, where a register of A begins: figures 148, 150 and 152."""
    warp, lane = divmod(thread, 32)
    return 16 * warp + lane // 4 + 8 * (register % 2), 4 * (lane % 4) + 16 * (register // 2)


@dataclass(frozen=True)
class Job:
    a: Element
    b: Element
    place_b: Place
    place_a: Place = None  # None: in registers
    sums: str = "f32"
    steps: int = 1  # of 32 bytes of a row
    size: int = 0  # bytes of shared memory
    adds: bool = True
    negate: tuple = (1, 1)
    greatest: int = 3
    first_sum: int = 0
    saturates: bool = False

    @property
    def k(self):
        return 32 // self.a.size * self.steps


def whole_numbers(choice, job, element, rows):
    low = 0 if element.name == "u8" else -job.greatest
    return [[choice.randint(low, job.greatest) for _ in range(job.k)] for _ in range(rows)]


def put(memory, place, element, matrix):
    for row, numbers in enumerate(matrix):
        for k, number in enumerate(numbers):
            at = place.offset(element.size, row, k)
            memory[at : at + element.size] = element.bits(number).to_bytes(element.size, "little")


def words_of(data):
    return [int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data), 4)]


def instruction(job, step):
    shape = f"m64n{N}k{32 // job.a.size}"
    count = 2 if job.sums == "f16" else 4
    sums = "{" + ", ".join(f"d{i}" for i in range(count)) + "}"
    floats = job.sums != "s32"
    flags = [str(sign) for sign in job.negate] if floats else []
    if job.a.size == 2:
        flags += [str(int(place.mn_major)) for place in (job.place_a, job.place_b) if place]
    saturation = ".satfinite" if job.saturates else ""
    types = f"{job.sums}.{job.a.name}.{job.b.name}"
    a = "from_a" if job.place_a else "{w0, w1, w2, w3}"
    lines = [f"add.s64 from_b, tile_at, {job.place_b.descriptor(32 * step)};"]
    if job.place_a:
        lines.append(f"add.s64 from_a, tile_at, {job.place_a.descriptor(32 * step)};")
    operands = ", ".join([sums, a, "from_b", "adds", *flags])
    return [*lines, f"wgmma.mma_async.sync.aligned.{shape}{saturation}.{types} {operands};"]


def body(job, words, count):
    lines = [".reg .b32 at, word;", ".reg .b64 tile_at, from_a, from_b;", ".reg .pred adds;"]
    lines += [f"setp.{'eq' if job.adds else 'ne'}.u32 adds, lane, lane;", "mov.u32 at, tile;"]
    lines += ["shr.u32 word, at, 4;", "cvt.u64.u32 tile_at, word;", f"mad.lo.u32 at, tid, {4 * words}, at;"]
    lines += [f"st.shared.b32 [at+{4 * i}], s{i};" for i in range(words)]
    lines += ["fence.proxy.async.shared::cta;", "bar.sync 0;"]
    lines += [f"mov.b32 d{i}, c{i};" for i in range(count)]
    lines.append("wgmma.fence.sync.aligned;")
    for step in range(job.steps):
        lines += instruction(job, step)
    lines += ["wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"]
    return packed("\n".join(lines))


def sums_of(job, matrices):
    a, b, c = matrices
    sign = job.negate[0] * job.negate[1]
    products = [[sign * sum(x * y for x, y in zip(row, column)) for column in b] for row in a]
    return [[(c[m][n] if job.adds else 0) + products[m][n] for n in range(N)] for m in range(M)]


def sum_bits(job, number):
    if job.sums == "s32":
        least, greatest = -(1 << 31), (1 << 31) - 1
        return (max(least, min(greatest, number)) if job.saturates else number) & 0xFFFFFFFF
    return (F16 if job.sums == "f16" else F32).round(number)


def registers(job, matrix, thread):
    elements = [sum_bits(job, matrix[row][column]) for row, column in (accumulator(thread, i) for i in range(4))]
    return [low | high << 16 for low, high in zip(elements[::2], elements[1::2])] if job.sums == "f16" else elements


def case_of(family, choice, name, job):
    a, b = whole_numbers(choice, job, job.a, M), whole_numbers(choice, job, job.b, N)
    c = [[job.first_sum + choice.randint(-50, 50) for _ in range(N)] for _ in range(M)]
    memory = bytearray(job.size)
    put(memory, job.place_b, job.b, b)
    if job.place_a:
        put(memory, job.place_a, job.a, a)
    words = job.size // 512
    d = sums_of(job, (a, b, c))
    rows = []
    in_registers = [b"".join(job.a.bits(number).to_bytes(job.a.size, "little") for number in row) for row in a]
    for thread in THREADS:
        given = words_of(memory[4 * words * thread : 4 * words * (thread + 1)])
        if not job.place_a:
            given += [
                int.from_bytes(in_registers[row][byte : byte + 4], "little")
                for row, byte in (fragment(thread, r) for r in range(4))
            ]
        rows.append((tuple(given + registers(job, c, thread)), tuple(registers(job, d, thread))))
    sum_type, count = ("f16x2", 2) if job.sums == "f16" else (job.sums, 4)
    ins = f"{job.a.column} s[{words}]" + ("" if job.place_a else f", {job.a.column} w[4]") + f", {sum_type} c[{count}]"
    family.case(
        name, ins, f"{sum_type} d[{count}]", body(job, words, count), rows, target="90a", threads=128,
        module=f".shared .align 1024 .b8 tile[{job.size}];",
    )  # fmt: skip


def where(span):
    return f"swizzled within {span} bytes" if span else "without a swizzle"


def k_major_layouts(family, choice):
    f16 = TYPES["f16"]
    for span, steps in ((0, 1), (32, 1), (64, 2), (128, 4)):
        row = max(span, 32)
        size = (M + N) * row
        size += -size % 512
        job = Job(f16, f16, k_major(M * row, span, N), k_major(0, span, M), steps=steps, size=size)
        case_of(family, choice, f"K-major, {where(span)}", job)


def mn_major_layouts(family, choice):
    f16 = TYPES["f16"]
    for span in (0, 32, 64, 128):
        b = mn_major(2048, 0 if span == 128 else span, N)
        size = 2048 + max(16, b.span) * 16
        size += -size % 512
        job = Job(f16, f16, b, mn_major(0, span, M), size=size)
        case_of(family, choice, f"M-major and N-major, {where(span)}", job)


def shifted_layouts(family, choice):
    """Matrices that begin in the middle of a swizzled unit, and whose patterns are not a multiple of one apart: part of
    an image's positions, of which each is a line as wide as the swizzle. Bits 49 to 51 of a descriptor stay 0.
    """
    f16 = TYPES["f16"]
    wide, first = 10, 3  # lines from a row of positions to the next; lines before the first
    for span in (32, 64, 128):
        a = Place(first * span, span, False, stride=wide * span)
        end_of_a = -(-(first + wide * M // 8) * span // 1024) * 1024
        b = Place(end_of_a + 5 * span, span)
        size = -(-(end_of_a + 16 * span) // 512) * 512
        job = Job(f16, f16, b, a, steps=span // 32, size=size)
        case_of(family, choice, f"K-major, {where(span)}, from another line on", job)

        ahead = (first + 2 * wide) * span  # to the next rows: an image's other features, not aligned either
        a = Place(first * span, span, True, ahead, wide * span)
        end_of_a = -(-(-(-M * 2 // span) * ahead) // 1024) * 1024
        b = Place(end_of_a + 5 * span, span, True, span * 8, wide * span)
        size = -(-(end_of_a + (5 + 2 * wide) * span) // 512) * 512
        case_of(family, choice, f"M-major and N-major, {where(span)}, from another line on", Job(f16, f16, b, a, size=size))


def in_memory(family, choice, rows):
    for a, b, sums in rows:
        greatest = 100 if sums == "s32" else 3
        places = k_major(2048, 32, N), k_major(0, 32, M)
        job = Job(TYPES[a], TYPES[b], *places, sums, size=2560, greatest=greatest)
        case_of(family, choice, f"{a} and {b}, sums in {sums}", job)


def in_registers(family, choice, rows):
    for a, b, sums in rows:
        greatest = 100 if sums == "s32" else 3
        place = mn_major(0, 32, N) if a == "f16" else k_major(0, 0, N)
        job = Job(TYPES[a], TYPES[b], place, None, sums, size=512, greatest=greatest)
        case_of(family, choice, f"{a} in registers and {b}, sums in {sums}", job)


def scales(family, choice):
    f16 = TYPES["f16"]
    b = k_major(0, 32, N)
    case_of(family, choice, "scale-d is false", Job(f16, f16, b, size=512, adds=False))
    case_of(family, choice, "imm-scale-a is -1", Job(f16, f16, b, size=512, negate=(-1, 1)))
    case_of(family, choice, "imm-scale-b is -1", Job(f16, f16, b, size=512, negate=(1, -1)))
    case_of(family, choice, "both are -1", Job(f16, f16, b, size=512, negate=(-1, -1)))


def saturation(family, choice):
    s8, u8 = TYPES["s8"], TYPES["u8"]
    b = k_major(0, 32, N)
    high = dict(size=512, sums="s32", greatest=100, first_sum=(1 << 31) - 1000)
    case_of(family, choice, "sums of integers wrap", Job(u8, u8, b, **high))
    case_of(family, choice, "sums of integers saturate", Job(u8, u8, b, saturates=True, **high))
    high["first_sum"] = 1000 - (1 << 31)
    case_of(family, choice, "sums saturate below", Job(s8, s8, b, saturates=True, **high))


WIDE = (("f16", "f16", "f16"), ("bf16", "bf16", "f32"), ("tf32", "tf32", "f32"))
BYTES = (("e4m3", "e5m2", "f32"), ("e5m2", "e4m3", "f16"), ("s8", "u8", "s32"), ("u8", "s8", "s32"))


def families():
    choice = random.Random(SEED)
    for name, about, cases in (
        ("wgmma_k_major", "K-major matrices of wgmma in shared memory: PTX ISA 9.7.15.5.1.2.", k_major_layouts),
        ("wgmma_mn_major", "MN-major matrices of wgmma in shared memory: PTX ISA 9.7.15.5.1.2.", mn_major_layouts),
        ("wgmma_shifted", "Matrices of wgmma from any line of a swizzled unit on: PTX ISA 9.7.15.5.1.2.", shifted_layouts),
        ("wgmma_types", "Types of wgmma: PTX ISA 9.7.15.2.", lambda *to: in_memory(*to, WIDE)),
        ("wgmma_bytes", "Types of wgmma with 8 bits: PTX ISA 9.7.15.2.", lambda *to: in_memory(*to, BYTES)),
        ("wgmma_registers", "A of wgmma in registers: PTX ISA 9.7.15.5.1.1.", lambda *to: in_registers(*to, WIDE)),
        ("wgmma_byte_registers", "A of 8 bits in registers: 9.7.15.5.1.1.", lambda *to: in_registers(*to, BYTES)),
        ("wgmma_scales", "scale-d and imm-scale of wgmma: PTX ISA 9.7.15.5.2.", scales),
        ("wgmma_saturation", "satfinite of wgmma: PTX ISA 9.7.15.5.2.", saturation),
    ):
        family = Family(name, about)
        cases(family, choice)
        yield family
