"""Experts of few tokens: the sm_90a row emulated over layouts, units and choices, and the bits it shares with `moe`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core import PlanPreference
from baracuda_py.core.args import arrays_of
from baracuda_py.core.element import ElementKind, cast, decode
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.testing.draw import Case, fill, shapes_of
from baracuda_py.testing.emulated import emulate
from baracuda_py.testing.emulator import emulated_device
from baracuda_py.testing.layouts import Placement, lay_out
from baracuda_py.testing.operands import Operands
from baracuda_py.testing.places import call
from baracuda_py.testing.recording import pointer_view

FEW = 3  # multiprocessors
TURNED = Placement("permuted", order=(0, 2, 1))
BIASES = ("gate_bias", "up_bias", "down_bias")


def descriptor(**more: Any) -> bc.MoeDecodeDescriptor:
    given = {"tokens": 5, "k": 2, "experts": 4, "d": 136, "f": 40, "d_out": 72, "element": "bfloat16"}
    return bc.MoeDecodeDescriptor(**(given | more))


def problem(desc: Any, indices: Any = None, present: tuple[str, ...] = ("up", *BIASES), **placed: Any) -> Operands:
    """Operands of which those named in `placed` are not dense, or not in the usual order."""
    plan = bc.MoeDecodePlan
    optional = {name: name in present for name in ("up", *BIASES)}
    case: Case = fill(plan, desc, np.random.default_rng(0), optional)
    if indices is not None:
        case.arrays["indices"] = np.array(indices, case.arrays["indices"].dtype)
    laid: dict[str, Any] = dict.fromkeys(spec.name for spec in arrays_of(plan.args))
    for spec in arrays_of(plan.args):
        name = spec.name
        if name in case.wanted:
            kept = np.empty(shapes_of(spec, desc)[0], desc.element.carrier)
            laid[name] = lay_out(kept, placed.get(name, Placement()), 0xFF)
        elif case.arrays.get(name) is not None:
            laid[name] = lay_out(case.arrays[name], placed.get(name, Placement()))
    return Operands(case, laid)


def plan_for(desc: Any, row: str = "stream") -> Any:
    chosen = bc.MoeDecodePlan(desc, PlanPreference(), emulated_device(9.0, FEW))
    chosen.rows = tuple(one for one in chosen.rows if one.name == row)
    return chosen


def run(desc: Any, ready: Operands, row: str = "stream") -> Any:
    chosen = plan_for(desc, row)
    _, geometry, _ = chosen.plan_layout(ready.args(pointer_view))
    emulate(chosen, ready)
    return geometry.steps


CHOICES = {
    "any": [[0, 3], [3, 1], [1, 0], [2, 3], [0, 1]],
    "one expert": [[2, 2], [2, 2], [2, 2], [2, 2], [2, 2]],
    "some none": [[-1, 3], [4, 1], [1, -7], [-1, 4], [0, 1]],
    "all none": [[-1, 4]] * 5,
}


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("choices", CHOICES)
def test_choices(choices: str) -> None:
    desc = descriptor()
    steps = run(desc, problem(desc, CHOICES[choices]))
    assert [step.kernel for step in steps] == ["hidden", "out"] and steps[0].axes["GATED"]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("gate", "down"), [(True, False), (False, True), (True, True)])
def test_matrices_dense_along_their_outputs(gate: bool, down: bool) -> None:
    desc = descriptor(element="float16", d_out=136)
    places = {name: TURNED for name, yes in (("gate", gate), ("up", gate), ("down", down)) if yes}
    steps = run(desc, problem(desc, **places))
    assert [step.axes["ACROSS"] for step in steps] == [gate, down]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("activation", ["none", "relu", "gelu", "gelu_tanh", "silu", "swiglu_oai"])
@pytest.mark.parametrize("gated", [False, True])
def test_units(activation: str, gated: bool) -> None:
    if activation == "swiglu_oai" and not gated:
        return
    desc = descriptor(activation=activation, f=72, d=64, d_out=24, tokens=3)
    run(desc, problem(desc, present=("up", "up_bias", "gate_bias") if gated else ("gate_bias", "down_bias")))


@pytest.mark.usefixtures("emulation")
def test_more_choices_of_an_expert_than_a_tile_has_and_a_ring_that_turns() -> None:
    desc = descriptor(tokens=40, k=1, experts=2, d=1352, f=8, d_out=8)
    run(desc, problem(desc, [[n == 3] for n in range(40)], present=("up",)))


@pytest.mark.usefixtures("emulation")
def test_a_tokens_bits_do_not_depend_on_its_company() -> None:
    desc = descriptor(tokens=6, k=3)
    whole = problem(desc, [[0, 3, 1], [3, 1, 2], [1, 0, 3], [2, 3, 0], [0, 1, 2], [3, 2, 1]])
    run(desc, whole)
    for token in (0, 5):
        one = descriptor(tokens=1, k=3)
        ready = problem(one)
        for name, array in whole.case.arrays.items():
            if array is None or name in ready.case.wanted:
                continue
            kept = array[token : token + 1] if name in ("x", "indices", "weights") else array
            ready.case.arrays[name], ready.laid[name] = np.array(kept), lay_out(np.array(kept), Placement())
        run(one, ready)
        assert ready.laid["y"].view.tobytes() == whole.laid["y"].view[token : token + 1].tobytes()


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("biases", [False, True])
def test_the_bits_are_those_of_products_of_groups(biases: bool) -> None:
    """`moe` of many tokens takes these plans, whose rows on sm_90a promise the same bits in a group of any size."""
    desc = descriptor(tokens=4, k=2, d=328)
    ready = problem(desc, [[0, 3], [3, 1], [1, 0], [2, 3]], present=("up", *BIASES) if biases else ("up",))
    run(desc, ready)
    given, element = ready.case.arrays, "bfloat16"
    slots = np.argsort(given["indices"].ravel(), kind="stable")
    ends = np.cumsum(np.bincount(given["indices"].ravel(), minlength=4)).astype(np.int64)
    facts = {"total": 8, "groups": 4, "element": element}
    turned = {name: np.swapaxes(given[name], 1, 2) for name in ("gate", "up", "down")}
    h = call(
        bc.GroupedGemmEpiloguePlan, bc.GroupedGemmEpilogueDescriptor(**facts, n=40, k=328, activation="silu"), ("y",),
        "emulator", a=given["x"][slots // 2], b=turned["gate"], up=turned["up"], offsets=ends,
        bias=given["gate_bias"], up_bias=given["up_bias"],
    )["y"]  # fmt: skip
    made = call(
        bc.GroupedGemmPlan, bc.GroupedGemmDescriptor(**facts, n=72, k=40), ("y",), "emulator", a=h, b=turned["down"],
        offsets=ends, bias=given["down_bias"],
    )["y"]  # fmt: skip
    z = np.empty_like(made)
    z[slots] = made
    z = decode(z, ElementKind.BF16).astype(np.float32).reshape(4, 2, 72)
    weights = np.asarray(decode(given["weights"], element_of_weights(given["weights"]))).astype(np.float32)
    y = np.zeros((4, 72), np.float32)
    for j in range(2):
        y += z[:, j] * weights[:, j, None]
    assert cast(y, ElementKind.BF16).tobytes() == np.array(ready.laid["y"].view).tobytes()


def element_of_weights(array: np.ndarray) -> ElementKind:
    return ElementKind.F32 if array.dtype == np.float32 else ElementKind.BF16


def test_what_streams_and_what_does_not() -> None:
    for more, places in (({"tokens": 300}, {}), ({"d": 12}, {}), ({"k": 33, "tokens": 1}, {}), ({}, {"up": TURNED})):
        desc = descriptor(**more)
        with pytest.raises(bc.UnsupportedError):
            plan_for(desc).plan_layout(problem(desc, **places).args(pointer_view))


@pytest.mark.parametrize(("experts", "k", "d", "f"), [(128, 8, 2048, 768), (32, 4, 2880, 2880)])
@pytest.mark.parametrize("tokens", [1, 16])
def test_every_multiprocessor_streams(tokens: int, experts: int, k: int, d: int, f: int) -> None:
    """Of each launch the last block has at most a tenth more than its part, or a tile."""
    desc = descriptor(tokens=tokens, k=k, experts=experts, d=d, f=f, d_out=d)
    chosen = bc.MoeDecodePlan(desc, PlanPreference(), emulated_device(9.0, 132))
    views = {"x": (tokens, d), "indices": (tokens, k), "weights": (tokens, k), "gate": (experts, f, d),
             "up": (experts, f, d), "down": (experts, d, f), "y": (tokens, d)}  # fmt: skip
    kinds = {"indices": "int64", "weights": "float32"}
    given = {name: bc.TensorRef(n << 36, shape, element=kinds.get(name, "bfloat16"))
             for n, (name, shape) in enumerate(views.items(), 1)}  # fmt: skip
    _, geometry, _ = chosen.plan_layout(bc.MoeDecodeArgs(**given))
    for step, n in zip(geometry.steps, (f, d), strict=True):
        assert step.smem + 5400 <= 232_448  # the slots stand beside the ring
        tiles = step.params["column_tiles"] * min(tokens * k, experts)
        waves = -(-tiles // step.grid[0])
        assert waves * step.params["share"] <= 1.1 * n * min(tokens * k, experts) / 132 + 8


def test_problems_that_are_none() -> None:
    x, indices, weights = np.ones((2, 4)), np.zeros((2, 1), int), np.ones((2, 1))
    gate, down = np.ones((3, 5, 4)), np.ones((3, 4, 5))
    with pytest.raises(InvalidProblemError, match="swiglu_oai needs up"):
        bc.moe_decode(x, indices, weights, gate, down, activation="swiglu_oai")
    with pytest.raises(InvalidProblemError, match="up_bias is given without up"):
        bc.moe_decode(x, indices, weights, gate, down, up_bias=np.ones((3, 5)))
    with pytest.raises(InvalidProblemError, match="down"):
        bc.moe_decode(x, indices, weights, gate, down[..., :4])
