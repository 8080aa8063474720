"""What lanes of a warp tell each other (PTX ISA 9.7.9 shfl, 9.7.13 vote match redux activemask elect)."""

from family import Family, mask, signed

LANES = range(32)
FULL = 0xFFFFFFFF


def source_of(mode, lane, b, c):
    """The ISA's pseudo-code of shfl: the lane that is read, and the predicate."""
    bval, clamp, segment = b & 31, c & 31, c >> 8 & 31
    upper = (lane & segment) | (clamp & ~segment)
    lower = lane & segment
    if mode == "up":
        j = lane - bval
        inside = j >= upper
    elif mode == "down":
        j = lane + bval
        inside = j <= upper
    elif mode == "bfly":
        j = lane ^ bval
        inside = j <= upper
    else:
        j = lower | (bval & ~segment)
        inside = j <= upper
    return (j if inside else lane), int(inside)


def shuffles(family, modes):
    values = [1000 + 3 * lane for lane in LANES]
    for mode in modes:
        lowest = 0 if mode == "up" else 31
        pairs = [
            (1, lowest),
            (5, lowest),
            (16, lowest),
            (31, lowest),
            (35, lowest),
            (3, 0x1800 | lowest),
            (4, 0x1C00 | lowest),
            (9, 0x1000 | lowest),
            (2, 0x1800 | (2 if mode == "up" else 5)),
            (7, 20),
            (6, 0x0F1F),
        ]
        for part in (pairs[:4], pairs[4:8], pairs[8:]):
            rows = []
            for lane in LANES:
                answers = [source_of(mode, lane, b, c) for b, c in part]
                rows.append(((values[lane],), (*(values[j] for j, _ in answers), *(inside for _, inside in answers))))
            family.case(
                f"shfl.sync.{mode} by " + ", ".join(f"{b} with 0x{c:x}" for b, c in part),
                "u32 a",
                f"u32 d[{len(part)}], " + ", ".join(f"pred p{i}" for i in range(len(part))),
                "\n".join(
                    f"shfl.sync.{mode}.b32 d{i}|p{i}, a, {b}, 0x{c:x}, 0xffffffff;" for i, (b, c) in enumerate(part)
                ),
                rows,
            )
    if "idx" not in modes:
        return
    wanted = [(lane * 5 + 2) % 32 for lane in LANES]
    family.case(
        "shfl.sync.idx by a lane number of each lane's own",
        "u32 a, u32 b",
        "u32 d",
        "shfl.sync.idx.b32 d, a, b, 31, 0xffffffff;",
        [((values[lane], wanted[lane]), (values[wanted[lane]],)) for lane in LANES],
    )
    family.case(
        "shfl.sync among the lanes of a mask",
        "u32 a",
        "u32 d",
        """
    .reg .pred even;
    .reg .b32 bit;
    mov.b32 d, 0;
    and.b32 bit, lane, 1;
    setp.eq.u32 even, bit, 0;
    @even shfl.sync.down.b32 d, a, 2, 31, 0x55555555;""",
        [((values[lane],), (0 if lane & 1 else values[lane + 2 if lane < 30 else lane],)) for lane in LANES],
    )


def votes(family):
    patterns = {"none": 0, "all": FULL, "one": 0x00010000, "some": 0x13579BDF}
    for name, pattern in patterns.items():
        bits = [pattern >> lane & 1 for lane in LANES]
        answer = (int(all(bits)), int(any(bits)), int(len(set(bits)) == 1), pattern, int(not any(bits)))
        family.case(
            f"vote.sync where {name} of the lanes say yes",
            "pred a",
            "pred all_, pred any_, pred uni_, b32 ballot, pred none",
            """
        vote.sync.all.pred all_, a, 0xffffffff;
        vote.sync.any.pred any_, a, 0xffffffff;
        vote.sync.uni.pred uni_, a, 0xffffffff;
        vote.sync.ballot.b32 ballot, a, 0xffffffff;
        vote.sync.all.pred none, !a, 0xffffffff;""",
            [((bit,), answer) for bit in bits],
        )
    members = 0x0000FF00
    family.case(
        "vote.sync.ballot among the lanes of a mask",
        "pred a",
        "b32 d",
        """
    .reg .pred member;
    mov.b32 d, 7;
    setp.ge.u32 member, lane, 8;
    setp.lt.and.u32 member, lane, 16, member;
    @member vote.sync.ballot.b32 d, a, 0x0000ff00;""",
        [((lane & 1,), (0xAAAAAAAA & members if members >> lane & 1 else 7,)) for lane in LANES],
    )


def matches(family):
    for width in (32, 64):
        top = 0x1234567800000000 if width == 64 else 0
        values = [top | (lane % 5) for lane in LANES]
        family.case(
            f"match.any.sync.b{width}",
            f"b{width} a",
            "b32 d",
            f"match.any.sync.b{width} d, a, 0xffffffff;",
            [
                ((values[lane],), (sum(1 << other for other in LANES if values[other] == values[lane]),))
                for lane in LANES
            ],
        )
        family.case(
            f"match.all.sync.b{width} where all are equal",
            f"b{width} a",
            "b32 d, pred p",
            f"match.all.sync.b{width} d|p, a, 0xffffffff;",
            [((top | 9,), (FULL, 1))] * 32,
        )
        family.case(
            f"match.all.sync.b{width} where one differs",
            f"b{width} a",
            "b32 d, pred p",
            f"match.all.sync.b{width} d|p, a, 0xffffffff;",
            [((top | (9 if lane != 17 else 8),), (0, 0)) for lane in LANES],
        )


def reductions(family):
    values = [(lane * 0x9E3779B1 + 0x1234567) & FULL for lane in LANES]
    numbers = {"u": values, "s": [signed(value, 32) for value in values]}
    for sign in "us":
        for op, rule in (("add", sum), ("min", min), ("max", max)):
            answer = rule(numbers[sign]) & FULL
            family.case(
                f"redux.sync.{op}.{sign}32",
                f"{sign}32 a",
                f"{sign}32 d",
                f"redux.sync.{op}.{sign}32 d, a, 0xffffffff;",
                [((value,), (answer,)) for value in values],
                target=80,
            )
    bits = [value | 0x01000010 for value in values]
    totals = {"and": FULL, "or": 0, "xor": 0}
    for value in bits:
        totals["and"] &= value
        totals["or"] |= value & 0x0FFF0FFF
        totals["xor"] ^= value
    for op in totals:
        family.case(
            f"redux.sync.{op}.b32",
            "b32 a",
            "b32 d",
            f"redux.sync.{op}.b32 d, a, 0xffffffff;",
            [((value & 0x0FFF0FFF if op == "or" else value,), (totals[op],)) for value in bits],
            target=80,
        )
    odd = sum(values[1::2]) & FULL
    family.case(
        "redux.sync.add among the lanes of a mask",
        "u32 a",
        "u32 d",
        """
    .reg .pred odd;
    .reg .b32 bit;
    mov.b32 d, 0;
    and.b32 bit, lane, 1;
    setp.ne.u32 odd, bit, 0;
    @odd redux.sync.add.u32 d, a, 0xaaaaaaaa;""",
        [((values[lane],), (odd if lane & 1 else 0,)) for lane in LANES],
        target=80,
    )


def who_is_there(family):
    family.case(
        "elect.sync elects one of the members",
        "",
        "u32 leaders, u32 told",
        """
    .reg .pred leader;
    .reg .b32 who, ballot;
    elect.sync who|leader, 0xffffffff;
    vote.sync.ballot.b32 ballot, leader, 0xffffffff;
    popc.b32 leaders, ballot;
    bfind.u32 ballot, ballot;
    sub.u32 told, who, ballot;  // 0: every lane is told the one that was elected""",
        [((), (1, 0))],
        target=90,
    )
    family.case(
        "lane masks",
        "",
        "b32 eq, b32 le, b32 lt, b32 ge, b32 gt",
        "\n".join(f"mov.u32 {op}, %lanemask_{op};" for op in ("eq", "le", "lt", "ge", "gt")),
        [((), (1 << n, mask(n + 1), mask(n), FULL & ~mask(n), FULL & ~mask(n + 1))) for n in LANES],
    )


def families():
    for name, modes in (("shuffle", ("up", "down")), ("shuffle_across", ("bfly", "idx"))):
        family = Family(name, "Shuffles: PTX ISA 9.7.9, shfl.sync.")
        shuffles(family, modes)
        yield family
    family = Family("reduction", "Reductions of a warp: PTX ISA 9.7.13, redux.")
    reductions(family)
    yield family
    family = Family("vote", "Votes and reductions of a warp: PTX ISA 9.7.13, vote match elect; 10, lane masks.")
    votes(family)
    matches(family)
    who_is_there(family)
    yield family
