"""`warm --for`: every family's calls have plans and kernels, a model's own sizes are read, wrong use is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from baracuda_py.cli.families import FAMILIES, family, read
from baracuda_py.cli.family_calls import Call, calls, needed
from baracuda_py.cli.main import main
from baracuda_py.core.device import fake_device
from baracuda_py.core.element import ElementKind
from baracuda_py.core.errors import BaracudaError

HOPPER = fake_device(9.0)


def call(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    """Exit status, stdout, stderr."""
    status = main(list(argv))
    said = capsys.readouterr()
    return status, said.out, said.err


def ops(name: str) -> set[str]:
    return {one.op for one in calls(FAMILIES[name])}


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(("device", "element"), [(9.0, "bfloat16"), (8.0, "float16"), (12.0, "float32")])
def test_every_call_of_a_family_has_kernels(name: str, device: float, element: str) -> None:
    jobs = needed(FAMILIES[name], ElementKind.of(element), fake_device(device))
    assert len({job.unit for job in jobs}) == len(jobs) > 30
    covered = {job.plan.op.partition(".")[2] for job in jobs}
    assert ops(name) - covered <= {"linear_cross_entropy", "linear_cross_entropy_backward"}, (
        "which may be cuBLAS's alone"
    )


def test_what_a_family_is_made_of() -> None:
    llama, gpt2, bert = ops("llama"), ops("gpt2"), ops("bert")
    trained = {"flash_sdpa", "flash_sdpa_backward", "cross_entropy", "linear_cross_entropy", "adam_step", "global_norm"}
    decoded = {"flash_decoding", "kv_cache_append", "sample"}
    assert trained | decoded | {"rms_norm", "rms_norm_backward", "gated_activation", "rope", "rope_backward"} <= llama
    assert trained | decoded | {"layer_norm", "layer_norm_backward", "unary", "unary_backward"} <= gpt2
    assert trained <= bert and not decoded & bert and "rope" not in gpt2 | bert
    assert {one.fields["kind"] for one in calls(FAMILIES["gemma"]) if one.op == "gated_activation"} == {"geglu_tanh"}


def test_operands_lie_as_torch_has_them() -> None:
    """Heads apart, as views of (batch, sequence, heads, columns)."""
    fields = {"batch_size": 2, "num_heads": 4, "query_len": 8, "key_len": 8, "d_k": 64, "d_v": 64}
    _, args = Call("flash_sdpa", fields, ("mask:bool",), apart=True).args(ElementKind.BF16, HOPPER)
    assert args.q.shape == (2, 4, 8, 64) and args.q.strides == (8 * 4 * 64, 64, 4 * 64, 1)
    assert args.mask.element is ElementKind.BOOL and args.lse is None


def test_a_model_s_own_sizes(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    config = {
        "model_type": "qwen3", "hidden_size": 640, "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 96,
        "intermediate_size": 1000, "vocab_size": 999,
    }  # fmt: skip
    path.write_text(json.dumps(config))
    (sizes,) = family(str(path)).sizes
    assert (sizes.width, sizes.heads, sizes.kv_heads, sizes.head_dim, sizes.hidden) == (640, 5, 1, 96, 1000)
    assert family(str(path)).norm == "rms_norm"
    path.write_text(json.dumps({"model_type": "gpt2", "n_embd": 48, "n_head": 3, "vocab_size": 100, "n_inner": None}))
    (sizes,) = read(path).sizes
    assert (sizes.width, sizes.kv_heads, sizes.head_dim, sizes.hidden) == (48, 3, 16, 192)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no config.json"), ("[1]", "is no config.json"), ("{}", "model_type"), ("null", "is no config.json"),
        ('{"model_type": "t5"}', "models of type 't5'; there are llama"),
        ('{"model_type": "llama"}', "has no hidden_size"),
        ('{"model_type": "llama", "hidden_size": -1}', "hidden_size must be"),
        ('{"model_type": "llama", "hidden_size": "x"}', "hidden_size must be"),
    ],
)  # fmt: skip
def test_a_config_that_is_none(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(BaracudaError, match=message):
        read(path)


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second time everything is found, and in another cache what was carried there."""
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path / "cache"))
    few = [Call("global_norm", {"shapes": ((8, 8),)}), Call("rms_norm", {"batch_shape": 8, "normalized_shape": 64})]
    monkeypatch.setattr("baracuda_py.cli.family_calls.calls", lambda family: iter(few))
    status, out, err = call(capsys, "warm", "--for", "llama", "bert", "--arch", "sm_90", "--element", "float16")
    assert status == 0 and not err and "3 kernels in 3 units (0 from the cache)" in out
    _, out, _ = call(capsys, "warm", "--for", "llama", "--arch", "sm_90a", "--element", "float16")
    assert "3 kernels in 3 units (3 from the cache)" in out
    assert call(capsys, "cache", "--export", str(tmp_path / "kernels.tar"))[0] == 0
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path / "image"))
    monkeypatch.setenv("BARACUDA_JIT", "cached")
    assert call(capsys, "cache", "--import", str(tmp_path / "kernels.tar"))[0] == 0
    status, out, _ = call(capsys, "warm", "--for", "llama", "--arch", "sm_90a", "--element", "float16")
    assert status == 0 and "3 kernels in 3 units (3 from the cache)" in out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--for", "lama", "--arch", "sm_90a"), "no family of models 'lama'; did you mean llama?"),
        (("--for", "zzz", "--arch", "sm_90a"), "no family of models 'zzz'; there are llama, mistral"),
        (("--for", "none.json", "--arch", "sm_90a"), "none.json is no config.json of a model (FileNotFoundError"),
        (("--for", "bert", "--arch", "hopper"), "'hopper' is not a target"),
        (("--for", "bert", "--arch", "sm_75"), "8.0 or newer is needed"),
        (("--for", "bert", "--arch", "sm_90a", "--element", "int8"), "element int8 is not supported"),
        (("--for", "bert", "--arch", "sm_90a", "--element", "real"), "no element kind for 'real'"),
        (("rms_norm", "--for", "bert"), "--for says what is compiled; leave out rms_norm"),
    ],
)
def test_wrong_use(capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], message: str) -> None:
    status, out, err = call(capsys, "warm", *argv)
    assert status == 1 and not out and err.startswith("error: ") and message in err
    assert err.count("\n") == 1


def test_without_a_gpu_a_target_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARACUDA_BACKEND", "numpy")
    assert (
        call(capsys, "warm", "--for", "bert")[2] == "error: no GPU is here; name what is compiled for: --arch sm_90a\n"
    )
