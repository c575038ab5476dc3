"""Gradients of problems: custom_vjp made from the page's `Vjp`, or a refusal that names the op.

Forward, the outputs that the backward op reads are made and kept as residuals; backward, the backward op is called for
the gradients of the operands that are differentiated alone. A cotangent of an output that the backward op takes none
of is refused, unless it is known to be zero. JAX pairs complex cotangents without a conjugate, PyTorch and our pages
with one: they are conjugated on the way in and out.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp
from jax.custom_derivatives import SymbolicZero

from ..core import registry
from ..core.args import Operand, arrays_of, scalars_of
from ..core.element import ElementKind
from ..core.errors import BaracudaError, UnsupportedError
from ..core.memo import memo
from ..core.plan import NAMED, PLANS, Plan
from ..core.spec import Vjp
from .primitive import Function, laid_out, manual_axes, primitive
from .problem import Buffer, Problem


@memo()
def function(problem: Problem) -> Function:
    """The outputs of a problem for its inputs, as a differentiable function of JAX arrays."""
    run = primitive(problem)
    if not any(one.element.is_inexact for _, one in problem.outputs):
        return lambda *arrays: run(*map(jax.lax.stop_gradient, arrays))
    names = problem.input_keys

    def forward(*primals: Any) -> tuple[tuple[Any, ...], Any]:
        values = [primal.value for primal in primals]
        inexact = [jnp.issubdtype(value.dtype, jnp.inexact) for value in values]
        wanted = [primal.perturbed and real for primal, real in zip(primals, inexact, strict=True)]
        link = link_of(problem)
        if isinstance(link, str):
            if any(wanted):
                raise UnsupportedError(link)
            return run(*values), None
        link.expect(itertools.compress(names, wanted))
        outputs = function(link.saving)(*values)
        kept = dict(zip([name for name, _ in link.saving.outputs], outputs, strict=True))
        return tuple(kept[name] for name, _ in problem.outputs), (values, kept, _flags(wanted))

    def backward(residuals: Any, cotangents: Sequence[Any]) -> tuple[Any, ...]:
        if residuals is None:
            return (None,) * len(names)
        values, kept, flags = residuals
        wanted = [bool(flag.size) for flag in flags]
        link = link_of(problem)
        assert isinstance(link, Link)
        asked = list(itertools.compress(names, wanted))
        found = link.gradients(asked, dict(zip(names, values, strict=True)), kept, cotangents)
        return tuple(found.get(name) if flag else None for name, flag in zip(names, wanted, strict=True))

    call = jax.custom_vjp(lambda *arrays: run(*arrays))
    call.defvjp(forward, backward, symbolic_zeros=True)
    return jax.jit(call, inline=True)  # type: ignore[no-any-return]  # `shard_map`, run at once, takes no such call


def _flags(wanted: Sequence[bool]) -> list[Any]:
    """Which operands are differentiated, for the backward rule: as sizes of arrays.

    JAX keeps one structure of the residuals for all calls of a traced function, so nothing in it may depend on them.
    """
    return [jnp.zeros(int(flag), np.bool_) for flag in wanted]


@memo()
def link_of(problem: Problem) -> Link | str:
    """What a problem's gradients are made from, or why it has none."""
    vjp, kind = problem.plan.vjp, getattr(problem.desc, "kind", None) if problem.plan.kinds else None
    lists = any(spec.many and spec.writes for spec, _ in problem.operands)
    if vjp is None or not vjp.serves(kind) or problem.aliases or lists:
        return (
            f"{problem.name} has no gradient; where its result is a constant, give its operands through "
            "jax.lax.stop_gradient"
        )
    plan = _plan(vjp.plan)
    fields = [f.name for f in dataclasses.fields(plan.descriptor) if hasattr(problem.desc, f.name)]
    try:
        desc = plan.descriptor(**{name: getattr(problem.desc, name) for name in fields})
    except BaracudaError as error:
        if kind is not None and plan.kinds and kind.value not in {one.value for one in plan.kinds}:
            return Link(problem, vjp, None, None)
        return f"{problem.name} has no gradient here: {error}"
    return Link(problem, vjp, plan, desc)


class Link:
    """A problem and its backward op, `plan` with the descriptor `desc`.

    saving: the problem with those outputs, too, that the backward op reads. A kind that the backward op does not have
    has the gradient 0 wherever there is one: `plan` is None then.
    """

    def __init__(self, problem: Problem, vjp: Vjp, plan: type[Plan] | None, desc: Any) -> None:
        self.problem, self.vjp, self.plan, self.desc = problem, vjp, plan, desc
        self.saving = problem
        if plan is None:
            return
        self.cotangents = {f"d{name}": name for name in vjp.cotangents(problem.plan, plan)}
        self.renamed = {vjp.saves.get(spec.name, spec.name): spec.name for spec in _outputs(problem.plan)}
        self.saving = self._saving()

    def expect(self, wanted: Iterable[str]) -> None:
        """Raise where an operand has no gradient."""
        known = self.vjp.grads if self.plan is None else self.vjp.served(self.plan, self.desc)
        if unknown := [name for name in wanted if name.partition("[")[0] not in known]:
            raise UnsupportedError(
                f"{self.problem.name} has no gradient for {' and '.join(unknown)}; where it is a constant, give it "
                "through jax.lax.stop_gradient"
            )

    def _reads(self) -> list[Operand]:
        """The inputs of the backward op for this descriptor."""
        assert self.plan is not None
        given = [name for name, _ in self.problem.inputs]
        specs = [spec for spec in arrays_of(self.plan.args) if spec.reads and spec.serves(self.desc)]
        return [spec for spec in specs if not (spec.spared and spec.spared(self.desc, given))]

    def _source(self, spec: Operand) -> tuple[str, str] | None:
        """Where an input of the backward op comes from: ("cotangent" | "output" | "input", name there)."""
        own = {name for name, _ in self.problem.inputs}
        saved = self.renamed.get(spec.name)
        if spec.name in self.cotangents:
            return "cotangent", self.cotangents[spec.name]
        declared = {one.name for one in arrays_of(self.problem.plan.args) if one.reads}
        renamed = spec.name in self.vjp.saves.values()
        if saved and (renamed or spec.name not in declared) and self._possible(saved):
            return "output", saved
        return ("input", spec.name) if spec.name in own else None

    def _possible(self, output: str) -> bool:
        """Whether the forward op makes the output for its operands."""
        spec = next(one for one in _outputs(self.problem.plan) if one.name == output)
        present = {name for name, _ in self.problem.inputs}
        return spec.serves(self.problem.desc) and (spec.needs is None or spec.needs in present)

    def _saving(self) -> Problem:
        sources = [self._source(spec) for spec in self._reads()]
        needed = {source[1] for source in sources if source and source[0] == "output"}
        held = dict(self.problem.arrays)
        for spec in _outputs(self.problem.plan):
            if spec.name in needed and spec.name not in held:
                held[spec.name] = _buffers(spec, self.problem.desc, held)
        order = [spec.name for spec in arrays_of(self.problem.plan.args) if spec.name in held]
        return dataclasses.replace(self.problem, arrays=tuple((name, held[name]) for name in order), workspace=0)

    def gradients(
        self, wanted: Sequence[str], inputs: Mapping[str, Any], outputs: Mapping[str, Any], cotangents: Sequence[Any]
    ) -> dict[str, Any]:
        """The gradient of each operand that is wanted, where it is not known to be 0."""
        given = {}
        for (name, one), value in zip(self.problem.outputs, cotangents, strict=True):
            if isinstance(value, SymbolicZero) or not one.element.is_inexact:
                continue
            if self.plan is not None and f"d{name}" not in self.cotangents:
                raise UnsupportedError(
                    f"{self.problem.name} has no gradient through its output {name}; apply jax.lax.stop_gradient to it"
                )
            given[name] = conjugate(value)
        if self.plan is None or not given:
            return {}
        results = {name: self._result(name) for name in wanted}
        names = {result.partition("[")[0] for result in results.values()}
        asked = [spec for spec in _outputs(self.plan) if spec.name in names or not spec.optional]
        arrays, buffers = self._operands(inputs, outputs, given, {spec.needs for spec in asked})
        for spec in asked:
            if spec.needs is None or spec.needs in buffers:  # else 0, as is the cotangent that it goes with
                buffers[spec.name] = _buffers(spec, self.desc, buffers)
        problem = self._backward(buffers)
        made = function(problem)(*arrays, *(inputs[name] for name, _ in problem.traced))
        found = dict(zip(problem.output_keys, made, strict=True))
        return {n: cotangent(found[result], inputs[n]) for n, result in results.items() if result in found}

    def _result(self, key: str) -> str:
        """The output of the backward op, or the item of it, that is the gradient of an operand, or of an item."""
        name, item, number = key.partition("[")
        return f"{self.vjp.grads[name]}{item}{number}"

    def _operands(
        self, inputs: Mapping[str, Any], outputs: Mapping[str, Any], cotangents: Mapping[str, Any], needed: set[Any]
    ) -> tuple[list[Any], dict[str, tuple[Buffer, ...]]]:
        """The arrays that the backward op reads, and what each is; those `needed` even where they are 0."""
        own, made = dict(self.problem.arrays), dict(self.saving.outputs)
        arrays: list[Any] = []
        buffers: dict[str, tuple[Buffer, ...]] = {}
        for spec in self._reads():
            source = self._source(spec)
            if source is None:
                continue
            place, name = source
            if place == "cotangent":
                optional = not spec.required(self.desc) and spec.name not in needed
                if name not in made or (name not in cotangents and optional):
                    continue
                one = made[name]
                arrays.append(cotangents[name] if name in cotangents else jnp.zeros(one.shape, one.dtype))
                buffers[spec.name] = (one,)
            elif place == "output":
                arrays.append(outputs[name])
                buffers[spec.name] = (made[name],)
            else:
                arrays += [inputs[f"{name}[{i}]" if spec.many else name] for i in range(len(own[name]))]
                buffers[spec.name] = own[name]
        return arrays, buffers

    def _backward(self, buffers: Mapping[str, tuple[Buffer, ...]]) -> Problem:
        assert self.plan is not None
        order = [spec.name for spec in arrays_of(self.plan.args) if spec.name in buffers]
        scalars = {spec.name for spec in scalars_of(self.plan.args)}
        problem = Problem(
            self.plan, self.desc, tuple((name, buffers[name]) for name in order),
            tuple((n, text) for n, text in self.problem.numbers if n in scalars),
            tuple((n, one) for n, one in self.problem.traced if n in scalars), self.problem.preference,
        )  # fmt: skip
        problem.check()
        return problem


def _plan(said: Any) -> type[Plan]:
    return said if isinstance(said, type) else PLANS.get(said) or NAMED.get(said) or registry.plan(said)


def _outputs(plan: type[Plan]) -> list[Operand]:
    return [spec for spec in arrays_of(plan.args) if spec.role == "out"]


def _buffers(spec: Operand, desc: Any, held: Mapping[str, tuple[Buffer, ...]]) -> tuple[Buffer, ...]:
    """An output of the op, or the items of one, as its declaration has it."""
    if spec.like:
        return held[spec.like]
    element: ElementKind = spec.elements(desc)[0]
    if spec.many:
        return tuple(Buffer(spec.shape(desc, i), element) for i in range(len(getattr(desc, spec.many))))
    return (Buffer(spec.shape(desc), element),)


def cotangent(grad: Any, operand: Any) -> Any:
    """A gradient as JAX pairs it with its operand: one that all shards have alike gets the sum of theirs."""
    value = conjugate(grad).astype(operand.dtype)
    shared = manual_axes(value) - manual_axes(operand)
    return laid_out(jax.lax.psum(value, tuple(shared)) if shared else value, operand)


def conjugate(value: Any) -> Any:
    """A complex number's conjugate, a real one as it is."""
    return jnp.conj(value) if jnp.iscomplexobj(value) else value
