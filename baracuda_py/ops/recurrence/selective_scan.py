"""selective_scan: the state-space recurrence of Mamba (Gu and Dao 2023), its decays chosen by the input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Geometry, Guarantee, InvalidProblemError, Params, Plan, Problem, Relative, Step, Variant, Vjp,
    operand, output,
)  # fmt: skip
from ...calls.entries import entry
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.views import broadcast, shape_of, with_axis
from ..attention.packed.ragged import INDEX, random_bounds
from ..layout.repeats import repeat_interleave
from ...schedules.geometry import strides_of
from .selective import (
    COMMON, POLICY, THREADS, PackedScan, Scan, SelectiveScanDescriptor, channels, common, gated, one_by_one,
    scan_case, slow, step_sizes, walking, wide,
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
    if cu_seqlens is not None:
        given = {
            "u": u, "delta": delta, "a": a, "b": b, "c": c, "d": d, "z": z, "delta_bias": delta_bias,
            "initial_state": initial_state,
        }  # fmt: skip
        y, last = np.zeros_like(u), np.zeros((desc.num_states, desc.dim, desc.states), u.dtype)
        for n, rows, one, alone in one_by_one(desc, cu_seqlens, given):
            made = reference(one, **alone, cu_seqlens=None, wanted=wanted)
            y[..., rows], last[n] = made["y"], made["last_state"][0]
        return {"y": y, "last_state": last}
    with np.errstate(all="ignore"):
        scan = Scan.of(desc, u, delta, a, b, c, delta_bias, initial_state)
        return {"y": gated(scan.outputs(u, d), z), "last_state": scan.states[:, :, -1]}


PARAMS = Params("SelectiveScanParams", **COMMON, y="ptr", last_state="ptr", checkpoints="ptr")


def _geometry(p: Problem) -> Geometry | str:
    each, blocks, values = channels(p)
    values |= {
        **common(p), "y_strides": strides_of(p.y, 3), "last_strides": strides_of(p.last_state, 3), "chunks": 0,
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
    x, dt = u.to(wide_), delta.to(wide_)
    dt = dt if delta_bias is None else dt + delta_bias[:, None]
    dt = torch.nn.functional.softplus(dt, threshold=1e4) if desc.softplus else dt
    b, c = (one.to(wide_).repeat_interleave(desc.dim // desc.groups, 1) for one in (b, c))
    h = x.new_zeros((desc.batch, desc.dim, desc.states)) if initial_state is None else initial_state
    ys = []
    for t in range(desc.length):
        h = torch.exp(dt[..., t, None] * a) * h + (dt[..., t] * x[..., t])[..., None] * b[..., t]
        ys.append((h * c[..., t]).sum(-1))
    y = torch.stack(ys, -1) if ys else torch.zeros_like(x)
    y = y if d is None else y + d[:, None] * x
    y = y if z is None else y * torch.nn.functional.silu(z.to(wide_))
    return {"y": y.to(u.dtype), "last_state": h}


def scan_benchmarks(*also: str) -> tuple[Benchmark, ...]:
    """Mamba of 2.8 billion parameters."""

    def make(torch: Any, desc: Any) -> dict[str, Any]:
        return {"a": -torch.rand((desc.dim, desc.states)) - 0.5}

    return (
        Benchmark("[4, 5120, 2048] bf16, 16 states", also=("d", "z", "delta_bias", *also), batch=4, dim=5120,
                  length=2048, states=16, softplus=True, element="bfloat16", make=make, target=None, peers=(),
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
            "channels", _geometry, source="recurrence/selective_scan.cu",
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


_scan: Any = functional(SelectiveScanPlan, "selective_scan")


def of_inputs(x: Any, name: str, batch: int, length: int) -> Any:
    """b or c as (batch, groups, states, length): of (dim, states), (batch, states, length), or as it is."""
    shape = shape_of(x, name)
    if len(shape) == 2:
        whole = with_axis(with_axis(x, 0, name), -1, name)
        return broadcast(whole, (batch, *shape, length), name)
    if len(shape) == 3:
        return with_axis(x, 1, name)
    if len(shape) != 4:
        raise InvalidProblemError(
            f"{name} must be [dim, states], [batch, states, length] or [batch, groups, states, length], got {shape}"
        )
    return x


@entry(SelectiveScanPlan)
def selective_scan(
    u: Array, delta: Array, A: Array, B: Array, C: Array, D: Array | None = None, z: Array | None = None,
    delta_bias: Array | None = None, delta_softplus: bool = False, return_last_state: bool = False, *,
    initial_state: Array | None = None, cu_seqlens: Array | None = None, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """Mamba's recurrence h = exp(dt A) h + dt B u, y = (C h + D u) silu(z), selective_scan_fn of mamba-ssm (real A).

    u, delta, z: [batch, dim, length]; dt = delta + delta_bias, or its softplus with delta_softplus. A: [dim, states],
    at most 256; B, C: [batch, groups, states, length], [batch, states, length], or [dim, states] for all times; D,
    delta_bias: [dim]. A, D, delta_bias and the states are float32 beside float16 and bfloat16 u. initial_state: [batch,
    dim, states], zeros where absent; with return_last_state the result is (y, last_state). cu_seqlens: int32 or int64
    [sequences + 1], the bounds of sequences packed into a batch of one, with states of [sequences, dim, states]; they
    are clamped to [0, length] and to the largest bound before them, and steps of no sequence have a y of 0. Gradients
    of all of them, without atomics, the states being made anew from one in 32.
    """
    shape = shape_of(u, "u")
    if len(shape) != 3:
        raise InvalidProblemError(f"u must be [batch, dim, length], got shape {shape}")
    b, c = (of_inputs(x, name, shape[0], shape[2]) for x, name in ((B, "B"), (C, "C")))
    groups = {name: shape_of(x, name)[1] for x, name in ((b, "B"), (c, "C"))}
    most = max(groups.values())
    options = {"stream": stream, "preference": preference}
    b, c = (_grouped(x, name, most, options) for x, name in ((b, "B"), (c, "C")))
    return _scan(
        u, delta, A, b, c, D, z, delta_bias, initial_state, cu_seqlens, softplus=delta_softplus,
        return_last_state=return_last_state, out=out, **options,
    )  # fmt: skip


def _grouped(x: Any, name: str, groups: int, options: dict[str, Any]) -> Any:
    """x with so many groups, of which it has as many or a divisor of them."""
    batch, own, states, length = shape_of(x, name)
    if own == groups or not own or groups % own:
        return x
    if own == 1:
        return broadcast(x, (batch, groups, states, length), name)
    return repeat_interleave(x, groups // own, 1, **options)
