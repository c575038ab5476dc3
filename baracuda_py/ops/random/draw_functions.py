"""Draws that are made of others: random orders, choices, categories, points of a simplex and of a ball."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from ...core import Array, ElementKind, Scalar, registry
from ...calls.functional import functional
from ...core.checked import real, truth, whole
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.views import constant, reshaped, shape_of, with_axis
from ...expressions.elementwise import elementwise
from ...core.arrays import read
from ..layout.views import broadcast_to, movedim
from .draws import flattened, is_array
from .multinomial import MultinomialPlan
from .permutation import PermutationPlan
from .distributions import RandomKind
from .random_fill import RandomPlan
from .random_functions import fill, in_package, randint, seeded, shape_given
from .sampling import SamplingPlan
from .sampling_functions import sample

_formula = cache(elementwise)
_permuted = functional(PermutationPlan, "permuted")
_multinomial = functional(MultinomialPlan, "multinomial")


def _order(n: int, count: int, like: Any, options: dict[str, Any], element: Any = "int64") -> Any:
    given = {} if like is None else {"like": in_package(like, (count,))}
    return _permuted(n=n, count=count, element=element, **given, **options)


@entry(PermutationPlan)
def randperm(
    n: int, *, seed: Scalar = None, offset: Scalar = 0, element: Any = "int64", like: Any = None, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """0 … n - 1 in a random order (torch.randperm), int64 or int32. like: an array whose package the result has.

    Up to 4096 all orders are alike; beyond it is a bijection of n numbers, see `PermutationPlan`.
    """
    options = {"seed": seeded("randperm", seed, stream, like, out), "offset": offset, "out": out, "stream": stream,
               "preference": preference}  # fmt: skip
    return _order(n, n, like, options, element)


@entry(PermutationPlan)
def permutation(
    x: Array | int, axis: int = 0, *, seed: Scalar = None, offset: Scalar = 0, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """x with its parts along an axis in a random order (numpy.random.Generator.permutation); of a number `randperm`."""
    seed = seeded("permutation", seed, stream, x, out)
    options = {"seed": seed, "offset": offset, "stream": stream, "preference": preference}
    if isinstance(x, (int, np.integer)):
        return _order(int(x), int(x), None, {**options, "out": out})
    shape = read(x, "x").shape
    axis = whole("axis", axis, -len(shape), len(shape) - 1)
    order = _order(shape[axis], shape[axis], x, options)
    return registry.public("index_select")(x, order, axis=axis, out=out, stream=stream, preference=preference)


shuffle = permutation


@entry(MultinomialPlan)
def multinomial(
    probs: Array, num_samples: int = 1, replacement: bool = False, *, seed: Scalar = None, offset: Scalar = 0,
    index_element: Any = "int64", out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Ids drawn from weights [V] or rows of them [B, V] (torch.multinomial): [num_samples] or [B, num_samples].

    Without replacement at most V. Weights need not sum to 1; see `MultinomialPlan`.
    """
    seed = seeded("multinomial", seed, stream, probs)
    options = {
        "num_samples": num_samples, "replacement": replacement, "seed": seed, "offset": offset,
        "index_element": index_element, "stream": stream, "preference": preference,
    }  # fmt: skip
    if len(read(probs, "probs").shape) != 1:
        return _multinomial(probs, out=out, **options)
    made = _multinomial(with_axis(probs, 0, "probs"), out=None if out is None else with_axis(out, 0, "out"), **options)
    return made[0] if out is None else out


@entry(MultinomialPlan)
def choice(
    a: Array | int, shape: Any = (), *, replace: bool = True, p: Any = None, axis: int = 0, seed: Scalar = None,
    offset: Scalar = 0, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Elements of an array [n], or numbers below n, drawn alike or with weights p [n] (numpy.random.Generator.choice).

    Of an array of more axes the parts along `axis`, whose place in the result the axes of `shape` take. replace:
    whether one may come more than once. out must be dense.
    """
    number = isinstance(a, (int, np.integer)) and not isinstance(a, bool)
    extents = shape_given(shape)
    count, options = math.prod(extents), {"stream": stream, "preference": preference}
    drawn: dict[str, Any] = {"seed": seeded("choice", seed, stream, a, p, out), "offset": offset, **options}
    own = (int(a),) if number else shape_of(a, "a")
    if not own:
        raise InvalidProblemError("choice takes an array of one axis at least or a number, got shape ()")
    axis = whole("axis", axis, -len(own), len(own) - 1) % len(own)
    n, lead, tail = own[axis], own[:axis], own[axis + 1 :]
    if p is not None and shape_of(p, "p") != (n,):
        raise InvalidProblemError(f"choice: p must have a weight for each of the {n}, got shape {shape_of(p, 'p')}")
    like = p if p is not None else None if number else a
    extents, flat = (*lead, *extents, *tail), None
    if out is not None:
        flattened(out, extents, math.prod(extents))
        flat = reshaped(out, (*lead, count, *tail), "out")
    drawn["out"] = flat if number else None
    if p is not None:
        at = multinomial(p, count, replace, **drawn)
    elif truth("replace", replace):
        at = randint(0, n if count else 1, shape=(count,), like=like, **drawn)
    else:
        at = _order(n, count, like, drawn)
    made = at if number else registry.public("index_select")(a, at, axis=axis, out=flat, **options)
    return registry.public("reshape")(made, extents) if out is None else out


@entry(SamplingPlan)
def categorical(
    logits: Array, axis: int = -1, *, shape: Any = None, seed: Scalar = None, offset: Scalar = 0,
    index_element: Any = "int64", out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """An id of each row of logits [..., V] with the probabilities softmax(logits) (jax.random.categorical): [...].

    Rows lie along `axis`; where it is not the last one, they are copied to be contiguous. shape: of the result, to
    which that of the rows broadcasts, each id a draw of its own; the rows are then copied as often as they are drawn
    from.
    """
    given = read(logits, "logits").shape
    if not given or not given[whole("axis", axis, -len(given), len(given) - 1)]:
        raise InvalidProblemError(f"logits must have shape [..., V] with V >= 1, got {given}")
    if axis % len(given) != len(given) - 1:
        logits = movedim(logits, axis, -1)
        given = shape_of(logits, "logits")
    if shape is not None:
        logits = broadcast_to(logits, (*shape_given(shape), given[-1]))
        given = shape_of(logits, "logits")
    lead = given[:-1]
    count, reshape = math.prod(lead), registry.public("reshape")
    rows = reshape(logits, (count, given[-1])) if len(given) != 2 or shape is not None else logits
    options = {"index_element": index_element, "stream": stream, "preference": preference}
    flat = flattened(out, lead, count)
    made = sample(rows, seed=seed, offset=offset, out=flat, **options)
    return reshape(made, lead) if out is None else out


@entry(RandomPlan)
def dirichlet(
    concentration: Array, *, shape: Any = None, seed: Scalar = None, offset: Scalar = 0, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Points of the simplex (torch.distributions.Dirichlet) of concentrations [..., K]: softmax of log-gamma variates.

    shape: of the result, to which the concentrations broadcast. Exact for concentrations so small that gamma variates
    are 0; what rounds to 0 or 1 is the element beside it. Logarithms are float32 or float64, as those of small
    concentrations leave the range of a 16-bit float. Three launches.
    """
    element = read(concentration, "concentration").element
    if not element.is_float:
        raise InvalidProblemError(f"concentration must be a float array, got {element}")
    options = {"stream": stream, "preference": preference}
    given = {"seed": seed, "offset": offset, "element": element.acc, "like": None, "out": None, **options}
    logs = fill(RandomKind.LOGGAMMA, {"concentration": concentration}, shape, given)
    points = registry.public("softmax")(logs, axis=-1, **options)
    least, most = element.limits.tiny, 1 - element.limits.eps / 2
    return _formula(f"{element}(minimum(maximum(y, {least!r}), {most!r}))")(y=points, out=out, **options)


@entry(RandomPlan)
def ball(
    d: int, p: float = 2.0, *, shape: Any = (), seed: Scalar = None, offset: Scalar = 0, element: Any = "float32",
    like: Any = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Points [*shape, d] uniform in the unit ball of the p-norm (jax.random.ball; Barthe et al. 2005).

    Takes the offsets `offset` and `offset` + 1 of the stream.
    """
    extents, d, p = shape_given(shape), whole("d", d, 0), real("p", p)
    if not 0 < p < math.inf:
        raise InvalidProblemError(f"ball: p must be above 0 and finite, got {p}")
    options = {"stream": stream, "preference": preference}
    seed = seeded("ball", seed, stream, like, out)
    given = {"seed": seed, "element": ElementKind.of(element), "out": None, **options}
    like = None if like is None else constant(like)
    after = _formula("o + 1")(o=offset, **options) if is_array(offset) else whole("offset", offset) + 1
    g = fill(RandomKind.GENERALIZED_NORMAL, {"p": p}, (*extents, d), {**given, "offset": offset, "like": like})
    e = fill(RandomKind.EXPONENTIAL, {"rate": 1.0}, (*extents, 1), {**given, "offset": after, "like": like})
    add, div, power, size, total = (registry.public(name) for name in ("add", "div", "pow", "abs", "sum"))
    sums = total(power(size(g, **options), p, **options), axis=-1, keepdims=True, **options)
    return div(g, power(add(sums, e, **options), 1 / p, **options), out=out, **options)
