"""The plan of an update: the assignments of a formula over lists of tensors, in place."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from ..core import (
    Geometry,
    Guarantee,
    Kernel,
    Params,
    Problem,
    Relative,
    Step,
    Variant,
    derived,
    element,
    inout,
    operand,
    scalar,
    shapes,
)
from ..core.element import FLOATS, ElementKind
from ..core.errors import InvalidProblemError
from ..core.memo import keep
from ..core.tensor import dense_strides
from ..ops.random.draws import numbered
from ..ops.random.philox import philox_bits
from ..schedules.map import lay_out
from ..schedules.multi_tensor import chunk_counts, groups
from .made import Again, MadeArgs, MadeDescriptor, MadePlan, Numbered, args_space, part
from .reference import evaluate
from .signature import Signature, Signatures
from .update_code import update_text, width
from .update_codes import decoded, encoded, rounded_at_random, words_of_halves
from .update_shape import BLOCK, SCALE, UpdateShape

E = ElementKind
CHUNK = 8192  # elements a block updates
CODED_CHUNK = 32768  # and where it makes tables of codes first
THREADS = 256
_ROOM = 4000  # bytes of the parameter struct
_MOST = 128  # tensors a launch
_ALIGNED = 8  # of the number of a tensor's first draw
_DRAWS = {"seed": True, "offset": True}


class UpdatePlan(MadePlan):
    """Assignments in order, for every element of every tensor of the lists; numbers are scalars.

    Everything is computed in float32 (float64 where a list is float64) and rounded once, to what each list stores; a
    later assignment sees a value before that. Gradients are multiplied by `grad_scale`; where `found_inf` is not 0
    nothing is written.
    """

    shape: UpdateShape

    @classmethod
    def case(cls, draw: Any) -> Any:
        """Lists of a few small tensors."""
        elements = draw.kind.elements
        every = tuple(draw.shape(0, 3, 0, 33) for _ in range(draw.integer(1, 5)))
        rest = {f"{n}_element": e for n, e in zip(cls.shape.lists[1:], elements[1:], strict=True)}
        descriptor: Any = cls.descriptor
        return descriptor(shapes=every, element=elements[0], **rest)

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        """Steps from 1 on; nothing is skipped."""
        arrays["found_inf"] = 0.0
        for name, whole in cls.shape.scalars.items():
            if whole:
                arrays[name] = 7

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        """Scales are named by the lists' own shapes."""
        if cls.shape.coded:
            lead = next(n for n in cls.shape.whole if shapes.get(n) is not None)
            facts.setdefault("blocks", tuple(_blocks(one) for one in shapes[lead]))


def _blocks(shape: tuple[int, ...]) -> tuple[int]:
    return (-(-math.prod(shape) // BLOCK),)


def update_plan_of(shape: UpdateShape) -> type[UpdatePlan]:
    """The plan of an update; made once."""
    return _plans.get(shape) or keep(_plans, shape, _made(shape), 1024)


_plans: dict[UpdateShape, type[UpdatePlan]] = {}


def scale_name(name: str) -> str:
    """The list of scales of a list of codes."""
    return f"{name}_scale"


def _made(shape: UpdateShape) -> type[UpdatePlan]:
    name, recipe = f"Update{shape.digest.capitalize()}", (update_plan_of, (shape,))
    row = Variant(
        "multi_tensor", partial(_geometry, shape), source="optimizer/update.cu", kernels=_kernels(shape),
        elements=lambda kind: kind.elements[:1],
        prelude=lambda element, kind: update_text(shape, kind.elements, compute_of(kind.elements)),
        guarantee=Guarantee(lambda element, kind: _bound(shape, kind), batch_invariant=True),
    )  # fmt: skip
    space: dict[str, Any] = {
        "__doc__": shape.formula.text, "shape": shape, "__recipe__": recipe, "__module__": __name__,
        "op": f"optimizer.update_{shape.digest}", "kinds": UpdateSignatures(shape),
        "descriptor": _descriptor(name, shape, recipe), "args": _args(name, shape, recipe), "variants": (row,),
        "reference": staticmethod(partial(_reference, shape)),
    }  # fmt: skip
    base: Any = UpdatePlan
    made: type[UpdatePlan] = type(base)(f"{name}Plan", (base,), space)
    return made


def compute_of(elements: tuple[ElementKind, ...]) -> ElementKind:
    """What is computed in."""
    return E.F64 if E.F64 in elements else E.F32


def _bound(shape: UpdateShape, kind: Signature) -> Relative:
    program = shape.program(compute_of(kind.elements))
    worst = max((step.value.ulps for step in program.steps if step.form == "call"), default=0.0)
    return Relative(4 + 2 * worst, 2 + worst)


class UpdateSignatures(Signatures):
    """Elements that tests run an update with: of one float, and 16-bit parameters and gradients with float32 states."""

    def __init__(self, shape: UpdateShape) -> None:
        super().__init__(len(shape.lists), lambda one: shape.program(compute_of(one.elements)))
        self.shape = shape

    def _candidates(self) -> Iterator[Signature]:
        names = self.shape.lists

        def one(first: ElementKind, rest: ElementKind) -> Signature:
            found = [E.U8 if n in self.shape.codes else first if n in ("p", "g") else rest for n in names]
            return Signature(tuple(found))

        for first, rest in ((E.F32, E.F32), (E.BF16, E.F32), (E.F64, E.F64), (E.F16, E.F16), (E.F32, E.BF16)):
            if not (self.shape.coded and E.F64 in (first, rest)):
                yield one(first, rest)

    def _is_measured(self, one: Signature) -> bool:
        return True


class UpdateDescriptor(MadeDescriptor):
    """Tensors of the given shapes. `element` is that of the first list; another has `<name>_element`."""

    made_for: UpdateShape
    shapes: tuple[tuple[int, ...], ...]
    blocks: Any
    singles: Any

    def validate(self) -> None:
        for name, kind in zip(self.made_for.lists, self.kind.elements, strict=True):
            if name in self.made_for.codes and kind is not E.U8:
                raise InvalidProblemError(f"{name} has codes of 8 bits, so its element must be uint8, got {kind}")
            if name not in self.made_for.codes and not kind.is_float:
                raise InvalidProblemError(f"{name} must be float32, float64, float16 or bfloat16, got {kind}")
        if self.made_for.singles and any(self.singles):
            raise InvalidProblemError(f"{', '.join(self.made_for.singles)} must have 0-d arrays, got {self.singles}")
        if self.made_for.coded and E.F64 in self.kind.elements:
            raise InvalidProblemError("states of 8 bits stand beside float32, float16 and bfloat16, got float64")
        if self.made_for.coded and self.blocks != tuple(_blocks(one) for one in self.shapes):
            raise InvalidProblemError(f"scales have one element for {BLOCK} of their tensor, got {self.blocks}")

    @property
    def kind(self) -> Signature:
        """The elements of the lists."""
        rest = self.made_for.lists[1:]
        return Signature((self.element, *(getattr(self, f"{name}_element") for name in rest)))

    @property
    def numbered(self) -> Numbered:
        """The formula and its numbers."""
        yield self.made_for.program(compute_of(self.kind.elements)), tuple(self.made_for.scalars)


_STORED = (*FLOATS, E.U8)


def _descriptor(name: str, shape: UpdateShape, recipe: Any) -> Any:
    fields: list[Any] = [("shapes", "tuple[tuple[int, ...], ...]", shapes())]
    if shape.coded:
        fields.append(("blocks", "tuple[tuple[int, ...], ...]", shapes(derived(_all_blocks))))
    if shape.singles:
        fields.append(
            ("singles", "tuple[tuple[int, ...], ...]", shapes(derived(lambda desc: ((),) * len(desc.shapes))))
        )
    fields.append(("element", ElementKind, element(_STORED)))
    for n in shape.lists[1:]:
        usual = derived(lambda desc: E.U8) if n in shape.codes else derived(lambda desc: desc.element)
        fields.append((f"{n}_element", Any, element(_STORED, usual)))
    space = {"made_for": shape, "__recipe__": (part, (Again(recipe), "descriptor")), "__module__": __name__}
    made = dataclasses.make_dataclass(
        f"{name}Descriptor", fields, bases=(UpdateDescriptor,), namespace=space, frozen=True, kw_only=True
    )
    made.__doc__ = UpdateDescriptor.__doc__
    return made


def _all_blocks(desc: Any) -> tuple[tuple[int], ...]:
    return tuple(_blocks(one) for one in desc.shapes)


def _args(name: str, shape: UpdateShape, recipe: Any) -> Any:
    fields: list[Any] = []
    for i, n in enumerate(shape.lists):
        rule = "element" if i == 0 else f"{n}_element"
        role = inout if n in shape.written else operand
        fields.append((n, Any, role(many="singles" if n in shape.singles else "shapes", element=rule)))
    for n in shape.codes:
        role = inout if n in shape.written else operand
        fields.append((scale_name(n), Any, role(many="blocks", element=E.F32, values=_positive)))
    for n, whole in shape.scalars.items():
        fields.append((n, Any, scalar(1.0) if n == SCALE else scalar(integer=whole)))
    fields.append(("found_inf", Any, scalar(0.0)))
    if shape.stochastic:
        fields += [("seed", Any, scalar(integer=True)), ("offset", Any, scalar(0, integer=True))]
    theirs = (*shape.lists, *map(scale_name, shape.codes), *(n for n in shape.scalars if n != SCALE))
    space = args_space(__name__, recipe, theirs, any(shape.scalars.values()))
    made = dataclasses.make_dataclass(
        f"{name}Args", fields, bases=(MadeArgs,), namespace=space, slots=True, kw_only=True
    )
    made.__doc__ = "Lists of as many tensors; those of one place have one shape and any strides."
    return made


def _positive(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    return rng.random(shape) + 0.5


# -- what runs -----------------------------------------------------------------------------------------------------


def _fields(shape: UpdateShape, capacity: int) -> dict[str, str]:
    made = {f"a{i}": f"ptr[{capacity}]" for i in range(len(shape.lists))}
    made |= {f"q{shape.lists.index(n)}": f"ptr[{capacity}]" for n in shape.codes}
    made |= {f"s{i}": "iscalar" if whole else "scalar" for i, whole in enumerate(shape.scalars.values())}
    made |= {"found_inf": "scalar"}
    return made | (dict.fromkeys(_DRAWS, "iscalar") if shape.stochastic else {})


def capacity_of(shape: UpdateShape) -> int:
    """How many tensors a launch takes."""
    each = 8 * (len(shape.lists) + len(shape.codes)) + 12 + (8 if shape.stochastic else 0)
    return int(min(_MOST, (_ROOM - 16 * (len(shape.scalars) + 3)) // each))


def _chunk(shape: UpdateShape) -> int:
    return CODED_CHUNK if shape.coded else CHUNK


def _resident(shape: UpdateShape, element: ElementKind, kind: Signature) -> int:
    """Blocks a multiprocessor that registers allow without spills: by the elements that a thread holds of all lists."""
    if len(shape.lists) + len(shape.codes) > 6:
        return 0
    if shape.coded:
        return 3
    elements = dict(zip(shape.lists, kind.elements, strict=True))
    return 3 if width(tuple(elements[n] for n in shape.whole), False) * len(shape.whole) <= 24 else 2


def _kernels(shape: UpdateShape) -> tuple[Kernel, ...]:
    n, count, chunk = capacity_of(shape), len(shape.lists), _chunk(shape)
    drawn, one = ({"begin": f"i64[{n}]"}, {"begin": "i64"}) if shape.stochastic else ({}, {})
    params = Params(
        "UpdateParams", **_fields(shape, n), sizes=f"i64[{n}]", **drawn, first=f"i32[{n}]", count="i32",
    )  # fmt: skip
    flat = Kernel("update", f"update<Lists, {THREADS}, {chunk}>", params, {}, THREADS, partial(_resident, shape))
    if shape.coded:
        return (flat,)
    strided = Params(
        "UpdateStridedParams", **_fields(shape, 1), size="i64", **one, shape="i64[8]",
        strides=f"i64[{count + len(drawn)}][8]", rank="i32",
    )  # fmt: skip
    return flat, Kernel("update_strided", f"update_strided<Lists, {THREADS}>", strided, {}, THREADS)


def _geometry(shape: UpdateShape, p: Problem) -> Geometry | str:
    views = {n: p.views[n] for n in shape.whole}
    lead = views[shape.whole[0]]
    counts = chunk_counts([view.size for view in lead], _chunk(shape))
    ordered = bool(shape.coded or shape.stochastic)  # whether the number of an element in its tensor is looked at
    begins = [0]
    for view in lead:
        begins.append(begins[-1] - -view.size // _ALIGNED * _ALIGNED)
    named = {f"s{i}_ptr": n for i, n in enumerate(shape.scalars)}

    def pointers(start: int, stop: int) -> dict[str, Any]:
        made = {f"a{i}": (n, start, stop) for i, n in enumerate(shape.lists)}
        return {**made, **{f"q{shape.lists.index(n)}": (scale_name(n), start, stop) for n in shape.codes}, **named}

    steps, strided = [], []
    for i, view in enumerate(lead):
        own = [views[n][i] for n in shape.whole]
        numbers = [numbered(view.shape, view.element)] if shape.stochastic else []
        if not view.size or (all(_is_dense(one) for one in own) if ordered else False):
            continue
        if shape.coded:
            return f"{shape.whole[0]}[{i}]: states of 8 bits need tensors that are dense and row-major, in all lists"
        merged = lay_out([*own, *numbers])
        if isinstance(merged, str):
            return f"{shape.whole[0]}[{i}]: {merged}"
        if ordered or not merged.run:
            axes = merged.groups[0].params()
            places = iter(axes["strides"])
            axes["strides"] = [next(places) if n in shape.whole else [0] * 8 for n in shape.lists] + [*places]
            params = {**pointers(i, i + 1), **axes, "size": view.size}
            params |= {"begin": begins[i]} if shape.stochastic else {}
            strided.append(Step("update_strided", (-(-view.size // THREADS), 1, 1), params, {}, THREADS))
            counts[i] = 0
    for group in groups(counts, capacity_of(shape)):
        sizes = [view.size for view in lead[group.start : group.stop]]
        params = {**pointers(group.start, group.stop), "sizes": sizes, "first": group.first, "count": len(sizes)}
        params |= {"begin": begins[group.start : group.stop]} if shape.stochastic else {}
        steps.append(Step("update", (group.blocks, 1, 1), params, {}, THREADS))
    return Geometry((*steps, *strided), layout="strided" if strided else "contiguous")


def _is_dense(view: Any) -> bool:
    """Whether an element's number is its place."""
    want = dense_strides(view.shape)
    return all(n == 1 or a == b for n, a, b in zip(view.shape, view.strides, want, strict=True))


def _reference(
    shape: UpdateShape, desc: Any, /, *, found_inf: Any, seed: Any = 0, offset: Any = 0, **given: Any
) -> Any:
    """NumPy in the dtype that floats come in, tensor by tensor."""
    written = (*shape.written, *(scale_name(n) for n in shape.codes if n in shape.written))
    if np.asarray(found_inf) != 0 or not desc.shapes:
        return {n: given[n] for n in written}
    program = desc.made_for.program(compute_of(desc.kind.elements))
    values, begin = [given[n] for n in shape.scalars], 0
    kinds = dict(zip(shape.lists, desc.kind.elements, strict=True))
    made: dict[str, list[Any]] = {n: [] for n in written}
    for i in range(len(desc.shapes)):
        arrays = [
            decoded(shape.codes[n], given[n][i], given[scale_name(n)][i]) if n in shape.codes else given[n][i]
            for n in shape.read
        ]
        compute = next((x.dtype for x in arrays if x.dtype.kind not in "biu"), np.dtype(np.float64))
        results = evaluate(program, arrays, values, compute)
        for n, value in zip(shape.written, results, strict=True):
            value = np.broadcast_to(value, desc.shapes[i])
            if n in shape.codes:
                codes, scales = encoded(shape.codes[n], value)
                made[scale_name(n)].append(scales.astype(compute))
                value = codes
            elif n == shape.stochastic:
                narrow = kinds[n] is ElementKind.BF16 and compute_of(desc.kind.elements) is ElementKind.F32
                words = (words_of_halves if narrow else philox_bits)(seed, offset, value.size, begin)
                value = rounded_at_random(value, kinds[n], words.reshape(value.shape))
            made[n].append(value)
        begin += -(-math.prod(desc.shapes[i]) // _ALIGNED) * _ALIGNED
    return made
