"""selective_scan_backward: gradients of Mamba's scan; states are made anew from one in 32, sums have one order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Geometry, Guarantee, Kernel, Params, Plan, Problem, Relative, Step, Variant, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.variant import aligned
from ...schedules.geometry import grid, strides_of
from ..attention.packed.ragged import INDEX, random_bounds
from ..elementwise.unary_formulas import sigmoid
from .selective import (
    PAIRS,
    COMMON, OF_TIME, POLICY, STATES, STEPS, THREADS, PackedScan, Scan, SelectiveScanDescriptor, apart, channels, common,
    gate_slopes, joined, leading, one_by_one, parted, scan_case, slow, step_sizes, walking, wide,
)  # fmt: skip
from .selective_scan import INPUTS, STATE, X, scan_benchmarks

INTERVAL = 32  # steps between states that are kept


@dataclass(slots=True, kw_only=True)
class SelectiveScanBackwardArgs(Args):
    """Any strides; operands of the forward, dlast_state the gradient of its last_state. Each output may be None."""

    dy: Array = operand(X)
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
    dlast_state: Array | None = operand(STATE, element="acc", optional=True)
    du: Array | None = output(X, optional=True)
    ddelta: Array | None = output(X, optional=True)
    da: Array | None = output("dim states", element="acc", optional=True)
    db: Array | None = output(INPUTS, optional=True)
    dc: Array | None = output(INPUTS, optional=True)
    dd: Array | None = output("dim", element="acc", optional=True, needs="d")
    dz: Array | None = output(X, optional=True, needs="z")
    ddelta_bias: Array | None = output("dim", element="acc", optional=True, needs="delta_bias")
    dinitial_state: Array | None = output(STATE, element="acc", optional=True, needs="initial_state")


def reference(
    desc: SelectiveScanDescriptor, *, dy: Any, u: Any, delta: Any, a: Any, b: Any, c: Any, d: Any, z: Any,
    delta_bias: Any, initial_state: Any, cu_seqlens: Any, dlast_state: Any, wanted: set[str],
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype u comes in: the recurrence of slopes from the end, step by step."""
    given = {
        "dy": dy, "u": u, "delta": delta, "a": joined(desc, a), "b": joined(desc, b), "c": joined(desc, c), "d": d,
        "z": z, "delta_bias": delta_bias, "initial_state": joined(desc, initial_state),
        "dlast_state": joined(desc, dlast_state),
    }  # fmt: skip
    made = _packed(desc, cu_seqlens, given) if cu_seqlens is not None else _slopes(desc, **given)
    return {name: parted(desc, x) if name in PAIRS else x for name, x in made.items()}


def _slopes(
    desc: SelectiveScanDescriptor, *, dy: Any, u: Any, delta: Any, a: Any, b: Any, c: Any, d: Any, z: Any,
    delta_bias: Any, initial_state: Any, dlast_state: Any,
) -> dict[str, Any]:  # fmt: skip
    """The gradients of sequences that are items of the batch; conjugate, of complex numbers, as torch's are."""
    with np.errstate(all="ignore"):
        scan = Scan.of(desc, u, delta, a, b, c, delta_bias, initial_state)
        dz = np.zeros_like(u)
        if z is not None:
            dy, dz = gate_slopes(dy, scan.outputs(u, d), z)
        shape = (desc.batch, desc.dim, desc.length, desc.states)
        number, twice = np.result_type(u, a), u.dtype.type(desc.pair)
        g = np.zeros(shape[:2] + shape[3:], number) if dlast_state is None else dlast_state.astype(number)
        slopes = np.zeros(shape, number)
        for t in range(desc.length - 1, -1, -1):
            slopes[:, :, t] = g + twice * dy[:, :, t, None] * np.conj(scan.c[:, :, t])
            g = slopes[:, :, t] * np.conj(scan.decay[:, :, t])
        past = slopes * np.conj(scan.states[:, :, :-1] * scan.decay)
        by_input = np.sum(slopes * np.conj(scan.b), axis=-1).real
        ddt = by_input * u + np.sum(past * np.conj(a[:, None]), axis=-1).real
        ddelta = ddt * sigmoid(scan.raw) if desc.softplus else ddt
        du = by_input * scan.dt + (0 if d is None else dy * d[:, None])

        def of_groups(parts: Any) -> Any:
            whole = parts.reshape(desc.batch, desc.groups, desc.dim // desc.groups, desc.length, desc.states)
            return np.moveaxis(whole.sum(axis=2), 2, 3)

        return {
            "du": du, "ddelta": ddelta, "da": np.sum(past * scan.dt[..., None], axis=(0, 2)),
            "db": of_groups(slopes * (scan.dt * u)[..., None]),
            "dc": of_groups(twice * dy[..., None] * np.conj(scan.states[:, :, 1:])), "dd": np.sum(dy * u, axis=(0, 2)),
            "dz": dz, "ddelta_bias": np.sum(ddelta, axis=(0, 2)), "dinitial_state": g,
        }  # fmt: skip


def _packed(desc: SelectiveScanDescriptor, bounds: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The gradients of packed sequences: those of each, side by side or added."""
    u, number = given["u"], np.result_type(given["u"], given["a"])
    shared = {"da": (desc.dim, desc.states), "dd": (desc.dim,), "ddelta_bias": (desc.dim,)}
    made = {name: np.zeros(shape, number if name == "da" else u.dtype) for name, shape in shared.items()}
    made |= {f"d{name}": np.zeros_like(given[name]) for name in ("u", "delta", "b", "c")}
    made |= {"dz": np.zeros_like(u), "dinitial_state": np.zeros((desc.num_states, desc.dim, desc.states), number)}
    for n, rows, one, alone in one_by_one(desc, bounds, given):
        for name, x in _slopes(one, **alone).items():
            if name in shared:
                made[name] = made[name] + x
            elif name in OF_TIME:
                made[name][..., rows] = x
            else:
                made[name][n] = x[0]
    return made


PARAMS = Params(
    "SelectiveScanBackwardParams", **COMMON, y="ptr", last_state="ptr", checkpoints="ptr", dlast_state="ptr",
    **dict.fromkeys(("dy", "du", "ddelta", "da", "dd", "dz", "ddelta_bias", "dinitial_state"), "ptr"),
    **dict.fromkeys(("b_parts", "c_parts", "a_parts"), "ptr"),
    **dict.fromkeys(("dy_strides", "du_strides", "ddelta_strides", "dz_strides"), "i64[3]"), da_strides="i64[2]",
    dd_step="i64", dbias_step="i64", scan_interval=INTERVAL,
)  # fmt: skip
FOLD = Params(
    "SelectiveScanFoldParams", parts="ptr", to="ptr", strides="i64[4]",
    **dict.fromkeys(("batch", "groups", "tiles", "states", "length", "pair"), "i64"),
)  # fmt: skip


def slopes_geometry(p: Problem) -> Geometry | str:
    """The launches, of real numbers or of pairs."""
    if (why := apart(p)) is not None:
        return why
    desc, size, pair = p.desc, p.desc.element.acc.itemsize, p.desc.pair
    each, blocks, values = channels(p)
    chunks, tiles = -(-desc.length // INTERVAL), values["tiles"]
    if p.cu_seqlens is not None:
        chunks = desc.length // INTERVAL + 2 * desc.num_states + 2
    used = aligned(desc.batch * desc.dim * chunks * desc.states * size * pair)
    parts: dict[str, Any] = {"b_parts": "@null", "c_parts": "@null", "a_parts": "@null"}
    inputs = desc.batch * desc.groups * desc.states * desc.length
    for name, view in (("b_parts", p.db), ("c_parts", p.dc)):
        if view is not None:
            parts[name] = ("@workspace", used)
            used += aligned(inputs * tiles * size * pair)
    summed = any(v is not None for v in (p.da, p.dd, p.ddelta_bias))
    if summed:
        parts["a_parts"] = ("@workspace", used)
        used += aligned(desc.num_states * desc.dim * (desc.states * pair + 2) * size)
    values |= {
        **common(p), **parts, "y": "@null", "last_state": "@null", "checkpoints": ("@workspace", 0), "chunks": chunks,
        "y_strides": [0] * 3, "last_strides": leading(p.dlast_state, 3),
        **{f"{n}_strides": strides_of(p.views[n], 3) for n in ("dy", "du", "ddelta", "dz")},
        "da_strides": leading(p.da, 2), "dd_step": strides_of(p.dd, 1)[0],
        "dbias_step": strides_of(p.ddelta_bias, 1)[0],
    }  # fmt: skip
    if p.initial_state is None:
        values["initial_strides"] = leading(p.dinitial_state, 3)
    states = values
    slopes = {**values, "initial_strides": leading(p.dinitial_state, 3)}
    views = {name: p.views[name] for name in ("dy", "u", "delta", "z", "b", "c", "du", "ddelta", "dz")}
    axes = {"NS": each, "WIDE": wide(views, desc.element)}
    smem = THREADS * each * (STEPS + 1 + INTERVAL // STEPS) * size * pair
    steps = [
        Step(f"states_{each}", blocks, states, {"WIDE": axes["WIDE"]}, THREADS),
        Step("slopes", blocks, slopes, axes, THREADS, smem),
    ]
    for name, view in (("b_parts", p.db), ("c_parts", p.dc)):
        if view is not None:
            fold = {
                "parts": parts[name], "to": "db" if name == "b_parts" else "dc", "strides": leading(view, 4),
                **{n: values[n] for n in ("batch", "groups", "tiles", "states", "length", "pair")},
            }  # fmt: skip
            steps.append(Step("fold_inputs", grid(-(-inputs * pair // THREADS)), fold, {}, THREADS))
    if summed:
        count = desc.dim * (desc.states * pair + 2)
        steps.append(Step("fold_channels", grid(-(-count // THREADS)), values, {}, THREADS))
    dense = all(v is None or v.dense for v in views.values())
    return Geometry(tuple(steps), used, "contiguous" if dense else "inner_contiguous" if axes["WIDE"] else "strided")


_AXES = {"NS": STATES, "WIDE": (True, False)}


class SelectiveScanBackwardPlan(PackedScan, Plan):
    """Gradients of `SelectiveScanPlan`: with g = ∂L/∂h, walked back from dlast_state, du = Σ_n g dt b + dy d and so on.

    Deterministic: gradients of b and c are summed over the channels of a block and then over blocks, those of a, d and
    delta_bias over time and then over sequences, in an order that shapes fix. The workspace has one state in 32, and a
    part of the gradients of b and c for each block of channels.
    """

    op = "recurrence.selective_scan_backward"
    direction = "backward"
    descriptor = SelectiveScanDescriptor
    args = SelectiveScanBackwardArgs
    reference = staticmethod(reference)
    value_policy = POLICY
    variants = (
        Variant(
            "channels", slopes_geometry, source="recurrence/selective_scan_backward.cu",
            kernels=(
                *walking("states", "selective_scan_states", PARAMS),
                Kernel("slopes", "selective_scan_slopes<{T}, {NS}, {WIDE}>", PARAMS, _AXES, threads=THREADS),
                Kernel("fold_inputs", "selective_scan_fold_inputs<{T}>", FOLD, threads=THREADS),
                Kernel("fold_channels", "selective_scan_fold_channels<{T}>", PARAMS, threads=THREADS),
            ),
            guarantee=Guarantee(Relative(4)), may_spill=True,
        ),
    )  # fmt: skip
    benchmarks = scan_benchmarks("du", "ddelta", "da", "db", "dc", "dd", "dz", "ddelta_bias")

    @staticmethod
    def case(draw: Any) -> SelectiveScanDescriptor:
        made: SelectiveScanDescriptor = scan_case(draw, SelectiveScanDescriptor)
        return made


selective_scan_backward = functional(SelectiveScanBackwardPlan)
