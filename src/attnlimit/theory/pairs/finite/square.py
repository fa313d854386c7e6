"""What is E (X.Y)^2 for sums of vectors over drawn keys? All that squares of outputs need.

X = x0 + sum x_k and Y = y0 + sum y_k over M independent keys, at each point of a grid whose keys
have a law of their own. With means taken out, what is left is one key's covariances, third and
fourth moments (docs/theory/moments.md, section 4).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnlimit.checks import Array


@dataclass(frozen=True, eq=False)
class KeyMoments:
    """Central moments of (x, y) of one key at G points; c coordinates."""

    x: Array  # (G, c): means
    y: Array
    xx: Array  # (G, c, c): covariances
    xy: Array
    yy: Array
    x_third: Array  # (G, c): E x (x.y), of centred x and y
    y_third: Array
    fourth: Array  # (G,): E (x.y)^2

    @staticmethod
    def of(
        x: Array, y: Array, xx: Array, xy: Array, yy: Array, x_s: Array, y_s: Array, s_s: Array
    ) -> KeyMoments:
        """From means, second moments, and E xs, E ys, E s^2 of s = x.y."""
        both, mean = np.trace(xy, axis1=1, axis2=2), (x * y).sum(axis=1)
        x_y, y_x = times(xx, y), times(yy, x)
        across, back = times(xy, x), times(np.swapaxes(xy, 1, 2), y)
        rest = (2 * mean - both)[:, None]
        fourth = s_s + ((x_y - 2 * x_s) * y + (y_x - 2 * y_s) * x + 2 * across * y).sum(axis=1)
        fourth += 2 * mean * both - 3 * mean**2
        return KeyMoments(
            x,
            y,
            xx - x[:, :, None] * x[:, None],
            xy - x[:, :, None] * y[:, None],
            yy - y[:, :, None] * y[:, None],
            x_s - x_y - across + rest * x,
            y_s - y_x - back + rest * y,
            fourth,
        )

    def square(self, known_x: Array, known_y: Array, keys: float) -> Array:
        """E (X.Y)^2 at each point, with these known vectors and so many keys."""
        x, y = known_x + keys * self.x, known_y + keys * self.y
        along, shared = (x * y).sum(axis=1), np.trace(self.xy, axis1=1, axis2=2)
        once = (times(self.yy, x) * x + times(self.xx, y) * y).sum(axis=1)
        once += 2 * (times(self.xy, x) * y).sum(axis=1) + 2 * along * shared
        once += 2 * (x * self.y_third + y * self.x_third).sum(axis=1) + self.fourth
        twice = shared**2 + (self.xx * self.yy).sum(axis=(1, 2))
        twice += (self.xy * np.swapaxes(self.xy, 1, 2)).sum(axis=(1, 2))
        return np.asarray(along**2 + keys * once + keys * (keys - 1) * twice)


def times(matrices: Array, vectors: Array) -> Array:
    """Matrices (G, c, c) times vectors (G, c)."""
    return np.asarray((matrices @ vectors[..., None])[..., 0])


@dataclass(frozen=True, eq=False)
class Vectors:
    """Two vectors of each key, its value v and its part a of a sum, and all their products."""

    v: Array  # (N, c)
    a: Array  # (N, c)
    vv: Array  # (N, c c): flat outer products
    va: Array
    aa: Array
    lengths: tuple[Array, Array, Array]  # v.v, v.a, a.a of each

    @staticmethod
    def of(v: Array, a: Array) -> Vectors:
        pairs = ((v, v), (v, a), (a, a))
        vv, va, aa = ((x[:, :, None] * y[:, None]).reshape(len(v), -1) for x, y in pairs)
        one, both, other = ((x * y).sum(axis=1) for x, y in pairs)
        return Vectors(v, a, vv, va, aa, (one, both, other))


@dataclass(frozen=True, eq=False)
class Mixtures:
    """Keys under laws `law` (G, N) of sum one, and weights p, q (G, N) of their values.

    A vector of a key is (which, r): p v + r a for "p", q v + r a for "q", r a for "0".
    """

    vectors: Vectors
    law: Array
    weights: dict[str, Array]
    second: dict[str, Array]  # "pp", "pq", "qq", "p", "q", "": E p q vv', E p va', E aa'
    known: dict[str, Array]  # "p", "q", "0": sums over known keys of p v, q v and a

    @staticmethod
    def of(
        vectors: Vectors, law: Array, weights: dict[str, Array], known: dict[str, Array]
    ) -> Mixtures:
        """With tables of second moments for these weights."""
        c = vectors.v.shape[1]
        second = {"": (law @ vectors.aa).reshape(-1, c, c)}
        for name, w in weights.items():
            second[name] = ((law * w) @ vectors.va).reshape(-1, c, c)
            for other, w_other in weights.items():
                if other >= name:
                    second[name + other] = ((law * w * w_other) @ vectors.vv).reshape(-1, c, c)
        return Mixtures(vectors, law, weights, second, known)

    def square(self, x: tuple[str, float], y: tuple[str, float], keys: float) -> Array:
        """E (X.Y)^2 at each point for the sums of two of a key's vectors, known keys included."""
        (name_x, r), (name_y, s) = x, y
        p, q = (self.weights.get(name, 0.0) for name in (name_x, name_y))
        vv, va, aa = self.vectors.lengths
        inner = p * q * vv + (p * s + q * r) * va + r * s * aa  # (G, N)
        weighed = self.law * inner
        moments = KeyMoments.of(
            self._sum(self.law, name_x, r),
            self._sum(self.law, name_y, s),
            self._second(name_x, r, name_x, r),
            self._second(name_x, r, name_y, s),
            self._second(name_y, s, name_y, s),
            self._sum(weighed, name_x, r),
            self._sum(weighed, name_y, s),
            (weighed * inner).sum(axis=1),
        )
        return moments.square(self.sum_known(name_x, r), self.sum_known(name_y, s), keys)

    def sum_known(self, name: str, r: float) -> Array:
        """Sum over the known keys."""
        of_values = self.known[name] if name in self.weights else 0.0
        return np.asarray(of_values + r * self.known["0"])

    def _sum(self, law: Array, name: str, r: float) -> Array:
        found = r * (law @ self.vectors.a)
        return (
            (law * self.weights[name]) @ self.vectors.v + found if name in self.weights else found
        )

    def mean(self, name: str, r: float) -> Array:
        """E of a key's vector."""
        return self._sum(self.law, name, r)

    def _second(self, one: str, r: float, other: str, s: float) -> Array:
        found = r * s * self.second[""]
        if one in self.weights:
            found = found + s * self.second[one]
        if other in self.weights:
            found = found + r * np.swapaxes(self.second[other], 1, 2)
        if one in self.weights and other in self.weights:
            found = found + self.second["".join(sorted((one, other)))]
        return np.asarray(found)

    def outer(self, one: tuple[str, float], other: tuple[str, float], keys: float) -> Array:
        """E X Y' at each point, (G, c, c)."""
        x, y = self.mean(*one), self.mean(*other)
        full_x, full_y = self.sum_known(*one) + keys * x, self.sum_known(*other) + keys * y
        inner = self._second(*one, *other) - x[:, :, None] * y[:, None]
        return np.asarray(full_x[:, :, None] * full_y[:, None] + keys * inner)
