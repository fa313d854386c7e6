"""Is the covariance of the outputs predicted at every n, from weak to frozen attention?

Run: python studies/finite_n_covariance.py [draws]

The paper's Gaussian setting (d = 50, variance 0.1): root mean square error of the outputs'
covariance, measured with control variates and predicted, as the rows of a table.
"""

import sys

import numpy as np

from attnlimit import Gaussian, predict
from attnlimit.montecarlo.measure import samples_curve
from attnlimit.montecarlo.sweep import sweep
from attnlimit.reproduce.compare import plus_minus
from attnlimit.reproduce.temperatures import paper_head

SCALES = (0.05, 1.15, 4.05, 7.59, 14.22, 26.66, 50.0)
COUNTS = (100, 250, 500, 1000)
SEED = 5


def main() -> None:
    """Print a row for each scale."""
    draws = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    tokens = Gaussian(dim=50, variance=0.1)
    print("| scale |" + "".join(f" n = {n}: measured | predicted |" for n in COUNTS))
    print("|---|" + "---|---|" * len(COUNTS))
    for scale in SCALES:
        head = paper_head(50, scale)
        seed = np.random.SeedSequence(SEED)
        found = sweep(head, tokens, ("mean", "covariance"), np.array(COUNTS), draws, seed)
        drawn = samples_curve(found["covariance"])
        law = predict(head, tokens, "covariance", COUNTS)
        cells = [f"{scale:g}"]
        for k in range(len(COUNTS)):
            cells.append(plus_minus(drawn.root[k], drawn.root_stderr[k]))
            cells.append(plus_minus(law.root[k], law.root_numerical_error[k]))
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
