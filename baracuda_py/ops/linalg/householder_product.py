"""householder_product: the first columns of a product of reflectors, by cuSOLVER (LAPACK's orgqr and ungqr)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends.cusolver import CUSOLVER
from ...backends.cusolver_eigen import Orgqr
from ...backends.library import Call
from ...core import (
    Args, Array, BackendKind, Backward, Descriptor, ElementKind, Geometry, Guarantee, InvalidProblemError, LibraryStep,
    Plan, Problem, Variant, element, extent, extents, operand, output,
)  # fmt: skip
from ...calls.entries import entry
from ...calls.functional import functional
from ...core.benchmark import EAGER, FLOPS, Benchmark
from ...core.device import Device
from ...jit.launch import runtime_for
from ...schedules.in_library import COPY, COPY_SOURCE, Place, piece, sequence
from ...schedules.in_workspace import addresses, bound
from ...schedules.library_matrices import piece_by_columns, whole
from .bounded import apart, finite, size
from .draws import ELEMENTS, tame
from .geqrf import GeqrfDescriptor, GeqrfPlan, product


@dataclass(frozen=True, kw_only=True)
class HouseholderProductDescriptor(Descriptor):
    """a and q are [*batch_shape, m, n], m >= n, tau is [*batch_shape, k], k <= n."""

    batch_shape: tuple[int, ...] = extents(())
    m: int = extent()
    n: int = extent()
    k: int = extent()
    element: ElementKind = element(ELEMENTS)

    def validate(self) -> None:
        if not self.m >= self.n >= self.k:
            raise InvalidProblemError(
                f"a must have no more columns than rows, and tau no more numbers than a has columns: got {self.m} "
                f"rows, {self.n} columns and {self.k} numbers"
            )


@dataclass(slots=True, kw_only=True)
class HouseholderProductArgs(Args):
    """Any strides; q may be a itself. Of a the first k columns are read, below the diagonal."""

    a: Array = operand("*batch_shape m n")
    tau: Array = operand("*batch_shape k")
    q: Array = output("*batch_shape m n", inplace=("a",))


def reference(desc: HouseholderProductDescriptor, *, a: Any, tau: Any) -> Mapping[str, Any]:
    """One reflector after another."""
    q = np.zeros_like(a)
    with np.errstate(all="ignore"):
        for at in np.ndindex(desc.batch_shape):
            q[at] = product(a[at], tau[at], np.eye(desc.m, desc.n, dtype=a.dtype))
    return {"q": q}


def residual(desc: HouseholderProductDescriptor, name: str, *, a: Any, tau: Any, q: Any) -> Any:
    """‖Q - what the reflectors give one after another‖ / m + ‖Qᴴ Q - I‖ / m; 0 where numbers are not finite."""
    want = reference(desc, a=a, tau=tau)["q"]
    with np.errstate(all="ignore"):
        found = size(q - want) / max(desc.m, 1) + apart(q)
    return np.where(finite(np.where(_read(desc), a, 0), tau[..., None, :]), found, 0)


def _read(desc: HouseholderProductDescriptor) -> Any:
    """Where a has the reflectors."""
    return np.tri(desc.m, desc.n, -1, dtype=bool) & (np.arange(desc.n) < desc.k)


def geometry(p: Problem) -> Geometry | str:
    """a by columns and tau in the workspace, the product made there, and a copy of it."""
    desc: HouseholderProductDescriptor = p.desc
    work, end = piece_by_columns(p.a.shape, desc.element, 0)
    tau, end = piece((*desc.batch_shape, max(desc.k, 1)), desc.element, end)
    info, end = piece(desc.batch_shape, ElementKind.I32, end)
    steps = sequence(
        whole(work.view, p.a, work.name, "a"),
        whole(tau.view, p.tau, tau.name, "tau", 1) if desc.k else (),
        (LibraryStep(_multiplying(desc, work, tau, info, end)),) if work.view.size else (),
        whole(p.q, work.view, "q", work.name),
    )
    return steps if isinstance(steps, str) else Geometry(steps, end + bound(desc.element, (desc.m, desc.n)), "strided")


def _multiplying(
    desc: HouseholderProductDescriptor, work: Place, tau: Place, info: Place, end: int
) -> Callable[[Device], Call]:
    """orgqr on each matrix in turn; where there is no reflector, one of tau 0 and zeros stands for the identity."""

    def prepare(device: Device) -> Call:
        orgqr = Orgqr(str(desc.element), desc.m, desc.n, max(desc.k, 1), desc.m, device)
        places = list(zip(addresses(work, 2), addresses(tau, 1), addresses(info, 0), strict=True))
        clear, nothing = runtime_for(device).clear, () if desc.k else (work, tau)

        def run(pointers: tuple[int, ...], scalars: Any, workspace: int, nbytes: int, stream: int) -> None:
            for place in nothing:
                clear(workspace + place.start, place.view.size * desc.element.itemsize, stream)
            for matrix, own, one in places:
                orgqr.run(workspace + matrix, workspace + own, workspace + one, workspace + end, stream)

        return Call(run, end + orgqr.workspace)

    return prepare


class HouseholderProductPlan(Plan):
    """q = the first n columns of H₁ H₂ … Hₖ, Hᵢ = I - tauᵢ vᵢ vᵢᴴ, vᵢ below a's diagonal, 1 on it (LAPACK orgqr).

    What `geqrf` gives makes q of orthonormal columns; other reflectors are multiplied all the same, and the error is
    promised of unitary ones. f32, f64, complex64, complex128. Nothing waits for the device. There is no gradient yet.
    """

    op = "linalg.householder_product"
    descriptor = HouseholderProductDescriptor
    args = HouseholderProductArgs
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
    benchmarks = (
        Benchmark("1024² f32", m=1024, n=1024, k=1024, element="float32", work=FLOPS, target=None, peers=(EAGER,)),
    )

    @staticmethod
    def torch(torch: Any, desc: HouseholderProductDescriptor, *, a: Any, tau: Any) -> Any:
        """torch.linalg.householder_product."""
        return torch.linalg.householder_product(a, tau)

    @staticmethod
    def case(draw: Any) -> HouseholderProductDescriptor:
        n = draw.sizes(0, 1, 2, 7, 17)
        return HouseholderProductDescriptor(
            batch_shape=draw.shape(0, 2, 0, 3), m=n + draw.choice((0, 1, 16)), n=n,
            k=max(n - draw.choice((0, 0, 2)), 0), element=draw.element,
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: HouseholderProductDescriptor, arrays: dict[str, Any]) -> None:
        """The reflectors of a matrix, and beyond them numbers that nobody reads."""
        held = arrays["a"]
        made = GeqrfPlan.reference(
            GeqrfDescriptor(batch_shape=desc.batch_shape, m=desc.m, n=desc.n, element=desc.element), a=tame(held)
        )
        arrays["a"] = np.where(_read(desc), made["y"], held)
        arrays["tau"] = np.array(made["tau"][..., : desc.k])

    @classmethod
    def flops(cls, desc: HouseholderProductDescriptor) -> int:
        return int(np.prod(desc.batch_shape, dtype=np.int64)) * 4 * desc.m * desc.n * desc.k


householder_product = functional(HouseholderProductPlan)


@entry(HouseholderProductPlan)
def orgqr(a: Array, tau: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """`householder_product` by LAPACK's name (torch.orgqr), of complex numbers, too."""
    return householder_product(a, tau, out=out, stream=stream, preference=preference)
