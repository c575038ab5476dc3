"""Names that are not offered: none is here, each error quotes its row, and what is to be called instead is here."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path

import pytest

import baracuda_py as bc
from baracuda_py import linalg, signal
from baracuda_py._not_offered import LIMITED, NOT_OFFERED, table

PAGE = Path(__file__).resolve().parents[1] / "docs" / "not-offered.md"
OTHERS = ("torch", "jax", "numpy", "cupy", "scipy")  # whose names may be called instead
WORD = re.compile(r"`([\w.]+)[^`]*`")


@pytest.mark.parametrize("name", NOT_OFFERED)
def test_an_error_quotes_its_row(name: str) -> None:
    row = NOT_OFFERED[name]
    for module in (bc, linalg, signal, bc.nn.functional):
        with pytest.raises(AttributeError) as raised:
            getattr(module, name)
        assert row.reason in str(raised.value) and row.instead.format(name) in str(raised.value)


def test_what_is_called_instead_is_here() -> None:
    for name, row in (*NOT_OFFERED.items(), *LIMITED.items()):
        for word in WORD.findall(f"{row.reason} {row.instead.format(name.split()[0])}"):
            first, *rest = word.split(".")
            if first in OTHERS:
                continue
            if first == "baracuda_py" and rest[0] in OTHERS and importlib.util.find_spec(rest[0]) is None:
                continue  # what is for a framework is imported with it
            found = importlib.import_module(first) if first == "baracuda_py" else getattr(bc, first)
            for part in rest:
                try:
                    found = getattr(found, part)
                except AttributeError:
                    found = importlib.import_module(f"{found.__name__}.{part}")


@pytest.mark.parametrize("library", ["numpy", "torch", "jax", "scipy"])
def test_libraries_have_the_names(library: str) -> None:
    """Of the names that are said to be a library's, as far as it is here."""
    pytest.importorskip(library)
    for name, row in NOT_OFFERED.items():
        if row.source.split(".")[0] != library or row.source == "scipy":
            continue
        assert hasattr(importlib.import_module(row.source), name), (row.source, name)


def test_the_page_has_every_row() -> None:
    text = PAGE.read_text()
    assert table(NOT_OFFERED) in text and table(LIMITED) in text
    for name in (*NOT_OFFERED, *LIMITED):
        assert f"`{name}`" in text
