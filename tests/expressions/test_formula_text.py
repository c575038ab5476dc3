"""What text a formula may be, what it means, and where errors point."""

from __future__ import annotations

import pickle

import pytest

import baracuda_py as bc
from baracuda_py.expressions.formula import Formula
from baracuda_py.expressions.nodes import Node, ordered
from baracuda_py.expressions.parse import parse
from baracuda_py.expressions.show import shown

TEXTS = (
    "silu(x) * y + alpha", "y = a * b; z = y + 1", "t = exp(x)\nt / (1 + t)", "x if x > 0 else 0.1 * x", "0 < x < 1",
    "-x ** 2.5 + (-x) ** y", "a - (b - c) - d", "(a < b) == c", "--x * -2", "x ** (y ** z)", "(x ** y) ** z",
    "exp(x) * (-1e-7)", "~(a & b | c ^ d)", "inf * x + nan", "float16(x) + where(m, x, 0)", "not m and (x > 1 or y)",
    "a // b % c", "clamp(x, -1, None)", "leaky_relu(x, negative_slope=0.2)",
)  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_a_formula_shown_is_the_same_formula(text: str) -> None:
    formula = parse(text)
    again, spans = shown(formula.outputs)
    assert [tree for _, tree in parse(again).outputs] == formula.roots
    assert all(0 <= start < stop <= len(again) for start, stop in spans.values())
    loaded = pickle.loads(pickle.dumps(formula))
    assert loaded == formula and loaded.digest == formula.digest


def inputs_and_outputs(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    formula = parse(text)
    return formula.inputs, tuple(name for name, _ in formula.outputs)


def test_names_are_inputs_in_the_order_of_their_first_use_and_outputs_as_written() -> None:
    assert inputs_and_outputs("b * a + b") == (("b", "a"), ("result",))
    assert inputs_and_outputs("y = a * b; z = y + c") == (("a", "b", "c"), ("y", "z"))
    assert inputs_and_outputs("_t = exp(x); y = _t / (1 + _t)") == (("x",), ("y",))
    assert inputs_and_outputs("t = exp(x); t / (1 + t)") == (("x",), ("result",))
    assert inputs_and_outputs("x + 1, x - 1") == (("x",), ("result0", "result1"))
    assert inputs_and_outputs("result + 1") == (("result",), ("result_",))
    assert inputs_and_outputs("  # a comment\n  y = x\n") == (("x",), ("y",))


def tree(text: str) -> Node:
    return parse(text).roots[0]


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("x ** 2", "square(x)"), ("x ** 0.5", "sqrt(x)"), ("x ** -0.5", "rsqrt(x)"), ("x ** -1", "reciprocal(x)"),
        ("x ** 3", "x * x * x"), ("x ** 1", "x"), ("2 * 3 * x", "6 * x"), ("+x", "x"),
        ("a < b <= c", "a < b and b <= c"),
        ("clamp(x, 0, 1)", "clamp(x, min=0, max=1)"), ("clip(x, max=1)", "clamp_max(x, 1)"),
        ("clamp(x, None, 1)", "clamp_max(x, 1)"), ("a if c else b", "where(c, a, b)"), ("max(a, b)", "maximum(a, b)"),
        ("arctan2(a, b)", "atan2(a, b)"), ("rsub(a, b)", "b - a"),
    ],
)  # fmt: skip
def test_one_meaning_has_several_spellings(text: str, same: str) -> None:
    assert tree(text) == tree(same)


def test_equal_parts_are_one_node() -> None:
    assert len(ordered([tree("exp(x) / (1 + exp(x))")])) == 5


def test_the_digest_does_not_depend_on_names_but_on_which_is_which() -> None:
    assert parse("silu(x) * y").digest == parse("silu(a) * b").digest
    assert parse("x - y").digest != parse("y - x").reordered(("x", "y")).digest
    assert tree("x + 1") != tree("x + 1.0") != tree("x + True")


@pytest.mark.parametrize(
    ("text", "said", "at"),
    [
        ("silu(x", "'(' was never closed", "("), ("1 + sillu(x)", "no function sillu; did you mean silu", "sillu"),
        ("exp(x, y)", "takes 1 arguments, got 2", "exp"), ("x.y", "a point has no meaning", "x.y"),
        ("x[0]", "has no meaning", "x[0]"), ("f = x; f = y", "f is assigned twice", "f"),
        ("exp(x) + exp", "exp is a function", "exp"),
        ("αβ + sillu(x)", "no function sillu", "sillu"), ("x @ y", "no meaning for elements", "x @ y"),
        ("float(x)", "write float32 or float64", "float"), ("x in y", "elements are compared by", "x in y"),
        ("out + 1", "give the operand another name", "out"), ("lambda: x", "lambda has no meaning", "lambda: x"),
        ("leaky_relu(x, slope=2)", "no argument slope", "leaky_relu"),
        ("y = exp(x)\nz = expp(y)", "no function expp", "expp"),
        ("clamp(x)", "needs low or high", "clamp"), ("'a' + x", "a constant is a number", "'a'"),
        ("x + 2 ** 70", "", None), ("x + 1" + "0" * 400, "float64 reaches", "1" + "0" * 400),
        ("pi = x", "pi is a number", "pi"), ("x(1)", "there is no function x", "x"),
        ("x + x(1)", "x is an operand", "x"),
        ("x = y; x += 1", "nothing else", "x += 1"), ("a, b = x", "one name stands before =", "a, b"),
        ("f(*x)", "arguments are written out", "f(*x)"), ("exp(x) exp(x)", "not a formula", None),
        ("_a = x", "there is no output", "_a = x"), ("x = 1; y; x", "only the last part", "y"),
    ],
)  # fmt: skip
def test_errors_point_at_the_characters(text: str, said: str, at: str | None) -> None:
    if not said:
        assert isinstance(parse(text), Formula)  # a float, as its value has too many bits
        return
    with pytest.raises(bc.ExpressionError, match=r".") as raised:
        parse(text)
    message = str(raised.value)
    assert said in message
    if at is not None:
        line, carets = message.splitlines()[-2:]
        start = carets.index("^")
        assert line[start : start + carets.count("^")] == at
        assert raised.value.text and raised.value.span


@pytest.mark.parametrize("text", ["", "   ", "x" * 30_000, "(" * 150 + "x" + ")" * 150, "-" * 500 + "x", 3])
def test_no_text_raises_anything_else(text: str) -> None:
    try:
        parse(text)
    except bc.ExpressionError as error:
        assert isinstance(error, bc.InvalidProblemError)
        pickle.loads(pickle.dumps(error))


def test_too_many_inputs_are_refused() -> None:
    with pytest.raises(bc.ExpressionError, match="at most 24 inputs"):
        parse(" + ".join(f"x{i}" for i in range(25)))
