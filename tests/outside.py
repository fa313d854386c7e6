"""Token measures written outside the package, as a user would: what CONTRIBUTING.md asks for."""

import numpy as np
from scipy.special import ndtri

import attnlimit as al
from attnlimit.tokens import GaussianForm, ScoreLaw, Tail


class Needle(al.Tokens):
    """Uniform on the segment from `start` to `end`: bounded, lopsided, of no form of its own."""

    def __init__(self, start, end):
        self.start, self.end = np.asarray(start, float), np.asarray(end, float)
        self.dim = len(self.start)
        self.middle, self.half = (self.start + self.end) / 2, (self.end - self.start) / 2
        self.line = al.Cube(1)  # the place on the segment, from -1 to 1

    def cgf(self, t):
        t = np.asarray(t)
        return t @ self.middle + self.line.cgf((t @ self.half)[..., None])

    def tilted_mean(self, t):
        along = (np.asarray(t) @ self.half)[..., None]
        return self.middle + self.line.tilted_mean(along) * self.half

    def tilted_cov(self, t):
        along = (np.asarray(t) @ self.half)[..., None]
        return self.line.tilted_cov(along) * np.outer(self.half, self.half)

    def extreme(self, u):
        return np.where((np.asarray(u) @ self.half)[..., None] < 0, self.start, self.end)

    transport_dim = 1

    def transport(self, uniforms):
        return self.start + uniforms * (self.end - self.start)


class KnownNeedle(Needle):
    """A needle that also knows the law of its scores, so that its exact law is there."""

    def score_law(self, t):
        place, weight = np.polynomial.legendre.leggauss(400)
        points = np.stack([np.ones_like(place), place], axis=1)
        basis = np.stack([self.middle, self.half])
        return ScoreLaw.build(points @ (basis @ t), weight, points, basis)


class Normal(al.Tokens):
    """Normal tokens that say so, and so have every law of Gaussian tokens."""

    form = GaussianForm()

    def __init__(self, mean, root):
        self.centre, self.root, self.dim = (
            np.asarray(mean, float),
            np.asarray(root, float),
            len(mean),
        )

    def cgf(self, t):
        t = np.asarray(t)
        return t @ self.centre + ((t @ self.root) ** 2).sum(axis=-1) / 2

    def tilted_mean(self, t):
        return self.centre + np.asarray(t) @ self.root @ self.root

    def tilted_cov(self, t):
        return np.broadcast_to(self.root @ self.root, (*np.shape(t), self.dim))

    def extreme(self, u):
        raise al.UnboundedSupport("normal tokens have no furthest point.")

    def transport(self, uniforms):
        return self.centre + ndtri(uniforms) @ self.root

    @property
    def tail(self):
        return Tail("sub-Gaussian", roots=(self.root,))


class Waiting(al.Tokens):
    """Independent exponential waiting times, whose tail may be declared or not."""

    def __init__(self, dim, declared=True):
        self.dim, self.declared = dim, declared

    def _below(self, t):
        t = np.asarray(t, float)
        if (t >= 1).any():
            raise al.NoLimitError("waiting times have no limit where a coordinate of t reaches 1.")
        return t

    def cgf(self, t):
        return -np.log1p(-self._below(t)).sum(axis=-1)

    def tilted_mean(self, t):
        return 1 / (1 - self._below(t))

    def tilted_cov(self, t):
        return self.tilted_mean(t)[..., None] ** 2 * np.eye(self.dim)

    def extreme(self, u):
        if (np.asarray(u) > 0).any():
            raise al.UnboundedSupport("waiting times have no longest one.")
        return np.zeros_like(u)

    def transport(self, uniforms):
        return -np.log1p(-uniforms)

    @property
    def tail(self):
        return Tail("exponential", rate=1.0) if self.declared else super().tail


ENDS = [-1.0, 0.5, 0.0], [2.0, 1.0, -1.5]
MEASURES = {
    "needle": Needle(*ENDS),
    "known needle": KnownNeedle(*ENDS),
    "normal": Normal([0.2, -0.1], np.diag([1.0, 0.6])),
}
