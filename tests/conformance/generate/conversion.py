"""Conversions (PTX ISA 9.7.9, cvt): rounding, clamping, NaN, sub-word extension, the order of packed halves."""

from fractions import Fraction

import formats
from family import Family, mask, signed
from formats import BF16, F16, F32, F64, TF32

INTEGER_MODES = ("rni", "rzi", "rmi", "rpi")


def of(form, *numbers):
    return [form.round(Fraction(number)) for number in numbers]


def to_integers(family):
    halves = ["0.5", "1.5", "2.5", "-0.5", "-1.5", "-2.5", "0.75", "-0.75", "100.25"]
    for form in (F32, F64):
        common = of(form, *halves) + [0, form.sign_bit, form.infinity, form.infinity | form.sign_bit]
        edges = {
            32: of(form, 2147483648, -2147483648, 4294967296, "-3e9", 2147483520, 4294967040),
            64: of(form, 2**63, -(2**63), 2**64, -(2**64), 2**62, 2**63 + 2**40),
        }
        for width in (32, 64):
            for sign in "us":
                ptx = "\n".join(f"cvt.{mode}.{sign}{width}.{form.name} {mode}, a;" for mode in INTEGER_MODES)
                family.table(
                    f"cvt.{sign}{width}.{form.name} in every rounding, clamped",
                    f"{form.name} a",
                    ", ".join(f"{sign}{width} {mode}" for mode in INTEGER_MODES),
                    ptx,
                    common + edges[width],
                    lambda a: tuple(formats.to_integer(form, a, width, sign == "s", mode) for mode in INTEGER_MODES),
                )
    for width in (8, 16):
        for sign in "us":
            register = 16
            values = of(
                F32,
                "0.5",
                "1.5",
                "-1.5",
                127,
                128,
                -128,
                -129,
                255,
                256,
                32767,
                32768,
                -32768,
                -32769,
                65535,
                65536,
                -1,
            )

            def rule(a):
                number = formats.to_integer(F32, a, width, sign == "s", "rni")
                return number if sign == "s" else number & mask(register)

            family.table(
                f"cvt.rni.{sign}{width}.f32 clamps to {width} bits",
                "f32 a",
                f"{sign}16 d",
                f"cvt.rni.{sign}{width}.f32 d, a;",
                values,
                rule,
            )
    family.table(
        "cvt.rpi.ftz.s32.f32",
        "f32 a",
        "s32 d",
        "cvt.rpi.ftz.s32.f32 d, a;",
        [1, 0x80000001, 0x007FFFFF, 0x00800000],
        lambda a: formats.to_integer(F32, a, 32, True, "rpi", ftz=True),
    )
    family.table(
        "cvt.rpi.s32.f32 rounds subnormals up",
        "f32 a",
        "s32 d",
        "cvt.rpi.s32.f32 d, a;",
        [1, 0x80000001, 0x007FFFFF],
        lambda a: formats.to_integer(F32, a, 32, True, "rpi"),
    )
    family.table(
        "cvt.rni.s32.f16 and cvt.rzi.u16.f16",
        "f16 a",
        "s32 d, u16 e",
        "cvt.rni.s32.f16 d, a;\ncvt.rzi.u16.f16 e, a;",
        of(F16, "0.5", "1.5", "2.5", "-1.5", 65504, "-0.25", 2048),
        lambda a: (formats.to_integer(F16, a, 32, True, "rni"), formats.to_integer(F16, a, 16, False, "rzi")),
    )
    family.section("NaN: 0, but for sources of 64 bits and for destinations of 64 bits, which get the top bit alone.")
    family.case(
        "cvt of NaN to 32 bits",
        "f32 a",
        "u32 d, s32 e",
        "cvt.rni.u32.f32 d, a;\ncvt.rzi.s32.f32 e, a;",
        [((0x7FFFFFFF,), (0, 0)), ((0x7F800001,), (0, 0)), ((0xFFC00000,), (0, 0))],
    )
    family.case(
        "cvt of NaN to and from 64 bits",
        "f32 a, f64 b",
        "u64 d, s64 e, s32 f, u32 g, s64 h",
        "cvt.rni.u64.f32 d, a;\ncvt.rzi.s64.f32 e, a;\ncvt.rzi.s32.f64 f, b;\ncvt.rzi.u32.f64 g, b;\ncvt.rni.s64.f64 h, b;",
        [((0x7FFFFFFF, F64.nan), (1 << 63, 1 << 63, 1 << 31, 1 << 31, 1 << 63))],
    )


def from_integers(family):
    numbers = [0, 1, 16777217, 16777219, 33554433, 2147483647, 4294967295, 4294967167, 123456789]
    for form in (F32, F64, F16):
        for sign in "us":
            values = numbers + [-16777217 & mask(32), 0x80000000] if sign == "s" else numbers
            number = lambda a: signed(a, 32) if sign == "s" else a  # noqa: E731
            modes = ("rn", "rz", "rm", "rp")
            family.table(
                f"cvt.{form.name}.{sign}32 in every rounding",
                f"{sign}32 a",
                ", ".join(f"{form.name} {mode}" for mode in modes),
                "\n".join(f"cvt.{mode}.{form.name}.{sign}32 {mode}, a;" for mode in modes),
                values,
                lambda a: tuple(form.round(Fraction(number(a)), mode) for mode in modes),
            )
    longs = [2**63 - 1, 2**63, 2**64 - 1, 2**53 + 1, 2**53 + 3, 1, -(2**53) - 1 & mask(64)]
    for form in (F32, F64):
        for sign in "us":
            number = lambda a: signed(a, 64) if sign == "s" else a  # noqa: E731
            family.table(
                f"cvt.rn.{form.name}.{sign}64",
                f"{sign}64 a",
                f"{form.name} d",
                f"cvt.rn.{form.name}.{sign}64 d, a;",
                longs,
                lambda a: form.round(Fraction(number(a))),
            )
    family.table(
        "cvt.rn.f32.s8 and u8 read the lowest byte",
        "b16 a",
        "f32 d, f32 e",
        "cvt.rn.f32.s8 d, a;\ncvt.rn.f32.u8 e, a;",
        [0x12FF, 0x347F, 0x0080, 0xFF01],
        lambda a: (F32.round(Fraction(signed(a, 8))), F32.round(Fraction(a & 255))),
    )


def between_integers(family):
    family.section("Sub-word: the source is cut to its type, the result extended to the register.")
    values = [0x12345680, 0x0000007F, 0xFFFF8000, 0x00007FFF, 0xFFFFFFFF, 0x89ABCDEF]
    for source in ("s8", "u8", "s16", "u16"):
        width = int(source[1:])
        view = lambda a: signed(a, width) if source[0] == "s" else a & mask(width)  # noqa: E731
        for target in ("s32", "u32", "s64", "u64"):
            family.table(
                f"cvt.{target}.{source} extends", "b32 a", f"{target} d", f"cvt.{target}.{source} d, a;", values, view
            )
    for target in ("s8", "u8", "s16", "u16"):
        width = int(target[1:])
        cut = lambda a: signed(a, width) if target[0] == "s" else a & mask(width)  # noqa: E731
        family.table(
            f"cvt.{target}.u32 cuts, then extends to the register",
            "b32 a",
            f"{target[0]}32 d",
            f"cvt.{target}.u32 d, a;",
            values,
            cut,
        )
    family.table(
        "cvt.s64.s32, cvt.u64.u32 and cvt.u32.u64",
        "b32 a",
        "s64 d, u64 e, u32 f",
        "cvt.s64.s32 d, a;\ncvt.u64.u32 e, a;\ncvt.u32.u64 f, d;",
        values,
        lambda a: (signed(a, 32), a, a),
    )
    for target, low, high in (("s8", -128, 127), ("u8", 0, 255), ("s16", -32768, 32767), ("u16", 0, 65535)):
        family.table(
            f"cvt.sat.{target}.s32 clamps",
            "s32 a",
            "s32 d",
            f"cvt.sat.{target}.s32 d, a;",
            [0, 127, 128, 255, 256, 32768, 65536, -1 & mask(32), -129 & mask(32), 0x80000000, 0x7FFFFFFF],
            lambda a: min(max(signed(a, 32), low), high),
        )
    family.table(
        "cvt.sat.s32.u32 and cvt.sat.u32.s32",
        "b32 a",
        "s32 d, u32 e",
        "cvt.sat.s32.u32 d, a;\ncvt.sat.u32.s32 e, a;",
        [0, 5, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF],
        lambda a: (min(a, 0x7FFFFFFF), max(signed(a, 32), 0)),
    )


def narrowing_samples(form):
    """Singles around what a narrower format has: ties to both sides, one off, its end, below its normal numbers."""
    one, ulp = Fraction(1), Fraction(1, 1 << form.fraction_bits)
    largest, tiny = form.value(form.largest), form.value(1)
    exact = [
        one,
        one + ulp / 2,
        one + ulp * 3 / 2,
        one + ulp / 2 + Fraction(1, 1 << 22),
        one + ulp / 2 - Fraction(1, 1 << 22),
        -one - ulp / 2,
    ]
    if form is F16:
        exact += [
            largest,
            largest + 15,
            largest + 16,
            -largest - 16,
            Fraction(100000),
            tiny,
            tiny / 2,
            tiny * 3 / 2,
            tiny / 4,
            tiny * 5 / 8,
            Fraction(1, 3),
        ]
    values = [F32.round(number) for number in exact]
    return values + [
        0,
        F32.sign_bit,
        F32.infinity,
        F32.infinity | F32.sign_bit,
        F32.nan,
        F32.largest,
        0x00400000,
        0x3EAAAAAB,
    ]


def between_floats(family):
    for form in (F16, BF16):
        target = 80 if form is BF16 else 75
        modes = ("rn", "rz") if form is BF16 else ("rn", "rz", "rm", "rp")
        for mode in modes:
            family.table(
                f"cvt.{mode}.{form.name}.f32",
                "f32 a",
                f"{form.name} d",
                f"cvt.{mode}.{form.name}.f32 d, a;",
                narrowing_samples(form),
                lambda a: formats.convert(F32, form, a, mode),
                target=target,
            )
        for mode in ("rn", "rz"):
            inputs = narrowing_samples(form)
            family.table(
                f"cvt.{mode}.{form.name}x2.f32: a goes to the upper half",
                "f32 a, f32 b",
                f"{form.name}x2 d",
                f"cvt.{mode}.{form.name}x2.f32 d, a, b;",
                list(zip(inputs, inputs[1:] + inputs[:1])),
                lambda a, b: formats.convert(F32, form, a, mode) << 16 | formats.convert(F32, form, b, mode),
                target=80,
            )
        inputs = [bits for bits in narrowing_samples(form) if bits != F32.sign_bit]
        family.table(
            f"cvt.rn.relu.{form.name}.f32",
            "f32 a",
            f"{form.name} d",
            f"cvt.rn.relu.{form.name}.f32 d, a;",
            inputs,
            lambda a: _relu(form, formats.convert(F32, form, a)),
            target=80,
        )
        bits = [
            0,
            form.sign_bit,
            form.one,
            form.one + 1,
            form.largest,
            1,
            form.least_normal - 1,
            form.infinity,
            form.nan,
            form.one | form.sign_bit,
        ]
        instruction = "cvt.f32.f16" if form is F16 else "cvt.f32.bf16"
        family.table(
            f"{instruction} is exact",
            f"{form.name} a",
            "f32 d",
            f"{instruction} d, a;",
            bits,
            lambda a: formats.convert(form, F32, a),
            target=75 if form is F16 else 90,
        )
    family.table(
        "cvt.rna.tf32.f32: 10 bits of fraction, ties away",
        "f32 a",
        "tf32 d",
        """
    cvt.rna.tf32.f32 d, a;
    and.b32 d, d, 0xffffe000;  // what the 13 lowest bits are, the ISA leaves open""",
        [bits for bits in narrowing_samples(TF32) if bits != F32.nan],
        lambda a: formats.convert(F32, TF32, a, "rna") << 13,
        target=80,
    )
    widths = [
        0,
        F64.sign_bit,
        F64.one,
        F64.one + 1,
        0x3FF0000010000000,
        0x3FF0000030000000,
        0x3FF0000010000001,
        F64.largest,
        F64.infinity,
        F64.nan,
        0x36A0000000000000,
        0x3690000000000000,
        0x3690000000000001,
        0x380FFFFFFFFFFFFF,
        0x47EFFFFFEFFFFFFF,
        0x47EFFFFFF0000000,
    ]
    for mode in ("rn", "rz", "rm", "rp"):
        family.table(
            f"cvt.{mode}.f32.f64",
            "f64 a",
            "f32 d",
            f"cvt.{mode}.f32.f64 d, a;",
            widths,
            lambda a: formats.convert(F64, F32, a, mode),
        )
    singles = [0, F32.sign_bit, F32.one + 1, 1, 0x007FFFFF, F32.largest, F32.infinity, F32.nan]
    family.table(
        "cvt.f64.f32 is exact", "f32 a", "f64 d", "cvt.f64.f32 d, a;", singles, lambda a: formats.convert(F32, F64, a)
    )
    family.table(
        "cvt.ftz.f64.f32 and cvt.ftz.f32.f16",
        "f32 a, f16 b",
        "f64 d, f32 e",
        "cvt.ftz.f64.f32 d, a;\ncvt.ftz.f32.f16 e, b;",
        [(bits, 1) for bits in singles],
        lambda a, b: (formats.convert(F32, F64, a, ftz=True), formats.convert(F16, F32, b)),
    )
    family.table(
        "cvt.sat.f32.f32",
        "f32 a",
        "f32 d",
        "cvt.sat.f32.f32 d, a;",
        of(F32, "0.5", 2, -3, 1) + [F32.nan, F32.infinity, 0],
        lambda a: formats.convert(F32, F32, a, sat=True),
    )


def _relu(form, bits):
    return bits if form.is_nan(bits) or not form.sign(bits) else 0


def halves_and_more(family):
    """Less usual pairs of types."""
    doubles = of(F64, "0.5", "65504", "65519.99", "65520", "1e-8", "-3.25", "1.00048828125", "1.00048828126") + [
        F64.infinity,
        F64.nan,
    ]
    for mode in ("rn", "rz"):
        family.table(
            f"cvt.{mode}.f16.f64",
            "f64 a",
            "f16 d",
            f"cvt.{mode}.f16.f64 d, a;",
            doubles,
            lambda a: formats.convert(F64, F16, a, mode),
        )
    halves = of(F16, "0.5", "1.5", "2.5", "-2.5", 65504, "-0.25") + [1, 0x8000, F16.infinity]
    family.table(
        "cvt.f64.f16 is exact", "f16 a", "f64 d", "cvt.f64.f16 d, a;", halves, lambda a: formats.convert(F16, F64, a)
    )
    whole = lambda form, mode: (
        lambda a: (  # noqa: E731
            a
            if form.is_infinite(a)
            else form.round(Fraction(formats.round_to_integer(form.value(a), mode)), "rn", form.sign(a))
        )
    )
    for mode in INTEGER_MODES:
        family.table(f"cvt.{mode}.f16.f16", "f16 a", "f16 d", f"cvt.{mode}.f16.f16 d, a;", halves, whole(F16, mode))
    family.table(
        "cvt.rni.f64.f64",
        "f64 a",
        "f64 d",
        "cvt.rni.f64.f64 d, a;",
        of(F64, "0.5", "1.5", "-2.5", 2**53 + 2, "-0.25") + [F64.infinity],
        whole(F64, "rni"),
    )
    family.table(
        "cvt.rn.f16 of 16 and 64 bits",
        "b16 a, s64 b",
        "f16 d, f16 e, f16 f",
        """
    cvt.rn.f16.u16 d, a;
    cvt.rn.f16.s16 e, a;
    cvt.rn.f16.s64 f, b;""",
        [(0xFFFF, 65519), (2049, 65520), (0x8001, -2049 & mask(64)), (5, 0)],
        lambda a, b: (F16.round(Fraction(a)), F16.round(Fraction(signed(a, 16))), F16.round(Fraction(signed(b, 64)))),
    )
    brains = of(BF16, "0.5", "1.5", "2.5", "-2.5", 256, "-0.25", 2**40) + [BF16.infinity]
    family.table(
        "cvt of bfloat16 to integers",
        "bf16 a",
        "s32 d, u16 e, s64 f",
        """
    cvt.rni.s32.bf16 d, a;
    cvt.rzi.u16.bf16 e, a;
    cvt.rmi.s64.bf16 f, a;""",
        brains,
        lambda a: (
            formats.to_integer(BF16, a, 32, True, "rni"),
            formats.to_integer(BF16, a, 16, False, "rzi"),
            formats.to_integer(BF16, a, 64, True, "rmi"),
        ),
        target=90,
    )
    family.table(
        "cvt of integers to bfloat16",
        "s32 a, b16 b",
        "bf16 d, bf16 e",
        "cvt.rn.bf16.s32 d, a;\ncvt.rz.bf16.u16 e, b;",
        [(257, 257), (259, 259), (-257 & mask(32), 65535), (0x7FFFFFFF, 1)],
        lambda a, b: (BF16.round(Fraction(signed(a, 32))), BF16.round(Fraction(b), "rz")),
        target=90,
    )
    family.table(
        "cvt between halves",
        "f16 a, bf16 b",
        "bf16 d, f16 e",
        "cvt.rn.bf16.f16 d, a;\ncvt.rz.f16.bf16 e, b;",
        [(F16.one + 3, BF16.one + 1), (F16.largest, BF16.largest), (1, 1), (F16.nan, BF16.infinity)],
        lambda a, b: (formats.convert(F16, BF16, a), formats.convert(BF16, F16, b, "rz")),
        target=90,
    )
    for form in (F16, BF16):
        inputs = [bits for bits in narrowing_samples(form) if bits != F32.sign_bit]
        family.table(
            f"cvt.rn.relu.{form.name}x2.f32",
            "f32 a, f32 b",
            f"{form.name}x2 d",
            f"cvt.rn.relu.{form.name}x2.f32 d, a, b;",
            list(zip(inputs, inputs[2:] + inputs[:2])),
            lambda a, b: _relu(form, formats.convert(F32, form, a)) << 16 | _relu(form, formats.convert(F32, form, b)),
            target=80,
        )


def to_whole_numbers(family):
    values = of(F32, "0.5", "1.5", "2.5", "-0.5", "-1.5", "-2.5", "0.75", "-0.75", "8388607.5", "-0.25") + [
        0,
        F32.sign_bit,
        F32.infinity,
        F32.nan,
        1,
    ]

    def rule(a, mode):
        if F32.is_nan(a) or F32.is_infinite(a):
            return a
        return F32.round(Fraction(formats.round_to_integer(F32.value(a), mode)), "rn", F32.sign(a))

    for mode in INTEGER_MODES:
        family.table(
            f"cvt.{mode}.f32.f32 keeps the sign of a zero",
            "f32 a",
            "f32 d",
            f"cvt.{mode}.f32.f32 d, a;",
            values,
            lambda a: rule(a, mode),
        )


def families():
    for name, about, *makers in (
        ("cvt_to_integer", "Conversion: PTX ISA 9.7.9, cvt to integers.", to_integers),
        ("cvt_from_integer", "Conversion: PTX ISA 9.7.9, cvt from integers.", from_integers),
        ("cvt_integer", "Conversion: PTX ISA 9.7.9, cvt between integers.", between_integers),
        (
            "cvt_float",
            "Conversion: PTX ISA 9.7.9, cvt between floating-point formats.",
            between_floats,
            to_whole_numbers,
        ),
        ("cvt_half", "Conversion: PTX ISA 9.7.9, cvt with halves and bfloat16.", halves_and_more),
    ):
        family = Family(name, about)
        for make in makers:
            make(family)
        yield family
