"""The plans that are named after the kinds of others: each is its plan, with fields fixed, and gives the same bits."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scripts import ROOT, tool

import baracuda_py as bc
from baracuda_py.core import Plan, registry
from baracuda_py.core.args import arrays_of
from baracuda_py.core.element import ElementKind
from baracuda_py.core.errors import BaracudaError, InvalidProblemError
from baracuda_py.core.named import Name, OneOf, Rank, Told, descriptor_name
from baracuda_py.named_plans import DESCRIPTORS, FAMILIES, NAMES
from baracuda_py.testing.draw import SeededDraw, combinations, fill
from baracuda_py.testing.operands import operands

SHAPED: dict[str, dict[str, Any]] = {
    "PixelShufflePlan": {"shape": (2, 8, 3, 5), "upscale_factor": 2},
    "PixelUnshufflePlan": {"shape": (3, 4, 6), "downscale_factor": 2},
}
"""Problems of those whose shapes a draw of their plan hardly has."""


def more(name: str, row: Name, shape: tuple[int, ...], draw: SeededDraw) -> dict[str, Any]:
    """Values for the fields that a name has of its own."""
    if name in SHAPED:
        return SHAPED[name]
    axis = draw.integer(0, len(shape) - 1) - len(shape) * draw.integer(0, 1) if shape else 0
    order = tuple(int(a) for a in np.random.default_rng(draw.integer(0, 99)).permutation(len(shape)))
    made = {
        "axes": order if "Permute" in name else order[: len(order) // 2], "axis": axis,
        "reps": tuple(draw.integer(0, 3) for _ in range(len(shape) + draw.integer(0, 1))),
        "shifts": tuple(draw.integer(-9, 9) for _ in shape), "index_length": draw.integer(0, 4),
        "group_size": draw.integer(1, 4), "k": draw.integer(1, max(1, shape[-1] if shape else 1)),
    }  # fmt: skip
    return {field: made[field] for field in row.more} | ({"axis": -1} if name == "KthvaluePlan" else {})


def problems(name: str) -> Iterator[tuple[Any, dict[str, Any]]]:
    """(descriptor, the fields that it was made with) of problems of a plan's own `case` that the name has."""
    row, plan = NAMES[name], getattr(bc, name)
    base = registry.plans()[row.plan]
    pairs = [pair for pair in combinations(base) if plan.kinds is None or pair[0] in plan.kinds]
    pairs.sort(key=lambda pair: pair[1] is not ElementKind.F32)
    for seed in range(300):
        kind, element = pairs[seed % len(pairs) if seed > 20 else 0]
        draw = SeededDraw(seed, element, kind)
        wide = base.case(draw)
        free = {f.name: getattr(wide, f.name) for f in dataclasses.fields(wide)}
        for field, value in row.fixed.items():
            if not isinstance(value, (OneOf, Rank)) or (isinstance(value, OneOf) and value.first):
                del free[field]
        try:
            given = free | more(name, row, free.get("shape", ()), draw)
            yield plan.descriptor(**given), given
        except BaracudaError:
            continue  # a problem of the plan that the name has not


def widened(desc: Any, base: type[Plan]) -> Any:
    return base.descriptor(**{f.name: getattr(desc, f.name) for f in dataclasses.fields(base.descriptor)})


OTHER = {"sorted": "ids", "ids": "sorted", "offsets": "ids", "circular": "reflect", "batch": "group", "group": "batch",
         "instance": "batch", None: 1}  # fmt: skip
"""A value of a field of a plan → another."""


def wrong_values(row: Name, base: type[Plan], desc: Any) -> Iterator[tuple[str, Any]]:
    """For each field that is fixed a value that the plan takes and the name does not."""
    for field, said in row.fixed.items():
        held = getattr(desc, field)
        if field == "kind":
            allowed = said.values if isinstance(said, OneOf) else (said,)
            yield field, next(kind.value for kind in base.kinds if kind.value not in allowed)
        elif isinstance(said, (Rank, Told)):
            yield field, held + 1 if isinstance(held, int) else (*held, held[-1] if held else 1)
        elif isinstance(held, bool):
            yield field, not held
        elif field == "spatial_rank":
            yield field, held % 3 + 1
        else:
            yield field, held + 1 if isinstance(held, int) else OTHER[held]


def writes(desc: Any, plan: type[Plan]) -> bool:
    """Whether there is something to write."""
    return all(np.prod(spec.shape(desc)) for spec in arrays_of(plan.args) if spec.writes and not spec.optional)


def troubles(name: str) -> Iterator[str]:
    """All that is wrong with a name."""
    row, plan = NAMES[name], getattr(bc, name)
    base = registry.plans()[row.plan]
    if not issubclass(plan, base) or plan.args is not base.args or plan.op != base.op or name in registry.plans():
        yield "is not its plan by another name"
    if not (plan.__doc__ or "").startswith(f"`{row.plan}` by another name") or row.said not in plan.__doc__:
        yield "does not say what it fixes"
    desc, given = next(one for one in problems(name) if writes(one[0], base))
    chosen, whole = plan.select(desc, device="cpu"), base.select(widened(desc, base), device="cpu")
    if not isinstance(chosen, base) or chosen.sku != whole.sku or type(chosen) is not plan:
        yield f"is selected as {chosen} of {chosen.sku}"
    if pickle.loads(pickle.dumps(chosen)) is not chosen or pickle.loads(pickle.dumps(desc)) != desc:
        yield "is another after a pickle"
    if not row.more and plan.select(whole.desc, device="cpu") is not chosen:
        yield f"is another for {base.descriptor.__name__}"
    case = fill(base, whole.desc, np.random.default_rng(5), kind=getattr(desc, "kind", None))
    ours, theirs = (operands(case, SeededDraw(7, ElementKind.F32)) for _ in range(2))
    if not (verdict := chosen.can_implement(ours.args())):
        yield f"refuses: {verdict.reason}"
        return
    chosen.run(ours.args())
    whole.run(theirs.args())
    for (spec, _, one), (_, _, other) in zip(ours.items(), theirs.items(), strict=True):
        if one.view.tobytes() != other.view.tobytes():
            yield f"{spec.name} has other bits than {row.plan}'s"
    for field, value in wrong_values(row, base, desc):
        try:
            plan.descriptor(**given | {field: value})
            yield f"takes {field}={value!r}"
        except InvalidProblemError as error:
            if not str(error).startswith(f"{descriptor_name(name)} has {field} "):
                yield f"refuses {field}={value!r} by: {error}"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_name_is_its_plan(family: str) -> None:
    wrong = [f"{name} {trouble}" for name in FAMILIES[family] for trouble in troubles(name)]
    assert not wrong, "\n".join(wrong)


def test_the_plan_s_own_descriptor_is_taken_where_it_fits() -> None:
    facts = {"shape": (3,), "element": "float32"}
    chosen = bc.HuberLossPlan.select(bc.PointwiseLossDescriptor(kind="huber_loss", delta=2.0, **facts), device="cpu")
    assert chosen is bc.HuberLossPlan.select(bc.HuberLossDescriptor(delta=2.0, **facts), device="cpu")
    assert isinstance(chosen.desc, bc.PointwiseLossDescriptor) and chosen.kind is bc.LossKind.HUBER
    with pytest.raises(InvalidProblemError, match=r"^HuberLossDescriptor has kind huber_loss, got kind .*MSE"):
        bc.HuberLossPlan.select(bc.PointwiseLossDescriptor(kind="mse_loss", **facts), device="cpu")
    for plan, desc in (
        (bc.HuberLossPlan, bc.MseLossDescriptor(**facts)),
        (bc.PointwiseLossPlan, bc.HuberLossDescriptor(**facts)),
        (bc.PermutePlan, bc.ContiguizeDescriptor(**facts)),
    ):
        with pytest.raises(InvalidProblemError, match=rf"^{plan.__name__} takes {plan.descriptor.__name__}, got "):
            plan.select(desc, device="cpu")


def test_names_are_exported_and_found() -> None:
    stub = (ROOT / "baracuda_py/__init__.pyi").read_text()
    real = registry.plans()
    known = {plan.descriptor.__name__ for plan in real.values()}
    for name in (*NAMES, *DESCRIPTORS):
        value = getattr(bc, name)
        assert name in dir(bc) and f"\nclass {name}({value.__bases__[-1].__name__}):\n" in stub
        assert value.__module__ == "baracuda_py.named_plans" and value is getattr(bc, name)
        assert name not in known and name not in real
    assert registry.plan("HuberLossPlan") is bc.HuberLossPlan and registry.family("FlipPlan") == [bc.FlipPlan]
    assert registry.plan("loss.pointwise_loss") is bc.PointwiseLossPlan
    with pytest.raises(AttributeError, match="no attribute 'HuberPlan'"):
        bc.named_plans.HuberPlan  # noqa: B018


def test_a_name_loads_its_page_alone_and_in_another_process() -> None:
    chosen = bc.KthvaluePlan.select(bc.KthvalueDescriptor(shape=(4,), k=2, element="float32"), device="cpu")
    code = (
        "import pickle, sys\n"
        "chosen = pickle.loads(bytes.fromhex(sys.argv[1]))\n"
        "import baracuda_py as bc\n"
        "assert type(chosen) is bc.KthvaluePlan and chosen.desc == bc.KthvalueDescriptor(shape=4, k=2, element='f4')\n"
        "pages = {name for name in sys.modules if name.startswith('baracuda_py.ops.')}\n"
        "assert 'baracuda_py.ops.sort.sort' in pages and 'baracuda_py.ops.loss.pointwise_loss' not in pages, pages\n"
        "print('alone')\n"
    )
    given = [sys.executable, "-c", code, pickle.dumps(chosen).hex()]
    done = subprocess.run(given, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout == "alone\n", done.stderr


def test_the_table_of_the_docs_has_every_plan_of_baracuda_once() -> None:
    names = tool("reference_names")
    every = [*names.SAME, *NAMES, *names.ELSEWHERE, *names.ABSENT]
    assert len(every) == len(set(every)) == 304
    exported = {*registry.plans(), *(name for name in dir(bc) if name.endswith("Plan"))}
    assert set(names.SAME) <= exported and not exported & {*names.ELSEWHERE, *names.ABSENT}
    page = (ROOT / "docs/reference-names.md").read_text()
    assert all(page.count(f"`{name}`") >= 1 for name in every)
    assert all(hasattr(bc, word) for text in names.ELSEWHERE.values() for word in names.WORDS.findall(text))
