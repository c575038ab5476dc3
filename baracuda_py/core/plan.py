"""`Plan`: choose, compile, load, run. An op's plan is a declaration; everything acts here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from ..interop.arrays import settled
from . import registry
from .args import Args, arrays_of, operands_of
from .checked import shown
from .descriptor import Descriptor
from .device import Device, resolve_device
from .dispatch import Verdict, choose, dense_problem, fit, read_args, refuse_row
from .errors import BaracudaError, InvalidProblemError, UnsupportedError
from .keywords import name_keywords
from .memo import memo
from .preference import DEFAULT, PlanPreference
from .sku import ArchSku, BackendKind, KernelSku, OpCategory, PrecisionGuarantee
from .variant import Geometry, Guarantee, Problem, Variant

_CACHED_PLANS = 4096
_log = logging.getLogger("baracuda_py.sku")


class Plan:
    """Base of all plans. A page subclasses it and declares:

    op: "family.name". category, direction, descriptor, args: its classes. kinds: an Enum for table ops.
    reference(desc, **arrays) → dict of outputs: NumPy; float operands arrive in the compute dtype
    (float64, or what the tests ask), absent ones as None; in-outs may be mutated or returned; where the formula keeps
    intermediates in the element, they pass through a keyword `store` (default `unrounded`). With `raw = True`
    operands arrive as stored. variants: the dispatch table. case(draw): a descriptor for tests. vjp: its backward.
    bytes(desc), flops(desc): the least work. value_policy: what happens to bad values on the device.
    """

    op: ClassVar[str] = ""
    category: ClassVar[OpCategory]
    direction: ClassVar[str] = "forward"
    descriptor: ClassVar[type[Descriptor]]
    args: ClassVar[type[Args]]
    kinds: ClassVar[Any] = None
    raw: ClassVar[bool] = False
    reference: ClassVar[Callable[..., Mapping[str, Any]]]
    variants: ClassVar[tuple[Variant, ...]] = ()
    case: ClassVar[Callable[..., Any]]
    vjp: ClassVar[Vjp | None] = None
    value_policy: ClassVar[str] = ""

    def __init_subclass__(cls, **facts: Any) -> None:
        super().__init_subclass__(**facts)
        for declared in (getattr(cls, "descriptor", None), getattr(cls, "args", None)):
            if declared is not None:
                name_keywords(declared)
        if cls.op:
            registry.register(cls)

    def __init__(self, desc: Descriptor, preference: PlanPreference, device: Device) -> None:
        self.desc = desc
        self.preference = preference
        self.device = device
        self._announced = False
        self.kind = getattr(desc, "kind", None) if self.kinds else None
        self._refused = {v.name: refuse_row(type(self), v, desc, device, preference) for v in self.table()}
        self.rows = tuple(v for v in self.table() if self._refused[v.name] is None)
        if not self.rows:
            raise UnsupportedError(
                f"no row of {type(self).__name__} serves this descriptor on {device}", self.explain()
            )
        if device.kind == "cuda":
            from .runner import Runner

            self.runner = Runner(self)
            self.run = self.runner.run  # type: ignore[method-assign]

    # -- the three steps -------------------------------------------------------------------------------

    @classmethod
    def select(cls, desc: Descriptor, preference: PlanPreference | None = None, *, device: Any = None) -> Plan:
        """The plan for a descriptor on a device (see `resolve_device`). Host only; cached."""
        if type(desc) is not cls.descriptor:
            raise InvalidProblemError(f"{cls.__name__} takes {cls.descriptor.__name__}, got {type(desc).__name__}")
        if preference is None:
            preference = DEFAULT
        elif not isinstance(preference, PlanPreference):
            raise InvalidProblemError(f"preference must be a PlanPreference or None, got {shown(preference)}")
        return _select(cls, desc, preference, resolve_device(device))

    def can_implement(self, args: Args) -> Verdict:
        """Whether `run(args)` works, and with which kernel. Host only, never raises."""
        try:
            variant, geometry, _ = self.plan_layout(args)
        except BaracudaError as error:
            return Verdict(error=error)
        return Verdict(self._sku(variant, geometry.layout))

    def workspace_size(self, args: Args | None = None) -> int:
        """Bytes of workspace `run` needs (256-byte aligned): exact for `args`, else the most for dense operands."""
        if args is not None:
            return self.plan_layout(args)[1].workspace
        sizes = [
            g.workspace for v in self.rows for g in (fit(v, self._dense, self.preference),) if isinstance(g, Geometry)
        ]
        return max(sizes, default=0)

    def prepare(self, args: Args) -> None:
        """Compile and load what `run(args)` needs, without launching."""
        if self.device.kind == "cuda":
            self.runner.prepare(args)
        else:
            self.plan_layout(args)

    def bind(self, args: Args, workspace: Any = None, stream: Any = None) -> Callable[[], None]:
        """A callable with everything fixed: one launch a call, on `stream` (default: current at each call).

        A workspace that is not given here is made for each stream and thread that calls, and kept; one that is given
        serves calls that do not run at the same time.
        """
        if self.device.kind == "cuda":
            return self.runner.bind(args, workspace, stream)
        args = self._settled(args)
        self.plan_layout(args)
        return lambda: self.run(args)

    def run(self, args: Args, workspace: Any = None, stream: Any = None) -> None:
        """Run on the current stream (or `stream`), asynchronously. Raises the typed error of `can_implement`."""
        from ..backends.numpy import run_reference

        args = self._settled(args)
        variant, geometry, _ = self.plan_layout(args)
        if not self._announced:
            self._announced = True
            self.announce(variant, geometry)
        if geometry.layout != "empty":
            run_reference(self, args)

    def _settled(self, args: Args) -> Args:
        """Args whose producers have been asked once: what is validated is what is used."""
        if type(args) is not self.args:
            return args  # refused with the rest
        given = {spec.name: getattr(args, spec.name) for spec in operands_of(self.args)}
        for spec in arrays_of(self.args):
            value = given[spec.name]
            many = spec.many and isinstance(value, (list, tuple))
            given[spec.name] = [settled(v, spec.name) for v in value] if many else settled(value, spec.name)
        return self.args(**given)

    def announce(self, variant: Variant, geometry: Geometry) -> None:
        """Log the SKU of a layout seen for the first time (logger `baracuda_py.sku`, level INFO)."""
        if _log.isEnabledFor(logging.INFO):
            _log.info("%s", self._sku(variant, geometry.layout))

    def __call__(self, *, workspace: Any = None, stream: Any = None, **arrays: Any) -> None:
        """`run` with the operands as keywords."""
        self.run(self.args(**arrays), workspace, stream)

    # -- what it is ------------------------------------------------------------------------------------

    def plan_layout(self, args: Args) -> tuple[Variant, Geometry, Mapping[str, Any]]:
        """Validate and choose; raises."""
        views = read_args(type(self), self.desc, self.device, args)
        if self._nothing_to_write(views):
            return self.rows[0], Geometry((), layout="empty"), views
        variant, geometry = choose(self.rows, Problem(self.desc, self.device, views), self.preference)
        return variant, geometry, views

    def _nothing_to_write(self, views: Mapping[str, Any]) -> bool:
        for spec in arrays_of(self.args):
            value = views[spec.name]
            if (
                spec.writes
                and value is not None
                and any(v.size for v in (value if isinstance(value, tuple) else (value,)))
            ):
                return False
        return True

    @cached_property
    def _dense(self) -> Problem:
        return dense_problem(type(self), self.desc, self.device)

    @cached_property
    def sku(self) -> KernelSku:
        """The kernel that dense operands take."""
        variant, geometry = choose(self.rows, self._dense, self.preference)
        return self._sku(variant, geometry.layout)

    @cached_property
    def precision_guarantee(self) -> PrecisionGuarantee:
        """The weakest promise over the rows this plan may take."""
        promises = [v.guarantee.of(self.desc.element, self.kind) for v in self.rows]
        weakest = promises[0]
        for promise in promises[1:]:
            weakest = weakest.weakest(promise)
        return weakest

    def explain(self) -> str:
        """The dispatch table with each row's verdict for dense operands."""
        lines = [
            f"{self.op}{f'[{self.kind.value}]' if self.kind else ''}  {self.desc}"
            f"  on {self.device} ({self.device.name})"
        ]
        taken = False
        for variant in self.table():
            why = self._refused[variant.name]
            if why is None:
                found = fit(variant, self._dense, self.preference)
                if isinstance(found, str):
                    why = found
                else:
                    why = f"{'would do' if taken else 'taken'}  {found.layout}"
                    why += f", workspace {found.workspace} B" if found.workspace else ""
                    taken = True
            lines.append(f"  {variant.name:<20} {variant.design.value:<6} {variant.backend.value:<8} {why}")
        return "\n".join(lines)

    def _sku(self, variant: Variant, layout: str) -> KernelSku:
        element = self.desc.element
        promise = variant.guarantee.of(element, self.kind)
        aux = getattr(self.desc, "aux_element", None)
        return KernelSku(
            self.category, self.op, variant.name, element, layout, variant.design, variant.backend, promise,
            None if self.kind is None else self.kind.value, aux,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.desc} on {self.device}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled and copied as what was asked for: where it is loaded it is selected again, on that ordinal."""
        device = self.device if self.device.fake else str(self.device)
        return _reselect, (type(self), self.desc, self.preference, device)

    # -- hooks a page may override ---------------------------------------------------------------------

    @classmethod
    def table(cls) -> tuple[Variant, ...]:
        """The page's rows and the NumPy row every op has."""
        return (*cls.variants, numpy_row(cls))

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        """Relations between operands that the declaration cannot say; raise InvalidProblemError."""

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

    @classmethod
    def flops(cls, desc: Any) -> int:
        """Arithmetic operations of the formula; 0 where bytes alone bound the op."""
        return 0


class Vjp:
    """Links a forward plan to its backward one.

    saves: forward output → backward input of another name; outputs and inputs of equal names need no entry.
    grads: forward input → backward output. The cotangent of forward output `y` is the backward input `dy`.
    """

    def __init__(self, plan: str, *, saves: Mapping[str, str] | None = None, grads: Mapping[str, str]) -> None:
        self.plan = plan
        self.saves = dict(saves or {})
        self.grads = dict(grads)

    def cotangents(self, forward: type[Plan], backward: type[Plan]) -> Sequence[str]:
        """The forward outputs that have a cotangent input `d<name>` in the backward plan."""
        inputs = {o.name for o in arrays_of(backward.args) if o.reads}
        return [o.name for o in arrays_of(forward.args) if o.writes and f"d{o.name}" in inputs]


@memo(maxsize=_CACHED_PLANS)
def _select(cls: type[Plan], desc: Descriptor, preference: PlanPreference, device: Device) -> Plan:
    return cls(desc, preference, device)


def _reselect(cls: type[Plan], desc: Descriptor, preference: PlanPreference, device: Any) -> Plan:
    return cls.select(desc, preference, device=device)


@memo()
def numpy_row(cls: type[Plan]) -> Variant:
    """The reference backend's row: any layout, float64 inside, one rounding."""
    promised = cls.variants[0].guarantee if cls.variants else Guarantee()
    guarantee = Guarantee(promised.error, math="float64", batch_invariant=True, native=promised.native)
    elements = {
        e
        for v in cls.variants
        for k in (cls.kinds or (None,))
        if v.kinds is None or k in v.kinds
        for e in v.elements_for(k)
    }
    return Variant(
        "numpy", lambda problem: Geometry((), layout="strided"),
        elements=tuple(e for e in type(next(iter(elements))) if e in elements) if elements else (),
        design=ArchSku.ANY, backend=BackendKind.NUMPY, guarantee=guarantee,
    )  # fmt: skip
