"""The gradient of Cholesky factors: dA = (S + Sᴴ) / 2 with S = L⁻ᴴ Φ(Lᴴ dL) L⁻¹ (Murray 2016).

Of matrices of up to 64 rows by one kernel, of larger ones by cuBLAS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends.blas3 import ADJOINT, CUBLAS, LEFT, PLAIN, RIGHT, Triangular
from ...backends.cusolver import UPPER
from ...core import (
    Args, Array, BackendKind, Backward, Geometry, Guarantee, Kernel, LibraryStep, Params, Plan, Problem,
    Step, Variant, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.args import finite_only
from ...core.benchmark import FLOPS, Benchmark
from ...core.device import Device
from ...schedules.in_library import COPY, COPY_SOURCE, Place, copied, offsets, piece, sequence, swapped
from ...schedules.small_matrices import small_geometry, small_kernel
from .cholesky import CholeskyDescriptor, CholeskyPlan, definite, drawn
from .draws import ELEMENTS, solved

_THREADS = 256


@dataclass(frozen=True, kw_only=True)
class CholeskyBackwardDescriptor(CholeskyDescriptor):
    """The forward's fields."""


@finite_only  # the bound is relative, which roundings of subnormals are not; infinities times 0 are the library's
def _slopes(rng: np.random.Generator, desc: CholeskyDescriptor, shape: tuple[int, ...]) -> Any:
    """Test data: gradients of both triangles."""
    x = rng.standard_normal(shape)
    return x + 1j * rng.standard_normal(shape) if desc.element.is_complex else x


@dataclass(slots=True, kw_only=True)
class CholeskyBackwardArgs(Args):
    """Any strides. Of y, the factor, and of dy one triangle counts; da may be dy itself."""

    y: Array = operand("*batch_shape n n")
    dy: Array = operand("*batch_shape n n", values=_slopes)
    da: Array = output("*batch_shape n n", inplace=("dy",))


def _lower(desc: CholeskyDescriptor, *matrices: Any) -> list[Any]:
    """Lower factors and what stands to them as dL to L: of upper ones the adjoint."""
    return [np.tril(x.conj().swapaxes(-1, -2) if desc.upper else x) for x in matrices]


def _part(factor: Any, slope: Any) -> Any:
    """(Φ + Φᴴ) / 2 of Lᴴ dL; Φ is its lower triangle with half of the diagonal."""
    product = np.tril(factor.conj().swapaxes(-1, -2) @ slope)
    part = product - np.eye(product.shape[-1]).astype(product.real.dtype) * product / 2
    return (part + part.conj().swapaxes(-1, -2)) / 2


def reference(desc: CholeskyDescriptor, *, y: Any, dy: Any) -> Mapping[str, Any]:
    """NumPy's solves."""
    factor, slope = _lower(desc, y, dy)
    adjoint = factor.conj().swapaxes(-1, -2)
    half = solved(adjoint, _part(factor, slope))
    return {"da": solved(adjoint, half.conj().swapaxes(-1, -2)).conj().swapaxes(-1, -2)}


def residual(desc: CholeskyDescriptor, name: str, *, y: Any, dy: Any, da: Any) -> Any:
    """‖Lᴴ dA L - P‖ / (n (‖L‖² ‖dA‖ + ‖L‖ ‖dL‖)) of each matrix; the gradient of an upper factor is the same.

    Of matrices with numbers that are not finite it is 0: what comes of them is the library's.
    """
    factor, slope = _lower(desc, y, dy)

    def size(x: Any) -> Any:
        return np.sqrt(np.square(np.abs(x)).sum((-1, -2)))

    with np.errstate(all="ignore"):
        off = size(factor.conj().swapaxes(-1, -2) @ da @ factor - _part(factor, slope))
        scale = max(desc.n, 1) * (size(factor) ** 2 * size(da) + size(factor) * size(slope))
    known = np.isfinite(size(factor) + size(slope))
    return np.where(known & (off != 0), off / np.where(scale == 0, 1, scale), 0)


PARAMS = Params("HermitianPartParams", x="ptr", n="i64", count="i64")


_HERMITIAN = Kernel(
    "hermitian_part", "hermitian_part<{T}>", PARAMS, threads=_THREADS, source="linalg/hermitian_part.cu"
)


def small(p: Problem) -> Geometry | str:
    """One launch; the factor and dy transposed where the factor is an upper one, the gradient of which is the same."""
    desc: CholeskyBackwardDescriptor = p.desc
    y, dy, da = (swapped(view) if desc.upper else view for view in (p.y, p.dy, p.da))
    return small_geometry("small", (desc.n, desc.n), desc.batch_shape, {"y": y, "dy": dy, "da": da}, arrays=2)


_SMALL = small_kernel("small", "SmallCholeskyBackwardParams", "y", "dy", "da", source="small_cholesky_backward")


def geometry(p: Problem) -> Geometry | str:
    """The factor and dy in the workspace, cuBLAS and a kernel in turn on dy's copy, which then goes to da."""
    desc: CholeskyDescriptor = p.desc
    y, dy, da = (swapped(view) if desc.upper else view for view in (p.y, p.dy, p.da))
    factor, end = piece(y.shape, desc.element, 0)
    work, end = piece(dy.shape, desc.element, end)
    whole = {"n": desc.n, "count": work.view.size, "x": work.name}
    half = Step("hermitian_part", (-(-work.view.size // _THREADS), 1, 1), whole, block=_THREADS)
    steps = sequence(
        copied(factor.view, y, factor.name, "y"),
        copied(work.view, dy, work.name, "dy"),
        (LibraryStep(_caller(desc, factor, work, _multiply)), half, LibraryStep(_caller(desc, factor, work, _solve))),
        copied(da, work.view, "da", work.name, diagonal=desc.n),
    )
    return steps if isinstance(steps, str) else Geometry(steps, end, "strided")


# By columns, as cuBLAS reads them, the copies are their transposes, the factor U = Lᵀ upper triangular: a product from
# the left is one from the right.


def _multiply(triangular: Triangular, factor: int, work: int, stream: int) -> None:
    """W := Lᴴ W, which is Wᵀ := Wᵀ Uᴴ."""
    triangular.multiply(RIGHT, ADJOINT, factor, work, stream)


def _solve(triangular: Triangular, factor: int, work: int, stream: int) -> None:
    """W := L⁻ᴴ W L⁻¹, which is Wᵀ := U⁻¹ Wᵀ U⁻ᴴ."""
    triangular.solve(RIGHT, ADJOINT, factor, work, stream)
    triangular.solve(LEFT, PLAIN, factor, work, stream)


def _caller(
    desc: CholeskyDescriptor, factor: Place, work: Place, act: Callable[..., None]
) -> Callable[[Device], Callable[..., None]]:
    """A routine on each pair of matrices in turn; the two pieces are laid out alike."""

    def prepare(device: Device) -> Callable[..., None]:
        triangular, matrices = Triangular(str(desc.element), desc.n, UPPER, device), offsets(work.view, 2)

        def run(pointers: tuple[int, ...], scalars: Any, workspace: int, nbytes: int, stream: int) -> None:
            for at in matrices:
                act(triangular, workspace + factor.start + at, workspace + work.start + at, stream)

        return run

    return prepare


class CholeskyBackwardPlan(Plan):
    """da from the factor and its gradient, Hermitian: of a Hermitian change δ of A the loss changes by ⟨da, δ⟩.

    da = (S + Sᴴ) / 2, S = L⁻ᴴ Φ(Lᴴ dL) L⁻¹, Φ the lower triangle with half of the diagonal; of `upper` with L = Uᴴ.
    """

    op = "linalg.cholesky_backward"
    direction = "backward"
    descriptor = CholeskyBackwardDescriptor
    args = CholeskyBackwardArgs
    widest = np.float64
    reference = staticmethod(reference)
    residual = staticmethod(residual)
    variants = (
        Variant(
            "small", small, "linalg/small_cholesky_backward.cu", (_SMALL,), elements=ELEMENTS,
            guarantee=Guarantee(Backward(2.0), batch_invariant=True),
        ),
        Variant(
            "cublas", geometry, COPY_SOURCE, (COPY, _HERMITIAN), elements=ELEMENTS, backend=BackendKind.CUBLAS,
            guarantee=Guarantee(Backward(2.0), batch_invariant=True, order="cublas"), missing=CUBLAS.unavailable,
        ),
    )  # fmt: skip
    benchmarks = (Benchmark("2048² f32", n=2048, element="float32", work=FLOPS, target=None, peers=()),)

    @staticmethod
    def torch(torch: Any, desc: CholeskyBackwardDescriptor, *, y: Any, dy: Any) -> Any:
        """Autograd of torch.linalg.cholesky_ex at the matrix that y is the factor of: of its result the Hermitian part.

        torch's has another part where dA is complex, which changes nothing for Hermitian changes of A.
        """
        factor = y.triu().mH if desc.upper else y.tril()
        with torch.enable_grad():
            a = (factor @ factor.mH).detach().requires_grad_()
            (found,) = torch.autograd.grad(torch.linalg.cholesky_ex(a, upper=desc.upper).L, a, dy)
        return (found + found.mH) / 2

    @staticmethod
    def case(draw: Any) -> CholeskyBackwardDescriptor:
        return CholeskyBackwardDescriptor(**drawn(draw))

    @classmethod
    def complete(cls, desc: CholeskyDescriptor, arrays: dict[str, Any]) -> None:
        """Factors of positive definite matrices, and beyond their triangle numbers that nobody reads."""
        held = arrays["y"]
        a = definite(desc, held)
        factor = CholeskyPlan.reference(desc, a=a, wanted={"y"})["y"].astype(held.dtype)
        kept = np.tri(desc.n, dtype=bool)
        arrays["y"] = np.where(kept.T if desc.upper else kept, factor, held)

    @classmethod
    def flops(cls, desc: CholeskyDescriptor) -> int:
        return 3 * int(np.prod(desc.batch_shape, dtype=np.int64)) * desc.n**3


cholesky_backward = functional(CholeskyBackwardPlan)
