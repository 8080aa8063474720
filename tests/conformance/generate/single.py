"""Single precision (PTX ISA 9.7.3): every rounding mode, .ftz, .sat, NaN, infinities, zeros of both signs."""

import formats
from family import Family
from formats import F32

ONE, TWO, MINUS = 0x3F800000, 0x40000000, 0xBF800000
ULP = ONE + 1  # 1 + 2^-23
TINY, SUBNORMAL, LEAST = 1, 0x007FFFFF, 0x00800000
INF, NINF, NAN, SNAN = 0x7F800000, 0xFF800000, 0x7FFFFFFF, 0x7F800001
LARGEST, NZERO = 0x7F7FFFFF, 0x80000000
THIRD = 0x3EAAAAAB
HALF_ULP = 0x33800000  # 2^-24: halfway from 1 to the next
MODES = ("rn", "rz", "rm", "rp")

SUMS = [
    (ONE, HALF_ULP),
    (ULP, HALF_ULP),
    (ONE, HALF_ULP + 1),
    (MINUS, 0xB3800000),
    (ONE, 0xB3800000),
    (THIRD, THIRD),
    (LARGEST, LARGEST),
    (LARGEST, 0x73000000),
    (0xFF7FFFFF, 0xF3800000),
    (TINY, TINY),
    (LEAST, 0x80000001),
    (SUBNORMAL, TINY),
    (ONE, MINUS),
    (0, NZERO),
    (NZERO, NZERO),
    (INF, ONE),
    (INF, NINF),
    (NINF, NINF),
    (NAN, ONE),
    (ONE, SNAN),
    (0x4B7FFFFF, 0x3F000000),
    (0xCB7FFFFF, 0xBF000001),
    (0x3DCCCCCD, 0x3E4CCCCD),
]
PRODUCTS = [
    (ULP, ULP),
    (ONE, THIRD),
    (THIRD, 0x40400000),
    (0x3FFFFFFF, 0x3FFFFFFF),
    (0xBF800001, ULP),
    (LEAST, 0x3F000000),
    (TINY, 0x3F000000),
    (0x80000001, 0x3F000000),
    (TINY, 0x3F000001),
    (LARGEST, TWO),
    (0xFF7FFFFF, TWO),
    (LARGEST, ULP),
    (0, MINUS),
    (NZERO, MINUS),
    (INF, 0),
    (INF, MINUS),
    (NAN, 0),
    (0x00FFFFFF, 0x3F000001),
    (0x20000000, 0x1F800001),
    (0x3DCCCCCD, 0x3E4CCCCD),
    (SUBNORMAL, TWO),
]
# The product alone would round: only what is rounded once is right.
FUSED = [
    (ULP, ULP, 0xBF800002),
    (0x3F800001, 0x3F7FFFFF, MINUS),
    (0x3FFFFFFF, 0x3FFFFFFF, 0xC07FFFFE),
    (THIRD, 0x40400000, MINUS),
    (ONE, ONE, MINUS),
    (MINUS, ONE, ONE),
    (0, MINUS, 0),
    (0, MINUS, NZERO),
    (NZERO, ONE, NZERO),
    (LARGEST, TWO, NINF),
    (LARGEST, TWO, 0xFF7FFFFF),
    (INF, 0, ONE),
    (INF, ONE, NINF),
    (INF, ONE, INF),
    (ONE, ONE, NAN),
    (NAN, ONE, ONE),
    (0x1F800000, 0x1F800000, 0),
    (0x1F800000, 0x9F800000, LEAST),
    (TINY, TINY, ONE),
    (TINY, 0x80000001, ONE),
    (TINY, TINY, TINY),
    (0x41200003, 0x3DCCCCCD, MINUS),
    (0x4B800000, 0x4B800001, 0xD6800000),
    (0x3F000000, 0x33800000, ONE),
    (0x3F800001, HALF_ULP, ONE),
]


def at_the_edge(bits):
    """A result that rounds from below to the least normal number: whether .ftz flushes it, the ISA does not say."""
    return bits & 0x7FFFFFFF == LEAST


def arithmetic(family):
    for op, rule, pairs in (("add", formats.add, SUMS), ("sub", formats.sub, SUMS), ("mul", formats.mul, PRODUCTS)):
        for mode in MODES:
            family.table(
                f"{op}.{mode}.f32",
                "f32 a, f32 b",
                "f32 d",
                f"{op}.{mode}.f32 d, a, b;",
                pairs,
                lambda a, b: rule(F32, a, b, mode),
            )
        family.table(
            f"{op}.ftz.f32 flushes what comes in and goes out",
            "f32 a, f32 b",
            "f32 d",
            f"{op}.ftz.f32 d, a, b;",
            [
                pair
                for pair in pairs + [(SUBNORMAL, 0x80000005), (NZERO | TINY, NZERO), (LEAST + 5, LEAST | NZERO)]
                if not at_the_edge(rule(F32, *pair))
            ],
            lambda a, b: rule(F32, a, b, "rn", ftz=True),
        )
        family.table(
            f"{op}.sat.f32 clamps to 0 to 1, NaN to 0",
            "f32 a, f32 b",
            "f32 d",
            f"{op}.sat.f32 d, a, b;",
            [pair for pair in pairs if rule(F32, *pair) != NZERO],
            lambda a, b: rule(F32, a, b, "rn", sat=True),
        )


def fused(family):
    for mode in MODES:
        family.table(
            f"fma.{mode}.f32 rounds once",
            "f32 a, f32 b, f32 c",
            "f32 d",
            f"fma.{mode}.f32 d, a, b, c;",
            FUSED,
            lambda a, b, c: formats.fma(F32, a, b, c, mode),
        )
    family.table(
        "fma.rn.ftz.f32",
        "f32 a, f32 b, f32 c",
        "f32 d",
        "fma.rn.ftz.f32 d, a, b, c;",
        [row for row in FUSED if not at_the_edge(formats.fma(F32, *row))]
        + [(SUBNORMAL, TWO, ONE), (0x1F800000, 0x1F000000, NZERO)],
        lambda a, b, c: formats.fma(F32, a, b, c, "rn", ftz=True),
    )
    family.table(
        "fma.rn.sat.f32",
        "f32 a, f32 b, f32 c",
        "f32 d",
        "fma.rn.sat.f32 d, a, b, c;",
        [row for row in FUSED if formats.fma(F32, *row) != NZERO],
        lambda a, b, c: formats.fma(F32, a, b, c, "rn", sat=True),
    )
    family.table(
        "mad.rn.f32 is fma",
        "f32 a, f32 b, f32 c",
        "f32 d",
        "mad.rn.f32 d, a, b, c;",
        FUSED,
        lambda a, b, c: formats.fma(F32, a, b, c),
    )


def division(family):
    pairs = [
        (ONE, 0x40400000),
        (TWO, THIRD),
        (ONE, 0),
        (MINUS, 0),
        (ONE, NZERO),
        (0, 0),
        (INF, INF),
        (INF, 0),
        (0, INF),
        (ONE, INF),
        (LARGEST, 0x3F000000),
        (LEAST, TWO),
        (TINY, TWO),
        (0x80000001, TWO),
        (TINY, TINY),
        (NAN, ONE),
        (ONE, NAN),
        (ULP, 0x3F7FFFFF),
        (0x40A00000, 0x40E00000),
        (SUBNORMAL, 0x3F7FFFFF),
        (0x4B7FFFFF, 0x4B7FFFFE),
        (LARGEST, TINY),
    ]
    for mode in MODES:
        family.table(
            f"div.{mode}.f32",
            "f32 a, f32 b",
            "f32 d",
            f"div.{mode}.f32 d, a, b;",
            pairs,
            lambda a, b: formats.div(F32, a, b, mode),
        )
    family.table(
        "div.rn.ftz.f32",
        "f32 a, f32 b",
        "f32 d",
        "div.rn.ftz.f32 d, a, b;",
        [pair for pair in pairs if not at_the_edge(formats.div(F32, *pair))],
        lambda a, b: formats.div(F32, a, b, "rn", ftz=True),
    )
    values = [
        ONE,
        TWO,
        0x40400000,
        0,
        NZERO,
        INF,
        NINF,
        NAN,
        0x3F7FFFFF,
        ULP,
        LEAST,
        SUBNORMAL,
        0x7E800000,
        LARGEST,
        MINUS,
        0x00200000,
    ]
    roots = [
        0,
        NZERO,
        ONE,
        TWO,
        0x40400000,
        0x40800000,
        LEAST,
        TINY,
        SUBNORMAL,
        LARGEST,
        INF,
        NINF,
        MINUS,
        NAN,
        0x3F7FFFFF,
        0x41C80001,
    ]
    for mode in MODES:
        family.table(
            f"rcp.{mode}.f32",
            "f32 a",
            "f32 d",
            f"rcp.{mode}.f32 d, a;",
            values,
            lambda a: formats.div(F32, ONE, a, mode),
        )
        family.table(
            f"sqrt.{mode}.f32", "f32 a", "f32 d", f"sqrt.{mode}.f32 d, a;", roots, lambda a: formats.sqrt(F32, a, mode)
        )
    family.table(
        "rcp.rn.ftz.f32",
        "f32 a",
        "f32 d",
        "rcp.rn.ftz.f32 d, a;",
        values,
        lambda a: formats.div(F32, ONE, a, "rn", ftz=True),
    )
    family.table(
        "sqrt.rn.ftz.f32",
        "f32 a",
        "f32 d",
        "sqrt.rn.ftz.f32 d, a;",
        roots,
        lambda a: formats.sqrt(F32, a, "rn", ftz=True),
    )


def extreme(form, a, b, largest, nan=False):
    """min and max: a NaN gives way to a number (with .NaN it wins), and -0 is below +0."""
    if form.is_nan(a) or form.is_nan(b):
        if nan or (form.is_nan(a) and form.is_nan(b)):
            return form.nan
        return b if form.is_nan(a) else a
    key = lambda x: -(x & (form.sign_bit - 1)) - 1 if form.sign(x) else x  # noqa: E731
    return (max if largest else min)(a, b, key=key)


def extremes(family):
    pairs = [
        (ONE, TWO),
        (TWO, MINUS),
        (0, NZERO),
        (NZERO, 0),
        (NAN, ONE),
        (ONE, NAN),
        (NAN, NAN),
        (SNAN, ONE),
        (INF, NAN),
        (NINF, LARGEST),
        (INF, LARGEST),
        (TINY, 0),
        (0x80000001, NZERO),
        (MINUS, 0xC0000000),
    ]
    for op in ("min", "max"):
        rule = lambda a, b, nan=False: extreme(F32, a, b, op == "max", nan)  # noqa: E731
        family.table(f"{op}.f32 passes a number by a NaN", "f32 a, f32 b", "f32 d", f"{op}.f32 d, a, b;", pairs, rule)
        family.table(
            f"{op}.NaN.f32",
            "f32 a, f32 b",
            "f32 d",
            f"{op}.NaN.f32 d, a, b;",
            pairs,
            lambda a, b: rule(a, b, True),
            target=80,
        )
        small = [(TINY, ONE), (SUBNORMAL, MINUS), (NAN, ONE), (0x80000001, MINUS), (LEAST, 0)]
        family.table(
            f"{op}.ftz.f32",
            "f32 a, f32 b",
            "f32 d",
            f"{op}.ftz.f32 d, a, b;",
            small,
            lambda a, b: rule(F32.flush(a), F32.flush(b)),
        )
        family.table(
            f"{op}.xorsign.abs.f32: of the sizes, with the product's sign",
            "f32 a, f32 b",
            "f32 d",
            f"{op}.xorsign.abs.f32 d, a, b;",
            [(ONE, TWO), (TWO, MINUS), (0xC0000000, MINUS), (MINUS, 0x40400000), (INF, MINUS)],
            lambda a, b: rule(a & 0x7FFFFFFF, b & 0x7FFFFFFF) | (a ^ b) & NZERO,
            target=86,
        )
    values = [ONE, MINUS, 0, NZERO, INF, NINF, TINY, 0x80000001]
    family.table(
        "abs.f32 and neg.f32",
        "f32 a",
        "f32 d, f32 e",
        "abs.f32 d, a;\nneg.f32 e, a;",
        values,
        lambda a: (a & 0x7FFFFFFF, a ^ NZERO),
    )
    family.table(
        "abs.ftz.f32 and neg.ftz.f32",
        "f32 a",
        "f32 d, f32 e",
        "abs.ftz.f32 d, a;\nneg.ftz.f32 e, a;",
        values,
        lambda a: (F32.flush(a) & 0x7FFFFFFF, F32.flush(a) ^ NZERO),
    )
    family.table(
        "copysign.f32: the sign of a on b",
        "f32 a, f32 b",
        "f32 d",
        "copysign.f32 d, a, b;",
        [(ONE, MINUS), (MINUS, TWO), (NZERO, INF), (0, NINF)],
        lambda a, b: b & 0x7FFFFFFF | a & NZERO,
    )


def canonical(family):
    # Not the minimum of a and a, of which ptxas makes a copy.
    ops = {"add": "a, b", "sub": "a, b", "mul": "a, b", "fma.rn": "a, b, b", "min": "a, c", "max": "a, c"}
    outs = ", ".join(f"b32 d{i}" for i in range(len(ops)))
    ptx = "\n".join(f"{op}.f32 d{i}, {operands};" for i, (op, operands) in enumerate(ops.items()))
    family.case(
        "a NaN that arithmetic gives is 0x7fffffff",
        "f32 a, f32 b, f32 c",
        outs,
        ptx,
        [((bits, ONE, 0xFFC00001), (NAN,) * len(ops)) for bits in (NAN, SNAN, 0xFFC00000, 0x7FC12345)],
    )


def approximations(family):
    """Within the bounds that the ISA states for each; exact where it says what the answer is."""
    family.section("Approximations, within what the ISA states as their largest error.")
    exact = [
        (ONE, ONE),
        (TWO, 0x3F000000),
        (0x40800000, 0x3E800000),
        (INF, 0),
        (NINF, NZERO),
        (0, INF),
        (NZERO, NINF),
        (NAN, NAN),
    ]
    rows = [((a,), (d,)) for a, d in exact] + [
        ((a,), (formats.div(F32, ONE, a),)) for a in (0x40400000, 0x3FC90FDB, 0x4B7FFFFF)
    ]
    family.case("rcp.approx.f32", "f32 a", "f32 d", "rcp.approx.f32 d, a;", rows, judge="d ulp 1")
    family.case(
        "rcp.approx.ftz.f32",
        "f32 a",
        "f32 d",
        "rcp.approx.ftz.f32 d, a;",
        [row for row in rows] + [((TINY,), (INF,)), ((0x80000001,), (NINF,))],
        judge="d ulp 1",
    )
    roots = [0, NZERO, ONE, 0x40800000, 0x40400000, 0x3E800000, INF, NAN, MINUS]
    family.table(
        "sqrt.approx.f32",
        "f32 a",
        "f32 d",
        "sqrt.approx.f32 d, a;",
        roots,
        lambda a: formats.sqrt(F32, a),
        judge="d relative 2.4e-7",
    )
    family.case(
        "rsqrt.approx.f32",
        "f32 a",
        "f32 d",
        "rsqrt.approx.f32 d, a;",
        [
            ((ONE,), (ONE,)),
            ((0x40800000,), (0x3F000000,)),
            ((0x3E800000,), (TWO,)),
            ((0,), (INF,)),
            ((NZERO,), (NINF,)),
            ((INF,), (0,)),
            ((MINUS,), (NAN,)),
            ((NAN,), (NAN,)),
            ((TWO,), (0x3F3504F3,)),
        ],
        judge="d relative 1.6e-7",
    )
    family.case(
        "ex2.approx.f32",
        "f32 a",
        "f32 d",
        "ex2.approx.f32 d, a;",
        [
            ((0,), (ONE,)),
            ((NZERO,), (ONE,)),
            ((ONE,), (TWO,)),
            ((MINUS,), (0x3F000000,)),
            ((0x41200000,), (0x44800000,)),
            ((INF,), (INF,)),
            ((NINF,), (0,)),
            ((NAN,), (NAN,)),
            ((0x3F000000,), (0x3FB504F3,)),
            ((0xC1200000,), (0x3A800000,)),
        ],
        judge="d relative 2.4e-7",
    )
    family.case(
        "lg2.approx.f32",
        "f32 a",
        "f32 d",
        "lg2.approx.f32 d, a;",
        [
            ((ONE,), (0,)),
            ((TWO,), (ONE,)),
            ((0x40800000,), (TWO,)),
            ((0x3F000000,), (MINUS,)),
            ((0,), (NINF,)),
            ((NZERO,), (NINF,)),
            ((INF,), (INF,)),
            ((MINUS,), (NAN,)),
            ((NAN,), (NAN,)),
        ],
        judge="d absolute 2.4e-7",
    )
    family.case(
        "sin.approx.f32 and cos.approx.f32",
        "f32 a",
        "f32 d, f32 e",
        "sin.approx.f32 d, a;\ncos.approx.f32 e, a;",
        [
            ((0,), (0, ONE)),
            ((0x3FC90FDB,), (ONE, 0xB33BBD2E)),
            ((0x3F860A92,), (0x3F5DB3D8, 0x3EFFFFFE)),
            ((NAN,), (NAN, NAN)),
            ((INF,), (NAN, NAN)),
        ],
        judge=["d absolute 5e-7", "e absolute 5e-7"],
    )
    family.case(
        "tanh.approx.f32",
        "f32 a",
        "f32 d",
        "tanh.approx.f32 d, a;",
        [
            ((0,), (0,)),
            ((ONE,), (0x3F42F7D6,)),
            ((MINUS,), (0xBF42F7D6,)),
            ((0x41A00000,), (ONE,)),
            ((INF,), (ONE,)),
            ((NINF,), (MINUS,)),
            ((NAN,), (NAN,)),
        ],
        judge="d relative 4.9e-4",
    )
    family.case(
        "div.approx.f32",
        "f32 a, f32 b",
        "f32 d",
        "div.approx.f32 d, a, b;",
        [
            ((a, b), (formats.div(F32, a, b),))
            for a, b in (
                (ONE, 0x40400000),
                (TWO, THIRD),
                (0x40A00000, 0x40E00000),
                (ONE, 0),
                (0, ONE),
                (INF, INF),
                (ONE, NAN),
            )
        ],
        judge="d ulp 2",
    )
    family.case(
        "div.full.f32",
        "f32 a, f32 b",
        "f32 d",
        "div.full.f32 d, a, b;",
        [
            ((a, b), (formats.div(F32, a, b),))
            for a, b in (
                (ONE, 0x40400000),
                (TWO, THIRD),
                (0x40A00000, 0x40E00000),
                (LARGEST, LARGEST),
                (0, ONE),
                (ONE, NAN),
            )
        ],
        judge="d ulp 2",
    )


def families():
    for name, about, *makers in (
        ("f32", "Single precision: PTX ISA 9.7.3, add sub mul.", arithmetic),
        ("f32_fma", "Single precision: PTX ISA 9.7.3, fma mad min max abs neg copysign.", fused, extremes, canonical),
        ("f32_divide", "Single precision: PTX ISA 9.7.3, div rcp sqrt.", division),
        ("f32_approximate", "Single precision: PTX ISA 9.7.3, .approx and .full.", approximations),
    ):
        family = Family(name, about)
        for make in makers:
            make(family)
        yield family
