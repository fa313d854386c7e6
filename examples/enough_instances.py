"""
Instances of a bag that are enough
==================================

Bags of 30 digits with one nine in positive ones, and attention pooling that reads only some
instances: the share of decisions that change. At the same size, keeping by weight changes far fewer
than a random subset.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import attnlimit as al

images, digits = load_digits(return_X_y=True)
rng = np.random.default_rng(0)
labels = np.arange(40) % 2
arrays = [rng.choice(images[digits < 9], 30) for _ in labels]
for bag in arrays[1::2]:
    bag[0] = rng.choice(images[digits == 9])
bags = al.bags.make_bags(arrays, labels)
samplers = (al.WithoutReplacement(), al.Threshold(1.0))
budget = al.bags.instances(bags, al.bags.AttentionPooling(), [4, 16], samplers=samplers, draws=50)
print(budget.headline())
budget.plot()
plt.show()

# Attention of your own: scores before the softmax, and what they average.
scores = [bag[:, 36] / 4 for bag in bags.instances]
brought = al.bags.ScoredBags(scores, bags.instances)
print(al.bags.instances(None, brought, [4, 16], samplers=samplers, draws=50))
