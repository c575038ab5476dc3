"""Every plan as a torch op, drawn from its page: gradients against differences, stand-ins, torch's checks of ops."""

from __future__ import annotations

import dataclasses
import os
import random
import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from bridged import flat, inexact, problems, served, through  # noqa: E402

from baracuda_py.core import ElementKind, registry  # noqa: E402
from baracuda_py.core.plan import Plan  # noqa: E402
from baracuda_py.torch.recording import registered  # noqa: E402
from baracuda_py.torch.vjp import gradient_of  # noqa: E402

F64, C128 = ElementKind.F64, ElementKind.C128
EASY = (ElementKind.F32, ElementKind.BF16, ElementKind.C64, ElementKind.I32, *ElementKind)


def named(plan: type[Plan], kind: Any, element: ElementKind) -> Any:
    return pytest.param(plan, kind, element, id=f"{plan.__name__}-{getattr(kind, 'value', kind)}-{element}")


PLANS = registry.plans().values()
GRADIENTS = [
    named(plan, kind, element)
    for plan in PLANS
    for kind in plan.kinds or (None,)
    for element in (F64, C128)
    if plan.vjp is not None and plan.vjp.serves(kind) and element in served(plan, kind)
]
OPS = [
    named(plan, kind, next(e for e in EASY if e in served(plan, kind)))
    for plan in PLANS
    for kind in plan.kinds or (None,)
    if served(plan, kind)
]


def sample() -> list[Any]:
    """Every op; of a plan's kinds an eighth and two more: the same in each run, other ones in the random profile."""
    chance = random.Random(None if os.environ.get("HYPOTHESIS_PROFILE") == "random" else "kinds")
    by_plan: dict[type[Plan], list[Any]] = {}
    for item in OPS:
        by_plan.setdefault(item.values[0], []).append(item)
    return [one for items in by_plan.values() for one in chance.sample(items, min(len(items), 2 + len(items) // 8))]


@pytest.mark.parametrize(("plan", "kind", "element"), GRADIENTS)
def test_gradients_are_right(plan: type[Plan], kind: Any, element: ElementKind) -> None:
    """gradcheck, undefined cotangents included, of each output that gradients come through; else a typed refusal."""
    done, narrow = 0, []
    for problem in problems(plan, kind, element):
        narrow.append(problem.narrow)
        leaves, made = problem.leaves(), dict(zip(problem.wanted, problem(), strict=True))
        ends = {n for n in through(problem) if inexact(made.get(n))}
        if not leaves or not ends:
            if leaves and gradient_of(problem.op, problem.desc) is None and any(map(inexact, made.values())):
                with pytest.raises(Exception, match=r"requires grad, and .* has no gradient for it; give its"):
                    problem(*leaves)
                return
            continue
        if not problem.tame():
            continue

        def outputs(*given: Any, problem: Any = problem, ends: Any = ends) -> tuple[Any, ...]:
            found = dict(zip(problem.wanted, problem(*problem.tangents(given)), strict=True))
            return tuple(t for n in sorted(ends) for t in flat(found[n]))

        assert torch.autograd.gradcheck(outputs, tuple(leaves), fast_mode=True, atol=1e-4, rtol=1e-3)
        done += 1
        if done == 2:
            return
    results = [s for s in registered(problem.op).outputs if not s.optional]
    if not all(narrow):  # scales of 16 and 32 bits: their page has a test
        assert done or not any(s.elements(problem.desc)[0].is_inexact for s in results), "no problem served"


@pytest.mark.parametrize(("plan", "kind", "element"), OPS)
def test_stand_ins_are_like_the_results(plan: type[Plan], kind: Any, element: ElementKind) -> None:
    """Meta tensors through the functional layer: shapes, dtypes and strides of what the kernels make."""
    for problem in problems(plan, kind, element):
        meta = dataclasses.replace(problem, call=dataclasses.replace(problem.call, arrays={
            n: [t.to("meta") for t in v] if isinstance(v, list) else v if v is None else v.to("meta")
            for n, v in problem.call.arrays.items()
        }))  # fmt: skip
        with torch.no_grad():
            made, stand_ins = flat(problem()), flat(meta())
        assert len(made) == len(stand_ins)
        for ours, theirs in zip(made, stand_ins, strict=True):
            assert theirs.is_meta and (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
            assert ours.stride() == theirs.stride()
        return


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("plan", "kind", "element"), sample())
def test_opcheck(plan: type[Plan], kind: Any, element: ElementKind) -> None:
    """torch's checks of an op: schema, stand-ins, gradient, tracing."""
    for problem in problems(plan, kind, element):
        if not problem.tame():
            continue
        op, call = registered(problem.op), problem.call
        found = gradient_of(op, problem.desc)
        if found is not None and found.backward is not None and not op.schema.mutates:
            for name in found.grads:
                for t in flat(call.arrays.get(name)) if inexact(call.arrays.get(name)) else ():
                    t.requires_grad_()
            wanted = frozenset(s.name for s in op.outputs if not s.optional).union(found.kept_outputs(call))
            call = dataclasses.replace(call, wanted=wanted)
        args, given = op.schema.encode(call)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.library.opcheck(op.op, tuple(args), given)
        return


def test_every_link_of_a_page_is_resolved() -> None:
    """What a backward op reads is a cotangent, an output or an input of its forward, or optional."""
    for plan in PLANS:
        for kind in plan.kinds or (None,):
            element = next((e for e in EASY if e in served(plan, kind)), None)
            if plan.vjp is None or element is None or not plan.vjp.serves(kind):
                continue
            problem = next(problems(plan, kind, element), None)
            found = None if problem is None else gradient_of(problem.op, problem.desc)
            if found is None or found.backward is None:
                continue
            lost = [r.name for r in found.reads if r.required and not (r.cotangent or r.output or r.input)]
            assert not lost, (plan.__name__, kind, lost)
            assert set(found.grads) <= {s.name for s in found.forward.inputs}
            assert set(found.grads.values()) <= {s.name for s in found.backward.outputs}
