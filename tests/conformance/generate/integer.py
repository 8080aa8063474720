"""Integer arithmetic (PTX ISA 9.7.1): in Python's unbounded integers, cut to the width at the end."""

from family import Family, mask, signed

PAIRS = [(0, 0), (7, -3), (-7, 3), (-1, 1), (0x12345678, 0x9ABCDEF0), (123456, 654321)]


def edge_pairs(width):
    high, low = mask(width - 1), 1 << (width - 1)
    return PAIRS + [(high, 1), (low, -1), (low, low), (-1, -1), (high, low), (0x55, -0x5555)]


def as_type(bits, width, is_signed):
    return signed(bits, width) if is_signed else bits & mask(width)


def quotient(a, b):
    """Towards zero, as div does."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a, b):
    return a - b * quotient(a, b)


def clamp(value, width):
    return max(-(1 << (width - 1)), min((1 << (width - 1)) - 1, value))


def binary(family, op, rule, widths=(16, 32, 64), signs="us", pairs=edge_pairs, name=None, suffix=None):
    for width in widths:
        for sign in signs:
            type_name = f"{sign}{width}"
            family.table(
                f"{name or op}.{type_name}",
                f"{type_name} a, {type_name} b",
                f"{suffix or type_name} d",
                f"{op}.{type_name} d, a, b;",
                [(a & mask(width), b & mask(width)) for a, b in pairs(width)],
                lambda a, b: rule(as_type(a, width, sign == "s"), as_type(b, width, sign == "s")),
            )


def division_pairs(width):
    """Without division by zero, and without the one quotient that does not fit: both are open."""
    low = 1 << (width - 1)
    kept = [(a, b) for a, b in edge_pairs(width) if b & mask(width)]
    return [(a, b) for a, b in kept if not (a & mask(width) == low and b & mask(width) == mask(width))] + [
        (low, 3),
        (low, -3),
    ]


def add_and_subtract(family):
    binary(family, "add", lambda a, b: a + b)
    binary(family, "sub", lambda a, b: a - b)
    pairs = [(a & mask(32), b & mask(32)) for a, b in edge_pairs(32)]
    for op, rule in (("add", lambda a, b: a + b), ("sub", lambda a, b: a - b)):
        family.table(
            f"{op}.sat.s32 clamps",
            "s32 a, s32 b",
            "s32 d",
            f"{op}.sat.s32 d, a, b;",
            pairs,
            lambda a, b: clamp(rule(signed(a, 32), signed(b, 32)), 32),
        )


def multiply(family):
    binary(family, "mul.lo", lambda a, b: a * b)
    for width in (16, 32, 64):
        for sign in "us":
            type_name, wide = f"{sign}{width}", f"{sign}{2 * width}"
            inputs = [(a & mask(width), b & mask(width)) for a, b in edge_pairs(width)]
            product = lambda a, b: as_type(a, width, sign == "s") * as_type(b, width, sign == "s")  # noqa: E731
            family.table(
                f"mul.hi.{type_name}",
                f"{type_name} a, {type_name} b",
                f"{type_name} d",
                f"mul.hi.{type_name} d, a, b;",
                inputs,
                lambda a, b: product(a, b) >> width,
            )
            if width < 64:
                family.table(
                    f"mul.wide.{type_name}",
                    f"{type_name} a, {type_name} b",
                    f"{wide} d",
                    f"mul.wide.{type_name} d, a, b;",
                    inputs,
                    product,
                )


def multiply_add(family):
    for width in (16, 32, 64):
        for sign in "us":
            type_name, wide = f"{sign}{width}", f"{sign}{2 * width}"
            inputs = [(a & mask(width), b & mask(width)) for a, b in edge_pairs(width)]
            product = lambda a, b: as_type(a, width, sign == "s") * as_type(b, width, sign == "s")  # noqa: E731
            with_c = [(a, b, (a ^ 0x1357) & mask(width)) for a, b in inputs]
            for mode in ("lo", "hi"):
                shift = width if mode == "hi" else 0
                family.table(
                    f"mad.{mode}.{type_name}",
                    f"{type_name} a, {type_name} b, {type_name} c",
                    f"{type_name} d",
                    f"mad.{mode}.{type_name} d, a, b, c;",
                    with_c,
                    lambda a, b, c: (product(a, b) >> shift) + c,
                )
            if width < 64:
                with_wide = [(a, b, (a * 0x10001 ^ 0x77) & mask(2 * width)) for a, b in inputs]
                family.table(
                    f"mad.wide.{type_name}",
                    f"{type_name} a, {type_name} b, {wide} c",
                    f"{wide} d",
                    f"mad.wide.{type_name} d, a, b, c;",
                    with_wide,
                    lambda a, b, c: product(a, b) + c,
                )


def carries(family):
    family.section("Extended precision (9.7.2): the carry flag goes from one instruction to the next.")
    refused = ".cc is not implemented"
    pairs = [(a & mask(64), b & mask(64)) for a, b in edge_pairs(64)] + [(0xFFFFFFFF, 1), (1 << 32, 1)]
    ptx = """
    .reg .b32 al, ah, bl, bh, dl, dh;
    mov.b64 {al, ah}, a;
    mov.b64 {bl, bh}, b;
    %s.cc.u32 dl, al, bl;
    %sc.u32 dh, ah, bh;
    mov.b64 d, {dl, dh};"""
    family.table(
        "add.cc and addc", "u64 a, u64 b", "u64 d", ptx % ("add", "add"), pairs, lambda a, b: a + b, refused=refused
    )
    family.table(
        "sub.cc and subc", "u64 a, u64 b", "u64 d", ptx % ("sub", "sub"), pairs, lambda a, b: a - b, refused=refused
    )
    family.table(
        "mad.lo.cc and madc.hi",
        "u32 a, u32 b, u64 c",
        "u64 d",
        """
    .reg .b32 cl, ch, dl, dh;
    mov.b64 {cl, ch}, c;
    mad.lo.cc.u32 dl, a, b, cl;
    madc.hi.u32 dh, a, b, ch;
    mov.b64 d, {dl, dh};""",
        [(a & mask(32), b & mask(32), a * b & mask(64)) for a, b in edge_pairs(32)],
        lambda a, b, c: a * b + c,
        refused=refused,
    )


def divide(family):
    binary(family, "div", quotient, pairs=division_pairs)
    binary(family, "rem", remainder, pairs=division_pairs)


def minimum_and_absolute(family):
    binary(family, "min", min)
    binary(family, "max", max)
    for width in (16, 32, 64):
        values = sorted({a & mask(width) for a, _ in edge_pairs(width)} - {1 << (width - 1)})
        family.table(
            f"abs.s{width}",
            f"s{width} a",
            f"s{width} d",
            f"abs.s{width} d, a;",
            values,
            lambda a: abs(signed(a, width)),
        )
        family.table(
            f"neg.s{width}", f"s{width} a", f"s{width} d", f"neg.s{width} d, a;", values, lambda a: -signed(a, width)
        )
        for sign in "us":
            type_name = f"{sign}{width}"
            inputs = [(a & mask(width), b & mask(width), 1000) for a, b in edge_pairs(width)]
            family.table(
                f"sad.{type_name}",
                f"{type_name} a, {type_name} b, {type_name} c",
                f"{type_name} d",
                f"sad.{type_name} d, a, b, c;",
                inputs,
                lambda a, b, c: abs(as_type(a, width, sign == "s") - as_type(b, width, sign == "s")) + c,
            )


def twenty_four_bits(family):
    for sign in "us":  # operands that have 24 bits: what becomes of more, the ISA does not say
        pairs = [tuple(as_type(x, 24, sign == "s") & mask(32) for x in pair) for pair in edge_pairs(24)]
        product = lambda a, b: as_type(a, 24, sign == "s") * as_type(b, 24, sign == "s")  # noqa: E731
        for mode, shift in (("lo", 0), ("hi", 16)):
            family.table(
                f"mul24.{mode}.{sign}32",
                f"{sign}32 a, {sign}32 b",
                f"{sign}32 d",
                f"mul24.{mode}.{sign}32 d, a, b;",
                pairs,
                lambda a, b: product(a, b) >> shift,
            )
            family.table(
                f"mad24.{mode}.{sign}32",
                f"{sign}32 a, {sign}32 b, {sign}32 c",
                f"{sign}32 d",
                f"mad24.{mode}.{sign}32 d, a, b, c;",
                [(a, b, b ^ 99) for a, b in pairs],
                lambda a, b, c: (product(a, b) >> shift) + c,
            )


def dot_products(family):
    values = [0, 0x01020304, 0x7F80FF01, 0xFFFFFFFF, 0x80808080, 0x12345678, 0x7F7F7F7F]
    inputs = [
        (a, b, c) for a, b, c in zip(values * 2, values[1:] + values[:3] + values[2:], [5, 0x7FFFFFFF, -1, 100] * 4)
    ]
    inputs = [(a, b, c & mask(32)) for a, b, c in inputs]
    part = lambda x, i, width, kind: as_type(x >> width * i, width, kind == "s")  # noqa: E731
    for ka in "us":
        for kb in "us":
            kind = "u" if ka == kb == "u" else "s"
            family.table(
                f"dp4a.{ka}32.{kb}32",
                f"b32 a, b32 b, {kind}32 c",
                f"{kind}32 d",
                f"dp4a.{ka}32.{kb}32 d, a, b, c;",
                inputs,
                lambda a, b, c: c + sum(part(a, i, 8, ka) * part(b, i, 8, kb) for i in range(4)),
            )
            for mode, start in (("lo", 0), ("hi", 2)):
                family.table(
                    f"dp2a.{mode}.{ka}32.{kb}32",
                    f"b32 a, b32 b, {kind}32 c",
                    f"{kind}32 d",
                    f"dp2a.{mode}.{ka}32.{kb}32 d, a, b, c;",
                    inputs,
                    lambda a, b, c: c + sum(part(a, i, 16, ka) * part(b, start + i, 8, kb) for i in range(2)),
                )


def packed_halves(family):
    family.section("Two 16-bit numbers in a register (sm_90).")
    refused = "is not implemented"
    values = [0x00010002, 0x7FFF8000, 0xFFFF0001, 0x80007FFF, 0x12345678, 0]
    inputs = [(a, b) for a in values for b in values[:4]]
    half = lambda x, i, sign: as_type(x >> 16 * i, 16, sign == "s")  # noqa: E731
    for op, rule in (("add", lambda a, b: a + b), ("min", min), ("max", max)):
        for sign in "us":
            family.table(
                f"{op}.{sign}16x2",
                "b32 a, b32 b",
                "b32 d",
                f"{op}.{sign}16x2 d, a, b;",
                inputs,
                lambda a, b: sum((rule(half(a, i, sign), half(b, i, sign)) & 0xFFFF) << 16 * i for i in range(2)),
                target=90,
                refused=refused,
            )
    for op, rule in (("min", min), ("max", max)):
        family.table(
            f"{op}.relu.s16x2",
            "b32 a, b32 b",
            "b32 d",
            f"{op}.relu.s16x2 d, a, b;",
            inputs,
            lambda a, b: sum(max(rule(half(a, i, "s"), half(b, i, "s")), 0) << 16 * i for i in range(2)),
            target=90,
            refused=refused,
        )
        family.table(
            f"{op}.relu.s32",
            "s32 a, s32 b",
            "s32 d",
            f"{op}.relu.s32 d, a, b;",
            [(a & mask(32), b & mask(32)) for a, b in edge_pairs(32)],
            lambda a, b: max(rule(signed(a, 32), signed(b, 32)), 0),
            target=90,
        )


def families():
    for name, about, *makers in (
        ("integer_add", "Integer arithmetic: PTX ISA 9.7.1, add sub; 9.7.2.", add_and_subtract, carries),
        ("integer_multiply", "Integer arithmetic: PTX ISA 9.7.1, mul.", multiply),
        ("integer_mad", "Integer arithmetic: PTX ISA 9.7.1, mad.", multiply_add),
        ("integer_divide", "Integer arithmetic: PTX ISA 9.7.1, div rem.", divide),
        ("integer_compare", "Integer arithmetic: PTX ISA 9.7.1, min max abs neg sad.", minimum_and_absolute),
        ("integer_packed", "Integer arithmetic: PTX ISA 9.7.1, mul24 mad24 dp4a dp2a.", twenty_four_bits, dot_products),
        ("integer_halves", "Integer arithmetic: PTX ISA 9.7.1, pairs of 16-bit numbers, .relu.", packed_halves),
    ):
        family = Family(name, about)
        for make in makers:
            make(family)
        yield family
