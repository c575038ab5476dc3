"""A formula from text: Python's own expressions, of which only those with a meaning here are taken.

`"silu(x) * y"` has one output. `"y = a * b; z = y + 1"` has two, and each line or part may use those before it; names
that begin with an underscore are no outputs. A last part without `=`, or a tuple, is what the formula gives:
`"t = exp(x); t / (1 + t)"`.
"""

from __future__ import annotations

import ast
import inspect
import keyword
from collections.abc import Iterable, Mapping
from typing import NoReturn

from . import build
from .errors import ExpressionError, Span
from .formula import MOST_NODES, RESULT, Formula, fresh
from .functions import CASTS, CONSTANTS
from .nodes import Node, Work, constant, driven, named

_BINARY = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder", ast.Pow: "pow", ast.BitAnd: "bitwise_and", ast.BitOr: "bitwise_or",
    ast.BitXor: "bitwise_xor", ast.LShift: "bitwise_left_shift", ast.RShift: "bitwise_right_shift",
}  # fmt: skip
_UNARY = {ast.USub: "neg", ast.Not: "logical_not", ast.Invert: "bitwise_not"}
_COMPARE = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne"}
_LOGIC = {ast.And: "logical_and", ast.Or: "logical_or"}
_LONGEST = 20_000


def parse(text: str, reductions: Mapping[str, str] | None = None) -> Formula:
    """The formula of a text; raises ExpressionError, which points at what is wrong.

    reductions: names that are reductions of their one argument, nodes of the form "reduce", and what each is called.
    """
    return Parser(text, reductions or {}).formula()


class Parser:
    """Reads one text; `formula` is what it means."""

    def __init__(self, text: str, reductions: Mapping[str, str]) -> None:
        if not isinstance(text, str):
            raise ExpressionError(f"a formula is a string or a function, got {type(text).__name__}")
        if len(text) > _LONGEST:
            raise ExpressionError(f"a formula has at most {_LONGEST} characters, got {len(text)}")
        self.text = text = inspect.cleandoc(text)
        self.reductions = reductions
        self.lines = text.split("\n")
        self.starts = [0]
        for line in self.lines[:-1]:
            self.starts.append(self.starts[-1] + len(line) + 1)
        self.inputs: dict[str, None] = {}
        self.bound: dict[str, Node] = {}
        self.spans: dict[Node, Span] = {}
        self.called: set[str] = set()

    def formula(self) -> Formula:
        """The formula of the text."""
        statements = self._statements()
        outputs: list[tuple[str, Node]] = []
        for i, statement in enumerate(statements):
            if isinstance(statement, ast.Expr) and i == len(statements) - 1:
                outputs = self._last(statement.value)
            elif isinstance(statement, ast.Assign):
                self._bind(statement)
            elif isinstance(statement, ast.Expr):
                self.fail("only the last part of a formula may be without a name; write y = …", statement)
            else:
                self.fail("a formula has expressions and name = expression, nothing else", statement)
        if not outputs:
            outputs = [(name, tree) for name, tree in self.bound.items() if not name.startswith("_")]
        if not outputs:
            self.fail("all names begin with an underscore, so there is no output", statements[-1])
        return Formula(tuple(self.inputs), tuple(outputs), self.text, self.spans)

    def _statements(self) -> list[ast.stmt]:
        try:
            found = ast.parse(self.text).body
        except SyntaxError as error:
            line = min(max(error.lineno or 1, 1), len(self.lines))
            at = self.starts[line - 1] + min(max((error.offset or 1) - 1, 0), len(self.lines[line - 1]))
            raise ExpressionError(f"not a formula: {error.msg}", self.text, (at, at + 1)) from None
        except (RecursionError, MemoryError):
            raise ExpressionError(
                f"a formula has at most {MOST_NODES} operations; this one has more, one within another"
            ) from None
        except ValueError as error:
            raise ExpressionError(f"not a formula: {error}") from None
        if not found:
            raise ExpressionError("the formula is empty")
        return found

    def _last(self, value: ast.expr) -> list[tuple[str, Node]]:
        if not isinstance(value, ast.Tuple):
            tree = self.node(value)
            return [(fresh(RESULT, tuple(self.inputs)), tree)]
        if not value.elts:
            self.fail("a formula needs an output", value)
        trees = [self.node(item) for item in value.elts]
        return [(fresh(f"{RESULT}{i}", tuple(self.inputs)), tree) for i, tree in enumerate(trees)]

    def _bind(self, statement: ast.Assign) -> None:
        (target, *more) = statement.targets
        if more or not isinstance(target, ast.Name):
            self.fail("one name stands before =", more[0] if more else target)
        name, tree = target.id, self.node(statement.value)
        if name in self.inputs:
            self.fail(f"{name} is an input above, and cannot be assigned", target)
        if name in self.bound:
            self.fail(f"{name} is assigned twice; give the second another name", target)
        self.check_name(name, target)
        self.bound[name] = tree

    # -- expressions -----------------------------------------------------------------------------------

    def node(self, tree: ast.expr) -> Node:
        """The node of an expression, its place noted."""
        made: Node = driven(self.read(tree))
        return made

    def read(self, tree: ast.expr) -> Work:
        """The same as work that others ask for: an expression may be as deep as it is long, as a sum is."""
        try:
            made = yield self._made(tree)
        except ExpressionError as error:
            if error.span is not None:
                raise
            self.fail(str(error), tree)
        self.spans.setdefault(made, self._span(tree))
        return made

    def each(self, trees: Iterable[ast.expr]) -> Work:
        """The nodes of several expressions."""
        made: list[Node] = []
        for tree in trees:
            made.append((yield self.read(tree)))
        return made

    def _made(self, tree: ast.expr) -> Work:
        if isinstance(tree, ast.Constant):
            return self._constant(tree)
        if isinstance(tree, ast.Name):
            return self._name(tree)
        if isinstance(tree, ast.BinOp):
            return (yield self._operator(tree, _BINARY.get(type(tree.op)), tree.left, tree.right))
        if isinstance(tree, ast.UnaryOp):
            if isinstance(tree.op, ast.UAdd):
                return (yield self.read(tree.operand))
            return (yield self._operator(tree, _UNARY[type(tree.op)], tree.operand))
        if isinstance(tree, ast.Compare):
            return (yield self._compared(tree))
        if isinstance(tree, ast.BoolOp):
            first, *rest = yield self.each(tree.values)
            for value in rest:
                first = build.call(_LOGIC[type(tree.op)], (first, value))
            return first
        if isinstance(tree, ast.IfExp):
            return build.call("where", (yield self.each((tree.test, tree.body, tree.orelse))))
        if isinstance(tree, ast.Call):
            return (yield self._called(tree))
        if isinstance(tree, ast.Subscript):
            return (yield self.item(tree))
        what = {"Attribute": "a point", "Lambda": "lambda"}.get(type(tree).__name__)
        return self.fail(f"{what or type(tree).__name__.lower()} has no meaning in a formula", tree)

    def item(self, tree: ast.Subscript) -> Work:
        """An element of a table, which formulas of elements have not."""
        yield from ()
        return self.fail("x[…] has no meaning in a formula", tree)

    def _constant(self, tree: ast.Constant) -> Node:
        value = tree.value
        if not isinstance(value, (bool, int, float)):
            self.fail("a constant is a number, True or False", tree)
        if isinstance(value, int) and value.bit_length() > build.MOST_BITS:
            self.fail("an integer of a formula is one that float64 reaches", tree)
        return constant(value)

    def _name(self, tree: ast.Name) -> Node:
        name = tree.id
        if name in self.bound:
            return self.bound[name]
        if name in CONSTANTS:
            return constant(CONSTANTS[name])
        return self.input(name, tree)

    def input(self, name: str, tree: ast.expr) -> Node:
        """The node of an operand's name."""
        if name not in self.inputs:
            self.check_name(name, tree)
            self.inputs[name] = None
        return named(name)

    def check_name(self, name: str, tree: ast.expr) -> None:
        """Refuse a name that an operand or part cannot have."""
        if name in CONSTANTS:
            self.fail(f"{name} is a number; give the result another name", tree)
        if name in self.called or name in CASTS:
            self.fail(f"{name} is a function; write {name}(…)", tree)
        if wrong := refused(name):
            self.fail(wrong, tree)

    def _operator(self, tree: ast.expr, name: str | None, *operands: ast.expr) -> Work:
        if name is None:
            self.fail("this operator has no meaning for elements", tree)
        return build.call(name, (yield self.each(operands)))

    def _compared(self, tree: ast.Compare) -> Work:
        values = yield self.each((tree.left, *tree.comparators))
        found: Node | None = None
        for i, sign in enumerate(tree.ops):
            if type(sign) not in _COMPARE:
                self.fail("elements are compared by <, <=, >, >=, == and !=", tree)
            one = build.call(_COMPARE[type(sign)], (values[i], values[i + 1]))
            found = one if found is None else build.call("logical_and", (found, one))
        assert found is not None
        return found

    def _called(self, tree: ast.Call) -> Work:
        if not isinstance(tree.func, ast.Name):
            self.fail("functions are called by their plain name, as in silu(x)", tree.func)
        if tree.func.id in self.inputs or tree.func.id in self.bound:
            self.fail(f"{tree.func.id} is an operand and cannot be called", tree.func)
        for argument in (*tree.args, *tree.keywords):
            if isinstance(argument, ast.Starred) or (isinstance(argument, ast.keyword) and argument.arg is None):
                self.fail("arguments are written out", tree)
        self.called.add(tree.func.id)
        args = yield self.each(argument for argument in tree.args if not _absent(argument))
        if len(args) < len(tree.args) and tree.func.id not in ("clamp", "clip"):
            self.fail("None has no meaning in a formula", tree)
        words = [word for word in tree.keywords if not _absent(word.value)]
        values = yield self.each(word.value for word in words)
        given = dict(zip((str(word.arg) for word in words), values, strict=True))
        if tree.func.id in ("float", "int"):
            wide = "float32 or float64" if tree.func.id == "float" else "int32 or int64"
            self.fail(f"{tree.func.id}(x) does not say how wide; write {wide}", tree.func)
        if len(args) < len(tree.args):  # clamp(x, None, high)
            ends = [w for w, a in zip(("low", "high"), tree.args[1:], strict=False) if not _absent(a)]
            args, given = args[:1], {**given, **dict(zip(ends, args[1:], strict=True))}
        if tree.func.id in self.reductions and len(args) == 1 and not given:
            return Node("reduce", self.reductions[tree.func.id], tuple(args))
        try:
            return build.call(tree.func.id, args, given)
        except ExpressionError as error:
            if error.span is not None:
                raise
            self.fail(str(error), tree.func)

    # -- places ----------------------------------------------------------------------------------------

    def _span(self, tree: ast.expr | ast.stmt) -> Span:
        return (
            self._place(tree.lineno, tree.col_offset),
            self._place(tree.end_lineno or tree.lineno, tree.end_col_offset or tree.col_offset + 1),
        )

    def _place(self, line: int, column: int) -> int:
        """Python counts bytes of UTF-8."""
        return self.starts[line - 1] + len(self.lines[line - 1].encode()[:column].decode(errors="ignore"))

    def fail(self, message: str, tree: ast.expr | ast.stmt) -> NoReturn:
        """Raise an error that points at a part of the text."""
        raise ExpressionError(message, self.text, self._span(tree))


def _absent(tree: ast.expr) -> bool:
    return isinstance(tree, ast.Constant) and tree.value is None


RESERVED = ("out", "stream", "preference", "element", "shape", "workspace", "layout", "wrt", "wanted")
"""Keywords of every function, descriptor, call or reference."""


def refused(name: str) -> str | None:
    """Why no operand and no output may have this name; None where one may."""
    if name in RESERVED or name.startswith("__"):
        return f"{name} is a word of every function here; give the operand another name"
    return f"{name} is a word of Python; give the operand another name" if keyword.iskeyword(name) else None
