"""The benchmarks without a GPU: scripts start from a bare clone, and what pages declare makes operands that fit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from baracuda_py.core import ElementKind, registry
from baracuda_py.core.args import arrays_of, expect_shape
from baracuda_py.core.benchmark import IN_ORDER, Benchmark
from baracuda_py.core.plan import Plan

torch = pytest.importorskip("torch")
pytest.importorskip("cupy")
FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
SCRIPTS = [path for path in sorted(FOLDER.glob("*.py")) if "__main__" in path.read_text()]
MODULES = [path.stem for path in FOLDER.glob("*.py")]


START = """
import runpy, sys
clean, known = list(sys.path), set(sys.modules)
for script in sys.argv[1:]:
    for name in [n for n in sys.modules if n.partition(".")[0] not in ("torch", "cupy", "numpy") and n not in known]:
        if "benchmarks" in str(getattr(sys.modules[name], "__file__", "")) or name.startswith(("baracuda", "gpt_")):
            del sys.modules[name]
    sys.path[:], sys.argv = [script.rpartition("/")[0], *clean], [script, "--help"]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        assert not end.code, script
"""


def test_help_from_a_bare_clone(tmp_path: Path) -> None:
    """Of every script: nothing is installed, no variable is set, and the folder is another one. torch is read once."""
    done = subprocess.run(
        [sys.executable, "-c", START, *map(str, SCRIPTS)], env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith("usage:")] == [
        script.name for script in SCRIPTS
    ]


@pytest.fixture(scope="module")
def cases() -> Iterator[ModuleType]:
    """`benchmarks/cases.py`; its neighbours' names leave with it."""
    sys.path.insert(0, str(FOLDER))
    try:
        import cases

        yield cases
    finally:
        sys.path.remove(str(FOLDER))
        for name in MODULES:
            sys.modules.pop(name, None)


DECLARED = [
    pytest.param(plan, benchmark, id=f"{plan.op} {benchmark.label}")
    for plan in registry.plans().values()
    for benchmark in vars(plan).get("benchmarks", ())
]


@pytest.mark.parametrize(("plan", "benchmark"), DECLARED)
def test_operands_fit(plan: type[Plan], benchmark: Benchmark, cases: ModuleType) -> None:
    """Every operand has its declared shape and element, those required are there, and something is written."""
    desc = plan.descriptor(**benchmark.fields)
    made = cases.operands(plan, benchmark, desc, "meta")
    for spec in arrays_of(plan.args):
        value = made.get(spec.name)
        assert value is not None or spec.optional, spec.name
        for i, one in enumerate([] if value is None else value if isinstance(value, list) else [value]):
            expect_shape(spec, desc, tuple(one.shape), i)
            held = ElementKind.of(str(one.dtype).removeprefix("torch."))
            assert any(held is e or held.dtype == e.carrier for e in spec.elements(desc)), spec.name
    assert any(made.get(spec.name) is not None for spec in arrays_of(plan.args) if spec.writes)
    assert set(benchmark.also) <= set(made)


NORM = {"batch_shape": 6, "normalized_shape": 24, "element": "bfloat16"}
HEADS = {"batch_size": 2, "num_heads": 4, "d_k": 16, "d_v": 16, "element": "bfloat16"}
DENSE = {**HEADS, "query_len": 9, "key_len": 9}
POOL = {
    "kind": "max", "shape": (2, 16, 9, 9), "spatial_rank": 2, "kernel_size": 3, "stride": 2, "padding": 1,
    "element": "float32",
}  # fmt: skip
INDEXED = {"shape": (8, 9), "index_shape": (8, 5), "axis": 1, "element": "float32"}
SMALL: dict[str, dict[str, Any]] = {
    "RMSNormPlan": NORM,
    "RMSNormBackwardPlan": NORM,
    "LayerNormBackwardPlan": NORM,
    "SoftmaxBackwardPlan": {"shape": (5, 30), "element": "float32"},
    "CrossEntropyLossBackwardPlan": {"batch_shape": 7, "num_classes": 33, "element": "float32"},
    "EmbeddingBackwardPlan": {"num_embeddings": 9, "embedding_dim": 8, "index_shape": 20, "element": "float32"},
    "AdamStepPlan": {"shapes": ((5,), (3, 4)), "element": "float32"},
    "SamplingPlan": {"batch_size": 3, "vocab_size": 60, "element": "float32"},
    "FlashSdpaBackwardPlan": {**DENSE, "is_causal": True},
    "SdpaBackwardPlan": DENSE,
    "BlockSelectAttentionBackwardPlan": {
        **DENSE,
        "query_len": 32,
        "key_len": 32,
        "selected": 3,
        "block_size": 4,
        "is_causal": True,
    },
    "SdpaVariableBlockSparseBackwardPlan": {
        **DENSE,
        "query_len": 512,
        "key_len": 512,
        "row_blocks": 4,
        "column_blocks": 4,
    },
    "HstuAttentionBackwardPlan": {
        "total": 24,
        "num_heads": 2,
        "d_k": 8,
        "d_v": 8,
        "num_bounds": 4,
        "max_seqlen": 8,
        "element": "float32",
    },
    "SdpaBlockSparseBackwardPlan": {**DENSE, "query_len": 32, "key_len": 32, "query_block": 4, "key_block": 4},
    "RopeBackwardPlan": {"batch_size": 2, "num_heads": 3, "seq_len": 5, "head_dim": 8, "element": "float32"},
    "FlashSdpaVarlenBackwardPlan": {**HEADS, "total_q": 16, "total_k": 16, "max_seqlen_q": 8, "max_seqlen_k": 8},
    "CascadeAttentionPlan": {"seq_len": 5, "num_heads": 2, "head_dim": 8, "element": "bfloat16"},
    "RopeKvAppendPlan": {**HEADS, "num_kv_heads": 2, "new_len": 3, "max_cache_len": 128},
    "ReducePlan": {"kind": "logsumexp", "shape": (6, 40), "axis": 1, "element": "float32"},
    "ScanPlan": {"kind": "cumsum", "shape": (6, 40), "axis": 1, "element": "float32"},
    "ScanExtremePlan": {"kind": "cummax", "shape": (6, 40), "axis": 1, "element": "float32"},
    "PoolPlan": POOL,
    "PoolBackwardPlan": POOL,
    "GatherPlan": INDEXED,
    "GatherBackwardPlan": INDEXED,
    "TakePlan": {**INDEXED, "index_shape": 20},
    "TakeBackwardPlan": {**INDEXED, "index_shape": 20},
    "ScatterPlan": {**INDEXED, "kind": "set", "index_shape": (8, 9)},
    "BatchPagedDecodePlan": {**HEADS, "num_pages": 6, "page_size": 4, "max_pages": 3},
}


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", SMALL)
def test_ours_against_the_pages_torch(
    name: str, device: str, cases: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small problem made as the declared ones are: results agree, every candidate runs."""
    plan = registry.plan(name)
    like = plan.benchmarks[0]
    small = Benchmark("small", also=like.also, make=like.make, work=like.work, peers=("torch",), **SMALL[name])
    monkeypatch.setattr(cases, "LIBRARIES", {})
    monkeypatch.setattr(cases, "MOST_SETS", 2)
    if name == "SamplingPlan":
        small.peers = ()
    case = cases.make(plan, small, device=device)
    assert case.work > 0 and case.sku.startswith(plan.op) and len(case.candidates["baracuda"]) == 2
    for calls in case.candidates.values():
        for call in calls:
            call()


def test_a_wrong_result_is_not_timed(cases: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = registry.plan("SoftmaxPlan")
    right = plan.torch
    assert right is not None
    monkeypatch.setattr(plan, "torch", staticmethod(lambda *given, **more: 1.1 * right(*given, **more)))
    small = Benchmark("small", shape=(5, 30), kind="softmax", element="float32")
    with pytest.raises(cases.WrongResult, match=r"y is off torch's by 0\.09"):
        cases.make(plan, small, compiled=False, device="cpu")


def test_a_shorter_problem_is_compared_where_torch_goes_step_by_step(
    cases: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, seen = registry.plan("LinearAttentionBackwardPlan"), []
    right = cases.in_torch

    def observed(plan: Any, desc: Any, *given: Any) -> Any:
        seen.append((desc.batch_size, desc.seq_len))
        return right(plan, desc, *given)

    monkeypatch.setattr(cases, "in_torch", observed)
    monkeypatch.setattr(cases, "LIBRARIES", {})
    fields = {"kind": "channel", "q_heads": 1, "k_heads": 1, "v_heads": 1, "d_k": 8, "d_v": 8, "element": "float32"}
    small = Benchmark(
        "small", also=("dq", "dg_channel"), peers=(), checked=plan.benchmarks[0].checked | {"seq_len": 7}, batch_size=3,
        seq_len=40, **fields,
    )  # fmt: skip
    case = cases.make(plan, small, device="cpu")
    assert seen == [(1, 7)]
    case.candidates["baracuda"][0]()


def test_sums_in_any_order_and_torchs_in_order(cases: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours is asked for without determinism, torch's runs with it and leaves the switch as it was."""
    plan, asked, seen = registry.plan("ScatterPlan"), [], []
    right, select = plan.torch, plan.select
    assert right is not None

    def observed(torch: Any, desc: Any, **given: Any) -> Any:
        seen.append(torch.are_deterministic_algorithms_enabled())
        return right(torch, desc, **given)

    def chosen(desc: Any, preference: Any = None, **more: Any) -> Any:
        asked.append(preference)
        return select(desc, preference, **more)

    monkeypatch.setattr(plan, "torch", staticmethod(observed))
    monkeypatch.setattr(plan, "select", chosen)
    fields = {"kind": "add", "shape": (4, 6), "index_shape": (4, 6), "axis": 1, "element": "float32"}
    small = Benchmark("small", make=plan.benchmarks[1].make, peers=("torch", IN_ORDER), any_order=True, **fields)
    case = cases.make(plan, small, compiled=False, device="cpu")
    assert asked[0].deterministic is False
    for name, in_order in (("torch", False), (IN_ORDER, True)):
        seen.clear()
        case.candidates[name][0]()
        assert seen == [in_order]
    assert not cases.torch.are_deterministic_algorithms_enabled()


def test_libraries_are_peers_of_ops(cases: ModuleType) -> None:
    assert set(cases.LIBRARIES) <= {plan.op for plan in registry.plans().values()}
