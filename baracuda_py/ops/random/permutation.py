"""randperm: numbers 0 … n - 1 in a random order, or the first of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    FLOATS, Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, Kernel, Params, Plan, Problem, Scalar,
    Step, Variant, element, extent, operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.element import INTS
from ...core.errors import InvalidProblemError
from .draws import streams
from .words import Tries, words64

THREADS = 256
EXACT = 4096
"""Numbers up to which every order is as likely as any other."""
ROUNDS = 10
I32, I64 = ElementKind.I32, ElementKind.I64


@dataclass(frozen=True, kw_only=True)
class PermutationDescriptor(Descriptor):
    """y has `count` of the numbers 0 … n - 1, each once."""

    n: int = extent()
    count: int = extent()
    element: ElementKind = element((I32, I64))

    def validate(self) -> None:
        if self.count > self.n:
            raise InvalidProblemError(f"count must be at most n = {self.n}, as each comes once, got {self.count}")
        if self.n > int(self.element.limits.max) + 1 or self.n > 2**62:
            raise InvalidProblemError(f"{self.element} does not hold the numbers below n = {self.n}")

    @property
    def bits(self) -> int:
        """Half the bits that the network permutes."""
        return max(1, -(-(self.n - 1).bit_length() // 2))


@dataclass(slots=True, kw_only=True)
class PermutationArgs(Args):
    """Any stride. like: an array of whose package and device y is, which is not read. seed and offset are 64-bit."""

    like: Array | None = operand("count", element=(*FLOATS, *INTS, ElementKind.BOOL), optional=True, broadcast=True)
    y: Array = output("count")
    seed: Scalar = scalar(integer=True)
    offset: Scalar = scalar(0, integer=True)


def reference(desc: PermutationDescriptor, *, like: Any, seed: Any, offset: Any) -> Mapping[str, Any]:
    """NumPy: ranks of words, or the network; see kernels/random/permutation.cu."""
    if desc.n <= EXACT:
        return {"y": np.argsort(words64(seed, offset, desc.n), kind="stable")[: desc.count]}
    bits, half = np.uint64(desc.bits), np.uint64((1 << desc.bits) - 1)
    at, open_ = np.arange(desc.count, dtype=np.uint64), np.arange(desc.count)
    while open_.size:
        left, right = at[open_] >> bits, at[open_] & half
        for j in range(ROUNDS):
            word = Tries(seed, offset, right).block(j + 1)[:, 0].astype(np.uint64)
            left, right = right, (left ^ word) & half
        at[open_] = left << bits | right
        open_ = open_[at[open_] >= desc.n]
    return {"y": at.astype(np.int64)}


PARAMS = Params("PermutationParams", y="ptr", seed="iscalar", offset="iscalar", n="i64", count="i64", stride="i64",
                bits="i32")  # fmt: skip


def _geometry(p: Problem) -> Geometry:
    desc = p.desc
    params = {"n": desc.n, "count": desc.count, "stride": p.y.strides[0], "bits": desc.bits}
    kernel, work = ("ranks", desc.n) if desc.n <= EXACT else ("network", desc.count)
    step = Step(kernel, (max(1, -(-work // THREADS)), 1, 1), params, {}, THREADS)
    return Geometry((step,), layout="contiguous" if p.y.dense else "strided")


class PermutationPlan(Plan):
    """y = the first `count` numbers of a random order of 0 … n - 1 (torch.randperm).

    Up to 4096 numbers it is the stable order of their 64-bit words of the Philox stream, so that all n! orders are
    alike. More go through a Feistel network of ten rounds, whose round functions are Philox's, until they are below n:
    a bijection without a sort, which needs no memory but that of y, and of which any part is made alone. Equal bits on
    every device.
    """

    op = "random.permutation"
    descriptor = PermutationDescriptor
    args = PermutationArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "words", _geometry, source="random/permutation.cu", elements=(I32, I64),
            guarantee=Guarantee(Exact(), native=True),
            kernels=(Kernel("ranks", "permutation_ranks<{T}>", PARAMS, {}, THREADS),
                     Kernel("network", "permutation_network<{T}>", PARAMS, {}, THREADS)),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark("67M i64", n=1 << 26, count=1 << 26, element="int64", make=lambda torch, desc: {"seed": 1}, peers=()),
    )

    @staticmethod
    def case(draw: Any) -> PermutationDescriptor:
        n = draw.sizes(0, 1, 7, 300, 4096, 4097, 5000)
        return PermutationDescriptor(n=n, count=min(n, draw.sizes(0, 1, 5, 600, 5000)), element=draw.element)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        if facts.get("n") is not None and facts.get("count") is None:
            facts["count"] = facts["n"]

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        streams((desc.n, desc.count), arrays)


_permuted = functional(PermutationPlan, "permuted")
