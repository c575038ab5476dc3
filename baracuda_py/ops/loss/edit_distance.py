"""edit_distance: how many tokens must be put in, left out or changed to make one sequence of another (Levenshtein)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...calls.functional import functional
from ...core import (
    Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, Kernel, Params, Plan, Problem, Step, Variant,
    element, extent, operand, output,
)  # fmt: skip
from ...core.benchmark import Benchmark
from ...core.element import INDICES
from ...core.variant import aligned

THREADS, HELD = 256, 1024  # of a block; tokens of a, and 0, of a row in shared memory
I64 = ElementKind.I64


@dataclass(frozen=True, kw_only=True)
class EditDistanceDescriptor(Descriptor):
    """a is [batch_size, a_length], b [batch_size, b_length]."""

    batch_size: int = extent()
    a_length: int = extent()
    b_length: int = extent()
    element: ElementKind = element(INDICES, I64)


def _tokens(rng: np.random.Generator, desc: Any, shape: Any) -> Any:
    return rng.integers(0, 4, shape)


@dataclass(slots=True, kw_only=True)
class EditDistanceArgs(Args):
    """Any strides; lengths are int64 or int32."""

    a: Array = operand("batch_size a_length", values=_tokens)
    b: Array = operand("batch_size b_length", values=_tokens)
    a_lengths: Array | None = operand("batch_size", element=INDICES[::-1], optional=True, layout="dense",
                                      values=(-1, "a_length"))  # fmt: skip
    b_lengths: Array | None = operand("batch_size", element=INDICES[::-1], optional=True, layout="dense",
                                      values=(-1, "b_length"))  # fmt: skip
    distance: Array = output("batch_size", element=ElementKind.I32)


def reference(desc: EditDistanceDescriptor, *, a: Any, b: Any, a_lengths: Any, b_lengths: Any) -> Mapping[str, Any]:
    """NumPy, pair by pair and row by row (Wagner and Fischer 1974)."""

    def own(rows: Any, lengths: Any, n: int) -> Any:
        return rows[n] if lengths is None else rows[n, : max(int(lengths[n]), 0)]

    found = np.zeros(desc.batch_size, np.int32)
    for n in range(desc.batch_size):
        x, y = own(a, a_lengths, n), own(b, b_lengths, n)
        places = np.arange(len(x) + 1)
        row = places.copy()
        for j, token in enumerate(y, 1):
            made = np.minimum(row + 1, np.concatenate([[j], row[:-1] + (x != token)]))
            row = np.minimum.accumulate(made - places) + places  # tokens of a that are left out
        found[n] = row[-1]
    return {"distance": found}


PARAMS = Params(
    "EditParams", a="ptr", b="ptr", a_lengths="ptr", b_lengths="ptr", distance="ptr", rows="workspace", a_length="i64",
    b_length="i64", a_steps="i64[2]", b_steps="i64[2]", distance_step="i64", wide_a="i32", wide_b="i32",
    staged="i32", edit_threads=THREADS, edit_held=HELD,
)  # fmt: skip


def _geometry(p: Problem) -> Geometry:
    desc = p.desc
    staged = desc.a_length < HELD
    params = {
        "rows": 0, "a_length": desc.a_length, "b_length": desc.b_length, "a_steps": p.a.strides,
        "b_steps": p.b.strides, "distance_step": p.distance.strides[0],
        "wide_a": p.a_lengths is not None and p.a_lengths.element is I64,
        "wide_b": p.b_lengths is not None and p.b_lengths.element is I64, "staged": staged,
    }  # fmt: skip
    size = 0 if staged else aligned(4 * 3 * desc.batch_size * (desc.a_length + 1))
    step = Step("edit", (desc.batch_size, 1, 1), params, {}, THREADS)
    return Geometry((step,), size, "contiguous" if p.a.dense and p.b.dense else "strided")


class EditDistancePlan(Plan):
    """distance [B], int32: the least number of tokens put in, left out or changed that makes b of a (Levenshtein 1966).

    Lengths are cut to what the arrays hold. A block has a pair and goes along diagonals, whose places do not depend on
    each other: a_length + b_length steps.
    """

    op = "loss.edit_distance"
    descriptor = EditDistanceDescriptor
    args = EditDistanceArgs
    reference = staticmethod(reference)
    value_policy = "lengths are cut to those that there are"
    variants = (
        Variant(
            "diagonals", _geometry, source="loss/edit_distance.cu", elements=INDICES,
            guarantee=Guarantee(Exact(), batch_invariant=True),
            kernels=(Kernel("edit", "edit_distance<{T}>", PARAMS, threads=THREADS),),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark("256 pairs of 500 tokens", batch_size=256, a_length=500, b_length=500,
                  make=lambda torch, desc: {n: torch.randint(0, 30, (desc.batch_size, 500)) for n in "ab"}, peers=()),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> EditDistanceDescriptor:
        long = draw.rarely()
        return EditDistanceDescriptor(
            batch_size=draw.integer(0, 3), a_length=1500 if long else draw.sizes(0, 1, 5, 40, 300),
            b_length=draw.sizes(0, 1, 7, 20), element=draw.element,
        )  # fmt: skip


edit_distance = functional(
    EditDistancePlan, "edit_distance",
    doc="""Levenshtein distances [B] int32 of token sequences a [B, N] and b [B, M], int64 or int32.

    a_lengths, b_lengths: [B], int64 or int32, of which rows are the first tokens. An error rate is the distance over
    the length of the reference: tf.edit_distance's normalize, and what jiwer and torchaudio.functional.edit_distance
    count one pair at a time on the host. See `EditDistancePlan`.
    """,
)  # fmt: skip
