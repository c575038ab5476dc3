"""rope_hadamard: the rotary embedding of every head and its Hadamard transform, in one launch.

What spreads outliers of rotated queries and keys over a head before they are quantised: DeepSeek-V3.2's indexer, and
keys in QuaRot (Ashkboos et al. 2024) and SpinQuant (Liu et al. 2024). The transform is orthonormal, so that products of
queries and keys stay what they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, InvalidProblemError, Kernel, Params, Plan, Problem,
    Relative, Scalar, Step, Variant, View, Vjp, choice, element, extent, integer, number, operand, output, scalar,
)  # fmt: skip
from ....calls.functional import functional
from ....core.benchmark import Benchmark
from ...quantize.hadamard import HadamardDescriptor, rotated_in_torch, transformed
from ..layouts import Layouts
from .qk_norm_rope import THREADS, head_grid, layout_of, room, side_values, units
from .rope import X2, RopePlan, X, is_wide, rotation, rotation_params
from .rotary import (
    TABLES, Rotary, angles, angles_in_torch, check_tokens, frequencies_operand, interleaved_field, positions_operand,
    random_sections, rotate, rotate_in_torch, section_field, table_operand, tables_field,
)  # fmt: skip

MOST = 256  # columns of a head


@dataclass(frozen=True, kw_only=True)
class RopeHadamardDescriptor(Rotary, Descriptor):
    """x is [batch_size, num_heads, seq_len, head_dim], x2 the same with num_heads2 heads; see `RopeDescriptor`.

    head_dim is a power of two up to 256, and its first rotary_dim columns turn.
    """

    batch_size: int = extent()
    num_heads: int = extent()
    seq_len: int = extent()
    head_dim: int = extent()
    num_heads2: int = extent(0)
    rotary_dim: int | None = integer(None, minimum=0)
    pairing: str = choice(("half", "interleaved"), "half")
    base: float = number(10000.0, above=0.0)
    table_shape: tuple[int, ...] = tables_field()
    mrope_section: tuple[int, ...] = section_field()
    mrope_interleaved: bool = interleaved_field()
    element: ElementKind = element()

    def validate(self) -> None:
        if not 1 <= self.head_dim <= MOST or self.head_dim & (self.head_dim - 1):
            raise InvalidProblemError(f"head_dim must be a power of two up to {MOST}, got {self.head_dim}")
        super().validate()


@dataclass(slots=True, kw_only=True)
class RopeHadamardArgs(Args):
    """All but the results are those of `RopeArgs`; y may be x, y2 be x2."""

    x: Array = operand(X)
    positions: Array | None = positions_operand()
    inv_freq: Array | None = frequencies_operand()
    x2: Array | None = operand(X2, optional=True)
    cos: Array | None = table_operand()
    sin: Array | None = table_operand()
    y: Array = output(X, inplace=("x",))
    y2: Array | None = output(X2, optional=True, needs="x2", inplace=("x2",))
    offset: Scalar = scalar(0, integer=True)
    scale: Scalar = scalar(1.0)


def mixed(desc: Any, x: Any) -> Any:
    """The orthonormal transform of every head."""
    return transformed(x, desc.head_dim) * x.dtype.type(desc.head_dim**-0.5)


def reference(desc: RopeHadamardDescriptor, *, x: Any, x2: Any, wanted: set[str], **turn: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    cos, sin = angles(desc, x.dtype, **turn)
    results = {"y": mixed(desc, rotate(desc, x, cos, sin))}
    if "y2" in wanted:
        results["y2"] = mixed(desc, rotate(desc, x2, cos, sin))
    return results


PARAMS = Params(
    "RopeHadamardParams", offset="iscalar", unit="f64", board="i64", hadamard_units="i64", side_blocks="i64[2]",
    side_tiles="i64[2]", side_rows="i32[2]", side_ways="i32[2]", **rotation_params(4),
)  # fmt: skip


def kernels(name: str) -> tuple[Kernel, Kernel]:
    """Of whole chunks where a lane holds one unit of a head, and of everything else."""
    template = f"{name}<{{T}}, {{INTERLEAVED}}, {{WIDE}}, {{HELD}}>"

    def others(kind: ElementKind) -> Any:
        held = (1, 2, 3) if kind is ElementKind.F64 else (1, 2)  # of float64 a lane's chunks are two columns each
        return {"INTERLEAVED": (False, True), "WIDE": (False,), "HELD": held}

    return (
        Kernel("heads", template, PARAMS, {"INTERLEAVED": (False, True), "WIDE": (True,), "HELD": (1,)}, THREADS, room),
        Kernel("heads_any", template, PARAMS, others, THREADS, 1),
    )


def geometry(p: Problem, names: Sequence[str]) -> Geometry | str:
    """`names`: the operands that stand for x, y, x2 and y2."""
    desc, counts, width = p.desc, units(p.desc), 16 // p.desc.element.itemsize
    x, y, x2, y2 = (p.views[n] for n in names)
    second = x2 is not None and y2 is not None
    given: list[View] = [x, y, *((x2, y2) if second else ())]
    heads, fill = (desc.num_heads, desc.num_heads2 if second else 0), room(desc.element) * p.device.sms
    lanes = min(32, 1 << max(sum(counts) - 1, 0).bit_length())
    held = -(-sum(counts) // lanes)
    wide = held == 1 and is_wide(desc, given)
    same = desc.rotary == desc.head_dim >= 2 * width  # the lanes hold the same columns for both
    values = rotation(p, given, heads, wide)
    values |= side_values(values["rows"], heads, lanes, fill)
    half = max(desc.rotary // 2, 1)
    values |= {
        **dict(zip(("x", "y", "x2", "y2"), names, strict=True)), "side_blocks": values["side_tiles"],
        "unit": desc.head_dim**-0.5, "board": 0 if same else desc.head_dim, "rotary_units": counts[0],
        "hadamard_units": max(1, desc.head_dim // (2 * width)), "copy_units": counts[1], "units": sum(counts),
        "step_rows": THREADS // half, "step_pairs": THREADS % half,
    }  # fmt: skip
    smem = (THREADS // lanes * values["board"] + max(values["side_rows"]) * desc.rotary) * desc.acc.itemsize
    axes = {"INTERLEAVED": desc.pairing == "interleaved", "WIDE": wide, "HELD": held}
    name = "heads" if wide else "heads_any"
    step = Step(name, head_grid(values, fill), values, axes, THREADS, smem=smem)
    return Geometry((step,), layout=layout_of(given, wide))


def random_case(draw: Any, descriptor: type[RopeHadamardDescriptor]) -> RopeHadamardDescriptor:
    """A descriptor for tests: whole and partial rotation, heads from one column to several of a lane."""
    head_dim = draw.sizes(2, 4, 8, 16, 64, 128, rare=(1, 256))
    partial = 2 * draw.integer(0, head_dim // 2) if draw.flag() or head_dim == 1 else None
    seq_len, rotary = draw.integer(0, 17), head_dim if partial is None else partial
    tables = (None, (seq_len, rotary), (1, 1, seq_len, rotary), (1, 1, seq_len, rotary // 2))
    return descriptor(
        batch_size=draw.integer(0, 3), num_heads=draw.integer(0, 5), seq_len=seq_len, head_dim=head_dim,
        num_heads2=draw.integer(0, 3), rotary_dim=partial, pairing=draw.choice(("half", "interleaved")),
        base=float(draw.sizes(10000, 500)), table_shape=draw.choice(tables), element=draw.element,
        **random_sections(draw, rotary // 2),
    )  # fmt: skip


def in_torch(torch: Any, desc: RopeHadamardDescriptor, *, x: Any, x2: Any, wanted: set[str], **turn: Any) -> Any:
    """The rotation, and products with the matrices whose Kronecker product H is."""
    cos, sin = angles_in_torch(torch, desc, x, **turn)
    made: dict[str, Any] = {}
    for name, one in (("y", x), ("y2", x2)):
        if one is not None:
            row = HadamardDescriptor(
                shape=tuple(one.shape), block=desc.head_dim, normalized=True, element=desc.element
            )  # fmt: skip
            made[name] = rotated_in_torch(torch, row, rotate_in_torch(torch, desc, one, cos, sin), None, None, 1.0)
    return NotImplemented if any(one is NotImplemented for one in made.values()) else made


def hadamard_benchmarks() -> tuple[Benchmark, ...]:
    """The queries of a large model, and those of DeepSeek's indexer, of which half of the columns turn."""
    return (
        Benchmark(
            "[8, 32, 4096, 128] bf16", batch_size=8, num_heads=32, seq_len=4096, head_dim=128, element="bfloat16",
            also=("inv_freq",),
        ),
        Benchmark(
            "[1, 64, 16384, 128] bf16, 64 columns turn", batch_size=1, num_heads=64, seq_len=16384, head_dim=128,
            rotary_dim=64, element="bfloat16", also=("inv_freq",),
        ),
    )  # fmt: skip


class RopeHadamardPlan(Plan):
    """y = H rope(x) / √head_dim of every head, H Sylvester's Hadamard matrix (scipy.linalg.hadamard).

    Rotation, positions, frequencies, tables, sections, x2 and layouts are those of `RopePlan`, the transform is that of
    `HadamardPlan` with normalized=True: H Hᵀ = head_dim · I. head_dim is a power of two up to 256; all of its columns
    are transformed, those from rotary_dim on too. Rotated numbers and sums are in float32, float64 of float64, and
    rounded once. The gradient is the transform and the rotation by the negated angle.
    """

    op = "attention.rope_hadamard"
    descriptor = RopeHadamardDescriptor
    args = RopeHadamardArgs
    autocast = "widest"
    reference = staticmethod(reference)
    vjp = Vjp("RopeHadamardBackwardPlan", grads={"x": "dx", "x2": "dx2"})
    value_policy = RopePlan.value_policy
    variants = (
        Variant(
            "heads", lambda p: geometry(p, ("x", "y", "x2", "y2")), source="attention/rope/rope_hadamard.cu",
            kernels=kernels("rope_hadamard"), guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = hadamard_benchmarks()

    @staticmethod
    def case(draw: Any) -> RopeHadamardDescriptor:
        return random_case(draw, RopeHadamardDescriptor)

    check = RopePlan.check
    complete = RopePlan.complete

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        if "x2" in shapes and len(shapes["x2"]) == 4:
            facts["num_heads2"] = shapes["x2"][1]
        check_tokens(shapes, "x", ("x2",), facts)


rope_hadamard = functional(RopeHadamardPlan, layouts=Layouts(("x", "x2", *TABLES, "y", "y2")), returns=("y2",))
