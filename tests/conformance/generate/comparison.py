"""Comparison and selection (PTX ISA 9.7.6): all operators on all types, with NaN and with a second predicate."""

from family import Family, mask, signed
from formats import BF16, F16, F32, F64, Format

OPERATORS = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
INF = 1 << 2000  # beyond all finite numbers of any format


def number(form: Format, bits, ftz=False):
    """What comparisons see: both zeros are one."""
    if ftz:
        bits = form.flush(bits)
    if form.is_infinite(bits):
        return -INF if form.sign(bits) else INF
    return form.value(bits)


def floating(form, op, a, b, ftz=False):
    """lt … ge are false with a NaN, ltu … are true, num and nan tell."""
    unordered = form.is_nan(a) or form.is_nan(b)
    if op in ("num", "nan"):
        return int(unordered == (op == "nan"))
    base = op[:-1] if op not in OPERATORS else op
    if unordered:
        return int(op not in OPERATORS)
    return int(OPERATORS[base](number(form, a, ftz), number(form, b, ftz)))


def samples(form):
    """Pairs that tell the operators apart."""
    one, minus, zero = form.one, form.one | form.sign_bit, 0
    tiny = 1
    return [
        (one, one),
        (one, one + 1),
        (one + 1, one),
        (minus, one),
        (minus, minus + 1),
        (zero, form.sign_bit),
        (tiny, zero),
        (form.infinity, form.largest),
        (form.infinity | form.sign_bit, minus),
        (form.nan, one),
        (one, form.nan),
        (form.nan, form.nan),
    ]


def integers(family):
    for width in (16, 32, 64):
        low = 1 << (width - 1)
        pairs = [(0, 0), (1, 2), (2, 1), (mask(width), 1), (1, mask(width)), (low, low - 1), (low - 1, low)]
        for sign in "us":
            view = lambda x: signed(x, width) if sign == "s" else x  # noqa: E731
            ops = dict(OPERATORS)
            if sign == "u":
                ops |= {name: OPERATORS[same] for name, same in UNSIGNED.items()}
            outs = ", ".join(f"pred {op}_" for op in ops)
            ptx = "\n".join(f"setp.{op}.{sign}{width} {op}_, a, b;" for op in ops)
            family.table(
                f"setp.{sign}{width}, every operator",
                f"{sign}{width} a, {sign}{width} b",
                outs,
                ptx,
                pairs,
                lambda a, b: tuple(int(rule(view(a), view(b))) for rule in ops.values()),
            )
        family.table(
            f"setp.b{width}",
            f"b{width} a, b{width} b",
            "pred p, pred q",
            f"setp.eq.b{width} p, a, b;\nsetp.ne.b{width} q, a, b;",
            pairs,
            lambda a, b: (int(a == b), int(a != b)),
        )


def floats(family):
    ordered = list(OPERATORS)
    unordered = ["equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"]
    for form, target in ((F32, 75), (F64, 75), (F16, 75), (BF16, 90)):
        for title, ops in (("ordered", ordered), ("unordered", unordered)):
            outs = ", ".join(f"pred {op}_" for op in ops)
            ptx = "\n".join(f"setp.{op}.{form.name} {op}_, a, b;" for op in ops)
            family.table(
                f"setp.{form.name}, {title} operators",
                f"{form.name} a, {form.name} b",
                outs,
                ptx,
                samples(form),
                lambda a, b: tuple(floating(form, op, a, b) for op in ops),
                target=target,
            )
    ops = ["eq", "lt", "gtu", "geu"]
    family.table(
        "setp.ftz.f32 takes subnormals for zeros",
        "f32 a, f32 b",
        ", ".join(f"pred {op}_" for op in ops),
        "\n".join(f"setp.{op}.ftz.f32 {op}_, a, b;" for op in ops),
        [(1, 0), (0, 1), (0x80000001, 1), (0x007FFFFF, 0x00800000), (0x00800000, 0x00800001), (F32.nan, 0)],
        lambda a, b: tuple(floating(F32, op, a, b, True) for op in ops),
    )


def combined(family):
    family.section("p = t BoolOp c, q = !t BoolOp c, where t is the comparison.")
    rows = [(a, b, c) for a, b in ((1, 2), (2, 1)) for c in (0, 1)]
    rules = {"and": lambda t, c: t & c, "or": lambda t, c: t | c, "xor": lambda t, c: t ^ c}
    for op, rule in rules.items():
        for negate in ("", "!"):
            family.table(
                f"setp.lt.{op}.s32 with {negate}c",
                "s32 a, s32 b, pred c",
                "pred p, pred q",
                f"setp.lt.{op}.s32 p|q, a, b, {negate}c;",
                rows,
                lambda a, b, c: (rule(int(a < b), c ^ bool(negate)), rule(int(a >= b), c ^ bool(negate))),
            )
    family.table(
        "setp.gt.and.f32 with NaN: q is true",
        "f32 a, f32 b, pred c",
        "pred p, pred q",
        "setp.gt.and.f32 p|q, a, b, c;",
        [(F32.nan, F32.one, 1), (F32.nan, F32.one, 0), (F32.one, 0, 1)],
        lambda a, b, c: (floating(F32, "gt", a, b) & c, 1 - floating(F32, "gt", a, b) & c if c else 0),
    )
    half = F16.one
    pairs = [(half | (half + 1) << 16, half | half << 16), (F16.nan | half << 16, half | 0xFBFF << 16), (0x8000, 0)]
    family.table(
        "setp.f16x2 answers by half",
        "f16x2 a, f16x2 b",
        "pred p, pred q",
        "setp.gt.f16x2 p|q, a, b;",
        pairs,
        lambda a, b: tuple(floating(F16, "gt", a >> s & 0xFFFF, b >> s & 0xFFFF) for s in (0, 16)),
    )


def selection(family):
    family.table(
        "set.u32.s32 and set.f32.s32",
        "s32 a, s32 b, pred c",
        "b32 d, f32 e, b32 f",
        "set.lt.u32.s32 d, a, b;\nset.lt.f32.s32 e, a, b;\nset.ge.or.s32.u32 f, a, b, c;",
        [(1, 2, 0), (2, 1, 0), (-1 & mask(32), 1, 0), (1, -1 & mask(32), 1)],
        lambda a, b, c: (
            mask(32) * (signed(a, 32) < signed(b, 32)),
            F32.one * (signed(a, 32) < signed(b, 32)),
            mask(32) * int(a >= b or c == 1),
        ),
    )
    family.table(
        "set.u32.f32 with NaN",
        "f32 a, f32 b",
        "b32 d, b32 e, f32 f",
        "set.gt.u32.f32 d, a, b;\nset.gtu.u32.f32 e, a, b;\nset.nan.f32.f32 f, a, b;",
        samples(F32),
        lambda a, b: (
            mask(32) * floating(F32, "gt", a, b),
            mask(32) * floating(F32, "gtu", a, b),
            F32.one * floating(F32, "nan", a, b),
        ),
    )
    for width in (16, 32, 64):
        family.table(
            f"selp.b{width}",
            f"b{width} a, b{width} b, pred c",
            f"b{width} d",
            f"selp.b{width} d, a, b, c;",
            [(0x1234, 0x5678, 1), (0x1234, 0x5678, 0), (mask(width), 1, 1)],
            lambda a, b, c: a if c else b,
        )
    family.table(
        "selp.f32 keeps a NaN's bits",
        "f32 a, f32 b, pred c",
        "b32 d",
        "selp.f32 d, a, b, c;",
        [(0x7F800001, 0xFFC12345, 1), (0x7F800001, 0xFFC12345, 0)],
        lambda a, b, c: a if c else b,
    )
    family.table(
        "slct.s32",
        "b32 a, b32 b, s32 c",
        "b32 d",
        "slct.b32.s32 d, a, b, c;",
        [(1, 2, 0), (1, 2, 5), (1, 2, -1 & mask(32)), (1, 2, 1 << 31)],
        lambda a, b, c: a if signed(c, 32) >= 0 else b,
    )
    family.table(
        "slct.f32 takes b with NaN and a with -0",
        "b32 a, b32 b, f32 c",
        "b32 d",
        "slct.b32.f32 d, a, b, c;",
        [(1, 2, F32.one), (1, 2, F32.one | F32.sign_bit), (1, 2, F32.sign_bit), (1, 2, F32.nan), (1, 2, 0x80000001)],
        lambda a, b, c: b if F32.is_nan(c) or number(F32, c) < 0 else a,
    )


def properties(family):
    ops = ["finite", "infinite", "number", "notanumber", "normal", "subnormal"]
    for form in (F32, F64):
        values = [
            0,
            form.sign_bit,
            form.one,
            1,
            form.largest,
            form.least_normal,
            form.least_normal - 1,
            form.infinity,
            form.infinity | form.sign_bit,
            form.nan,
            form.infinity + 1,
        ]

        def rule(a):
            nan, infinite, small = form.is_nan(a), form.is_infinite(a), form.is_subnormal(a)
            return tuple(
                map(int, (not nan and not infinite, infinite, not nan, nan, not (nan or infinite or small), small))
            )

        family.table(
            f"testp.{form.name}",
            f"{form.name} a",
            ", ".join(f"pred {op}_" for op in ops),
            "\n".join(f"testp.{op}.{form.name} {op}_, a;" for op in ops),
            values,
            rule,
        )


def families():
    first = Family("comparison", "Comparison: PTX ISA 9.7.6, setp; 9.7.7 for halves.")
    integers(first)
    floats(first)
    yield first
    second = Family(
        "selection", "Comparison and selection: PTX ISA 9.7.6, setp with a second predicate, set selp slct; testp."
    )
    combined(second)
    selection(second)
    properties(second)
    yield second
