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
    for conv, taps in ((network.first, network_file.earlier_taps(7, False)), (network.residuals[0].conv1, network_file.earlier_taps(3, True))):
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
