"""How far a result may be from the truth: pure data, declared by rows and checked by `baracuda_py.testing.tolerance`.

The tiers, tightest first. "Truth" is the reference in float64 (longdouble for float64 results), never rounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Exact:
    """The truth rounded once, bit for bit; every NaN equals every other, and -0 equals +0 unless `signed_zero`.

    Complex numbers are rounded part by part.
    """

    signed_zero: bool = False

    @property
    def looseness(self) -> tuple[int, float]:
        """Orders bounds from the tightest to the loosest."""
        return (0, float(not self.signed_zero))

    def __str__(self) -> str:
        return "exact"


@dataclass(frozen=True)
class Ulp:
    """|y - truth| <= n ulp of the element at the truth; a correctly rounded result has n = 0.5.

    Of a complex element it is the distance in the plane, and an ulp that of a part of the size of |truth|: the smaller
    part may have few digits, or none.
    """

    n: float

    @property
    def looseness(self) -> tuple[int, float]:
        """Orders bounds from the tightest to the loosest."""
        return (1, self.n)

    def __str__(self) -> str:
        return f"{self.n:g} ulp"


@dataclass(frozen=True)
class Relative:
    """At most `k` times the worst error, and `mean` times the mean error, of the same formula in the op's own dtypes.

    Rounding the result itself is allowed for: 1 ulp at each element, half an ulp on average; of fewer than 48 results,
    whose worst error may be small by chance, 4 ulp. Infinity times a factor that those errors may make 0 may
    have either sign or be NaN.
    """

    k: float = 2.0
    mean: float = 1.5

    @property
    def looseness(self) -> tuple[int, float]:
        """Orders bounds from the tightest to the loosest."""
        return (3, self.k)

    def __str__(self) -> str:
        return f"{self.k:g}x the error of its own dtypes"


@dataclass(frozen=True)
class Chained(Relative):
    """`Relative`, where the evaluations in the op's own dtypes also add products in one chain of multiply-adds.

    Step j of a chain rounds its partial sum s_j, so that its error is at most u Σ|s_j| <= n u Σ|x_j y_j| (u = eps / 2).
    Of terms of either sign of size σ, roundings are independent: √(u² / 3 · Σ s_j²) = u σ n / √6. Of terms of one sign
    they may all go one way, and the error is of the order n u Σ|x_j y_j|. A softmax makes errors of scores relative
    ones of weights, and a sum over keys is such a chain itself. `Relative` alone does not grow so: NumPy's products
    are sums of several chains, and operands that are off by an eps move the sum by 2 u σ √(2 n / 3): a chain's error is
    √n / 4 times that, 6 times at n = 512, and of terms of one sign n times. Evaluations in the same chain, of terms
    anywhere in their binades, grow with n as the kernel's error does. With a `piece` a new chain begins every so many
    terms.
    """

    piece: int | None = None

    @property
    def looseness(self) -> tuple[int, float]:
        """Orders bounds from the tightest to the loosest."""
        return (4, self.k)

    def __str__(self) -> str:
        return f"{super().__str__()}, summed in chains"


@dataclass(frozen=True)
class Forward:
    """|y - truth| <= c eps(acc) S + eps(element) |truth|: S the reference on absolute values, c the sum's depth."""

    c: float

    @property
    def looseness(self) -> tuple[int, float]:
        """Orders bounds from the tightest to the loosest."""
        return (2, self.c)

    def __str__(self) -> str:
        return f"{self.c:g} eps(acc) of the absolute sum"


@dataclass(frozen=True)
class Backward:
    """`Plan.residual` of the operands and the results <= c eps(element): they are exact for operands so near.

    For factorisations and solves, whose results may be far from the truth where the operands are badly conditioned.
    """

    c: float

    @property
    def looseness(self) -> tuple[int, float]:
        """Orders bounds from the tightest to the loosest."""
        return (5, self.c)

    def __str__(self) -> str:
        return f"backward error {self.c:g} eps"


OneBound: TypeAlias = Exact | Ulp | Relative | Forward | Backward


@dataclass(frozen=True)
class PerOutput:
    """Outputs by name, each with a bound of its own: they are not equally well known."""

    bounds: tuple[tuple[str, OneBound], ...]

    def of(self, output: str) -> OneBound:
        """The bound of an output."""
        return dict(self.bounds)[output]

    @property
    def looseness(self) -> tuple[int, float]:
        """That of the loosest."""
        return max(bound.looseness for _, bound in self.bounds)

    def __str__(self) -> str:
        return ", ".join(f"{name} {bound}" for name, bound in self.bounds)


ErrorBound: TypeAlias = OneBound | PerOutput
