"""Error of the mean output at finite n, E|m_n - m|^2, by the law of two queries.

    E|m_n - m|^2 = (1/n) E|Gamma_n(x) - m|^2 + (1 - 1/n) E[(Gamma_n(x) - m).(Gamma_n(x') - m)],

with every query one of the n keys. The law is an equality given the queries; the average over
queries is drawn in strata, and its error is reported (docs/theory/moments.md).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnlimit.errors import BadInput
from attnlimit.head import Head
from attnlimit.theory.moments import WhitenedHead, check_reach
from attnlimit.theory.two_query.gaussian import GaussianKeys
from attnlimit.theory.two_query.isotropic import isotropic_mean_error
from attnlimit.theory.two_query.law import MeanError
from attnlimit.theory.two_query.population import population_mean_error
from attnlimit.theory.two_query.sphere import sphere_mean_error
from attnlimit.tokens import SphericalForm, Tokens
from attnlimit.tokens.gaussian import normal_rule

PICKS = 512
_COSTLY_PICKS = 192
MOST_PAIR_SIGMA = 80.0
_QUASI_KEYS = 768
_CROWD = 8  # up to this fraction of the stand-in's size, n tokens never exhaust it


def mean_error(head: Head, tokens: Tokens, n: NDArray[np.int64]) -> MeanError:
    """Error of the mean output by the two-query law."""
    form, atoms = tokens.form, tokens.atoms()
    if tokens.is_gaussian:
        keys = GaussianKeys.of(WhitenedHead.of(head, tokens))
        widest = float(np.linalg.norm(keys.tilts(normal_rule(keys.dim, 1024, 0)), axis=1).max())
        if widest > MOST_PAIR_SIGMA:
            raise BadInput(
                f"queries' scores have standard deviations up to {widest:.3g}: attention is a hard "
                f"maximum there and the two-query law stops at {MOST_PAIR_SIGMA:g}; "
                "use measure(head, tokens, statistic, n, replicates)."
            )
        return isotropic_mean_error(keys, n, PICKS)
    if isinstance(form, SphericalForm) and form.radial_dim == tokens.dim and atoms is None:
        return sphere_mean_error(head, form.radius, n, _COSTLY_PICKS)
    parts = []
    for seed in (0, 1) if atoms is None else (0,):
        points, weights = tokens.rule(_QUASI_KEYS, seed)
        if atoms is None and n.max() > len(points) / _CROWD:
            check_reach(tokens, head.tilts(points[::4]), points, weights)
        scores = head.tilts(points) @ points.T
        law = population_mean_error(scores, points @ head.V.T, n, weights, _COSTLY_PICKS)
        parts.append(law)
    mse = np.array([part.mse for part in parts])
    inner = np.linalg.norm([part.numerical_error for part in parts], axis=0) / len(parts)
    return MeanError(n, mse.mean(axis=0), np.hypot(inner, mse.std(axis=0)))
