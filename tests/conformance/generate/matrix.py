"""Matrix instructions (PTX ISA 9.7.14): which lane holds which element, from the ISA's tables of fragments.

A is m×k by rows, B k×n by columns, C and D m×n. A fragment is a function of lane and element number to row and
column; elements of 16 bits lie in pairs in registers, the lower number in the lower half.
"""

import random
from dataclasses import dataclass
from fractions import Fraction
from typing import Callable

from family import Family
from formats import BF16, F16, F32, TF32

LANES = range(32)


@dataclass(frozen=True)
class Shape:
    name: str
    k: int
    a_elements: int
    b_elements: int
    a: Callable  # group, place in group, element → row, column
    b: Callable


def _m16n8k16_a(group, place, i):
    return group + (0 if i in (0, 1, 4, 5) else 8), place * 2 + (i & 1) + (8 if i >= 4 else 0)


def _m16n8k16_b(group, place, i):
    return place * 2 + (i & 1) + (8 if i >= 2 else 0), group


def _m16n8k8_a(group, place, i):
    return group + (0 if i < 2 else 8), place * 2 + (i & 1)


def _m16n8k8_b(group, place, i):
    return place * 2 + i, group


def _tf32_k8_a(group, place, i):
    return group + (0 if i in (0, 2) else 8), place + (0 if i < 2 else 4)


def _tf32_k8_b(group, place, i):
    return place + 4 * i, group


def _tf32_k4_a(group, place, i):
    return group + 8 * i, place


def _tf32_k4_b(group, place, i):
    return place, group


def _accumulator(group, place, i):
    return group + (0 if i < 2 else 8), place * 2 + (i & 1)


K16 = Shape("m16n8k16", 16, 8, 4, _m16n8k16_a, _m16n8k16_b)
K8 = Shape("m16n8k8", 8, 4, 2, _m16n8k8_a, _m16n8k8_b)
TF32_K8 = Shape("m16n8k8", 8, 4, 2, _tf32_k8_a, _tf32_k8_b)
TF32_K4 = Shape("m16n8k4", 4, 2, 1, _tf32_k4_a, _tf32_k4_b)


def registers(values, width):
    """Elements in the order of their numbers, packed where they have 16 bits."""
    if width == 32:
        return list(values)
    return [low | high << 16 for low, high in zip(values[::2], values[1::2])]


def in_register(form, bits):
    return bits << 13 if form is TF32 else bits


class Product:
    """One mma: the operands' bits and the exact result."""

    def __init__(self, shape, form, accumulator, make_operand, make_accumulator):
        self.shape, self.form, self.accumulator = shape, form, accumulator
        self.a = [[make_operand(r, c) for c in range(shape.k)] for r in range(16)]
        self.b = [[make_operand(r + 3, c + 5) for c in range(8)] for r in range(shape.k)]
        self.c = [[make_accumulator(r, c) for c in range(8)] for r in range(16)]
        value, total = form.value, accumulator.value
        self.exact = [
            [
                total(self.c[r][c]) + sum(value(self.a[r][k]) * value(self.b[k][c]) for k in range(shape.k))
                for c in range(8)
            ]
            for r in range(16)
        ]
        self.size = max(
            abs(total(self.c[r][c])) + sum(abs(value(self.a[r][k]) * value(self.b[k][c])) for k in range(shape.k))
            for c in range(8)
            for r in range(16)
        )

    def rows(self):
        shape, width = self.shape, 32 if self.form is TF32 else 16
        for lane in LANES:
            group, place = lane >> 2, lane & 3
            take = lambda matrix, fragment, count: [
                matrix[r][c] for r, c in (fragment(group, place, i) for i in range(count))
            ]  # noqa: E731
            a = [in_register(self.form, bits) for bits in take(self.a, shape.a, shape.a_elements)]
            b = [in_register(self.form, bits) for bits in take(self.b, shape.b, shape.b_elements)]
            c = take(self.c, _accumulator, 4)
            d = [self.accumulator.round(number) for number in take(self.exact, _accumulator, 4)]
            wide = self.accumulator is F32
            yield (
                (*registers(a, width), *registers(b, width), *registers(c, 32 if wide else 16)),
                tuple(registers(d, 32 if wide else 16)),
            )


def mma(family, shape, form, accumulator, target, product, title, judge=None):
    count_a, count_b = (
        (shape.a_elements, shape.b_elements) if form is TF32 else (shape.a_elements // 2, shape.b_elements // 2)
    )
    operand = {"tf32": "tf32", "f16": "f16x2", "bf16": "bf16x2"}[form.name]
    sum_type, count_c = ("f32", 4) if accumulator is F32 else ("f16x2", 2)
    group = lambda name, count: "{" + ", ".join(f"{name}{i}" for i in range(count)) + "}"  # noqa: E731
    more = {"judge": judge} if judge else {}
    family.case(
        f"mma {shape.name} {accumulator.name} {form.name}, {title}",
        f"{operand} a[{count_a}], {operand} b[{count_b}], {sum_type} c[{count_c}]",
        f"{sum_type} d[{count_c}]",
        f"mma.sync.aligned.{shape.name}.row.col.{accumulator.name}.{form.name}.{form.name}.{accumulator.name} "
        f"{group('d', count_c)}, {group('a', count_a)}, {group('b', count_b)}, {group('c', count_c)};",
        list(product.rows()),
        target=target,
        **more,
    )


VARIANTS = [
    (K16, F16, F32, 80),
    (K8, F16, F32, 75),
    (K16, F16, F16, 80),
    (K8, F16, F16, 75),
    (K16, BF16, F32, 80),
    (K8, BF16, F32, 80),
    (TF32_K8, TF32, F32, 80),
    (TF32_K4, TF32, F32, 80),
]


def whole_numbers(family, variants):
    family.section("Small whole numbers, different in each place: every product and sum is exact.")
    for shape, form, accumulator, target in variants:
        number = lambda r, c: form.round(Fraction((r * 7 + c * 3) % 13 - 6))  # noqa: E731
        total = lambda r, c: accumulator.round(Fraction(r * 8 + c))  # noqa: E731
        mma(family, shape, form, accumulator, target, Product(shape, form, accumulator, number, total), "whole numbers")


def any_numbers(family, variants):
    family.section(
        "Any numbers. The ISA leaves order and rounding of the sums open, but for at least single precision."
    )
    for shape, form, accumulator, target in variants:
        dice = random.Random(f"{shape.name} {form.name} {accumulator.name}")
        number = lambda r, c: form.round(Fraction(dice.uniform(-2, 2)))  # noqa: E731
        total = lambda r, c: accumulator.round(Fraction(dice.uniform(-1, 1)))  # noqa: E731
        product = Product(shape, form, accumulator, number, total)
        bound = float(product.size * Fraction(1, 1 << (21 if accumulator is F32 else 9)))
        mma(family, shape, form, accumulator, target, product, "any numbers", judge=f"d absolute {bound:.2g}")


# ---- matrices in shared memory: 64 rows of 8 elements of 16 bits; element e of row r is 8 r + e ----

_FILL = """
.reg .b32 base, at, word, k;
.reg .pred more;
mov.b32 base, tile;
mov.b32 k, lane;
fill:
mul.lo.u32 word, k, 0x20002;
add.u32 word, word, 0x10000;
mad.lo.u32 at, k, 4, base;
st.shared.b32 [at], word;
add.u32 k, k, 32;
setp.lt.u32 more, k, 256;
@more bra fill;
bar.sync 0;
mad.lo.u32 at, row, 16, base;
"""
_TILE = ".shared .align 16 .b8 tile[1024];"


def load_matrix(family):
    """Lanes 8 m … 8 m + 7 name the rows of matrix m. Lane t gets of it row t / 4, elements 2 (t mod 4) and the next;
    with .trans column t / 4."""
    row_of = [(lane * 7 + 3) % 64 for lane in LANES]
    element = lambda row, i: row_of[row] * 8 + i  # noqa: E731
    for count in (1, 2, 4):
        for trans in ("", ".trans"):
            rows = []
            for t in LANES:
                group, pair = t // 4, 2 * (t % 4)
                answer = []
                for m in range(count):
                    if trans:
                        answer.append(element(8 * m + pair, group) | element(8 * m + pair + 1, group) << 16)
                    else:
                        answer.append(element(8 * m + group, pair) | element(8 * m + group, pair + 1) << 16)
                rows.append(((row_of[t],), tuple(answer)))
            into = ", ".join(f"d{m}" for m in range(count))
            family.case(
                f"ldmatrix x{count}{trans}",
                "u32 row",
                f"b32 d[{count}]",
                _FILL + f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{into}}}, [at];",
                rows,
                module=_TILE,
            )


def store_matrix(family):
    """The other way. Row r of matrix m goes where lane 8 m + r says; then lane t reads the t-th row of 16 bytes."""
    for count in (1, 2, 4):
        for trans in ("", ".trans"):
            place_of = [(lane * 5 + 1) % 32 for lane in LANES]  # a row of memory for each row of a matrix
            memory = {}
            given = [[(t * 16 + m * 4) | (t * 16 + m * 4 + 1) << 16 for m in range(count)] for t in LANES]
            for t in LANES:
                for m in range(count):
                    for half in range(2):
                        value = given[t][m] >> 16 * half & 0xFFFF
                        row, column = (2 * (t % 4) + half, t // 4) if trans else (t // 4, 2 * (t % 4) + half)
                        memory[place_of[8 * m + row], column] = value
            rows = []
            for t in LANES:
                words = [memory.get((t, 2 * w), 0) | memory.get((t, 2 * w + 1), 0) << 16 for w in range(4)]
                rows.append(((place_of[t], *given[t]), tuple(words)))
            names = ", ".join(f"a{m}" for m in range(count))
            family.case(
                f"stmatrix x{count}{trans}",
                f"u32 row, b32 a[{count}]",
                "b32 d[4]",
                f"""
            .reg .b32 base, at, mine;
            mov.b32 base, tile;
            mad.lo.u32 mine, lane, 16, base;
            st.shared.v4.b32 [mine], {{0, 0, 0, 0}};
            mad.lo.u32 at, row, 16, base;
            bar.sync 0;
            stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [at], {{{names}}};
            bar.sync 0;
            ld.shared.v4.b32 {{d0, d1, d2, d3}}, [mine];""",
                rows,
                target=90,
                module=".shared .align 16 .b8 tile[512];",
            )


def move_matrix(family):
    given = [(2 * t) | (2 * t + 1) << 16 for t in LANES]  # element c of row r is 8 r + c
    answer = [(2 * (t % 4) * 8 + t // 4) | ((2 * (t % 4) + 1) * 8 + t // 4) << 16 for t in LANES]
    family.case(
        "movmatrix transposes",
        "b32 a",
        "b32 d",
        "movmatrix.sync.aligned.m8n8.trans.b16 d, a;",
        [((a,), (d,)) for a, d in zip(given, answer)],
    )


def families():
    for name, maker in (("mma_exact", whole_numbers), ("mma_rounded", any_numbers)):
        family = Family(
            name, "Tensor cores: PTX ISA 9.7.14, mma.sync. a, b, c are the registers of a lane, one row a lane."
        )
        maker(family, VARIANTS)
        yield family
    family = Family("ldmatrix", "Matrices in shared memory: PTX ISA 9.7.14, ldmatrix stmatrix movmatrix.")
    load_matrix(family)
    store_matrix(family)
    move_matrix(family)
    yield family
