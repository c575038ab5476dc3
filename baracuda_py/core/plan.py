"""`Plan`: a declared op chosen for a descriptor on a device. What runs it is its runner (`core.execution`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..interop.dynamo import PLAN, broken_at
from .args import Args, arrays_of
from .checked import shown
from .descriptor import Descriptor
from .device import Device, resolve_device
from .dispatch import Verdict, choose, dense_problem, fit, read_args, refuse_row
from .errors import BaracudaError, InvalidProblemError, UnsupportedError
from .execution import Runner, runner_for
from .memo import cached_property, memo
from .preference import PlanPreference, preferred
from .sku import KernelSku, PrecisionGuarantee
from .spec import Spec
from .tuned import ordered
from .variant import Geometry, Problem, Variant
from .watch import watched

PLANS: dict[str, type[Plan]] = {}
"""Every plan that pages declare, by class name."""

NAMED: dict[str, type[Plan]] = {}
"""Names for some kinds of one of them."""

_CACHED_PLANS = 4096
_log = logging.getLogger("baracuda_py.sku")


class Plan(Spec):
    """Base of all plans: an op's declaration (`Spec`), chosen for a descriptor on a device, with what runs it.

    A page subclasses it and declares what `Spec` says.
    """

    def __init_subclass__(cls, **facts: Any) -> None:
        super().__init_subclass__(**facts)
        if cls.op and not cls.made:
            (NAMED if cls.pinned else PLANS)[cls.__name__] = cls

    def __init__(self, desc: Descriptor, preference: PlanPreference, device: Device) -> None:
        self.desc = desc
        self.preference = preference
        self.device = device
        self.kind = getattr(desc, "kind", None) if self.kinds else None
        if self.pinned and self.kinds and self.kind not in self.kinds:
            known = " or ".join(kind.value for kind in self.kinds)
            raise InvalidProblemError(f"{type(self).__name__} is for kind {known}, got {shown(self.kind)}")
        self._refused = {v.name: refuse_row(type(self), v, desc, device, preference) for v in self.table()}
        self.rows = tuple(v for v in self.table() if self._refused[v.name] is None)
        if not self.rows:
            raise UnsupportedError(
                f"no row of {type(self).__name__} serves this descriptor on {device}", self.explain()
            )
        self.runner: Runner = watched(self, runner_for(device.kind)(self))

    # -- the three steps -------------------------------------------------------------------------------

    @classmethod
    @broken_at(PLAN)
    def select(cls, desc: Descriptor, preference: PlanPreference | None = None, *, device: Any = None) -> Plan:
        """The plan for a descriptor on a device (see `resolve_device`). Host only; cached."""
        return _select(cls, cls.described(desc), preferred(preference), resolve_device(device))

    @classmethod
    def described(cls, desc: Descriptor) -> Descriptor:
        """The descriptor, where it is one of this plan; raises for another's."""
        if type(desc) is not cls.descriptor:
            raise InvalidProblemError(f"{cls.__name__} takes {cls.descriptor.__name__}, got {type(desc).__name__}")
        return desc

    def can_implement(self, args: Args) -> Verdict:
        """Whether `run(args)` works, and with which kernel. Host only, never raises."""
        try:
            variant, geometry, _ = self.plan_layout(args)
        except BaracudaError as error:
            return Verdict(error=error)
        return Verdict(self._sku(variant, geometry))

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
        self.runner.prepare(args)

    def bind(self, args: Args, workspace: Any = None, stream: Any = None) -> Callable[[], None]:
        """A callable with everything fixed: one launch a call, on `stream` (default: current at each call).

        A workspace that is not given here is made for each stream and thread that calls, and kept; one that is given
        serves calls that do not run at the same time.
        """
        return self.runner.bind(args, workspace, stream)

    @broken_at(PLAN)
    def run(self, args: Args, workspace: Any = None, stream: Any = None) -> None:
        """Run on the current stream (or `stream`), asynchronously. Raises the typed error of `can_implement`."""
        self.runner.run(args, workspace, stream)

    def announce(self, variant: Variant, geometry: Geometry) -> None:
        """Log the SKU of a layout seen for the first time (logger `baracuda_py.sku`, level INFO)."""
        if _log.isEnabledFor(logging.INFO):
            _log.info("%s", self._sku(variant, geometry))

    def __call__(self, /, *, workspace: Any = None, stream: Any = None, **arrays: Any) -> None:
        """`run` with the operands as keywords."""
        self.run(self.args(**arrays), workspace, stream)

    # -- what it is ------------------------------------------------------------------------------------

    def plan_layout(self, args: Args, measuring: bool = False) -> tuple[Variant, Geometry, Mapping[str, Any]]:
        """Validate and choose; raises. `measuring`: rows may be timed first, where `autotune` asks for it."""
        views = read_args(type(self), self.desc, self.device, args)
        if self._nothing_to_write(views):
            return self.rows[0], Geometry((), layout="empty"), views
        variant, geometry = self._choose(Problem(self.desc, self.device, views), measuring)
        return variant, geometry, views

    def _choose(self, problem: Problem, measuring: bool = False) -> tuple[Variant, Geometry]:
        return choose(ordered(self, problem, measuring), problem, self.preference)

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
        variant, geometry = self._choose(self._dense)
        return self._sku(variant, geometry)

    @cached_property
    def precision_guarantee(self) -> PrecisionGuarantee:
        """The weakest promise over the rows this plan may take."""
        promises = [v.guarantee.of(self.desc.element, self.kind, self.desc) for v in self.rows]
        weakest = promises[0]
        for promise in promises[1:]:
            weakest = weakest.weakest(promise)
        return weakest

    def explain(self, args: Args | None = None) -> str:
        """The dispatch table with each row's verdict for dense operands, or for those of a call."""
        problem = self._dense
        if args is not None:
            problem = Problem(self.desc, self.device, read_args(type(self), self.desc, self.device, args))
        lines = [
            f"{self.op}{f'[{self.kind.value}]' if self.kind else ''}  {self.desc}"
            f"  on {self.device} ({self.device.name})"
        ]
        open_rows = [v for v in self.table() if self._refused[v.name] is None]
        fits = {v.name: fit(v, problem, self.preference) for v in open_rows}
        taken = next((v.name for v in ordered(self, problem) if not isinstance(fits[v.name], str)), None)
        for variant in self.table():
            why = self._refused[variant.name]
            if why is None:
                found = fits[variant.name]
                if isinstance(found, str):
                    why = found
                else:
                    why = f"{'taken' if variant.name == taken else 'would do'}  {found.layout}"
                    why += f", workspace {found.workspace} B" if found.workspace else ""
                    why += f", the bits that {shared} shares" if (shared := variant.guarantee.same_bits) else ""
            lines.append(f"  {variant.name:<20} {variant.design.value:<6} {variant.backend.value:<8} {why}")
        return "\n".join(lines)

    def _sku(self, variant: Variant, geometry: Geometry) -> KernelSku:
        element = self.desc.element
        promise = variant.guarantee.of(element, self.kind, self.desc)
        if geometry.order:
            promise = replace(promise, order=geometry.order)
        aux = getattr(self.desc, "aux_element", None)
        return KernelSku(
            self.op, variant.name, element, geometry.layout, variant.design, variant.backend, promise,
            None if self.kind is None else self.kind.value, aux,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.desc} on {self.device}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled and copied as what was asked for: where it is loaded it is selected again, on that ordinal."""
        device = self.device if self.device.fake else str(self.device)
        return _reselect, (type(self), self.desc, self.preference, device)


@memo(maxsize=_CACHED_PLANS)
def _select(cls: type[Plan], desc: Descriptor, preference: PlanPreference, device: Device) -> Plan:
    return cls(desc, preference, device)


def _reselect(cls: type[Plan], desc: Descriptor, preference: PlanPreference, device: Any) -> Plan:
    return cls.select(desc, preference, device=device)
