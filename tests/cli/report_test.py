"""`sparsekiln report`: what it says of tuning records, in the terminal, as JSON and as CSV, and how two sets compare."""

import csv
import io
import unittest

import tuning_records as made
from command import CommandTest

_FAILED, _NO_SENSE = 1, 2


class ReportTest(CommandTest):
    def records(self, *records: dict, file: str = "R.jsonl") -> str:
        return self.write(file, made.lines(*records))

    def problem(self, *records: dict) -> dict:
        (problem,) = self.answer("report", self.records(*records))["problems"]
        return problem

    def test_a_problem_has_its_best_and_its_default_with_their_times(self):
        problem = self.problem(made.record())
        self.assertEqual(problem["problem"]["operation"], "forward")
        self.assertEqual(problem["best"]["config"], made.config(32))
        self.assertAlmostEqual(problem["best"]["median_us"], 100)
        self.assertAlmostEqual(problem["best"]["p20_us"], 99.7)
        self.assertAlmostEqual(problem["best"]["p80_us"], 100.3)
        self.assertIs(problem["best"]["measured"], True)
        self.assertEqual(problem["default"]["config"], made.config(64))
        self.assertAlmostEqual(problem["default"]["median_us"], 150)
        self.assertAlmostEqual(problem["speedup"], 1.5)
        self.assertAlmostEqual(problem["margin"], 0.5)
        self.assertIs(problem["tie"], False)
        self.assertEqual(problem["floor_us"], 50)
        self.assertAlmostEqual(problem["floor_share"], 0.5)
        self.assertEqual(problem["environment"]["device"], "A device")

    def test_candidates_are_counted_with_their_reasons(self):
        candidates = self.problem(made.record())["candidates"]
        self.assertEqual({key: candidates[key] for key in ("tried", "failed", "pruned", "untried")},
                         {"tried": 3, "failed": 1, "pruned": 1201, "untried": 1})  # fmt: skip
        self.assertEqual(candidates["why_pruned"][0], {"reason": "shared memory: 70000 bytes of 49152", "count": 1200})
        self.assertEqual(candidates["why_pruned"][1], {"reason": "the same code as an earlier candidate", "count": 1})
        self.assertEqual(candidates["why_failed"], [{"reason": "wrong: y[3, 5] is 1, not 2", "count": 1}])

    def test_dense_is_what_the_peak_allows_the_same_shape(self):
        problem = self.problem(made.record())
        flops, bytes_ = 2 * 2560 * 2560 * 64, 2560 * 2560 * 4 + 2 * 2560 * 64 * 4
        self.assertAlmostEqual(problem["dense_us"], max(flops / 50000e3, bytes_ / 3000e3), places=6)
        self.assertAlmostEqual(problem["speedup_over_dense"], problem["dense_us"] / 100)

    def test_a_layer_that_is_cut_has_a_smaller_dense_product(self):
        whole = self.problem(made.record(peak={"gflops": 1, "gbytes": 3000, "measured": True}))
        cut = self.problem(made.record(features="1280x0", peak={"gflops": 1, "gbytes": 3000, "measured": True}))
        self.assertAlmostEqual(cut["dense_us"], whole["dense_us"] / 2)

    def test_modelled_times_are_called_modelled(self):
        contest = made.contest() | {"candidates": [made.candidate(64, "modelled", predicted_us=90)]}
        record = made.record(contests=[contest])
        problem = self.problem(record)
        self.assertIs(problem["best"]["measured"], False)
        self.assertEqual(problem["best"]["median_us"], 90)
        self.assertIsNone(problem["margin"])
        self.assertIn("modelled", self.succeed("report", "R.jsonl").out)

    def test_a_problem_without_times_says_so(self):
        contest = made.contest() | {"candidates": [made.candidate(64, "failed", reason="it hangs")]}
        problem = self.problem(made.record(contests=[contest]))
        self.assertIsNone(problem["best"])
        self.assertEqual((problem["default"]["config"], problem["default"]["median_us"]), (made.config(64), None))
        said = self.succeed("report", "R.jsonl").out
        self.assertIn("no candidate has a time", said)
        self.assertIn("it hangs", said)

    def test_a_tie_is_named(self):
        contest = made.contest(best=100, default=101)
        self.assertIs(self.problem(made.record(contests=[contest]))["tie"], True)
        self.assertIn("ties", self.succeed("report", "R.jsonl").out)

    def test_every_range_of_a_batch_is_a_problem(self):
        record = made.record(batch="up-to:256", contests=[made.contest(n=n) for n in (16, 256)])
        problems = self.answer("report", self.records(record))["problems"]
        self.assertEqual([problem["n"] for problem in problems], [16, 256])
        self.assertIn("batch up-to:256", problems[0]["title"])

    def test_the_terminal_has_what_the_document_has(self):
        said = self.succeed("report", self.records(made.record())).out
        for needle in ["forward, 80x80 blocks of 32x32, 25 % dense, batch 64, f32, sm_90:132, layout 00112233",
                       "A device, 132 workers", "1.500x as fast as the default", "margin to the second +50.0 %",
                       "50 % of it reached", "3 tried, 1 failed, 1201 pruned, 1 untried; compiled for 2.5 s",
                       "1200 pruned: shared memory", "measured", "peak published", made.config(32), "1 problem"]:  # fmt: skip
            self.assertIn(needle, said)

    def test_control_characters_do_not_reach_the_terminal(self):
        environment = made.record()["environment"] | {"device": "evil \x1b[31m\u009b31m\nname"}
        said = self.succeed("report", self.records(made.record(environment=environment))).out
        self.assertIn("evil \\x1b[31m\\xc2\\x9b31m\\x0aname", said)
        self.assertEqual([letter for letter in said if ord(letter) < 32 and letter != "\n"], [])

    def test_records_are_chosen_by_what_they_are_of(self):
        self.records(made.record(), made.record(operation="grad_input", dtype="f16", block="16x16"),
                     made.record(layout="ffff0000", target="x86-64-v3:2"))  # fmt: skip
        for arguments, count in [([], 3), (["--op", "grad_input"], 1), (["--dtype", "f16"], 1), (["--block", 16], 1),
                                 (["--block", "32x32"], 2), (["--layout", "ffff"], 1), (["--target", "cpu"], 1),
                                 (["--target", "sm_90"], 2), (["--target", "sm_9"], 0),
                                 (["--op", "forward", "--target", "x86-64-v3:2"], 1)]:  # fmt: skip
            with self.subTest(arguments):
                self.assertEqual(len(self.answer("report", "R.jsonl", *arguments)["problems"]), count)

    def test_files_are_read_one_after_another_and_blank_lines_passed_over(self):
        self.records(made.record())
        self.write("S.jsonl", "\n" + made.lines(made.record(dtype="f16")) + "  \r\n")
        problems = self.answer("report", "R.jsonl", "S.jsonl")["problems"]
        self.assertEqual([problem["problem"]["dtype"] for problem in problems], ["f32", "f16"])

    def test_without_records_it_says_how_to_make_them(self):
        self.assertEqual(self.answer("report")["problems"], [])
        said = self.succeed("report").out
        self.assertIn("sparsekiln tune", said)
        self.assertIn(str(self.cache), said)

    def test_a_store_that_is_none_is_refused(self):
        self.write("plain", "not a folder")
        self.assert_refused(_FAILED, ["report", "--cache-dir", "plain"], ["plain"])

    def test_csv_has_a_row_a_problem_and_is_quoted(self):
        environment = made.record()["environment"] | {"device": 'one "two", three'}
        self.records(made.record(environment=environment), made.record(dtype="f16"))
        written = self.succeed("report", "R.jsonl", "--csv", "-").out
        rows = list(csv.DictReader(io.StringIO(written, newline="")))
        self.assertEqual([row["device"] for row in rows], ['one "two", three', "A device"])
        self.assertEqual((rows[0]["best_config"], rows[0]["dtype"]), (made.config(32), "f32"))
        self.assertAlmostEqual(float(rows[0]["best_us"]), 100)
        self.assertAlmostEqual(float(rows[0]["speedup"]), 1.5)
        self.assertEqual((rows[0]["tried"], rows[0]["pruned"], rows[0]["tie"]), ("3", "1201", "false"))
        self.assertNotIn(None, rows[0], "as many cells as headings")
        self.answer("report", "R.jsonl", "--csv", "out.csv")
        self.assertEqual((self.folder / "out.csv").read_bytes().count(b"\r\n"), 3)

    def test_bad_records_are_refused_with_file_and_line(self):
        whole = made.lines(made.record())
        nameless = {key: value for key, value in made.record().items() if key != "environment"}
        for content, needles in [(whole + "{]\n", ["line 2"]), (whole + whole + made.lines(nameless), ["line 3", "environment"]),
                                 (made.lines(made.record(version=99)), ["line 1", "version"]),
                                 (made.lines(made.record(layout={})), ["line 1"])]:  # fmt: skip
            self.write("bad.jsonl", content)
            self.assert_refused(_NO_SENSE, ["report", "bad.jsonl"], ["bad.jsonl", *needles])
        self.assert_refused(_FAILED, ["report", "none.jsonl"], ["none.jsonl"])

    def test_senseless_requests_are_refused(self):
        self.records(made.record())
        for arguments, needle in [(["--op", "sideways"], "sideways"), (["--dtype", "f99"], "f99"), (["--block", "7"], "7"),
                                  (["--fail-on-regression"], "--compare"),
                                  (["--compare", "R.jsonl", "R.jsonl"], "--compare")]:  # fmt: skip
            self.assert_refused(_NO_SENSE, ["report", "R.jsonl", *arguments], [needle])
        self.assertEqual(self.run_tool("report", "R.jsonl", "--csv", "-", "--json").status, _NO_SENSE)
        self.assert_refused(_FAILED, ["report", "R.jsonl", "--html", "nowhere/page.html"], ["nowhere/page.html"])


class CompareTest(CommandTest):
    def sides(self, a: list[dict], b: list[dict]) -> list[str]:
        self.write("A.jsonl", made.lines(*a))
        self.write("B.jsonl", made.lines(*b))
        return ["report", "--compare", "A.jsonl", "B.jsonl"]

    def verdict(self, a: dict, b: dict) -> str:
        (pair,) = self.answer(*self.sides([made.record(contests=[a])], [made.record(contests=[b])]))["compared"]
        return pair["verdict"]

    def test_a_regression_is_slower_by_more_than_a_tie_and_apart(self):
        self.assertEqual(self.verdict(made.contest(100), made.contest(110)), "regression")
        self.assertEqual(self.verdict(made.contest(110), made.contest(100)), "faster")
        self.assertEqual(self.verdict(made.contest(100), made.contest(101)), "same")

    def test_spans_that_overlap_are_no_regression(self):
        loud = made.contest() | {"candidates": [made.candidate(64, samples=made.around(100, 0.5))]}
        louder = made.contest() | {"candidates": [made.candidate(64, samples=made.around(110, 0.5))]}
        self.assertEqual(self.verdict(loud, louder), "same")

    def test_what_is_measured_is_not_judged_by_what_is_modelled(self):
        modelled = made.contest() | {"candidates": [made.candidate(64, "modelled", predicted_us=500)]}
        self.assertEqual(self.verdict(made.contest(), modelled), "unlike")

    def test_problems_that_one_side_has_are_listed(self):
        command = self.sides([made.record(), made.record(dtype="f16")], [made.record(), made.record(dtype="bf16")])
        answer = self.answer(*command)
        self.assertEqual([pair["verdict"] for pair in answer["compared"]], ["same", "only in A", "only in B"])
        self.assertEqual((answer["only_a"], answer["only_b"], answer["regressions"]), (1, 1, 0))
        self.assertIsNone(answer["compared"][2]["a"])

    def test_a_problem_meets_its_like_of_the_same_machine_before_that_of_another(self):
        here, there = made.record(), made.record(target="sm_80:108", environment=made.record()["environment"] | {"device": "B"})
        pairs = self.answer(*self.sides([here], [there, here]))["compared"]
        self.assertEqual(pairs[0]["b"]["environment"]["device"], "A device")
        (pair,) = self.answer(*self.sides([here], [there]))["compared"]
        self.assertEqual((pair["verdict"], pair["b"]["target"]), ("same", "sm_80:108"))

    def test_a_regression_fails_only_where_that_is_asked_for(self):
        command = self.sides([made.record()], [made.record(contests=[made.contest(120)])])
        answer = self.answer(*command)
        self.assertEqual(answer["regressions"], 1)
        self.assertAlmostEqual(answer["compared"][0]["ratio"], 1.2)
        said = self.run_tool(*command, "--fail-on-regression")
        self.assertEqual(said.status, _FAILED)
        self.assertIn("REGRESSION", said.out)
        self.assertEqual(self.run_tool(*self.sides([made.record()], [made.record()]), "--fail-on-regression").status, 0)

    def test_a_comparison_as_csv(self):
        command = self.sides([made.record()], [made.record(contests=[made.contest(120)]), made.record(dtype="f16")])
        rows = list(csv.DictReader(io.StringIO(self.succeed(*command, "--csv", "-").out, newline="")))
        self.assertEqual([row["verdict"] for row in rows], ["regression", "only in B"])
        self.assertEqual((rows[1]["a_us"], rows[1]["dtype"]), ("", "f16"))


if __name__ == "__main__":
    unittest.main()
