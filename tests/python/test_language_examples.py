"""What small_world_lstm.py and sentiment.py are made of: the network, runs that go on, and texts that follow from figures."""

import importlib.util
import math
import pathlib
import random

import numpy as np
import pytest
from test_examples import archive_of_reviews

torch = pytest.importorskip("torch")

_FOLDER = pathlib.Path(__file__).resolve().parent.parent.parent / "examples/python"


@pytest.fixture(autouse=True)
def _examples(monkeypatch):
    if importlib.util.find_spec("tqdm") is None:
        pytest.skip("not installed: tqdm")
    monkeypatch.syspath_prepend(_FOLDER)


def _wide(**changed):
    from character_models import Network

    return Network(**{"hidden": 64, "internal_steps": 2, "row": 3, "block": 8} | changed)


def _text():
    """A small one that repeats itself."""
    from character_models import Text, streams

    numbers = torch.arange(100 * 32 * 8).remainder(7).mul(3).remainder(5)
    part = lambda length: streams(numbers[: length * 32])
    return Text("abcde", len(numbers), part(700), part(140), part(140))


# ---- the network ----


@pytest.mark.parametrize("layers", ["dense", "block-sparse"])
def test_the_plain_network_computes_what_small_world_lstm_does(layers):
    import multiplicative_lstm
    from torch import nn

    from sparsekiln import patterns
    from sparsekiln.torch import BlockSparseLinear, SmallWorldLSTM
    from sparsekiln.torch.layouts import four_times

    torch.manual_seed(0)
    worlds = [patterns.watts_strogatz(8, 8, 3 / 8, 0.5, seed=number, diagonal=True) for number in range(6)]
    wanted = SmallWorldLSTM(24, 64, worlds, block=8)
    with torch.no_grad():
        for parameter in wanted.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    state = wanted.state_dict()
    if layers == "dense":
        made = lambda number, inputs, outputs: nn.Linear(inputs, outputs, bias=False)
        for name, layer in wanted.named_modules():
            if isinstance(layer, BlockSparseLinear):
                state = {key: value for key, value in state.items() if not key.startswith(f"{name}.")}
                state[f"{name}.weight"] = layer.to_dense()
    else:
        layouts = [*worlds[:-1], four_times(worlds[-1])]
        made = lambda number, inputs, outputs: BlockSparseLinear(inputs, outputs, layouts[number], 8, bias=False)
    network = multiplicative_lstm.MultiplicativeLSTM(24, 64, made)
    network.load_state_dict(state)
    x, start = torch.randn(5, 4, 24), (torch.randn(1, 4, 64), torch.randn(1, 4, 64))
    for given in (None, start):
        (y, (h, c)), (y_wanted, (h_wanted, c_wanted)) = network(x, given), wanted(x, given)
        for one, other in ((y, y_wanted), (h, h_wanted), (c, c_wanted)):
            assert torch.linalg.vector_norm(one - other) < 1e-5 * torch.linalg.vector_norm(other)


def test_the_ordinary_network_is_a_normalised_multiplicative_lstm():
    import multiplicative_lstm
    from torch import nn
    from torch.nn import functional

    torch.manual_seed(0)
    made = lambda number, inputs, outputs: nn.Linear(inputs, outputs, bias=False)
    network = multiplicative_lstm.MultiplicativeLSTM(6, 8, made, internal_steps=1, projection_stride=1)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    x, h, c = torch.randn(1, 3, 6), torch.randn(3, 8), torch.randn(3, 8)
    m, a = network.multiply_norm(network.multiply(x[0])), network.add_norm(network.add(x[0]))
    mixed = network.internal_norms[0](network.internal[0](h)) * m + a
    z = functional.layer_norm(network.gates(mixed).reshape(3, 4, 8), (8,), None, None, 1e-6)
    i, f, u, o = (z * network.gate_gains + network.gate_biases).unbind(1)
    wanted = f.sigmoid() * c + i.sigmoid() * u.tanh()
    y, _ = network(x, (h[None], c[None]))
    assert torch.allclose(y[0], o.sigmoid() * wanted.tanh(), atol=1e-6)


def test_without_normalisation_the_scale_of_a_weight_matters():
    from character_models import CharacterModel

    text = torch.randint(5, (6, 2))
    for normalised in (True, False):
        model = CharacterModel(5, _wide(row=None, normalised=normalised), 0)
        before = model(text)[0]
        with torch.no_grad():
            model.recurrent.internal[0].weight.mul_(2)
        assert torch.allclose(before, model(text)[0], atol=1e-4) == normalised


@pytest.mark.parametrize(
    "changed", [{}, {"row": None}, {"internal_steps": 1}, {"row": None, "normalised": False}, {"identity": False}], ids=str
)
def test_parameters_are_counted_without_making_a_network(changed):
    from character_models import CharacterModel, parameters

    network = _wide(**changed)
    assert parameters(9, network) == sum(one.numel() for one in CharacterModel(9, network, 0).parameters())


def test_networks_that_are_compared_have_about_as_many_parameters():
    from character_models import parameters
    from small_world_runs import Plan

    plan = Plan(63)
    wanted = parameters(63, plan.wide)
    for network in [*plan.parts, *plan.compared]:
        assert abs(parameters(63, network) / wanted - 1) < 0.07, network
    assert len({str(network) for network in plan.parts}) == len(plan.parts), "two networks whose files have one name"


def test_a_start_as_the_identity_gives_back_what_goes_in():
    import multiplicative_lstm
    from torch import nn

    from sparsekiln.torch import BlockSparseLinear

    x = torch.randn(3, 16)
    for layer in (nn.Linear(16, 64, bias=False), BlockSparseLinear(16, 64, np.tile(np.eye(2, dtype=bool), (4, 1)), 8, bias=False)):
        assert torch.allclose(multiplicative_lstm.start(layer, True)(x), x.repeat(1, 4))
        assert not torch.allclose(multiplicative_lstm.start(layer, False)(x), x.repeat(1, 4))


# ---- runs ----


def test_a_run_that_was_interrupted_ends_as_one_that_was_not(tmp_path):
    from character_models import Run, Trainer, Training

    text, run = _text(), Run(_wide(), 4e-3, 6, seed=1)
    whole = Trainer(text, tmp_path / "whole", tmp_path / "whole-weights")
    wanted = whole.result(run)

    halves = Trainer(text, tmp_path / "halves", tmp_path / "halves-weights")
    training = Training(run, text)
    for _ in range(3):
        training.advance(next(training.windows))
        training.validation[training.step] = wanted.validation[training.step]
        training.times.append(0.1)
    training.save(halves.checkpoints / f"{run.name}.checkpoint")
    found = halves.result(run)

    assert found.test == wanted.test and found.validation == wanted.validation
    assert all(torch.equal(one, other) for one, other in zip(halves.model(run).parameters(), whole.model(run).parameters()))
    assert not list(halves.checkpoints.glob("*.checkpoint"))


def test_a_run_that_has_a_result_is_not_done_again(tmp_path, monkeypatch):
    from character_models import Run, Trainer

    trainer, run = Trainer(_text(), tmp_path, tmp_path), Run(_wide(row=None), 4e-3, 3)
    first = trainer.result(run)
    monkeypatch.setattr(Trainer, "_train", lambda *_: pytest.fail("trained again"))
    again = trainer.result(run)
    assert (again.run, again.test, again.validation, again.parameters) == (run, first.test, first.validation, first.parameters)


def test_weights_that_are_absent_are_trained_again(tmp_path):
    from character_models import Run, Trainer, evaluate

    text, run = _text(), Run(_wide(row=None), 4e-3, 3)
    trainer = Trainer(text, tmp_path / "results", tmp_path / "weights")
    tested = trainer.result(run).test
    for file in trainer.checkpoints.iterdir():
        file.unlink()
    assert evaluate(trainer.model(run), text.test) == tested


def test_a_run_that_diverges_says_so(tmp_path):
    from character_models import Result, Run, Trainer

    trainer, run = Trainer(_text(), tmp_path, tmp_path), Run(_wide(row=None, normalised=False), math.inf, 20)
    found = trainer.result(run)
    assert found.diverged and found.validated == math.inf and found.characters < 20 * 32 * 64
    assert Result.read(tmp_path / f"{run.name}.json").diverged


def test_windows_follow_one_another_and_begin_elsewhere_with_another_seed():
    text = _text()
    for seed in (0, 1):
        windows = text.windows_of(seed)
        first, second = next(windows), next(windows)
        assert torch.equal(first[-1], second[0])
    assert not torch.equal(next(text.windows_of(0)), next(text.windows_of(1)))


def test_a_rate_is_looked_for_beyond_the_edge_of_those_that_were_tried():
    import types

    from small_world_runs import Plan, best_rate

    for wanted in (5e-4, 4e-3, 3.2e-2):
        tried = []

        def result(run):
            tried.append(run.rate)
            return types.SimpleNamespace(validated=abs(math.log(run.rate / wanted)))

        assert best_rate(types.SimpleNamespace(result=result), Plan(63), _wide()) == pytest.approx(wanted)
        assert min(tried) < wanted < max(tried)


# ---- texts ----


def _findings(bits, steps=8):
    """Findings of made-up runs: `bits` of the small world and of the dense networks (5 internal steps, 1) by seed."""
    from character_models import Result
    from small_world_runs import Findings, Plan

    plan = Plan(63, steps=steps)
    results, networks = [], _three(plan)
    for network, of_network in zip(networks, bits):
        for run, value in zip([plan.searches(network, 8e-3), *plan.trainings(network, 8e-3)], [of_network[0], *of_network]):
            results.append(Result(run, 1000, 1000, {run.steps // 2: value + 1, run.steps: value}, [value] * 3, 100))
    return Findings(plan, results, {"step_ms": {str(network): ms for network, ms in zip(networks, (200.0, 100.0, 50.0))}})


def _three(plan):
    return [plan.wide, *plan.kinds[2:]]


@pytest.mark.parametrize(
    "sparse, says",
    [
        ((1.5, 1.51, 1.52), ["has 0.300 ± 0.000 bits a character fewer", "a clear difference"]),
        ((2.1, 2.11, 2.12), ["has 0.300 ± 0.000 bits a character more", "a clear difference"]),
        ((1.5, 2.0, 2.2), ["0 is within the 95 % interval"]),
    ],
    ids=["better", "worse", "neither"],
)
def test_the_conclusion_follows_from_the_runs(sparse, says):
    from small_world_lstm import conclusion

    dense = (1.8, 1.81, 1.82)
    for order in ((dense, (1.9, 1.9, 1.9)), ((1.9, 1.9, 1.9), dense)):
        findings = _findings((sparse, *order))
        said = conclusion(findings)
        headline = said.partition("**.")[0] if "**." in said else said.partition(".** ")[0]
        assert all(one in headline for one in says), said
        better = _three(findings.plan)[1 if order[0] is dense else 2]
        assert f"({better.in_words})" in headline


def test_a_single_pair_of_runs_is_no_proof():
    from small_world_lstm import conclusion
    from small_world_runs import Mean

    assert "says nothing of other seeds" in conclusion(_findings(((1.0,), (2.0,), (2.5,))))
    assert not any(Mean.of(values).clear for values in ([1.0], [0.1, 0.2], [0.1, 0.2, 0.3]))
    assert Mean.of([0.2, 0.21, 0.22]).clear


def test_a_document_is_written_of_what_runs_there_are():
    pytest.importorskip("matplotlib")
    from small_world_lstm import plot, report
    from small_world_runs import Findings, Plan

    some = _findings(((1.5, 1.51), (1.8, 1.81), (1.9, 1.93)))
    for findings in (some, Findings(some.plan, some.results[:2], {"step_ms": {}}), Findings(Plan(63), [], {"step_ms": {}})):
        said = report(findings, 1000)
        assert f"of {len(findings.results)} runs" in said and "nan" not in said
        plot(findings)


# ---- sentiment ----


def test_sentences_are_read_of_the_archive_within_the_archive(tmp_path):
    import sentiment

    found = sentiment.Sentences.read(archive_of_reviews(tmp_path), "ABCDEFGHIJ abcdefghijklmnopqrstuvwxyz,.")
    assert len(found.texts) == 40 and found.favourable.tolist() == [True, False] * 20
    assert found.texts[0] == "A fine film, and its hero is good, said number a."
    assert sentiment.spelled("Café – 12 “stars”", "Caefrst- ") == "Cafe -  stars"


def test_a_state_does_not_depend_on_sentences_beside_it():
    import sentiment
    from character_models import CharacterModel, numbered

    alphabet, generator = "\nabc", random.Random(0)
    texts = ["".join(generator.choices("abc", k=generator.choice((3, 5, 9)))) for _ in range(12)]
    model = CharacterModel(len(alphabet), _wide(row=None), 0).requires_grad_(False)
    found = sentiment.states(model, alphabet, texts, "states")
    for index, text in enumerate(texts):
        h, c = None, None
        for number in numbered("\n" + text, alphabet):
            _, (h, c) = model.states(number.reshape(1, 1), None if h is None else (h, c))
        assert np.allclose(found["h"][index], h[0, 0], atol=1e-6) and np.allclose(found["c"][index], c[0, 0].tanh(), atol=1e-6)


def test_a_classifier_finds_what_is_there_and_nothing_else():
    pytest.importorskip("sklearn")
    import sentiment

    numbers = np.random.default_rng(0)
    features, favourable = numbers.normal(size=(600, 10)), numbers.random(600) < 0.5
    assert 0.4 < sentiment.right(features, favourable).mean() < 0.6
    features[:, 3] += 4 * favourable
    assert sentiment.right(features, favourable).mean() > 0.9


def test_scores_are_kept_bit_by_bit(tmp_path):
    import sentiment

    right = np.random.default_rng(0).random(101) < 0.7
    sentiment.Score("one", 7, {"c": right, "h": ~right}).write(tmp_path / "one.json")
    found = sentiment.Scores(tmp_path).find("one")
    assert found.features == 7 and (found.right["c"] == right).all() and (found.right["h"] == ~right).all()
    assert sentiment.Scores(tmp_path).find("other") is None


@pytest.mark.parametrize("gain, says", [(0.1, "network is better"), (-0.1, "network is worse"), (0.0, "no difference is shown")])
def test_what_is_said_of_sentiment_follows_from_the_scores(gain, says, tmp_path):
    import sentiment

    findings, scores = _findings(((1.5, 1.51), (1.8, 1.81), (1.9, 1.93))), sentiment.Scores(tmp_path)
    numbers = np.random.default_rng(0)
    for network in findings.plan.compared:
        for result in findings.trained(network).values():
            right = numbers.random(3000) < 0.7 + (gain if network.sparse else 0)
            sentiment.Score(result.run.name, network.hidden, {"c": right, "h": right}).write(tmp_path / f"{result.run.name}.json")
    lines = [sentiment.against(scores, findings, network) for network in _three(findings.plan)[1:]]
    assert all(says in line for line in lines), lines
