"""Instances of a bag that an attention pooling must read: the samplers' laws for one query.

A bag is a population of keys with one query. A pooling gives the scores and features of its
instances (`ScoredBags`); the error of the pooled feature, and of the log-odds, is the exact law of
attention over sampled keys (docs/theory/enough.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax
from scipy.stats import hypergeom

from attnlimit.bags.data import Bags, check_instances
from attnlimit.checks import Array, count, probability, real_array, real_number, token_list
from attnlimit.errors import BadInput
from attnlimit.picture import Panel, Series
from attnlimit.result import Pictured, Result
from attnlimit.samplers import Iid, Sampler, Threshold, TopK, WithoutReplacement
from attnlimit.samplers.base import check_sampler
from attnlimit.simulate.engine import drawn_outputs
from attnlimit.theory.decision import decision_changes
from attnlimit.theory.one_query.sampler import sampler_law
from attnlimit.threads import small_matrices

Progress = Callable[[int, int], None]
SAMPLERS = (WithoutReplacement(), Iid(), TopK(1), Threshold(1.0))
NAMES: dict[type[Sampler], str] = {
    TopK: "top k", Threshold: "threshold", Iid: "i.i.d.",
    WithoutReplacement: "without replacement",
}  # fmt: skip
"""Names without a size."""
CHANGED = "decision changed"
ROOTED = ("feature error", "log-odds error")
"""Averaged as squares; their roots are given."""
TIMES = 64
"""How many times the longest bag may be drawn."""
MOST_DRAWN = 50_000_000
"""Largest product of n and the number of draws: a gigabyte or two of random numbers."""
FOLDS = 5
PLACE = torch.zeros(1, dtype=torch.long)
"""A bag's query has no place among the instances."""


@dataclass(frozen=True, eq=False)
class ScoredBags:
    """Bags as an attention pooling sees them.

    Parameters
    ----------
    scores : sequence of (instances,) arrays
        Before the softmax, one array for each bag.
    features : sequence of (instances, dim) arrays
        What is averaged with the softmax of the scores.
    weights : (dim,) array, optional
        Readout: the bag is positive where <weights, pooled feature> + bias > 0. Without it only
        the error of the feature is known.
    bias : float
    """

    scores: Sequence[Array]
    features: Sequence[Array]
    weights: Array | None = None
    bias: float = 0.0

    def __post_init__(self) -> None:
        scores = tuple(real_array(bag, "scores of a bag", ndim=1) for bag in self.scores)
        features = tuple(real_array(bag, "features of a bag", ndim=2) for bag in self.features)
        lengths = [[len(bag) for bag in bags] for bags in (scores, features)]
        if lengths[0] != lengths[1]:
            raise BadInput(
                "scores and features must have one array for each bag, with one score for each "
                f"instance; got {len(scores)} and {len(features)} arrays."
            )
        check_instances(features)
        weights = None if self.weights is None else real_array(self.weights, "weights", ndim=1)
        if weights is not None and len(weights) != features[0].shape[1]:
            raise BadInput(
                f"weights must have one dimension with the features, {features[0].shape[1]}, "
                f"got {len(weights)}."
            )
        for name, value in (("scores", scores), ("features", features), ("weights", weights)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "bias", real_number(self.bias, "bias"))

    def __len__(self) -> int:
        return len(self.scores)


_NAMES = (
    ("attention_a.0", "attention_b.0", "attention_c"),  # CLAM
    ("attention_V.0", "attention_U.0", "attention_w"),  # AttentionDeepMIL
    ("fc1", "fc_gated", "fc2"),  # torchmil
)


@dataclass(frozen=True, eq=False)
class GatedAttention:
    """Gated attention pooling, and the readout of its pooled features.

    An instance h has the score <w, tanh(V h + v) * sigmoid(U h + u)>, without the gate where there
    is no U.

    Parameters
    ----------
    V : (hidden, dim) array
    w : (hidden,) array
    U : (hidden, dim) array, optional
        The gate.
    v, u : (hidden,) arrays, optional
        What is added inside tanh and inside the gate.
    weights, bias : (dim,) array and float, optional
        Readout; without it only the error of the feature is known.
    """

    V: ArrayLike
    w: ArrayLike
    U: ArrayLike | None = None
    v: ArrayLike = 0.0
    u: ArrayLike = 0.0
    weights: Array | None = None
    bias: float = 0.0

    def __post_init__(self) -> None:
        V, w = real_array(self.V, "V", ndim=2), real_array(self.w, "w").reshape(-1)
        U = None if self.U is None else real_array(self.U, "U", ndim=2)
        if len(w) != len(V) or (U is not None and U.shape != V.shape):
            gate = "" if U is None else f", U of {U.shape}"
            raise BadInput(
                "V and U must be (hidden, dim) and w (hidden,): "
                f"got V of {V.shape}{gate} and w of {w.shape}."
            )
        for name, value in (("V", V), ("w", w), ("U", U)):
            object.__setattr__(self, name, value)

    def scores(self, bag: ArrayLike) -> Array:
        """Score of each instance of a bag (instances, dim)."""
        V, h = np.asarray(self.V), real_array(bag, "a bag", ndim=2)
        if h.shape[1] != V.shape[1]:
            raise BadInput(
                f"the attention scores instances of {V.shape[1]} features, but a bag has "
                f"{h.shape[1]}; give it the features that it was trained on."
            )
        gate = 1.0 if self.U is None else expit(h @ np.asarray(self.U).T + self.u)
        return np.asarray((np.tanh(h @ V.T + self.v) * gate) @ np.asarray(self.w))

    def scored(self, X: Sequence[ArrayLike]) -> ScoredBags:
        """Scores and features of the instances of bags."""
        features = [real_array(bag, "a bag", ndim=2) for bag in X]
        return ScoredBags([*map(self.scores, features)], features, self.weights, self.bias)

    @classmethod
    def from_state(
        cls, state: Mapping[str, Any], weights: Array | None = None, bias: float = 0.0
    ) -> GatedAttention:
        """Attention from a state dict with the names that CLAM, AttentionDeepMIL or torchmil use.

        Whatever the names begin with, an outer module's name for example, does not matter.
        """
        for value, gate, last in _NAMES:
            for key in state:
                start = key.removesuffix(f"{value}.weight")
                if start == key or f"{start}{last}.weight" not in state:
                    continue
                V, v, U, u, w = (
                    None if part not in state else np.asarray(state[part], dtype=float)
                    for layer in (value, gate, last)
                    for part in (f"{start}{layer}.weight", f"{start}{layer}.bias")
                    if part != f"{start}{last}.bias"
                )
                if w is None or V is None:
                    continue
                if len(w) > 1:
                    raise BadInput(
                        f"{start}{last} has {len(w)} attention branches; take the rows of one."
                    )
                inner = (0.0 if v is None else v, 0.0 if u is None else u)
                return cls(V, w, U, *inner, weights, bias)
        raise BadInput(
            "no gated attention was found in the state: expected "
            + ", or ".join(" and ".join(names) for names in _NAMES)
            + "; give GatedAttention(V, w, U) its matrices, or ScoredBags your scores."
        )


def scored_bags(
    bags: Bags | Sequence[ArrayLike] | None, pooling: Any
) -> tuple[list[ScoredBags], bool]:
    """Bags as the pooling sees them, in groups of one readout each; whether it never saw them."""
    if isinstance(pooling, ScoredBags):
        return [pooling], False
    if bags is None:
        raise BadInput("bags are needed, unless the pooling is a ScoredBags.")
    if not isinstance(bags, (Bags, list, tuple, np.ndarray)):
        raise BadInput(f"bags must be Bags or a list of arrays, got {type(bags).__name__}.")
    arrays = bags.instances if isinstance(bags, Bags) else list(bags)
    check_instances([real_array(bag, "a bag", ndim=2) for bag in arrays])
    if isinstance(pooling, torch.nn.Module):
        pooling = _module_attention(pooling, arrays)
    if isinstance(pooling, ScoredBags):
        return [pooling], False
    if not hasattr(pooling, "scored"):
        raise BadInput(
            f"{type(pooling).__name__} is not an attention pooling; give AttentionPooling, "
            "MeanPooling, GatedAttention, ScoredBags or a torch module that scores instances."
        )
    if not hasattr(pooling, "fit") or hasattr(pooling, "classes_"):
        return [pooling.scored(arrays)], False
    if not isinstance(bags, Bags):
        raise BadInput(
            f"{type(pooling).__name__} is not fitted: fit it first, or give labelled bags "
            "(al.bags.make_bags, read_bags), to which it will be fitted."
        )
    return _held_out(bags, pooling), True


def _module_attention(
    module: torch.nn.Module, bags: Sequence[ArrayLike]
) -> GatedAttention | ScoredBags:
    """The gated attention that a module holds, or else the scores that it gives when called."""
    state = {key: value.detach().cpu() for key, value in module.state_dict().items()}
    if any(key.endswith(f"{names[0]}.weight") for key in state for names in _NAMES):
        return GatedAttention.from_state(state)
    kind = next((p.dtype for p in module.parameters()), torch.float32)
    features, scores = [real_array(bag, "a bag", ndim=2) for bag in bags], []
    for bag in features:
        with torch.no_grad():
            given = module(torch.as_tensor(bag, dtype=kind))
        if not isinstance(given, torch.Tensor) or given.numel() != len(bag):
            raise BadInput(
                f"{type(module).__name__} must give one score for each of a bag's {len(bag)} "
                "instances, before the softmax; wrap it in a module that does, or give "
                "GatedAttention(V, w, U) its matrices."
            )
        scores.append(given.double().reshape(-1).numpy())
    return ScoredBags(scores, features)


def _held_out(bags: Bags, pooling: Any) -> list[ScoredBags]:
    from sklearn.base import clone
    from sklearn.model_selection import StratifiedKFold

    fewest = int(min(np.sum(bags.signs > 0), np.sum(bags.signs < 0)))
    if fewest < 2:
        raise BadInput(
            "a class has only one bag, so none can be kept from the fit; label more bags, or give "
            "a fitted pooling."
        )
    folds = StratifiedKFold(min(FOLDS, fewest), shuffle=True, random_state=0)
    groups = []
    for train, test in folds.split(bags.signs, bags.signs):
        fitted = clone(pooling).fit([bags.instances[i] for i in train], bags.signs[train])
        groups.append(fitted.scored([bags.instances[i] for i in test]))
    return groups


@dataclass(frozen=True, eq=False)
class ScoredBag:
    """Scores, features and log-odds of one bag."""

    scores: Array
    features: Array
    scale: float
    """Mean squared distance of the bags' pooled features from their mean."""
    log_odds: Array | None
    """Of each instance alone; the bag's are their average."""
    whole: float
    """Log-odds over all instances; NaN without a readout."""
    signal: NDArray[np.bool_] | None
    """Instances that carry the signal, in a bag that has some."""


def split_bags(
    scored: ScoredBags, signal: Sequence[NDArray[np.bool_]] | None = None
) -> list[ScoredBag]:
    """Bags with the scale of their pooled features, and their signal instances.

    Unless `signal` marks them, they are the instances that would make a bag positive alone, in
    bags that are decided to be positive.
    """
    pairs = list(zip(scored.scores, scored.features, strict=True))
    pooled = np.stack([softmax(scores) @ features for scores, features in pairs])
    scale = float(((pooled - pooled.mean(axis=0)) ** 2).sum(axis=1).mean())
    scale = scale or float((pooled**2).sum(axis=1).mean()) or 1.0
    bags = []
    for place, (scores, features) in enumerate(pairs):
        odds, whole = None, float("nan")
        marks = np.zeros(len(scores), bool)
        if scored.weights is not None:
            odds = features @ scored.weights + scored.bias
            whole = float(softmax(scores) @ odds)
            marks = odds > 0 if whole > 0 else marks
        if signal is not None:
            marks = np.asarray(signal[place], dtype=bool)
            if marks.shape != scores.shape:
                raise BadInput(
                    f"signal must mark each of a bag's {len(scores)} instances, "
                    f"got shape {marks.shape}."
                )
        bags.append(ScoredBag(scores, features, scale, odds, whole, marks if marks.any() else None))
    return bags


def predict_bag(sampler: Sampler, bag: ScoredBag) -> dict[str, float]:
    """Quantities of one bag, by name; those that are not defined are left out."""
    scores = torch.from_numpy(bag.scores)[None]
    law = sampler_law(sampler, scores, bag.features, PLACE)
    quantities = {"feature error": float(law.mse[0]) / bag.scale}
    if bag.log_odds is not None:
        own = sampler_law(sampler, scores, bag.log_odds[:, None], PLACE)
        quantities["log-odds error"] = float(own.mse[0])
        changed = decision_changes(sampler, bag.scores, bag.log_odds, bag.whole)
        quantities[CHANGED] = changed
    if bag.signal is not None:
        quantities["signal drawn"] = signal_drawn(sampler, bag.scores, bag.signal)
    return quantities


def instances_read(sampler: Sampler, seen: Sequence[ScoredBag]) -> float:
    """Different instances of a bag that are drawn or kept, on average over draws and bags."""
    rows = [torch.from_numpy(bag.scores)[None] for bag in seen]
    return float(np.mean([float(sampler.inclusion_probabilities(s, PLACE).sum()) for s in rows]))


def signal_drawn(sampler: Sampler, scores: Array, signal: NDArray[np.bool_]) -> float:
    """Probability that at least one of the instances marked in `signal` is drawn or kept."""
    total, hits = len(signal), int(signal.sum())
    if sampler.draws == "with replacement":
        return 1 - (1 - hits / total) ** int(sampler.size)  # type: ignore[attr-defined]
    if sampler.draws == "without replacement":
        size = min(int(sampler.size), total)  # type: ignore[attr-defined]
        return float(hypergeom.sf(0, total, hits, size))
    keep = sampler.inclusion_probabilities(torch.from_numpy(scores)[None], PLACE)[0].numpy()
    return 1 - float(np.prod(1 - keep[signal]))


def measure_bag(
    sampler: Sampler, bag: ScoredBag, draws: int, generator: torch.Generator
) -> dict[str, Array]:
    """Quantities of one bag in each of `draws` draws, by name."""
    odds = np.zeros(len(bag.scores)) if bag.log_odds is None else bag.log_odds
    signal = np.zeros(len(bag.scores)) if bag.signal is None else bag.signal
    values = torch.from_numpy(np.column_stack([bag.features, odds, signal]))
    scores = torch.from_numpy(bag.scores)[None]
    blocks = drawn_outputs(sampler, scores, values, PLACE, draws, generator)
    outputs = torch.cat(list(blocks))[:, 0].numpy()
    errors = outputs[:, :-2] - softmax(bag.scores) @ bag.features
    quantities = {"feature error": (errors**2).sum(axis=1) / bag.scale}
    if bag.log_odds is not None:
        quantities["log-odds error"] = (outputs[:, -2] - bag.whole) ** 2
        quantities[CHANGED] = (outputs[:, -2] >= 0) != (bag.whole >= 0)
    if bag.signal is not None:
        quantities["signal drawn"] = outputs[:, -1] > 0  # the weight on the signal
    return quantities


def smallest_enough(sampler: Sampler, seen: Sequence[ScoredBag], change: float) -> int | None:
    """Return the smallest size, 2 or more, from which on decisions change at most so often.

    How often they do need not fall with the size, so doublings are looked at from the largest.
    """

    def changed(size: int) -> float:
        sized = sampler.with_size(size)
        rates = [
            decision_changes(sized, bag.scores, bag.log_odds, bag.whole)
            for bag in seen
            if bag.log_odds is not None
        ]
        return float(np.mean(rates))

    high = 1 << int(np.ceil(np.log2(TIMES * max(len(bag.scores) for bag in seen))))
    if changed(high) > change:
        return None
    while high > 2 and changed(high // 2) <= change:
        high //= 2
    low = high // 2  # not enough, or one
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if changed(middle) <= change else (middle, high)
    return high


@dataclass(frozen=True, eq=False)
class InstanceBudget(Result, Pictured):
    """Errors of a pooling that reads n instances of every bag, predicted and measured."""

    table: pd.DataFrame
    enough: dict[str, int | None]
    """Smallest size of each sampler; None where no size is enough."""
    read: dict[str, float]
    """Mean number of distinct instances of a bag that are then read."""
    change: float
    bags: int
    draws: int
    held_out: bool

    def to_frame(self) -> pd.DataFrame:
        """One row for each sampler, n and quantity."""
        return self.table

    def to_dict(self) -> dict[str, Any]:
        """Everything that the page says, for JSON."""
        return {"answer": self.headline(), "enough": self.enough, "table": self.table}

    @property
    def answers(self) -> list[str]:
        """One sentence for each sampler."""
        return [
            f"{name}: no n is enough" if size is None
            else f"{name}: n = {size} is enough, and reads {self.read[name]:.3g} of a bag"
            for name, size in self.enough.items()
        ]  # fmt: skip

    def headline(self) -> str:
        """Number of bags and draws, and the sizes that are enough."""
        how = "scored by poolings fitted without them" if self.held_out else "scored as given"
        start = f"{self.bags} bags, {how}; {self.draws} draws of each."
        if not self.enough:
            return start
        return (
            f"{start} For a change of at most {self.change:.3g} of the decisions: "
            f"{'; '.join(self.answers)}."
        )

    def wide(self) -> pd.DataFrame:
        """One row for each sampler and n, predicted and measured side by side."""
        rows = []
        for (sampler, n), part in self.table.groupby(["sampler", "n"], sort=False):
            row: dict[str, Any] = {"sampler": sampler, "n": n, "read": part["read"].iloc[0]}
            for line in part.itertuples():
                row[f"{line.quantity}"] = line.predicted
                row[f"{line.quantity}: drawn"] = f"{line.measured:.4f} ± {line.stderr:.4f}"
            rows.append(row)
        return pd.DataFrame(rows)

    def panel(self, quantity: str = "") -> Panel:
        """One quantity against the instances that are read: by default decisions that change."""
        known = self.table["quantity"].unique()
        quantity = quantity or (CHANGED if CHANGED in known else ROOTED[0])
        chosen = self.table[self.table["quantity"] == quantity]
        series: list[Series] = []
        for name, part in chosen.groupby("sampler", sort=False):
            read, group = part["read"], str(name)
            series += [
                Series(read, part["predicted"], "line", None, group),
                Series(read, part["measured"], "points", group, group, part["stderr"]),
            ]
        label = "share of decisions that change" if quantity == CHANGED else quantity
        return Panel(quantity, "instances read of a bag", label, series, y_scale="linear")


@small_matrices()
def instances(
    bags: Bags | Sequence[ArrayLike] | None,
    pooling: Any,
    n: ArrayLike = (2, 4, 8, 16),
    *,
    samplers: Sampler | Sequence[Sampler] = SAMPLERS,
    change: float = 0.01,
    signal: Sequence[NDArray[np.bool_]] | None = None,
    draws: int = 200,
    most: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> InstanceBudget:
    """Error of the pooled feature and change of the decision when n instances of a bag are read.

    Parameters
    ----------
    bags : Bags, or a list of arrays (instances, dim)
        None, if the pooling already knows its scores (`ScoredBags`).
    pooling : estimator, GatedAttention, torch module or ScoredBags
        A fitted `AttentionPooling` or `MeanPooling` is used as it is. One that is not fitted is
        fitted to labelled bags, five times, and every bag is scored by a fit that never saw it.
    n : sequence of int
        Instances drawn or kept, each at least 2.
    samplers : samplers
        Rules that choose instances: each gets the size n, unless it has no size.
    change : float
        Largest fraction of decisions that may change; the smallest n for it is searched.
    signal : sequence of boolean arrays, optional
        Which instances carry the signal; by default those that would make a bag positive alone.
    draws : int
        Draws of each bag that measure what is predicted.
    most : int, optional
        Largest number of bags to use, evenly spaced among all.
    """
    sizes = [int(size) for size in token_list(n)]
    chosen = [samplers] if isinstance(samplers, Sampler) else list(samplers)
    if not chosen:
        raise BadInput("samplers is empty; give at least one, such as al.WithoutReplacement().")
    change, draws = probability(change, "change"), count(draws, "draws", smallest=2)
    if max(sizes) * draws > MOST_DRAWN:
        raise BadInput(
            f"n times draws must be at most {MOST_DRAWN:,}, got {max(sizes)} times {draws}; lower "
            "one of them."
        )
    groups, held_out = scored_bags(bags, pooling)
    total = sum(map(len, groups))
    if signal is not None and (len(signal) != total or held_out):
        raise BadInput(
            f"signal must mark the instances of {total} bags in their order, scored as given."
        )
    seen = [bag for group in groups for bag in split_bags(group, signal)]
    if most is not None and count(most, "most") < total:
        seen = [seen[i] for i in np.linspace(0, total - 1, most).astype(int)]
    generator = torch.Generator().manual_seed(count(seed, "seed", smallest=0))
    steps = [
        (sampler, size)
        for sampler in map(check_sampler, chosen)
        for size in (sizes if sampler.resizable else [0])
    ]
    searched = [s for s in chosen if s.resizable and seen[0].log_odds is not None]
    rows: list[dict[str, Any]] = []
    enough: dict[str, int | None] = {}
    read: dict[str, float] = {}
    for done, (sampler, size) in enumerate(steps):
        sized = sampler.with_size(size) if sampler.resizable else sampler
        labels = {"sampler": _name(sampler), "n": size, "read": instances_read(sized, seen)}
        rows += [labels | row for row in _rows(sized, seen, draws, generator)]
        if progress is not None:
            progress(done + 1, len(steps) + len(searched))
    for done, sampler in enumerate(searched):
        smallest = enough[_name(sampler)] = smallest_enough(sampler, seen, change)
        if smallest is not None:
            read[_name(sampler)] = instances_read(sampler.with_size(smallest), seen)
        if progress is not None:
            progress(len(steps) + done + 1, len(steps) + len(searched))
    return InstanceBudget(pd.DataFrame(rows), enough, read, change, len(seen), draws, held_out)


def _name(sampler: Sampler) -> str:
    return NAMES.get(type(sampler), sampler.name)


def _rows(
    sampler: Sampler, seen: Sequence[ScoredBag], draws: int, generator: torch.Generator
) -> list[dict[str, Any]]:
    """One row for each quantity: means over the bags that have it, errors over draws and bags."""
    predicted = [predict_bag(sampler, bag) for bag in seen]
    draws = 1 if sampler.draws == "nothing" else draws
    measured = [measure_bag(sampler, bag, draws, generator) for bag in seen]
    rows = []
    for name in dict.fromkeys(name for bag in predicted for name in bag):
        rooted = name in ROOTED
        law = np.array([bag[name] for bag in predicted if name in bag])
        drawn = np.mean([bag[name] for bag in measured if name in bag], axis=0)
        mean, over_bags = _average(law, rooted)
        row = {"quantity": name, "predicted": mean, "bags_stderr": over_bags, "bags": len(law)}
        mean, over_draws = _average(drawn, rooted)
        rows.append({**row, "measured": mean, "stderr": over_draws if draws > 1 else 0.0})
    return rows


def _average(values: Array, rooted: bool) -> tuple[float, float]:
    """Mean and its standard error; its root's, if the values are squares."""
    many, mean = len(values), float(values.mean())
    stderr = float(values.std(ddof=1) / np.sqrt(many)) if many > 1 else float("nan")
    root = float(np.sqrt(mean))
    return (root, stderr / max(2 * root, 1e-300)) if rooted else (mean, stderr)
