"""How many labelled bags will mean pooling and attention pooling need: predict, and recommend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from attnlimit.checks import count, positive, token_counts
from attnlimit.errors import BadInput, NotConverged
from attnlimit.sparse.bags.bags import Bags
from attnlimit.sparse.bags.estimate import BagEstimate, estimate
from attnlimit.sparse.law.bayes import bayes_error
from attnlimit.sparse.law.end_to_end import EndToEnd, best_split
from attnlimit.sparse.law.learning_curve import learning_curve
from attnlimit.sparse.train.descent import misclassified, pool, pooled_bags, train_attention
from attnlimit.sparse.train.fit import fit_readout

RIDGE = 0.1
"""In whitened coordinates; the same in prediction and in training."""


@dataclass(frozen=True, eq=False)
class BagPlan:
    """Predicted error of each pooling against the number of labelled bags."""

    estimate: BagEstimate
    budgets: np.ndarray
    mean_error: np.ndarray
    attention: tuple[EndToEnd, ...]
    floor: float
    """Bayes error of the estimated task."""
    ridge: float

    @property
    def attention_error(self) -> np.ndarray:
        """Predicted error of attention pooling at each budget."""
        return np.array([part.test_error for part in self.attention])

    @property
    def recommendation(self) -> str:
        """One sentence: which pooling, from how many bags on, and how far to trust it."""
        held_out = self.estimate.checks[-1]
        guess = self.estimate.task.guess
        agreement = next(c for c in self.estimate.checks if c.assumption.startswith("two halves"))
        if not agreement.holds or held_out.found >= guess:
            return (
                "No recommendation: the pilot does not show one signal. Its two halves agree with "
                f"cosine {agreement.found:.2f}, and on bags held out the estimated signal errs "
                f"{held_out.found:.1%} of the time, where guessing errs {guess:.1%}; label more "
                "bags, or use other features, before believing the errors predicted here."
            )
        better = self.attention_error < self.mean_error
        failed = [c.assumption.split(" (")[0] for c in self.estimate.checks if not c.holds]
        if better.all():
            advice = "Use attention pooling at every size considered"
        elif not better.any():
            advice = "Use mean pooling at every size considered"
        else:
            switch = int(self.budgets[np.argmax(better)])
            advice = f"Use mean pooling below about {switch} bags and attention pooling from there"
        trust = "; the bags fit the model's assumptions"
        if failed:
            broken = f"{len(failed)} assumption(s): {'; '.join(failed)}"
            trust = f"; but check first, as the bags break {broken}"
        return (
            f"{advice}{trust}. On pilot bags held out, the estimated signal alone errs "
            f"{held_out.found:.1%} of the time, where the model says {held_out.expected:.1%}."
        )

    def to_frame(self) -> pd.DataFrame:
        """One row for each budget."""
        return pd.DataFrame(
            {
                "bags": self.budgets,
                "mean_pooling": self.mean_error,
                "attention": self.attention_error,
                "query_bags": [round(p.alpha0 * self.estimate.dim) for p in self.attention],
                "query_cosine": [p.alignment.cosine for p in self.attention],
                "sharpness": [p.alignment.sharpness for p in self.attention],
                "bayes": self.floor,
            }
        )

    def __str__(self) -> str:
        table = self.to_frame().to_string(index=False, float_format=lambda v: f"{v:.3f}")
        return f"{self.estimate}\n\n{table}\n\n{self.recommendation}"


def plan_bags(
    bags: Bags,
    budgets: Sequence[int] = (50, 100, 200, 400, 800, 1600),
    *,
    ridge: float = RIDGE,
    max_dim: int | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> BagPlan:
    """Estimate the task from a pilot set and predict both poolings at each budget of bags."""
    sizes = np.unique(token_counts(budgets, "budgets", smallest=4))
    ridge = positive(ridge, "ridge")
    found = estimate(bags, max_dim, seed)
    alphas = sizes / found.dim
    curve = learning_curve(found.task, alphas, "pooled", ridge=ridge)
    attention = []
    for done, alpha in enumerate(alphas):
        attention.append(best_split(found.task, float(alpha), ridge=ridge, dim=found.dim))
        if progress is not None:
            progress(done + 1, len(alphas))
    return BagPlan(
        found,
        sizes,
        np.array([r.test_error for r in curve]),
        tuple(attention),
        bayes_error(found.task).value,
        ridge,
    )


def measure_plan(
    plan: BagPlan,
    draw: Callable[[int, np.random.Generator], Bags],
    test: Bags | Mapping[str, Bags],
    *,
    replicates: int = 10,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> pd.DataFrame:
    """Train both poolings as planned on fresh bags, and put errors beside the predictions.

    `draw(n, rng)` gives n labelled training bags; `test` is held out, and may be several sets by
    name. Returns one row for each budget, pooling and test set: test (its name, "test" when there
    is one), bags, pooling, predicted, measured, stderr.
    """
    replicates = count(replicates, "replicates", smallest=2)
    tests = {"test": test} if isinstance(test, Bags) else test
    white_tests = {name: plan.estimate.whiten(bags) for name, bags in tests.items()}
    rows = []
    for done, (budget, part) in enumerate(zip(plan.budgets, plan.attention, strict=True)):
        predicted = {"mean pooling": float(plan.mean_error[done]), "attention": part.test_error}
        errors: dict[tuple[str, str], list[float]] = {}
        for child in np.random.SeedSequence([seed, int(budget)]).spawn(replicates):
            rng = np.random.default_rng(child)
            bags = plan.estimate.whiten(draw(int(budget), rng))
            trained = {
                "mean pooling": _train_mean(bags, plan.ridge),
                "attention": _train_attention(bags, part, plan.ridge),
            }
            for name, white in white_tests.items():
                for pooling, error in trained.items():
                    errors.setdefault((name, pooling), []).append(error(white))
        rows += [
            {
                "test": name,
                "bags": int(budget),
                "pooling": pooling,
                "predicted": predicted[pooling],
                "measured": float(np.mean(values)),
                "stderr": float(np.std(values, ddof=1) / np.sqrt(len(values))),
            }
            for (name, pooling), values in errors.items()
        ]
        if progress is not None:
            progress(done + 1, len(plan.budgets))
    return pd.DataFrame(rows)


def _train_mean(bags: Bags, ridge: float) -> Callable[[Bags], float]:
    """Train mean pooling; returns its error on other bags."""
    readout = fit_readout(*pooled_bags(bags.blocks()(), "pooled"), ridge=ridge)
    return lambda test: misclassified(lambda X: readout(pool(X, "pooled")), test.blocks())


def _train_attention(bags: Bags, part: EndToEnd, ridge: float) -> Callable[[Bags], float]:
    """Train attention pooling as planned; returns its error on other bags."""
    first = min(max(2, round(part.fraction * len(bags))), len(bags) - 2)
    query, rest = (bags.subset(part) for part in np.split(np.arange(len(bags)), [first]))
    steps = {name: getattr(part.alignment, name) for name in ("lr_w", "lr_b", "lr_q", "beta")}
    try:
        trained = train_attention(query.blocks(), rest.blocks(), ridge=ridge, **steps)
    except (BadInput, NotConverged):
        # one class only in a tiny readout set: guessing is all that is left
        return lambda test: float(np.mean(test.labels < 0))
    return lambda test: trained.error(test.blocks())
