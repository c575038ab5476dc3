"""`python -m baracuda_py`: every command in-process, one as a subprocess with a broken CuPy."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import baracuda_py as bc
from baracuda_py.cli.explain import example
from baracuda_py.cli.main import main
from baracuda_py.core import registry
from baracuda_py.core.errors import CompileError
from baracuda_py.core.plan import Plan
from baracuda_py.core.sku import ArchSku, BackendKind

ROOT = Path(__file__).resolve().parents[1]
RMS_NORM = ("explain", "rms_norm", "batch_shape=8,128", "normalized_shape=4096", "element=bfloat16")


def call(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    """Exit status, stdout, stderr."""
    status = main(list(argv))
    said = capsys.readouterr()
    return status, said.out, said.err


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty kernel cache."""
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_env(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = call(capsys, "env")
    assert status == 0 and not err
    for part in ("baracuda_py: ", "python: ", "numpy", "nvrtc", "driver", "devices", "cache", "BARACUDA_CACHE_DIR"):
        assert part in out


def test_env_json(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, "env", "--json")
    facts = json.loads(out)
    assert status == 0
    assert {"baracuda_py", "installed", "cupy", "driver", "devices", "nvrtc", "headers", "cache", "loaded"} <= set(
        facts
    )
    assert "numpy" in facts["installed"]
    assert all(set(setting) == {"value", "set", "doc"} for setting in facts["settings"].values())


def test_env_with_a_broken_cupy(tmp_path: Path) -> None:
    """The report comes out, with one line on what is broken; nothing else needs CuPy."""
    (tmp_path / "cupy.py").write_text('raise RuntimeError("libcudart.so.99\\ncannot be loaded")\n')
    environ = os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}
    command = [sys.executable, "-m", "baracuda_py", "env"]
    done = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "cupy: unavailable: RuntimeError: libcudart.so.99 cannot be loaded\n" in done.stdout
    assert "nvrtc" in done.stdout and "BARACUDA_CACHE_DIR" in done.stdout


def test_ops(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, "ops")
    assert status == 0
    assert all(name in out for name in registry.plans())


def test_ops_json_schema(capsys: pytest.CaptureFixture[str]) -> None:
    """One object per plan and direction, each with a `numpy` row that takes every element the op claims."""
    status, out, _ = call(capsys, "ops", "--json")
    ops = json.loads(out)
    assert status == 0
    assert [op["plan"] for op in ops] == list(registry.plans())
    assert len({(op["family"], op["name"], op["direction"]) for op in ops}) == len(ops)
    for op in ops:
        plan = registry.plans()[op["plan"]]
        keys = {"name", "family", "plan", "descriptor", "args", "direction", "kinds", "elements", "variants"}
        assert set(op) == keys
        assert f"{op['family']}.{op['name']}" == plan.op
        assert (op["descriptor"], op["args"]) == (plan.descriptor.__name__, plan.args.__name__)
        assert op["direction"] in ("forward", "backward")
        assert op["kinds"] == [kind.value for kind in plan.kinds or ()]
        assert op["elements"]
        for row in op["variants"]:
            assert set(row) == {"name", "backend", "arch", "layout", "elements", "guarantee"}
            assert row["backend"] in {b.value for b in BackendKind} and row["arch"] in {a.value for a in ArchSku}
            assert row["layout"] in ("contiguous", "inner_contiguous", "strided")
            assert set(row["elements"]) <= set(op["elements"]) and row["elements"]
            assert set(row["guarantee"]) == set(row["elements"])
            assert all({"math_precision", "deterministic", "error"} <= set(g) for g in row["guarantee"].values())
        numpy, *apart = [row for row in op["variants"] if row["backend"] == "numpy"]
        assert numpy["name"] == "numpy" and numpy["arch"] == "any" and numpy["elements"] == op["elements"]
        assert [row["name"] for row in apart] == ["numpy_apart"] * plan.apart


@pytest.mark.parametrize(("device", "row"), [("9.0", "rows"), ("8.6", "rows"), ("cpu", "numpy")])
def test_explain(capsys: pytest.CaptureFixture[str], device: str, row: str) -> None:
    for argv in ((*RMS_NORM, "--device", device), ("explain", "--device", device, *RMS_NORM[1:])):
        status, out, _ = call(capsys, *argv)
        assert status == 0
        taken = [line.split()[0] for line in out.splitlines() if " taken " in line]
        assert taken == [row]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("explain", "no_such_op"), "no op 'no_such_op'; `python -m baracuda_py ops` lists them"),
        ((*RMS_NORM[:2], "batch_shape"), "'batch_shape' is not field=value"),
        ((*RMS_NORM[:2], "rows=3"), "the fields are batch_shape, normalized_shape, eps"),
        ((*RMS_NORM[:2], "element=float32"), "the fields are batch_shape, normalized_shape, eps"),
        ((*RMS_NORM, "eps=-1"), "eps must be"),
        ((*RMS_NORM[:4], "element=int8"), "element int8 is not supported"),
        ((*RMS_NORM, "--device", "7.5"), "compute capability 7.5; 8.0 or newer is needed"),
        ((*RMS_NORM, "--device", "tpu"), "device must be"),
        (("warm", "no_such_op"), "no op 'no_such_op'"),
        (("warm", "rms_norm", "--arch", "hopper"), "'hopper' is not a target such as sm_80"),
        (("warm", "rms_norm", "--arch", "sm_75"), "no row is compiled for these targets"),
    ],
)
def test_bad_use_is_one_line(capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], message: str) -> None:
    status, out, err = call(capsys, *argv)
    assert status == 1 and not out
    assert err.startswith("error: ") and message in err and err.count("\n") == 1


@pytest.mark.parametrize(
    "argv", [(), ("nope",), ("env", "--nope"), (*RMS_NORM, "--nope"), ("warm", "--jobs", "0"), ("cache",)]
)
def test_unknown_options_exit_with_usage(capsys: pytest.CaptureFixture[str], argv: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(list(argv))
    assert exit.value.code == 2
    assert "error: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("warmm",), "no command 'warmm'; did you mean warm?"),
        (("Explain", "rms_norm"), "no command 'Explain'; did you mean explain"),
        (("zzz",), "no command 'zzz'; there are env, ops, explain, warm, cache, tune, bench, doctor, replay"),
        (("env", "--jsn"), "env does not take --jsn; did you mean --json?"),
        (("warm", "--archs"), "warm does not take --archs; did you mean --arch?"),
        (("--versoin",), "does not take --versoin"),
    ],
)
def test_a_slip_names_what_was_meant(capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], says: str) -> None:
    with pytest.raises(SystemExit) as exit:
        main(list(argv))
    assert exit.value.code == 2 and says in capsys.readouterr().err


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["--version"])
    assert exit.value.code == 0 and capsys.readouterr().out == f"baracuda_py {bc.__version__}\n"


@pytest.mark.parametrize("device", [(), ("--device", "9.0"), ("--device", "cpu")])
def test_explain_without_a_problem(capsys: pytest.CaptureFixture[str], device: tuple[str, ...]) -> None:
    """What a problem is made of, one that may be copied, and the rows."""
    status, out, err = call(capsys, "explain", "rms_norm", *device)
    assert status == 0 and not err
    lines = out.splitlines()
    assert lines[0].startswith("norm.rms_norm: a problem has batch_shape, normalized_shape, element; ")
    assert "eps=1e-06" in lines[0]
    assert lines[1].startswith("for example: python -m baracuda_py explain rms_norm batch_shape=")
    assert lines[-1].split()[:3] == ["numpy", "any", "numpy"] and lines[-2].split()[0] == "rows"


@pytest.mark.parametrize("plan", registry.plans().values(), ids=lambda plan: plan.op)
def test_every_example_is_explained(capsys: pytest.CaptureFixture[str], plan: type[Plan]) -> None:
    command = example(plan)
    status, out, err = call(capsys, *shlex.split(command)[3:], "--device", "9.0")
    assert status == 0 and " taken " in out, f"{command}: {err}"
    assert len(command) < 500


def test_a_problem_that_lacks_fields(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = call(capsys, *RMS_NORM[:3])
    assert status == 1 and not out and err.count("\n") == 1
    assert "norm.rms_norm also needs normalized_shape, element; the fields are batch_shape, normal" in err
    assert "For example: python -m baracuda_py explain rms_norm batch_shape=" in err


def test_warm_then_cache(capsys: pytest.CaptureFixture[str], cache: Path) -> None:
    """Compiling needs no GPU; the second time everything is found; the cache counts it and can be emptied."""
    status, out, err = call(capsys, "warm", "global_norm", "--jobs", "2")
    assert status == 0 and not err
    summary = out.splitlines()[-1]
    units = int(summary.split(" units")[0].split()[-1])
    assert units > 0 and "(0 from the cache)" in summary and " s; registers up to " in summary
    assert "0 kernels spill, 0 units failed" in summary
    status, out, _ = call(capsys, "warm", "GlobalNormPlan")
    assert status == 0 and f"({units} from the cache)" in out
    status, out, _ = call(capsys, "cache", "--stats")
    assert status == 0 and f"{cache}: {units} entries, " in out
    status, out, _ = call(capsys, "cache", "--clear")
    assert status == 0 and f"removed {units} entries" in out
    status, out, _ = call(capsys, "cache", "--stats")
    assert status == 0 and "0 entries" in out


def test_warm_fails_when_a_unit_does(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every unit fails alike: the reason is said once, the count is of all."""

    def broken(work: list[object], **_: object) -> list[CompileError]:
        return [CompileError("no compiler here") for _ in work]

    monkeypatch.setattr("baracuda_py.backends.cuda.runner.CudaRunner.compile_many", broken)
    status, out, err = call(capsys, "warm", "global_norm")
    assert status == 1
    assert err == "error: no compiler here\n"
    assert "0 kernels in" in out and not out.splitlines()[-1].endswith(" 0 units failed")


def test_warm_names_kernels_that_spill(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from baracuda_py.core.unit import Cubin, KernelInfo

    def spilling(work: list[object], **_: object) -> list[Cubin]:
        return [Cubin(None, b"", {"bc_k": KernelInfo(255, 16, 24, 0, 0)}, 0.1, cached=False) for _ in work]

    monkeypatch.setattr("baracuda_py.backends.cuda.runner.CudaRunner.compile_many", spilling)
    status, out, _ = call(capsys, "warm", "global_norm", "--arch", "sm_90a")
    assert status == 0
    assert "spills: bc_k for sm_90a, 16 bytes out, 24 bytes in" in out and "registers up to 255" in out


# --- places and arguments that are not as they should be: one line and a status, never a traceback


def shell(command: str, cwd: str | Path = ROOT, **environ: str) -> tuple[int, str, str]:
    """Status, stdout and stderr of a bash command in which `cli` is the command line; no traceback in either."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith("BARACUDA_")}
    done = subprocess.run(
        ["bash", "-c", f'set -o pipefail; cli() {{ "{sys.executable}" -m baracuda_py "$@"; }}; {command}'],
        env=variables | {"PYTHONPATH": str(ROOT)} | environ, cwd=cwd, capture_output=True, timeout=120,
    )  # fmt: skip
    out, err = done.stdout.decode(errors="backslashreplace"), done.stderr.decode(errors="backslashreplace")
    assert "Traceback" not in out + err and "Exception ignored" not in err, err
    return done.returncode, out, err


@pytest.mark.parametrize("command", ["env", "ops --json", " ".join(RMS_NORM), "--help"])
@pytest.mark.parametrize("buffered", ["", "1"])
def test_output_to_a_full_device(command: str, buffered: str) -> None:
    status, _, err = shell(f"cli {command} > /dev/full", PYTHONUNBUFFERED=buffered)
    assert (status, err) == (1, "error: No space left on device\n")


def test_messages_to_a_full_device() -> None:
    assert shell("cli explain no_such_op 2> /dev/full") == (1, "", "")
    assert shell("cli env --nope 2> /dev/full") == (2, "", "")
    assert shell("cli ops > /dev/full 2> /dev/full") == (1, "", "")


def test_a_pipe_that_closes_and_no_output_at_all() -> None:
    status, out, err = shell("cli ops | head -n 1")
    assert (status, out.count("\n"), err) == (0, 1, "")
    assert shell("cli ops | true")[::2] == (0, "")
    assert shell("cli env >&-") == (1, "", "error: standard output is closed\n")
    assert shell("cli explain no_such_op 2>&-") == (1, "", "")
    assert shell("cli explain no_such_op >&- 2>&-") == (1, "", "")


def test_a_working_folder_that_was_deleted(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    there = f"mkdir {gone} && cd {gone} && rmdir {gone}"
    explain = " ".join((*RMS_NORM, "--device", "9.0"))
    status, out, err = shell(f"{there} && cli env && cli {explain} && cli cache --stats", HOME=str(tmp_path))
    assert (status, err) == (0, "") and "taken" in out and "0 entries" in out
    status, out, err = shell(f"{there} && cli cache --stats", BARACUDA_CACHE_DIR="relative")
    assert (status, out) == (1, "") and err.startswith("error: BARACUDA_CACHE_DIR: got 'relative'; it takes a direct")


@pytest.mark.parametrize("name", ["BARACUDA_CACHE_DIR", "BARACUDA_NVRTC", "BARACUDA_CUDA_HOME"])
def test_a_user_that_does_not_exist(name: str, tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), name: "~no_such_user/x"}
    command = "cache --stats" if name == "BARACUDA_CACHE_DIR" else "warm global_norm"
    status, _, err = shell(f"cli {command}", **environ)
    assert status == 1 and err.startswith(f"error: {name}: got '~no_such_user/x'; it takes ") and err.count("\n") == 1
    status, out, err = shell("cli env", **environ)
    assert (status, err) == (0, "") and f"invalid: {name}: got '~no_such_user/x'" in out, "the report comes out"
    status, out, _ = shell("cli env --json", **environ)
    assert status == 0 and json.loads(out)["settings"][name]["value"].startswith("invalid: ")


BAD = os.fsdecode(b"\xff\xfe")


@pytest.mark.parametrize(
    "argv",
    [
        ("explain", BAD), ("explain", "rms_norm", BAD), ("explain", "rms_norm", f"{BAD}=1"), ("warm", BAD),
        ("explain", "rms_norm", f"batch_shape={BAD}"), (*RMS_NORM, "--device", BAD), ("warm", "--arch", BAD),
        (*RMS_NORM[:4], f"element={BAD}"), ("cache", f"--{BAD}"), (BAD,), ("warm", "--jobs", BAD),
    ],
)  # fmt: skip
def test_arguments_that_are_no_text(capsys: pytest.CaptureFixture[str], argv: tuple[str, ...]) -> None:
    try:
        status = main(list(argv))
    except SystemExit as error:
        status = error.code
    said = capsys.readouterr()
    assert status == (2 if argv[0] == BAD or argv[1] in (f"--{BAD}", "--jobs") else 1)
    assert not said.out and "error: " in said.err


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_path_that_is_no_text(tmp_path: Path, encoding: str) -> None:
    environ = {"BARACUDA_CACHE_DIR": os.fsdecode(os.fsencode(tmp_path) + b"/\xff"), "PYTHONIOENCODING": encoding}
    status, out, err = shell("cli cache --stats; cli env --json; cli explain $'\\xff'", **environ)
    assert status == 1 and err.startswith("error: no op '\\udcff'") and "\\udcff: 0 entries" in out


@pytest.mark.parametrize(
    "device", ["².5", "9" * 400 + ".0", "cuda:²", "cuda:" + "9" * 5000, "cuda:", "9.", ".0", "-1.0", "nan", "1e1.0"]
)
def test_devices_that_are_none(capsys: pytest.CaptureFixture[str], device: str) -> None:
    status, out, err = call(capsys, *RMS_NORM, f"--device={device}")
    assert status == 1 and not out and err.startswith("error: ") and "device" in err and err.count("\n") == 1


@pytest.mark.parametrize("text", ["(" * 3000, "-" * 100_000 + "1", "[" * 100_000, "1e999"])
def test_values_that_are_none(capsys: pytest.CaptureFixture[str], text: str) -> None:
    for field in ("normalized_shape", "eps", "element"):
        rest = [argument for argument in RMS_NORM if not argument.startswith(f"{field}=")]
        status, out, err = call(capsys, *rest, f"{field}={text}")
        assert status == 1 and not out and err.startswith("error: ")


def test_ctrl_c(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("baracuda_py.cli.ops.operations", interrupt)
    assert call(capsys, "ops") == (130, "", "error: interrupted\n")
