"""The special functions of two to four numbers: the names of the rows of `specials`."""

from __future__ import annotations

from ...core.kinds import TableKind
from .specials import combinatorics, divergence, gauss, hypergeometric, incomplete, orders, orthogonal, owens, parameter
from .specials.row import Special


class SpecialFunctionKind(TableKind):
    """y = f(a, b[, c[, d]]); a is the argument and b the order or parameter, whatever their places in a call."""

    BETA = "beta", combinatorics.BETA
    BETALN = "betaln", combinatorics.BETALN
    POCH = "poch", combinatorics.POCH
    COMB = "comb", combinatorics.COMB
    ZETA = "zeta", combinatorics.ZETA
    EXPN = "expn", combinatorics.EXPN
    REL_ENTR = "rel_entr", divergence.REL_ENTR
    KL_DIV = "kl_div", divergence.KL_DIV
    BOXCOX = "boxcox", divergence.BOXCOX
    BOXCOX1P = "boxcox1p", divergence.BOXCOX1P
    GAMMAINC = "gammainc", incomplete.GAMMAINC
    GAMMAINCC = "gammaincc", incomplete.GAMMAINCC
    BETAINC = "betainc", incomplete.BETAINC
    HYP1F1 = "hyp1f1", hypergeometric.HYP1F1
    HYP2F1 = "hyp2f1", gauss.HYP2F1
    IGAMMA_GRAD_A = "igamma_grad_a", incomplete.IGAMMA_GRAD_A
    RANDOM_GAMMA_GRAD = "random_gamma_grad", parameter.RANDOM_GAMMA_GRAD
    OWENS_T = "owens_t", owens.OWENS_T
    BESSEL_JN = "jn", orders.BESSEL_JN
    SPH_LEGENDRE_P = "sph_legendre_p", orders.SPH_LEGENDRE_P
    CHEBYSHEV_POLYNOMIAL_T = "chebyshev_polynomial_t", orthogonal.CHEBYSHEV_T
    CHEBYSHEV_POLYNOMIAL_U = "chebyshev_polynomial_u", orthogonal.CHEBYSHEV_U
    CHEBYSHEV_POLYNOMIAL_V = "chebyshev_polynomial_v", orthogonal.CHEBYSHEV_V
    CHEBYSHEV_POLYNOMIAL_W = "chebyshev_polynomial_w", orthogonal.CHEBYSHEV_W
    SHIFTED_CHEBYSHEV_POLYNOMIAL_T = "shifted_chebyshev_polynomial_t", orthogonal.SHIFTED_T
    SHIFTED_CHEBYSHEV_POLYNOMIAL_U = "shifted_chebyshev_polynomial_u", orthogonal.SHIFTED_U
    SHIFTED_CHEBYSHEV_POLYNOMIAL_V = "shifted_chebyshev_polynomial_v", orthogonal.SHIFTED_V
    SHIFTED_CHEBYSHEV_POLYNOMIAL_W = "shifted_chebyshev_polynomial_w", orthogonal.SHIFTED_W
    HERMITE_POLYNOMIAL_H = "hermite_polynomial_h", orthogonal.HERMITE_H
    HERMITE_POLYNOMIAL_HE = "hermite_polynomial_he", orthogonal.HERMITE_HE
    LAGUERRE_POLYNOMIAL_L = "laguerre_polynomial_l", orthogonal.LAGUERRE
    LEGENDRE_POLYNOMIAL_P = "legendre_polynomial_p", orthogonal.LEGENDRE

    row: Special


WITH_THREE = tuple(kind for kind in SpecialFunctionKind if len(kind.row.drawn) >= 3)
WITH_FOUR = tuple(kind for kind in SpecialFunctionKind if len(kind.row.drawn) == 4)
DIFFERENTIABLE = tuple(kind for kind in SpecialFunctionKind if any(kind.row.gradient))


def with_gradient(operand: int) -> tuple[SpecialFunctionKind, ...]:
    """The kinds that have a gradient by that operand."""
    return tuple(kind for kind in SpecialFunctionKind if kind.row.gradient[operand] is not None)
