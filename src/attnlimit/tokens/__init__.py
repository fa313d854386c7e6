"""Where tokens come from: one measure per file, all with the surface of `Tokens`."""

from attnlimit.tokens.ball import Ball
from attnlimit.tokens.base import Tokens
from attnlimit.tokens.cube import Cube
from attnlimit.tokens.empirical import Empirical
from attnlimit.tokens.form import Form, GaussianForm, IndependentForm, SphericalForm
from attnlimit.tokens.gaussian import Gaussian
from attnlimit.tokens.laplace import Laplace
from attnlimit.tokens.mixture import Mixture
from attnlimit.tokens.product import Product
from attnlimit.tokens.score_law import ScoreLaw
from attnlimit.tokens.signs import Signs
from attnlimit.tokens.sphere import Sphere
from attnlimit.tokens.spherical import Spherical
from attnlimit.tokens.tail import Tail

__all__ = [
    "Ball",
    "Cube",
    "Empirical",
    "Form",
    "Gaussian",
    "GaussianForm",
    "IndependentForm",
    "Laplace",
    "Mixture",
    "Product",
    "ScoreLaw",
    "Signs",
    "Sphere",
    "Spherical",
    "SphericalForm",
    "Tail",
    "Tokens",
]
