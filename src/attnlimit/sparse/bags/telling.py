"""Which instances tell? Those that alone would be called positive, in a few bags of the pilot."""

from __future__ import annotations

import numpy as np
import pandas as pd

from attnlimit.sparse.bags.bags import Bags
from attnlimit.sparse.bags.plan import BagPlan


def telling_instances(plan: BagPlan, bags: Bags, each: int = 3, top: int = 3) -> pd.DataFrame:
    """Train the recommended pooling on all bags, and look at a few of each class.

    The bags are those of each class that it calls positive most surely. One row for each of the
    `top` instances of a bag: bag (its name) and instance (its place), label, chance (that the bag
    is positive, says the pooling), alone (that a bag of this instance only would be).
    """
    pooling = plan.estimator.fit(list(bags.instances), bags.labels)
    chance = pooling.predict_proba(list(bags.instances))[:, 1]
    rows = []
    for label in (1, -1):
        mine = np.flatnonzero(bags.labels == label)
        for bag in mine[np.argsort(-chance[mine], kind="stable")][:each]:
            instances = bags.instances[bag]
            alone = pooling.predict_proba([one[None] for one in instances])[:, 1]
            for place in np.argsort(-alone, kind="stable")[:top]:
                rows.append(
                    {
                        "bag": bags.name(bag),
                        "label": "positive" if label > 0 else "negative",
                        "chance": float(chance[bag]),
                        "instance": int(place),
                        "of": len(instances),
                        "alone": float(alone[place]),
                    }
                )
    return pd.DataFrame(rows)
