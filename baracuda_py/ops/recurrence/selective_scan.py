"""selective_scan: the state-space recurrence of Mamba (Gu and Dao 2023), its decays chosen by the input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Geometry, Guarantee, Params, Plan, Problem, Relative, Step, Variant, Vjp,
    operand, output,
)  # fmt: skip
from ...core.benchmark import Benchmark
from ..attention.packed.ragged import INDEX, random_bounds
from ...schedules.geometry import strides_of
from .selective import (
    COMMON, POLICY, THREADS, PackedScan, Scan, SelectiveScanDescriptor, apart, channels, common, gated, joined,
    leading, one_by_one, parted, scan_case, slow, step_sizes, walking, wide,
)  # fmt: skip

X, INPUTS, STATE = "batch dim length", "batch groups states length", "num_states dim states"


@dataclass(slots=True, kw_only=True)
class SelectiveScanArgs(Args):
    """Any strides. a, d, delta_bias and the states in the accumulator's element, float32 or float64.

    cu_seqlens: sequence n has steps cu_seqlens[n] to cu_seqlens[n + 1] - 1 of a batch of 1.
    """

    u: Array = operand(X)
    delta: Array = operand(X, values=step_sizes)
    a: Array = operand("dim states", element="acc", values=slow)
    b: Array = operand(INPUTS)
    c: Array = operand(INPUTS)
    d: Array | None = operand("dim", element="acc", optional=True)
    z: Array | None = operand(X, optional=True)
    delta_bias: Array | None = operand("dim", element="acc", optional=True, values=step_sizes)
    initial_state: Array | None = operand(STATE, element="acc", optional=True)
    cu_seqlens: Array | None = operand("num_bounds", element=INDEX, optional=True, values=random_bounds("length"))
    y: Array = output(X)
    last_state: Array | None = output(STATE, element="acc", optional=True)


def reference(
    desc: SelectiveScanDescriptor, *, u: Any, delta: Any, a: Any, b: Any, c: Any, d: Any, z: Any, delta_bias: Any,
    initial_state: Any, cu_seqlens: Any, wanted: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype u comes in: step by step."""
    given = {
        "u": u, "delta": delta, "a": joined(desc, a), "b": joined(desc, b), "c": joined(desc, c), "d": d, "z": z,
        "delta_bias": delta_bias, "initial_state": joined(desc, initial_state),
    }  # fmt: skip
    y, last = _scanned(desc, given, cu_seqlens)
    return {"y": y, "last_state": parted(desc, last)}


def _scanned(desc: SelectiveScanDescriptor, given: dict[str, Any], bounds: Any) -> tuple[Any, Any]:
    """(y, last states), of complex numbers where they are."""
    u = given["u"]
    if bounds is not None:
        y = np.zeros_like(u)
        last = np.zeros((desc.num_states, desc.dim, desc.states), np.result_type(u, given["a"]))
        for n, rows, one, alone in one_by_one(desc, bounds, given):
            y[..., rows], last[n : n + 1] = _scanned(one, alone, None)
        return y, last
    with np.errstate(all="ignore"):
        operands = {"initial" if name == "initial_state" else name: x for name, x in given.items()}
        d, z = operands.pop("d"), operands.pop("z")
        scan = Scan.of(desc, **operands)
        return gated(scan.outputs(u, d), z), scan.states[:, :, -1]


PARAMS = Params("SelectiveScanParams", **COMMON, y="ptr", last_state="ptr", checkpoints="ptr")


def scan_geometry(p: Problem) -> Geometry | str:
    """One launch, of real numbers or of pairs."""
    if (why := apart(p)) is not None:
        return why
    each, blocks, values = channels(p)
    values |= {
        **common(p), "y_strides": strides_of(p.y, 3), "last_strides": leading(p.last_state, 3), "chunks": 0,
        "checkpoints": "@null",
    }  # fmt: skip
    views = {name: p.views[name] for name in ("u", "delta", "z", "b", "c", "y")}
    axes = {"WIDE": wide(views, p.desc.element)}
    dense = all(v is None or v.dense for v in views.values())
    layout = "contiguous" if dense else "inner_contiguous" if axes["WIDE"] else "strided"
    return Geometry((Step(f"scan_{each}", blocks, values, axes, THREADS),), layout=layout)


def in_torch(
    torch: Any, desc: SelectiveScanDescriptor, *, u: Any, delta: Any, a: Any, b: Any, c: Any, d: Any, z: Any,
    delta_bias: Any, initial_state: Any, cu_seqlens: Any, wanted: set[str],
) -> Any:  # fmt: skip
    """Step by step, as mamba-ssm's reference has it."""
    if cu_seqlens is not None:
        return NotImplemented
    wide_ = torch.promote_types(u.dtype, torch.float32)
    x, dt, b, c = (one.to(wide_) for one in (u, delta, b, c))
    if desc.pair == 2:
        a, b, c = (torch.complex(*one.unbind(-1)) for one in (a, b, c))
    dt = dt if delta_bias is None else dt + delta_bias[:, None]
    dt = torch.nn.functional.softplus(dt, threshold=1e4) if desc.softplus else dt
    b, c = (one.repeat_interleave(desc.dim // desc.groups, 1) for one in (b, c))
    h = a.new_zeros((desc.batch, desc.dim, desc.states)) if initial_state is None else initial_state
    h = torch.complex(*h.unbind(-1)) if desc.pair == 2 and initial_state is not None else h
    ys = []
    for t in range(desc.length):
        h = torch.exp(dt[..., t, None] * a) * h + (dt[..., t] * x[..., t])[..., None] * b[..., t]
        read = (h * c[..., t]).sum(-1)
        ys.append(2 * read.real if desc.pair == 2 else read)
    y = torch.stack(ys, -1) if ys else torch.zeros_like(x)
    y = y if d is None else y + d[:, None] * x
    y = y if z is None else y * torch.nn.functional.silu(z.to(wide_))
    return {"y": y.to(u.dtype), "last_state": torch.stack((h.real, h.imag), -1) if desc.pair == 2 else h}


def scan_benchmarks(*also: str, pair: int = 1) -> tuple[Benchmark, ...]:
    """Mamba of 2.8 billion parameters."""

    def make(torch: Any, desc: Any) -> dict[str, Any]:
        return {"a": -torch.rand((desc.dim, desc.states, *(() if pair == 1 else (2,)))) - 0.5}

    return (
        Benchmark(f"[4, 5120, 2048] bf16, 16 {'' if pair == 1 else 'complex '}states",
                  also=("d", "z", "delta_bias", *also), batch=4, dim=5120, length=2048,
                  states=16, softplus=True, element="bfloat16", make=make, target=None, peers=(),
                  checked={"length": 160}),
    )  # fmt: skip


class SelectiveScanPlan(PackedScan, Plan):
    """h[n] = exp(dt a[n]) h[n] + dt b[n] u, y = (Σ_n c[n] h[n] + d u) silu(z), dt = softplus(delta + delta_bias).

    selective_scan_fn of mamba-ssm, real. u, delta, z, y (batch, dim, length); a (dim, states); b, c (batch, groups,
    states, length), a group of channels having one b and c; d, delta_bias (dim); last_state, initial_state (batch,
    dim, states), float32 (float64 of float64) as a, d and delta_bias are. With cu_seqlens the batch of 1 has packed
    sequences, each of which has a state. Step by step: a sequence has the same bits alone, packed, in a batch, or
    continued from its state.
    """

    op = "recurrence.selective_scan"
    descriptor = SelectiveScanDescriptor
    args = SelectiveScanArgs
    reference = staticmethod(reference)
    value_policy = POLICY
    variants = (
        Variant(
            "channels", scan_geometry, source="recurrence/selective_scan.cu",
            kernels=walking("scan", "selective_scan", PARAMS),
            guarantee=Guarantee(Relative(2), batch_invariant=True), may_spill=True,
        ),
    )  # fmt: skip
    vjp = Vjp(
        "SelectiveScanBackwardPlan",
        grads={
            "u": "du", "delta": "ddelta", "a": "da", "b": "db", "c": "dc", "d": "dd", "z": "dz",
            "delta_bias": "ddelta_bias", "initial_state": "dinitial_state",
        },
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = scan_benchmarks("y")

    @staticmethod
    def case(draw: Any) -> SelectiveScanDescriptor:
        made: SelectiveScanDescriptor = scan_case(draw, SelectiveScanDescriptor)
        return made
