"""The functional layer's steady state on host memory: an evaluation found by strides, no Args and no second look.

Outputs made by the layer itself cannot overlap an input, and shapes, dtypes, types and attributes are already in the
functional key. What is left to check are strides, memory and numbers; anything else returns `MISS` and the call goes
through `plan.run`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core import config
from ..core.args import arrays_of, scalars_of
from ..core.arrays import read
from ..core.dispatch import choose, read_numbers
from ..core.errors import BaracudaError
from ..core.execution import MISS, Makers, Views, nothing
from ..core.host_memory import plain_memory
from ..core.memo import keep
from ..core.memory import raise_lacking
from ..core.plan import Plan
from ..core.spec import NUMPY_APART
from ..core.tensor import View
from ..core.variant import Problem
from ..interop.packages import package_name
from .evaluation import Evaluation

_LAYOUTS = 256  # remembered per entry
_NUMBERS = 256


class Direct:
    """The direct path of one functional entry: see `core.execution.Direct`."""

    def __init__(self, plan: Plan, makers: Makers, views: Views = None) -> None:
        self.plan, self.views = plan, views
        specs = arrays_of(plan.args)
        self._reads = [s.name for s in specs if s.reads]
        self._outputs = [(s.name, make) for s, make in zip((s for s in specs if s.role == "out"), makers, strict=True)]
        self._numbers = [s.name for s in scalars_of(plan.args)]
        self._prepared: dict[Any, Evaluation] = {}
        self._taken: dict[Any, bool] = {}  # numbers that the plan takes

    @staticmethod
    def serves(plan: Plan, lead: Any) -> bool:
        """Unchecked plans with plain inputs and outputs, on arrays of NumPy or torch."""
        plain = all(s.role in ("in", "out") and not s.many for s in arrays_of(plan.args))
        return plain and package_name(type(lead)) in ("numpy", "torch") and not config.get("BARACUDA_CHECK")

    def call(self, *given: Any) -> Any:
        """Takes the inputs and numbers in order; returns the outputs, or MISS."""
        key, held = [], {}
        for name, value in zip(self._reads, given, strict=False):
            array = None
            if value is not None:
                array = plain_memory(value)
                if array is None:
                    return MISS
            held[name] = array
            key.append(None if array is None else array.strides)
        evaluation = self._prepared.get(tuple(key))
        numbers = given[len(key) :]
        if evaluation is None or not self._takes(numbers):
            return MISS
        made = []
        for name, make in self._outputs:
            output = make()
            held[name] = None
            if output is not None:
                held[name] = plain_memory(output)
                if held[name] is None:
                    return MISS
                made.append(output)
        if self.views is not None:
            held = self.views(held)
        held.update(zip(self._numbers, numbers, strict=True))
        try:
            evaluation.run(held)
        except MemoryError as error:
            raise_lacking(error, f"what the NumPy backend computes {self.plan.op} with")
        return made[0] if len(made) == 1 else tuple(made)

    def _takes(self, numbers: tuple[Any, ...]) -> bool:
        """Whether numbers are Python's own and the plan takes them."""
        if not numbers:
            return True
        key = tuple([(type(number), number) for number in numbers])
        if not all(kind is float or kind is int for kind, _ in key):
            return False
        if key not in self._taken:
            named = dict(zip(self._numbers, numbers, strict=True))
            try:
                read_numbers(type(self.plan), self.plan.desc, self.plan.device, named)
            except BaracudaError:
                return False
            keep(self._taken, key, True, _NUMBERS)
        return True

    def learn(self, arrays: Mapping[str, Any]) -> None:
        """After a run through `plan.run`: remember how it was evaluated."""
        seen: dict[str, Any] = {n: None if value is None else plain_memory(value) for n, value in arrays.items()}
        if any(seen[name] is None for name, value in arrays.items() if value is not None):
            return
        key = tuple([None if seen[name] is None else seen[name].strides for name in self._reads])
        own: dict[str, Any] = seen if self.views is None else self.views(seen)
        outputs = [own[name] for name, make in self._outputs if make is not nothing]
        if not any(output.size for output in outputs):
            return
        views = {name: None if value is None else _view(value, name) for name, value in own.items()}
        variant, _ = choose(self.plan.rows, Problem(self.plan.desc, self.plan.device, views), self.plan.preference)
        evaluation = Evaluation(type(self.plan), self.plan.desc, own, apart=variant.name == NUMPY_APART)
        keep(self._prepared, key, evaluation, _LAYOUTS)


def _view(array: Any, name: str) -> View:
    got = read(array, name)
    return View(got.ptr, got.shape, got.strides, got.element)
