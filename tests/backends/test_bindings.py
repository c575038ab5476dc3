"""cuBLASLt through nvmath-python's own bindings, against a library that records: argument order, sizes, statuses."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from baracuda_py.backends import library

_HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process of its own saw: no other may meet a driver that is none."""
    if not library._is_installed("nvmath"):
        pytest.skip('the bindings were not checked: pip install "baracuda_py[test]"')
    assert shutil.which("g++"), "the recording library is compiled with g++, as the emulator's are"
    folder = tmp_path_factory.mktemp("recording")
    for name in ("libcublasLt.so.12", "libcuda.so.1"):
        source = str(_HERE / "recording_cublas.cpp")
        command = ["g++", "-O1", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", str(folder / name), source]
        subprocess.run(command, check=True, capture_output=True)
    ran = subprocess.run(
        [sys.executable, str(_HERE / "recorded_product.py"), str(folder)],
        capture_output=True, text=True, timeout=300, cwd=_HERE.parents[1],
        env={"LD_LIBRARY_PATH": str(folder), "PYTHONPATH": ":".join(p for p in sys.path if p)},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def test_every_argument_reaches_the_library(report: dict[str, Any]) -> None:
    """A float16 [2, 5] times a bfloat16 [5, 3] kept by columns, batch 4, to float32: numbers of cublasLt.h."""
    a = {"type": 2, "rows": 5, "cols": 2, "ld": 6, "5": 4, "6": 20}
    b = {"type": 14, "rows": 5, "cols": 3, "ld": 7, "5": 4, "6": 0}
    d = {"type": 0, "rows": 3, "cols": 2, "ld": 10, "5": 4, "6": 40}
    op = {"compute": 77, "scale": 0, "2": 0, "3": 1, "4": 0}
    assert report["preference"] == {"1": 1 << 20, "3": 2, "5": 4, "6": 2, "7": 16, "8": 16}
    assert report["heuristic"] == {"handle": report["handle"], "op": op, "a": b, "b": a, "c": d, "d": d, "count": 1}
    want = {"handle": report["handle"], "op": op, "alpha": 0.5, "a": 2, "a_layout": b, "b": 1, "b_layout": a,
            "beta": 0.25, "c": 4, "c_layout": d, "d": 4, "d_layout": d, "algo": 77, "workspace": 4096, "nbytes": 512,
            "stream": 5}  # fmt: skip
    assert report["call"] == want
    assert (report["workspace_size"], report["waves"]) == (512, 1.5)


def test_device_scalars_are_addresses(report: dict[str, Any]) -> None:
    assert (report["device"]["alpha"], report["device"]["beta"]) == (0x500, 0x504)
    assert report["device"]["op"]["2"] == 1


def test_pointers_of_the_operation(report: dict[str, Any]) -> None:
    """An epilogue, a bias, and the scale of a, which is the library's second operand."""
    want = {"7": 6, "8": 0x123456789, "18": 0x600, "31": 3, "32": 3}
    assert {number: report["beside"][number] for number in want} == want


def test_an_fp8_result_has_a_c_elsewhere(report: dict[str, Any]) -> None:
    """The library returns CUBLAS_STATUS_INVALID_VALUE for a null C and for D's address under another layout."""
    call = report["fp8"]
    assert (call["a"], call["b"], call["c"], call["d"]) == (2, 1, 1, 4)
    assert [call[f"{name}_layout"]["type"] for name in "abcd"] == [28, 28, 14, 28]
    assert [call[f"{name}_layout"]["ld"] for name in "cd"] == [16, 32]


def test_statuses_are_typed(report: dict[str, Any]) -> None:
    assert report["failed"] == ["LibraryError", "cublasLtMatmul failed: CUBLAS_STATUS_EXECUTION_FAILED"]
    assert report["unsupported"] == ["UnsupportedError", "cublasLtMatmul: CUBLAS_STATUS_NOT_SUPPORTED"]
    kind, message = report["no algorithm"]
    assert kind == "UnsupportedError" and message.startswith("cuBLAS has no algorithm (CUBLAS_STATUS_NOT_SUPPORTED)")


def test_descriptors_are_freed(report: dict[str, Any]) -> None:
    assert report["live"] == [0, 0]  # none left, none freed twice
