"""Examples of functions of matrices, eigenvalues, low ranks and iterative solvers: rows of `TABLE`."""

from __future__ import annotations

_A = "rng = np.random.default_rng(0)\na = rng.standard_normal((4, 4))\n"
_TALL = "rng = np.random.default_rng(0)\na = rng.standard_normal((12, 5))\n"
_SPD = f"{_A}a = a @ a.T + np.eye(4)\n"
_LINES = "dl, d, du = np.ones((3, 5))\n"

LINALG_FUNCTIONS: dict[str, str] = {
    "matrix_exp": f"{_A}y = bc.matrix_exp(a, squarings=8)",
    "expm": f"{_A}y = bc.expm(a)",
    "expm_frechet": f"{_A}y, along = bc.expm_frechet(a, np.eye(4))",
    "ormqr": f"{_TALL}y, tau = bc.geqrf(a)\nx = bc.ormqr(y, tau, np.ones((12, 2)), transpose=True)",
    "qr_multiply": f"{_TALL}cq, r = bc.qr_multiply(a, np.ones((2, 12)))",
    "svd_lowrank": f"{_TALL}u, s, v = bc.svd_lowrank(a, q=3, seed=0)",
    "pca_lowrank": f"{_TALL}u, s, directions = bc.pca_lowrank(a, q=3, seed=0)",
    "eig": f"{_A}w, v = bc.eig(a)",
    "eigvals": f"{_A}w = bc.eigvals(a)",
    "tridiagonal_solve": f"{_LINES}x = bc.tridiagonal_solve(dl, 4 * d, du, np.ones((5, 2)))",
    "eigh_tridiagonal": f"{_LINES}w, v = bc.eigh_tridiagonal(d, du[1:])",
    "cg": f"{_SPD}x, info = bc.cg(a, np.ones(4), tol=1e-10)",
    "bicgstab": f"{_SPD}x, info = bc.bicgstab(lambda v: v @ a.T, np.ones((3, 4)))",
    "gmres": f"{_SPD}x, info = bc.gmres(a, np.ones(4), restart=4)",
    "lobpcg": f"{_TALL}w, v = bc.lobpcg(a @ a.T, k=2, largest=True, seed=0)",
    "inverse_root": f"{_SPD}y = bc.inverse_root(a, 4)",
    "sqrtm": f"{_SPD}y = bc.sqrtm(a)",
    "logm": f"{_SPD}y = bc.logm(a)",
    "solve_sylvester": f"{_SPD}x = bc.solve_sylvester(a, np.eye(3), np.ones((4, 3)))",
    "funm": f"{_SPD}x = bc.funm(a, bc.exp)",
    "roots": "p = np.array([1.0, -6, 11, -6])\nz = bc.roots(p)",
    "polyfit": "x, y = np.arange(5.0), np.array([1.0, 3, 2, 5, 4])\np = bc.polyfit(x, y, 2)",
    "tridiagonal": f"{_SPD}reflectors, d, e, taus = bc.tridiagonal(a)",
    "qdwh": f"{_SPD}u, h, steps, converged = bc.qdwh(a)",
    "schur": f"{_A}t, z = bc.schur(a)",
    "rsf2csf": "t = np.array([[1.0, 2], [-2, 1]])\nform, z = bc.rsf2csf(t, np.eye(2))",
    "hessenberg": f"{_A}h, q = bc.hessenberg(a, calc_q=True)",
    "cholesky_update": f"{_SPD}r = bc.cholesky_update(bc.cholesky(a, upper=True), np.ones(4))",
    "solve_toeplitz": "c, b = np.array([4.0, 1, 2]), np.ones(3)\nx = bc.solve_toeplitz(c, b)",
    "pinverse": f"{_TALL}y = bc.pinverse(a, rcond=1e-12)",
    "nuclear_norm": f"{_TALL}y = bc.nuclear_norm(a)",
}
