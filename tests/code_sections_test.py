"""code_sections.py tells changed machine code from changed names, and draws the same requests from the same seed."""

import contextlib
import io
import json
import pathlib
import struct
import sys
import tempfile
import textwrap
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import code_sections  # noqa: E402

_LOADED, _LOADED_CODE = 2, 6  # sh_flags
_CODE = b"\x90\x90\x90\x90\x0f\x05\xc3\x90"


def elf(sections: list[tuple], symbol: str = "kernel", value: int = 0) -> bytes:
    """An ELF64 file of `sections` (name, type, flags, info, bytes), numbered from 1, and after them a table of symbols:
    symbol 1 is `symbol` at `value` of section 2, symbol 2 is not defined and is called memcpy."""
    strings = b"\0" + symbol.encode() + b"\0memcpy\0"
    symbols = bytes(24) + struct.pack("<IBBHQQ", 1, 0x12, 0, 2, value, 4)
    symbols += struct.pack("<IBBHQQ", 2 + len(symbol), 0x10, 0, 0, 0, 0)
    whole = [("", 0, 0, 0, b""), *sections, (".symtab", 2, 0, 0, symbols), (".strtab", 3, 0, 0, strings)]
    names = b"".join(section[0].encode() + b"\0" for section in whole) + b".shstrtab\0"
    whole.append((".shstrtab", 3, 0, 0, names))
    table_of_symbols = len(sections) + 1
    body, headers, at = b"", b"", 0
    for name, kind, flags, info, data in whole:
        link = {2: table_of_symbols + 1, 4: table_of_symbols}.get(kind, 0)
        headers += struct.pack("<IIQQQQIIQQ", at, kind, flags, 0, 64 + len(body), len(data), link, info, 1, 0)
        at += len(name) + 1
        body += data
    start = b"\x7fELF\x02\x01\x01" + bytes(9)
    start += struct.pack("<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, len(whole), len(whole) - 1)
    return start + body + headers


def kernel(code: bytes = _CODE, data: bytes = b"table123", symbol: str = "kernel", value: int = 0, addend: int = -4,
           to: int = 1, extra: tuple = ()) -> bytes:  # fmt: skip
    """Code in a section with the symbol's name, a relocation of it to symbol number `to`, and data."""
    relocation = struct.pack("<QQq", 2, to << 32 | 2, addend)
    return elf(
        [(".text." + symbol, 1, _LOADED_CODE, 0, code), (".rodata", 1, _LOADED, 0, data),
         (".rela.text." + symbol, 4, 0, 1, relocation), *extra],
        symbol, value,
    )  # fmt: skip


class Sections(unittest.TestCase):
    def changed(self, binary: bytes) -> list[str]:
        """The kinds of sections in which `binary` differs from kernel()."""
        before, now = code_sections.code_sections(kernel()), code_sections.code_sections(binary)
        return sorted(kind for kind in before.keys() | now.keys() if before.get(kind) != now.get(kind))

    def test_code_and_data_are_found_by_kind(self):
        self.assertEqual(list(code_sections.code_sections(kernel())), [".rodata", ".text"])

    def test_one_byte_of_code_is_a_difference(self):
        for at in range(len(_CODE)):
            code = bytearray(_CODE)
            code[at] ^= 1
            self.assertEqual(self.changed(kernel(code=bytes(code))), [".text"])

    def test_one_byte_of_data_is_a_difference(self):
        self.assertIn(".rodata", self.changed(kernel(data=b"table124")))

    def test_another_name_of_a_symbol_and_of_its_section_is_none(self):
        self.assertEqual(self.changed(kernel(symbol="another_and_longer_name")), [])

    def test_a_relocation_to_another_place_is_a_difference(self):
        self.assertEqual(self.changed(kernel(addend=0)), [".text"])
        self.assertEqual(self.changed(kernel(value=4)), [".text"])
        self.assertEqual(self.changed(kernel(to=2)), [".text"])

    def test_what_is_not_loaded_does_not_count(self):
        self.assertEqual(self.changed(kernel(extra=((".debug_str", 1, 0, 0, b"kernel.cu"),))), [])

    def test_the_size_of_shared_memory_counts_although_the_file_holds_none_of_it(self):
        shared = [kernel(extra=((".nv.shared.kernel", 8, _LOADED, 0, bytes(size)),)) for size in (16, 32)]
        one, other = (code_sections.code_sections(binary)[".nv.shared"] for binary in shared)
        self.assertNotEqual(one, other)

    def test_the_registers_of_a_kernel_count_and_the_number_of_its_symbol_does_not(self):
        def info(symbol: int, registers: int) -> list[str]:
            attribute = struct.pack("<BBHII", 4, 0x2F, 8, symbol, registers)
            extra = ((".nv.info", 0x70000000, 0, 0, attribute),)
            return code_sections.code_sections(kernel(extra=extra))[".nv.info"]

        self.assertEqual(info(5, 128), info(6, 128))
        self.assertNotEqual(info(5, 128), info(5, 129))

    def test_a_file_that_is_no_elf64_is_an_error(self):
        with self.assertRaises(ValueError):
            code_sections.code_sections(b"\x7fELF\x01" + bytes(100))


class Drawing(unittest.TestCase):
    def test_a_seed_gives_the_same_requests_each_time(self):
        for number in range(60):
            for attempt in (0, 3):
                self.assertEqual(code_sections.draw(7, number, attempt), code_sections.draw(7, number, attempt))

    def test_seeds_problems_and_attempts_give_requests_of_their_own(self):
        drawn = [code_sections.draw(*place) for place in ((1, 0, 0), (2, 0, 0), (1, 27, 0), (1, 0, 1))]
        self.assertEqual(len(set(drawn)), 4)

    def test_the_first_problems_have_every_target_with_every_operation(self):
        requests = [code_sections.draw(1, number, 1) for number in range(27)]
        drawn = {(one.value("--target").partition(":")[0], one.value("--op")) for one in requests}
        self.assertEqual(len(drawn), 27)

    def test_every_variant_is_pinned_in_two_hundred_problems(self):
        configs = [code_sections.draw(1, number, 1).value("--config") or "" for number in range(200)]
        every = {"", "direct", "grouped", "halo", "mma", "simt", "stream", "vector", "wgmma", "wgmma_rows"}
        self.assertEqual({one.partition(" ")[0] for one in configs}, every)


class Comparison(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="sparsekiln-sections-test-")
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.saved = self.folder / "saved.json"

    def command(self, name: str, refuses: str = "batch 0", compiler: str = "LLVM 19", **binary) -> str:
        """A program that answers like sparsekiln: it refuses requests whose arguments contain `refuses`."""
        (self.folder / f"{name}.o").write_bytes(kernel(**binary))
        file = self.folder / name
        file.write_text(f"#!{sys.executable} -IS\n" + textwrap.dedent(f"""\
            import os, sys
            if {refuses!r} in " ".join(sys.argv):
                sys.exit(2)
            output = sys.argv[sys.argv.index("-o") + 1]
            os.mkdir(output)
            with open({str(self.folder / name)!r} + ".o", "rb") as made, open(output + "/kernel.o", "wb") as to:
                to.write(made.read())
            print('{{"compiler": "{compiler}", "config": "some"}}')
        """))  # fmt: skip
        file.chmod(0o755)
        return str(file)

    def run_main(self, *arguments: str) -> tuple[int, str]:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            status = code_sections.main([*arguments, "--keep", str(self.folder / "keep")])
        return status, said.getvalue()

    def save(self, command: str) -> None:
        status, said = self.run_main("--command", command, "--count", "3", "--save", str(self.saved))
        self.assertEqual(status, 0, said)

    def test_a_command_equals_what_it_saved(self):
        command = self.command("before", refuses="--gate")
        self.save(command)
        self.assertEqual(self.run_main("--command", command, "--against", str(self.saved))[0], 0)

    def test_another_command_with_other_names_equals_what_was_saved(self):
        self.save(self.command("before"))
        renamed = self.command("renamed", symbol="product")
        self.assertEqual(self.run_main("--command", renamed, "--against", str(self.saved))[0], 0)

    def test_changed_code_is_named_with_its_section_and_the_command_that_reproduces_it(self):
        self.save(self.command("before"))
        now = self.command("now", code=_CODE[::-1])
        status, said = self.run_main("--command", now, "--against", str(self.saved))
        self.assertEqual(status, 1)
        layout = self.folder / "keep" / "0.0.txt"
        self.assertIn("problem 0.0\n  .text: 1 sections, of which 1 differ; bytes [8] before, [8] now\n", said)
        self.assertIn(f"  {now} compile {layout} --op ", said)
        self.assertEqual(tuple(layout.read_text().split()), code_sections.draw(1, 0, 0).layout)

    def test_two_commands_are_compared_in_one_run(self):
        one, other = self.command("one"), self.command("other", data=b"another ")
        self.assertEqual(self.run_main("--command", one, "--count", "2", "--against-command", one)[0], 0)
        status, said = self.run_main("--command", one, "--count", "2", "--against-command", other)
        self.assertEqual(status, 1)
        self.assertIn(".rodata", said)

    def test_a_request_that_only_one_of_them_refuses_is_a_difference(self):
        self.save(self.command("before"))
        now = self.command("now", refuses="--op forward")
        status, said = self.run_main("--command", now, "--against", str(self.saved))
        self.assertEqual(status, 1)
        self.assertIn("is refused; before, it compiles", said)

    def test_drawing_ends_where_only_one_of_two_commands_refuses(self):
        one, other = self.command("one", refuses="--op"), self.command("other")
        status, said = self.run_main("--command", one, "--count", "2", "--against-command", other)
        self.assertEqual(status, 1)
        self.assertEqual([line for line in said.splitlines() if line.startswith("problem")], ["problem 0.0", "problem 1.0"])

    def test_refused_requests_are_saved_and_drawn_again(self):
        self.save(self.command("before", refuses="--dtype f32"))
        records = json.loads(self.saved.read_text())["records"]
        refused = [one for one in records if one["outcome"]["refused"]]
        self.assertGreater(len(refused), 0)
        self.assertTrue(all("f32" in one["request"]["arguments"] for one in refused))
        self.assertEqual(sum(bool(one["outcome"]["sections"]) for one in records), 3)

    def test_a_compile_that_fails_is_no_baseline(self):
        broken = self.folder / "broken"
        broken.write_text("#!/bin/sh\necho no NVRTC >&2\nexit 1\n")
        broken.chmod(0o755)
        status, said = self.run_main("--command", str(broken), "--count", "1", "--save", str(self.saved))
        self.assertEqual(status, 1)
        self.assertIn("fails with exit status 1: no NVRTC", said)

    def test_another_compiler_is_no_comparison(self):
        self.save(self.command("before"))
        now = self.command("now", compiler="LLVM 20")
        status, said = self.run_main("--command", now, "--against", str(self.saved))
        self.assertEqual(status, 2)
        self.assertIn("LLVM 19 before and by LLVM 20 now", said)

    def test_what_was_saved_reads_back(self):
        self.save(self.command("before"))
        for record in code_sections.read_records(self.saved):
            number, attempt = map(int, record.name.split("."))
            self.assertEqual(record.request, code_sections.draw(1, number, attempt))
            made = code_sections.Outcome(
                compiler="LLVM 19", config="some", sections=code_sections.code_sections(kernel())
            )
            self.assertEqual(record.outcome, made)


if __name__ == "__main__":
    unittest.main()
