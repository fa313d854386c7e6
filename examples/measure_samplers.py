"""Which keys should a query keep? Errors of several samplers on one sequence."""

import numpy as np

import attnlimit as al
from attnlimit.montecarlo import sampled_errors

rng = np.random.default_rng(0)
sequence = rng.standard_normal((400, 8))
sequence[0] *= 3  # a sink
head = al.Head(0.7 * np.eye(8))
places = rng.choice(400, 20, replace=False)

for sampler in (
    al.Iid(64),
    al.WithoutReplacement(64),
    al.Window(44, random=20),
    al.SinksAndRecent(4, 60),
    al.TopK(64),
    al.Keep(al.TopK(24), sample=40, weighted=True),
):
    errors = sampled_errors(head, sequence, places, sampler, replicates=100)
    print(f"{np.sqrt((errors**2).sum(-1).mean()):.3f}  {sampler}")
