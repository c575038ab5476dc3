"""An op in torch, as its page has it: an oracle that shares nothing with the reference, and a peer of benchmarks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..core import registry
from ..core.args import Operand, arrays_of, scalars_of
from ..core.element import ElementKind, cast
from ..core.plan import Plan
from .draw import Case, Draw, default_of, fill
from .reference import evaluate, values

Made = dict[str, Any]


def forward_of(plan: type[Plan]) -> type[Plan] | None:
    """The op that a backward op is the gradient of; of several that share it the one it is named after."""
    found = forwards_of(plan)
    named = plan.__name__.replace("Backward", "")
    return next((p for p in found if p.__name__ == named), found[0] if found else None)


def forwards_of(plan: type[Plan]) -> list[type[Plan]]:
    """The ops whose pages say that a backward op is their gradient, not those that take it over."""
    said = ((p, vars(p).get("vjp")) for p in registry.plans().values())
    return [p for p, vjp in said if vjp and vjp.plan == plan.__name__]


def has_torch(plan: type[Plan]) -> bool:
    """Whether `in_torch` can make the op."""
    forward = forward_of(plan)
    return plan.torch is not None or (forward is not None and forward.torch is not None)


def in_torch(
    plan: type[Plan], desc: Any, operands: Mapping[str, Any], wanted: frozenset[str],
    build: Callable[[Any], Any] = lambda function: function,
) -> Callable[[], Made | None]:  # fmt: skip
    """A call of the op on tensors that returns what it makes by name; None where the page's `torch` does not serve it.

    In-outs may be updated in place, and are returned. `build` may be torch.compile. The graph of a gradient is built
    once, here; a call is its backward pass alone.
    """
    import torch

    given = {spec.name: operands.get(spec.name) for spec in arrays_of(plan.args) if spec.reads}
    given |= {spec.name: operands.get(spec.name, default_of(plan, spec)) for spec in scalars_of(plan.args)}
    if plan.torch is None:
        forward = forward_of(plan)
        assert forward is not None and forward.torch is not None, f"{plan.__name__} says nothing of torch"
        return _gradient(plan, forward, desc, given, wanted, build)
    function = build(_function(plan, desc, wanted))
    updated = {s.name: given[s.name] for s in arrays_of(plan.args) if s.role == "inout" and given[s.name] is not None}

    def call() -> Made | None:
        with torch.no_grad():
            made = function(given)
        return None if made is NotImplemented else updated | _named(plan, wanted, made)

    return call


def _function(plan: type[Plan], desc: Any, wanted: frozenset[str]) -> Callable[[Mapping[str, Any]], Any]:
    """The page's `torch` as a function of the operands alone."""
    import torch

    extra = {"wanted": wanted} if any(s.role == "out" and s.optional for s in arrays_of(plan.args)) else {}
    assert plan.torch is not None
    declared = plan.torch

    def function(given: Mapping[str, Any]) -> Any:
        return declared(torch, desc, **given, **extra)

    return function


def _named(plan: type[Plan], wanted: frozenset[str], made: Any) -> Made:
    if isinstance(made, Mapping):
        return dict(made)
    names = [s.name for s in arrays_of(plan.args) if s.writes and (s.role == "inout" or s.name in wanted)]
    return dict(zip(names, made if isinstance(made, tuple) else (made,), strict=False))


def _gradient(
    plan: type[Plan], forward: type[Plan], desc: Any, given: Mapping[str, Any], wanted: frozenset[str], build: Any
) -> Callable[[], Made | None]:
    """The backward pass of the forward's `torch`, of what is wanted."""
    import torch

    link = forward.vjp
    assert link is not None
    cotangents = {o: given[f"d{o}"] for o in link.cotangents(forward, plan) if given[f"d{o}"] is not None}
    lead = next(iter(cotangents.values()))
    leaves: dict[str, str] = {}  # gradient → the input it is that of
    for source, grad in link.grads.items():
        if grad in wanted:
            leaves.setdefault(grad, source)
    forward_desc = descriptor_of(forward, desc)
    inputs: dict[str, Any] = {}
    for spec in arrays_of(forward.args):
        if not spec.reads:
            continue
        inputs[spec.name] = given.get(spec.name)
        leaf = spec.name in leaves.values()
        if inputs[spec.name] is None and (leaf or not spec.optional):  # what it is does not change the gradient
            inputs[spec.name] = lead.new_zeros(spec.shape(forward_desc))
        if leaf:
            inputs[spec.name] = inputs[spec.name].detach().requires_grad_()
    inputs |= {s.name: given.get(s.name, default_of(forward, s)) for s in scalars_of(forward.args)}
    with torch.enable_grad():
        made = build(_function(forward, forward_desc, frozenset(cotangents)))(inputs)
    if made is NotImplemented:
        return lambda: None
    outputs = _named(forward, frozenset(cotangents), made)
    ends = {name: outputs[name] for name in cotangents if name in outputs and outputs[name].requires_grad}
    ways, sources = [cotangents[name] for name in ends], [inputs[name] for name in leaves.values()]

    def call() -> Made | None:
        grads = torch.autograd.grad(list(ends.values()), sources, ways, retain_graph=True, allow_unused=True)
        return {
            name: torch.zeros_like(source) if grad is None else grad
            for name, source, grad in zip(leaves, sources, grads, strict=True)
        }

    return call


def descriptor_of(plan: type[Plan], desc: Any) -> Any:
    """The descriptor of `plan` with the fields that another op's descriptor shares."""
    names = [f.name for f in dataclasses.fields(plan.descriptor) if hasattr(desc, f.name)]
    return plan.descriptor(**{name: getattr(desc, name) for name in names})


def saved_by_forward(plan: type[Plan], forward: type[Plan]) -> dict[str, str]:
    """The inputs of a backward op that are outputs of its forward: backward name → forward name."""
    renamed = {forward.vjp.saves.get(s.name, s.name): s.name for s in _outputs(forward)} if forward.vjp else {}
    own = {spec.name for spec in arrays_of(forward.args) if spec.reads}
    return {
        spec.name: renamed[spec.name]
        for spec in arrays_of(plan.args)
        if spec.reads and spec.name in renamed and spec.name not in own
    }


def _outputs(plan: type[Plan]) -> list[Operand]:
    return [spec for spec in arrays_of(plan.args) if spec.role == "out"]


def torch_case(plan: type[Plan], draw: Draw) -> Case:
    """A drawn problem with floats of ordinary size, optional operands present or absent."""
    desc = plan.case(draw)
    present = {s.name: draw.integer(0, 3) > 0 for s in arrays_of(plan.args) if s.optional}
    return fill(plan, desc, draw.seed(), present, smooth=True, kind=draw.kind)


def check_torch(plan: type[Plan], draw: Draw) -> bool:
    """The reference against torch on the CPU, floats in float64; False where torch does not serve the problem.

    Nor does it serve values that `check_values` finds wrong: what becomes of them is the page's own policy.
    """
    import torch

    case = torch_case(plan, draw)
    if plan.check_values(case.desc, case.arrays) is not None:
        return False

    def tensor(value: Any) -> Any:
        if isinstance(value, list):
            return [tensor(one) for one in value]
        if not isinstance(value, np.ndarray):
            return value
        return torch.from_numpy(np.array(value, np.int8 if value.dtype == ElementKind.S4.dtype else value.dtype))

    operands = {name: tensor(value) for name, value in values(case).items()}
    got, want = in_torch(plan, case.desc, operands, case.wanted)(), evaluate(case)
    if got is None:
        return False
    required = {s.name for s in arrays_of(plan.args) if s.writes and not s.optional}
    if missing := (required | (set() if required else case.wanted)) - set(got):
        raise AssertionError(f"{case}\ntorch made no {', '.join(sorted(missing))}")
    for name in set(got) & set(want):
        for ours, theirs in zip(_each(want[name]), _each(got[name]), strict=True):
            try:
                _close(np.asarray(ours), theirs)
            except AssertionError as error:
                raise AssertionError(f"{case}\n{name}: {error}") from None
    return any(np.size(one) for name in got if name in want for one in _each(want[name]))


def _each(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _close(reference: np.ndarray, tensor: Any) -> None:
    import torch

    if tensor.is_complex():
        tensor, reference = torch.view_as_real(tensor.resolve_conj()), np.stack([reference.real, reference.imag], -1)
    floats = tensor.is_floating_point()
    found = tensor.detach().to(torch.float64).numpy() if floats else tensor.numpy()
    if found.shape != reference.shape:
        raise AssertionError(f"torch's shape is {found.shape}, the reference's {reference.shape}")
    if not floats:
        np.testing.assert_array_equal(cast(reference, ElementKind.of(found.dtype)), found)
        return
    wanted = reference.astype(np.float64)
    size = max(1.0, float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0)))
    np.testing.assert_allclose(wanted, found, rtol=1e-9, atol=1e-11 * size)
