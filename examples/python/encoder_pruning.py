"""Pruning a BERT to fewer blocks, and repairing it: by least squares, layer after layer, and by a short distillation.

Models here are transformers' BertModel, whose transformer layers have BlockSparseLinear for their linear layers (or, for
the teacher, nn.Linear). Batches are token ids [sentences, tokens] of sentences of one length: nothing in them is padding.
"""

import copy
from collections.abc import Callable

import numpy as np
import torch
from torch.nn import functional as F

from sparsekiln.torch import BlockSparseLinear

Tensor, Module = torch.Tensor, torch.nn.Module

#: Linear layers of a transformer layer, in the order of the forward pass; those of a group have one input.
GROUPS = (
    ("attention.self.query", "attention.self.key", "attention.self.value"),
    ("attention.output.dense",),
    ("intermediate.dense",),
    ("output.dense",),
)


def linear_layers(bert: Module) -> list[Module]:
    return [layer.get_submodule(name) for layer in bert.encoder.layer for names in GROUPS for name in names]


@torch.no_grad()
def prune(bert: Module, density: float, batches: list[Tensor], done: Callable[[], None]) -> None:
    """Drops blocks and refits those that are left, from the first layer to the last.

    Layer-wise reconstruction, as in SparseGPT (Frantar and Alistarh, 2023), but in closed form, since whole blocks share a
    system of equations: each layer sees what the pruned ones before it give, and is to give what it gave on intact inputs.
    Calls `done()` after each group of each layer.
    """
    intact = copy.deepcopy(bert)
    states = targets = [bert.embeddings(ids) for ids in batches]
    for layer, original in zip(bert.encoder.layer, intact.encoder.layer):
        for names in GROUPS:
            gram, moments = second_moments(layer, original, names, states, targets)
            for name, moment in zip(names, moments):
                sparse = layer.get_submodule(name)
                drop_blocks(sparse, gram[:-1, :-1], density)
                refit(sparse, gram, moment)
            done()
        states = [layer(state) for state in states]
        targets = [original(state) for state in targets]


def second_moments(
    layer: Module, original: Module, names: tuple[str, ...], states: list[Tensor], targets: list[Tensor]
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
    """Means over all tokens: of x · xᵀ [in + 1, in + 1], and for each of `names` of x · tᵀ [in + 1, out].

    x is the input that `names` have in `layer`, with a 1 as its last feature; t is what a name gives in `original`.
    `states` and `targets` are the inputs [sentences, tokens, hidden] of the two layers.
    """
    seen = {}

    def keep(name: str):
        return lambda _, inputs, output: seen.update({name: (inputs[0].flatten(0, 1), output.flatten(0, 1))})

    hooks = [layer.get_submodule(names[0]).register_forward_hook(keep("pruned"))]
    hooks += [original.get_submodule(name).register_forward_hook(keep(name)) for name in names]
    gram, moments, tokens = 0, [0] * len(names), 0
    for state, target in zip(states, targets):
        layer(state)
        original(target)
        x = F.pad(seen["pruned"][0], (0, 1), value=1.0)
        gram = gram + x.T @ x
        moments = [moment + x.T @ seen[name][1] for moment, name in zip(moments, names)]
        tokens += len(x)
    for hook in hooks:
        hook.remove()
    return gram / tokens, [moment / tokens for moment in moments]


def drop_blocks(layer: BlockSparseLinear, gram: Tensor, density: float) -> None:
    """Keeps the density × all blocks of the grid that contribute most, of those there are: the mean of |W_block · x_block|².

    `gram` [in, in] is the mean of x · xᵀ.
    """
    side, layout = layer.block[1], layer.layout
    own = torch.stack([gram[begin : begin + side, begin : begin + side] for begin in range(0, len(gram), side)])
    contribution = (layer.weight_values @ own[layer.col_indices.long()] * layer.weight_values).sum((1, 2))
    kept = contribution.argsort(descending=True)[: round(density * layout.rows * layout.cols)].numpy()
    row_of_block = np.repeat(np.arange(layout.rows), np.diff(layout.crow))
    mask = np.zeros((layout.rows, layout.cols), dtype=bool)
    mask[row_of_block[kept], np.asarray(layout.col)[kept]] = True
    layer.relayout(mask)


def refit(layer: BlockSparseLinear, gram: Tensor, moment: Tensor) -> None:
    """Sets values and bias to what comes closest to the targets t: ridge regression, towards the present values and bias.

    `gram` [in + 1, in + 1] is the mean of x · xᵀ, `moment` [in + 1, out] that of x · tᵀ; the last feature of x is 1.
    """
    side, layout = layer.block[0], layer.layout
    ridge = 0.01 * gram.diagonal().mean()
    features = torch.arange(layer.in_features).reshape(-1, side)
    for row, (begin, end) in enumerate(zip(layout.crow[:-1], layout.crow[1:])):
        out = slice(row * side, (row + 1) * side)
        inputs = torch.cat([features[layer.col_indices[begin:end].long()].flatten(), torch.tensor([layer.in_features])])
        present = torch.cat([layer.weight_values[begin:end].transpose(1, 2).reshape(-1, side), layer.bias[None, out]])
        normal = gram[inputs][:, inputs] + ridge * torch.eye(len(inputs))
        fitted = torch.cholesky_solve(moment[inputs, out] + ridge * present, torch.linalg.cholesky(normal))
        layer.weight_values[begin:end] = fitted[:-1].reshape(-1, side, side).transpose(1, 2)
        layer.bias[out] = fitted[-1]


def distil(bert: Module, teacher: Module, batches: list[Tensor], done: Callable[[], None]) -> None:
    """Trains the transformer layers towards the teacher's: one step of Adam a batch, each followed by `done()`.

    The loss is the squared error of the states after each layer, as a share of their variance, and the cosine distance of
    the embeddings, which are the means of the last states over the tokens.
    """
    parameters = list(bert.encoder.requires_grad_(True).parameters())
    optimizer = torch.optim.Adam(parameters, lr=1e-3, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 10) * (1 - step / len(batches)))
    for ids in batches:
        with torch.no_grad():
            targets = teacher(ids, output_hidden_states=True).hidden_states[1:]
        states = bert(ids, output_hidden_states=True).hidden_states[1:]
        errors = [F.mse_loss(state, target) / target.var() for state, target in zip(states, targets)]
        cosine = F.cosine_similarity(states[-1].mean(1), targets[-1].mean(1)).mean()
        loss = sum(errors) / len(errors) + 1 - cosine
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        done()
    bert.requires_grad_(False)


def fuse_gelu(bert: Module) -> None:
    """Lets the kernel of each first feed-forward layer compute its activation too."""
    for layer in bert.encoder.layer:
        layer.intermediate.dense.activation = "gelu"
        layer.intermediate.intermediate_act_fn = torch.nn.Identity()
