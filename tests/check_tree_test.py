"""What check_tree.py says of kinds of targets, circles of includes, and functions that replace others."""

import unittest

import check_tree


def found(texts: dict[str, str]) -> list[str]:
    return list(check_tree.circles(texts))


class Kinds(unittest.TestCase):
    def test_only_backends_ask_which_kind_a_target_is(self):
        line = "  if (target.kind == Target::Kind::cuda) return;\n"
        for file, count in (("runtime/build.cpp", 1), ("tools/run.cpp", 1), ("autotune/cuda/backend.cpp", 0), ("tests/kernels/suite.cpp", 0)):
            self.assertEqual(len(list(check_tree.findings(file, line))), count, file)
        self.assertEqual(list(check_tree.findings("runtime/driver_choice.h", "DriverKind kind = DriverKind::cuda;\n")), [])


class Circles(unittest.TestCase):
    def test_files_that_include_one_another_in_one_direction_are_no_circle(self):
        self.assertEqual(found({
            "runtime/build.h": '#include "runtime/job.h"\n#include <vector>\n',
            "runtime/build.cpp": '#include "runtime/build.h"\n#include "runtime/tune.h"\n',
            "runtime/tune.h": '#include "runtime/job.h"\n',
            "runtime/job.h": "",
        }), [])  # fmt: skip

    def test_a_header_that_a_source_file_includes_makes_a_circle_with_the_header_beside_it(self):
        self.assertEqual(found({
            "runtime/build.h": "#pragma once\n",
            "runtime/build.cpp": '#include "runtime/build.h"\n#include "runtime/tune.h"\n',
            "runtime/tune.h": '#include "runtime/build.h"\n',
        }), ["runtime/build.cpp:2: files include one another in a circle: runtime/build → runtime/tune → runtime/build"])  # fmt: skip

    def test_a_circle_through_several_files_is_spelled_out(self):
        (finding,) = found({
            "a/one.h": '#include "a/two.h"\n', "a/two.h": '#include "a/three.h"\n', "a/three.h": '#include "a/one.h"\n',
        })  # fmt: skip
        self.assertEqual(
            finding, "a/one.h:1: files include one another in a circle: a/one → a/two → a/three → a/one"
        )

    def test_circles_that_share_files_are_one_finding_that_counts_them(self):
        (finding,) = found({
            "a/one.h": '#include "a/two.h"\n', "a/two.h": '#include "a/one.h"\n#include "a/three.h"\n',
            "a/three.h": '#include "a/two.h"\n',
        })  # fmt: skip
        self.assertIn("a/one → a/two → a/one, in a knot of 3 files", finding)

    def test_circles_that_share_nothing_are_a_finding_each(self):
        texts = {f"{module}/{file}.h": f'#include "{module}/{other}.h"\n' for module in "ab" for file, other in ("xy", "yx")}
        self.assertEqual([finding.split(":")[0] for finding in found(texts)], ["a/x.h", "b/x.h"])

    def test_a_public_header_is_apart_from_the_file_that_implements_it(self):
        self.assertEqual(found({
            "include/sparsekiln/binary.h": "",
            "compiler/binary.cpp": '#include <sparsekiln/binary.h>\n#include "compiler/bytes.h"\n',
            "compiler/bytes.h": "#include <sparsekiln/binary.h>\n",
        }), [])  # fmt: skip

    def test_public_headers_that_include_one_another_are_a_circle(self):
        self.assertEqual(len(found({
            "include/sparsekiln/a.h": "#include <sparsekiln/b.h>\n", "include/sparsekiln/b.h": "#include <sparsekiln/a.h>\n",
        })), 1)  # fmt: skip

    def test_device_code_is_looked_at_too_and_includes_are_found_beside_the_file(self):
        self.assertEqual(len(found({
            "templates/walk.cuh": '#include "tile.cuh"\n', "templates/tile.cuh": '#include "walk.cuh"\n',
        })), 1)  # fmt: skip

    def test_headers_that_are_not_in_the_tree_are_no_part_of_it(self):
        self.assertEqual(found({"a/b.h": '#include "generated.h"\n#include <string>\n'}), [])


class Overwritten(unittest.TestCase):
    def test_a_test_that_another_one_replaces_is_named(self):
        text = "def test_a(): ...\ndef test_b(): ...\ndef test_a(): ...\ndef _(): ...\ndef _(): ...\n"
        self.assertEqual(
            list(check_tree.overwritten("a.py", text)), ["a.py:3: test_a is defined above, too; only this one remains"]
        )


if __name__ == "__main__":
    unittest.main()
