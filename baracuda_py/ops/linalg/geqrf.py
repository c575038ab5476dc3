"""geqrf: the QR factors of matrices as LAPACK keeps them, R and the reflectors that Q is the product of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends.cusolver import CUSOLVER
from ...core import (
    Args, Array, BackendKind, Backward, Descriptor, ElementKind, Geometry, Guarantee, LibraryStep, Plan, Problem,
    Variant, element, extent, extents, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import EAGER, FLOPS, Benchmark
from ...core.memo import cached_property
from ...schedules.in_library import COPY, COPY_SOURCE, piece, sequence
from ...schedules.in_workspace import bound, cut
from ...schedules.library_matrices import piece_by_columns, whole
from .bounded import adjoint, finite, quotient, size
from .draws import ELEMENTS, tame
from .qr import drawn, factoring


@dataclass(frozen=True, kw_only=True)
class GeqrfDescriptor(Descriptor):
    """a and y are matrices [*batch_shape, m, n], tau is [*batch_shape, min(m, n)]."""

    batch_shape: tuple[int, ...] = extents(())
    m: int = extent()
    n: int = extent()
    element: ElementKind = element(ELEMENTS)

    @cached_property
    def reflectors(self) -> int:
        """How many there are."""
        return min(self.m, self.n)


@dataclass(slots=True, kw_only=True)
class GeqrfArgs(Args):
    """Any strides; y may be a itself."""

    a: Array = operand("*batch_shape m n")
    y: Array = output("*batch_shape m n", inplace=("a",))
    tau: Array = output("*batch_shape reflectors")


def _factor(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The reflectors H = I - tau v vᴴ of one matrix, whose product times R it is, after LAPACK's larfg."""
    y, count = a.copy(), min(a.shape)
    tau = np.zeros(count, a.dtype)
    for k in range(count):
        x = y[k:, k]
        alpha, below = x[0], np.sqrt(np.square(np.abs(x[1:])).sum())
        if below == 0 and alpha.imag == 0:
            continue
        beta = -np.copysign(np.sqrt(np.square(np.abs(alpha)) + below**2), alpha.real)
        tau[k] = (beta - alpha.real - (1j * alpha.imag if a.dtype.kind == "c" else 0)) / beta
        v = np.concatenate([np.ones(1, a.dtype), x[1:] / (alpha - beta)])
        y[k:, k + 1 :] -= np.conj(tau[k]) * np.outer(v, v.conj() @ y[k:, k + 1 :])
        y[k, k], y[k + 1 :, k] = beta, v[1:]
    return y, tau


def reference(desc: GeqrfDescriptor, *, a: Any) -> Mapping[str, Any]:
    """One reflector after another, as LAPACK's geqr2."""
    y, tau = np.array(a), np.zeros((*desc.batch_shape, desc.reflectors), a.dtype)
    with np.errstate(all="ignore"):
        for at in np.ndindex(desc.batch_shape):
            y[at], tau[at] = _factor(a[at])
    return {"y": y, "tau": tau}


def product(y: Any, tau: Any, x: Any, adjoint_of: bool = False) -> Any:
    """Q x, or Qᴴ x, of one matrix, Q the product of the reflectors in y."""
    x, order = np.array(x), range(tau.shape[-1])
    for k in order if adjoint_of else reversed(order):
        v = np.concatenate([np.zeros(k, y.dtype), np.ones(1, y.dtype), y[k + 1 :, k]])
        scale = np.conj(tau[k]) if adjoint_of else tau[k]
        x -= scale * np.outer(v, v.conj() @ x)
    return x


def residual(desc: GeqrfDescriptor, name: str, *, a: Any, y: Any, tau: Any) -> Any:
    """‖A - Q R‖ / (l ‖A‖) + ‖Qᴴ Q - I‖ / m, l the larger extent; 0 of matrices with numbers that are not finite."""
    found = np.zeros(desc.batch_shape)
    for at in np.ndindex(desc.batch_shape):
        if desc.m and desc.reflectors and finite(a[at]):
            q = product(y[at], tau[at], np.eye(desc.m, dtype=y.dtype))
            off = quotient(size(a[at] - q @ np.triu(y[at])), max(desc.m, desc.n) * size(a[at]))
            found[at] = off + size(adjoint(q) @ q - np.eye(desc.m)) / desc.m
    return found


def geometry(p: Problem) -> Geometry | str:
    """a by columns in the workspace, factored there, and copies of the factors."""
    desc: GeqrfDescriptor = p.desc
    work, end = piece_by_columns((*desc.batch_shape, desc.m, max(desc.n, 1)), desc.element, 0)
    tau, end = piece((*desc.batch_shape, max(desc.reflectors, 1)), desc.element, end)
    info, end = piece(desc.batch_shape, ElementKind.I32, end)
    held = cut(work.view, desc.m, desc.n)
    steps = sequence(
        whole(held, p.a, work.name, "a"),
        (LibraryStep(factoring(desc, work, tau, info, end)),) if held.size else (),
        whole(p.y, held, "y", work.name),
        whole(p.tau, tau.view, "tau", tau.name, 1) if held.size else (),
    )
    return steps if isinstance(steps, str) else Geometry(steps, end + bound(desc.element, (desc.m, desc.n)), "strided")


class GeqrfPlan(Plan):
    """y: R on and above the diagonal, below it the reflectors v of H = I - tau v vᴴ (v is 1 on it); A = H₁ H₂ … R.

    LAPACK's geqrf (torch.geqrf, numpy's mode "raw"). f32, f64, complex64, complex128. `householder_product` makes Q of
    y and tau. Nothing waits for the device. There is no gradient, nor has torch one.
    """

    op = "linalg.geqrf"
    descriptor = GeqrfDescriptor
    args = GeqrfArgs
    widest = np.float64
    reference = staticmethod(reference)
    residual = staticmethod(residual)
    value_policy = "NaN and infinities spread as the library has it; other matrices of the batch stay as they are"
    variants = (
        Variant(
            "cusolver", geometry, COPY_SOURCE, (COPY,), elements=ELEMENTS, backend=BackendKind.CUSOLVER,
            guarantee=Guarantee(Backward(10.0), batch_invariant=True, order="cusolver"), missing=CUSOLVER.unavailable,
        ),
    )  # fmt: skip
    benchmarks = (Benchmark("1024² f32", m=1024, n=1024, element="float32", work=FLOPS, target=None, peers=(EAGER,)),)

    @staticmethod
    def torch(torch: Any, desc: GeqrfDescriptor, *, a: Any) -> Any:
        """torch.geqrf."""
        return torch.geqrf(a)

    @staticmethod
    def case(draw: Any) -> GeqrfDescriptor:
        return GeqrfDescriptor(**drawn(draw))

    @classmethod
    def complete(cls, desc: GeqrfDescriptor, arrays: dict[str, Any]) -> None:
        """Numbers of a moderate size."""
        arrays["a"] = tame(arrays["a"])

    @classmethod
    def flops(cls, desc: GeqrfDescriptor) -> int:
        k = desc.reflectors
        return int(np.prod(desc.batch_shape, dtype=np.int64)) * (2 * desc.m * desc.n * k - 2 * k**3 // 3)


geqrf = functional(GeqrfPlan)
