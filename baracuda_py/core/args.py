"""`Args`: the arrays and scalars of one call, declared field by field.

    @dataclass(slots=True, kw_only=True)
    class RMSNormArgs(Args):
        x: Array = operand("*batch_shape *normalized_shape")
        weight: Array | None = operand("*normalized_shape", optional=True)
        y: Array = output("*batch_shape *normalized_shape", inplace=("x",))

A shape is a string of dimensions: an integer, a descriptor attribute (`num_heads`), or a tuple
attribute with a star (`*batch_shape`). `broadcast=True` lets an operand have any shape that
broadcasts to it. `many="shapes"` makes the field a list of operands whose i-th shape is
`desc.shapes[i]`. Validation, dispatch, test data and the functional layer all read this.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from .descriptor import Descriptor
from .element import ElementKind
from .errors import InvalidProblemError
from .memo import PLANS_KEPT, memo

Array: TypeAlias = Any
"""CuPy, torch, JAX, Numba array, TensorRef, or NumPy array for a CPU plan."""

Scalar: TypeAlias = Any
"""A Python number or a 0-d device array (float32, float64, int32 or int64)."""

ElementRule: TypeAlias = "str | ElementKind | tuple[ElementKind, ...]"


@dataclass(frozen=True)
class Everywhere:
    """Values for tests over the whole range of the element.

    Floats of all exponents, 0, subnormals and the largest among them, and neighbours of `points(desc)`, of either sign;
    integers over the whole range, so that results wrap; complex numbers with both parts so, on the axes, too. Where
    `points(desc)` is None values are ordinary ones. smooth(rng, desc, shape): numbers for tests that differentiate,
    where standard normal ones will not do.
    """

    points: Callable[[Any], Sequence[float] | None] = lambda desc: (1.0,)
    smooth: Callable[[Any, Any, tuple[int, ...]], Any] | None = None


def finite_only(make: Callable[..., Any]) -> Callable[..., Any]:
    """Of `values=make`: no test puts NaN, infinities and subnormals among what it makes. `make` says why."""
    make.finite_only = True  # type: ignore[attr-defined]
    return make


def no_subnormals(make: Callable[..., Any]) -> Callable[..., Any]:
    """Of `values=make`: no test puts subnormals among what it makes, but NaN and infinities. `make` says why."""
    make.no_subnormals = True  # type: ignore[attr-defined]
    return make


@dataclass(frozen=True)
class Operand:
    """One field of an Args class."""

    name: str
    role: str  # in | out | inout | scalar
    dims: tuple[str, ...] = ()
    element: ElementRule = "element"
    optional: bool = False
    needed: bool = True  # with `kinds`: whether those kinds need it
    broadcast: bool = False
    many: str | None = None
    inplace: tuple[str, ...] = ()
    needs: str | None = None
    like: str | None = None
    layout: str = "any"  # any | inner (last axis dense) | dense
    values: Any = None
    integer: bool = False
    meets: str = ""  # element | coefficient: see `core.numbers`
    drawn: str | None = None
    kinds: tuple[Any, ...] | None = None
    instead: str | None = None
    spared: Callable[[Any, Collection[str]], bool] | None = None
    doc: str = ""
    local: str = ""  # what generated code calls it

    def serves(self, desc: Any) -> bool:
        """Whether the descriptor has this operand at all."""
        if self.instead and getattr(desc, self.instead):
            return False
        return self.kinds is None or desc.kind in self.kinds

    def required(self, desc: Any) -> bool:
        """Whether a call must give it."""
        declared = self.kinds is not None or self.instead is not None
        return not self.optional or (declared and self.needed and self.reads and self.serves(desc))

    @property
    def writes(self) -> bool:
        return self.role in ("out", "inout")

    @property
    def reads(self) -> bool:
        return self.role in ("in", "inout")

    def draws(self, desc: Any) -> bool:
        """Whether a call draws numbers by this seed: `drawn` says so, or nothing does."""
        return self.drawn is None or is_drawn(getattr(desc, self.drawn))

    def shape(self, desc: Descriptor, index: int = 0) -> tuple[int, ...]:
        """The shape the descriptor asks of this operand (of its `index`-th item for a list)."""
        if self.many:
            return tuple(getattr(desc, self.many)[index])
        result: list[int] = []
        for dim in self.dims:
            if dim[0] == "*":
                result.extend(getattr(desc, dim[1:]))
            else:
                result.append(int(dim) if dim[0].isdigit() else getattr(desc, dim))
        return tuple(result)

    def elements(self, desc: Descriptor) -> tuple[ElementKind, ...]:
        """The elements the descriptor allows for this operand."""
        rule = self.element
        if isinstance(rule, tuple):
            return rule
        if isinstance(rule, ElementKind):
            return (rule,)
        kind = getattr(desc, rule)
        return kind if isinstance(kind, tuple) else (kind,)


def is_drawn(needed: Any) -> bool:
    """Whether a flag is set, or a probability is between 0 and 1; what is neither a descriptor refuses."""
    if isinstance(needed, (bool, np.bool_)):
        return bool(needed)
    try:
        return bool(0 < needed < 1)
    except MemoryError:
        raise
    except Exception:
        return False


def _declare(role: str, shape: str, *, optional: bool = False, **facts: Any) -> Any:
    needed = not optional
    optional = optional or facts.get("kinds") is not None or facts.get("instead") is not None
    spec = Operand("", role, tuple(shape.split()), optional=optional, needed=needed, **facts)
    default = None if optional else dataclasses.MISSING
    return dataclasses.field(default=default, metadata={"operand": spec})


def operand(shape: str = "", *, element: ElementRule = "element", optional: bool = False, broadcast: bool = False,
            many: str | None = None, layout: str = "any", values: Any = None, kinds: tuple[Any, ...] | None = None,
            instead: str | None = None, spared: Callable[[Any, Collection[str]], bool] | None = None,
            doc: str = "") -> Any:  # fmt: skip
    """An input. `kinds`: those of a table op that have it, and then need it unless it is `optional`; None is what the
    others take.

    `instead`: the descriptor's flag that says that a number of Args stands in its place, which is None then.

    `spared(desc, given)`: whether a backward op does without this output of the forward, where `given` are those of the
    forward's operands that are there; it is not made for the gradient then.

    `values` is for tests: (low, high) bounds integers (descriptor attributes by name; high is exclusive), `Everywhere`
    means the whole range, a function (rng, desc, shape) makes anything else; floats are standard normal by default.
    """
    return _declare("in", shape, element=element, optional=optional, broadcast=broadcast, many=many, layout=layout,
                    values=values, kinds=kinds, instead=instead, spared=spared, doc=doc)  # fmt: skip


def output(shape: str = "", *, element: ElementRule = "element", optional: bool = False, many: str | None = None,
           inplace: tuple[str, ...] = (), needs: str | None = None, like: str | None = None, layout: str = "any",
           kinds: tuple[Any, ...] | None = None, doc: str = "") -> Any:  # fmt: skip
    """An output. `inplace` names operands it may be an identical view of; `needs` the optional input it goes with.

    `like` names an input that it goes with, that may broadcast, and whose shape and element it has: a gradient.
    `kinds`: those of a table op that have it; it is optional then.
    """
    return _declare("out", shape, element=element, optional=optional, many=many, inplace=inplace, needs=needs or like,
                    like=like, broadcast=like is not None, layout=layout, kinds=kinds, doc=doc)  # fmt: skip


def inout(shape: str = "", *, element: ElementRule = "element", optional: bool = False, many: str | None = None,
          layout: str = "any", values: Any = None, doc: str = "") -> Any:  # fmt: skip
    """An operand updated in place."""
    return _declare(
        "inout", shape, element=element, optional=optional, many=many, layout=layout, values=values, doc=doc
    )


def scalar(default: float | int = dataclasses.MISSING, *, integer: bool = False, meets: str = "",  # type: ignore[assignment]
           values: Any = None, drawn: str | None = None, doc: str = "") -> Any:  # fmt: skip
    """A number that may change per call without a new plan: a Python number or a 0-d device array.

    meets: how it meets the descriptor's element, "element" or "coefficient" (`core.numbers`); it travels as an int64 or
    as a float64 then, whichever `core.params.exactly` says. `values` is for tests: the numbers that it is drawn from,
    where those of either sign and off 0 and 1 will not do.
    drawn: of the seed of numbers that not every call draws, the attribute of the descriptor that says whether one does:
    a flag, or a probability. Its default is None, which a plan refuses where numbers are drawn, and 0 stands for
    elsewhere. Functions take such a seed, and any without a default, as `calls.streams` says.
    """
    if drawn:
        default, values = None, values or (0, 3)  # type: ignore[assignment]
    spec = Operand("", "scalar", integer=integer, meets=meets, values=values, drawn=drawn, doc=doc)
    return dataclasses.field(default=default, metadata={"operand": spec})


@dataclass(slots=True, kw_only=True)
class Args:
    """Base of all Args classes: subclasses are `@dataclass(slots=True, kw_only=True)`.

    __joint__: whether `Spec.check_numbers` looks at the numbers of a call. __theirs__: the fields whose names are a
    user's, which generated code calls otherwise. Attributes here have names that no field has.
    """

    __joint__: ClassVar[bool] = False
    __theirs__: ClassVar[frozenset[str]] = frozenset()


@memo(maxsize=PLANS_KEPT)
def operands_of(cls: type[Args]) -> tuple[Operand, ...]:
    """The declared operands of an Args class, in field order."""
    return tuple(
        dataclasses.replace(
            f.metadata["operand"], name=f.name, local=f"operand{i}" if f.name in cls.__theirs__ else f.name
        )
        for i, f in enumerate(dataclasses.fields(cls))
        if "operand" in f.metadata
    )


@memo(maxsize=PLANS_KEPT)
def arrays_of(cls: type[Args]) -> tuple[Operand, ...]:
    """The array operands (not scalars)."""
    return tuple(o for o in operands_of(cls) if o.role != "scalar")


@memo(maxsize=PLANS_KEPT)
def scalars_of(cls: type[Args]) -> tuple[Operand, ...]:
    """The scalar operands."""
    return tuple(o for o in operands_of(cls) if o.role == "scalar")


def broadcasts_to(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Whether `shape` broadcasts to `target` by NumPy's rule."""
    if len(shape) > len(target):
        return False
    return all(a in (1, b) for a, b in zip(reversed(shape), reversed(target), strict=False))


def expect_shape(spec: Operand, desc: Descriptor, shape: tuple[int, ...], index: int = 0) -> None:
    """Raise InvalidProblemError unless `shape` is what the descriptor asks."""
    want = spec.shape(desc, index)
    if shape == want or (spec.broadcast and broadcasts_to(shape, want)):
        return
    where = f"{spec.name}[{index}]" if spec.many else spec.name
    said = " ".join(spec.dims) or f"{spec.many}[{index}]"
    how = "broadcast to" if spec.broadcast else "have"
    raise InvalidProblemError(f"{where} must {how} shape {want} ({said}), got {shape}")
