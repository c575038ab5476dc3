"""`Problem`: one call as XLA keeps it, everything but the buffers; and `Call`, which runs it over XLA's buffers.

A compiled executable names its problems by a text, the custom call's attribute. The text says all of it (plan,
descriptor, operands present, numbers), so an executable that another process compiled finds its problem, too.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import uuid
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..core import registry
from ..core.args import Operand, arrays_of, scalars_of
from ..core.descriptor import Descriptor
from ..core.dispatch import dense_view
from ..core.element import ElementKind
from ..core.errors import BaracudaError, InvalidProblemError
from ..core.memo import cached_property, memo
from ..core.plan import NAMED, PLANS, Plan
from ..core.preference import DEFAULT, PlanPreference
from ..core.tensor import TensorRef, dense_strides


class Buffer(NamedTuple):
    """A dense array of the call. carried: whether JAX has its bytes, as uint8, where there is a dtype for them, too."""

    shape: tuple[int, ...]
    element: ElementKind
    carried: bool = False

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype in JAX."""
        return self.element.carrier if self.carried or self.element.bits < 8 else self.element.dtype


@dataclasses.dataclass(frozen=True)
class Problem:
    """A plan's class, descriptor and preference, and the operands of a call.

    arrays: of each operand present its buffers, one, or those of a list. numbers: scalars that are Python numbers, as
    text (0.0 and -0.0 are two problems). traced: scalars that are 0-d arrays. workspace: bytes that XLA allocates.
    """

    plan: type[Plan]
    desc: Descriptor
    arrays: tuple[tuple[str, tuple[Buffer, ...]], ...]
    numbers: tuple[tuple[str, str], ...] = ()
    traced: tuple[tuple[str, Buffer], ...] = ()
    preference: PlanPreference = DEFAULT
    workspace: int = 0

    @property
    def name(self) -> str:
        """The op, with its kind, for messages."""
        kind = getattr(self.desc, "kind", None) if self.plan.kinds else None
        return f"{self.plan.op}[{kind.value}]" if kind is not None else self.plan.op

    @cached_property
    def operands(self) -> list[tuple[Operand, tuple[Buffer, ...]]]:
        """The operands present with their declarations, in the order of the Args class."""
        held = dict(self.arrays)
        return [(spec, held[spec.name]) for spec in arrays_of(self.plan.args) if spec.name in held]

    @cached_property
    def inputs(self) -> list[tuple[str, Buffer]]:
        """What is read, in XLA's order: operands, then traced scalars."""
        reads = [(spec.name, one) for spec, buffers in self.operands if spec.reads for one in buffers]
        return [*reads, *self.traced]

    @cached_property
    def input_keys(self) -> list[str]:
        """A name for each input: the items of a list are told apart by their numbers."""
        return [*_keys(self.operands, "reads"), *(name for name, _ in self.traced)]

    @cached_property
    def output_keys(self) -> list[str]:
        """The same for each output."""
        return _keys(self.operands, "writes")

    @cached_property
    def outputs(self) -> list[tuple[str, Buffer]]:
        """What is written, in XLA's order; operands that are updated in place are among the inputs, too."""
        return [(spec.name, one) for spec, buffers in self.operands if spec.writes for one in buffers]

    @cached_property
    def aliases(self) -> dict[int, int]:
        """Input → output of the operands that are updated in place."""
        updated = {spec.name for spec, _ in self.operands if spec.role == "inout"}
        sources = [i for i, (name, _) in enumerate(self.inputs) if name in updated]
        goals = [i for i, (name, _) in enumerate(self.outputs) if name in updated]
        return dict(zip(sources, goals, strict=True))

    def buffer(self, name: str) -> Buffer:
        """An operand, which is not a list."""
        return dict(self.arrays)[name][0]

    def select(self, device: Any) -> Plan:
        """The plan on a device, an ordinal or "cpu"."""
        return self.plan.select(self.desc, self.preference, device=device)

    def check(self) -> None:
        """Raise the typed error of operands that do not go together, before anything is compiled."""
        call = Call(self, "cpu")
        if error := call.plan.can_implement(call.sample()).error:
            raise error


def _keys(operands: Iterable[tuple[Operand, tuple[Buffer, ...]]], does: str) -> list[str]:
    each = [(spec, i) for spec, buffers in operands if getattr(spec, does) for i in range(len(buffers))]
    return [f"{spec.name}[{i}]" if spec.many else spec.name for spec, i in each]


_FAR = 1 << 20  # bytes between the addresses of a sample
_ALIGNED = 256  # bytes; XLA aligns less than a workspace must be


class Call:
    """A problem on a device, ready to run over buffers. seen: whether XLA's have been looked at."""

    seen = False

    def __init__(self, problem: Problem, device: int | str) -> None:
        self.problem = problem
        self.plan = problem.select(device)
        self.ordinal = self.plan.device.ordinal
        self.run_refs = self.plan.runner.run_refs
        integer = {spec.name for spec in scalars_of(problem.plan.args) if spec.integer}
        exact = {n for n, text in problem.numbers if n in integer or text.lstrip("-").isdigit()}
        self._numbers = {n: (int if n in exact else float)(text) for n, text in problem.numbers}
        self._ones = {n: 1 if n in integer else 1.0 for n, _ in problem.traced}
        count, read, written = len(problem.inputs), 0, 0
        self._fields: list[tuple[str, bool, list[tuple[int, Any, Any, ElementKind]]]] = []
        for spec, buffers in problem.operands:
            start = count + written if spec.writes else read
            parts = [(start + i, b.shape, dense_strides(b.shape), b.element) for i, b in enumerate(buffers)]
            self._fields.append((spec.name, bool(spec.many), parts))
            read, written = read + len(buffers) * spec.reads, written + len(buffers) * spec.writes
        self._scalars = [(n, read + i, b.element) for i, (n, b) in enumerate(problem.traced)]
        self._pairs = [(source, count + goal) for source, goal in problem.aliases.items()]

    def __call__(self, inputs: Sequence[int], outputs: Sequence[int], stream: int | None) -> None:
        """Run over buffers at these addresses; the last of the outputs is the workspace, where there is one."""
        pointers, memory = [*inputs, *outputs], None
        if self.problem.workspace:
            at = -(-pointers[-1] // _ALIGNED) * _ALIGNED
            memory = TensorRef.of_checked(at, (self.problem.workspace,), (1,), ElementKind.U8, self.ordinal)
        for source, goal in self._pairs:
            if pointers[source] != pointers[goal]:
                raise BaracudaError(f"{self.problem.name}: XLA gave other memory to update than to read")
        given: dict[str, Any] = {
            name: TensorRef.of_checked(pointers[i], (), (), element, self.ordinal) for name, i, element in self._scalars
        }
        self.run_refs(self._args(pointers, given), memory, stream)

    def _args(self, pointers: Sequence[int], scalars: dict[str, Any]) -> Any:
        made, at = TensorRef.of_checked, self.ordinal
        given: dict[str, Any] = {**self._numbers, **scalars}
        for name, many, parts in self._fields:
            refs = [made(pointers[i], shape, strides, element, at) for i, shape, strides, element in parts]
            given[name] = refs if many else refs[0]
        return self.problem.plan.args(**given)

    def sample(self) -> Any:
        """Args over `addresses`."""
        return self._args(self.addresses(), self._ones)

    def addresses(self) -> list[int]:
        """Where inputs and outputs might lie, for nobody to read: apart, and aligned as XLA aligns its own."""
        at, pointers = _FAR, []
        for _, buffer in (*self.problem.inputs, *self.problem.outputs):
            pointers.append(at)
            nbytes = dense_view("an operand", buffer.shape, buffer.element).nbytes
            at += (nbytes // _FAR + 1) * _FAR
        for source, goal in self._pairs:
            pointers[goal] = pointers[source]
        return pointers

    def workspace_size(self) -> int:
        """Bytes that any kernel of the plan needs for these operands."""
        return max(self.plan.workspace_size(), self.plan.workspace_size(self.sample()))


def workspace_bytes(problem: Problem) -> int:
    """What XLA has to allocate for `problem.workspace` to be aligned."""
    return problem.workspace + _ALIGNED


# -- as text ----------------------------------------------------------------------------------------------------------

_known: dict[bytes, Problem] = {}  # what compiled executables name: small beside the executables


@memo()
def key_of(problem: Problem) -> bytes:
    """The text that names a problem; `problem_of` finds it again."""
    text = _text(problem)
    if text is None or _restored(text) != problem:  # made at run time, or of values that a text does not hold
        text = f"{problem.plan.op} {uuid.uuid4().hex}"
    _known[text.encode()] = problem
    return text.encode()


def problem_of(key: bytes) -> Problem:
    """The problem that an executable names."""
    known = _known.get(key)
    if known is None:
        known = _restored(key.decode())
        if known is None:
            raise InvalidProblemError(
                f"an executable of another process names {key.decode()!r}, which only that process knew; compile again"
            )
        known = _known.setdefault(key, known)
    return known


def _text(problem: Problem) -> str | None:
    """The problem as text; None of a plan that is in no registry."""
    if problem.plan.made:
        return None
    facts = {f.name: getattr(problem, f.name) for f in dataclasses.fields(problem)}
    facts |= {"plan": problem.plan.__name__, "desc": _fields(problem.desc), "preference": _fields(problem.preference)}
    try:
        return json.dumps(facts, default=_plain, separators=(",", ":"))
    except TypeError:
        return None


def _fields(held: Any) -> dict[str, Any]:
    return {f.name: getattr(held, f.name) for f in dataclasses.fields(held)}


def _plain(value: Any) -> Any:
    if isinstance(value, ElementKind):
        return str(value)
    if isinstance(value, enum.Enum):
        return value.value
    raise TypeError(f"no text for a {type(value).__name__}")


def _restored(text: str) -> Problem | None:
    """The problem that a text says, or None where it says none."""
    try:
        facts = {name: _tuples(value) for name, value in json.loads(text).items()}
        name = facts.pop("plan")
        plan = PLANS.get(name) or NAMED.get(name) or registry.plan(name)
        return Problem(
            plan=plan, desc=plan.descriptor(**facts.pop("desc")), preference=PlanPreference(**facts.pop("preference")),
            arrays=tuple((name, tuple(map(_buffer, buffers))) for name, buffers in facts.pop("arrays")),
            traced=tuple((name, _buffer(one)) for name, one in facts.pop("traced")), **facts,
        )  # fmt: skip
    except (BaracudaError, ValueError, LookupError, TypeError, AttributeError):
        return None


def _buffer(held: Any) -> Buffer:
    shape, element, carried = held
    return Buffer(shape, ElementKind.of(element), carried)


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
