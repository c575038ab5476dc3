"""Draws of several numbers at a time: normal vectors of a given covariance, counts of categories."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from ...core import Array, ElementKind, Scalar, registry
from ...core.checked import whole
from ...core.outputs import beside
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.tensor import broadcast_shape
from ...core.views import broadcast, constant, shape_of, with_axis, without_axes
from ...expressions.elementwise import elementwise
from ...core.arrays import read
from .draw_functions import multinomial
from .draws import flattened
from .multinomial import MultinomialPlan
from .random_fill import RandomPlan
from .random_functions import randn, seeded, shape_given


@cache
def _formula(text: str) -> Any:
    return elementwise(text)


@entry(RandomPlan)
def multivariate_normal(
    mean: Array, scale_tril: Array, *, shape: Any = None, seed: Scalar = None, offset: Scalar = 0, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """mean + scale_tril z of standard normal vectors z [..., d] (torch.distributions.MultivariateNormal).

    mean: [..., d]; scale_tril: [..., d, d], the Cholesky factor of the covariance, or any matrix whose product with its
    transpose is that; both of one float. shape: of the result without d, to which theirs broadcast; by default that. A
    fill and a product; gradients of mean and scale_tril.
    """
    options, element = {"stream": stream, "preference": preference}, read(mean, "mean").element
    own, factor = shape_of(mean, "mean"), shape_of(scale_tril, "scale_tril")
    if not element.is_float or read(scale_tril, "scale_tril").element is not element:
        raise InvalidProblemError(
            f"mean and scale_tril must be of one float, got {element} and {read(scale_tril, 'scale_tril').element}"
        )
    if not own or factor[-2:] != (own[-1],) * 2:
        raise InvalidProblemError(f"mean must be [..., d] and scale_tril [..., d, d], got shapes {own} and {factor}")
    lead = {"mean": own[:-1], "scale_tril": factor[:-2]}
    if shape is not None:
        lead["shape"] = wanted = shape_given(shape)
    drawn = broadcast_shape(lead, tuple(lead))
    if shape is not None and drawn != wanted:
        raise InvalidProblemError(f"mean {own} and scale_tril {factor} do not broadcast to shape {wanted}")
    whole_shape = (*drawn, own[-1])
    seed = seeded("multivariate_normal", seed, stream, mean, scale_tril)
    z = randn(whole_shape, seed=seed, offset=offset, element=element, like=constant(mean), **options)
    wide = broadcast(mean, whole_shape, "mean")
    if len(factor) == 2 and 0 not in whole_shape:
        return registry.public("linear")(z, scale_tril, residual=wide, out=out, **options)
    product = registry.public("matmul")(scale_tril, with_axis(z, -1, "z"), **options)
    return registry.public("add")(without_axes(product, (len(drawn) + 1,), "y"), wide, out=out, **options)


@entry(MultinomialPlan)
def multinomial_counts(
    n: int, probs: Array, *, seed: Scalar = None, offset: Scalar = 0, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """How often each of V categories comes in n draws, [..., V] of weights [..., V] (jax.random.multinomial).

    numpy.random.Generator.multinomial; n is a number of the host, counts are int64. They are those of the ids that
    `multinomial` with replacement draws of the same seed, so that time and memory grow with n. Where no weight is above
    0 they are 0. out must be dense.
    """
    shape, count = shape_of(probs, "probs"), whole("n", n, 0)
    if not shape or not shape[-1]:
        raise InvalidProblemError(f"probs must be [..., V] with V >= 1, got shape {shape}")
    options, reshape = {"stream": stream, "preference": preference}, registry.public("reshape")
    rows, size = math.prod(shape[:-1]), shape[-1]
    flat = flattened(out, shape, rows * size)
    seed = seeded("multinomial_counts", seed, stream, probs)
    if not rows:
        with beside(probs, stream):
            return registry.public("zeros")(shape, ElementKind.I64, like=constant(probs)) if out is None else out
    drawn = {"seed": seed, "offset": offset, **options}
    ids = multinomial(reshape(constant(probs), (rows, size)), count, True, **drawn)
    with beside(ids, stream):
        first = with_axis(registry.public("arange")(0, rows * size, size, like=ids), -1, "rows")
    cells = _formula("i + r if i >= 0 else i")(i=ids, r=first, **options)
    counts = registry.public("bincount")(cells, length=rows * size, out=flat, **options)
    return reshape(counts, shape) if out is None else out
