"""The tests' NVRTC gives what the real one gave, to those who ask with the same source, options and name."""

import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

_LIBRARY, _TOOL = os.environ["TEST_MEMO"], os.environ["TEST_TOOL"]
_KERNEL = 'extern "C" __global__ void f(float* y) { y[threadIdx.x] = 2; }'


def real_nvrtc():
    """Its path; None where there is none."""
    own = {name: value for name, value in os.environ.items() if name != "SPARSEKILN_NVRTC"}
    if os.environ.get("SPARSEKILN_MEMO_NVRTC"):  # tests/run.py has looked already
        return os.environ["SPARSEKILN_MEMO_NVRTC"]
    said = subprocess.run([_TOOL, "doctor", "--json"], capture_output=True, text=True, env=own).stdout
    return json.loads(said)["nvrtc"].get("path")


def compile_here(source, arch):
    """Status, log, PTX and cubin, as NVRTC's C interface gives them."""
    nvrtc = ctypes.CDLL(_LIBRARY)
    program = ctypes.c_void_p()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"/f.cu", 0, None, None) == 0
    options = (ctypes.c_char_p * 1)(f"--gpu-architecture={arch}".encode())
    status = nvrtc.nvrtcCompileProgram(program, 1, options)
    given = [status]
    for what in ("ProgramLog", "PTX", "CUBIN") if status == 0 else ("ProgramLog",):
        size = ctypes.c_size_t()
        assert getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)) == 0
        text = ctypes.create_string_buffer(size.value)
        assert getattr(nvrtc, f"nvrtcGet{what}")(program, text) == 0
        given.append(text.raw.hex())
    assert nvrtc.nvrtcDestroyProgram(ctypes.byref(program)) == 0 and not program
    return given


@unittest.skipUnless(real_nvrtc(), "no NVRTC here")
class Memo(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.memo = self.folder / "memo"
        self.memo.mkdir()

    def compile(self, *sources, arch="sm_80", memo=True):
        """What a process of its own is given for each source, and how many of them it remembered."""
        times = self.folder / "times"
        times.write_text("")
        environment = {**os.environ, "SPARSEKILN_MEMO": str(self.memo) if memo else "", "SPARSEKILN_TIMES": str(times),
                       "SPARSEKILN_MEMO_NVRTC": real_nvrtc()}  # fmt: skip
        done = subprocess.run([sys.executable, __file__, "--compile", arch, *sources], capture_output=True, text=True, env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout), times.read_text().count("remembered ")

    def test_a_second_process_is_given_what_the_first_was(self):
        real, remembered = self.compile(_KERNEL, memo=False)
        self.assertEqual((real[0][0], remembered, list(self.memo.iterdir())), (0, 0, []))
        self.assertEqual(self.compile(_KERNEL), (real, 0))
        self.assertEqual(self.compile(_KERNEL), (real, 1))

    def test_another_source_or_option_is_compiled(self):
        self.compile(_KERNEL)
        self.assertEqual(self.compile(_KERNEL.replace("2", "3"))[1], 0)
        self.assertEqual(self.compile(_KERNEL, arch="sm_90")[1], 0)

    def test_what_a_process_asks_for_again_is_compiled(self):
        self.compile(_KERNEL)
        given, remembered = self.compile(_KERNEL, _KERNEL)
        self.assertEqual((given[0], remembered), (given[1], 1))

    def test_a_refusal_is_not_remembered(self):
        first, _ = self.compile("no kernel")
        self.assertEqual(first[0][0], 6)
        self.assertIn(b"error", bytes.fromhex(first[0][1]))
        self.assertEqual(self.compile("no kernel"), (first, 0))

    def test_a_file_that_is_cut_off_or_damaged_is_not_believed(self):
        real, _ = self.compile(_KERNEL)
        (file,) = self.memo.iterdir()
        whole = file.read_bytes()
        file.write_bytes(whole[:-1])
        self.assertEqual(self.compile(_KERNEL), (real, 0))
        file.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
        self.assertEqual(self.compile(_KERNEL), (real, 0))
        self.assertEqual(self.compile(_KERNEL), (real, 1))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--compile"]:
        print(json.dumps([compile_here(source, sys.argv[2]) for source in sys.argv[3:]]))
    else:
        unittest.main()
