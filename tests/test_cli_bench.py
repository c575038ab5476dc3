"""`bench`, `doctor`, `explain` of arrays and `ops --search`, on the NumPy backend."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from baracuda_py.cli.doctor import chosen
from baracuda_py.cli.main import main
from baracuda_py.core import registry
from baracuda_py.core.plan import Plan
from baracuda_py.measure import results


def call(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    """Exit status, stdout, stderr."""
    status = main(list(argv))
    said = capsys.readouterr()
    return status, said.out, said.err


CPU = ("--device", "cpu")


def test_bench_of_a_family(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "x" / "a.csv"
    status, out, _ = call(
        capsys, "bench", "norm", "sum", *CPU, "--rounds", "2", "--against", "numpy", "--csv", str(path)
    )
    assert status == 0 and "norm.rms_norm_backward" in out and "numpy has no such function" in out
    with path.open(newline="") as file:
        rows = {row["op"]: row for row in csv.DictReader(file)}
    assert {"norm.rms_norm", "norm.layer_norm", "reduce.reduce"} <= set(rows)
    assert float(rows["reduce.reduce"]["us"]) > 0 and rows["reduce.reduce"]["peer"] == "numpy"
    assert "/numpy" in rows["norm.rms_norm"]["sku"] and rows["norm.rms_norm"]["versions"].startswith("baracuda_py ")


def test_bench_of_shapes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file, plot = tmp_path / "shapes", tmp_path / "plot.png"
    first, second = "batch_shape=(8,) normalized_shape=64 element='float32'", "batch_shape=(2,3) normalized_shape=5"
    file.write_text(f"# rows\n{first}\n\n{second} element=float64  # a small one\n")
    status, out, _ = call(
        capsys, "bench", "rms_norm", *CPU, "--shapes", str(file), "--rounds", "1", "--plot", str(plot)
    )
    assert status == 0 and out.count("norm.rms_norm ") == 2 and plot.stat().st_size > 1000
    file.write_text("rows=3 element=float32")
    assert call(capsys, "bench", "rms_norm", "--shapes", str(file))[0] == 1
    file.write_text("batch_shape")
    assert "is not field=value" in call(capsys, "bench", "rms_norm", "--shapes", str(file))[2]
    file.write_text("# none")
    assert "has no problem" in call(capsys, "bench", "rms_norm", "--shapes", str(file))[2]
    assert "name it" in call(capsys, "bench", "--shapes", str(file))[2]
    assert "No such file" in call(capsys, "bench", "rms_norm", "--shapes", str(tmp_path / "none"))[2]


def test_bench_lists_what_pages_declare(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, "bench", "silu", "--list", "--device", "9.0")
    assert status == 0 and out.count("\n") >= 1 and all("silu" in line for line in out.splitlines() if "unary " in line)
    status, out, _ = call(capsys, "bench", "--list", "--device", "9.0")
    assert out.count("\n") == sum(len(plan.benchmarks) for plan in registry.plans().values())
    assert "nothing runs on fake sm_90" in call(capsys, "bench", "silu", "--device", "9.0")[2]
    assert "did you mean rms_norm" in call(capsys, "bench", "rmsnorm")[2]
    assert "rounds must be at least 1" in call(capsys, "bench", "silu", "--rounds", "0")[2]


def test_compare(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    old, new = tmp_path / "old.csv", tmp_path / "new.csv"
    old.write_text("op,shape,us\na,x,10\nb,x,10\nc,x,10\n")
    new.write_text("op,shape,us\na,x,5\nb,x,10.2\nd,x,1\n")
    status, out, _ = call(capsys, "bench", "--compare", str(old), str(new))
    assert status == 0 and "2 problems, 1.400x by geometric mean, 0 slower" in out
    assert out.splitlines()[0].startswith("b x") and "only in OLD  c x" in out and "only in NEW  d x" in out
    status, out, _ = call(capsys, "bench", "--compare", str(new), str(old))
    assert status == 1 and "SLOWER" in out and "1 slower" in out
    assert call(capsys, "bench", "--compare", str(new), str(old), "--tolerance", "120")[0] == 0
    old.write_text("op,shape,us\nz,x,10\n")
    status, _, err = call(capsys, "bench", "--compare", str(old), str(new))
    assert status == 1 and "no problem in common" in err


@pytest.mark.parametrize("us", ["nan", "inf", "0", "-1", "", "fast"])
def test_what_is_no_time_is_not_compared(us: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    old, new = tmp_path / "old.csv", tmp_path / "new.csv"
    old.write_text("op,shape,us\na,x,10\n")
    new.write_text(f"op,shape,us\na,x,{us}\n")
    for files in ((old, new), (new, old)):
        status, _, err = call(capsys, "bench", "--compare", *map(str, files))
        assert status == 1 and "new.csv: a x has no time to compare" in err


@pytest.mark.parametrize("tolerance", ["nan", "inf", "-1"])
def test_a_tolerance_is_a_percentage(tolerance: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("op,shape,us\na,x,10\n")
    (tmp_path / "b.csv").write_text("op,shape,us\na,x,99\n")
    files = str(tmp_path / "a.csv"), str(tmp_path / "b.csv")
    status, _, err = call(capsys, "bench", "--compare", *files, f"--tolerance={tolerance}")
    assert status == 1 and "--tolerance takes a percentage" in err


def test_results_are_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.csv"
    results.write(path, [{"op": "a", "shape": str(i), "us": i} for i in range(1000)], told={})
    path.chmod(0o640)

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", stopped)
        with pytest.raises(KeyboardInterrupt):
            results.write(path, [{"op": "b", "shape": "0", "us": 1}], told={})
    assert len(results.read(path)) == 1000 and [p.name for p in tmp_path.iterdir()] == ["r.csv"]
    assert path.stat().st_mode & 0o777 == 0o640


def test_runs_at_the_same_time_keep_each_others_rows(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from baracuda_py.measure import results\n"
        "for i in range(20): results.write(Path(sys.argv[1]), [{'op': sys.argv[2], 'shape': str(i), 'us': 1}], told={})"
    )
    runs = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "r.csv"), name]) for name in "ab"]
    assert [run.wait() for run in runs] == [0, 0]
    assert len(results.read(tmp_path / "r.csv")) == 40


@pytest.mark.parametrize("plan", chosen(), ids=lambda plan: plan.op)
def test_every_family_has_a_smoke_run(plan: type[Plan]) -> None:
    assert plan.direction == "forward"


def test_doctor(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    status, out, _ = call(capsys, "doctor", *CPU)
    families = {plan.op.partition(".")[0] for plan in registry.plans().values()}
    assert "\ndevices      \n" not in out
    assert status == 0 and out.count("\nok ") == len(families) and f"{len(families)} of {len(families)} families" in out

    def broken(self: Plan, args: object) -> None:
        raise RuntimeError("broken\nhere")

    op = next(word for word in out.split() if word.startswith("softmax."))
    monkeypatch.setattr(registry.plan(op), "run", broken)
    status, out, _ = call(capsys, "doctor", *CPU)
    assert status == 1 and f"FAILED  {op}" in out and "RuntimeError: broken here" in out
    status, out, _ = call(capsys, "doctor", *CPU, "--json")
    found = json.loads(out)
    assert status == 1 and found["failed"] == 1 and {"baracuda_py", "driver", "nvrtc", "device"} <= set(found)
    wrong = [one for one in found["ops"] if not one["ok"]]
    assert wrong == [{"op": op, "ok": False, "error": "RuntimeError: broken here"}]
    assert len(found["ops"]) == len(families)
    assert all({"op", "ok", "first_ms", "then_us", "sku"} == set(one) for one in found["ops"] if one["ok"])


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("rms_norm", "x=bfloat16[8,4096]@8192,1", "weight=bfloat16[4096]"), "rows * sm80 * bespoke * taken  inner"),
        (("rms_norm", "x=bfloat16[8,4096]", "weight=bfloat16[4096]"), "rows * sm80 * bespoke * taken .*contiguous"),
        (("dense_gemm", "a=bfloat16[8,64]@1,8", "b=bfloat16[64,16]"), "cublas * sm80 * cublas * taken  strided"),
        (("dense_gemm", "a=float32[8,64]@3,200", "b=float32[64,16]"), "simt * sm80 * bespoke * taken  strided"),
    ],
)  # fmt: skip
def test_explain_of_arrays(capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], says: str) -> None:
    import re

    status, out, err = call(capsys, "explain", *argv, "--device", "9.0")
    assert status == 0, err
    assert re.search(says, out), out


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("x=bfloat16[8,64]@8,1", "y=bfloat16[8,64]@0,1"), "y overlaps itself"),
        (("x=bfloat16[8,64]+1",), "no multiple of the 2 bytes of bfloat16"),
        (("x=bfloat16[8,64]@8",), "2 extents but 1 strides"),
        (("weight=float32[64]",), "also needs x="),
        (("x=bf17[8,64]",), "bf17"),
        (("x=float32[8,64]", "weight=float32[63]"), "x must have shape (8, 63)"),
    ],
)
def test_explain_of_arrays_that_cannot_be(capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], says: str) -> None:
    fields = ("normalized_shape=64",) if "weight" not in argv[-1] else ()
    status, out, err = call(capsys, "explain", "rms_norm", *argv, *fields, "--device", "9.0")
    assert status == 1 and says in err and not out


def test_search(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, "ops", "--search", "softmax")
    assert status == 0 and out.splitlines()[0].startswith("softmax ") and "log_softmax" in out
    assert "gelu_tanh" in call(capsys, "ops", "--search", "GELU")[1]
    assert all(line.endswith((".", "…", ":", ")")) for line in call(capsys, "ops", "--search", "norm")[1].splitlines())
    found = json.loads(call(capsys, "ops", "--search", "rotary", "--json")[1])
    assert "rope" in [row["name"] for row in found] and all(set(row) == {"name", "op", "says"} for row in found)
    status, out, err = call(capsys, "ops", "--search", "sofmax")
    assert status == 1 and not out and "did you mean softmax" in err
