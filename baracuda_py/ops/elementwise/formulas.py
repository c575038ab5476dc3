"""Functions that are formulas: each is one launch, forward and, by its `vjp`, backward.

`bc.squareplus(x, b=1.0)` is the result, `bc.squareplus.vjp(dy, x, b=1.0)` the gradient; both take `out=` and `stream=`.
"""

from __future__ import annotations

from typing import Any

from ...expressions.elementwise import Expression, elementwise


def _named(name: str, doc: str, formula: str, **defaults: Any) -> Expression:
    made = elementwise(formula, **defaults)
    vars(made).update(__name__=name, __module__=__name__, __doc__=doc)
    return made


quick_gelu = _named("quick_gelu", "x σ(1.702 x), a quick approximation of gelu (CLIP).", "x * sigmoid(1.702 * x)")
relu_squared = _named("relu_squared", "max(x, 0)² (Primer).", "square(relu(x))")
squareplus = _named(
    "squareplus",
    "(x + √(x² + b)) / 2 with b > 0, 4 by default (jax.nn.squareplus); small results keep their digits.",
    "where(x >= 0, x / 2 + hypot(x, sqrt(b)) / 2, b / 2 / (hypot(x, sqrt(b)) + abs(x)))",
    b=4.0,
)
sparse_plus = _named(
    "sparse_plus",
    "0 up to -1, (x + 1)² / 4 up to 1, then x (jax.nn.sparse_plus).",
    "where(x >= 1, x, square(clamp(x, -1, 1) + 1) / 4)",
)
sparse_sigmoid = _named(
    "sparse_sigmoid",
    "0 up to -1, (x + 1) / 2 up to 1, then 1: the derivative of sparse_plus (jax.nn.sparse_sigmoid).",
    "where(x <= -1, 0, where(x >= 1, 1, x * 0.5 + 0.5))",
)
log1mexp = _named(
    "log1mexp",
    "log(1 - exp(-x)) of x > 0 (jax.nn.log1mexp), without cancellation at either end.",
    "where(x < 0.6931471805599453, log(-expm1(-x)), log1p(-exp(-clamp_min(x, 0.6931471805599453))))",
)
modf = _named(
    "modf",
    "(fraction, whole) of x, both with its sign (numpy.modf); an infinity has fraction 0.",
    "fraction = where(isinf(x), copysign(0, x), where(signbit(x), -(trunc(x) - x), x - trunc(x))); whole = trunc(x)",
)
axpby = _named("axpby", "alpha x + beta y, x and y broadcast.", "alpha * x + beta * y", alpha=1.0, beta=1.0)
scaled_add = _named("scaled_add", "x + alpha y, x and y broadcast.", "x + alpha * y", alpha=1.0)
dynamic_tanh = _named(
    "dynamic_tanh",
    "weight tanh(alpha x) + bias (DyT, arXiv:2503.10622); weight and bias broadcast to x, as those of a norm do.",
    "tanh(alpha * x) * weight + bias",
    alpha=0.5,
)
