"""What a kernel is (`KernelSku`) and what it promises (`PrecisionGuarantee`)."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from .element import ElementKind
from .error_bound import ErrorBound, Exact


class OpCategory(enum.Enum):
    """The family of an op: what stands before the point in `op`, by the reference system's names where it has them.

    A family that has no name here is a category all the same: `OpCategory("fourier")`.
    """

    GEMM = "gemm"
    ELEMENTWISE = "elementwise"
    UNARY_ELEMENTWISE = "elementwise"  # the reference's three are one family here
    BINARY_ELEMENTWISE = "elementwise"
    TERNARY_ELEMENTWISE = "elementwise"
    GATED_ACTIVATION = "gated"
    REDUCTION = "reduce"
    SCAN = "scan"
    NORMALIZATION = "norm"
    SOFTMAX = "softmax"
    CONVOLUTION = "conv"
    POOLING = "pooling"
    ATTENTION = "attention"
    INDEXING = "indexing"
    EMBEDDING = "embedding"
    SHAPE_LAYOUT = "shape"
    SORTING = "sort"
    QUANTIZATION = "quantize"
    RANDOM = "random"
    LOSS = "loss"
    SEGMENT_OPS = "segment"
    IMAGE = "image"
    FFT = "fft"
    LINALG = "linalg"
    MOE = "moe"
    OPTIMIZER = "optimizer"

    @classmethod
    def _missing_(cls, value: object) -> OpCategory | None:
        if not isinstance(value, str) or not value.isidentifier():
            return None
        made = object.__new__(cls)
        made._name_, made._value_ = value.upper(), value
        return cls._value2member_map_.setdefault(value, made)  # type: ignore[return-value]

    def __reduce_ex__(self, proto: Any) -> tuple[Any, ...]:
        """By value: some Python 3.11 looks for the name, which a family without an entry has not."""
        return type(self), (self._value_,)


class ArchSku(enum.Enum):
    """The design of a row; the compile target is always the device's own sm_XY."""

    ANY = "any"
    SM80 = "sm80"
    SM89 = "sm89"
    SM90A = "sm90a"

    @property
    def target(self) -> str:
        """The target a row of this design is compiled for when no device says otherwise."""
        return "sm_" + self.value[2:] if self is not ArchSku.ANY else "any"

    def runs_on(self, cc: tuple[int, int]) -> bool:
        """Whether a device of compute capability `cc` runs rows of this design."""
        if self is ArchSku.SM90A:
            return cc == (9, 0)
        return cc >= {"any": (0, 0), "sm80": (8, 0), "sm89": (8, 9)}[self.value]


class BackendKind(enum.Enum):
    """Who implements a row: a kernel of ours, a CUDA library, or NumPy."""

    BESPOKE = "bespoke"
    CUBLAS = "cublas"
    CUDNN = "cudnn"
    CUFFT = "cufft"
    CUSOLVER = "cusolver"
    CUSPARSE = "cusparse"
    NCCL = "nccl"
    NUMPY = "numpy"

    @property
    def device(self) -> str:
        """The kind of device that its rows run on."""
        return "cpu" if self is BackendKind.NUMPY else "cuda"

    @property
    def is_library(self) -> bool:
        """Whether a CUDA library does it, which chooses by itself what it launches."""
        return self not in (BackendKind.BESPOKE, BackendKind.NUMPY)


@dataclass(frozen=True)
class PrecisionGuarantee:
    """The numerical contract of a row; every field has a generated test.

    `math_precision` and `accumulator` are element names; `error` is the bound against the float64 reference;
    `subnormals` says whether those among results and partial sums are kept, or may be 0. `order` names the instruction
    or the design that fixes the order of a sum, where there are several: of two rows that say the same of all this,
    bits are the same. `same_bits` names the family of ops whose rows give an item the same bits, whichever of the ops
    computes it and in whatever company.
    """

    math_precision: str
    accumulator: str
    bit_stable_on_same_hardware: bool = True
    deterministic: bool = True
    batch_invariant: bool = False
    subnormals: bool = True
    error: ErrorBound = Exact()
    order: str = field(default="", repr=False)
    same_bits: str = ""

    def weakest(self, other: PrecisionGuarantee) -> PrecisionGuarantee:
        """What holds whichever of two rows is taken."""
        wider = max((self, other), key=lambda g: g.error.looseness)
        return PrecisionGuarantee(
            wider.math_precision,
            wider.accumulator,
            self.bit_stable_on_same_hardware and other.bit_stable_on_same_hardware,
            self.deterministic and other.deterministic,
            self.batch_invariant and other.batch_invariant,
            self.subnormals and other.subnormals,
            wider.error,
            self.order if self.order == other.order else "",
            self.same_bits if self.same_bits == other.same_bits else "",
        )


@dataclass(frozen=True)
class KernelSku:
    """The identity of a chosen kernel; `str()` is stable and used in logs, caches and benchmarks."""

    op: str
    variant: str
    element: ElementKind
    layout: str
    arch: ArchSku
    backend: BackendKind
    precision_guarantee: PrecisionGuarantee
    kind: str | None = None
    aux_element: ElementKind | None = None
    epilogue: str | None = None

    @property
    def category(self) -> OpCategory:
        """The family of the op."""
        return OpCategory(self.op.partition(".")[0])

    def __str__(self) -> str:
        kind = f"[{self.kind}]" if self.kind else ""
        elements = str(self.element) + (f"_{self.aux_element}" if self.aux_element else "")
        return (
            f"{self.op}{kind}/{self.variant}/{elements}.{self.precision_guarantee.accumulator}"
            f"/{self.layout}/{self.arch.value}/{self.backend.value}"
        )
