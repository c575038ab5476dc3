"""Rows of a dispatch table (`Variant`), the kernels they instantiate, and the geometry they choose.

A page's `variants` tuple is read top-down. A row's `geometry(problem)` looks at the operands' views and
returns a `Geometry` (what to launch) or a string: why the row does not take this layout.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from .device import Device
from .element import FLOATS, ElementKind
from .error_bound import ErrorBound, Exact, Forward, PerOutput
from .errors import BaracudaError
from .params import Params, constants
from .sku import ArchSku, BackendKind, PrecisionGuarantee
from .tensor import View
from .unit import Unit

Axes = Mapping[str, Sequence[Any]]


Blocks: TypeAlias = "int | Callable[[ElementKind, Any], int]"
"""How many blocks a multiprocessor holds at least: a number, or (element, kind) → one; 0 is any number."""


@dataclass(frozen=True, eq=False)  # compared and hashed by identity: axes may be a dict
class Kernel:
    """A template and the finite axes it is instantiated over.

    template: the call in namespace baracuda, e.g. "rms_norm_row<{T}, {VEC}, {I}>"; {T} and {A} are the C++ types of the
    element and its accumulator, {KIND} the kind's C++ name, the rest are axes. A unit includes the `header` of the kind
    that its template names, and no other kind's. axes: name → values, or a function of
    the element; True/False, ints, "i32"/"i64", ElementKinds and C++ names are written as C++. threads: block size for
    __launch_bounds__, a number or the name of an axis, and min_blocks. source: the file under kernels/ it is in,
    if not the row's. kindless: it is the same for every kind of the plan, which share what is compiled. shared: plans
    that give this name share it, whatever the kind. Every instance is a compile unit of its own: a first call compiles
    what it launches and nothing else.
    """

    name: str
    template: str
    params: Params
    axes: Axes | Callable[[ElementKind], Axes] = field(default_factory=dict)
    threads: int | str = 256
    min_blocks: Blocks = 0
    max_registers: int = 255
    source: str = ""
    kindless: bool = False
    shared: str = ""

    def bounds(self, element: ElementKind, axes: Mapping[str, Any], kind: Any) -> str:
        """What __launch_bounds__ takes for an instance."""
        threads = self.threads if isinstance(self.threads, int) else axes[self.threads]
        blocks = self.min_blocks(element, kind) if callable(self.min_blocks) else self.min_blocks
        return f"{threads}, {blocks}" if blocks else f"{threads}"

    def axes_for(self, element: ElementKind) -> Axes:
        return self.axes(element) if callable(self.axes) else self.axes


@dataclass(frozen=True)
class Step:
    """One launch: which kernel and instance, its grid, block and dynamic shared memory, its constant parameters.

    `params` gives every non-pointer field of the kernel's Params. A `workspace` field takes a byte offset,
    a `ptr[...]` field a slice (operand name, start, stop) of a list operand. A `ptr` field named after an
    operand needs nothing; another name takes the operand's name, or (operand name, byte offset); ("@workspace",
    byte offset) is a place in the workspace, "@null" no place. So does `s_ptr` of a scalar field s of another name;
    `s_value` makes it that number.
    A `map` field takes a TensorMap, or None for an operand that is absent. cluster: so many blocks, neighbours along
    the grid's first axis, run at once and reach one another's shared memory (sm_90 and later). times: so many launches,
    one after another, for each of which the i64 field `turn` of the kernel's Params has its number, from 0 on.
    """

    kernel: str
    grid: tuple[int, int, int]
    params: Mapping[str, Any]
    axes: Mapping[str, Any] = field(default_factory=dict)
    block: int = 256
    smem: int = 0
    cluster: int = 1
    times: int = field(default=1, repr=False)


@dataclass(frozen=True)
class LibraryStep:
    """A call into a library: `prepare(device)` does all that may allocate or search, once a layout.

    It returns `call(pointers, scalars, workspace, nbytes, stream)`, where `pointers` and `scalars` follow the
    Args class's arrays and scalars; a scalar is (device pointer or 0, value). Choosing a row asks no library, so its
    geometry has a bound of the workspace; where the call has an attribute `workspace`, it is what the plan needs by
    what the library said when the step was prepared, and so much is allocated.
    """

    prepare: Callable[[Device], Callable[..., None]]


@dataclass(frozen=True)
class Geometry:
    """What a row does with a layout: its steps in order, workspace bytes, and the layout class for the SKU.

    order: what the order of sums is called where the layout decides it, in place of the guarantee's.
    """

    steps: tuple[Step | LibraryStep, ...]
    workspace: int = 0
    layout: str = "contiguous"
    order: str = field(default="", repr=False)


def aligned(nbytes: int) -> int:
    """Bytes a piece of workspace takes: a multiple of 256, so that the next one starts aligned."""
    return -(-nbytes // 256) * 256


class Problem:
    """What a geometry function sees: `desc`, `device`, and one attribute per array operand.

    An attribute, and an item of `views`, is a View, None when the optional operand is absent, or a tuple of Views for a
    list; only the page knows which, so both are `Any`.
    """

    def __init__(self, desc: Any, device: Device, views: Mapping[str, Any]) -> None:
        self.desc = desc
        self.device = device
        self.views = views

    def __getattr__(self, name: str) -> Any:
        try:
            return self.views[name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def wide_index(self) -> bool:
        """Whether some operand's offsets pass 32 bits."""
        return any(v.wide_index for v in self.flat())

    def flat(self) -> Iterator[View]:
        """Every view present, lists unrolled."""
        for view in self.views.values():
            if isinstance(view, tuple):
                yield from view
            elif view is not None:
                yield view


@dataclass(frozen=True)
class Guarantee:
    """A row's promise before its element is known; `of(element)` fills in precisions.

    error: a bound, or element → bound (a mapping or function). exact math in the element itself
    (`native=True`, for moves and integer ops) keeps the element as accumulator. flushes: the elements for which
    subnormal results or partial sums may be 0. roundings: how many follow one another in a descriptor's sums, each by
    half an eps of a partial sum at most, so that a `Forward` bound is no less than half of them; where tensor cores
    truncate what they add 16 products to, that counts twice. same_bits: as in `PrecisionGuarantee`; where an op has
    rows without it, those with it are taken only if `PlanPreference(same_bits=True)` asks for them.
    """

    error: ErrorBound | Mapping[ElementKind, ErrorBound] | Callable[[ElementKind, Any], ErrorBound] = Exact()
    deterministic: bool = True
    batch_invariant: bool = False
    bit_stable: bool = True
    math: str | None = None
    native: bool = False
    order: str = ""
    flushes: tuple[ElementKind, ...] = ()
    roundings: Callable[[Any], int] | None = None
    same_bits: str = ""

    def of(self, element: ElementKind, kind: Any = None, desc: Any = None) -> PrecisionGuarantee:
        """What is promised of an element; `desc`: of a problem, whose sums may be long."""
        bound = self.error
        if isinstance(bound, Mapping):
            bound = bound[element]
        elif not isinstance(bound, ErrorBound):
            bound = bound(element, kind)
        if self.roundings is not None and desc is not None:
            bound = _lengthened(bound, self.roundings(desc))
        acc = str(element if self.native else element.acc)
        kept = element not in self.flushes
        return PrecisionGuarantee(
            self.math or acc, acc, self.bit_stable, self.deterministic, self.batch_invariant, kept, bound, self.order,
            self.same_bits,
        )  # fmt: skip


def _lengthened(bound: Any, roundings: int) -> Any:
    """The bound of sums with so many roundings in a row."""
    if isinstance(bound, PerOutput):
        return PerOutput(tuple((name, _lengthened(one, roundings)) for name, one in bound.bounds))
    return replace(bound, c=max(bound.c, roundings / 2)) if isinstance(bound, Forward) else bound


@dataclass(frozen=True)
class Instance:
    """One extern "C" kernel of a unit; bounds: what __launch_bounds__ takes."""

    symbol: str
    kernel: Kernel
    axes: Mapping[str, Any]
    call: str
    bounds: str
    prelude: str = ""


@dataclass(frozen=True, eq=False)  # compared and hashed by identity, as `Kernel`
class Variant:
    """A row of a dispatch table.

    source: the kernel file under kernels/ (none for a library row). elements: those the row serves, or
    kind → those. kinds: those the row serves (None: all). guarantee: see `Guarantee`. fmad: let the compiler
    contract a*b+c (then the guarantee must not rest on bits being equal across load widths). prelude: (element, kind) →
    C++ made at run time that stands between the kernel file and the kernel, for templates to name. refuses: why the row
    serves a descriptor in no layout at all, or None. first: the problems that it is faster for than the rows above it:
    of those it is asked before them. missing: why what the row calls cannot be used on this machine, with what to
    install, or "" (`Library.unavailable`); asked on real devices only, of problems that the geometry takes.
    may_spill: whether its kernels may spill registers; `locks/` says which do.
    """

    name: str
    geometry: Callable[[Problem], Geometry | str]
    source: str | None = None
    kernels: tuple[Kernel, ...] = ()
    elements: tuple[ElementKind, ...] | Callable[[Any], tuple[ElementKind, ...]] = FLOATS
    design: ArchSku = ArchSku.SM80
    backend: BackendKind = BackendKind.BESPOKE
    guarantee: Guarantee = Guarantee()
    kinds: tuple[Any, ...] | None = None
    fmad: bool = False
    prelude: Callable[[ElementKind, Any], str] | None = None
    refuses: Callable[[Any], str | None] | None = None
    first: Callable[[Problem], bool] | None = None
    missing: Callable[[], str] | None = None
    may_spill: bool = False

    def elements_for(self, kind: Any) -> tuple[ElementKind, ...]:
        return self.elements(kind) if callable(self.elements) else self.elements

    def serves(self, kind: Any, element: ElementKind) -> bool:
        return (self.kinds is None or kind in self.kinds) and element in self.elements_for(kind)

    def kernel(self, name: str) -> Kernel:
        return next(k for k in self.kernels if k.name == name)

    def units(self, op: str, element: ElementKind, kind: Any = None) -> Iterator[tuple[Unit, Instance]]:
        """The compile units of this row for an element: one per kernel and combination of its axes."""
        for kernel in self.kernels:
            axes = kernel.axes_for(element)
            for values in itertools.product(*axes.values()):
                instance = self.instance(op, element, kind, kernel, dict(zip(axes, values, strict=True)))
                yield self.unit(instance), instance

    def launched(self, op: str, element: ElementKind, kind: Any, step: Step) -> tuple[Unit, Instance]:
        """The kernel that a step launches, and the unit that compiles it."""
        kernel = self.kernel(step.kernel)
        declared = kernel.axes_for(element)
        chosen = {name: step.axes[name] for name in declared}
        instance = self.instance(op, element, kind, kernel, chosen)
        if any(value not in declared[name] for name, value in chosen.items()):
            raise BaracudaError(f"{instance.symbol} is not an instance of {kernel.name}: its geometry chose {chosen}")
        return self.unit(instance), instance

    def unit(self, instance: Instance) -> Unit:
        """The unit that compiles an instance."""
        flags = ("-fmad=true",) if self.fmad else ()
        return Unit(instance.symbol.removeprefix("bc_"), self._text(instance), flags, (instance.symbol,))

    def instance(self, op: str, element: ElementKind, kind: Any, kernel: Kernel, axes: Mapping[str, Any]) -> Instance:
        """One instantiation: its symbol and the C++ call."""
        names = {name: _cpp(value) for name, value in axes.items()}
        kind = None if kernel.kindless or kernel.shared else kind
        kind_name = "" if kind is None else _cpp(kind)
        call = kernel.template.format(T=element.ctype, A=element.acc.ctype, KIND=kind_name, **names)
        header = _header(kind) if "{KIND}" in kernel.template else ""
        own = self.prelude(element, kind) if self.prelude and not (kernel.kindless or kernel.shared) else ""
        suffix = "_".join(label(v) for v in axes.values())
        symbol = f"bc_{_tag(kernel.shared or op, kind)}__{kernel.name}__{element}"
        return Instance(
            symbol + (f"__{suffix}" if suffix else ""), kernel, axes, call, kernel.bounds(element, axes, kind),
            "\n".join(filter(None, (header, own))),
        )  # fmt: skip

    def _text(self, instance: Instance) -> str:
        kernel = instance.kernel
        source = kernel.source or self.source
        # A source may name the structs of all its kernels, not only of the one that is instantiated.
        structs = {k.params.name: k.params for k in self.kernels if (k.source or self.source) == source}
        lines = [
            "#include <baracuda/types.cuh>",
            "#include <baracuda/scalar.cuh>",
            *(["#include <baracuda/tensor_map.cuh>"] if any(params.maps for params in structs.values()) else []),
            "namespace baracuda {",
            *constants(structs.values()),
            *(params.cpp for params in structs.values()),
            "}  // namespace baracuda",
            f'#include "{source}"',
            *([instance.prelude] if instance.prelude else []),
            "namespace baracuda {",
            f'extern "C" __global__ void __launch_bounds__({instance.bounds}) {instance.symbol}'
            f"(const __grid_constant__ {kernel.params.name} p) {{ follow_previous(); {instance.call}(p); }}",
            "}  // namespace baracuda",
        ]
        return "\n".join(lines) + "\n"


def label(value: Any) -> str:
    """An axis value as part of a symbol."""
    return str(value).lower().replace(".", "_").replace("-", "m")


def _header(kind: Any) -> str:
    """The include of a kind's functor."""
    file = getattr(kind, "header", "")
    return f'#include "{file}"' if file else ""


def _tag(op: str, kind: Any) -> str:
    name = op.split(".")[-1]
    return name if kind is None else f"{name}_{kind.value}"


def _cpp(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, ElementKind):
        return value.ctype
    return str(getattr(value, "cpp", value))
