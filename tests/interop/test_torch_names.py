"""Functions of `baracuda_py.torch`: their names and signatures, and what importing them costs."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import baracuda_py as bc
from baracuda_py._exports import EXPORTS

torch = pytest.importorskip("torch")

import baracuda_py.torch as bt  # noqa: E402


def test_every_function_is_there_with_its_signature() -> None:
    for name in EXPORTS:
        function = getattr(bc, name)
        if isinstance(function, type) or not hasattr(function, "plan"):
            assert not hasattr(bt, name)
            continue
        mirrored = getattr(bt, name)
        if not isinstance(function, bc.Expression) and inspect.isfunction(function):
            assert inspect.signature(mirrored) == inspect.signature(function), name
            assert mirrored.__doc__ == function.__doc__
    assert set(dir(bt)) >= {"rms_norm", "flash_sdpa", "define_all"}
    with pytest.raises(AttributeError, match="nonesuch"):
        _ = bt.nonesuch


def test_importing_costs_little_and_the_package_imports_no_torch() -> None:
    code = "\n".join(
        (
            "import sys, time, baracuda_py",
            "assert 'torch' not in sys.modules",
            "import torch",
            "start = time.process_time()",
            "import baracuda_py.torch",
            "assert time.process_time() - start < 0.5 and 'torch._dynamo' not in sys.modules",
        )
    )
    subprocess.run([sys.executable, "-c", code], check=True)
