"""A function of PTX as one of C++: a statement an instruction, in terms of simt.hpp."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .packed import Packed
from .words import UntranslatableError, bits, parts_of, plain, size_of, storage, variable, whole

PARAM = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+([\w$]+)(?:\[(\d+)\])?")
_INSTRUCTION = re.compile(r"(?:@(!?)(%?[\w$]+)\s+)?([a-z][\w.:]*)\s*(.*)$", re.S)
_OPERAND = re.compile(r"(?:\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|[^,{\[(])+")

_TYPES = {"f16", "bf16", "f16x2", "bf16x2", "f32", "f64", "pred",
          *(f"{k}{n}" for k in "bus" for n in (8, 16, 32, 64))}  # fmt: skip
_NOTHING = {"fence", "membar", "griddepcontrol", "setmaxnreg", "prefetch", "discard"}
_QUALIFIERS = {"rn", "approx", "full", "wrap", "sync", "aligned", "ftz"}  # that are no part of a function's name,
_FLUSHES = {"ex2", "rcp"}  # but ftz of these
_OPERATORS = {"add": "+", "sub": "-", "and": "&", "or": "|", "xor": "^"}  # of integers
_COMPARES = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
             "lo": "<", "ls": "<=", "hi": ">", "hs": ">="}  # fmt: skip
_COMBINES = {"and": "&&", "or": "||", "xor": "!="}
_WORDS = {"and": "and_", "or": "or_", "xor": "xor_", "not": "not_"}  # that C++ keeps for itself
_KINDS = {"shl": ("", "u32"), "shr": ("", "u32"), "bfi": ("", "", "u32", "u32"),
          "bfe": ("", "u32", "u32")}  # of operands that differ  # fmt: skip
_POLLS = {"acquire", "relaxed", "volatile"}
_ATOMS = ("add", "min", "max", "and", "or", "xor", "exch", "inc", "dec", "cas")


class Function(Packed):
    """One function: `names` of what has an address, statements in order, declarations before them."""

    def __init__(self, name: str, names: dict[str, str], shared: list[str], dynamic: str) -> None:
        super().__init__(names, dynamic)
        self.name = name
        self.shared = shared
        self.reserved = 0  # bytes of static shared memory
        self.registers: dict[str, tuple[str, int]] = {}  # arrays of them: type and count
        self.arrays: dict[str, tuple[int, bytes]] = {}  # of the thread: alignment and bytes
        self.calls = False  # another
        self.result = ""

    def kernel(self, params: str, body: Iterator[tuple[int, str]]) -> str:
        """A kernel, whose one parameter, a struct, is the thread's."""
        lines = self.statements(params, body)
        text = "\n".join([*self._declared(), *lines])
        sizes = {"static": self.reserved, "dynamic": self.dynamic_from}
        shared = "\n".join(f'extern "C" const u32 {self.name}__{name} = {size};' for name, size in sizes.items())
        return f'{shared}\nextern "C" void {self.name}(Thread& t) {{\n{text}\nleave(t);\n}}'

    def statements(self, params: str, body: Iterator[tuple[int, str]]) -> list[str]:
        """A kernel's, as C++."""
        self.names |= {name: "reinterpret_cast<u64>(t.param)" for _, name, _ in PARAM.findall(params)}
        for declaration in self.shared:
            self._reserve(declaration)
        lines = self._lines(body)
        return [line.replace("@dynamic@", str(self.dynamic_from)) for line in lines]

    @property
    def dynamic_from(self) -> int:
        """Where dynamic shared memory begins, which is after the static."""
        return -(-self.reserved // 1024) * 1024

    def device(self, result: str, params: str, body: Iterator[tuple[int, str]]) -> str:
        """A function that kernels call."""
        made = [f"{storage(kind, count)} {name};" for kind, name, count in PARAM.findall(result)]
        self.names |= {name: f"reinterpret_cast<u64>(&{name})" for _, name, _ in PARAM.findall(f"{params},{result}")}
        self.result = next((name for _, name, _ in PARAM.findall(result)), "void")
        lines = self._lines(body)
        text = "\n".join([*self._declared(), *lines])
        if self.reserved or "@dynamic@" in text:
            raise UntranslatableError(f"{self.name} has shared memory")
        return "\n".join([f"static {self.head(result, params)} {{", *made, text, "}"])

    def head(self, result: str, params: str) -> str:
        """The declaration of a device function."""
        given = ["Thread& t", *(f"{storage(kind, count)} {name}" for kind, name, count in PARAM.findall(params))]
        kind = next((storage(kind, count) for kind, _, count in PARAM.findall(result)), "void")
        return f"{kind} {self.name}({', '.join(given)})"

    def _declared(self) -> list[str]:
        """Registers and arrays of a thread, once all statements are known."""
        registers = [f"{of} {name}[{count}] = {{}};" for name, (of, count) in self.registers.items()]
        return registers + [
            f"alignas({align}) char {name}[{len(held)}];" for name, (align, held) in self.arrays.items()
        ]

    def _lines(self, body: Iterator[tuple[int, str]]) -> list[str]:
        lines = []
        for self.line, statement in body:
            try:
                lines.append(self._statement(statement))
            except (ValueError, KeyError, IndexError, TypeError) as error:
                raise UntranslatableError(f"line {self.line}: {statement}: {error!r}") from error
        return lines

    def _statement(self, s: str) -> str:
        if s in ("{", "}"):
            self.scopes = [*self.scopes, {}] if s == "{" else self.scopes[:-1]
            return s
        if s.endswith(":"):
            return f"{plain(s[:-1])}:;"
        if s.startswith("."):
            return self._directive(s)
        negated, predicate, opcode, rest = _INSTRUCTION.match(s).groups()  # type: ignore[union-attr]
        code = self._instruction(opcode, [part.strip() for part in _OPERAND.findall(rest) if part.strip()])
        return f"if ({negated}{self.register(predicate)}) {{ {code} }}" if predicate else code

    def _directive(self, s: str) -> str:
        kind, rest = s.split(None, 1)
        if kind == ".reg":
            self._registers(*rest.split(None, 1))
        elif kind == ".shared":
            self._reserve(rest)
        elif kind == ".local":
            align, _, name, count, _ = variable(rest)
            self.arrays[name] = int(align), bytes(int(count))
            self.names[name] = f"reinterpret_cast<u64>({name})"
        elif kind == ".param":
            of, name, count = PARAM.match(s).groups()  # type: ignore[union-attr]
            self.names[name] = f"reinterpret_cast<u64>(&{name})"
            return f"{storage(of, count)} {name};"
        elif kind not in (".pragma", ".loc"):
            raise ValueError(kind)
        return ""

    def _registers(self, kind: str, names: str) -> None:
        of = storage(kind[1:])
        for name in (n.strip() for n in names.split(",")):
            many = re.fullmatch(r"%(\w+)<(\d+)>", name)
            if many:
                self.registers[f"_{many[1]}"] = of, int(many[2])
            else:
                count = self.registers.get(f"_own_{of}", (of, 0))[1]
                self.registers[f"_own_{of}"] = of, count + 1
                self.scopes[-1][name] = f"_own_{of}[{count}]"

    def _reserve(self, declaration: str) -> None:
        """A place in shared memory."""
        align, of, name, count, _ = variable(declaration)
        self.reserved = -(-self.reserved // int(align)) * int(align)
        self.names[name] = str(self.reserved)
        self.reserved += size_of(of) * int(count or 1)

    # ---- instructions ----

    def _instruction(self, opcode: str, ops: list[str]) -> str:
        name, *mods = opcode.split(".")
        if name in _NOTHING:
            return "publish(t);" if opcode.startswith("fence.proxy.async") else ";"
        special = getattr(self, f"_{name}", None)
        return special(mods, ops) if special else self._arithmetic(name, mods, ops)

    def _arithmetic(self, name: str, mods: list[str], ops: list[str]) -> str:
        kind = mods[-1]
        if kind not in _TYPES:
            raise ValueError(kind)
        words = [m for m in mods[:-1] if m not in _QUALIFIERS or (m == "ftz" and name in _FLUSHES)]
        carries = "cc" in words or name in ("addc", "subc", "madc")
        operator = _OPERATORS.get(name) if whole(kind) and not words else None
        if operator or (carries and name != "mad"):
            kind = kind.replace("s", "u")  # which wraps around
        kinds = (kind, kind, f"{kind[0]}{2 * int(kind[1:])}") if "wide" in mods else _KINDS.get(name, ())
        values = [self.typed((kinds[n] if n < len(kinds) else "") or kind, x) for n, x in enumerate(ops[1:])]
        if operator:
            told = f" {operator} ".join(values)
        else:
            given = ", ".join(["t", *values] if carries else values)
            told = bits(kind, f"simt::{'_'.join([_WORDS.get(name, name), *words])}({given})")
        return f"{self.register(ops[0])} = {told};"

    def _mov(self, mods: list[str], ops: list[str]) -> str:
        to, of = ops
        if to[0] == "{":
            parts = parts_of(to)
            width = 8 * size_of(mods[-1]) // len(parts)
            shifts = [(self.register(p), width * n) for n, p in enumerate(parts) if p != "_"]
            taken = " ".join(f"{p} = static_cast<b{width}>(x >> {shift});" for p, shift in shifts)
            return f"{{ const b64 x = {self.value(of)}; {taken} }}"
        if of[0] == "{":
            parts = parts_of(of)
            width = 8 * size_of(mods[-1]) // len(parts)
            words = (f"b64(b{width}({self.value(p)})) << {width * n}" for n, p in enumerate(parts))
            return f"{self.register(to)} = {' | '.join(words)};"
        return f"{self.register(to)} = {self.value(of)};"

    def _cvta(self, mods: list[str], ops: list[str]) -> str:
        of = self.value(ops[1])
        if "shared" in mods:
            of = f"cvta_to_shared(t, {of})" if "to" in mods else f"cvta_shared(t, {of})"
        return f"{self.register(ops[0])} = {of};"

    def _cvt(self, mods: list[str], ops: list[str]) -> str:
        to, of = mods[-2:]
        function = "_".join(["cvt", *(m for m in mods[:-2] if m not in _QUALIFIERS)])
        values = ", ".join(self.typed(of, x) for x in ops[1:])
        if function == "cvt" and whole(to) and whole(of):
            return f"{self.register(ops[0])} = {to}({values});"
        return f"{self.register(ops[0])} = {bits(to, f'simt::{function}<{to}, {of}>({values})')};"

    def _selp(self, mods: list[str], ops: list[str]) -> str:
        return f"{self.register(ops[0])} = {self.value(ops[3])} ? {self.value(ops[1])} : {self.value(ops[2])};"

    def _setp(self, mods: list[str], ops: list[str]) -> str:
        kind, (a, b) = mods[-1], (self.typed(mods[-1], x) for x in ops[1:3])
        told = f"{a} {_COMPARES[mods[0]]} {b}" if whole(kind) else f"{mods[0]}({a}, {b})"
        if len(ops) > 3:
            told = f"({told}) {_COMBINES[mods[1]]} {self.value(ops[3])}"
        return f"{self.register(ops[0])} = {told};"

    def _bra(self, mods: list[str], ops: list[str]) -> str:
        return f"goto {plain(ops[0])};"

    def _ret(self, mods: list[str], ops: list[str]) -> str:
        return {"": "leave(t);", "void": "return;"}.get(self.result, f"return {self.result};")

    def _exit(self, mods: list[str], ops: list[str]) -> str:
        return "leave(t);"

    def _call(self, mods: list[str], ops: list[str]) -> str:
        self.calls = True
        result = f"{ops.pop(0).strip('() ')} = " if ops[0][0] == "(" else ""
        given = ", ".join(["t", *(x for x in parts_of(ops[1].strip("()")) if x)])
        return f"{result}{ops[0]}({given});"

    def _trap(self, mods: list[str], ops: list[str]) -> str:
        return f'fail(t, {self.line}, "trap");'

    def _nanosleep(self, mods: list[str], ops: list[str]) -> str:
        return f"pause(t, {self.line});"

    def _ld(self, mods: list[str], ops: list[str]) -> str:
        kind, parts = mods[-1], parts_of(ops[0])
        size = size_of(kind)
        poll = f"pause(t, {self.line}); " if _POLLS & set(mods) else ""
        into = [(self.register(p), size * n) for n, p in enumerate(parts) if p != "_"]
        loads = " ".join(f"{p} = load<{kind}>(at + {offset});" for p, offset in into)
        return f"{{ {poll}const char* at = {self.pointer(mods, ops[1], size * len(parts), False)}; {loads} }}"

    def _st(self, mods: list[str], ops: list[str]) -> str:
        kind, parts = mods[-1], parts_of(ops[1])
        size = size_of(kind)
        words = [(f"{storage(kind)}({self.value(p)})", size * n) for n, p in enumerate(parts)]
        stores = " ".join(f"store<{kind}>(at + {offset}, {word});" for word, offset in words)
        return f"{{ char* at = {self.pointer(mods, ops[0], size * len(parts), True)}; {stores} }}"

    def _atom(self, mods: list[str], ops: list[str]) -> str:
        at, values = self.pointer(mods, ops[1], size_of(mods[-1]), True), [self.value(x) for x in ops[2:]]
        return f"{'' if ops[0] == '_' else f'{self.register(ops[0])} = '}{self._atomic(mods, at, *values)};"

    def _red(self, mods: list[str], ops: list[str]) -> str:
        size, parts = size_of(mods[-1]), parts_of(ops[1])
        at = self.pointer(mods, ops[0], size * len(parts), True)
        values = [(f"at + {size * n}", self.value(part)) for n, part in enumerate(parts)]
        done = " ".join(f"{self._atomic(mods, *each)};" for each in values)
        return f"{{ char* at = {at}; {done} }}"

    def _atomic(self, mods: list[str], at: str, *values: str) -> str:
        kind, op = mods[-1], next(m for m in mods if m in _ATOMS)
        words = ", ".join(f"{storage(kind)}({x})" for x in values)
        if op == "cas":
            return f"atom_cas<{kind}>({at}, {words})"
        return f"atom<{kind}>({at}, Atom::{_WORDS.get(op, op)}, {words})"
