"""
Six samplers at as many keys
============================

Six ways to keep about 64 of 400 keys, on one sequence with a sink: the error of each, predicted.
For one head the best keys alone have the least error. Over the heads of a model their errors add
up, and a threshold is better (:ref:`sphx_glr_gallery_plan_output.py`).
"""

import matplotlib.pyplot as plt
import numpy as np

import attnlimit as al

rng = np.random.default_rng(0)
keys = rng.standard_normal((400, 8))
keys[0] *= 3  # a sink
capture = al.models.from_arrays(0.7 * keys, keys, rng.standard_normal((400, 8)), causal=False)
samplers = [
    al.Iid(64),
    al.Window(44, random=20),
    al.SinksAndRecent(4, 60),
    al.TopK(64),
    al.Keep(al.TopK(24), sample=40),
    al.Threshold(65),
]
curves = [
    al.predict(capture, "pointwise", layer=0, head=0, sampler=sampler) for sampler in samplers
]
errors = [curve.root[0] for curve in curves]
names = [
    f"{sampler.name}\n{curve.n[0]} keys" for sampler, curve in zip(samplers, curves, strict=True)
]

_, ax = plt.subplots(figsize=(7.2, 3.6), layout="constrained")
ax.barh(names[::-1], errors[::-1])
ax.set(xlabel="root mean squared error of a query's output")
plt.show()
