"""What nvdisasm prints of a cubin: instructions, and of which kind each of them is."""

import dataclasses
import importlib.util
import pathlib
import re
import subprocess

import toolkit

ADVICE = (
    "nvdisasm is missing. It comes with a CUDA toolkit (in PATH, or under CUDA_HOME) and with PyPI's triton: "
    "`pip install triton` for the Python that runs this script, or name the program with --nvdisasm"
)

# Kinds of instructions, each with the opcodes without what follows their first dot. An opcode is of the first kind that fits.
_KINDS = {
    "tensor core": r"\w*MMA",
    "products": r"FFMA|FFMA2|FFMA32I|HFMA2|DFMA",
    "shared memory": r"LDS|LDSM|STS|STSM|ATOMS|LDSLK|STSCUL",
    "copies": r"LDGSTS|LDG|LD|LDL|STG|ST|STL|ATOMG|ATOM|RED|REDG|REDUX|UBLKCP|UBLKRED|UTMA\w+|CCTL\w*",
    "integer, address": r"U?IADD3?|U?IADD32I|V?IADD(MNMX)?|U?IMAD|U?LOP3|U?LOP|U?LEA|U?SHF|U?SHL|U?SHR|U?ISETP|U?IMNMX|VIMNMX3?|"
    r"U?SEL|U?PRMT|U?SGXT|U?BMSK|U?FLO|U?POPC|U?BREV|IABS|U?PLOP3|U?ISCADD|XMAD|IDP|U?VIADD|U?VIADDMNMX|U?VIMNMX",
    "constants": r"U?LDCU?|ULDC",
    "conversions": r"F2F|F2FP|F2I|F2IP|I2F|I2FP|I2I|I2IP|FRND|UF2FP",
    "barriers, waits": r"U?BAR|DEPBAR|LDGDEPBAR|LDTMDEPBAR|WARPSYNC|WARPGROUP|WARPGROUPSET|MEMBAR|ERRBAR|CGAERRBAR|SYNCS|ARRIVES|"
    r"UCGABAR_\w+|NANOSLEEP|YIELD|FENCE|ACQBULK|PREEXIT|ELECT|UTMACMDFLUSH|UTMACCTL|DEPENDENCY",
    "branches": r"BRA|BRX|BRXU|JMP|JMX|CALL|RET|EXIT|BSSY|BSYNC|BREAK|BMOV|BPT|KILL",
}
OTHER = "other"
KINDS = (*_KINDS, OTHER)
PRODUCTS = ("tensor core", "products")
_FITS = [(kind, re.compile(f"(?:{opcodes})$")) for kind, opcodes in _KINDS.items()]

_FUNCTION = re.compile(r"^\.text\.(\w+):")
_LABEL = re.compile(r"^(\.L_\w+):")
_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]+)\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)\s*(.*?)\s*;")
_TARGET = re.compile(r"`\((\.L_\w+)\)")
_ENCODING = re.compile(r"/\* 0x([0-9a-f]{16}) \*/\s*$")  # half of one: the lower on the instruction's line, the upper on the next


def find_nvdisasm(given: str | None) -> pathlib.Path | None:
    """The one that is given; else of PATH, a toolkit, or the triton package of this Python; None if there is none."""
    package = importlib.util.find_spec("triton")  # which is not imported
    places = package.submodule_search_locations or () if package else ()
    return toolkit.find("nvdisasm", given, [pathlib.Path(place) / "backends" / "nvidia" / "bin" for place in places])


@dataclasses.dataclass(frozen=True)
class Instruction:
    address: int
    opcode: str  # with what follows its dots
    operands: str
    target: int | None = None  # of a branch: an address
    predicated: bool = False
    may_fall_through: bool = True
    encoding: int | None = None  # 128 bits, where nvdisasm was asked for them

    @property
    def base(self) -> str:
        return self.opcode.partition(".")[0]

    @property
    def kind(self) -> str:
        if self.base == "HFMA2" and "RZ" in self.operands:  # how ptxas writes a constant to a register
            return OTHER
        # How ptxas of sm_90 rounds to tf32: unless |x| is Inf or NaN, it adds half of the last bit that is kept.
        if self.base == "FSETP" and "INF" in self.operands or self.opcode == "IMAD.IADD.U32" and self.predicated:
            return "conversions"
        return next((kind for kind, fits in _FITS if fits.match(self.base)), OTHER)


def functions(text: str) -> dict[str, list[Instruction]]:
    """By name, from what `nvdisasm -c` prints, also with -hex. The padding after the last instruction is left out."""
    found: dict[str, list[tuple[int, bool, str, str]]] = {}
    places: dict[tuple[str, str], int] = {}
    encodings: dict[tuple[str, int], int] = {}
    name, waiting, address = None, [], 0
    for line in text.splitlines():
        if name and (match := _ENCODING.search(line)) and line.lstrip().startswith("/* 0x"):
            encodings[name, address] |= int(match[1], 16) << 64
        elif match := _FUNCTION.match(line):
            name, waiting = match[1], []
            found[name] = []
        elif line.startswith("//-----"):
            name = None
        elif name and (match := _LABEL.match(line)):
            waiting.append(match[1])
        elif name and (match := _INSTRUCTION.match(line)):
            address = int(match[1], 16)
            places |= {(name, label): address for label in waiting}
            waiting = []
            found[name].append((address, bool(match[2]), match[3], match[4]))
            if half := _ENCODING.search(line):
                encodings[name, address] = int(half[1], 16)
    result = {}
    for name, lines in found.items():
        instructions = []
        for address, predicated, opcode, operands in lines:
            label = _TARGET.search(operands) if opcode.startswith("BRA") else None
            ends = opcode.partition(".")[0] in ("BRA", "EXIT", "RET", "JMP") and not predicated
            if label and label[0] != operands:  # a condition among the operands
                ends = False
            target = places.get((name, label[1])) if label else None
            encoding = encodings.get((name, address))
            instructions.append(Instruction(address, opcode, operands, target, predicated, not ends, encoding))
        while instructions and (instructions[-1].opcode == "NOP" or instructions[-1].target == instructions[-1].address):
            instructions.pop()
        result[name] = instructions
    return result


def disassemble(nvdisasm: pathlib.Path, cubin: pathlib.Path, *, encodings: bool = False) -> dict[str, list[Instruction]]:
    more = ["-hex"] if encodings else []
    done = subprocess.run([nvdisasm, "-c", cubin, *more], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{nvdisasm} {cubin}: exit status {done.returncode}: {done.stderr.strip()}")
    found = functions(done.stdout)
    if not any(found.values()):
        raise SystemExit(f"{nvdisasm} {cubin}: no instructions were found in what it prints")
    return found
