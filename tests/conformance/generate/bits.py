"""Logic, shifts and bit fields (PTX ISA 9.7.8 and 9.7.1), bit by bit as the ISA's tables have them."""

from family import Family, mask, signed

VALUES = [0, 1, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 0x12345678, 0xDEADBEEF, 0x00010000]


def wide(value):
    """A 64-bit value of a 32-bit one, with something else above."""
    return value << 32 | (value * 0x9E3779B1 & mask(32)) if value not in (0, 1) else value << 63 | value


def logic(family):
    names = {"and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b}
    for width in (16, 32, 64):
        values = [wide(v) & mask(width) if width == 64 else v >> (32 - width) for v in VALUES]
        pairs = list(zip(values, values[3:] + values[:3])) + [(values[6], values[6])]
        for op, rule in names.items():
            family.table(
                f"{op}.b{width}", f"b{width} a, b{width} b", f"b{width} d", f"{op}.b{width} d, a, b;", pairs, rule
            )
        family.table(f"not.b{width}", f"b{width} a", f"b{width} d", f"not.b{width} d, a;", values, lambda a: ~a)
        family.table(
            f"cnot.b{width}", f"b{width} a", f"b{width} d", f"cnot.b{width} d, a;", values, lambda a: int(a == 0)
        )
    truth = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1), (1, 0, 0), (1, 0, 1), (1, 1, 0), (1, 1, 1)]
    predicates = [tuple(row) for row in truth]
    family.table(
        "logic of predicates",
        "pred a, pred b, pred c",
        "pred d, pred e, pred f, pred g",
        """
    .reg .pred t;
    and.pred d, a, b;
    or.pred e, b, c;
    xor.pred f, a, c;
    not.pred t, a;
    mov.pred g, t;""",
        predicates,
        lambda a, b, c: (a & b, b | c, a ^ c, 1 - a),
    )


def lookup(family):
    """Bit (a << 2 | b << 1 | c) of the table, for each bit position: 0xF0, 0xCC, 0xAA name a, b, c."""
    inputs = [(0xFF00FF00, 0xF0F0F0F0, 0xCCCCCCCC), (0x12345678, 0x9ABCDEF0, 0x0F1E2D3C)]

    def rule(table):
        return lambda a, b, c: sum(
            (table >> (((a >> i & 1) << 2) | ((b >> i & 1) << 1) | (c >> i & 1)) & 1) << i for i in range(32)
        )

    family.section("lop3: each single bit of the table, then functions that compilers emit.")
    for table in [1 << i for i in range(8)] + [
        0x00,
        0xFF,
        0x96,
        0xE8,
        0xCA,
        0xD8,
        0xEA,
        0xF8,
        0x2A,
        0x3F,
        0x6A,
        0x1E,
        0x78,
        0xAC,
        0xC0,
        0x57,
    ]:
        family.table(
            f"lop3.b32 0x{table:02x}",
            "b32 a, b32 b, b32 c",
            "b32 d",
            f"lop3.b32 d, a, b, c, 0x{table:02x};",
            inputs,
            rule(table),
        )


def shifts(family):
    counts = [0, 1, 7, 15, 16, 31, 32, 33, 63, 64, 255, 0xFFFFFFFF]
    for width in (16, 32, 64):
        base = (0x8123456789ABCDEF >> (64 - width), 0x7123456789ABCDEF >> (64 - width))
        inputs = [(a, n) for a in base for n in counts]
        family.table(
            f"shl.b{width} by more than its width too",
            f"b{width} a, u32 b",
            f"b{width} d",
            f"shl.b{width} d, a, b;",
            inputs,
            lambda a, n: a << n if n < width else 0,
        )
        family.table(
            f"shr.b{width}",
            f"b{width} a, u32 b",
            f"b{width} d",
            f"shr.b{width} d, a, b;",
            inputs,
            lambda a, n: a >> n if n < width else 0,
        )
        family.table(
            f"shr.u{width}",
            f"u{width} a, u32 b",
            f"u{width} d",
            f"shr.u{width} d, a, b;",
            inputs,
            lambda a, n: a >> n if n < width else 0,
        )
        family.table(
            f"shr.s{width} fills with the sign",
            f"s{width} a, u32 b",
            f"s{width} d",
            f"shr.s{width} d, a, b;",
            inputs,
            lambda a, n: signed(a, width) >> min(n, width),
        )
    inputs = [(0x89ABCDEF, 0x01234567, n) for n in counts] + [(0x00000001, 0x80000000, n) for n in counts]
    for direction in "lr":
        for mode in ("clamp", "wrap"):

            def rule(a, b, c):
                n = min(c, 32) if mode == "clamp" else c & 31
                both = b << 32 | a
                return both << n >> 32 if direction == "l" else both >> n

            family.table(
                f"shf.{direction}.{mode}.b32",
                "b32 a, b32 b, u32 c",
                "b32 d",
                f"shf.{direction}.{mode}.b32 d, a, b, c;",
                inputs,
                rule,
            )


def permute(family):
    """Bytes of {b, a} are numbered 7 … 0. Rows of the ISA's table for a mode: from the top byte of d to the lowest."""
    modes = {
        "f4e": ["3210", "4321", "5432", "6543"],
        "b4e": ["5670", "6701", "7012", "0123"],
        "rc8": ["0000", "1111", "2222", "3333"],
        "ecl": ["3210", "3211", "3222", "3333"],
        "ecr": ["0000", "1110", "2210", "3210"],
        "rc16": ["1010", "3232", "1010", "3232"],
    }
    a, b = 0x33F21180, 0x7766D544
    byte = lambda i: (b << 32 | a) >> 8 * i & 0xFF  # noqa: E731

    def generic(a, b, c):
        d = 0
        for i in range(4):
            selector = c >> 4 * i & 15
            value = byte(selector & 7)
            d |= (value if selector < 8 else 0xFF * (value >> 7)) << 8 * i
        return d

    selectors = [0x3210, 0x7654, 0x0123, 0x5410, 0x7632, 0xBA98, 0xFEDC, 0x8888, 0x0D45, 0x4140, 0xF00F3210]
    family.table(
        "prmt.b32 by selectors",
        "b32 a, b32 b, b32 c",
        "b32 d",
        "prmt.b32 d, a, b, c;",
        [(a, b, c) for c in selectors],
        generic,
    )
    for mode, rows in modes.items():
        family.table(
            f"prmt.b32.{mode}",
            "b32 a, b32 b, b32 c",
            "b32 d",
            f"prmt.b32.{mode} d, a, b, c;",
            [(a, b, c) for c in (0, 1, 2, 3, 0xFFFFFFFE)],
            lambda a, b, c: sum(byte(int(digit)) << 8 * (3 - i) for i, digit in enumerate(rows[c & 3])),
        )


def fields(family):
    places = [
        (0, 8),
        (4, 8),
        (28, 8),
        (31, 1),
        (32, 4),
        (40, 3),
        (0, 0),
        (0, 32),
        (8, 0),
        (60, 8),
        (255, 255),
        (3, 61),
        (0x100, 0x108),
    ]

    def taken(width, number):
        """What counts of a position or a length: of 32 bits as the ISA says, of 64 as an H100 does it."""
        return number & 255 if width == 32 else number

    def extract(width, is_signed):
        def rule(a, b, c):
            position, length, top = taken(width, b), taken(width, c), width - 1
            fill = a >> min(position + length - 1, top) & 1 if is_signed and length else 0
            bit = lambda i: a >> (position + i) & 1 if i < length and position + i <= top else fill  # noqa: E731
            return sum(bit(i) << i for i in range(width))

        return rule

    def insert(width):
        def rule(a, b, c, d):
            result = b
            for i in range(taken(width, d)):
                if taken(width, c) + i < width:
                    at = taken(width, c) + i
                    result = result & ~(1 << at) | (a >> i & 1) << at
            return result

        return rule

    for width in (32, 64):
        base = (0x8123456789ABCDEF >> (64 - width), 0x5A5A7E81F00F1248 & mask(width))
        inputs = [(a, b, c) for a in base for b, c in places]
        for sign in "us":
            family.table(
                f"bfe.{sign}{width}",
                f"{sign}{width} a, u32 b, u32 c",
                f"{sign}{width} d",
                f"bfe.{sign}{width} d, a, b, c;",
                inputs,
                extract(width, sign == "s"),
            )
        family.table(
            f"bfi.b{width}",
            f"b{width} a, b{width} b, u32 c, u32 d",
            f"b{width} f",
            f"bfi.b{width} f, a, b, c, d;",
            [(base[0], x, c, d) for x in (0, base[1]) for c, d in places],
            insert(width),
        )


def counting(family):
    for width in (32, 64):
        values = [v if width == 32 else wide(v) for v in VALUES] + [mask(width), 0xFF]

        def found(a, is_signed):
            if is_signed and a >> (width - 1):
                a = ~a & mask(width)
            return a.bit_length() - 1

        for sign in "us":
            family.table(
                f"bfind.{sign}{width}",
                f"{sign}{width} a",
                "u32 d",
                f"bfind.{sign}{width} d, a;",
                values,
                lambda a: found(a, sign == "s"),
            )
            family.table(
                f"bfind.shiftamt.{sign}{width}",
                f"{sign}{width} a",
                "u32 d",
                f"bfind.shiftamt.{sign}{width} d, a;",
                values,
                lambda a: width - 1 - found(a, sign == "s") if found(a, sign == "s") >= 0 else -1,
            )
        family.table(
            f"brev.b{width}",
            f"b{width} a",
            f"b{width} d",
            f"brev.b{width} d, a;",
            values,
            lambda a: int(f"{a:0{width}b}"[::-1], 2),
        )
        family.table(
            f"clz.b{width}", f"b{width} a", "u32 d", f"clz.b{width} d, a;", values, lambda a: width - a.bit_length()
        )
        family.table(
            f"popc.b{width}", f"b{width} a", "u32 d", f"popc.b{width} d, a;", values, lambda a: bin(a).count("1")
        )


def masks(family):
    """bmsk and fns, by the ISA's pseudo-code in words: a run of `width` ones from `position` on; the place of the n-th
    one, counted from `base` on upwards or downwards."""

    def run(mode):
        def rule(position, width):
            if mode == "clamp" and position >= 32:
                return 0
            position &= 31
            width = min(width, 32) if mode == "clamp" else width & 31
            return (mask(width) << position) & mask(32)

        return rule

    places = [(0, 0), (0, 1), (4, 8), (28, 8), (31, 1), (0, 31), (0, 32), (5, 32), (32, 3), (33, 35), (1, 40)]
    for mode in ("clamp", "wrap"):
        family.table(f"bmsk.{mode}.b32", "u32 a, u32 b", "b32 d", f"bmsk.{mode}.b32 d, a, b;", places, run(mode))

    def nth(bits, base, offset):
        offset = signed(offset, 32)
        if offset == 0:
            return base if bits >> base & 1 else -1
        order = range(base, 32) if offset > 0 else range(base, -1, -1)
        found = [place for place in order if bits >> place & 1]
        return found[abs(offset) - 1] if len(found) >= abs(offset) else -1

    wanted = [
        (0xAAAAAAAA, base, n & mask(32))
        for base, n in ((3, 1), (3, -1), (2, 1), (2, -1), (3, 0), (2, 0), (0, 16), (0, 17))
    ]
    wanted += [
        (0x80000001, 0, 2),
        (0x80000001, 31, -2 & mask(32)),
        (0, 5, 1),
        (0xFFFFFFFF, 7, 8),
        (0xFFFFFFFF, 7, -8 & mask(32)),
    ]
    family.table("fns.b32", "b32 a, u32 b, s32 c", "u32 d", "fns.b32 d, a, b, c;", wanted, nth)


def families():
    for name, about, *makers in (
        ("logic", "Logic: PTX ISA 9.7.8, and or xor not cnot lop3.", logic, lookup),
        ("shift", "Shifts: PTX ISA 9.7.8, shl shr shf.", shifts),
        ("bit_field", "Bits: PTX ISA 9.7.1, bfe bfi; 9.7.9, prmt.", permute, fields),
        ("bit_count", "Bits: PTX ISA 9.7.1, bfind brev clz popc bmsk fns.", counting, masks),
    ):
        family = Family(name, about)
        for make in makers:
            make(family)
        yield family
