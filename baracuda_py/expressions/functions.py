"""The functions of formulas: what each takes, its device code, its NumPy formula.

Nearly all are the kinds of the elementwise tables, and their device code is those kinds' own functor. `tables.py` reads
the tables; here stand the rest (comparisons, logic, choice) and the other names that functions are known by.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..core.element import FLOATS, INTS, ElementKind
from ..core.memo import memo
from ..ops.elementwise.unary_formulas import maximum, minimum
from .function import Function, Rule
from .tables import table_aliases, table_functions

NUMBERS = (*FLOATS, *INTS)
ANY = (*NUMBERS, ElementKind.BOOL)


def _compare(name: str, sign: str, formula: Callable[..., Any]) -> Function:
    cpp = f"({{0}} {sign} {{1}})"
    return Function(name, ("a", "b"), cpp, formula, Rule.COMPARE, ANY, exact=True, in_element=True)


def _logic(name: str, cpp: str, formula: Callable[..., Any]) -> Function:
    names = ("a", "b") if "{1}" in cpp else ("a",)
    return Function(name, names, cpp, formula, Rule.LOGIC, ANY, exact=True)


def _test(name: str, cpp: str, formula: Callable[..., Any]) -> Function:
    return Function(name, ("x",), cpp, formula, Rule.TEST, exact=True)


BASIC = (
    _test("isnan", "math::isnan({0})", np.isnan), _test("isinf", "math::isinf({0})", np.isinf),
    _test("isfinite", "math::isfinite({0})", np.isfinite), _test("signbit", "math::signbit({0})", np.signbit),
    _test("isposinf", "({0} == numeric<{A}>::infinity())", lambda x: x == np.inf),
    _test("isneginf", "({0} == -numeric<{A}>::infinity())", lambda x: x == -np.inf),
    Function(
        "bitwise_not", ("x",), "complement({0})", np.invert, elements=(*INTS, ElementKind.BOOL), exact=True,
    ),
    Function("clamp_min", ("x", "low"), "math::maximum({0}, {1})", maximum, elements=NUMBERS, exact=True),
    Function("clamp_max", ("x", "high"), "math::minimum({0}, {1})", minimum, elements=NUMBERS, exact=True),
)  # fmt: skip
"""Functions that give way to rows of a table."""
OWN = (
    _compare("lt", "<", np.less), _compare("le", "<=", np.less_equal), _compare("gt", ">", np.greater),
    _compare("ge", ">=", np.greater_equal), _compare("eq", "==", np.equal), _compare("ne", "!=", np.not_equal),
    _logic("logical_and", "({0} && {1})", np.logical_and), _logic("logical_or", "({0} || {1})", np.logical_or),
    _logic("logical_xor", "({0} != {1})", np.logical_xor), _logic("logical_not", "(!{0})", np.logical_not),
    Function("where", ("condition", "a", "b"), "({0} ? {1} : {2})", np.where, Rule.CHOICE, ANY, exact=True),
)  # fmt: skip
"""Functions whose arguments are bool as well as numbers."""

ALIASES: Mapping[str, str] = {
    **table_aliases(),
    "absolute": "abs", "negative": "neg", "power": "pow", "float_power": "pow", "max": "maximum", "min": "minimum",
    "mod": "remainder", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arcsinh": "asinh", "arccosh": "acosh",
    "arctanh": "atanh", "arctan2": "atan2", "rint": "round", "less": "lt", "less_equal": "le", "greater": "gt",
    "greater_equal": "ge", "equal": "eq", "not_equal": "ne", "invert": "bitwise_not", "clip": "clamp",
    "logsigmoid": "log_sigmoid", "swish": "silu", "expit": "sigmoid", "special_expit": "sigmoid",
    "special_erf": "erf", "special_erfc": "erfc", "true_divide": "div", "divide": "div", "subtract": "sub",
    "multiply": "mul", "left_shift": "bitwise_left_shift", "right_shift": "bitwise_right_shift",
}  # fmt: skip
"""Names of NumPy, and of torch's variants → ours."""

CONSTANTS: Mapping[str, float] = {"pi": math.pi, "inf": math.inf, "nan": math.nan}

CASTS: Mapping[str, ElementKind] = {str(kind): kind for kind in ANY}
"""`float32(x)`: the element's own name."""


@memo()
def functions() -> Mapping[str, Function]:
    """Every function by its name."""
    return {one.name: one for one in (*BASIC, *table_functions(), *OWN)}


def known(name: str) -> Function | None:
    """A function by any of its names."""
    return functions().get(name) or functions().get(ALIASES.get(name, ""))


def names() -> list[str]:
    """Every name of a function."""
    return sorted({*functions(), *(alias for alias, name in ALIASES.items() if name in functions()), *CASTS})
