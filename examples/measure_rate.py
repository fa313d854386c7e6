"""
Predicted, measured, fitted
===========================

The rate at which the mean output converges: the predicted curve with measurements on top, and the
fitted rate beside the predicted one over the same range.
"""

import matplotlib.pyplot as plt

import attnlimit as al

head, tokens = al.Head([[0.8]]), al.Gaussian(dim=1)
n = [250, 500, 1000, 2000]
predicted = al.predict(head, tokens, "mean", n)
measured = al.measure(head, tokens, "mean", n, replicates=200)
fit = al.fit_rate(measured, predicted=predicted)
print(fit)

_, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.6), layout="constrained")
predicted.plot(measured, ax=left)
fit.plot(ax=right)
right.set(yticks=[], ylim=(-3, 3))
plt.show()
