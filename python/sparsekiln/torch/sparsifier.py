"""Sparsifier: prunes a model little by little while it trains."""

from collections.abc import Callable
from typing import Any

import torch

import sparsekiln
from sparsekiln._arguments import flag, integer, real, shown

from .block_sparse_layer import BlockSparseLayer
from .blocks import checked_scores, largest, number_at, parse_block, row_of
from .choice import Choice, Density, Where
from .graphs import make_numbers_of_blocks_dynamic
from .kinds import every_block, of_dense
from .report import Report
from .resizing import Optimizers, each_of, holds
from .surgery import check_scoring, layers_of, replace_layers, stored

Tensor = torch.Tensor


class Sparsifier:
    """Gradual pruning, by the cubic schedule of Zhu and Gupta ("To prune, or not to prune", 2017, equation 1).

        optimizer = torch.optim.AdamW(model.parameters())
        sparsifier = Sparsifier(model, final_density=0.1, block=32, begin_step=500, end_step=5000, every=100, optimizer=optimizer)
        for x, target in batches:
            optimizer.zero_grad()
            loss(model(x), target).backward()
            optimizer.step()
            sparsifier.step()

    Replaces the layers of `model` that sparsify_ replaces by block-sparse ones with all their blocks, and then removes the
    weakest blocks of each layer at begin_step, every `every` steps, and at end_step, counted in calls of step(). The density is then

        final + (initial − final) · (1 − (step − begin_step) / (end_step − begin_step))³

    of the blocks, rounded to whole ones. Before begin_step no block is removed. A removed block stays away: the layers
    compute only with the blocks that are left, so that training becomes faster while it goes on.

    final_density    as `density` of sparsify_: a number, densities by pattern of names, or a function of name and layer
    optimizer        one, or several: goes on with the new parameters, whose momentum, squares and the like move along. Layers that
                     no optimizer has, such as frozen ones, move without. An optimizer that is made of model.parameters() after
                     this can be assigned to `sparsifier.optimizer`
    scores           which blocks are kept: a function of a layer's name and the block-sparse layer that returns a score for
                     each block, [blocks] or [rows, cols], or for each element, shaped like `weight_values` or like the
                     dense weight, of which a block has the sum of absolute values. Called when blocks are to be removed, with the gradients that
                     the last backward pass has left. Without it, blocks have their Frobenius norm
    fixed_shapes     removed blocks keep their place in memory, as zeros, so that no parameter changes its shape: what
                     DistributedDataParallel needs, where step() is refused without it. A layer whose blocks are between others
                     copies them at each call; put_in_order of each layer ends that, when no more are to be removed
    block, where, leave_small  as in sparsify_. Block-sparse layers that the model has already are pruned further

    `report` says what was replaced. To go on from a checkpoint, make model, optimizer and Sparsifier as before and load the
    state of all three, in any order.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        final_density: Density = 0.1,
        block: int | tuple[int, int] = 32,
        *,
        end_step: int,
        begin_step: int = 0,
        every: int = 100,
        optimizer: Optimizers = None,
        where: Where = None,
        initial_density: float = 1.0,
        scores: Callable[[str, Any], Tensor] | None = None,
        leave_small: bool = True,
        fixed_shapes: bool = False,
    ) -> None:
        begin_step, end_step, every = integer("begin_step", begin_step), integer("end_step", end_step), integer("every", every)
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"the model is {shown(model)}; a torch.nn.Module would work")
        check_scoring(scores)
        fixed_shapes = flag("fixed_shapes", fixed_shapes)
        initial_density = real("initial_density", initial_density)
        if not 0 <= begin_step <= end_step:
            raise ValueError(f"begin_step {begin_step} and end_step {end_step}; 0 <= begin_step <= end_step would work")
        if every < 1:
            raise ValueError(f"every {every}; blocks are removed every so many steps, 1 or more")
        if not 0 < initial_density <= 1:
            raise ValueError(f"an initial_density of {initial_density}; it is a fraction of the blocks, above 0 and up to 1")
        if not fixed_shapes:
            make_numbers_of_blocks_dynamic()
        self.begin_step, self.end_step, self.every = begin_step, end_step, every
        self.initial_density = initial_density
        self._model = model
        self.optimizer = optimizer
        self.steps = 0  #: how often step() was called
        self._scores = scores
        self._layers: dict[str, BlockSparseLayer] = {}
        self._final: dict[str, float] = {}
        self.report: Report = self._prepare(Choice(where, final_density), parse_block(block), leave_small, fixed_shapes)
        if self._is_due(0):
            self._prune(0)

    def _prepare(self, choice: Choice, block: tuple[int, int], leave_small: bool, fixed_shapes: bool) -> Report:
        """Replaces the dense layers, and notes them and those that are sparse already."""
        optimizers = each_of(self.optimizer)
        for name, layer in layers_of(self._model):
            if isinstance(layer, BlockSparseLayer) and layer not in self._layers.values() and choice.takes(name, layer):
                density = choice.density(name, layer)
                if density is not None:
                    self._layers[name], self._final[name] = layer, density
        _check_apart(self._layers)

        exchanged: list[tuple[Any, BlockSparseLayer]] = []

        def make(name: str, layer: Any, density: float) -> BlockSparseLayer:
            for optimizer in optimizers:
                _check_state(optimizer, layer.weight)
            sparse = _with_all_blocks(layer, block, fixed_shapes)
            self._layers[name], self._final[name] = sparse, density
            exchanged.append((layer, sparse))
            return sparse

        report = replace_layers(self._model, choice, block, make, leave_small, may_find_none=bool(self._layers))
        for dense, sparse in exchanged:
            for optimizer in optimizers:
                _exchange(optimizer, dense.weight, sparse)
        return report

    # ---- in training ----

    @property
    def optimizer(self) -> Optimizers:
        """One, several, or None. ValueError if one that is assigned has no parameter of the model."""
        return self._optimizer

    @optimizer.setter
    def optimizer(self, optimizer: Optimizers) -> None:
        given = optimizer if isinstance(optimizer, torch.optim.Optimizer) or optimizer is None else tuple(each_of(optimizer))
        for one in each_of(given):
            _check_optimizer(one, self._model)
        self._optimizer = given

    def step(self) -> bool:
        """Call it after each optimizer.step(). Returns whether blocks were removed."""
        step = self.steps + 1
        changed = self._is_due(step) and self._prune(step)
        self.steps = step  # not if it was refused
        return changed

    def _is_due(self, step: int) -> bool:
        if not self.begin_step <= step <= self.end_step:
            return False
        return step == self.end_step or (step - self.begin_step) % self.every == 0

    def _prune(self, step: int) -> bool:
        moves = []
        for name, layer in self._layers.items():
            layout = layer.layout
            wanted = number_at(self._density_at(step, self._final[name]), layer.places)
            if wanted < layout.blocks:
                moves.append((layer, self._without_weakest(name, layer, wanted)))
        optimizers = {layer: [one for one in each_of(self.optimizer) if holds(one, layer.weight_values)] for layer, _ in moves}
        for layer, layout in moves:  # all or none
            layer.check_relayout(layout, optimizers[layer])
        for layer, layout in moves:
            layer.relayout(layout, optimizers[layer])
        return bool(moves)

    def _density_at(self, step: int, final: float) -> float:
        if step < self.begin_step:
            return 1.0
        span = self.end_step - self.begin_step
        left = 1 - (min(step, self.end_step) - self.begin_step) / span if span else 0.0
        return final + (max(self.initial_density, final) - final) * left**3

    def _without_weakest(self, name: str, layer: BlockSparseLayer, wanted: int) -> "sparsekiln.Layout":
        layout = layer.layout
        given = layer._used_values().detach().float().square() if self._scores is None else self._scores(name, layer)
        try:
            scores = _score_of_present(given, layer)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        parts = layer.parts_alike
        kept = largest(scores.reshape(parts, -1).sum(0), wanted // parts).repeat(parts).numpy()
        mask = layout.mask()
        mask[row_of(layout)[~kept], layout.col[~kept]] = False
        return sparsekiln.Layout(mask)

    # ---- what it has come to ----

    @property
    def layers(self) -> dict[str, BlockSparseLayer]:
        """The layers that are pruned, by name."""
        return dict(self._layers)

    @property
    def density(self) -> float:
        """The present blocks of all layers that are pruned, over all of their blocks; 1 if there are no layers."""
        of = sum(layer.places for layer in self._layers.values())
        return sum(layer.layout.blocks for layer in self._layers.values()) / of if of else 1.0

    @property
    def done(self) -> bool:
        """Whether the final density has been reached."""
        return self.steps >= self.end_step

    def __repr__(self) -> str:
        return (
            f"Sparsifier(step {self.steps}, prunes from {self.begin_step} to {self.end_step} every {self.every}, "
            f"{len(self._layers)} layers, density {self.density:.4g})"
        )

    # ---- checkpoints ----

    def state_dict(self) -> dict[str, Any]:
        """How far it is. Which blocks are present is in the state of the model."""
        return {"steps": self.steps, "layers": list(self._layers)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """ValueError if the state is that of other layers."""
        if sorted(state["layers"]) != sorted(self._layers):
            others = sorted(set(state["layers"]) ^ set(self._layers))
            raise ValueError(f"the state is of other layers than those of this Sparsifier; they differ in {', '.join(others[:4])}")
        self.steps = int(state["steps"])


def _check_optimizer(optimizer: torch.optim.Optimizer, model: torch.nn.Module) -> None:
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    if not any(id(parameter) in held for parameter in model.parameters()):
        raise ValueError("the optimizer has none of the parameters of the model; give the one that trains it")


def _check_apart(layers: dict[str, BlockSparseLayer]) -> None:
    """ValueError if two layers have one parameter: it cannot lose the blocks of one of them."""
    names: dict[int, str] = {}
    for name, layer in layers.items():
        other = names.setdefault(id(layer.weight_values), name)
        if other != name:
            raise ValueError(
                f"{other} and {name} share their weight_values, which cannot have the layouts of both; a module that both places call, "
                "or a parameter for each, would work"
            )


def _check_state(optimizer: torch.optim.Optimizer, weight: Tensor) -> None:
    """ValueError if the optimizer keeps something for this weight that cannot be divided into blocks."""
    for name, kept in optimizer.state.get(weight, {}).items():
        if isinstance(kept, Tensor) and kept.numel() != 1 and kept.shape != weight.shape:
            raise ValueError(
                f"the optimizer keeps {name} of shape {tuple(kept.shape)} for a weight of {tuple(weight.shape)}, which cannot be "
                "divided into blocks; an optimizer that keeps one number for each element, such as AdamW or SGD, would work"
            )


def _with_all_blocks(dense: Any, block: tuple[int, int], fixed_shapes: bool) -> BlockSparseLayer:
    """The same layer in block-sparse form, with the same bias parameter."""
    layout = every_block(dense, block)
    sparse = of_dense(dense, block, layout, layout.blocks // getattr(dense, "groups", 1) if fixed_shapes else None)
    sparse.bias = dense.bias
    if dense.weight.grad is not None:
        stored(sparse).grad = sparse.blocks_of(dense.weight.grad)
    return sparse


def _exchange(optimizer: torch.optim.Optimizer, old: Tensor, sparse: BlockSparseLayer) -> None:
    """Replaces a dense weight by its blocks in the optimizer, and what the optimizer keeps for each element of it."""
    new = stored(sparse)
    for group in optimizer.param_groups:
        group["params"] = [new if one is old else one for one in group["params"]]
    if old in optimizer.state:
        optimizer.state[new] = {
            name: sparse.blocks_of(kept) if isinstance(kept, Tensor) and kept.shape == old.shape else kept
            for name, kept in optimizer.state.pop(old).items()
        }


def _score_of_present(scores: Tensor, layer: BlockSparseLayer) -> Tensor:
    """[blocks]: scores of the present blocks, of scores of blocks or of elements, of the present ones or of all; of elements
    a block has the sum of absolute values. ValueError for other shapes, and for NaN."""
    scores, layout = checked_scores(scores), layer.layout
    columns = layout.cols // layer.groups
    if layer.max_blocks is not None and tuple(scores.shape) in ((layer.max_blocks,), (layer.max_blocks, *layer.block_shape)):
        scores = layer.blocks_in(scores)
    if tuple(scores.shape) == (layout.blocks,):
        return scores
    if tuple(scores.shape) == (layout.blocks, *layer.block_shape):
        counted = layer.counted()
        every = scores.abs() if counted is None else torch.where(counted.to(scores.device), scores.abs(), 0)
        return every.flatten(1).sum(1)
    if tuple(scores.shape) == (layout.rows, columns):
        return scores[torch.from_numpy(row_of(layout)).to(scores.device), torch.tensor(layout.col % columns).to(scores.device)]
    if tuple(scores.shape) == layer.dense_shape:
        return layer.blocks_of(scores.abs()).flatten(1).sum(1)
    raise ValueError(
        f"the scores have the shape {tuple(scores.shape)}; {[layout.blocks]} or {[layout.rows, columns]}, one for each block, or "
        f"{list(layer.weight_values.shape)} or {list(layer.dense_shape)}, one for each element, would work"
    )
