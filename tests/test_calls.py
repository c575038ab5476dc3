"""What every functional entry takes: `out=`, and axes counted from the end. The calls are those of the examples."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.help.examples import example
from baracuda_py.help.page import entries

OWN = {value.__name__: value for _, value in entries()}
IN_PLACE = {"copy_pages", "fill", "fill_diagonal", "linear_attention_decode", "running_statistics", "write_slice"}
# Compositions whose results are made by several calls, and do not take it yet.
WITHOUT_OUT = {"associative_scan", "corrcoef", "corrcoef_backward", "cov", "cov_backward", "gradient", "inner_backward"}
WITHOUT_OUT |= {"fresnel", "sici", "scatter_reduce_backward", "poly_norm_backward", "sph_harm_y"}
WITHOUT_OUT |= {"cho_factor"}  # whose second result is no array
WITHOUT_OUT |= {name for name, function in OWN.items() if function.plan.op == "elementwise.special_function_backward"}


def call_of(name: str) -> tuple[dict[str, Any], ast.Call]:
    """What the example of a function makes before its last statement, and the call that this is."""
    tree = ast.parse(example(OWN[name]))
    last = tree.body.pop()
    assert isinstance(last, (ast.Assign, ast.Expr)) and isinstance(last.value, ast.Call)
    space: dict[str, Any] = {}
    exec(compile(tree, "<example>", "exec"), space)
    return space, last.value


def run(space: dict[str, Any], call: ast.Call, **more: Any) -> Any:
    """The call, with other keywords."""
    kept = [word for word in call.keywords if word.arg not in more]
    given = [ast.keyword(name, ast.Name(f"_{name}", ast.Load())) for name in more]
    changed = ast.fix_missing_locations(ast.Expression(ast.Call(call.func, call.args, [*kept, *given])))
    with np.errstate(all="ignore"):
        return eval(compile(changed, "<call>", "eval"), space | {f"_{name}": value for name, value in more.items()})


def each(made: Any) -> list[np.ndarray]:
    """Every array of a result: of a tuple, and of the lists in it."""
    return [one for value in made for one in each(value)] if isinstance(made, (tuple, list)) else [made]


def like(made: Any) -> Any:
    """Arrays of the same form that hold something else."""
    return [like(one) for one in made] if isinstance(made, (tuple, list)) else np.full_like(made, 1)


def same(a: Any, b: Any) -> bool:
    return all(x.dtype == y.dtype and x.tobytes() == y.tobytes() for x, y in zip(each(a), each(b), strict=True))


@pytest.mark.parametrize("name", [n for n in OWN if n not in IN_PLACE | WITHOUT_OUT])
def test_results_are_written_where_they_are_wanted(name: str) -> None:
    space, call = call_of(name)
    made = run(space, call)
    held = [one for value in space.values() if isinstance(value, (list, np.ndarray)) for one in each(value)]
    if any(one is other for one in each(made) for other in held):
        with pytest.raises(InvalidProblemError, match="in place"):
            run(space, call, out=made)
        return
    outs = like(made)
    back = run(call_of(name)[0], call, out=outs)  # operands of their own: some are updated in place
    assert same(back, made)
    assert all(a is b for a, b in zip(each(back), each(outs), strict=True))


def by_name(function: Any) -> bool:
    """Whether it has an `axis=`, which is the axis of a first operand of the example."""
    axis = inspect.signature(function).parameters.get("axis")
    names = list(inspect.signature(function).parameters)
    plain = axis is not None and axis.kind is axis.KEYWORD_ONLY and names[0] != "fn"
    return plain and function.plan.op != "gated.gated_activation"


PAIRS = {"matrix_norm"}  # of axes
AXES = [n for n, function in OWN.items() if by_name(function) and not n.endswith("_backward") and n not in PAIRS]


def axes_of(name: str, first: Any, second: Any) -> int:
    """Axes that `axis=` counts: the first operand's, where the function has no line here."""
    counted = {
        "compress": lambda: second.ndim,
        "concat": lambda: first[0].ndim,
        "one_hot": lambda: first.ndim + 1,  # the result's
    }
    return int(counted.get(name, lambda: first.ndim)())


@pytest.mark.parametrize("name", AXES)
def test_axes_count_from_the_end(name: str) -> None:
    space, call = call_of(name)
    first, second = (
        eval(compile(ast.Expression(one), "<operand>", "eval"), space) for one in (*call.args, call.args[0])[:2]
    )
    rank = axes_of(name, first, second)
    tried = 0
    for axis in range(rank):
        try:
            want = run(space, call, axis=axis)
        except InvalidProblemError:  # the other operands lie along one axis alone
            continue
        tried += 1
        assert same(run(space, call, axis=axis - rank), want)
    with pytest.raises(InvalidProblemError):
        run(space, call, axis=rank + 1 if rank else 2)
    assert tried


@pytest.mark.parametrize("name", ["swiglu", "glu", "geglu_tanh"])
def test_halves_along_an_axis_from_the_end(name: str) -> None:
    x = np.arange(24.0).reshape(4, 6)
    for axis in (0, 1):
        assert same(OWN[name](x, axis=axis - 2), OWN[name](x, axis=axis))
    assert same(bc.renorm(x, 2, -1, 1.0), bc.renorm(x, 2, 1, 1.0))
    assert same(bc.normalize(x, 2, -2), bc.normalize(x, 2, 0))
    assert same(bc.cosine_similarity(x, x + 1, -2), bc.cosine_similarity(x, x + 1, 0))


NUMBERS = [
    n
    for n, f in OWN.items()
    if f.plan is bc.BinaryPlan
    and list(inspect.signature(f).parameters)[:2] == ["a", "b"]
    and n not in ("kron", "outer")
]  # those two multiply every element by every other


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_numbers_stand_on_either_side(name: str, dtype: Any) -> None:
    """With the bits of an array full of that number."""
    x = np.arange(-3, 5).astype(dtype).reshape(2, 4)
    function = OWN[name]
    for reverse in (False, True):
        order = (2, x) if reverse else (x, 2)
        full = tuple(np.full_like(x, 2) if one is not x else x for one in order)
        try:
            want = function(*full)
        except bc.BaracudaError as error:
            with pytest.raises(type(error)):
                function(*order)
            continue
        try:
            got = function(*order)
        except bc.UnsupportedError as error:
            assert "cast" in str(error)
            continue
        assert same(got, want)
    with pytest.raises(InvalidProblemError, match="must be an array"):
        function(1, 2)


@pytest.mark.parametrize("args", [(2.0, "x", 1.0), ("x", 2.0, 1.0), (2.0, "x", "x"), ("x", "x", 2.0)])
def test_fma_takes_numbers_in_the_product(args: Any) -> None:
    x = np.float32([1.5, -2.0, 3.25])
    given = [x if one == "x" else one for one in args]
    assert np.array_equal(bc.fma(*given), np.float32(given[0] * given[1] + given[2]))
