"""Models of block-sparse layers, as one process has them, with the plans by which they are sharded over several."""

import copy

import numpy as np
import torch

from sparsekiln.torch import BlockSparseLinear
from sparsekiln.torch.parallel import ColwiseSparseParallel, RowwiseSparseParallel

HEAD = 16


def skewed(rows, cols, seed=0, density=0.3):
    """A layout whose first rows and columns are dense, whose last ones are nearly empty, and one row of which is empty."""
    generator = np.random.default_rng(seed)
    chance = np.outer((np.arange(rows, 0, -1) / rows) ** 2, (np.arange(cols, 0, -1) / cols) ** 0.5)
    mask = generator.random((rows, cols)) < chance * density / chance.mean()
    mask[generator.permutation(rows)[0]] = False
    return mask


def layer(inputs, outputs, block=8, seed=0, activation=None, bias=True, density=0.3):
    sides = (block, block) if isinstance(block, int) else block
    layout = skewed(-(-outputs // sides[0]), -(-inputs // sides[1]), seed, density)
    made = BlockSparseLinear(inputs, outputs, layout, sides, bias, activation)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 8)
    return made


class Mlp(torch.nn.Module):
    """Four layers, of which the second and third have partial blocks, and blocks are not square."""

    def __init__(self):
        super().__init__()
        self.up = layer(96, 256, (8, 16), 1, "gelu")
        self.down = layer(256, 100, (16, 8), 2)
        self.wide = layer(100, 204, 8, 3, "relu")
        self.narrow = layer(204, 60, 8, 4, "tanh")

    def forward(self, x):
        return self.narrow(self.wide(self.down(self.up(x))))


MLP_PLAN = {
    "up": ColwiseSparseParallel(), "down": RowwiseSparseParallel(), "wide": ColwiseSparseParallel(), "narrow": RowwiseSparseParallel(),
}  # fmt: skip


class Block(torch.nn.Module):
    def __init__(self, features, seed):
        super().__init__()
        self.before_attention, self.before_ffn = torch.nn.LayerNorm(features), torch.nn.LayerNorm(features)
        self.qkv = layer(features, 3 * features, 8, seed, density=0.5)
        self.out = layer(features, features, 8, seed + 1, density=0.5)
        self.gate = layer(features, 2 * features, 8, seed + 2, "silu")
        self.down = layer(2 * features, features, 8, seed + 3)
        self.up = layer(features, 2 * features, 8, seed + 4, bias=False)

    def attention(self, x):
        n, steps = x.shape[:2]
        q, k, v = (part.reshape(n, steps, -1, HEAD).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(n, steps, -1))

    def forward(self, x):
        x = x + self.attention(self.before_attention(x))
        normed = self.before_ffn(x)
        return x + self.down(self.gate(normed) * self.up(normed))


class Transformer(torch.nn.Module):
    def __init__(self, features=64, layers=2):
        super().__init__()
        self.embed = torch.nn.Embedding(20, features)
        self.blocks = torch.nn.ModuleList(Block(features, 10 * number) for number in range(layers))
        self.head = torch.nn.Linear(features, 20)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


TRANSFORMER_PLAN = {
    "blocks.*.qkv": ColwiseSparseParallel(group=HEAD, parts=3), "blocks.*.out": RowwiseSparseParallel(),
    "blocks.*.gate": ColwiseSparseParallel(), "blocks.*.up": ColwiseSparseParallel(), "blocks.*.down": RowwiseSparseParallel(),
}  # fmt: skip


def transformer():
    torch.manual_seed(0)
    return Transformer()


def tokens(n=4, steps=6, seed=0):
    return torch.randint(0, 20, (n, steps), generator=torch.Generator().manual_seed(seed))


def twins(model):
    return model, copy.deepcopy(model)


def entries(sharded_layer, name, of_all):
    """What the rank should have of a tensor shaped like a parameter in one process."""
    sharded = sharded_layer.entries_of_rank(name)
    return of_all if sharded is None else of_all[torch.from_numpy(sharded[0])]


def check_gradients(sharded, whole, rtol=1e-4, atol=1e-5):
    """Every gradient of the sharded model is that of the whole one, at what the rank has, and zero in padding."""
    layers = dict(whole.named_modules())
    checked = 0
    for path, one in sharded.named_modules():
        for name, parameter in one.named_parameters(recurse=False):
            expected, found = getattr(layers[path], name).grad, parameter.grad
            assert found is not None, f"{path}.{name} has no gradient"
            if hasattr(found, "full_tensor") and hasattr(one, "entries_of_rank"):
                assert not any(placement.is_partial() for placement in found.placements), f"{path}.{name}"
                expected, found = entries(one, name, expected), found.to_local()
                assert not found[expected.shape[0] :].any(), f"the padding of {path}.{name} has a gradient"
                found = found[: expected.shape[0]]
            elif hasattr(found, "full_tensor"):
                found = found.full_tensor()
            torch.testing.assert_close(
                found, expected, rtol=rtol, atol=atol, msg=lambda text, where=f"{path}.{name}": f"{where}: {text}"
            )
            checked += 1
    assert checked == len(list(whole.parameters()))
