"""The distributions of `RandomPlan`: a row for each, with its parameters, elements and formula in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ...core import FLOATS, ElementKind, Exact, Ulp
from ...core.element import HALVES, INTS, cast
from ...core.error_bound import ErrorBound, Relative
from ...core.kinds import TableKind
from . import variates
from .row_draw import upper
from .words import Tries, normals, open_interval, open_signed, words32, words64

E = ElementKind
COUNTS = (*FLOATS, E.I32, E.I64)
CHANCES = (*FLOATS, E.BOOL, E.U8, E.I32, E.I64)
SIGNS = (*FLOATS, E.I8, E.I32, E.I64)
BOUNDS = (E.I64, E.I32)
_TRIES = 64
_64 = 0xFFFFFFFFFFFFFFFF

Formula: TypeAlias = Callable[["Problem"], Any]


@dataclass(frozen=True)
class Problem:
    """What a formula sees: the parameters in the kernel's type, as flat arrays in `wide`, and the stream."""

    element: ElementKind
    count: int
    parameters: tuple[Any, Any, Any]
    seed: int
    offset: int
    wide: Any
    store: Callable[[Any], Any]
    low: Any
    span: Any

    @property
    def words(self) -> np.ndarray:
        """A word of each element, 64 bits for float64."""
        return (words64 if self.element is E.F64 else words32)(self.seed, self.offset, self.count)

    @property
    def normals(self) -> np.ndarray:
        """A standard normal variate of each element."""
        even = self.count + self.count % 2
        words = (words64 if self.element is E.F64 else words32)(self.seed, self.offset, even)
        return normals(words, self.wide)[: self.count]

    @property
    def open(self) -> np.ndarray:
        """A number in (0, 1) of each element."""
        return open_interval(self.words).astype(self.wide)

    def signed(self, size: Callable[[Any], Any]) -> np.ndarray:
        """size(v) of each element, with the sign that its word has."""
        v, negative = open_signed(self.words)
        found = size(v.astype(self.wide))
        result: np.ndarray = np.where(negative, -found, found)
        return result


@dataclass(frozen=True)
class Distribution:
    """A row.

    cpp, op: its functor and which operation of `fill.cu` applies it. parameters: their names and defaults (None: to
    be given). ranges: of parameters for tests. name: of its function, where the kind's own is taken, and aliases.
    positive, chance: parameters that must be above 0, or from 0 to 1, where they are numbers. exact: it gives whole
    numbers.
    """

    cpp: str
    op: str
    parameters: tuple[tuple[str, float | None], ...]
    formula: Formula
    ranges: tuple[tuple[float, float], ...] = ()
    elements: tuple[ElementKind, ...] = FLOATS
    parameter: tuple[ElementKind, ...] = FLOATS
    name: str = ""
    aliases: tuple[str, ...] = ()
    positive: tuple[str, ...] = ()
    chance: tuple[str, ...] = ()
    exact: bool = False
    reals: tuple[float, float] | None = (-np.inf, np.inf)

    def inside(self, p: Problem, y: Any) -> Any:
        """y, or where it rounds to an open end, as 0 or an infinity, the element nearest to it inside.

        Parameters that are none of the distribution's (a rate of 0, an infinite one) leave it as it is.
        """
        if self.reals is None or not p.element.is_float:
            return y
        limits = p.element.limits
        low, high = self.reals
        bottom = -limits.max if np.isinf(low) else limits.tiny
        top = limits.max if np.isinf(high) else 1 - limits.eps / 2
        kept = ~np.isnan(y)
        for x in p.parameters[: len(self.parameters)]:
            kept &= np.isfinite(x) & ((x > 0) | (len(self.positive) < len(self.parameters)))
        return np.where(kept, np.clip(y, y.dtype.type(bottom), y.dtype.type(top)), y)

    def error(self, element: ElementKind) -> ErrorBound:
        """Exact, or of real numbers a few ulp of the standard variate that was scaled and moved."""
        if self.exact or not element.is_float:
            return Exact()
        if self.cpp == "Uniform" and element is not E.F64:
            return Ulp(0.51 if element in HALVES else 0.501)
        return Relative(16.0, 8.0)


def _uniform(p: Problem) -> Any:
    low, high, _ = p.parameters
    bits = {E.BF16: 8, E.F16: 11, E.F32: 24, E.F64: 53}[p.element]
    words = p.words
    unit = (words >> words.dtype.type(8 * words.itemsize - bits)).astype(p.wide) * p.wide(2.0**-bits)
    acc = p.element.acc.dtype.type
    y = unit * (high.astype(acc) - low.astype(acc)).astype(p.wide) + low
    rounded = cast(y.astype(np.float32) if p.element in HALVES else y, p.element).astype(p.wide)
    return np.where(rounded >= high, low, p.store(y))


def _placed(z: Callable[[Problem], Any]) -> Formula:
    """loc + scale z."""
    return lambda p: p.parameters[0] + p.parameters[1] * p.store(z(p))


def _of_normal(p: Problem) -> Any:
    return p.normals


def _exponential(p: Problem) -> Any:
    return p.store(-np.log(p.open)) / p.parameters[0]


def _cotangent(v: Any) -> Any:
    angle = 2 * np.arctan(v.dtype.type(1)) * v
    return np.cos(angle) / np.sin(angle)


def _triangular(p: Problem) -> Any:
    left, mode, right = p.parameters
    v, span, before = p.open, right - left, mode - left
    low = v * span < before
    root = p.store(np.sqrt(np.where(low, v * span * before, (1 - v) * span * (right - mode))))
    return np.where(low, left + root, right - root)


def _bits(p: Problem) -> Any:
    return words32(p.seed, p.offset, p.count)


def _bernoulli(p: Problem) -> Any:
    chance = np.where(p.parameters[0] > 0, np.minimum(p.parameters[0], 1), 0)
    return (_bits(p) < (chance * 2.0**32).astype(np.uint64)).astype(np.int64)


def _randint(p: Problem) -> Any:
    """Lemire 2019; see kernels/random/distributions.cuh."""
    low, span = np.broadcast_to(p.low, p.count), np.broadcast_to(p.span, p.count)
    narrow = (span - np.uint64(1)) <= np.uint64(0xFFFFFFFF)
    words = np.where(narrow, _bits(p).astype(np.uint64), words64(p.seed, p.offset, p.count))
    with np.errstate(over="ignore"):
        part = np.where(narrow, span & np.uint64(0xFFFFFFFF), span)
        size = np.where(part == 0, np.uint64(1), part)
        least = np.where(narrow, (np.uint64(2**32) - part) % size, (~part + np.uint64(1)) % size)
        open_ = np.flatnonzero(_lower(words, span, narrow) < least)
        for j in range(1, _TRIES):
            if not open_.size:
                break
            block = Tries(p.seed, p.offset, open_).block(j).astype(np.uint64)
            words[open_] = np.where(narrow[open_], block[:, 0], block[:, 1] << np.uint64(32) | block[:, 0])
            open_ = open_[_lower(words[open_], span[open_], narrow[open_]) < least[open_]]
        high = np.where(narrow, (words * span) >> np.uint64(32), upper(words, span))
        high = np.where(span == 0, words, high)
        return (low.view(np.uint64) + high).view(np.int64)


def _lower(words: Any, span: Any, narrow: Any) -> Any:
    product = words * span
    return np.where(narrow, product & np.uint64(0xFFFFFFFF), product)


def _tries(variate: variates.Variate) -> Formula:
    def formula(p: Problem) -> Any:
        held = tuple(x.astype(np.float64) for x in p.parameters)
        return p.store(variate(Tries(p.seed, p.offset, np.arange(p.count)), *held))

    return formula


_ABOVE_0, _WITHIN_1 = (0.0, np.inf), (0.0, 1.0)


def _word(cpp: str, formula: Formula, *parameters: Any, ranges: Any, **more: Any) -> Distribution:
    return Distribution(cpp, "WordOp", parameters, formula, ranges, **more)


def _many(cpp: str, variate: variates.Variate, *parameters: Any, ranges: Any, **more: Any) -> Distribution:
    return Distribution(cpp, "TriesOp", parameters, _tries(variate), ranges, **more)


_LOC, _SCALE = ("loc", 0.0), ("scale", 1.0)
_PLACES = ((-2.0, 2.0), (0.5, 3.0))
_WHOLE: dict[str, Any] = {"elements": COUNTS, "exact": True}


class RandomKind(TableKind):
    """What is drawn, by the names of torch.distributions and NumPy."""

    UNIFORM = (
        "uniform",
        _word("Uniform", _uniform, ("low", 0.0), ("high", 1.0), reals=None, ranges=((-2.0, 0.0), (0.5, 3.0))),
    )
    NORMAL = (
        "normal",
        Distribution("Normal", "PairOp", (_LOC, _SCALE), _placed(_of_normal), _PLACES, positive=("scale",)),
    )
    LOG_NORMAL = (
        "log_normal",
        Distribution("LogNormal", "PairOp", (_LOC, _SCALE), lambda p: np.exp(_placed(_of_normal)(p)),
                     ((-1.0, 1.0), (0.2, 1.0)), positive=("scale",), aliases=("lognormal",),
                     reals=_ABOVE_0),
    )  # fmt: skip
    BERNOULLI = (
        "bernoulli",
        Distribution(
            "Bernoulli",
            "BitOp",
            (("p", 0.5),),
            _bernoulli,
            ((-0.2, 1.2),),
            CHANCES,
            chance=("p",),
            exact=True,
            reals=None,
        ),
    )
    RADEMACHER = (
        "rademacher",
        Distribution(
            "Rademacher", "BitOp", (), lambda p: np.where(_bits(p) >> 31, 1, -1), (), SIGNS, exact=True, reals=None
        ),
    )
    RANDINT = (
        "randint",
        Distribution("RandInt", "WholeOp", (("low", 0), ("high", None)), _randint, ((-90, 0), (1, 90)),
                     (*INTS, *FLOATS), BOUNDS, exact=True, reals=None),
    )  # fmt: skip
    EXPONENTIAL = "exponential", _word("Exponential", _exponential, ("rate", 1.0), reals=_ABOVE_0, ranges=((0.5, 3.0),),
                                       positive=("rate",))  # fmt: skip
    LAPLACE = "laplace", _word("Laplace", _placed(lambda p: p.signed(lambda v: -np.log(v))), _LOC, _SCALE,
                               ranges=_PLACES, positive=("scale",))  # fmt: skip
    LOGISTIC = "logistic", _word("Logistic", _placed(lambda p: p.signed(lambda v: np.log1p(2 * (1 - v) / v))), _LOC,
                                 _SCALE, ranges=_PLACES, positive=("scale",), name="random_logistic")  # fmt: skip
    GUMBEL = "gumbel", _word("Gumbel", _placed(lambda p: -np.log(-np.log1p(-p.open))), _LOC, _SCALE, ranges=_PLACES,
                             positive=("scale",))  # fmt: skip
    CAUCHY = "cauchy", _word("Cauchy", _placed(lambda p: p.signed(_cotangent)), _LOC, _SCALE, ranges=_PLACES,
                             positive=("scale",))  # fmt: skip
    RAYLEIGH = "rayleigh", _word("Rayleigh", lambda p: p.parameters[0] * p.store(np.sqrt(-2 * np.log(p.open))), _SCALE,
                                 reals=_ABOVE_0, ranges=((0.5, 3.0),), positive=("scale",))  # fmt: skip
    WEIBULL = "weibull", _word("Weibull", lambda p: p.parameters[0] * p.store(-np.log(p.open)) ** (1 / p.parameters[1]),
                               _SCALE, ("concentration", 1.0), reals=_ABOVE_0, ranges=((0.5, 3.0), (0.7, 3.0)),
                               positive=("scale", "concentration"), aliases=("weibull_min",))  # fmt: skip
    PARETO = "pareto", _word("Pareto", lambda p: p.parameters[0] * np.exp(p.store(-np.log(p.open)) / p.parameters[1]),
                             _SCALE, ("alpha", 1.0), reals=_ABOVE_0, ranges=((0.5, 3.0), (2.0, 5.0)),
                             positive=("scale", "alpha"))  # fmt: skip
    TRIANGULAR = "triangular", _word("Triangular", _triangular, ("left", 0.0), ("mode", 0.5), ("right", 1.0),
                                     reals=None, ranges=((-2.0, -1.0), (-1.0, 1.0), (1.5, 3.0)))  # fmt: skip
    TRUNCATED_NORMAL = (
        "truncated_normal",
        _many("TruncatedNormal", variates.truncated_normal, ("low", -2.0), ("high", 2.0),
              reals=None, ranges=((-2.0, 0.5), (1.0, 3.0)), aliases=("trunc_normal",)),
    )  # fmt: skip
    GAMMA = "gamma", _many("Gamma", variates.gamma, ("concentration", None), ("rate", 1.0),
                           reals=_ABOVE_0, ranges=((0.3, 4.0), (0.5, 2.0)), positive=("concentration", "rate"),
                           name="random_gamma")  # fmt: skip
    LOGGAMMA = "loggamma", _many("LogGamma", variates.loggamma, ("concentration", None), ranges=((0.1, 4.0),),
                                 positive=("concentration",), name="random_loggamma")  # fmt: skip
    BETA = "beta", _many("Beta", variates.beta, ("a", None), ("b", None), ranges=((0.3, 4.0), (0.3, 4.0)),
                                 reals=_WITHIN_1, positive=("a", "b"), name="random_beta")  # fmt: skip
    CHI_SQUARE = "chi_square", _many("ChiSquare", variates.chi_square, ("df", None), ranges=((1.0, 9.0),),
                                     reals=_ABOVE_0, positive=("df",), aliases=("chisquare", "chi2"))  # fmt: skip
    STUDENT_T = "student_t", _many("StudentT", variates.student_t, ("df", None), _LOC, _SCALE,
                                   ranges=((2.0, 9.0), *_PLACES), positive=("df", "scale"),
                                   aliases=("standard_t",))  # fmt: skip
    F_RATIO = "f_ratio", _many("FRatio", variates.f_ratio, ("dfnum", None), ("dfden", None),
                               reals=_ABOVE_0, ranges=((2.0, 9.0), (4.0, 9.0)), positive=("dfnum", "dfden"),
                               name="random_f")  # fmt: skip
    GENERALIZED_NORMAL = "generalized_normal", _many("GeneralizedNormal", variates.generalized_normal, ("p", None),
                                                     ranges=((0.5, 4.0),), positive=("p",))  # fmt: skip
    MAXWELL = (
        "maxwell",
        _many("Maxwell", variates.maxwell, _SCALE, reals=_ABOVE_0, ranges=((0.5, 3.0),), positive=("scale",)),
    )
    DOUBLE_SIDED_MAXWELL = (
        "double_sided_maxwell",
        _many("DoubleMaxwell", variates.double_maxwell, _LOC, _SCALE, ranges=_PLACES, positive=("scale",)),
    )
    WALD = "wald", _many("Wald", variates.wald, ("mean", None), ("scale", 1.0), ranges=((0.5, 3.0), (0.5, 3.0)),
                         reals=_ABOVE_0, positive=("mean", "scale"))  # fmt: skip
    POISSON = "poisson", _many("Poisson", variates.poisson, ("rate", None), ranges=((0.0, 40.0),), **_WHOLE)
    BINOMIAL = "binomial", _many("Binomial", variates.binomial, ("count", None), ("p", None),
                                 ranges=((0.0, 90.0), (0.0, 1.0)), chance=("p",), **_WHOLE)  # fmt: skip
    NEGATIVE_BINOMIAL = "negative_binomial", _many("NegativeBinomial", variates.negative_binomial, ("count", None),
                                                   ("p", None), ranges=((0.5, 9.0), (0.2, 0.9)), positive=("count",),
                                                   chance=("p",), **_WHOLE)  # fmt: skip
    GEOMETRIC = "geometric", _many("Geometric", variates.geometric, ("p", None), ranges=((0.1, 1.0),), chance=("p",),
                                   **_WHOLE)  # fmt: skip

    row: Distribution


def having(count: int) -> tuple[RandomKind, ...]:
    """The kinds of so many parameters and more."""
    return tuple(kind for kind in RandomKind if len(kind.row.parameters) >= count)
