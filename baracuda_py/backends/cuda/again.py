"""Lists of torch tensors, call after call: what a launch depends on is compared list by list, then it is launched.

A step of an optimizer has hundreds of tensors and is called with as many again that lie as the last ones did. `Again`
holds what was prepared for such lists. It compares whole lists (shapes, strides, dtypes, devices, addresses), and
whatever is otherwise is left to `run`, which validates every operand and says what is wrong. No tensor is held.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from operator import attrgetter, or_
from typing import Any

import numpy as np

from ...core import config
from ...core.args import Args, arrays_of, scalars_of
from ...core.arrays import read
from ...interop.packages import package_name
from ...interop.torch_rules import may_be_lazy
from .intake import scalar_value, torch_names, twin
from .prepared import Layouts

_RAW, _CHECK = config.raw("BARACUDA_CHECK")
_LEAST, _MOST = -(2.0**63), 2.0**63  # numbers that go into a launch as they are
_SHAPE, _DTYPE, _GROWS = attrgetter("shape"), attrgetter("dtype"), attrgetter("requires_grad")


class Again:
    """Calls of a plan of lists whose tensors lie as those of `args` do."""

    @staticmethod
    def serves(runner: Layouts, args: Args) -> bool:
        """Whether all operands are lists of torch's own tensors."""
        arrays = [getattr(args, spec.name) for spec in arrays_of(runner.plan.args)]
        if not all(isinstance(one, (list, tuple)) and one for one in arrays):
            return False
        kind = type(arrays[0][0])
        return package_name(kind) == "torch" and twin(kind) is not kind

    def __init__(self, runner: Layouts, args: Args) -> None:
        specs = arrays_of(runner.plan.args)
        self.runner: Any = runner
        self.names = tuple(spec.name for spec in specs)
        self.scalars = [(spec.name, spec, int if spec.integer else float) for spec in scalars_of(runner.plan.args)]
        self.written = tuple(spec.name for spec in specs if spec.writes)
        self.torch = torch_names()
        lists = [getattr(args, name) for name in self.names]
        kind = type(lists[0][0])
        self.kinds = {kind, twin(kind)}
        self.pointer, self.stride, self.device = (getattr(kind, n) for n in ("data_ptr", "stride", "get_device"))
        self.facts = {
            name: (list(map(_SHAPE, one)), list(map(self.stride, one)), list(map(_DTYPE, one)))
            for name, one in zip(self.names, lists, strict=True)
        }
        self.prepared, layout = runner.ready(runner.refs(args)[1])
        spans = np.array(layout.spans, np.int64).reshape(-1, 2)
        self.filled = np.flatnonzero(spans[:, 1] > spans[:, 0])
        """The places of tensors that have elements, in all lists together, and where their bytes begin and end."""
        self.begins, self.ends = spans[self.filled].T
        self.lazy = {
            name: [i for i, x in enumerate(one) if may_be_lazy(x.shape, x.stride(), read(x, name).element)]
            for name, one in zip(self.names, lists, strict=True)
        }
        """The places of tensors that may have their negative bit set."""
        self.last: dict[str, list[int]] = {}
        """The addresses of the last call, list by list."""

    def run(self, lists: Mapping[str, Sequence[Any]], numbers: Mapping[str, Any], kept: Collection[str] = ()) -> bool:
        """Launch on the current stream; False where these lists are otherwise, and nothing is done.

        kept: lists of the very tensors of an earlier call; of those at the same addresses only strides are compared.
        """
        try:
            addresses = self._addresses(lists, kept)
        except RuntimeError:  # of a tensor without strides or memory
            return False
        return addresses is not None and self._launched(addresses, lists, numbers)

    def _addresses(self, lists: Mapping[str, Sequence[Any]], kept: Collection[str]) -> dict[str, list[int]] | None:
        runner, torch, last = self.runner, self.torch, self.last
        if torch["FORWARD"]._current_level >= 0 or _RAW(_CHECK) != runner.check or runner.checked:
            return None
        if runner.several and runner.runtime.current_device() != runner.ordinal:
            return None
        grows, found = torch["GRAD"](), {}
        for name in self.names:
            one, (shapes, strides, dtypes) = lists[name], self.facts[name]
            if not (name in kept and name in last):
                if not self.kinds.issuperset(map(type, one)):
                    return None
                if list(map(_SHAPE, one)) != shapes or list(map(_DTYPE, one)) != dtypes:
                    return None
                if set(map(self.device, one)) != {runner.ordinal}:
                    return None
            if list(map(self.stride, one)) != strides or (grows and any(map(_GROWS, one))):
                return None
            if any(one[i].is_neg() or one[i].is_conj() for i in self.lazy[name]):
                return None
            at = found[name] = list(map(self.pointer, one))
            if name in kept and name in last and at != last[name]:
                return self._addresses(lists, ())
            if at != last.get(name) and reduce(or_, at) & 15:
                return None
        return found

    def _launched(
        self, addresses: dict[str, list[int]], lists: Mapping[str, Sequence[Any]], numbers: Mapping[str, Any]
    ) -> bool:
        runner = self.runner
        flat = list(itertools.chain.from_iterable(addresses.values()))
        if addresses != self.last:
            filled = np.array(flat, np.int64)[self.filled]
            begins, ends = filled + self.begins, filled + self.ends
            order = begins.argsort()
            if (begins <= 0).any() or (ends[order[:-1]] > begins[order[1:]]).any():
                return False
        pointers, values = [], []
        for name, spec, kind in self.scalars:
            value, at = numbers[name], 0
            if type(value) is not kind or not _LEAST <= value < _MOST:
                at, value = scalar_value(value, spec, runner.ordinal, runner.plan.desc)
            pointers.append(at)
            values.append(value)
        if runner.plan.args.__joint__ and tuple(values) != runner.numbers:
            runner.check_numbers(tuple(values), tuple(pointers))
        self.prepared.call((*flat, *pointers, 0, 0, 0), tuple(values), self.torch["CURRENT"](runner.ordinal))
        self.torch["INCREMENT"](tuple(itertools.chain.from_iterable(lists[name] for name in self.written)))
        self.last = addresses
        return True
