"""Families and names: a category is what stands before the point in `op`; a named subclass is some kinds of a plan."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core import OpCategory, Plan, registry
from baracuda_py.core.dispatch import Verdict
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.core.plan import NAMED, PLANS


class ReluPlan(bc.UnaryPlan, kind=bc.UnaryKind.RELU):
    """One kind."""


class RootPlan(bc.UnaryPlan, kind=(bc.UnaryKind.SQRT, bc.UnaryKind.CBRT)):
    """Two kinds."""


NAMED.pop("ReluPlan")  # so that nothing else finds the toys
NAMED.pop("RootPlan")


def desc(kind: str, plan: Any = bc.UnaryPlan) -> Any:
    return plan.descriptor(kind=kind, shape=(3,), element="float32")


def test_a_name_is_its_plan_for_a_kind() -> None:
    chosen, whole = ReluPlan.select(desc("relu"), device="cpu"), bc.UnaryPlan.select(desc("relu"), device="cpu")
    assert chosen.sku == whole.sku and str(chosen.sku).startswith("elementwise.unary[relu]/")
    assert type(chosen) is ReluPlan and isinstance(chosen, bc.UnaryPlan)
    y = np.zeros(3, np.float32)
    chosen(x=np.array([-1, 0, 2], np.float32), y=y)
    assert y.tolist() == [0, 0, 2]
    assert isinstance(chosen.can_implement(bc.UnaryArgs(x=y, y=y)), Verdict)


def test_a_name_takes_no_other_kind() -> None:
    with pytest.raises(InvalidProblemError, match=r"ReluPlan is for kind relu, got .*SILU"):
        ReluPlan.select(desc("silu"), device="cpu")
    with pytest.raises(InvalidProblemError, match="RootPlan is for kind sqrt or cbrt, got"):
        RootPlan.select(desc("rsqrt"), device="cpu")
    for kind in ("sqrt", "cbrt"):
        assert RootPlan.select(desc(kind), device="cpu").kind is bc.UnaryKind(kind)
    assert bc.UnaryPlan.select(desc("silu"), device="cpu").kind is bc.UnaryKind.SILU, "the plan itself keeps all"


def test_a_name_is_not_a_plan_more() -> None:
    assert not {ReluPlan, RootPlan} & set(registry.plans().values())
    assert bc.UnaryPlan in registry.plans().values()
    NAMED["ReluPlan"] = ReluPlan
    try:
        assert registry.plan("ReluPlan") is ReluPlan and registry.plan("elementwise.unary") is bc.UnaryPlan
    finally:
        del NAMED["ReluPlan"]


def test_a_name_is_pickled_and_copied() -> None:
    chosen = RootPlan.select(desc("sqrt"), device="cpu")
    assert pickle.loads(pickle.dumps(chosen)) is chosen and copy.deepcopy(chosen) is chosen


def test_a_kind_that_the_plan_has_not() -> None:
    with pytest.raises(TypeError, match=r"BadPlan.* is no kind of elementwise.unary, whose kinds are: neg,"):
        type("BadPlan", (bc.UnaryPlan,), {}, kind="none of them")
    with pytest.raises(TypeError, match=r"is no kind of norm.rms_norm, whose kinds are: none"):
        type("BadPlan", (bc.RMSNormPlan,), {}, kind=bc.UnaryKind.RELU)
    with pytest.raises(TypeError, match="is no kind of"):
        type("BadPlan", (RootPlan,), {}, kind=bc.UnaryKind.RELU)
    assert "BadPlan" not in PLANS and "BadPlan" not in NAMED


def test_families_by_the_reference_s_names() -> None:
    known = {
        "norm.rms_norm": OpCategory.NORMALIZATION, "gated.gated_activation": OpCategory.GATED_ACTIVATION,
        "elementwise.unary": OpCategory.UNARY_ELEMENTWISE, "elementwise.binary": OpCategory.BINARY_ELEMENTWISE,
        "attention.flash_sdpa": OpCategory.ATTENTION, "gemm.gemm": OpCategory.GEMM,
        "softmax.softmax": OpCategory.SOFTMAX, "embedding.embedding": OpCategory.EMBEDDING,
        "loss.cross_entropy": OpCategory.LOSS, "random.sample": OpCategory.RANDOM,
        "optimizer.adam_step": OpCategory.OPTIMIZER,
    }  # fmt: skip
    for op, category in known.items():
        assert OpCategory(op.partition(".")[0]) is category
        assert registry.plan(op)
    wanted = """GEMM UNARY_ELEMENTWISE BINARY_ELEMENTWISE TERNARY_ELEMENTWISE GATED_ACTIVATION REDUCTION SCAN
        NORMALIZATION SOFTMAX CONVOLUTION POOLING ATTENTION INDEXING EMBEDDING SHAPE_LAYOUT SORTING QUANTIZATION RANDOM
        LOSS SEGMENT_OPS IMAGE FFT LINALG MOE"""
    assert all(hasattr(OpCategory, name) for name in wanted.split())


def test_a_family_needs_no_entry() -> None:
    made = OpCategory("fourier")
    assert made is OpCategory("fourier") and (made.name, made.value) == ("FOURIER", "fourier")
    assert made not in tuple(OpCategory) and pickle.loads(pickle.dumps(made)) is made and copy.deepcopy(made) is made
    for wrong in ("", "norm.rms_norm", "a b", 3, None):
        with pytest.raises(ValueError, match="is not a valid OpCategory"):
            OpCategory(wrong)


def test_no_page_names_its_category() -> None:
    plans: list[type[Plan]] = list(registry.plans().values())
    assert plans and not [plan.__name__ for plan in plans if "category" in vars(plan)]
    families = {plan.op.partition(".")[0]: plan.__module__.split(".")[2] for plan in plans}
    assert all(family == folder for family, folder in families.items()), "the folder is the family"


SKUS = {
    "elementwise.unary[relu]/map/bfloat16.float32/contiguous/sm80/bespoke":
        lambda d: bc.UnaryPlan.select(bc.UnaryDescriptor(kind="relu", shape=(64,), element="bfloat16"), device=d),
    "norm.rms_norm/rows/float16_float32.float32/contiguous/sm80/bespoke":
        lambda d: bc.RMSNormPlan.select(
            bc.RMSNormDescriptor(batch_shape=4, normalized_shape=64, element="float16", weight_element="float32"),
            device=d,
        ),
    "attention.flash_sdpa_sm89/mma_wide/float16.float32/contiguous/sm89/bespoke":
        lambda d: bc.FlashSdpaSm89Plan.select(
            bc.FlashSdpaDescriptor(batch_size=1, num_heads=2, query_len=64, key_len=64, d_k=64, d_v=64,
                                   element="float16"), device=d,
        ),
}  # fmt: skip


@pytest.mark.parametrize("said", SKUS)
def test_sku_strings_stay(said: str) -> None:
    chosen = SKUS[said](bc.fake_device(9.0))
    assert str(chosen.sku) == said
    assert (
        chosen.sku.category is OpCategory(said.partition(".")[0]) and chosen.sku.op == said.split("/")[0].split("[")[0]
    )
