"""Half precision and bfloat16, alone and in pairs (PTX ISA 9.7.4)."""

import formats
from family import Family
from formats import BF16, F16
from single import extreme


def samples(form):
    """Pairs that round, overflow, fall below the normal numbers, and meet zeros, infinities and NaN."""
    one, sign, inf = form.one, form.sign_bit, form.infinity
    half_ulp = form.round(form.value(one + 1) / 2 - form.value(one) / 2)
    return [
        (one, half_ulp),
        (one + 1, half_ulp),
        (one, half_ulp + 1),
        (one, one + 3),
        (form.largest, form.largest),
        (1, 1),
        (form.least_normal, 1 | sign),
        (one, one | sign),
        (0, sign),
        (sign, sign),
        (inf, one),
        (inf, inf | sign),
        (form.nan, one),
        (one + 5, one + 7),
        (1, one - (1 << form.fraction_bits)),
        (form.least_normal + 3, one - 5),
        (0, one | sign),
        (inf, 0),
    ]


def triples(form):
    one, sign = form.one, form.sign_bit
    nearly = formats.mul(form, one + 1, one + 1)
    return [
        (one + 1, one + 1, nearly ^ sign),
        (one + 3, one + 5, (one + 8) | sign),
        (one, one, one | sign),
        (one | sign, one, one),
        (0, one | sign, 0),
        (sign, one, sign),
        (form.largest, one + 1, form.largest | sign),
        (form.infinity, 0, one),
        (one, form.nan, one),
        (1, 1, one),
        (1, 1, 1),
        (one + 7, form.least_normal, 1 | sign),
        (one - 1, one + 1, one | sign),
        (form.largest, form.largest, form.infinity | sign),
    ]


def both(low, high):
    return low | high << 16


def by_half(rule):
    """On pairs: the rule on both halves; a NaN in one of them stays in its half."""
    return lambda *pairs: both(rule(*(p & 0xFFFF for p in pairs)), rule(*(p >> 16 for p in pairs)))


def scalar(family, form, arithmetic, target):
    name = form.name
    for op in arithmetic:
        rule = getattr(formats, op)
        family.table(
            f"{op}.{name}",
            f"{name} a, {name} b",
            f"{name} d",
            f"{op}.{name} d, a, b;",
            samples(form),
            lambda a, b: rule(form, a, b),
            target=target,
        )
    rows = samples(form)
    paired = [(both(a, c), both(b, d)) for (a, b), (c, d) in zip(rows, rows[5:] + rows[:5])]
    for op in arithmetic:
        rule = getattr(formats, op)
        family.table(
            f"{op}.{name}x2",
            f"{name}x2 a, {name}x2 b",
            f"{name}x2 d",
            f"{op}.{name}x2 d, a, b;",
            paired,
            by_half(lambda a, b: rule(form, a, b)),
            target=target,
        )


def fused(family, form, target):
    name = form.name
    rows = triples(form)
    rule = lambda a, b, c: formats.fma(form, a, b, c)  # noqa: E731
    family.table(
        f"fma.rn.{name} rounds once",
        f"{name} a, {name} b, {name} c",
        f"{name} d",
        f"fma.rn.{name} d, a, b, c;",
        rows,
        rule,
        target=target,
    )
    paired = [tuple(both(x, y) for x, y in zip(one, other)) for one, other in zip(rows, rows[3:] + rows[:3])]
    family.table(
        f"fma.rn.{name}x2",
        f"{name}x2 a, {name}x2 b, {name}x2 c",
        f"{name}x2 d",
        f"fma.rn.{name}x2 d, a, b, c;",
        paired,
        by_half(rule),
        target=target,
    )
    relu = lambda a, b, c: _relu(form, rule(a, b, c))  # noqa: E731
    kept = [row for row in rows if rule(*row) != form.sign_bit]  # -0 is clamped to 0 or stays: open
    family.table(
        f"fma.rn.relu.{name} clamps below at 0, NaN stays",
        f"{name} a, {name} b, {name} c",
        f"{name} d",
        f"fma.rn.relu.{name} d, a, b, c;",
        kept,
        relu,
        target=max(target, 80),
    )
    paired = [tuple(both(x, y) for x, y in zip(one, other)) for one, other in zip(kept, kept[3:] + kept[:3])]
    family.table(
        f"fma.rn.relu.{name}x2",
        f"{name}x2 a, {name}x2 b, {name}x2 c",
        f"{name}x2 d",
        f"fma.rn.relu.{name}x2 d, a, b, c;",
        paired,
        by_half(relu),
        target=max(target, 80),
    )


def _relu(form, bits):
    return bits if form.is_nan(bits) or not form.sign(bits) else 0


def extremes(family, form):
    name, one, sign = form.name, form.one, form.sign_bit
    pairs = [
        (one, one + 1),
        (one, one | sign),
        (0, sign),
        (sign, 0),
        (form.nan, one),
        (one, form.nan),
        (form.nan, form.nan),
        (form.infinity, form.largest),
        (1, 0),
        (1 | sign, sign),
    ]
    for op in ("min", "max"):
        rule = lambda a, b, nan=False: extreme(form, a, b, op == "max", nan)  # noqa: E731
        family.table(
            f"{op}.{name}", f"{name} a, {name} b", f"{name} d", f"{op}.{name} d, a, b;", pairs, rule, target=80
        )
        family.table(
            f"{op}.NaN.{name}",
            f"{name} a, {name} b",
            f"{name} d",
            f"{op}.NaN.{name} d, a, b;",
            pairs,
            lambda a, b: rule(a, b, True),
            target=80,
        )
        paired = [(both(a, c), both(b, d)) for (a, b), (c, d) in zip(pairs, pairs[3:] + pairs[:3])]
        family.table(
            f"{op}.{name}x2",
            f"{name}x2 a, {name}x2 b",
            f"{name}x2 d",
            f"{op}.{name}x2 d, a, b;",
            paired,
            by_half(rule),
            target=80,
        )
    values = [one, one | sign, 0, sign, 1, 1 | sign, form.infinity]
    target = 80 if form is BF16 else 75
    family.table(
        f"neg.{name} and abs.{name}",
        f"{name} a",
        f"{name} d, {name} e",
        f"neg.{name} d, a;\nabs.{name} e, a;",
        values,
        lambda a: (a ^ sign, a & ~sign),
        target=target,
    )
    family.table(
        f"neg.{name}x2 and abs.{name}x2",
        f"{name}x2 a",
        f"{name}x2 d, {name}x2 e",
        f"neg.{name}x2 d, a;\nabs.{name}x2 e, a;",
        [both(a, b) for a, b in zip(values, values[2:] + values[:2])],
        lambda a: (a ^ both(sign, sign), a & ~both(sign, sign)),
        target=target,
    )


def modified(family):
    """.ftz and .sat, which only f16 has (apart from fma.relu)."""
    rows = samples(F16) + [(0x03FF, 0x3C00), (0x0001, 0x8001), (0x0200, 0x4000)]
    for op in ("add", "mul"):
        rule = getattr(formats, op)
        kept = [pair for pair in rows if rule(F16, *pair) & 0x7FFF != F16.least_normal]
        family.table(
            f"{op}.ftz.f16",
            "f16 a, f16 b",
            "f16 d",
            f"{op}.ftz.f16 d, a, b;",
            kept,
            lambda a, b: rule(F16, a, b, ftz=True),
        )
        kept = [pair for pair in rows if rule(F16, *pair) != F16.sign_bit]
        family.table(
            f"{op}.sat.f16",
            "f16 a, f16 b",
            "f16 d",
            f"{op}.sat.f16 d, a, b;",
            kept,
            lambda a, b: rule(F16, a, b, sat=True),
        )
        paired = [(both(a, c), both(b, d)) for (a, b), (c, d) in zip(kept, kept[5:] + kept[:5])]
        family.table(
            f"{op}.sat.f16x2",
            "f16x2 a, f16x2 b",
            "f16x2 d",
            f"{op}.sat.f16x2 d, a, b;",
            paired,
            by_half(lambda a, b: rule(F16, a, b, sat=True)),
        )
    kept = [row for row in triples(F16) if formats.fma(F16, *row) != F16.sign_bit]
    family.table(
        "fma.rn.sat.f16",
        "f16 a, f16 b, f16 c",
        "f16 d",
        "fma.rn.sat.f16 d, a, b, c;",
        kept,
        lambda a, b, c: formats.fma(F16, a, b, c, sat=True),
    )
    family.case(
        "ex2.approx.f16 and tanh.approx.f16",
        "f16 a",
        "f16 d, f16 e",
        "ex2.approx.f16 d, a;\ntanh.approx.f16 e, a;",
        [
            ((0,), (F16.one, 0)),
            ((F16.infinity,), (F16.infinity, F16.one)),
            ((F16.nan,), (F16.nan, F16.nan)),
            ((0xFC00,), (0, 0xBC00)),
            ((0x3C00,), (0x4000, 0x3A18)),
        ],
        judge=["d relative 9.8e-4", "e relative 9.8e-4"],
    )


def families():
    for form, target in ((F16, 75), (BF16, 80)):
        family = Family(form.name, f"{form.name} and pairs of it: PTX ISA 9.7.4.")
        if form is F16:
            scalar(family, form, ("add", "sub", "mul"), 75)
            modified(family)
        else:
            family.section("add, sub and mul of bf16 need sm_90.")
            scalar(family, form, ("add", "sub", "mul"), 90)
        fused(family, form, target)
        yield family
        more = Family(f"{form.name}_extremes", f"{form.name} and pairs of it: PTX ISA 9.7.4, min max neg abs.")
        extremes(more, form)
        yield more
