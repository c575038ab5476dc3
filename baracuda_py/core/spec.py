"""`Spec`: what a page declares of an op. Nothing here chooses, compiles or runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

import numpy as np

from .args import Args, arrays_of
from .benchmark import Benchmark
from .descriptor import Descriptor
from .element import ElementKind
from .keywords import name_keywords
from .memo import PLANS_KEPT, memo
from .sku import ArchSku, BackendKind
from .variant import Geometry, Guarantee, Variant


class Spec:
    """The declaration of an op, which a page writes as a subclass of `Plan`:

    op: "family.name"; the family is the category of its SKUs. direction, descriptor, args: its classes. kinds: an Enum
    for table ops. reference(desc, **arrays) → dict of outputs: NumPy; float operands arrive in the compute dtype
    (float64, or what the tests ask), absent ones as None; in-outs may be mutated or returned; where the formula keeps
    intermediates in the element, they pass through a keyword `store` (default `unrounded`). With `raw = True`
    operands arrive as stored. widest: the widest dtype that it computes in, float64 where it is LAPACK's.
    residual(desc, name, **values) → array: the backward error of output `name`, where rows promise one (`Backward`).
    waits: whether a run waits for the device, so that no graph can hold it. With `apart = True` its bits may depend on
    what else is in a batch, and a keyword `apart` asks for those that one item has alone, where `refuse_apart(desc)`
    says nothing against it. variants: the dispatch table. case(draw): a descriptor for tests. vjp: its backward;
    tangent(desc, name, v): v as a change of an input that the gradient is for, Hermitian of a Hermitian one.
    bytes(desc), flops(desc): the least work. value_policy: what happens to bad values on the device. benchmarks: the
    problems to time. torch(torch, desc, **operands): the op in torch on tensors, called as `reference` is and returning
    a dict of outputs, one output, or several in their order; tests compare it with the reference, benchmarks time it,
    and derivatives that no kernel makes are made of it. It returns NotImplemented for descriptors that it does not
    serve. A backward op without one is differentiated: autograd of the forward's. autocast: what torch.autocast does to
    the operands, "lower", "float32" or "widest" (see `baracuda_py.torch.autocast`); "" is what the family says.
    same_bits: the family of ops of which `PlanPreference(same_bits=True)` takes rows with the family's bits alone.

    `class ReluPlan(UnaryPlan, kind=UnaryKind.RELU)` is a name for one kind (or a tuple of kinds) of a table op: its
    descriptor and args, its kernels, no other kind. made: whether the class was made at run time, and so is in no
    registry.
    """

    op: ClassVar[str] = ""
    direction: ClassVar[str] = "forward"
    descriptor: ClassVar[type[Descriptor]]
    args: ClassVar[type[Args]]
    kinds: ClassVar[Any] = None
    pinned: ClassVar[bool] = False
    made: ClassVar[bool] = False
    raw: ClassVar[bool] = False
    widest: ClassVar[Any] = np.longdouble
    apart: ClassVar[bool] = False
    waits: ClassVar[bool] = False
    reference: ClassVar[Callable[..., Mapping[str, Any]]]
    residual: ClassVar[Callable[..., Any]]
    variants: ClassVar[tuple[Variant, ...]] = ()
    case: ClassVar[Callable[..., Any]]
    vjp: ClassVar[Vjp | None] = None
    value_policy: ClassVar[str] = ""
    benchmarks: ClassVar[tuple[Benchmark, ...]] = ()
    torch: ClassVar[Callable[..., Any] | None] = None
    autocast: ClassVar[str] = ""
    same_bits: ClassVar[str] = ""
    refuse_apart: ClassVar[Callable[..., str | None] | None] = None

    def __init_subclass__(cls, kind: Any = None, **facts: Any) -> None:
        super().__init_subclass__(**facts)
        for declared in (getattr(cls, "descriptor", None), getattr(cls, "args", None)):
            if declared is not None:
                name_keywords(declared)
        if kind is not None:
            cls._pin(kind if isinstance(kind, tuple) else (kind,))

    @classmethod
    def _pin(cls, kinds: Iterable[Any]) -> None:
        known = tuple(cls.kinds or ())
        for kind in kinds:
            if kind not in known:
                names = ", ".join(one.value for one in known) or "none"
                raise TypeError(f"{cls.__name__}: {kind!r} is no kind of {cls.op}, whose kinds are: {names}")
        cls.kinds, cls.pinned = tuple(kinds), True

    @classmethod
    def table(cls) -> tuple[Variant, ...]:
        """The page's rows and the NumPy row every op has, or two where that is not batch-invariant."""
        return (*cls.variants, numpy_row(cls), *((numpy_row(cls, True),) if cls.apart else ()))

    @classmethod
    def shares_bits(cls) -> bool:
        """Whether all rows give the bits of the op's family, so that they need not be asked for."""
        return bool(cls.same_bits) and all(row.guarantee.same_bits for row in cls.variants)

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        """Relations between operands that the declaration cannot say; raise InvalidProblemError."""

    @classmethod
    def check_numbers(cls, desc: Any, numbers: Mapping[str, Any]) -> None:
        """Of Args that are `__joint__`: what the numbers of a call, None those on a device, may not be together; raise
        InvalidProblemError."""

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        """Functional layer: fill attributes that the declared shapes leave open (`facts` are those given)."""

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        """Tests and benchmarks: replace random operands that must agree with others (saved statistics, lengths)."""

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        """BARACUDA_CHECK=1 on the CPU: what is wrong with the values, or None."""
        return None

    @classmethod
    def coupled(cls, desc: Any) -> bool:
        """Whether items of a batch share a number that no shape shows, as the gradient of a mean does their count."""
        return False

    @classmethod
    def bytes(cls, desc: Any) -> int:
        """The fewest bytes to move: each required operand once."""
        total = 0
        for spec in arrays_of(cls.args):
            if not spec.required(desc):
                continue
            shapes = (
                [spec.shape(desc, i) for i in range(len(getattr(desc, spec.many)))] if spec.many else [spec.shape(desc)]
            )
            for shape in shapes:
                count = 1
                for extent in shape:
                    count *= extent
                total += count * spec.elements(desc)[0].itemsize * (2 if spec.role == "inout" else 1)
        return total

    @staticmethod
    def tangent(desc: Any, name: str, v: Any) -> Any:
        """Every change is one."""
        return v

    @classmethod
    def flops(cls, desc: Any) -> int:
        """Arithmetic operations of the formula; 0 where bytes alone bound the op."""
        return 0


class Vjp:
    """Links a forward plan to its backward one.

    saves: forward output → backward input of another name; outputs and inputs of equal names need no entry.
    grads: forward input → backward output. The cotangent of forward output `y` is the backward input `dy`.
    kinds: those that have a gradient, if not all; the backward refuses the others.
    """

    plan: Any  # the backward plan's name; of plans made at run time the class

    def __init__(
        self, plan: Any, *, saves: Mapping[str, str] | None = None, grads: Mapping[str, str], kinds: Any = None
    ) -> None:
        self.plan = plan
        self.saves = dict(saves or {})
        self.grads = dict(grads)
        self.kinds = kinds

    def serves(self, kind: Any) -> bool:
        """Whether a kind has a gradient."""
        return self.kinds is None or kind in self.kinds

    def served(self, backward: type[Spec], desc: Any) -> dict[str, str]:
        """Those of `grads` that the backward plan has for a descriptor of its own."""
        made = {o.name for o in arrays_of(backward.args) if o.serves(desc)}
        return {name: output for name, output in self.grads.items() if output in made}

    def cotangents(self, forward: type[Spec], backward: type[Spec]) -> Sequence[str]:
        """The forward outputs that have a cotangent input `d<name>` in the backward plan."""
        inputs = {o.name for o in arrays_of(backward.args) if o.reads}
        return [o.name for o in arrays_of(forward.args) if o.writes and f"d{o.name}" in inputs]


NUMPY_APART = "numpy_apart"


@memo(maxsize=PLANS_KEPT)
def numpy_row(cls: type[Spec], apart: bool = False) -> Variant:
    """The reference backend's row: any layout, float64 inside, one rounding; `apart`: each item of a batch alone."""
    promised = cls.variants[0].guarantee if cls.variants else Guarantee()
    invariant = apart or not cls.apart or bool(cls.same_bits)
    guarantee = Guarantee(
        promised.error, math="float64", batch_invariant=invariant, native=promised.native,
        same_bits=cls.same_bits if apart else "",
    )  # fmt: skip

    @cache
    def elements(kind: Any) -> tuple[ElementKind, ...]:
        """Those that a row of a device serves: a problem that no device takes is none here either."""
        served = {e for v in cls.variants if v.kinds is None or kind in v.kinds for e in v.elements_for(kind)}
        return tuple(e for e in ElementKind if e in served)

    return Variant(
        NUMPY_APART if apart else "numpy", lambda problem: Geometry((), layout="strided"), elements=elements,
        design=ArchSku.ANY, backend=BackendKind.NUMPY, guarantee=guarantee,
        refuses=cls.refuse_apart if apart else None,
    )  # fmt: skip
