"""The PixelCNN of the examples: what a pixel sees, what its likelihood adds up to, and that an interrupted run goes on."""

import itertools
import pathlib
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples/python"))
import pixel_cnn_network as network_file
from pixel_cnn_network import LogisticMixture, PixelCNN, SparseConvolutions, dense_convolution, parameters

FEATURES, SIZE = 16, (5, 6)
CONVOLUTIONS = {
    "dense": dense_convolution, "sparse": SparseConvolutions(FEATURES, 8, 1, 0), "all blocks": SparseConvolutions(FEATURES, 8, 2, 0)
}  # fmt: skip


def make(convolution="dense", channels=1, outputs=4, depth=2, dropout=0.0):
    torch.manual_seed(0)
    return PixelCNN(channels, outputs, FEATURES, depth, dropout, CONVOLUTIONS[convolution])


def close(one, other):
    assert torch.linalg.vector_norm(one - other) < 1e-5 * torch.linalg.vector_norm(other)


def sparse_of(dense):
    """A block-sparse network of all blocks with the weights of a dense one."""
    network = make("all blocks")
    for mine, its in zip(network.residuals, dense.residuals):
        for name in ("conv1", "conv2"):
            conv, other = getattr(mine, name), getattr(its, name)
            of_blocks = other.weight.detach()[..., torch.from_numpy(network_file.earlier_taps(3, True))]
            blocks = of_blocks.unflatten(1, (-1, 8)).unflatten(0, (-1, 8)).permute(0, 2, 4, 1, 3).flatten(0, 1)
            with torch.no_grad():
                conv.weight_values = blocks
                conv.bias.copy_(other.bias)
    network.first.load_state_dict(dense.first.state_dict())
    network.last.load_state_dict(dense.last.state_dict())
    return network


# ---- what a pixel sees ----


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("convolution", CONVOLUTIONS)
def test_what_is_given_for_a_pixel_depends_on_earlier_pixels_alone(convolution, channels):
    network, images = make(convolution, channels), torch.randn(2, channels, *SIZE)
    given = network(images)
    for row, column in itertools.product(*map(range, SIZE)):
        changed = images.clone()
        changed[:, :, row, column] += 1
        different = (network(changed) != given).any(1).any(0).flatten()
        place = row * SIZE[1] + column
        assert not different[: place + 1].any()
        assert column + 1 == SIZE[1] or different[place + 1], "the next pixel does not depend on it"
        assert bool(different[place + 1 :].any()) == (place + 1 < different.numel())


@pytest.mark.parametrize("convolution", CONVOLUTIONS)
def test_gradients_of_a_pixel_are_those_of_earlier_pixels_alone(convolution):
    network, images = make(convolution), torch.randn(1, 1, *SIZE, requires_grad=True)
    network(images)[0, :, 2, 3].sum().backward()
    found = images.grad[0, 0].flatten() != 0
    place = 2 * SIZE[1] + 3
    assert not found[place:].any() and found[place - 1] and found[: place - SIZE[1]].any()


# ---- the two kinds of convolutions ----


def test_a_sparse_network_of_all_blocks_computes_what_the_dense_one_does():
    dense = make()
    with torch.no_grad():
        for name, one in dense.named_parameters():
            if not name.endswith("original1"):  # whose absent taps are 0
                one.mul_(1.5).add_(0.03)  # gains stay above 0
    sparse, images = sparse_of(dense), torch.randn(3, 1, *SIZE)
    assert parameters(sparse) == parameters(dense)
    wanted = dense(images)
    assert wanted.std() > 1e-2
    close(sparse(images), wanted)
    gains = []
    for network in (dense, sparse):
        network(images).square().mean().backward()
        convs = [getattr(one, name) for one in network.residuals for name in ("conv1", "conv2")]
        parametrizations = [getattr(conv.parametrizations, "weight", None) or conv.parametrizations.weight_values for conv in convs]
        gains.append(torch.cat([one.original0.grad.flatten() for one in parametrizations]))
    close(gains[1], gains[0])


def test_absent_taps_stay_without_weight_and_gradient():
    network = make()
    optimizer = torch.optim.Adam(network.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        network(torch.randn(2, 1, *SIZE)).square().mean().backward()
        optimizer.step()
    for conv, taps in (
        (network.first, network_file.earlier_taps(7, False)),
        (network.residuals[0].conv1, network_file.earlier_taps(3, True)),
    ):
        direction = conv.parametrizations.weight.original1
        assert not direction.detach()[..., ~torch.from_numpy(taps)].any()
        assert direction.detach()[..., torch.from_numpy(taps)].all()
        close(conv.weight.detach().flatten(1).norm(dim=1), conv.parametrizations.weight.original0.detach().flatten().abs())


def test_parameters_are_counted_without_absent_taps():
    taps_a, taps_b, wide = 24, 5, 2 * FEATURES
    conv = lambda inputs, outputs, taps: outputs * (inputs * taps + 2)  # a bias and a gain
    block = conv(wide, FEATURES, taps_b) + conv(wide, wide, taps_b)
    assert parameters(make(depth=3)) == conv(2, FEATURES, taps_a) + 3 * block + conv(wide, 4, 1)
    assert parameters(make("all blocks", depth=3)) == parameters(make(depth=3))
    assert parameters(make("sparse", depth=1)) == parameters(make(depth=1)) - taps_b * (wide * FEATURES + wide * wide) // 2


def test_connections_are_equally_many_and_hold_the_diagonal():
    layout = network_file.connections(64, 128, 128, 8, 2, seed=3).mask()
    assert layout.shape == (16, 16) and (layout.sum(0) == 4).all() and (layout.sum(1) == 4).all()
    squares = layout.reshape(2, 8, 2, 8).transpose(0, 2, 1, 3).reshape(4, 8, 8)
    assert all(square.diagonal().all() for square in squares)
    assert len({square.tobytes() for square in squares}) > 1
    other = network_file.connections(64, 128, 128, 8, 2, seed=4).mask()
    assert (layout != other).any()


# ---- the likelihood ----


@pytest.mark.parametrize("channels, levels", [(1, 17), (1, 256), (2, 5), (3, 4)])
def test_probabilities_of_a_pixel_add_up_to_one(channels, levels):
    torch.manual_seed(0)
    mixture = LogisticMixture(3, channels, levels)
    every = torch.tensor(list(itertools.product(range(levels), repeat=channels)), dtype=torch.uint8)[:, :, None, None]
    for spread in (0.5, 3):
        given = spread * torch.randn(1, mixture.outputs, 1, 1, dtype=torch.float64)
        bits = mixture.bits(given.expand(len(every), -1, -1, -1), every) * channels
        assert abs(torch.exp2(-bits).sum().item() - 1) < 1e-6


def test_a_level_has_what_is_nearer_to_it_than_to_others():
    sigmoid = lambda x: 1 / (1 + np.exp(-np.float64(x)))
    mean, log_scale, levels = 0.3, -1.2, 17
    x = torch.linspace(-1, 1, levels, dtype=torch.float64)
    found = network_file.log_probability(x, torch.full_like(x, mean), torch.full_like(x, log_scale), levels).exp().numpy()
    ends = np.concatenate([[-np.inf], (x[1:] + x[:-1]).numpy() / 2, [np.inf]])
    wanted = np.diff(sigmoid((ends - mean) * np.exp(-log_scale)))
    np.testing.assert_allclose(found, wanted, rtol=1e-10)


def test_far_from_every_logistic_the_gradient_is_finite():
    x, log_scale = torch.tensor([-1.0, 0.0, 1.0]), torch.full((3,), -7.0, requires_grad=True)
    mean = torch.tensor([5.0, -5.0, -5.0], requires_grad=True)
    found = network_file.log_probability(x, mean, log_scale, 256)
    found.sum().backward()
    assert found.isfinite().all() and (found < -1000).all()
    assert mean.grad.isfinite().all() and mean.grad.all() and log_scale.grad.isfinite().all()


def test_a_later_channel_is_predicted_from_earlier_ones():
    mixture = LogisticMixture(2, 3, 256)
    torch.manual_seed(0)
    given, images = torch.randn(1, mixture.outputs, 2, 2), torch.full((1, 3, 2, 2), 100, dtype=torch.uint8)
    x = mixture.scaled(images)
    sizes = [2, 6, 6, 6]
    means, shares = given.split(sizes, 1)[1], given.split(sizes, 1)[3]
    first, second, third = mixture._means(means, shares, x)
    close(first, means[:, :2])
    close(second, means[:, 2:4] + shares[:, :2].tanh() * x[:, :1])
    close(third, means[:, 4:] + shares[:, 2:4].tanh() * x[:, :1] + shares[:, 4:].tanh() * x[:, 1:2])


# ---- runs and their results ----


def tiny_unit(kind="sparse", **changes):
    training = pytest.importorskip("pixel_cnn_training")
    shape = training.Shape(FEATURES, 1, 8, 1) if kind == "sparse" else training.Shape(FEATURES, 1)
    unit = training.Unit("comparison", "digits", kind, shape, dropout=0.5, rate=1e-2, steps=4, seed=1)
    return training, training.dataclasses.replace(unit, **changes)


def without_times(result):
    return {name: value for name, value in result.items() if name != "seconds"}


class Interruption(Exception):
    pass


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_an_interrupted_run_ends_as_one_that_is_not(kind, tmp_path):
    training, unit = tiny_unit(kind)
    seen = []
    wanted = training.run(unit, tmp_path / "one.pt", lambda run: seen.append(run.done))
    assert seen == [0, 1, 2, 3, 4] and not list(tmp_path.iterdir())

    def interrupt(run):
        if run.done == 2:
            raise Interruption

    with pytest.raises(Interruption):
        training.run(unit, tmp_path / "two.pt", interrupt)
    torch.rand(5)
    resumed = []
    found = training.run(unit, tmp_path / "two.pt", lambda run: resumed.append(run.done))
    assert resumed == [2, 3, 4] and without_times(found) == without_times(wanted)


def test_a_checkpoint_of_another_unit_is_not_used(tmp_path):
    training, unit = tiny_unit()
    other = training.dataclasses.replace(unit, rate=1e-3)

    def interrupt(run):
        if run.done == 2:
            raise Interruption

    with pytest.raises(Interruption):
        training.run(other, tmp_path / "one.pt", interrupt)
    seen = []
    training.run(unit, tmp_path / "one.pt", lambda run: seen.append(run.done))
    assert seen[0] == 0


def test_a_run_learns_and_the_best_check_decides(tmp_path):
    training, unit = tiny_unit("dense", steps=64, dropout=0.0)
    result = training.run(unit, tmp_path / "one.pt", lambda run: None)
    first, last = result["checks"][0], result["checks"][-1]
    assert len(result["checks"]) == training.CHECKS and last["training"] < first["training"] - 0.1
    best = min(one["validation"] for one in result["checks"])
    assert abs(result["test"]["best"] - best) < 0.2
    if best == last["validation"]:
        assert result["test"]["best"] == result["test"]["last"]


def test_weights_of_the_best_check_are_those_of_the_test(tmp_path, monkeypatch):
    """The rate is far too large after the first check, by which the weights get worse."""
    training, unit = tiny_unit("dense", dropout=0.0)
    monkeypatch.setattr(training, "rate_at", lambda step, steps: 1e-3 if step == 1 else 100)
    monkeypatch.setattr(training, "AVERAGE", 0.0)
    result = training.run(unit, tmp_path / "one.pt", lambda run: None)
    checks = [one["validation"] for one in result["checks"]]
    assert checks[0] == min(checks) and result["test"]["last"] > result["test"]["best"] + 0.1
    assert abs(result["test"]["best"] - checks[0]) < 0.2


def test_a_result_counts_for_the_unit_it_is_of_alone(tmp_path):
    training, unit = tiny_unit()
    results = training.Results(tmp_path / "results")
    assert results.of(unit) is None
    results.keep(unit.name, {"unit": training.dataclasses.asdict(unit), "test": 1.5})
    assert results.of(unit)["test"] == 1.5
    assert results.of(training.dataclasses.replace(unit, steps=5)) is None


@pytest.mark.parametrize("pictures", ["digits", "patches"])
@pytest.mark.parametrize("grow", ["deeper", "wider"])
def test_a_sparse_network_has_as_many_parameters(grow, pictures):
    training, _ = tiny_unit()
    dense = training.Shape(64, 2)
    sparse = training.sparse_shape(dense, 8, 2, grow, pictures)
    assert (sparse.depth > 2, sparse.features > 64) == ((True, False) if grow == "deeper" else (False, True))
    assert abs(training.size_of(sparse, pictures) / training.size_of(dense, pictures) - 1) < (0.01 if grow == "deeper" else 0.03)


@pytest.mark.parametrize("pictures", ["digits", "patches"])
def test_a_narrow_network_has_about_as_many_parameters(pictures):
    training, _ = tiny_unit()
    dense = training.Shape(64, 2)
    narrow = training.narrow_shape(dense, 8, pictures)
    assert narrow.depth == 8 and narrow.features < 64
    assert abs(training.size_of(narrow, pictures) / training.size_of(dense, pictures) - 1) < 0.03


def test_sizes_that_do_not_fit_are_refused():
    training, _ = tiny_unit()
    with pytest.raises(ValueError, match="not within 1 %; another depth"):
        training.sparse_shape(training.Shape(16, 1), 8, 1, "deeper", "digits")


# ---- pictures ----


@pytest.mark.parametrize("pictures", ["digits", "patches"])
def test_parts_of_the_pictures(pictures):
    small_pictures = pytest.importorskip("small_pictures")
    split, other = small_pictures.PICTURES[pictures](0), small_pictures.PICTURES[pictures](1)
    parts = (split.training, split.validation, split.test)
    assert all(part.dtype == torch.uint8 and len(part) >= 200 for part in parts)
    assert split.training.max() == split.levels - 1
    assert not torch.equal(split.training[:50], other.training[:50])
    if pictures == "digits":
        assert sum(map(len, parts)) == 1797
    else:
        assert torch.equal(split.test, other.test) and torch.equal(split.validation, other.validation)


def test_patches_of_one_part_are_in_no_other(monkeypatch):
    """On a photograph whose pixels hold their own column."""
    small_pictures = pytest.importorskip("small_pictures")
    columns = np.broadcast_to((np.arange(640) // 16)[None, :, None], (427, 640, 3)).astype(np.uint8)
    monkeypatch.setattr(small_pictures, "load_sample_images", lambda: type("", (), {"images": [columns, columns]}))
    split = small_pictures.patches.__wrapped__(0)
    seen = [set(part.unique().tolist()) for part in (split.training, split.validation, split.test)]
    assert seen == [set(range(26)), set(range(26, 32)), set(range(32, 40))]
    assert len(split.validation) == 2 * 26 * 6 and len(split.test) == 2 * 26 * 8
    assert all((one == one[0, 0, 0]).all() for one in split.test)


def test_tiles_are_the_patches_side_by_side():
    small_pictures = pytest.importorskip("small_pictures")
    photograph = torch.arange(3 * 40 * 33).reshape(3, 40, 33)
    tiles = small_pictures.tiled(photograph)
    assert len(tiles) == 4
    assert torch.equal(tiles[3], photograph[:, 16:32, 16:32]) and torch.equal(tiles[1], photograph[:, :16, 16:32])


# ---- what is said of the results ----


def found_with(example, dense_bits, sparse_bits, searched=(1.0, 0.9, 1.1, 1.2), rate=16e-3):
    """The results of both networks, whose runs have these bits on the test and 0.2 less in training; the last check is not the best one."""
    training, _ = tiny_unit()
    shapes = {"dense": training.Shape(64, 2), "sparse": training.Shape(64, 8, 8, 2)}
    networks = {}
    for kind, bits in (("dense", dense_bits), ("sparse", sparse_bits)):
        networks[kind] = example.Found(kind, shapes[kind], dict(zip(example.RATES, searched)), rate)
        for seed, one in bits.items():
            checks = [
                {"step": 1, "training": one - 0.2, "validation": one},
                {"step": 2, "training": one - 0.5, "validation": one + 0.1},
            ]
            networks[kind].runs[seed] = {
                "test": {"best": one, "last": one + 0.1}, "checks": checks, "parameters": 1000, "machine": "a machine"
            }  # fmt: skip
    return networks


@pytest.fixture
def example():
    for name in ("matplotlib", "tqdm", "sklearn"):
        pytest.importorskip(name)
    return pytest.importorskip("pixel_cnn")


@pytest.mark.parametrize(
    "sparse, words",
    [
        ({0: 1.90, 1: 1.95, 2: 2.01}, ("0.080 bits a dimension fewer", "fewer with 3 of them", "it is better by more than two")),
        ({0: 2.10, 1: 2.15, 2: 2.19}, ("0.113 bits a dimension more", "fewer with 0 of them", "it is worse by more than two")),
        ({0: 1.90, 1: 2.15, 2: 2.08}, ("0.010 bits a dimension more", "fewer with 1 of them", "no difference of more than two")),
        ({1: 1.95}, ("0.080 bits a dimension fewer", "the one seed", "tells nothing of others")),
        ({}, ("have no seed in common",)),
    ],
)
def test_the_conclusion_follows_from_the_seeds(example, sparse, words):
    said = example.compared("digits", found_with(example, {0: 2.00, 1: 2.03, 2: 2.07}, sparse))
    assert all(one in said for one in words), said
    assert not sparse or "of 8 residual blocks instead of 2" in said


def test_what_is_missing_or_overfitted_is_said(example):
    training, _ = tiny_unit()
    plan = example.Plan(training.Shape(64, 2), 8, 2, "deeper", 0.2, {"digits": 2000}, 3)
    networks = found_with(example, {0: 2.0, 1: 2.03}, {1: 1.95})
    said = example.described(plan, {"digits": networks}, {})
    assert "Runs of the dense network on digits are missing: seed 2." in said
    assert "Runs of the sparse network on digits are missing: seeds 0, 2." in said
    assert "0.200 ± 0.000 bits more for the dense network, whose last check was its best in 0 of 2 runs" in said
    assert "| digits   | dense   | 64       | 2               | 1,000      | 0.016         | 2.015 ± 0.015 | 2.115 ± 0.015 " in said
    assert "2000 updates with 32 digits each" in said and "had stopped improving" not in said
    assert "have 25 % of their blocks of 8 × 8 features" in said and "learning rate that was tried" not in said


@pytest.mark.parametrize(
    "narrow, words",
    [
        ((1.95, 1.99, 2.02), "does not explain the gain over the dense network"),
        ((1.89, 1.92, 1.95), "depth alone gives, too"),
        ((1.84, 1.86, 1.88), "depth alone gives, too"),
        ((1.95,), None),
        ((), None),
    ],
)
def test_a_narrow_network_tells_what_depth_gives(example, narrow, words):
    dense, sparse = dict(enumerate((2.00, 2.03, 2.07))), dict(enumerate((1.90, 1.92, 1.95)))
    networks = found_with(example, dense, sparse)
    networks["narrow"] = found_with(example, dict(enumerate(narrow)), {})["dense"]
    said = example.due_to_depth("digits", networks)
    assert words in said[0] if words else not said
    assert not example.due_to_depth("digits", found_with(example, dense, {0: 2.1, 1: 2.2, 2: 2.1}) | {"narrow": networks["narrow"]})


def test_a_test_that_is_easier_and_networks_that_still_improve(example):
    networks = found_with(example, {0: 2.0}, {0: 1.9})
    for found in networks.values():
        found.runs[0]["checks"] = [{"step": 1, "training": 2.5, "validation": 2.0}]
    said = example.overfitted("patches", networks)
    assert "0.500 bits fewer for the dense network, whose last check was its best in 1 of 1 runs" in said
    assert "No network had stopped improving" in said and "other columns of the photographs" in said


@pytest.mark.parametrize("rate, words", [(8e-3, "smallest"), (64e-3, "largest")])
def test_a_best_rate_at_the_edge_is_said(example, rate, words):
    said = example.at_the_edge("digits", found_with(example, {0: 2.0}, {1: 2.0}, rate=rate))
    assert said[0] == f"For the dense network on digits the {words} learning rate that was tried did best." and len(said) == 2


def test_results_of_the_search_decide_the_rate(example, tmp_path):
    training, _ = tiny_unit()
    plan = example.Plan(training.Shape(64, 2), 8, 2, "deeper", 0.2, {"digits": 8}, 2)
    results = training.Results(tmp_path)
    keep = lambda unit, bits: results.keep(
        unit.name, {"unit": training.dataclasses.asdict(unit), "checks": [{"validation": bits}, {"validation": bits + 1}]}
    )
    for unit, bits in zip(plan.search("digits", "dense"), (2.0, 1.8)):
        keep(unit, bits)
    assert example.look_up(plan, results, "digits")["dense"].rate is None
    for unit in plan.search("digits", "dense")[2:]:
        keep(unit, 1.9)
    for unit, bits in zip(plan.search("digits", "sparse"), (2.0, 1.8, 1.7, 1.9)):
        keep(unit, bits)
    keep(plan.comparison("digits", "sparse", example.RATES[2])[1], 1.5)
    keep(plan.comparison("digits", "dense", example.RATES[0])[0], 1.5)
    networks = example.look_up(plan, results, "digits")
    assert (networks["dense"].rate, networks["sparse"].rate) == (example.RATES[1], example.RATES[2])
    assert not networks["dense"].runs and list(networks["sparse"].runs) == [1]
    order = [unit.name for unit in example.units(plan, results, "digits", example.MAIN)][-4:]
    assert order == ["digits-dense-seed-0", "digits-sparse-seed-0", "digits-dense-seed-1", "digits-sparse-seed-1"]
