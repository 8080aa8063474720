"""A SmallWorldLSTM as a network of dense layers, to compare with; with gradients."""

import copy

import torch


def normalised(x, gain, bias):
    mean = x.mean(-1, keepdim=True)
    variance = (x - mean).square().mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + 1e-6) * gain + bias


def dense(layer, weights, x, h, c):
    """The network as its paper has it, step by step; `weights`: dense ones of all internal steps, and of the gates."""
    stride = layer.projection_stride
    steps = []
    for one in x:
        m = normalised(one @ layer.multiply.weight.T, layer.multiply_norm.weight, layer.multiply_norm.bias)
        a = normalised(one @ layer.add.weight.T, layer.add_norm.weight, layer.add_norm.bias)
        units = torch.arange(0, h.shape[1], stride)
        for number, (weight, norm) in enumerate(zip(weights, layer.internal_norms)):
            h = normalised(h @ weight.T, norm.weight, norm.bias)
            if number == 0:
                h = h.index_copy(1, units, h[:, units] * m)
            else:
                h = torch.relu(h.index_add(1, units, a) if number == 1 else h)
        i, f, u, o = (normalised(h @ weight.T, gain, bias) for weight, gain, bias in zip(weights[-1].chunk(4), layer.gate_gains, layer.gate_biases))
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(u)
        h = torch.sigmoid(o) * torch.tanh(c)
        steps.append(h)
    return torch.stack(steps), h, c


def of_dense(layer, x, state):
    """All that the network of dense layers computes with these weights, and the gradients of a loss of it."""
    layer = copy.deepcopy(layer)
    weights = [one.to_dense().detach().requires_grad_() for one in (*layer.internal, layer.gates)]
    taken = [one.clone().requires_grad_() for one in (x, state[0][0], state[1][0])]
    y, h, c = dense(layer, weights, *taken)
    (y.square().mean() + h.mean() + c.square().mean()).backward()
    of_blocks = [sparse.blocks_of(weight.grad) for sparse, weight in zip((*layer.internal, layer.gates), weights)]
    return [y, h, c, *(one.grad for one in taken), *of_blocks, *others(layer)]


def of_layer(layer, x, state):
    taken = [one.clone().requires_grad_() for one in (x, *state)]
    y, (h, c) = layer(taken[0], (taken[1], taken[2]))
    (y.square().mean() + h.mean() + c.square().mean()).backward()
    of_blocks = [sparse.weight_values.grad for sparse in (*layer.internal, layer.gates)]
    return [y, h[0], c[0], taken[0].grad, *(one.grad[0] for one in taken[1:]), *of_blocks, *others(layer)]


def others(layer):
    """The gradients of all parameters that are not blocks."""
    dense_layers = layer.multiply, layer.add, layer.multiply_norm, layer.add_norm, *layer.internal_norms
    biases = (one.bias for one in (layer.multiply_norm, layer.add_norm, *layer.internal_norms))
    return [one.grad for one in (*(one.weight for one in dense_layers), *biases, layer.gate_gains, layer.gate_biases)]


def assert_close_to_dense(found, layer, x, state):
    """What `found`, of_layer's, is off by is little more than what dense layers of the same type are. Normalisations and relus of
    normalised sums magnify roundings: in those, too."""
    least = {torch.float64: 1e-12, torch.float32: 3e-5, torch.bfloat16: 0.05, torch.float16: 0.01}[x.dtype]
    expected = of_dense(copy.deepcopy(layer).double(), x.double(), [one.double() for one in state])
    for one, peer, wanted in zip(found, of_dense(layer, x, state), expected, strict=True):
        error, of_peer = ((each.detach().cpu().double() - wanted).norm() / wanted.norm() for each in (one, peer))
        assert error <= 2 * of_peer + least
