"""cov and corrcoef: covariances of the rows of a matrix, and what they are beside the variances; with gradients.

Compositions: the deviations from the means are kept (in float32 of 16-bit floats), and their products are one call of
`matmul`. Each docstring says how many launches a call takes.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ...core import Array, ElementKind
from ...core.checked import whole
from ...core.views import with_axis
from ...calls.composed import composed
from ...core.element import HALVES
from ...core.errors import InvalidProblemError, UnsupportedError
from ...calls.entries import entry
from ...core.tensor import TensorRef
from ...expressions.elementwise import elementwise
from ...expressions.reduce import reduce as reduction
from ...core.arrays import read
from ..gemm.matmul import matmul
from . import reduce as page
from .average import average
from .reduce import ReducePlan
from .reduce_backward import ReduceBackwardPlan


@cache
def _formula(text: str) -> Any:
    return elementwise(text)


@cache
def _reduced(text: str, axis: int, keepdims: bool) -> Any:
    return reduction(text, "sum", axis=axis, keepdims=keepdims)


def _matrix(x: Any) -> tuple[Any, ElementKind]:
    """x as variables × observations, and its element; a vector is one variable."""
    view = read(x, "x")
    if len(view.shape) not in (1, 2):
        raise InvalidProblemError(f"x must have shape (variables, observations) or (observations,), got {view.shape}")
    if view.element.is_complex:
        raise UnsupportedError(f"covariances are of real numbers, got {view.element}; take vecdot of the deviations")
    if not view.element.is_float:
        raise UnsupportedError(f"the covariance of {view.element} is no integer; write cast(x, 'float32')")
    return _square(x, "x") if len(view.shape) == 1 else x, view.element


def _square(x: Any, name: str, turned: bool = False) -> Any:
    """A view of x with axes of extent 1 before its own, up to two; turned: transposed."""
    if not isinstance(x, TensorRef):
        for _ in range(2 - len(read(x, name).shape)):
            x = with_axis(x, 0, name)
        return x.T if turned else x
    view = read(x, name)
    more = 2 - len(view.shape)
    shape, strides = (*(1,) * more, *view.shape), (*(0,) * more, *view.strides)
    order = -1 if turned else 1
    return TensorRef(x.ptr, shape[::order], strides[::order], view.element, device=x.device)


def _weights(fweights: Any, aweights: Any, observations: int, element: ElementKind, options: Any) -> dict[str, Any]:
    """How often observations count, how much each does, and both, as floats; nothing of what is not given."""
    made = {}
    for name, key, weights in (("fweights", "f", fweights), ("aweights", "a", aweights)):
        if weights is None:
            continue
        if tuple(read(weights, name).shape) != (observations,):
            shape = tuple(read(weights, name).shape)
            raise InvalidProblemError(f"{name} must have one for each of {observations} observations, got {shape}")
        made[key] = _formula(f"{element}(w)")(w=weights, **options)
    if made:
        made["w"] = _formula("f * a")(**made, **options) if len(made) == 2 else next(iter(made.values()))
    return made


class _Deviations:
    """What covariances are made of: deviations from the means, their weights, and what sums are divided by."""

    def __init__(self, x: Any, correction: int, fweights: Any, aweights: Any, options: Any) -> None:
        rows, self.element = _matrix(x)
        correction, observations = whole("correction", correction), rows.shape[1]
        self.options, self.shape = options, tuple(read(x, "x").shape)
        weights = _weights(fweights, aweights, observations, self.element.acc, options)
        wide = _formula(f"{self.element.acc}(x)")(rows, **options) if self.element in HALVES else rows
        self.weights = weights.get("w")
        self.by: dict[str, Any] = {"n": float(max(observations - correction, 0))}
        if self.weights is None:
            means = page.__dict__["mean"](wide, axis=1, keepdims=True, **options)
        else:
            means = average(wide, self.weights, axis=1, keepdims=True, **options)
            self.by = {"n": self._counted(weights, correction)}
        self.apart = _formula("x - m")(x=wide, m=means, **options)

    def _counted(self, weights: Any, correction: int) -> Any:
        """The sum of the weights, lessened by the correction: of aweights by their share in it (torch.cov)."""
        total = _reduced("w", 0, False)(w=weights["w"], **self.options)
        if "a" not in weights:
            return _formula("maximum(s - k, 0)")(s=total, k=float(correction), **self.options)
        shares = _reduced("w * a", 0, False)(w=weights["w"], a=weights["a"], **self.options)
        return _formula("maximum(s - k * t / s, 0)")(s=total, t=shares, k=float(correction), **self.options)

    def weighted(self) -> Any:
        """The deviations times the weights."""
        if self.weights is None:
            return self.apart
        return _formula("x * w")(x=self.apart, w=self.weights, **self.options)

    def covariances(self, out: Any = None) -> Any:
        """Of all pairs of rows, in the deviations' element; out: where x's element is that one."""
        sums = matmul(self.weighted(), self.apart.T, **self.options)
        return _formula("c / n")(c=sums, **self.by, out=self.place(out), **self.options)

    def place(self, out: Any) -> Any:
        """`out=` as a matrix that is written at once; None where what is written is rounded first."""
        return None if out is None or self.element in HALVES else _square(out, "out")

    def handed_back(self, slopes: Any, own: Any, out: Any) -> Any:
        """(slopes - own on the diagonal) times the weighted deviations, over the count, in x's shape and element."""
        rows = self.weighted()
        made = matmul(slopes, rows, **self.options)
        dx = _formula("(d - o * x) / n")(d=made, x=rows, o=own, **self.by, out=self.place(out), **self.options)
        return self.rounded(dx, self.shape, out)

    def rounded(self, y: Any, shape: Any, out: Any) -> Any:
        """y in x's element and a shape, which is `out` if that is given."""
        if read(y, "y").element is not self.element:
            target = None if out is None else _square(out, "out")
            y = _formula(f"{self.element}(y)")(y, out=target, **self.options)
        return y.reshape(shape) if out is None else out

    def square(self, y: Any) -> Any:
        """A gradient or result as a matrix in the deviations' element."""
        wide = _formula(f"{self.element.acc}(y)")(y, **self.options) if self.element in HALVES else y
        if len(read(wide, "dy").shape) not in (0, 2):
            raise InvalidProblemError(f"dy must have the shape of y, got {tuple(read(wide, 'dy').shape)}")
        return _square(wide, "dy")

    def result(self, y: Any, out: Any) -> Any:
        """y in x's element; of one variable a number."""
        return self.rounded(y, () if y.shape == (1, 1) else y.shape, out)


def _diagonal(c: Any) -> Any:
    return c.reshape((-1,))[:: c.shape[0] + 1]


def _with_transpose(g: Any, options: Any) -> Any:
    return _formula("g + h")(g=g, h=_square(g, "dy", turned=True), **options)


@composed("cov_backward", "x")
@entry(ReducePlan)
def cov(
    x: Array, *, correction: int = 1, fweights: Array | None = None, aweights: Array | None = None, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """y[i, j] = Σ w (x[i] - mean x[i]) (x[j] - mean x[j]) / (Σ w - correction), along observations (torch.cov).

    x has shape (variables, observations), or is one variable; of one y is its variance, 0-d. fweights: how often each
    observation counts, aweights: how much; then means are weighted, and the correction is that of torch.cov. Four
    launches, and an array like x of the deviations; weights take up to seven more of vectors.
    """
    options = {"stream": stream, "preference": preference}
    found = _Deviations(x, correction, fweights, aweights, options)
    return found.result(found.covariances(out), out)


@entry(ReduceBackwardPlan)
def cov_backward(
    dy: Array, x: Array, *, correction: int = 1, fweights: Array | None = None, aweights: Array | None = None,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """dx of `cov`: (dy + its transpose) times the deviations, which are computed again. Weights have none."""
    options = {"stream": stream, "preference": preference}
    found = _Deviations(x, correction, fweights, aweights, options)
    return found.handed_back(_with_transpose(found.square(dy), options), 0.0, out)


_CORRELATION = "c / sqrt(v) / sqrt(w)"


@composed("corrcoef_backward", "x")
@entry(ReducePlan)
def corrcoef(x: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """y[i, j] = cov(x)[i, j] / the root of cov(x)[i, i] cov(x)[j, j], clipped to [-1, 1] (torch.corrcoef).

    x is as in `cov`; of one variable y is 1, and NaN where nothing varies. Five launches.
    """
    options = {"stream": stream, "preference": preference}
    found = _Deviations(x, 1, None, None, options)
    c = found.covariances()
    v = _diagonal(c)
    y = _formula(f"clip({_CORRELATION}, -1, 1)")(c=c, v=v[:, None], w=v, out=found.place(out), **options)
    return found.result(y, out)


@entry(ReduceBackwardPlan)
def corrcoef_backward(dy: Array, x: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """dx of `corrcoef`, whose correlations are computed again; clipping has no part in it."""
    options = {"stream": stream, "preference": preference}
    found = _Deviations(x, 1, None, None, options)
    c = found.covariances()
    v = _diagonal(c)
    h = _with_transpose(found.square(dy), options)
    own = _reduced(f"h * ({_CORRELATION}) / v", 1, True)(h=h, c=c, v=v[:, None], w=v, **options)
    slopes = _formula("h / sqrt(v) / sqrt(w)")(h=h, v=v[:, None], w=v, **options)
    return found.handed_back(slopes, own, out)
