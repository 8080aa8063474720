"""Double precision (PTX ISA 9.7.3)."""

import formats
from family import Family
from formats import F64
from single import extreme

ONE, TWO, THREE = 0x3FF0000000000000, 0x4000000000000000, 0x4008000000000000
SIGN = F64.sign_bit
TENTH = 0x3FB999999999999A
INF, NAN = F64.infinity, F64.nan
PAIRS = [
    (ONE, 0x3CA0000000000000),
    (ONE + 1, 0x3CA0000000000000),
    (ONE, 0x3CA0000000000001),
    (TENTH, TENTH),
    (ONE, ONE | SIGN),
    (0, SIGN),
    (SIGN, SIGN),
    (F64.largest, F64.largest),
    (1, 1),
    (1, 0x3FE0000000000000),
    (INF, INF | SIGN),
    (INF, ONE),
    (NAN, ONE),
    (THREE, TENTH),
    (F64.least_normal, 0x3FE0000000000001),
    (0, INF),
    (F64.largest, TWO | SIGN),
]
FUSED = [
    (ONE + 1, ONE + 1, (ONE + 2) | SIGN),
    (TENTH, 0x4024000000000000, ONE | SIGN),
    (ONE, ONE, ONE | SIGN),
    (0, ONE | SIGN, 0),
    (SIGN, ONE, SIGN),
    (F64.largest, TWO, INF | SIGN),
    (INF, 0, ONE),
    (1, 1, ONE),
    (ONE, ONE, NAN),
    (F64.largest, TWO, F64.largest | SIGN),
]


def families():
    family = Family("f64", "Double precision: PTX ISA 9.7.3.")
    for op, rule in (("add", formats.add), ("sub", formats.sub), ("mul", formats.mul)):
        for mode in ("rn", "rz", "rm", "rp"):
            family.table(
                f"{op}.{mode}.f64",
                "f64 a, f64 b",
                "f64 d",
                f"{op}.{mode}.f64 d, a, b;",
                PAIRS,
                lambda a, b: rule(F64, a, b, mode),
            )
    for mode in ("rn", "rz", "rm", "rp"):
        family.table(
            f"fma.{mode}.f64 rounds once",
            "f64 a, f64 b, f64 c",
            "f64 d",
            f"fma.{mode}.f64 d, a, b, c;",
            FUSED,
            lambda a, b, c: formats.fma(F64, a, b, c, mode),
        )
    family.table(
        "div.rn.f64",
        "f64 a, f64 b",
        "f64 d",
        "div.rn.f64 d, a, b;",
        PAIRS + [(ONE, 0), (0, 0)],
        lambda a, b: formats.div(F64, a, b),
    )
    values = [ONE, TWO, THREE, TENTH, 0, SIGN, INF, NAN, ONE | SIGN, F64.largest, F64.least_normal]
    family.table(
        "sqrt.rn.f64 and rcp.rn.f64",
        "f64 a",
        "f64 d, f64 e",
        "sqrt.rn.f64 d, a;\nrcp.rn.f64 e, a;",
        values,
        lambda a: (formats.sqrt(F64, a), formats.div(F64, ONE, a)),
    )
    pairs = [(ONE, TWO), (0, SIGN), (SIGN, 0), (NAN, ONE), (ONE, NAN), (NAN, NAN), (INF, F64.largest)]
    family.table(
        "min.f64 and max.f64",
        "f64 a, f64 b",
        "f64 d, f64 e",
        "min.f64 d, a, b;\nmax.f64 e, a, b;",
        pairs,
        lambda a, b: (extreme(F64, a, b, False), extreme(F64, a, b, True)),
    )
    family.table(
        "abs.f64 and neg.f64",
        "f64 a",
        "f64 d, f64 e",
        "abs.f64 d, a;\nneg.f64 e, a;",
        [ONE, ONE | SIGN, 0, SIGN, INF, 1],
        lambda a: (a & ~SIGN, a ^ SIGN),
    )
    yield family
