"""Which changes of the compiler's sources make stored kernels those of another compiler."""

import pathlib
import shutil
import sys
import tempfile
import unittest

_ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(_ROOT / "compiler"))
sys.dont_write_bytecode = True

import cpp_tokens  # noqa: E402
import digest_sources  # noqa: E402


class Tokens(unittest.TestCase):
    def same(self, one, other):
        self.assertEqual(list(cpp_tokens.tokens(one)), list(cpp_tokens.tokens(other)), (one, other))

    def differ(self, one, other):
        self.assertNotEqual(list(cpp_tokens.tokens(one)), list(cpp_tokens.tokens(other)), (one, other))

    def test_comments_and_layout_do_not_count(self):
        self.same("int a = 1;  // one\n", "/* the\n first */ int a\n    = 1;")
        self.same("f(a, b);", "f(\n  a,  // of x\n  b);\n\n")
        self.same("#define A 1  // as ever\nint b;", "#define A   1\n\n\nint b;")
        self.same("x // goes on \\\n here\n+ y", "x + y")

    def test_tokens_do(self):
        self.differ("a + +b", "a ++b")
        self.differ("a > > b", "a >> b")
        self.differ("int ab;", "int a b;")
        self.differ("1'000", "1000")
        self.differ("u8\"a\"", "u8 \"a\"")

    def test_what_looks_like_a_comment_in_a_text_is_none(self):
        self.differ('"a // b"', '"a // c"')
        self.differ('"\\" /* a */"', '"\\" /* b */"')
        self.differ('R"x(a /* " )" */)x" b', 'R"x(a /* " )" )x" b')
        self.differ("'\"' // a\n b", "'\"' // a\n c")
        self.same('R"(// a)" // b', 'R"(// a)" // c')
        self.differ('R"(a\n  b)"', 'R"(a\nb)"')

    def test_a_directive_ends_with_its_line(self):
        self.differ("#define A\nB", "#define A B")
        self.differ("#define A(x) x", "#define A (x) x")
        self.differ("#define A(x) x", "#define A/**/(x) x")
        self.same("#define A(x) (x)", "#  define A(x)  (x)")
        self.differ("#include <a//b>\n", "#include <a//c>\n")

    def test_without_comments_a_compiler_reads_the_same_tokens(self):
        self.assertEqual(cpp_tokens.without_comments("// a\n\nint a; // b\n  /* c\n d */ int b;\n"), "int a;\n    int b;\n")
        self.assertEqual(cpp_tokens.without_comments('f("// a"); /* b */ g();'), 'f("// a");   g();\n')
        for file in sorted((_ROOT / "templates").glob("*.cuh")):
            text = file.read_text()
            short = cpp_tokens.without_comments(text)
            self.assertNotIn("//", short, file)
            self.same(short, text)

    def test_nothing_of_a_source_is_lost(self):
        for file in digest_sources.counted(_ROOT):
            text = file.read_text()
            self.assertEqual("".join(spelling for _, spelling in cpp_tokens.pieces(text)), text, file)


class Files(unittest.TestCase):
    """On a copy of the sources, changed."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        for folder in digest_sources.FOLDERS:
            shutil.copytree(_ROOT / folder, self.folder / folder)

    def written(self):
        output = self.folder / "compiler_digest.cpp"
        digest_sources.main(str(output), str(self.folder), str(self.folder / "depfile"))
        return output.read_text()

    def change(self, name, old, new):
        file = self.folder / name
        text = file.read_text()
        self.assertIn(old, text)
        file.write_text(text.replace(old, new, 1))

    def test_a_changed_comment_is_a_hit_and_a_changed_token_a_miss(self):
        for name in ("templates/spmm.cuh", "compiler/schedule.cpp", "include/sparsekiln/config.h"):
            with self.subTest(name):
                before = self.written()
                self.change(name, "\n", "\n// Said in other words.\n")
                self.assertEqual(self.written(), before)
                self.change(name, "{", "{ ;")
                self.assertNotEqual(self.written(), before)

    def test_a_new_file_counts_and_what_the_tuner_knows_does_not(self):
        before = self.written()
        self.change("compiler/cuda/mma_tuning.cpp", "{", "{ ;")
        self.change("compiler/layout_file/npy.cpp", "{", "{ ;")
        self.assertEqual(self.written(), before)
        (self.folder / "compiler/cuda/new.cpp").write_text("int a;\n")
        after = self.written()
        self.assertNotEqual(after, before)
        (self.folder / "compiler/cuda/new.cpp").rename(self.folder / "compiler/cuda/newer.cpp")
        self.assertNotEqual(self.written(), after)
        self.assertIn("newer.cpp", (self.folder / "depfile").read_text())

    def test_what_is_left_out_and_not_there_is_said(self):
        (self.folder / "compiler/tap_file.h").unlink()
        (self.folder / "compiler/tap_file.cpp").unlink()
        with self.assertRaisesRegex(ValueError, "tap_file"):
            self.written()


if __name__ == "__main__":
    unittest.main()
