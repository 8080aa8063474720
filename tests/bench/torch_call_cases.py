"""Tests of bench_test.py: what calls of PyTorch's layers take on the host, and how long the first ones take."""

import json
import pathlib
import sys

_BENCH = pathlib.Path(__file__).resolve().parent.parent.parent / "bench"


class TorchCallCases:
    """Tests of a class with `call`, `with_torch` and `assert_positive`."""

    def test_torch_calls(self):
        self.with_torch()
        done = self.call([sys.executable, _BENCH / "torch_calls.py", "--short", "--json"])
        devices = json.loads(done.stdout)["microseconds"]
        self.assertIn("cpu", devices)
        for rows in devices.values():
            self.assertEqual(list(rows), ["inference", "forward", "training", "compiled inference", "compiled training"])
            for name, row in rows.items():
                for column in ("BlockSparseLinear", "nn.Linear", "ratio"):
                    self.assert_positive(row[column], f"{name}, {column}")

    def test_first_result(self):
        self.with_torch()
        done = self.call([sys.executable, _BENCH / "first_result.py", "--short", "--json"])
        devices = json.loads(done.stdout)["seconds"]
        self.assertEqual(list(devices), ["cpu, no activation", "cpu, relu"])
        for times in devices.values():
            self.assertEqual(list(times), ["import", "first result", "first step"])
            self.assertEqual(list(times.values()), sorted(times.values()))
            self.assert_positive(times["import"], "import")

    def test_recurrent_segment(self):
        self.with_torch()
        done = self.call([sys.executable, _BENCH / "recurrent_segment.py", "--short", "--json"])
        found = json.loads(done.stdout)
        steps, segments = found["steps"], found["segments"]
        layers = {"LSTM": 1, "SmallWorldLSTM": 6}  # launches of a step: five internal steps, and the gates
        self.assertEqual(list(segments), [f"{layer}, {pass_}" for layer in layers for pass_ in ("inference", "training")])
        for name, one in segments.items():
            layer, _, pass_ = name.partition(", ")
            passes = 2 if pass_ == "training" else 1
            self.assertEqual(one["launches"], passes * steps * layers[layer], name)
            self.assertEqual((one["calls"], one["calls, each launch"]), (passes, one["launches"]), name)
            for column in ("us", "us, each launch", "ratio", "bytes"):
                self.assert_positive(one[column], f"{name}, {column}")
