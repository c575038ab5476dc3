"""Examples of linear systems, factors and determinants: rows of `TABLE`."""

from __future__ import annotations

_A = "rng = np.random.default_rng(0)\na = rng.standard_normal((3, 3))\n"
_AB = f"{_A}b = rng.standard_normal((3, 2))\n"
_SPD = f"{_A}a = a @ a.T + np.eye(3)\n"
_LU = f"{_A}lu, pivots = bc.lu_factor(a)\n"

LINALG_LU: dict[str, str] = {
    "solve_triangular": f"{_AB}x = bc.solve_triangular(a, b, upper=True)",
    "triangular_solve": f"{_AB}x = bc.triangular_solve(a, b, left_side=True, lower=True)",
    "lu_factor": f"{_A}lu, pivots = bc.lu_factor(a)",
    "lu_factor_ex": f"{_A}lu, pivots, info = bc.lu_factor_ex(a)",
    "lu_unpack": f"{_LU}p, l, u = bc.lu_unpack(lu, pivots)",
    "lu": f"{_A}p, l, u = bc.lu(a)",
    "ldl_factor": "ld, pivots = bc.ldl_factor(np.array([[0.0, 2], [2, 1]]))",
    "ldl_factor_ex": "ld, pivots, info = bc.ldl_factor_ex(np.array([[0.0, 2], [2, 1]]))",
    "ldl_solve": (
        "ld, pivots = bc.ldl_factor(np.array([[0.0, 2], [2, 1]]))\nx = bc.ldl_solve(ld, pivots, np.ones((2, 3)))"
    ),
    "lu_solve": f"{_LU}x = bc.lu_solve(lu, pivots, np.ones((3, 2)))",
    "lu_pivots_to_permutation": f"{_LU}rows = bc.lu_pivots_to_permutation(pivots, 3, first=1)",
    "solve": f"{_AB}x = bc.solve(a, b)",
    "solve_ex": f"{_AB}x, info = bc.solve_ex(a, b)",
    "inv": f"{_A}y = bc.inv(a)",
    "inverse": f"{_A}y = bc.inverse(a)",
    "inv_ex": f"{_A}y, info = bc.inv_ex(a)",
    "tensorinv": f"{_A}y = bc.tensorinv(a.reshape(3, 3), ind=1)",
    "tensorsolve": f"{_A}x = bc.tensorsolve(a, np.ones(3))",
    "det": f"{_A}y = bc.det(a)",
    "slogdet": f"{_A}sign, logabsdet = bc.slogdet(a)",
    "logdet": f"{_SPD}y = bc.logdet(a)",
    "cholesky": f"{_SPD}y = bc.cholesky(a)",
    "cholesky_solve": f"{_SPD}x = bc.cholesky_solve(np.ones((3, 2)), bc.cholesky(a))",
    "cholesky_inverse": f"{_SPD}y = bc.cholesky_inverse(bc.cholesky(a))",
    "cho_factor": f"{_SPD}c, lower = bc.cho_factor(a)",
    "cho_solve": f"{_SPD}x = bc.cho_solve(bc.cho_factor(a), np.ones((3, 2)))",
    "lstsq": """a, b = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), np.array([[1.0], [2.0], [4.0]])
x, residuals, rank, s = bc.lstsq(a, b)""",
}
