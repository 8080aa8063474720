#!/usr/bin/env python3
"""Says whether a change of the source left the machine code of kernels as it was.

A refactoring must not change a kernel. This program draws requests at random from a seed, has a `sparsekiln` command
compile each, and compares digests of what the loader of a GPU or of the CPU would load: code, constants, tables,
initialised data, the sizes of shared and local memory, the registers and the parameters of a kernel, and where each
relocation points. Names of kernels and symbols, debug information and the PTX text do not count, so a renamed symbol is
no difference. Requests that the command refuses (exit status 2) count too: both commands must refuse them.

Against an older commit, in one run:

    git worktree add ../before COMMIT && (cd ../before && ./dev build)
    ./dev build
    python3 tests/code_sections.py --against-command ../before/build/tools/sparsekiln

Or keep the older commit's digests, and compare as often as the source changes:

    python3 tests/code_sections.py --command ../before/build/tools/sparsekiln --save before.json
    ./dev build && python3 tests/code_sections.py --against before.json

The file holds the requests with their layouts, so --against compiles those and draws nothing; `--seed 2` with --save
gives another set. Both commands must have been built against the same LLVM and must find the same NVRTC (set
SPARSEKILN_NVRTC where a command does not find it by itself); another compiler is an error and not a difference.

Exit status: 0 the code is the same (or was saved), 1 it differs or a compile failed, 2 the options make no sense or the
compilers are not the same. Each difference is printed with the sections that differ and the command that reproduces it;
the layouts of those commands are kept in the folder --keep, by default a new one in the folder for temporary files.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import hashlib
import json
import os
import pathlib
import random
import re
import shlex
import struct
import subprocess
import sys
import tempfile

# ---- sections of an ELF file (System V ABI, chapter 4; the numbers of a cubin are NVIDIA's additions to it) ----

_SYMBOL_TABLE, _RELOCATIONS_WITH_ADDEND, _NO_BITS, _RELOCATIONS = 2, 4, 8, 9  # sh_type
_LOADED = 2  # of sh_flags: SHF_ALLOC
_UNDEFINED, _FIRST_RESERVED = 0, 0xFF00  # st_shndx
# An attribute of .nv.info is a byte of format, a byte that names it and two bytes; those are a value, or for the format
# _SIZED the size of a value that follows. _PARAMETERS begins with a symbol's number, as do all of the whole file's.
_SIZED, _PARAMETERS = 4, 0x0A


@dataclasses.dataclass(frozen=True)
class _Section:
    name: str
    type: int
    flags: int
    link: int
    info: int
    size: int
    bytes: bytes

    @property
    def kind(self) -> str:
        """The name without that of the kernel: `.text`, `.rodata`, `.nv.constant3`."""
        return re.match(r"\.nv\.[^.]+|\.?[^.]*", self.name).group()


def _read_sections(elf: bytes) -> list[_Section]:
    if elf[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a little-endian ELF64 file")
    (table,) = struct.unpack_from("<Q", elf, 40)
    entry_bytes, count, names_at = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, table + i * entry_bytes) for i in range(count)]

    def contents(header) -> bytes:
        return b"" if header[1] == _NO_BITS else elf[header[4] : header[4] + header[5]]

    names = contents(headers[names_at])
    return [
        _Section(_text_at(names, h[0]), type=h[1], flags=h[2], link=h[6], info=h[7], size=h[5], bytes=contents(h))
        for h in headers
    ]


def _text_at(strings: bytes, offset: int) -> str:
    return strings[offset : strings.index(b"\0", offset)].decode()


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def _target(sections: list[_Section], symbols: _Section, number: int) -> str:
    """What symbol `number` stands for, said without its name, unless another file has to define it."""
    name, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", symbols.bytes, 24 * number)
    if section == _UNDEFINED:
        return "undefined " + _text_at(sections[symbols.link].bytes, name)
    if section >= _FIRST_RESERVED:
        return f"reserved {section} {value}"
    return f"{sections[section].kind} {_digest(sections[section].bytes)} {value}"


def _relocations(sections: list[_Section]) -> dict[int, list[str]]:
    """By the number of the section that they change, in order of the place."""
    found = collections.defaultdict(list)
    for section in sections:
        if section.type not in (_RELOCATIONS, _RELOCATIONS_WITH_ADDEND):
            continue
        entry = "<QQq" if section.type == _RELOCATIONS_WITH_ADDEND else "<QQ"
        for offset, info, *addend in struct.iter_unpack(entry, section.bytes):
            target = _target(sections, sections[section.link], info >> 32)
            found[section.info].append((offset, info & 0xFFFFFFFF, *addend, target))
    return {number: [str(place) for place in sorted(places)] for number, places in found.items()}


def _attributes(section: _Section) -> list[str]:
    """The attributes of a .nv.info without numbers of symbols, which may differ where symbols have other names."""
    of_file = section.name == ".nv.info"
    found, at = [], 0
    while at < len(section.bytes):
        form, attribute, value = struct.unpack_from("<BBH", section.bytes, at)
        at += 4
        payload = section.bytes[at : at + value] if form == _SIZED else b""
        at += len(payload)
        if form == _SIZED and (of_file or attribute == _PARAMETERS):
            payload = payload[4:]
        found.append(f"{form} {attribute} {value} {payload.hex()}")
    return sorted(found)


def code_sections(elf: bytes) -> dict[str, list[str]]:
    """The loaded sections of an object file or a cubin: for each kind of section a sorted list of `SIZE:DIGEST`."""
    sections = _read_sections(elf)
    relocations = _relocations(sections)
    found = collections.defaultdict(list)
    for number, section in enumerate(sections):
        if section.type in (_RELOCATIONS, _RELOCATIONS_WITH_ADDEND):
            continue
        if section.kind == ".nv.info":
            data = "\n".join(_attributes(section)).encode()
        elif section.flags & _LOADED:
            data = section.bytes + "\n".join(relocations.get(number, [])).encode()
        else:
            continue
        found[section.kind].append(f"{section.size}:{_digest(data)}")
    return {kind: sorted(found[kind]) for kind in sorted(found)}


# ---- requests ----

_OPERATIONS = ("forward", "grad_input", "grad_weight")
# Numbers of workers; None leaves it to the command, which has the same for everyone for a GPU but not for a CPU.
_TARGETS = {
    "sm_75": (None, 40, 68),
    "sm_80": (None, 56, 108),
    "sm_86": (None, 72, 84),
    "sm_90": (None, 114, 132),
    "sm_100": (None, 148),
    "x86-64": (1, 2, 8),
    "x86-64-v3": (1, 2, 6),
    "x86-64-v4": (1, 4, 16),
    "x86-64-v4-bf16": (2, 3, 32),
}
_SIDES = (8, 16, 32, 64, 128)
_ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu")
_GATED_PAIR = "glu"  # how an epilogue spells a pair of weights
_ONE_TILE = (("1", "1"),)
# Values of the fields of a config by variant: `tiles` are rows and merge.
_PRODUCTS = {
    "simt": {"tile_n": (8, 16, 32, 64, 128), "tile_out": (1, 2, 4, 8), "stages": (1, 2, 3), "warps": (2, 4, 8),
             "split": (1, 2, 4), "tiles": _ONE_TILE, "table": ("constant", "global", "unrolled")},
    "mma": {"tile_n": (8, 16, 24, 32, 48, 64, 128, 256), "tile_out": (0,), "stages": (2, 4, 6), "warps": (2, 4, 8),
            "split": (1, 2, 4), "tiles": (*_ONE_TILE, ("2", "1"), ("4", "1"), ("1", "2"), ("1", "4")),
            "table": ("constant", "global", "unrolled"), "operand_a": ("x", "w"), "packed": (0, 0, 0, 1)},
    "stream": {"tile_n": (8, 16), "tile_out": (0,), "stages": (2, 3, 4, 6, 8), "warps": (2, 4, 8, 16), "split": (1, 2),
               "tiles": _ONE_TILE, "table": ("constant", "global"), "operand_a": ("x", "w")},
    "vector": {"tile_n": (1, 2, 4, 8, 16, 24, 32, 48, 64), "tile_out": (0, 2, 3, 4, 6, 8), "stages": (1,), "warps": (1,),
               "split": (1, 2, 4, 8), "tiles": _ONE_TILE, "table": ("global",), "packed": (0, 0, 0, 1)},
    "wgmma": {"tile_n": (128, 256), "tile_out": (0,), "stages": (3, 4, 5, 6), "warps": (12,), "split": (1, 2),
              "tiles": (*_ONE_TILE, ("2", "1"), ("1", "2")), "table": ("constant", "global"), "cluster": (1, 1, 2), "cluster_rows": (1, 1, 2)},
    "wgmma_rows": {"tile_n": (128, 256), "tile_out": (0,), "stages": (3, 4, 5, 6, 8), "warps": (12, 16), "split": (1,),
                   "tiles": (("2", "1"), ("3", "1"), ("2", "2"), ("3", "2"), ("2", "4")), "table": ("constant", "global"),
                   "operand_a": ("w",), "cluster": (1, 1, 2)},
    "direct": {"tile_n": (8, 16, 32), "tile_out": (0,), "stages": (1, 2, 3, 4), "warps": (4, 8), "split": (1, 2),
               "tiles": _ONE_TILE, "table": ("constant", "global"), "operand_a": ("x", "w"), "panels": (0, 0, 1)},
    "halo": {"tile_n": (64, 112, 128, 192, 224, 256), "tile_out": (0,), "stages": (2, 3, 4), "warps": (12,), "split": (1,),
             "tiles": (*_ONE_TILE, ("2", "1"), ("2", "2"), ("1", "2"), ("1", "4")), "table": ("constant", "global")},
}  # fmt: skip
_WEIGHT_GRADIENTS = {
    "simt": {"tile_n": (8, 16, 32, 64), "tile_out": (4, 8), "stages": (2, 3, 4), "warps": (2, 4, 8), "split": (1, 2, 4),
             "tiles": (*_ONE_TILE, ("2", "1"), ("4", "1"), ("8", "1")), "table": ("constant", "global")},
    "mma": {"tile_n": (16, 32, 64, 128), "tile_out": (0,), "stages": (2, 3, 4), "warps": (1, 2, 4, 8), "split": (1, 2, 4),
            "tiles": (*_ONE_TILE, ("2", "1"), ("4", "1"), ("8", "1")), "table": ("constant", "global")},
    "vector": {"tile_n": (16, 32, 64, 128), "tile_out": (0,), "stages": (1, 2), "warps": (1,), "split": (1, 2, 4, 8),
               "tiles": (*_ONE_TILE, ("2", "1"), ("3", "1"), ("8", "1")), "table": ("global",)},
    "wgmma": {"tile_n": (64, 128), "tile_out": (0,), "stages": (3, 4, 6), "warps": (12,), "split": (1,),
              "tiles": (*_ONE_TILE, ("2", "1"), ("4", "1")), "table": ("constant", "global")},
    "grouped": {"tile_n": (32,), "tile_out": (0,), "stages": (3, 4, 5, 6), "warps": (16,), "split": (1,),
                "tiles": (("6", "1"), ("12", "1")), "table": ("constant", "global")},
    "halo": {"tile_n": (32, 64, 96, 112, 128), "tile_out": (0,), "stages": (2, 3, 4), "warps": (16,), "split": (1,),
             "tiles": (("6", "1"), ("12", "1"), ("18", "1"), ("24", "1")), "table": ("constant", "global")},
}  # fmt: skip
# The variants of warpgroups, which sm_90 alone has: they take 16-bit types, and blocks of so many features.
_HOPPER_SIDES = {"wgmma": (64, 128), "wgmma_rows": (16, 32, 64), "grouped": (64, 128), "halo": (32, 64)}
_PINS = {"forward": ("wgmma", "wgmma_rows", "halo"), "grad_input": ("wgmma", "wgmma_rows", "halo"), "grad_weight": ("wgmma", "grouped", "halo")}
_MOST_DRAWS = 200  # of one problem: most often one to three are enough


@dataclasses.dataclass(frozen=True)
class Request:
    """A call of `sparsekiln compile`: a layout as rows of 0 and 1, and the arguments after its file."""

    layout: tuple[str, ...]
    arguments: tuple[str, ...]

    def value(self, option: str) -> str | None:
        """None where it is not given, and the next option for one that takes no value."""
        return self.arguments[self.arguments.index(option) + 1] if option in self.arguments[:-1] else None


def _chance(rng: random.Random, probability: float) -> bool:
    return rng.random() < probability


def _draw_layout(rng: random.Random, few_blocks: bool) -> tuple[str, ...]:
    rows, cols = (round(2 ** rng.uniform(rng.choice((0, 3)), 6)) for _ in range(2))
    kind = rng.choice(("random", "random", "empty rows", "one block", "skewed", "banded"))
    if few_blocks and kind in ("skewed", "banded"):
        kind = "random"
    density = min(rng.choice((0.02, 0.1, 0.3, 1.0)), (6 if few_blocks else 600) / (rows * cols))
    empty = {row for row in range(rows) if _chance(rng, 0.4)}
    dense_row, only = rng.randrange(rows), (rng.randrange(rows), rng.randrange(cols))

    def present(row: int, col: int) -> bool:
        drawn = _chance(rng, density)
        if kind == "empty rows":
            return drawn and row not in empty
        if kind == "one block":
            return (row, col) == only
        if kind == "skewed":
            return row == dense_row or col == row % cols or (drawn and _chance(rng, 0.2))
        if kind == "banded":
            return abs(row * cols - col * rows) <= rows + cols
        return drawn

    return tuple("".join("01"[present(row, col)] for col in range(cols)) for row in range(rows))


def _draw_types(rng: random.Random, options: dict, target: str, variant: str | None) -> None:
    """Types that the target has, and that a pinned variant of the CUDA cores or the tensor cores multiplies."""
    if variant in _HOPPER_SIDES:
        options["--dtype"] = rng.choice(("f16", "bf16"))
        return
    types = [("f16", "ieee")]
    if target != "sm_75":
        types.append(("bf16", "ieee"))
        types += [("f32", "tf32")] * target.startswith("sm_")
    if variant == "simt":
        types = []
    if variant != "mma":
        types.append(("f32", "ieee"))
    options["--dtype"], options["--math"] = rng.choice(types)
    if _chance(rng, 0.3):
        options["--out-dtype"] = rng.choice((options["--dtype"], "f32"))


def _draw_batch(rng: random.Random, variant: str | None) -> str:
    most = 16 if variant == "stream" or _chance(rng, 0.35) else 300
    dynamic = variant is None and _chance(rng, 0.3)  # a pinned config takes a fixed batch
    return ("up-to:" if dynamic else "") + str(rng.randint(1, most))


def _draw_convolution(rng: random.Random) -> str:
    dimensions = rng.choice((1, 2, 2, 2, 3))

    def extents(least: int, most: int) -> str:
        return "x".join(str(rng.randint(least, most)) for _ in range(dimensions))

    kernel = rng.choice((extents(1, 3), "x".join("3" * dimensions)))
    return f"kernel={kernel} stride={rng.choice((1, 1, 2))} dilation={rng.choice((1, 1, 2))} padding={rng.choice((0, 1, 1))} input={extents(5, 17)}"


def _draw_epilogue(rng: random.Random) -> str:
    activation = rng.choice(("", *_ACTIVATIONS))
    parts = ["scale"] * _chance(rng, 0.3) + ["bias"] * _chance(rng, 0.5) + [activation] * bool(activation)
    parts += [_GATED_PAIR] * (activation != "" and _chance(rng, 0.35)) + ["residual"] * _chance(rng, 0.3)
    return "+".join(parts) or "none"


def _draw_config(rng: random.Random, variant: str, operation: str, attached: bool) -> dict[str, object]:
    fields = (_WEIGHT_GRADIENTS if operation == "grad_weight" else _PRODUCTS)[variant]
    chosen = {name: rng.choice(values) for name, values in fields.items()}
    chosen["rows"], chosen["merge"] = chosen.pop("tiles")
    if operation == "grad_input":  # neither merges block rows nor has a packed weight
        chosen["merge"] = "1"
        chosen.pop("packed", None)
    if attached:
        chosen["table"] = "attached"
    return chosen


def _spoil(rng: random.Random, options: dict) -> None:
    """Makes a request that, most often, is refused."""
    options.update(
        rng.choice(
            (
                {"--epilogue": _GATED_PAIR},
                {"--op": "forward", "--derivative": "gelu"},
                {"--op": "grad_input", "--epilogue": "bias+relu"},
                {"--op": "grad_input", "--bias-gradient": True},
                {"--op": "grad_weight", "--gate-gradient": True, "--gate": False},
                {"--dtype": "f32", "--alignment": 2},
                {"--dtype": "f16", "--math": "tf32"},
                {"--target": "sm_75", "--dtype": "bf16", "--math": "ieee"},
                {"--target": "x86-64-v3:2", "--dtype": "f32", "--math": "tf32"},
                {"--batch": "up-to:64", "--config": "simt tile_n=8"},
                {"--dtype": "f16", "--out-dtype": "bf16"},
                {"--in-features": 1 << 20},
                {"--block": "12x16"},
                {"--batch": "-3"},
                {"--target": "sm_70"},
                {"--config": "mma tile_n=7"},
            )
        )
    )


def draw(seed: int, number: int, attempt: int) -> Request:
    """The request of problem `number` after `attempt` refusals. Target, operation and pinned variant do not depend on
    `attempt`: every pair of target and operation has its turn, and in its turns every variant that it can pin."""
    pairs = [(target, operation) for target in _TARGETS for operation in _OPERATIONS]
    random.Random(f"{seed} pairs").shuffle(pairs)
    turn, pair = divmod(number, len(pairs))
    target, operation = pairs[pair]
    pins = ["vector"] if not target.startswith("sm_") else ["mma", "simt"] + ["stream", "direct"] * (operation == "forward")
    variants = [*_PINS[operation], *pins, None] if target == "sm_90" else [variant for pin in pins for variant in (pin, None)]
    variant = variants[(turn + pair) % len(variants)]

    rng = random.Random(f"{seed} {number} {attempt}")
    spoilt = _chance(rng, 0.12) and attempt == 0
    attached = _chance(rng, 0.15)
    config = _draw_config(rng, variant, operation, attached) if variant else {}
    layout = _draw_layout(rng, few_blocks=config.get("table") == "unrolled")
    workers = rng.choice(_TARGETS[target])
    sides = _HOPPER_SIDES.get(variant, _SIDES)
    side_out = rng.choice(sides)
    side_in = side_out if _chance(rng, 0.4) else rng.choice(sides)
    options: dict[str, object] = {
        "--op": operation,
        "--target": target if workers is None else f"{target}:{workers}",
        "--block": str(side_out) if side_out == side_in else f"{side_out}x{side_in}",
        "--batch": _draw_batch(rng, variant),
    }
    if variant == "halo" or (variant in (None, "mma", "simt", "vector") and _chance(rng, 0.2)):
        options["--conv"] = _draw_convolution(rng)
        options["--batch"] = str(rng.randint(1, 9))
        options["--transposed"] = _chance(rng, 0.15)
    _draw_types(rng, options, target, variant)
    if variant not in _HOPPER_SIDES and _chance(rng, 0.3):
        options["--activation-order"] = "feature-major"
    if operation == "forward":
        options["--epilogue"] = _draw_epilogue(rng)
    else:
        options["--epilogue"] = "scale" if _chance(rng, 0.3) else "none"
        if _chance(rng, 0.35):
            options["--derivative"] = rng.choice(_ACTIVATIONS)
    fills = config.get("merge", "1") != "1"  # absent blocks with zeros, which neither block scales nor strict_absent allow
    options["--gate"] = _chance(rng, 0.2) and not fills
    options["--strict-absent"] = _chance(rng, 0.15) and not fills
    if operation == "grad_weight":
        options["--bias-gradient"] = _chance(rng, 0.4)
        options["--gate-gradient"] = options["--gate"] and _chance(rng, 0.6)
    if _chance(rng, 0.25):
        options["--in-features"] = len(layout[0]) * side_in - rng.randrange(side_in)
    if _chance(rng, 0.25):
        options["--out-features"] = len(layout) * side_out - rng.randrange(side_out)
    if variant not in _HOPPER_SIDES and _chance(rng, 0.2):
        options["--alignment"] = rng.choice((8, 4) if "f32" in options.values() else (8, 4, 2))
    if config:
        options["--config"] = " ".join([str(variant), *(f"{name}={value}" for name, value in config.items())])
    options["--attached"] = attached
    if spoilt:
        _spoil(rng, options)
    arguments: list[str] = []
    for name, value in options.items():
        if value is not False:
            arguments += [name] if value is True else [name, str(value)]
    return Request(layout, tuple(arguments))


# ---- compiling ----


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a command made of a request. `failure` is empty unless it neither compiled nor refused."""

    refused: bool = False
    failure: str = ""
    compiler: str = ""
    config: str = ""
    sections: dict[str, list[str]] = dataclasses.field(default_factory=dict)

    def describe(self) -> str:
        return "is refused" if self.refused else self.failure or "compiles"


def compile_line(command: str, layout: str, request: Request, output: str) -> list[str]:
    return [command, "compile", layout, *request.arguments, "-o", output]


def run_request(command: str, request: Request) -> Outcome:
    """Compiles in an empty store, so that nothing made before is read."""
    with tempfile.TemporaryDirectory(prefix="sparsekiln-sections-") as holder:
        folder = pathlib.Path(holder)
        layout, output = folder / "layout.txt", folder / "kernel"
        layout.write_text("\n".join(request.layout) + "\n")
        line = compile_line(command, str(layout), request, str(output))
        environment = {name: value for name, value in os.environ.items() if name != "SPARSEKILN_PACKS"}
        environment["SPARSEKILN_CACHE_DIR"] = str(folder / "store")
        try:
            done = subprocess.run([*line, "--json"], capture_output=True, text=True, env=environment, timeout=300)
        except subprocess.TimeoutExpired:
            return Outcome(failure="takes more than 300 s")
        if done.returncode == 2:
            return Outcome(refused=True)
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()
            return Outcome(failure=f"fails with exit status {done.returncode}: {said[0] if said else 'no message'}")
        answer = json.loads(done.stdout)
        files = {file: file.read_bytes() for file in sorted(output.iterdir())}
        binaries = [data for data in files.values() if data.startswith(b"\x7fELF")]
        if len(binaries) != 1:
            return Outcome(failure=f"leaves {len(binaries)} ELF files in its folder instead of one")
        sections = code_sections(binaries[0])
        tables = [f"{len(data)}:{_digest(data)}" for file, data in files.items() if file.suffix == ".bin"]
        if tables:
            sections["tables beside the code"] = sorted(tables)
        return Outcome(compiler=answer["compiler"], config=answer["config"], sections=sections)


@dataclasses.dataclass(frozen=True)
class Record:
    """A request, the outcome of it, and of the other command where two are compared."""

    name: str
    request: Request
    outcome: Outcome
    other: Outcome | None = None


def _draw_records(command: str, other: str | None, seed: int, number: int) -> list[Record]:
    """The requests of one problem that are refused, and the one after them that a command does not refuse."""
    records = []
    for attempt in range(_MOST_DRAWS):
        request = draw(seed, number, attempt)
        outcome = run_request(command, request)
        before = run_request(other, request) if other else None
        records.append(Record(f"{number}.{attempt}", request, outcome, before))
        if not outcome.refused or (before and not before.refused):
            return records
    failure = Outcome(failure=f"is refused, and so are the {_MOST_DRAWS - 1} before it: nothing was compiled")
    return [*records[:-1], dataclasses.replace(records[-1], outcome=failure)]


def _in_parallel(count: int, work) -> list[Record]:
    """The records of work(0) … work(count - 1), in that order; a line of progress on a terminal."""
    records = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for done, some in enumerate(pool.map(work, range(count)), 1):
            records += some
            if sys.stderr.isatty():
                print(f"\r{done} of {count}", end="\n" if done == count else "", file=sys.stderr)
    return records


def record_all(command: str, seed: int, count: int, other: str | None = None) -> list[Record]:
    return _in_parallel(count, lambda number: _draw_records(command, other, seed, number))


def repeat_all(command: str, saved: list[Record]) -> list[Record]:
    """The saved requests again; the saved outcome becomes `other`."""

    def repeat(number: int) -> list[Record]:
        before = saved[number]
        return [dataclasses.replace(before, outcome=run_request(command, before.request), other=before.outcome)]

    return _in_parallel(len(saved), repeat)


def write_records(file: pathlib.Path, seed: int, records: list[Record]) -> None:
    def shown(record: Record) -> dict:
        return {key: value for key, value in dataclasses.asdict(record).items() if key != "other"}

    lines = ",\n".join(json.dumps(shown(record)) for record in records)
    file.write_text(f'{{"format": 1, "seed": {seed}, "records": [\n{lines}\n]}}\n')


def read_records(file: pathlib.Path) -> list[Record]:
    held = json.loads(file.read_text())
    if held["format"] != 1:
        raise ValueError(f"{file} is of format {held['format']}, and this program reads format 1")
    return [
        Record(one["name"], Request(**{k: tuple(v) for k, v in one["request"].items()}), Outcome(**one["outcome"]))
        for one in held["records"]
    ]


# ---- what is said ----


def differences(record: Record) -> list[str]:
    """Between the two outcomes of a record, a line each."""
    now, before = record.outcome, record.other
    assert before is not None
    if (now.refused, now.failure == "") != (before.refused, before.failure == ""):
        return [f"{now.describe()}; before, it {before.describe()}"]
    found = []
    for kind in sorted(now.sections.keys() | before.sections.keys()):
        new = collections.Counter(now.sections.get(kind, []))
        old = collections.Counter(before.sections.get(kind, []))
        if new != old:
            sizes = [sorted(int(one.partition(":")[0]) for one in (some - rest).elements())
                     for some, rest in ((old, new), (new, old))]  # fmt: skip
            found.append(f"{kind}: {sum(new.values())} sections, of which {len(sizes[1])} differ; "
                         f"bytes {sizes[0]} before, {sizes[1]} now")  # fmt: skip
    if found and now.config != before.config:
        found.append(f"config before: {before.config}")
        found.append(f"config now:    {now.config}")
    return found


def _keep_layout(folder: pathlib.Path, record: Record) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{record.name}.txt"
    file.write_text("\n".join(record.request.layout) + "\n")
    return str(file)


def report(records: list[Record], command: str, keep: pathlib.Path | None) -> int:
    """Prints what failed and what differs, and the counts. The exit status."""
    compilers = {(record.outcome.compiler, record.other.compiler)
                 for record in records if record.other and record.outcome.compiler and record.other.compiler}  # fmt: skip
    for now, before in sorted(compilers):
        if now != before:
            print(f"the code was made by {before} before and by {now} now: only the same compiler makes the same code")
            return 2
    bad = 0
    for record in records:
        lines = differences(record) if record.other else []
        if record.outcome.failure and not lines:
            lines = [record.outcome.failure]
        if not lines:
            continue
        bad += 1
        keep = keep or pathlib.Path(tempfile.mkdtemp(prefix="sparsekiln-sections-"))
        print(f"problem {record.name}")
        for line in lines:
            print(f"  {line}")
        shown = compile_line(command, _keep_layout(keep, record), record.request, str(keep / record.name))
        print(f"  {shlex.join(shown)}")
    print_counts(records)
    compared = any(record.other for record in records)
    if compared or bad:
        print(f"{len(records) - bad} requests {'with the same outcome' if compared else 'done'}, {bad} not")
    return 1 if bad else 0


def print_counts(records: list[Record]) -> None:
    compiled = [record.request for record in records if record.outcome.sections]
    refused = sum(record.outcome.refused for record in records)
    print(f"{len(compiled)} problems compiled, {refused} requests refused")
    for option in ("--target", "--op", "--config", "--conv"):
        values = collections.Counter(re.split("[: =]", request.value(option) or "none")[0] for request in compiled)
        print(f"  {option}: " + ", ".join(f"{value} {count}" for value, count in sorted(values.items())))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="compares the machine code that sparsekiln commands make")
    parser.add_argument("--command", default="build/tools/sparsekiln", metavar="PATH")
    parser.add_argument("--count", type=int, default=200, help="problems to draw (200)")
    parser.add_argument("--seed", type=int, default=1, help="what they are drawn from (1)")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="folder for the layouts of what differs")
    parser.add_argument("--save", type=pathlib.Path, metavar="FILE", help="write requests and digests")
    against = parser.add_mutually_exclusive_group()
    against.add_argument("--against", type=pathlib.Path, metavar="FILE", help="compile its requests and compare")
    against.add_argument("--against-command", metavar="OTHER", help="compare with another command")
    given = parser.parse_args(arguments)
    if not (given.save or given.against or given.against_command):
        parser.error("nothing to do: give --save, --against or --against-command")
    if given.save and given.against:
        parser.error("--save keeps what was drawn, and --against draws nothing: give one of them")
    if given.count < 1:
        parser.error("--count is 1 or more")
    commands = [os.path.abspath(name) for name in (given.command, given.against_command) if name]
    for name in commands:
        if not os.access(name, os.X_OK):
            parser.error(f"{name} is not a program that can be run")
    try:
        saved = read_records(given.against) if given.against else []
    except (OSError, ValueError, KeyError, TypeError) as error:
        parser.error(f"{given.against} cannot be read: {error}")
    if given.against:
        records = repeat_all(commands[0], saved)
    else:
        records = record_all(commands[0], given.seed, given.count, *commands[1:])
    if given.save:
        write_records(given.save, given.seed, records)
    return report(records, commands[0], given.keep)


if __name__ == "__main__":
    sys.exit(main())
