"""Device code of an update: the formula's functor, and how the lists' elements are read and written.

The text follows optimizer/update.cu in the unit. Lists are p.a0, p.a1, … in the order of `UpdateShape.lists`; those of
8-bit codes have scales p.q0, … beside them.
"""

from __future__ import annotations

from ..core.element import ElementKind
from .cpp import functor, has_near, headers, value_type
from .program import result_of
from .update_shape import UpdateShape

_TABLE = {
    "signed": "tables.both_signs", "unsigned": "tables.no_sign", "linear": "LinearCodes<true>{}",
    "unsigned_linear": "LinearCodes<false>{}", "fp8": "Fp8Codes{}",
}  # fmt: skip
_EACH = """#pragma unroll
    for (int k = 0; k < V; ++k) f({passed});"""
_NEAR = """constexpr int group = V < 4 ? V : 4;
#pragma unroll
    for (int first = 0; first < V; first += group) {{
      Near near;
#pragma unroll
      for (int k = first; k < first + group; ++k) f.near({passed}, near);
      if (near.usual()) continue;
#pragma unroll
      for (int k = first; k < first + group; ++k) f({passed});
    }}"""
_PLAIN = '#include "optimizer/codes_plain.cuh"\n'


def width(elements: tuple[ElementKind, ...], coded: bool) -> int:
    """Elements that a thread moves together: 16 bytes of the widest, and 8 beside codes, as a warp has a block then."""
    return 8 if coded else 16 // max(element.itemsize for element in elements)


def update_text(shape: UpdateShape, elements: tuple[ElementKind, ...], compute: ElementKind) -> str:
    """`Formula`, and `Lists`, which reads and writes; elements: of each list as stored (codes are uint8)."""
    program = shape.program(compute)
    acc = compute.ctype
    place = {name: i for i, name in enumerate(shape.lists)}
    used = {step.value for step in program.steps if step.form == "input"}
    fields, reads, decoded, stores = [], [], [], []
    held, placed = [], []
    for name in shape.lists:
        i, kind = place[name], elements[place[name]].ctype
        const = "" if name in shape.written else "const "
        if name in shape.singles:
            held.append(f"{acc} a{i};")
            placed.append(f"cast<{acc}>(static_cast<const {kind}*>(p.a{i}[t])[0])")
        else:
            held.append(f"{const}{kind}* a{i};")
            placed.append(f"static_cast<{const}{kind}*>(p.a{i}[t]) + at[{i}]")
        if name in shape.codes:
            held.append(f"float* q{i};")
            placed.append(f"static_cast<float*>(p.q{i}[t]) + at[{i}] / code_block")
    for n, name in enumerate(shape.read):
        if n not in used:
            continue
        i, kind = place[name], elements[place[name]].ctype
        if name in shape.singles:
            decoded.append(f"const {acc} x{n} = place.a{i};")
            continue
        fields.append(f"Held<{kind}, V> a{i};")
        reads.append(f"in.a{i} = fetched<FULL, V>(static_cast<const {kind}*>(place.a{i} + at), left, wide);")
        if name in shape.codes:
            fields.append(f"float q{i};")
            reads.append(f"in.q{i} = FULL || left > 0 ? place.q{i}[at / code_block] : 0.0f;")
            decoded.append(
                f"const Vec<{acc}, V> x{n} = decoded({_TABLE[shape.codes[name]]}, in.a{i}.value(), in.q{i});"
            )
        else:
            decoded.append(f"const Vec<{acc}, V> x{n} = in.a{i}.template as<{acc}>();")
    for j, name in enumerate(shape.written):
        i, kind = place[name], elements[place[name]].ctype
        value = f"cast_vec<{kind}>(y{j})"
        if name in shape.codes:
            value = f"encoded<FULL>({_TABLE[shape.codes[name]]}, y{j}, place.q{i} + at / code_block, left)"
        elif name == shape.stochastic:
            value = f"at_random<{kind}>(cast_vec<{acc}>(y{j}), drawing.seed, drawing.offset, drawing.number + at)"
        stores.append(f"put<FULL>(place.a{i} + at, {value}, left, wide);")
    each = ["" if name in shape.singles else "[k]" for name in shape.read]
    passed = [f"x{n}{each[n]}" if n in used else "{}" for n in range(len(shape.read))]
    passed += [f"y{j}[k]" for j in range(len(shape.written))]
    kinds = [value_type(result_of(program.steps[index])) for index, _ in program.outputs]
    made = [f"Vec<{kind}, V> y{j};" for j, kind in enumerate(kinds)]
    kept = set(shape.codes.values())
    coded = bool(kept)
    together = width(tuple(elements[place[n]] for n in shape.whole), coded)
    pointers = ", ".join(f"p.a{i}[t]" for i, n in enumerate(shape.lists) if n in shape.whole)
    near = coded and has_near(program)
    each_of = _NEAR if near else _EACH
    more = _PLAIN if kept - {"signed", "unsigned"} else ""
    return f"""{headers(program)}{more}namespace baracuda {{
{functor("Formula", program, near=near)}
struct Lists {{
  using Rule = Formula;
  using Tables = CodeTables<{_bool("signed" in kept)}, {_bool("unsigned" in kept)}>;
  static constexpr int count = {len(shape.lists)}, width = {together};
  static constexpr bool coded = {_bool(coded)}, numbered = {_bool(bool(shape.stochastic))};
  template <class P> static BARACUDA_D bool aligned(const P& p, int t) {{ return all_aligned({pointers}); }}
  struct Place {{ {" ".join(held)} }};
  template <class P, class At> static BARACUDA_D Place place(const P& p, int t, const At& at) {{
    return {{{", ".join(placed)}}};
  }}
  template <int V> struct Chunk {{ {" ".join(fields)} }};
  template <int V, bool FULL>
  static BARACUDA_D Chunk<V> read([[maybe_unused]] const Place& place, u32 at, int left, [[maybe_unused]] bool wide) {{
    Chunk<V> in;
    {_lines(reads)}
    return in;
  }}
  template <int V, bool FULL>
  static BARACUDA_D void write(const Place& place, const Formula& f, [[maybe_unused]] const Tables& tables,
                               u32 at, int left, bool wide, [[maybe_unused]] const Chunk<V>& in,
                               [[maybe_unused]] const Drawing& drawing) {{
    {_lines(decoded)}
    {_lines(made)}
    {each_of.format(passed=", ".join(passed))}
    {_lines(stores)}
  }}
}};
}}  // namespace baracuda
"""


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _lines(lines: list[str]) -> str:
    return "\n    ".join(lines)
