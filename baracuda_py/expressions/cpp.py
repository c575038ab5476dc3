"""Device code of a formula: a functor that calls the tables' own functors, element by element.

`functor(name, program)` is the interface for all that embeds formulas. Its text defines, in namespace baracuda,

    struct NAME {
      template <class P> BARACUDA_D explicit NAME(const P& p);               // reads scalars p.s0(), p.s1(), …
      BARACUDA_D void operator()(A0 x0, A1 x1, …, B0& y0, …) const;          // one element
    };

where Ai is value_t of input i's element (float of 16-bit floats, i32 of i8, …: elementwise/expression.cuh), and Bj that
of output j's. What scalars make among themselves is computed in the constructor, once a thread. The text needs
`elementwise/expression.cuh` and what `headers(program)` includes before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..core.element import HALVES, ElementKind
from .function import Rule
from .program import Program, Step, rank, result_of

_MULTIPLICATIVE = frozenset(
    {"mul", "div", "neg", "abs", "sqrt", "rsqrt", "square", "cube", "reciprocal", "relu", "leaky_relu", "maximum",
     "minimum", "fmax", "fmin", "copysign"}
)  # fmt: skip
"""Functions whose result has about the relative error of their arguments."""


NEAR = {"sqrt": "near.sqrt({0})", "div": "near.quotient({0}, {1})"}
"""Functions of floats that `kernels/optimizer/near.cuh` has without branches."""


def has_near(program: Program) -> bool:
    """Whether elements go through one of `NEAR` in float32."""
    return any(_is_near(step) for step in program.steps)


def _is_near(step: Step) -> bool:
    """Of a call, for each element, in float32."""
    return (
        step.form == "call" and not step.uniform and step.value.name in NEAR and value_type(step.element) == "float"
    )  # fmt: skip


def functor(name: str, program: Program, scalars: Sequence[str] | None = None, near: bool = False) -> str:
    """The text of a functor; see the module's page for its form. scalars: what p calls them, by default s0, s1, …

    near: it has a method `near` besides, as the operator, whose last parameter is a `Near` that makes `NEAR`.
    """
    code = _Code(program, scalars)
    takes = [f"{value_type(element)} x{i}" for i, element in enumerate(program.inputs)]
    gives = [f"{value_type(result_of(program.steps[index]))}& y{j}" for j, (index, _) in enumerate(program.outputs)]
    lines = [
        f"struct {name} {{",
        *(f"  {kind} {member};" for member, kind in code.members()),
        f"  template <class P> BARACUDA_D explicit {name}([[maybe_unused]] const P& p) {{",
        *(f"    {line}" for line in code.uniform()),
        "  }",
        *code.method("operator()", (*takes, *gives), False),
        *(code.method("near", (*takes, *gives, "Near& near"), True) if near else ()),
        "};",
    ]
    return "\n".join(lines) + "\n"


def value_type(element: ElementKind) -> str:
    """The C++ type that values of an element are computed in: value_t of it."""
    if element.is_float:
        return element.acc.ctype
    if element is ElementKind.BOOL:
        return "bool"
    signed = element.limits.min < 0
    return ("i64" if signed else "u64") if element.bits == 64 else "i32" if signed else "u32"


class _Code:
    def __init__(self, program: Program, scalars: Sequence[str] | None) -> None:
        self.program = program
        self.scalars = scalars or [f"s{i}" for i in range(len(program.scalars))]
        self.fine = _may_be_narrow(program)

    def name(self, index: int) -> str:
        step = self.program.steps[index]
        if step.form == "input":
            return f"x{step.value}"
        if step.form == "constant":
            return literal(step.value, step.element)
        return f"{'u' if step.uniform else 'v'}{index}"

    def members(self) -> list[tuple[str, str]]:
        """What the constructor computes that elements need, with its type."""
        steps = self.program.steps
        needed = {i for step in steps if not step.uniform for i in step.args} | {i for i, _ in self.program.outputs}
        return [
            (self.name(i), value_type(result_of(step)))
            for i, step in enumerate(steps)
            if step.uniform and step.form != "constant" and i in needed
        ]

    def uniform(self) -> list[str]:
        members = {name for name, _ in self.members()}
        return [
            f"{'' if self.name(i) in members else f'const {value_type(result_of(step))} '}{self.name(i)} = "
            f"{self.value(i, step)};"
            for i, step in enumerate(self.program.steps)
            if step.uniform and step.form != "constant"
        ]

    def method(self, name: str, parameters: Iterable[str], near: bool) -> list[str]:
        """What makes the outputs of one element."""
        return [
            f"  BARACUDA_D void {name}({', '.join(parameters)}) const {{",
            *(f"    {line}" for line in self.each(near)),
            *(f"    y{j} = {self.name(index)};" for j, (index, _) in enumerate(self.program.outputs)),
            "  }",
        ]

    def each(self, near: bool = False) -> list[str]:
        return [
            f"const {value_type(result_of(step))} {self.name(i)} = {self.value(i, step, near)};"
            for i, step in enumerate(self.program.steps)
            if not step.uniform and step.form not in ("constant", "input")
        ]

    def value(self, index: int, step: Step, near: bool = False) -> str:
        args = [self.name(i) for i in step.args]
        element = step.element
        if near and _is_near(step):
            return NEAR[step.value.name].format(*args)
        if step.form == "scalar":
            return f"p.{self.scalars[step.value]}()"
        if step.form == "cast":
            return f"rounded<{element.ctype}>({args[0]})"
        if step.form == "convert":
            if element is ElementKind.BOOL:
                return f"{args[0]} != 0"
            narrow = rank(element) == 1 and element.bits < 32
            how = f"rounded<{element.ctype}>" if narrow else f"static_cast<{value_type(element)}>"
            return f"{how}({args[0]})"
        wide = element.acc if element.is_float and not self.fine[index] else element
        text = step.value.cpp.format(*args, T=wide.ctype, A=value_type(element))
        wraps = step.value.rule is Rule.NUMBER and rank(element) == 1 and element.bits < 32
        return f"rounded<{element.ctype}>({text})" if wraps else text


def _may_be_narrow(program: Program) -> list[bool]:
    """Of each step, whether the form of its function for the 16-bit element will do.

    That form is as accurate as the element needs, for arguments that are values of the element. So its result may go
    into an output of the element, through what keeps relative errors, and nowhere else: a difference would show them.
    """
    steps = program.steps
    uses: list[list[tuple[int, int]]] = [[] for _ in steps]
    for number, step in enumerate(steps):
        for place, i in enumerate(step.args):
            uses[i].append((number, place))
    ends = {(index, element) for index, element in program.outputs}
    others = {index for index, element in program.outputs if element is not steps[index].element}
    keeps = [False] * len(steps)
    for i in reversed(range(len(steps))):
        step = steps[i]
        passed = [keeps[user] and _keeps_errors(steps[user], step.element, place) for user, place in uses[i]]
        whole = all(passed)
        keeps[i] = step.element in HALVES and whole and i not in others and (bool(passed) or (i, step.element) in ends)
    return [
        keeps[i] and step.form == "call" and all(_stored(steps[j], step.element) for j in step.args)
        for i, step in enumerate(steps)
    ]


def _keeps_errors(user: Step, element: ElementKind, place: int) -> bool:
    """Whether the relative error of an argument is that of the result."""
    if user.form != "call" or user.element is not element:
        return False
    return user.value.name in _MULTIPLICATIVE or (user.value.rule is Rule.CHOICE and place > 0)


def _stored(step: Step, element: ElementKind) -> bool:
    return step.uniform or (step.stored and step.element is element)


def literal(value: Any, element: ElementKind) -> str:
    """A number as C++ of the element's value type."""
    kind = value_type(element)
    if element is ElementKind.BOOL:
        return "true" if value else "false"
    if not element.is_float:
        whole = int(value)
        digits = f"{whole}ull" if whole >= 2**63 else f"({whole + 1}ll - 1)" if whole == -(2**63) else f"{whole}ll"
        return f"{kind}({digits})"
    number = float(np.float32(value)) if element.acc is ElementKind.F32 else float(value)
    if math.isfinite(number):
        text = repr(number)
        return f"{kind}({text}f)" if kind == "float" else f"{kind}({text})"
    sign = "-" if number < 0 else ""
    return f"{sign}numeric<{kind}>::{'nan' if math.isnan(number) else 'infinity'}()"


def headers(program: Program) -> str:
    """The includes that a functor's text needs besides elementwise/expression.cuh."""
    wanted = dict.fromkeys(s.value.header for s in program.steps if s.form == "call" and s.value.header)
    return "".join(f'#include "{header}"\n' for header in wanted)


def map_text(program: Program, read: Sequence[int]) -> str:
    """The functor `Formula`, and `FormulaMap<P>`, which reads and writes P's operands p.x0, p.x1, …, p.y0, …

    read: the inputs that are operands of the map, by number; the others must not be in the formula. An output whose
    pointer is null is not written.
    """
    results, count = program.results, len(program.outputs)
    inputs = [(i, program.inputs[i], value_type(program.inputs[i])) for i in read]
    widest = max(element.itemsize for element in (*(element for _, element, _ in inputs), *results))
    passed = [f"x{i}[k]" if i in read else "{}" for i in range(len(program.inputs))]
    passed += [f"y{j}[k]" for j in range(count)]
    values = [value_type(result_of(program.steps[index])) for index, _ in program.outputs]
    reads = [
        f"in.x{i} = place.load(static_cast<const {element.ctype}*>(p.x{i}), {count + n});"
        for n, (i, element, _) in enumerate(inputs)
    ]
    stores = [
        f"if (p.y{j} != nullptr) place.store(static_cast<{c}*>(p.y{j}), {j}, cast_vec<{c}>(y{j}));"
        for j, c in enumerate(element.ctype for element in results)
    ]
    return f"""{headers(program)}#include <baracuda/map.cuh>
namespace baracuda {{
{functor("Formula", program)}
template <class P> struct FormulaMap {{
  static constexpr int operands = {count + len(inputs)}, widest = {widest};
  const P& p;
  const Formula f;
  template <int V> struct Chunk {{ {" ".join(f"Vec<{element.ctype}, V> x{i};" for i, element, _ in inputs)} }};
  BARACUDA_D explicit FormulaMap(const P& p) : p(p), f(p) {{}}
  template <int V> BARACUDA_D Chunk<V> read(const MapPlace<V, operands>& place) const {{
    Chunk<V> in;
    {_lines(reads)}
    return in;
  }}
  template <int V> BARACUDA_D void write(const MapPlace<V, operands>& place, const Chunk<V>& in, bool wanted) const {{
    {_lines([f"const Vec<{kind}, V> x{i} = cast_vec<{kind}>(in.x{i});" for i, _, kind in inputs])}
    {_lines([f"Vec<{kind}, V> y{j};" for j, kind in enumerate(values)])}
#pragma unroll
    for (int k = 0; k < V; ++k) f({", ".join(passed)});
    if (!wanted) return;
    {_lines(stores)}
  }}
}};
}}  // namespace baracuda
"""


def mapped_text(name: str, program: Program, read: Sequence[int], output: int, value: str) -> str:
    """A functor `NAME` for `Mapped` of baracuda/reduce_source.cuh: output `output` of `Formula`, as a C++ `value`."""
    inputs = [(i, program.inputs[i].ctype) for i in read]
    kinds = [value_type(result_of(program.steps[index])) for index, _ in program.outputs]
    passed = [
        f"cast<{value_type(element)}>(x{i})" if i in read else "{}" for i, element in enumerate(program.inputs)
    ] + [f"y{j}" for j in range(len(kinds))]
    return f"""namespace baracuda {{
struct {name} {{
  using Value = {value};
  const Formula f;
  template <class P> BARACUDA_D explicit {name}(const P& p) : f(p) {{}}
  template <class P> static BARACUDA_D void operands(const P& p, const void* (&x)[{len(inputs)}]) {{
    {_lines([f"x[{n}] = p.x{i};" for n, (i, _) in enumerate(inputs)])}
  }}
  BARACUDA_D Value operator()({", ".join(f"{ctype} x{i}" for i, ctype in inputs)}) const {{
    {_lines([f"{kind} y{j};" for j, kind in enumerate(kinds)])}
    f({", ".join(passed)});
    return cast<Value>(y{output});
  }}
}};
}}  // namespace baracuda
"""


def _lines(lines: Sequence[str]) -> str:
    return "\n    ".join(lines)
