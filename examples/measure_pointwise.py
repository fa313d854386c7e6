"""What error does one query make over n tokens on a sphere, and does the exact law say so?"""

import numpy as np

import attnlimit as al

head = al.Head(4.0 * np.eye(3))
tokens = al.Sphere(3)
x = np.array([[1.0, 0.0, 0.0]])
n = [30, 100, 300, 1000]

measured = al.measure(head, tokens, "pointwise", n, replicates=1000, x=x)
exact = al.pointwise_error(head, tokens, x, n)
for k, size in enumerate(n):
    print(
        f"n = {size:5d}   measured {measured.value[k]:.5f} ± {measured.stderr[k]:.5f}   "
        f"exact {exact.mse[0, k]:.5f}"
    )
