"""Gradual pruning in a training loop: its schedule, what it keeps, and checkpoints of it."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import sparsekiln  # noqa: E402
from sparsekiln.torch import BlockSparseLinear, Sparsifier, sparsify_  # noqa: E402

F = torch.nn.functional


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def network(bias=True):
    return torch.nn.Sequential(
        torch.nn.Linear(64, 160, bias=bias), torch.nn.ReLU(), torch.nn.Linear(160, 64, bias=bias), torch.nn.ReLU(), torch.nn.Linear(64, 4)
    )


def task(samples=128):
    """Which of the first four inputs is the largest."""
    x = torch.randn(samples, 64, generator=torch.Generator().manual_seed(5))
    return x, x[:, :4].argmax(1)


def train(model, optimizer, sparsifier, steps):
    x, target = task()
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        sparsifier.step()
        losses.append(loss.item())
    return losses


# ---- the schedule ----


def test_the_density_follows_the_cubic_formula_and_changes_every_so_many_steps():
    model = torch.nn.Sequential(torch.nn.Linear(320, 320))
    sparsifier = Sparsifier(model, 0.1, 16, begin_step=4, end_step=24, every=5)
    assert sparsifier.density == 1
    found = {}
    for step in range(1, 31):
        before = sparsifier.density
        changed = sparsifier.step()
        assert changed == (sparsifier.density != before)
        found[step] = sparsifier.density
    for step, density in found.items():
        pruned_at = min(24, 4 + (step - 4) // 5 * 5)
        sparsity = 0.9 + (0 - 0.9) * (1 - (pruned_at - 4) / 20) ** 3 if step >= 4 else 0
        assert density == round((1 - sparsity) * 400) / 400
    assert len(set(found.values())) == 5 and found[30] == 0.1


@pytest.mark.parametrize("begin, end, every, due", [(0, 10, 7, [7, 10]), (3, 3, 100, [3]), (2, 7, 5, [7]), (0, 100, 1000, [100])])
def test_blocks_are_removed_at_the_end_step_too(begin, end, every, due):
    model = torch.nn.Sequential(torch.nn.Linear(256, 256))
    sparsifier = Sparsifier(model, 0.2, 32, begin_step=begin, end_step=end, every=every)
    assert [step for step in range(1, 121) if sparsifier.step()] == due
    assert sparsifier.done and sparsifier.density == round(0.2 * 64) / 64


def test_an_initial_density_below_one_is_taken_at_the_begin_step():
    model = torch.nn.Sequential(torch.nn.Linear(256, 256))
    assert Sparsifier(copy.deepcopy(model), 0.25, 32, end_step=10, initial_density=0.5).density == 0.5
    later = Sparsifier(model, 0.25, 32, begin_step=2, end_step=10, initial_density=0.5)
    densities = [later.density]
    for _ in range(2):
        later.step()
        densities.append(later.density)
    assert densities == [1, 1, 0.5]


def test_each_layer_has_its_own_final_density():
    model = network()
    sparsifier = Sparsifier(model, {"0": 0.2, "2": 0.5}, 16, end_step=3, every=1)
    for _ in range(3):
        sparsifier.step()
    assert {name: layer.layout.density for name, layer in sparsifier.layers.items()} == {"0": 0.2, "2": 0.5}
    assert sparsifier.density == (8 + 20) / 80
    assert isinstance(model[4], torch.nn.Linear) and [one.name for one in sparsifier.report.skipped] == ["4"]


def test_a_layer_that_is_sparse_already_is_pruned_further_and_never_grows():
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Linear(256, 256))
    sparsify_(model, {"0": 0.5, "1": 0.125}, 32)
    first = model[0]
    sparsifier = Sparsifier(model, 0.25, 32, end_step=4, every=2)
    blocks = []
    for _ in range(4):
        sparsifier.step()
        blocks.append([layer.layout.blocks for layer in sparsifier.layers.values()])
    assert model[0] is first
    assert blocks == [[32, 8], [22, 8], [22, 8], [16, 8]]


# ---- what is kept ----


def test_the_strongest_blocks_survive_with_their_values():
    dense = torch.nn.Linear(128, 96)
    expected = BlockSparseLinear.from_linear(dense, 0.25, 32)
    model = torch.nn.Sequential(copy.deepcopy(dense))
    sparsifier = Sparsifier(model, 0.25, 32, end_step=1)
    assert torch.equal(model[0].to_dense(), dense.weight)
    sparsifier.step()
    assert model[0].layout == expected.layout
    assert torch.equal(model[0].to_dense(), expected.to_dense()) and torch.equal(model[0].bias, dense.bias)


@pytest.mark.parametrize("form", ["blocks", "grid", "values", "dense"])
def test_scores_decide_in_each_of_their_forms(form):
    wanted = sparsekiln.Layout([[0, 1, 0], [1, 0, 0]])

    def scores(name, layer):
        assert name == "0"
        grid = torch.from_numpy(wanted.mask()).float()
        each = grid.repeat_interleave(32, 0).repeat_interleave(32, 1)[:, :80]
        present = grid[torch.from_numpy(layer.layout.mask())]
        return {"blocks": present, "grid": grid, "dense": -each, "values": present[:, None, None].expand(-1, 32, 32)}[form]

    model = torch.nn.Sequential(torch.nn.Linear(80, 64))
    sparsifier = Sparsifier(model, 1 / 3, 32, initial_density=0.8, end_step=1, scores=scores)
    assert model[0].layout.blocks == 5
    sparsifier.step()
    assert model[0].layout == wanted


def test_scores_that_do_not_fit_are_refused_with_the_name_of_the_layer():
    sparsifier = Sparsifier(network(), 0.5, 32, end_step=1, scores=lambda name, layer: torch.ones(7))
    with pytest.raises(ValueError, match=r"0: the scores have the shape \(7,\)"):
        sparsifier.step()


# ---- in training ----


@pytest.mark.parametrize(
    "make", [lambda p: torch.optim.Adam(p, lr=0.01), lambda p: torch.optim.SGD(p, lr=0.2, momentum=0.9), lambda p: torch.optim.SGD(p, 0.3)]
)
def test_a_small_model_learns_while_it_is_pruned(make):
    model = network()
    optimizer = make(model.parameters())
    sparsifier = Sparsifier(model, 0.25, 16, begin_step=10, end_step=40, every=10, optimizer=optimizer)
    losses = train(model, optimizer, sparsifier, 80)
    assert sparsifier.done and sparsifier.density == 20 / 80
    assert losses[-1] < 0.6 * losses[0]


def test_the_state_of_the_optimizer_moves_with_the_blocks():
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    x, target = task()
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(model(x), target).backward()
        optimizer.step()
    dense = {key: kept.clone() for key, kept in optimizer.state[model[0].weight].items()}
    bias_state = optimizer.state[model[0].bias]
    sparsifier = Sparsifier(model, 0.5, 16, end_step=1, optimizer=optimizer)
    layer = model[0]
    (weight,) = [one for name, one in layer.named_parameters() if name != "bias"]
    assert weight in optimizer.state and optimizer.state[layer.bias] is bias_state
    assert {id(one) for one in model.parameters()} == {id(one) for group in optimizer.param_groups for one in group["params"]}
    sparsifier.step()
    mask = layer.layout.mask()
    expected = dense["exp_avg"].reshape(10, 16, 4, 16).transpose(1, 2)[torch.from_numpy(mask)]
    assert mask.sum() == 20 and torch.equal(optimizer.state[weight]["exp_avg"], expected)
    assert optimizer.state[weight]["step"] == 3
    assert len(optimizer.state) == len(list(model.parameters()))


def test_before_the_first_removal_training_is_that_of_the_dense_model():
    dense = network()
    model = copy.deepcopy(dense)
    kept = torch.optim.Adam(dense.parameters(), lr=0.01)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    never = Sparsifier(network(), 0.5, 16, begin_step=1000, end_step=1000)
    expected = train(dense, kept, never, 3)
    found = train(model, optimizer, never, 3)
    sparsifier = Sparsifier(model, 0.5, 16, begin_step=1000, end_step=1000, optimizer=optimizer)
    expected += train(dense, kept, never, 5)
    found += train(model, optimizer, sparsifier, 5)
    assert found == pytest.approx(expected, rel=1e-3)


def test_an_optimizer_that_is_made_afterwards_is_assigned():
    model = network()
    sparsifier = Sparsifier(model, 0.25, 16, end_step=20, every=5)
    sparsifier.optimizer = optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = train(model, optimizer, sparsifier, 30)
    assert losses[-1] < losses[0] and sparsifier.density == 0.25


def _two_layers():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))


def _step(model, optimizers):
    for optimizer in optimizers:
        optimizer.zero_grad()
    model(torch.randn(8, 64)).square().mean().backward()
    for optimizer in optimizers:
        optimizer.step()


@pytest.mark.parametrize("held", [0, 2])
def test_layers_that_the_optimizer_lacks_are_pruned_too(held):
    model = _two_layers()
    model[2 - held].requires_grad_(False)
    optimizer = torch.optim.Adam(model[held].parameters(), 0.01)
    sparsifier = Sparsifier(model, 0.25, 16, end_step=4, every=1, optimizer=optimizer)
    for _ in range(4):
        _step(model, [optimizer])
        sparsifier.step()
        assert model[0].layout.blocks == model[2].layout.blocks
        kept = optimizer.state[model[held].weight_values]
        assert kept["exp_avg"].shape == model[held].weight_values.shape
    assert sparsifier.density == 0.25


def test_several_optimizers_go_on_with_their_layers():
    model, alike = _two_layers(), _two_layers()
    several = [torch.optim.Adam(model[0].parameters(), 0.01), torch.optim.Adam(model[2].parameters(), 0.01)]
    one = [torch.optim.Adam(alike.parameters(), 0.01)]
    sparsifiers = Sparsifier(model, 0.25, 16, end_step=4, optimizer=several), Sparsifier(alike, 0.25, 16, end_step=4, optimizer=one[0])
    for step in range(7):
        for each, optimizers, sparsifier in zip((model, alike), (several, one), sparsifiers):
            torch.manual_seed(step)
            _step(each, optimizers)
            sparsifier.step()
    for mine, other in zip(model.parameters(), alike.parameters()):
        assert torch.equal(mine, other)


def test_nothing_moves_where_one_layer_cannot():
    model = _two_layers()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    sparsifier = Sparsifier(model, 0.25, 16, end_step=1, optimizer=optimizer)
    _step(model, [optimizer])
    optimizer.state[model[2].weight_values]["exp_avg"] = torch.zeros(3, 3, 3)
    before = [layer.layout for layer in sparsifier.layers.values()]
    with pytest.raises(ValueError, match="exp_avg.*not block by block"):
        sparsifier.step()
    assert [layer.layout for layer in sparsifier.layers.values()] == before and sparsifier.steps == 0


@pytest.mark.parametrize("form", ["blocks", "values"])
def test_scores_shaped_like_a_parameter_with_room_are_taken(form):
    def scores(name, layer):
        gradient = layer.weight_values.grad.abs()
        return gradient.flatten(1).sum(1) if form == "blocks" else gradient

    def pruned(fixed_shapes):
        model = _two_layers()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        sparsifier = Sparsifier(model, 0.25, 16, end_step=4, every=1, optimizer=optimizer, scores=scores, fixed_shapes=fixed_shapes)
        for step in range(5):
            torch.manual_seed(step)
            _step(model, [optimizer])
            sparsifier.step()
        return [model[i].to_dense() for i in (0, 2)]

    assert all(torch.equal(one, other) for one, other in zip(pruned(True), pruned(False)))


def test_an_optimizer_of_another_model_is_refused():
    with pytest.raises(ValueError, match="none of the parameters of the model"):
        Sparsifier(network(), 0.5, 16, end_step=1, optimizer=torch.optim.Adam(network().parameters()))


def test_an_optimizer_of_another_model_is_refused_when_it_is_assigned():
    model, other = torch.nn.Sequential(torch.nn.Linear(64, 64)), torch.nn.Linear(64, 64)
    sparsifier = Sparsifier(model, 0.5, 16, end_step=2)
    for wrong in (torch.optim.SGD(other.parameters(), 0.1), [torch.optim.SGD(model.parameters(), 0.1), torch.optim.SGD(other.parameters(), 0.1)]):
        with pytest.raises(ValueError, match="none of the parameters of the model"):
            sparsifier.optimizer = wrong
    sparsifier.optimizer = right = torch.optim.SGD(model.parameters(), 0.1)
    assert sparsifier.optimizer is right


def test_layers_that_share_a_parameter_are_refused():
    first, second = (BlockSparseLinear(64, 64, [[1, 1], [1, 1]]) for _ in range(2))
    second.weight_values = first.weight_values
    with pytest.raises(ValueError, match="0 and 1 share their weight_values"):
        Sparsifier(torch.nn.Sequential(first, second), 0.5, end_step=2)
    Sparsifier(torch.nn.Sequential(first, first), 0.5, end_step=2)


def test_an_optimizer_whose_state_has_no_blocks_is_refused_and_nothing_is_replaced():
    model = network()
    optimizer = torch.optim.Adafactor(model.parameters())
    F.cross_entropy(model(task()[0]), task()[1]).backward()
    optimizer.step()
    with pytest.raises(ValueError, match="row_var .* cannot be divided into blocks"):
        Sparsifier(model, 0.5, 16, end_step=1, optimizer=optimizer)
    assert type(model[0]) is torch.nn.Linear and model[0].weight in optimizer.state


@pytest.mark.parametrize(
    "arguments, says",
    [
        ({"end_step": 5, "begin_step": 6}, "begin_step 6 and end_step 5"),
        ({"end_step": 5, "every": 0}, "every 0"),
        ({"end_step": 5, "initial_density": 0.0}, "initial_density of 0.0"),
        ({"end_step": 5, "final_density": 2.0}, "a density of 2.0 for 0"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(arguments, says):
    model = network()
    with pytest.raises(ValueError, match=says):
        Sparsifier(model, block=16, **arguments)
    assert type(model[0]) is torch.nn.Linear


# ---- checkpoints ----


def setup():
    torch.manual_seed(7)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return model, optimizer, Sparsifier(model, 0.25, 16, begin_step=4, end_step=28, every=6, optimizer=optimizer)


@pytest.mark.parametrize("stop", [2, 10, 17, 30])
def test_a_resumed_run_equals_one_that_was_never_interrupted(stop, tmp_path):
    model, optimizer, sparsifier = setup()
    expected = train(model, optimizer, sparsifier, 36)

    first = setup()
    losses = train(*first, stop)
    torch.save([one.state_dict() for one in first], tmp_path / "checkpoint.pt")
    resumed = setup()
    for one, state in zip(resumed, torch.load(tmp_path / "checkpoint.pt", weights_only=True)):
        one.load_state_dict(state)
    assert resumed[2].density == first[2].density and resumed[2].steps == stop
    losses += train(*resumed, 36 - stop)
    assert losses == expected
    for name, tensor in model.state_dict().items():
        assert torch.equal(resumed[0].state_dict()[name], tensor), name


def test_the_state_of_other_layers_is_refused():
    state = setup()[2].state_dict()
    other = Sparsifier(torch.nn.Sequential(torch.nn.Linear(64, 64)), 0.5, 16, end_step=1)
    with pytest.raises(ValueError, match="they differ in 2"):
        other.load_state_dict(state)


def test_its_repr_says_how_far_it_is():
    sparsifier = setup()[2]
    for _ in range(28):
        sparsifier.step()
    assert repr(sparsifier) == "Sparsifier(step 28, prunes from 4 to 28 every 6, 2 layers, density 0.25)"


def test_fixed_shapes_prune_to_the_same_weights():
    def pruned(fixed_shapes):
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        sparsifier = Sparsifier(model, 0.2, 16, end_step=6, every=2, optimizer=optimizer, fixed_shapes=fixed_shapes)
        shapes = [parameter.shape for parameter in model.parameters()]
        for step in range(8):
            optimizer.zero_grad()
            model(torch.randn(8, 64, generator=torch.Generator().manual_seed(step))).square().mean().backward()
            optimizer.step()
            sparsifier.step()
        assert not fixed_shapes or shapes == [parameter.shape for parameter in model.parameters()]
        return [model[i].to_dense() for i in (0, 2)], sparsifier.density

    (fixed, density), (free, other) = pruned(True), pruned(False)
    assert density == other < 0.25
    for one, two in zip(fixed, free):
        assert torch.equal(one, two)
