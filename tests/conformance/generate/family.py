"""Case files as text: values written so that a person can read them."""

from fractions import Fraction

from formats import BF16, F16, F32, F64

_FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "tf32": F32, "f64": F64, "f16x2": F16, "bf16x2": BF16}
_WIDTH = 110


def mask(width):
    return (1 << width) - 1


def signed(bits, width):
    """The number that two's complement bits are."""
    bits &= mask(width)
    return bits - (1 << width) if bits >> (width - 1) else bits


def width_of(type_name):
    return (
        32 if type_name == "pred" or type_name.endswith("x2") or type_name == "tf32" else int(type_name.lstrip("bfsu"))
    )


def literal(type_name, value):
    """A value in the form of a case file. None: the ISA leaves it open. A string is not changed."""
    if value is None:
        return "*"
    if isinstance(value, str):
        return value
    width = width_of(type_name)
    if type_name in ("f16x2", "bf16x2"):
        form = _FORMATS[type_name]
        return f"{_floating(form, value & 0xFFFF)}|{_floating(form, value >> 16)}"
    if type_name in _FORMATS:
        return _floating(_FORMATS[type_name], value)
    value &= mask(width)
    if type_name[0] == "s" and -99999 <= signed(value, width) <= 99999:
        return str(signed(value, width))
    if (type_name[0] == "u" or type_name == "pred") and value <= 99999:
        return str(value)
    return f"0x{value:0{width // 4}x}"


def _floating(form, bits):
    if bits == form.nan:
        return "nan"
    if form.is_nan(bits):
        return f"0x{bits:0{form.width // 4}x}"
    if form.is_infinite(bits):
        return "-inf" if form.sign(bits) else "inf"
    value = form.value(bits)
    minus = "-" if form.sign(bits) else ""
    if value == 0:
        return minus + "0"
    short = repr(float(abs(value)))
    if Fraction(short) == abs(value) and len(short) <= 8:
        return minus + (short[:-2] if short.endswith(".0") else short)
    return f"0x{bits:0{form.width // 4}x}"


def names_of(columns):
    """Type and name of each value: "f32 d[2]" is two."""
    found = []
    for item in filter(None, columns.split(",")):
        type_name, name = item.split()
        base, _, count = name.partition("[")
        if count:
            found += [(type_name, f"{base}{i}") for i in range(int(count.rstrip("]")))]
        else:
            found.append((type_name, name))
    return found


class Family:
    def __init__(self, name, about):
        self.name = name
        self.text = [f"# {line}" for line in about.strip().splitlines()]

    def section(self, text):
        self.text += ["", f"# {text}"]

    def case(self, name, ins, outs, ptx, rows, **more):
        """`rows`: pairs of given and expected values, each as long as its columns.

        `more`: target, threads, blocks, shared, refused, judge (a line or several), module (text).
        """
        lines = ["", f"case {name}"]
        lines += [f"{key} {more[key]}" for key in ("target", "threads", "blocks", "shared", "refused") if key in more]
        lines += [f"in {ins}"] * bool(ins) + [f"out {outs}"]
        judges = more.get("judge", [])
        lines += [f"judge {judge}" for judge in ([judges] if isinstance(judges, str) else judges)]
        if "module" in more:
            lines += ["module"] + ["  " + line.strip() for line in more["module"].strip().splitlines()]
        lines += ["ptx"] + ["  " + line.strip() for line in ptx.strip().splitlines()] + ["rows"]
        given_types = [type_name for type_name, _ in names_of(ins)]
        answer_types = [type_name for type_name, _ in names_of(outs)]
        for given, expected in rows:
            assert len(given) == len(given_types) and len(expected) == len(answer_types), (name, given, expected)
            left = [literal(*pair) for pair in zip(given_types, given)]
            right = [literal(*pair) for pair in zip(answer_types, expected)]
            lines.append("  " + " ".join([*left, "->", *right]))
        assert all(len(line) <= 400 for line in lines), name
        assert 0 < len(rows) <= more.get("threads", 32) * more.get("blocks", 1), (name, len(rows))
        self.text += lines

    def table(self, name, ins, outs, ptx, inputs, rule, **more):
        """The same with expectations by a rule: a function of the inputs that gives one value or a tuple."""
        rows = []
        for given in inputs:
            given = given if isinstance(given, tuple) else (given,)
            expected = rule(*given)
            rows.append((given, expected if isinstance(expected, tuple) else (expected,)))
        self.case(name, ins, outs, ptx, rows, **more)

    def write(self):
        return "\n".join(self.text) + "\n"
