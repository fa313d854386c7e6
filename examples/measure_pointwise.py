"""
One query on the sphere
=======================

The error of one query over n tokens on a sphere: the exact law, and a thousand draws at each n.
"""

import matplotlib.pyplot as plt
import numpy as np

import attnlimit as al

head, tokens, x = al.Head(4.0 * np.eye(3)), al.Sphere(3), [[1.0, 0.0, 0.0]]
n = [30, 100, 300, 1000]
exact = al.pointwise_error(head, tokens, x, np.unique(np.geomspace(20, 2000, 30).astype(int)))
measured = al.measure(head, tokens, "pointwise", n, replicates=1000, x=x)
exact.plot(measured)
plt.show()
