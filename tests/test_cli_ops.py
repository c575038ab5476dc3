"""`python -m baracuda_py ops NAME`: families, one op with what it takes, slips; and a call without a command."""

from __future__ import annotations

import json

import pytest

from baracuda_py.cli.main import main
from baracuda_py.core import registry
from baracuda_py.core.args import operands_of


def call(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    """Exit status, stdout, stderr."""
    status = main(list(argv))
    said = capsys.readouterr()
    return status, said.out, said.err


def test_a_family(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = call(capsys, "ops", "norm")
    assert status == 0 and not err
    plans = [line.split()[1] for line in out.splitlines() if not line.startswith(" ")]
    assert plans == [p.__name__ for p in registry.plans().values() if p.op.startswith("norm.")] and len(plans) >= 4


@pytest.mark.parametrize("name", ["rms_norm", "norm.rms_norm", "RMSNormPlan"])
def test_one_op_with_all_it_takes(capsys: pytest.CaptureFixture[str], name: str) -> None:
    status, out, _ = call(capsys, "ops", name)
    assert status == 0 and out.startswith("norm.rms_norm  RMSNormPlan (RMSNormDescriptor, RMSNormArgs), forward\n")
    for line in (
        "  eps = 1e-06",
        "  batch_shape",
        "  x                input    [*batch_shape, *normalized_shape], element",
    ):
        assert line in out.splitlines()
    assert "optional, goes with residual" in out and "    rows " in out


@pytest.mark.parametrize("name", list(registry.plans()))
def test_every_op_is_described(capsys: pytest.CaptureFixture[str], name: str) -> None:
    plan = registry.plans()[name]
    status, out, _ = call(capsys, "ops", name)
    lines = out.splitlines()
    assert status == 0 and all(any(line.startswith(f"  {o.name} ") for line in lines) for o in operands_of(plan.args))
    if plan.kinds:
        assert lines[lines.index("kinds") + 1].split() == [kind.value for kind in plan.kinds]


def test_a_kind_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "ops", "silu")
    assert "UnaryPlan" in out and "UnaryBackwardPlan" in out and "RMSNormPlan" not in out
    _, out, _ = call(capsys, "ops", "rms_norm", "norm", "--json")
    found = [op["plan"] for op in json.loads(out)]
    assert found[0] == "RMSNormPlan" and sorted(found) == sorted(set(found)) and len(found) >= 4


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("ops", "rmsnorm"), "no op 'rmsnorm'; did you mean rms_norm or RMSNormPlan"),
        (("explain", "sofmax"), "did you mean softmax"),
        (("ops", "RmsNormPlan"), "did you mean RMSNormPlan"),
        (("explain", "silu"), "did you mean elementwise.unary kind=silu"),
        (
            ("explain", "norm"),
            "did you mean norm.batch_norm_inference or norm.channel_norm or norm.channel_norm_backward",
        ),
        (("warm", "flash_spda"), "did you mean flash_sdpa"),
        (("ops", "norms"), "did you mean norm"),
        (("ops", "qqqqqq"), "no op 'qqqqqq'; `python -m baracuda_py ops` lists them"),
    ],
)
def test_an_unknown_op_lists_near_ones(capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], says: str) -> None:
    status, out, err = call(capsys, *argv)
    assert status == 1 and not out and err.startswith("error: ") and err.count("\n") == 1
    assert says in err and len(err) < 200


def test_a_bare_call_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main([])
    said = capsys.readouterr()
    assert exit.value.code == 2 and not said.out
    assert all(
        word in said.err for word in ("usage: ", "env", "ops", "explain", "warm", "cache", "a command is missing")
    )
