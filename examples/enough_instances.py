"""
How many instances of a bag are enough?
=======================================

Bags of 30 digits with one nine in positive ones. If only some instances are read, how many
decisions change? At the same size, keeping by weight changes far fewer than a random subset.
"""

import matplotlib.pyplot as plt
import numpy as np

import attnlimit as al
from attnlimit.sparse.bags.digits import digit_bags

bags = digit_bags(9, length=30).draw(40, np.random.default_rng(0))
samplers = (al.WithoutReplacement(), al.Threshold(1.0))
found = al.sparse.enough(bags, al.sparse.AttentionPooling(), [4, 16], samplers=samplers, draws=50)
print(found.headline())
found.plot()
plt.show()

# Attention of your own: scores before the softmax, and what they average.
scores = [bag[:, 36] / 4 for bag in bags.instances]
brought = al.sparse.ScoredBags(scores, bags.instances)
print(al.sparse.enough(None, brought, [4, 16], samplers=samplers, draws=50))
