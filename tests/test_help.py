"""`help(bc.f)`: the whole page of a function, made when it is asked for, with an example that runs."""

from __future__ import annotations

import inspect
import pydoc
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.help.examples import HEAD, example, runs
from baracuda_py.help.formula import formula
from baracuda_py.help.page import entries
from baracuda_py.help.table import TABLE

ROOT = Path(__file__).resolve().parents[1]
ENTRIES = dict(entries())
OWN = {value.__name__: value for value in ENTRIES.values()}


@pytest.mark.parametrize("name", OWN)
def test_every_function_has_an_example_that_runs(name: str) -> None:
    code = example(OWN[name])
    assert code.startswith(HEAD), "add a line to baracuda_py/help/table.py"
    assert f"bc.{name}(" in code or f"bc.{OWN[name].plan.__name__}.select(" in code
    made = runs(code)
    assert len(made) > 4


def test_written_examples_are_of_functions() -> None:
    assert set(TABLE) <= set(OWN)


@pytest.mark.parametrize("name", ["rms_norm", "silu", "add", "adam_step", "flash_sdpa", "softmax_backward", "cumsum"])
def test_the_page(name: str) -> None:
    function = ENTRIES[name]
    text = pydoc.plain(pydoc.render_doc(function))
    for title in ("Operands", "Elements", "Gradient", "Guarantee", "Example"):
        assert re.search(rf"^    {title}$", text, re.MULTILINE), title
    assert function.__doc__ is not None and inspect.cleandoc(function.__doc__[:60]).split("\n")[0] in text
    assert "numpy" in text and "deterministic" in text
    assert all(len(line) <= 145 for line in text.splitlines()[3:])


def test_what_the_page_says() -> None:
    text = inspect.getdoc(bc.rms_norm) or ""
    assert "weight    [*normalized_shape], weight_element, any strides, optional" in text
    assert "of x, residual, weight, by rms_norm_backward (RMSNormBackwardPlan)" in text
    assert "weight = rng.standard_normal(8, dtype=np.float32)" in text  # of the last axis, as models have it
    assert "rstd  [*batch_shape], acc, dense; with return_rstd" in text
    assert "eps             float, by default 1e-06" in text
    assert "Gradient\n    none" in (inspect.getdoc(bc.eq) or "")
    assert "Gradient\n    of x, by silu_backward" in (inspect.getdoc(bc.silu) or "")
    assert "this is the gradient of norm.rms_norm" in (inspect.getdoc(bc.rms_norm_backward) or "")


def _double(x: Any) -> Any:
    """Twice x."""
    return 2 * x


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (np.exp, "numpy.exp"), (lambda a, b: (a + 2 * b) / np.sqrt(a), "(a + 2 * b) / np.sqrt(a)"), (_double, "2 * x"),
        (len, ""), (None, ""),
    ],
)  # fmt: skip
def test_formulas_of_kinds(function: Any, text: str) -> None:
    assert formula(SimpleNamespace(row=SimpleNamespace(formula=function))) == text


def test_formulas_on_pages() -> None:
    assert formula(bc.UnaryKind.EXP) == "numpy.exp" and formula(bc.PoolKind.MAX) == ""
    assert "Formula\n    numpy.exp" in (inspect.getdoc(bc.exp) or "")


def test_the_short_text_is_what_else_sees() -> None:
    """As a string the docstring is the short one; printed it is the page."""
    doc = bc.silu.__doc__
    assert isinstance(doc, str) and doc.startswith("y = silu(x)") and "Operands" not in "" + doc
    assert "Operands" in str(doc) and len(doc) < 200


def test_help_costs_nothing_before_it_is_asked_for() -> None:
    code = (
        "import sys, baracuda_py as bc\nbc.rms_norm.__doc__.strip(); bc.add\n"
        "assert not [m for m in sys.modules if m.startswith(('baracuda_py.help', 'baracuda_py.testing'))]\n"
        "print('light')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout == "light\n", done.stderr


@pytest.mark.parametrize(
    ("name", "keyword"), [("segment_sum", "num_segments"), ("gather", "axis"), ("unravel_index", "dims")]
)
def test_keywords_that_operands_do_not_tell_are_listed(name: str, keyword: str) -> None:
    said = str(getattr(bc, name).__doc__)
    listed = said.partition("\nKeywords\n")[2].partition("\n\n")[0]
    assert re.search(rf"^    {keyword} +int", listed, re.M), said
    assert "row_shape  " not in listed
