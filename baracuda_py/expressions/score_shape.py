"""A score's formula for operands of given elements: its steps, its device code, and what it does in NumPy."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..core.element import ElementKind
from ..core.memo import cached_property, keep
from ..ops.attention.score_terms import Changed
from .cpp import functor, headers, value_type
from .derive import cotangents_of, gradient, simplified
from .errors import ExpressionError
from .formula import RESULT, Formula, output_name
from .nodes import Node, constant, named, ordered, substituted
from .program import Program, program_of, rank, result_of
from .reference import evaluate
from .scores import PLACES, SCORE, Access, ScoreFormula
from .shape import WHOLE, Roles
from .signature import Signature

_PLACE = ElementKind.I32
_PROGRAMS = 1024
SLOPE = "slope"


@dataclass(frozen=True)
class Part:
    """One formula for operands of given elements: what its functor takes, in order, and its steps."""

    arrays: tuple[str, ...]
    numbers: tuple[str, ...]
    program: Program


@dataclass(frozen=True)
class Parts:
    """All of them: the indices of each access, the score with its derivative if that is wanted, the mask.

    spread: the score's derivatives by the elements of float tables, of the accesses `spreads`, in that order.
    """

    accesses: tuple[tuple[Access, Part], ...]
    score: Part | None
    mask: Part | None
    spread: Part | None = None
    spreads: tuple[str, ...] = ()

    def each(self) -> Iterator[Part]:
        """Every part."""
        yield from (part for _, part in self.accesses)
        yield from (part for part in (self.score, self.mask, self.spread) if part is not None)

    @property
    def ulps(self) -> float:
        """The largest error of a function that it calls."""
        steps = [step for part in self.each() for step in part.program.steps if step.form == "call"]
        return max((step.value.ulps for step in steps), default=0.0)


@dataclass(frozen=True)
class ScoreShape:
    """A score's formula whose numbers are what `roles` says."""

    formula: ScoreFormula
    roles: Roles

    @cached_property
    def numbers(self) -> Mapping[str, bool]:
        """The numbers, and whether they are integers."""
        return {name: role == WHOLE for name, role in zip(self.formula.numbers, self.roles, strict=True)}

    @cached_property
    def digest(self) -> str:
        """A hash of the trees and of what the numbers are."""
        said = f"{self.formula.digest} {''.join(role[0] for role in self.roles)}"
        return hashlib.blake2b(said.encode(), digest_size=16).hexdigest()

    @cached_property
    def sloped(self) -> Formula | None:
        """The score and its derivative by s; raises where that is not known."""
        score = self.formula.score
        if score is None:
            return None
        ((_, tree),) = score.outputs
        slope: Any = constant(0.0)
        if SCORE in score.inputs:
            (slope,) = _slopes(score, [SCORE])
        return Formula(score.inputs, ((RESULT, tree), (SLOPE, slope)), score.text, score.spans)

    @cached_property
    def slopes(self) -> Mapping[str, Mapping[str, Node]]:
        """Of each table that the score has a derivative by: its accesses, and the derivatives by them."""
        score, found = self.formula.score, {}
        for table in self.formula.tables if score is not None else ():
            names = [access.name for access in self.formula.accesses if access.table == table]
            names = [name for name in names if score is not None and name in score.inputs]
            if not names or score is None:
                continue
            with contextlib.suppress(ExpressionError):  # a derivative is not known
                found[table] = dict(zip(names, _slopes(score, names), strict=True))
        return found

    def parts(self, kind: Signature, sloped: bool) -> Parts:
        """The steps for operands of these elements: that of q, k and v, then those of the tables."""
        key = (self, kind, sloped)
        return _parts.get(key) or keep(_parts, key, self._made(kind, sloped), _PROGRAMS)

    def _made(self, kind: Signature, sloped: bool) -> Parts:
        acc = kind.elements[0].acc
        tables = dict(zip(self.formula.tables, kind.elements[1:], strict=True))
        elements = {SCORE: acc, **dict.fromkeys(PLACES, _PLACE)}
        accesses = []
        for access in self.formula.accesses:
            part = self._part(access.indices, elements)
            for (index, _), tree in zip(part.program.outputs, access.indices.roots, strict=True):
                if rank(found := result_of(part.program.steps[index])) != 1:
                    raise access.indices.wrong(f"an index is a whole number, got {found}; write int32(…)", tree)
            accesses.append((access, part))
            elements[access.name] = tables[access.table]
        score = self.sloped if sloped else self.formula.score
        made = None if score is None else self._part(score, elements, [acc] * len(score.outputs))
        mask = None if self.formula.mask is None else self._part(self.formula.mask, elements)
        if mask is not None and mask.program.results != (ElementKind.BOOL,):
            formula: Any = self.formula.mask
            raise formula.wrong(f"a mask is true or false, got {mask.program.results[0]}", formula.roots[0])
        slopes = {n: t for table, by in self.slopes.items() if tables[table].is_float for n, t in by.items()}
        if not sloped or not slopes or score is None:
            return Parts(tuple(accesses), made, mask)
        outputs = tuple((f"g{i}", tree) for i, tree in enumerate(slopes.values()))
        inputs = tuple(node.value for node in ordered(slopes.values()) if node.form == "input")
        spread = self._part(Formula(inputs, outputs, score.text, score.spans), elements, [acc] * len(outputs))
        return Parts(tuple(accesses), made, mask, spread, tuple(slopes))

    def _part(self, formula: Formula, elements: Mapping[str, ElementKind], results: Any = None) -> Part:
        arrays = {name: elements[name] for name in formula.inputs if name in elements}
        numbers = {name: self.numbers[name] for name in formula.inputs if name not in elements}
        return Part(tuple(arrays), tuple(numbers), program_of(formula, arrays, numbers, results))

    # -- device code -----------------------------------------------------------------------------------

    @property
    def wanted(self) -> dict[str, str]:
        """Parameters of the kernel of tables' gradients, of each table that may have one: the gradient, its sums."""
        places = [i for i, name in enumerate(self.formula.tables) if name in self.slopes]
        return {f"dt{i}": "ptr" for i in places} | {f"dt{i}_sums": "workspace" for i in places}

    @cached_property
    def fields(self) -> dict[str, str]:
        """The kernels' parameters: of each table the pointer, extents and strides; numbers."""
        found: dict[str, str] = {}
        for i, axes in enumerate(self.formula.tables.values()):
            found |= {f"t{i}": "ptr", f"t{i}_shape": f"i64[{axes}]", f"t{i}_stride": f"i64[{axes}]"}
        return found | {f"s{i}": "iscalar" if whole else "scalar" for i, whole in enumerate(self.numbers.values())}

    def values(self, p: Any) -> dict[str, Any]:
        """What a launch gives for them."""
        found: dict[str, Any] = {}
        for i, name in enumerate(self.formula.tables):
            view = p.views[name]
            found |= {f"t{i}": name, f"t{i}_shape": view.shape, f"t{i}_stride": view.strides}
        return found | {f"s{i}_ptr": name for i, name in enumerate(self.numbers)}

    def code(self, kind: Signature, sloped: bool) -> str:
        """The text of `attention::ScoreFormula` (kernels/attention/score_formula.cuh)."""
        parts = self.parts(kind, sloped)
        places = {name: f"s{i}" for i, name in enumerate(self.numbers)}
        named_parts = [(f"ScoreIndex{i}", part) for i, (_, part) in enumerate(parts.accesses)]
        named_parts += [(name, one) for name, of in _NAMED if (one := getattr(parts, of))]
        structs = [functor(name, one.program, [places[n] for n in one.numbers]) for name, one in named_parts]
        includes = dict.fromkeys(line for one in parts.each() for line in headers(one.program).splitlines())
        members = [(f"const {name} {_member(name)};", f"{_member(name)}(p)") for name, _ in named_parts]
        return f"""{"".join(f"{line}{chr(10)}" for line in includes)}namespace baracuda {{
{"".join(structs)}
namespace attention {{
template <class P> struct ScoreFormula {{
  static constexpr bool changes = {_bool(parts.score)}, hides = {_bool(parts.mask)};
  const P& p;
  {" ".join(member for member, _ in members)}
  BARACUDA_D explicit ScoreFormula(const P& p) : {", ".join(("p(p)", *(begin for _, begin in members)))} {{}}
  template <class A> BARACUDA_D void change([[maybe_unused]] A& s, [[maybe_unused]] A& slope, {_INDICES}) const {{
    {self._change(parts, kind, sloped)}
  }}
  BARACUDA_D bool seen({_INDICES}) const {{
    {self._seen(parts, kind)}
  }}
  {self._spread(parts, kind)}
}};
}}  // namespace attention
}}  // namespace baracuda
"""

    def _change(self, parts: Parts, kind: Signature, sloped: bool) -> str:
        if parts.score is None:
            return "slope = A(1);"
        results = [value_type(result_of(parts.score.program.steps[i])) for i, _ in parts.score.program.outputs]
        lines, passed = self._loads(parts, parts.score, kind)
        lines += [f"{ctype} y{j};" for j, ctype in enumerate(results)]
        lines.append(f"scoreValue({', '.join((*passed, *(f'y{j}' for j in range(len(results)))))});")
        lines.append(f"s = static_cast<A>(y0), slope = {'static_cast<A>(y1)' if sloped else 'A(1)'};")
        return "\n    ".join(lines)

    def _seen(self, parts: Parts, kind: Signature) -> str:
        if parts.mask is None:
            return "return true;"
        lines, passed = self._loads(parts, parts.mask, kind)
        return "\n    ".join([*lines, "bool y;", f"scoreSeen({', '.join((*passed, 'y'))});", "return y;"])

    def _spread(self, parts: Parts, kind: Signature) -> str:
        if parts.spread is None:
            return ""
        lines, passed = self._loads(parts, parts.spread, kind, parts.spreads)
        results = [value_type(result_of(parts.spread.program.steps[i])) for i, _ in parts.spread.program.outputs]
        lines += [f"{ctype} y{j};" for j, ctype in enumerate(results)]
        lines.append(f"scoreSpread({', '.join((*passed, *(f'y{j}' for j in range(len(results)))))});")
        order = list(self.formula.tables)
        for j, name in enumerate(parts.spreads):
            i, access = next((i, one) for i, (one, _) in enumerate(parts.accesses) if one.name == name)
            t, outs = order.index(access.table), [f"i{i}_{n}" for n in range(len(access.indices.outputs))]
            place = f"table_place(p.t{t}_shape, {', '.join(outs)})"
            lines.append(f"add(p.dt{t}, p.dt{t}_sums, {place}, static_cast<A>(y{j}));")
        body = "\n    ".join(lines)
        head = f"BARACUDA_D void spread([[maybe_unused]] A s, {_INDICES}, const Add& add) const"
        return f"template <class A, class Add> {head} {{\n    {body}\n  }}"

    def _loads(
        self, parts: Parts, part: Part, kind: Signature, more: Sequence[str] = ()
    ) -> tuple[list[str], list[str]]:
        """Lines that read what a part needs of tables, and `more` elements, and the arguments of its functor."""
        order, lines = list(self.formula.tables), []
        known = {SCORE: "s", **{place: place for place in PLACES}}
        numbered = {access.name: (i, access, one) for i, (access, one) in enumerate(parts.accesses)}
        needed, pending = set(), [*part.arrays, *more]
        while pending:
            if (name := pending.pop()) in numbered and name not in needed:
                needed.add(name)
                pending += numbered[name][2].arrays
        for name in (access.name for access, _ in parts.accesses if access.name in needed):
            i, access, one = numbered[name]
            table = order.index(access.table)
            element = kind.elements[1 + table]
            outs = [f"i{i}_{n}" for n in range(len(one.program.outputs))]
            for out, (step, _) in zip(outs, one.program.outputs, strict=True):
                lines.append(f"{value_type(result_of(one.program.steps[step]))} {out};")
            lines.append(f"scoreIndex{i}({', '.join((*(known[n] for n in one.arrays), *outs))});")
            of = f"p.t{table}, p.t{table}_shape, p.t{table}_stride, {', '.join(outs)}"
            lines.append(f"const {value_type(element)} v{i} = table_at<{element.ctype}>({of});")
            known[name] = f"v{i}"
        return lines, [known[name] for name in part.arrays]

    # -- reference -------------------------------------------------------------------------------------

    def modifier(
        self, desc: Any, given: Mapping[str, Any], sloped: bool, tables: Mapping[str, np.ndarray] | None = None
    ) -> Callable[[slice, np.ndarray], Changed]:
        """What `scores` calls for a slice of the batch and its scores.

        tables: gradients of tables, which what it gives adds to.
        """
        parts = self.parts(desc.kind, sloped)

        def change(b: slice, s: np.ndarray) -> Changed:
            places = np.ogrid[tuple(slice(0, n) for n in s.shape)]
            held: dict[str, Any] = {name: x.astype(np.int32) for name, x in zip(PLACES, places, strict=True)}
            held |= {SCORE: s, PLACES[0]: held[PLACES[0]] + np.int32(b.start)}
            held |= {name: given[name] for name in self.numbers}
            for access, part in parts.accesses:
                held[access.name] = element_at(given[access.table], _evaluated(part, held, s.dtype))
            results = [] if parts.score is None else _evaluated(parts.score, held, s.dtype)
            whole = [np.array(np.broadcast_to(x, s.shape)) for x in results]
            seen = None if parts.mask is None else np.broadcast_to(_evaluated(parts.mask, held, s.dtype)[0], s.shape)
            spread = partial(self._add, parts, dict(held), tables, s.shape) if tables else None
            return Changed(whole[0] if whole else s, whole[1] if whole[1:] else None, seen, spread)

        return change

    def _add(self, parts: Parts, held: Mapping[str, Any], tables: Any, shape: Any, ds: np.ndarray, seen: Any) -> None:
        """Adds ds times the score's derivatives to the elements of `tables`."""
        if parts.spread is None:
            return
        accesses = {access.name: (access.table, part) for access, part in parts.accesses}
        for name, slope in zip(parts.spreads, _evaluated(parts.spread, held, ds.dtype), strict=True):
            table, part = accesses[name]
            if (total := tables.get(table)) is None or not total.size:
                continue
            places, inside = placed(total, _evaluated(part, held, ds.dtype))
            kept = np.broadcast_to(inside, shape) & (True if seen is None else np.broadcast_to(seen, shape))
            flat = np.broadcast_to(np.ravel_multi_index(tuple(np.broadcast_arrays(*places)), total.shape), shape)
            np.add.at(total.reshape(-1), flat[kept], (ds * slope)[kept])


def _slopes(score: Formula, names: Sequence[str]) -> list[Node]:
    """The derivatives of a score by some of its inputs."""
    outputs = ((output_name(RESULT, score.inputs), score.roots[0]),)
    formula = Formula(score.inputs, outputs, score.text, score.spans)
    (cotangent,) = cotangents_of(formula)
    return simplified(substituted(gradient(formula, names).roots, {named(cotangent): constant(1.0)}))


_parts: dict[Any, Parts] = {}
_NAMED = (("ScoreValue", "score"), ("ScoreSeen", "mask"), ("ScoreSpread", "spread"))
_INDICES = ", ".join(f"[[maybe_unused]] int {place}" for place in PLACES)


def _member(name: str) -> str:
    return name[0].lower() + name[1:]


def _bool(part: Part | None) -> str:
    return "false" if part is None else "true"


def _evaluated(part: Part, held: Mapping[str, Any], dtype: Any) -> list[Any]:
    return evaluate(part.program, [held[n] for n in part.arrays], [held[n] for n in part.numbers], dtype)


def element_at(table: np.ndarray, indices: Sequence[Any]) -> np.ndarray:
    """The table's elements: negative indices count from the end, and what lies outside is 0."""
    places, inside = placed(table, indices)
    if not table.size:
        return np.zeros(np.broadcast_shapes(*(i.shape for i in places)), table.dtype)
    found: np.ndarray = np.where(inside, table[tuple(places)], table.dtype.type(0))
    return found


def placed(table: np.ndarray, indices: Sequence[Any]) -> tuple[list[np.ndarray], Any]:
    """Indices within the table, those that lie outside moved in, and whether they were inside."""
    places: list[np.ndarray] = []
    inside: Any = np.True_
    for index, n in zip(indices, table.shape, strict=True):
        i = np.asarray(index).astype(np.int64)
        i = np.where(i < 0, i + n, i)
        inside = inside & (i >= 0) & (i < n)
        places.append(np.clip(i, 0, max(n - 1, 0)))
    return places, inside
