"""What --json promises: one document on standard output, with the keys that scripts rely on; and the help texts."""

import re
import unittest

from command import CommandTest, compilable_targets

_COMPILE_KEYS = {"ok", "file", "from", "compile_ms", "key", "config", "resources", "target", "log", "operation"}
_COMPILE_KEYS |= {"in_features", "out_features", "blocks", "block", "batch", "dtype", "out_dtype", "compiler", "source"}
_RESOURCE_KEYS = {"registers", "shared_bytes", "spill_store_bytes", "code_bytes", "up_to", "workers", "passes"}
_COMMANDS = [[], ["layout"], ["layout", "make"], ["layout", "show"], ["layout", "mix"], ["compile"], ["run"], ["precompile"]]
_COMMANDS += [["pack"], ["pack", "list"], ["pack", "verify"], ["pack", "merge"], ["pack", "extract"], ["report"], ["doctor"]]


class JsonTest(CommandTest):
    def test_compile_answers_with_every_key_for_every_target(self):
        self.make("random", "--rows", 4, "--cols", 6, "--density", 0.5)
        for target in compilable_targets():
            with self.subTest(target):
                answer = self.answer("compile", "L.npy", "--block", "8x32", "--batch", 16, "--target", target)
                self.assertLessEqual(_COMPILE_KEYS, set(answer))
                self.assertEqual((answer["in_features"], answer["out_features"], answer["blocks"]), (192, 32, 12))
                self.assertEqual((answer["block"], answer["batch"], answer["dtype"]), ("8x32", "16", "f32"))
                self.assertRegex(answer["key"], r"^[0-9a-f]{32}$")
                self.assertGreater(answer["compile_ms"], 0)
                for entry in answer["resources"]:
                    self.assertLessEqual(_RESOURCE_KEYS, set(entry))
                    self.assertGreater(entry["code_bytes"], 0)
                    if target != "cpu":
                        self.assertGreater(entry["registers"], 0)

    def test_doctor_names_every_part(self):
        answer = self.answer("doctor")
        self.assertRegex(answer["version"], r"^\d+\.\d+\.\d+$")
        self.assertRegex(answer["compiler_digest"], r"^[0-9a-f]{64}$")
        self.assertLessEqual({"cuda_driver", "nvrtc", "cpu", "cache"}, set(answer))
        for part in ("cuda_driver", "nvrtc", "cpu"):
            self.assertTrue(answer[part]["found"] or answer[part]["why"])
        self.assertEqual(answer["cache"]["folder"], str(self.cache))
        self.assertIs(answer["cache"]["usable"], True)
        self.assertEqual(sorted(self.cache.parent.iterdir()), [self.folder], "doctor makes no folder")

    def test_doctor_says_why_a_cache_cannot_be_used(self):
        self.write("plain", "not a folder")
        answer = self.answer("doctor", SPARSEKILN_CACHE_DIR=str(self.folder / "plain"))
        self.assertIs(answer["cache"]["usable"], False)
        self.assertIn("plain", answer["cache"]["why"])

    def test_doctor_names_the_packs_of_the_environment_and_what_is_wrong_with_them(self):
        self.write("bad.pack", "not a pack")
        answer = self.answer("doctor", SPARSEKILN_PACKS="bad.pack")
        self.assertIs(answer["packs"]["usable"], False)
        self.assertIn("bad.pack", answer["packs"]["why"])
        self.assertIs(self.answer("doctor", SPARSEKILN_PACKS=None)["packs"]["usable"], True)

    def test_a_file_name_that_is_no_text_does_not_break_the_document(self):
        self.make("causal", "--size", 4, file="L.npy")
        (self.folder / "L.npy").rename(self.folder / b"\xff.npy".decode(errors="surrogateescape"))
        answer = self.answer("layout", "show", b"\xff.npy".decode(errors="surrogateescape"))
        self.assertEqual(answer["blocks"], 10)


class HelpTest(CommandTest):
    def test_every_command_explains_itself_and_its_options(self):
        for command in _COMMANDS:
            with self.subTest(" ".join(command)):
                result = self.succeed(*command, "--help")
                self.assertEqual(result.err, "")
                self.assertIn("sparsekiln" if not command else command[-1], result.out)
                for option in re.findall(r"^ +(--?[a-z][^ ]*)(.*)$", result.out, re.MULTILINE):
                    self.assertRegex(option[1] or " explained below", r"[a-z]", f"{option[0]} is not explained")

    def test_make_names_every_pattern_and_the_commands_name_every_subcommand(self):
        text = self.succeed("layout", "make", "--help").out
        for pattern in ("watts-strogatz", "barabasi-albert", "bigbird", "butterfly"):
            self.assertIn(pattern, text)
        text = self.succeed("--help").out
        for command in ("layout", "compile", "run", "doctor"):
            self.assertIn(command, text)

    def test_the_version_is_the_one_doctor_says(self):
        self.assertEqual(self.succeed("--version").out.split()[-1], self.answer("doctor")["version"])


if __name__ == "__main__":
    unittest.main()
