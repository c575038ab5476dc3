"""Ops as operations of torch's own, by the functions that their pages have for them: for derivatives without a kernel.

A backward op is the gradient of what its forward op is in torch, at the inputs that it reads, or has a function of its
own where it reads outputs instead. Tests hold both against the references.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..core.args import arrays_of, scalars_of
from ..core.plan import Plan
from .operation import element_dtype
from .untyped import torch

Made = dict[str, Any]
Source = tuple[type[Plan], Any]
"""The op that a backward op is the gradient of, and its descriptor."""

_OF_THEIR_OWN = frozenset(  # backward ops whose page has what torch differentiates: of saved outputs, and of dy alone
    f"{op}_backward"
    for op in (
        "attention.alibi", "embedding.embedding", "indexing.index_put", "indexing.scatter",
        "layout.concat", "moe.moe_router", "pooling.pool", "pooling.reduce_window", "quantize.fake_quantize",
        "recurrence.recurrent_packed",
        "scan.scan_extreme",
        "segment.segment_softmax", "softmax.masked_softmax", "softmax.softmax", "sort.sort",
    )
)  # fmt: skip
_OWN_KINDS = (
    ("reduce.reduce_pair_backward", "max_with_index"), ("reduce.reduce_pair_backward", "min_with_index"),
    ("softmax.sparsemax_backward", "sparsemax"),
)  # fmt: skip
_NONE = ("elementwise.frexp_backward", "quantize.learnable_fake_quantize", "quantize.learnable_fake_quantize_backward")
"""Ops of which torch's derivatives are not those of the formula."""
_ADDED = frozenset(("bias", "residual"))
"""Inputs whose value no gradient depends on, though the backward op reads outputs that do."""


@dataclasses.dataclass(frozen=True)
class Decomposed:
    """An op in torch: called with its operands and numbers by name, it returns those of the outputs `wanted` that its
    page's function makes, and what torch makes of a problem that the page does not serve is None.

    uses: the operands that it looks at.
    """

    call: Callable[[Mapping[str, Any]], Made | None]
    uses: frozenset[str]


def decomposed(plan: type[Plan], desc: Any, wanted: frozenset[str], source: Source | None = None) -> Decomposed | None:
    """The op of a descriptor in torch, or None where there is none that can be differentiated."""
    if plan.op in _NONE or _is_linear(desc):
        return None
    reads = frozenset(s.name for s in arrays_of(plan.args) if s.reads)
    if plan.direction != "backward" or plan.made or plan.op in _OF_THEIR_OWN or _is_own(plan, desc):
        return None if plan.torch is None else Decomposed(lambda given: _declared(plan, desc, wanted, given), reads)
    forward = source and source[0]
    if source is None or forward is None or forward.torch is None or forward.vjp is None:
        return None
    inputs = {s.name for s in arrays_of(forward.args) if s.reads}
    saved = reads - inputs - {f"d{n}" for n in forward.vjp.cotangents(forward, plan)}
    if saved and not inputs - reads <= _ADDED:
        return None
    uses = reads - saved
    return Decomposed(lambda given: _gradient(plan, *source, wanted, given), uses)


def _is_linear(desc: Any) -> bool:
    """Whether the function of a kind in torch has a slope that is a constant to torch."""
    row = getattr(getattr(desc, "kind", None), "row", None)
    return bool(getattr(getattr(row, "torch", None), "once", False))


def _is_own(plan: type[Plan], desc: Any) -> bool:
    """The same of some descriptors: of products without an activation, of extremes by their index, of a simplex."""
    kind = getattr(getattr(desc, "kind", None), "value", "")
    if plan.op == "gemm.gemm_backward":
        return bool(desc.activation == "none")
    return (plan.op, kind) in _OWN_KINDS


def _declared(plan: type[Plan], desc: Any, wanted: frozenset[str], given: Mapping[str, Any]) -> Made | None:
    """The page's function, which computes in float32 at least."""
    specs = arrays_of(plan.args)
    defaults = {f.name: f.default for f in dataclasses.fields(plan.args)}
    operands = {s.name: _wide(given.get(s.name)) for s in specs if s.reads}
    operands |= {s.name: given.get(s.name, defaults[s.name]) for s in scalars_of(plan.args)}
    extra = {"wanted": wanted} if any(s.role == "out" and s.optional for s in specs) else {}
    assert plan.torch is not None
    attention = torch.nn.attention.sdpa_kernel(
        torch.nn.attention.SDPBackend.MATH
    )  # torch differentiates it alone twice
    with attention if plan.op.startswith("attention.") else contextlib.nullcontext():
        made = plan.torch(torch, desc, **operands, **extra)
    if made is NotImplemented:
        return None
    outputs = [s for s in specs if s.role == "out" and s.name in wanted]
    if not isinstance(made, Mapping):
        values = made if isinstance(made, tuple) else (made,)
        made = dict(zip([s.name for s in outputs], values, strict=False))
    return {s.name: _as_declared(s, desc, given, made[s.name]) for s in outputs if made.get(s.name) is not None}


def _gradient(
    plan: type[Plan], forward: type[Plan], desc: Any, wanted: frozenset[str], given: Mapping[str, Any]
) -> Made | None:
    """The pulled back cotangents of the forward op in torch; an input that no gradient depends on is zeros."""
    link = forward.vjp
    assert link is not None
    cotangents = {n: given[f"d{n}"] for n in link.cotangents(forward, plan) if given.get(f"d{n}") is not None}
    lead = next(iter(cotangents.values()))
    names: dict[str, str] = {}  # gradient → the input it is that of
    for name, grad in link.grads.items():
        if grad in wanted:
            names.setdefault(grad, name)
    inputs = {s.name: given.get(s.name) for s in arrays_of(forward.args) if s.reads}
    needed = {*names.values(), *(s.needs for s in arrays_of(forward.args) if s.name in cotangents)}
    for spec in arrays_of(forward.args):
        if spec.reads and inputs[spec.name] is None and (spec.name in needed or spec.required(desc)):
            shapes = [spec.shape(desc, i) for i in range(len(getattr(desc, spec.many)))] if spec.many else None
            dtype = element_dtype(spec.elements(desc)[0])
            zeros = [lead.new_zeros(shape, dtype=dtype) for shape in shapes or [spec.shape(desc)]]
            inputs[spec.name] = zeros if shapes is not None else zeros[0]
    numbers = {n: given[n] for n in {s.name for s in scalars_of(forward.args)} & given.keys()}

    def run(*leaves: Any) -> tuple[Any, ...]:
        held = {**inputs, **numbers, **dict(zip(names.values(), leaves, strict=True))}
        made = _declared(forward, desc, frozenset(cotangents), held)
        if made is None or not set(cotangents) <= set(made):
            raise _Unserved
        return tuple(made[n] for n in cotangents)

    try:
        outputs, pull = torch.func.vjp(run, *(inputs[n] for n in names.values()))
    except _Unserved:
        return None
    slopes = [c.to(y.dtype) for c, y in zip(cotangents.values(), outputs, strict=True)]
    return dict(zip(names, pull(tuple(slopes)), strict=True))


class _Unserved(Exception):
    """The page's function has not the problem, or not the outputs that cotangents are of."""


def tangents(run: Callable[..., Sequence[Any]], primals: Sequence[Any], moves: Sequence[Any]) -> Sequence[Any]:
    """The changes of the results of `run`, operations of torch, where its arguments change by `moves`."""
    if torch._C._functorch.maybe_current_level() is None:  # where forward mode cannot be nested
        return transposed_twice(run, primals, moves)
    return torch.func.jvp(lambda *given: tuple(run(*given)), tuple(primals), tuple(moves))[1]  # type: ignore[no-any-return]


def transposed_twice(run: Callable[..., Sequence[Any]], primals: Sequence[Any], moves: Sequence[Any]) -> Sequence[Any]:
    """The same without forward mode: the gradient of what `run` pulls back, which is linear in the cotangents."""
    made, pull = torch.func.vjp(lambda *given: tuple(run(*given)), *primals)
    _, push = torch.func.vjp(pull, tuple([torch.ones_like(one) for one in made]))  # at 0 some of torch's are NaN
    return push(tuple(moves))[0]  # type: ignore[no-any-return]


def _wide(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_wide(one) for one in value]
    short = isinstance(value, torch.Tensor) and value.dtype in (torch.float16, torch.bfloat16)
    return value.float() if short else value


def _as_declared(spec: Any, desc: Any, given: Mapping[str, Any], made: Any) -> Any:
    """A result in the dtype that the op has it in."""
    like = given.get(spec.like) if spec.like else None
    if isinstance(made, (list, tuple)):
        return [_as_declared(dataclasses.replace(spec, like=None), desc, given, one) for one in made]
    if not (made.is_floating_point() or made.is_complex()):
        return made
    return made.to(like.dtype if isinstance(like, torch.Tensor) else element_dtype(spec.elements(desc)[0]))
