"""A keyword that is not taken: an error of ours and Python's that names the one meant, wherever keywords are taken."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py._exports import EXPORTS
from baracuda_py.core import registry
from baracuda_py.core.errors import BaracudaError, InvalidProblemError, UnknownKeywordError
from baracuda_py.core.keywords import ADVICE, SYNONYMS, meant

FUNCTIONS = [name for name in EXPORTS if hasattr(getattr(bc, name), "plan") and inspect.isfunction(getattr(bc, name))]
CLASSES = sorted({c.__name__ for plan in registry.plans().values() for c in (plan.descriptor, plan.args)})
X = np.ones((2, 3, 4, 8), np.float32)

MEANT = [  # function, the word, what is said
    ("softmax", "dim", "did you mean axis=?"),
    ("log_softmax", "Dim", "did you mean axis=?"),
    ("softmax", "input", "did you mean x=?"),
    ("softmax", "axes", "did you mean axis=?"),
    ("exp", "dtype", "did you mean element=?"),
    ("add", "input", "did you mean a=?"),
    ("add", "other", "did you mean b=?"),
    ("cast", "dtype", "did you mean to_element=?"),
    ("flash_sdpa", "causal", "did you mean is_causal=?"),
    ("flash_sdpa", "softmax_scale", "did you mean scale=?"),
    ("flash_sdpa", "sm_scale", "did you mean scale=?"),
    ("flash_sdpa", "attn_mask", "did you mean mask=?"),
    ("flash_sdpa", "alibi_slopes", "did you mean slopes=?"),
    ("flash_sdpa", "window_size", "did you mean window_left= and window_right=?"),
    ("flash_sdpa", "logits_soft_cap", "did you mean softcap=?"),
    ("flash_sdpa", "dropout", "did you mean dropout_p=?"),
    ("flash_sdpa", "enable_gqa", "give k and v with fewer heads"),
    ("flash_sdpa", "cu_seqlens_q", "flash_sdpa_varlen"),
    ("flash_sdpa", "block_table", "batch_paged_decode"),
    ("flash_sdpa_varlen", "alibi_slopes", "did you mean slopes=?"),
    ("flash_sdpa_varlen", "attn_mask", "flash_sdpa takes masks, windows, slopes"),
    ("batch_paged_prefill", "dropout_p", "flash_sdpa takes masks, windows, slopes"),
    ("sdpa", "window_size", "flash_sdpa takes masks, windows"),
    ("batch_paged_decode", "causal", "the last token sees all"),
    ("rms_norm", "dim", "did you mean normalized_shape=?"),
    ("leaky_relu", "alpha", "did you mean negative_slope=?"),
    ("flash_sdpa", "return_softmax_lse", "did you mean return_lse=?"),
    ("sdpa", "attn_mask", "did you mean mask=?"),
    ("sdpa", "need_weights", "did you mean return_attn=?"),
    ("flash_sdpa_varlen", "max_seqlen_kv", "did you mean max_seqlen_k=?"),
    ("flash_sdpa_varlen", "causal", "did you mean is_causal=?"),
    ("flash_sdpa_varlen", "qo_indptr", "did you mean cu_seqlens_q=?"),
    ("batch_ragged_prefill", "cu_seqlens_q", "did you mean qo_indptr=?"),
    ("batch_ragged_prefill", "cu_seqlens_k", "did you mean kv_indptr=?"),
    ("batch_paged_decode", "block_table", "did you mean page_table=?"),
    ("batch_paged_decode", "cache_seqlens", "did you mean lengths=?"),
    ("batch_paged_decode", "window_size", "did you mean window_left=?"),
    ("batch_paged_decode", "kv_layout", "did you mean layout=?"),
    ("batch_paged_prefill", "block_table", "did you mean page_table=?"),
    ("flash_decoding", "cache_seqlens", "did you mean lengths=?"),
    ("flash_decoding", "cache_batch_idx", "did you mean batch_index=?"),
    ("flash_decoding", "cache_leftpad", "did you mean starts=?"),
    ("batch_paged_decode", "s_aux", "did you mean sinks=?"),
    ("batch_paged_decode_fp8", "alibi_slopes", "did you mean slopes=?"),
    ("paged_kv_append", "block_table", "did you mean page_table=?"),
    ("paged_kv_append", "cache_seqlens", "did you mean cache_offsets=?"),
    ("paged_kv_append", "append_indptr", "did you mean token_indptr=?"),
    ("paged_kv_append", "slots", "did you mean slot_mapping=?"),
    ("batch_indices_positions", "seq_lens", "did you mean lengths=?"),
    ("batch_indices_positions", "nnz", "did you mean num_tokens=?"),
    ("copy_pages", "block_mapping", "did you mean pairs=?"),
    ("copy_pages", "kv_caches", "did you mean caches=?"),
    ("rope", "position_ids", "did you mean positions=?"),
    ("rope", "interleaved", "did you mean pairing=?"),
    ("rope", "theta", "did you mean base=?"),
    ("rope", "unsqueeze_dim", "did you mean layout=?"),
    ("rope", "cu_seqlens", "rope_varlen"),
    ("rope_varlen", "start_positions", "did you mean offsets=?"),
    ("rope_quantize_fp8", "pos_ids", "did you mean positions=?"),
    ("rope_quantize_fp8", "is_neox", "did you mean pairing=?"),
    ("rope_quantize_fp8", "quantize_dtype", "did you mean to_element=?"),
    ("rope_kv_append", "position_ids", "did you mean positions=?"),
    ("rope_kv_append", "cache_seqlens", "did you mean cache_offsets=?"),
    ("elu", "negative_slope", "did you mean alpha=?"),
    ("softshrink", "alpha", "did you mean lambd=?"),
    ("hardtanh", "min", "did you mean min_val=?"),
    ("gelu", "approximate", "gelu_tanh"),
    ("silu", "inplace", "out= may be the input"),
    ("rms_norm", "epsilon", "did you mean eps=?"),
    ("rms_norm", "gamma", "did you mean weight=?"),
    ("rms_norm", "normalised_shape", "did you mean normalized_shape=?"),
    ("layer_norm", "norm_eps", "did you mean eps=?"),
    ("cross_entropy", "target", "did you mean targets=?"),
    ("cross_entropy", "smoothing", "did you mean label_smoothing=?"),
    ("cross_entropy", "reduce", "did you mean reduction=?"),
    ("cross_entropy", "ignore_idx", "did you mean ignore_index=?"),
    ("cross_entropy", "input", "did you mean logits=?"),
    ("embedding", "padding_index", "did you mean padding_idx=?"),
    ("adam_step", "betas", "did you mean beta1= and beta2=?"),
    ("sample", "topk", "did you mean top_k=?"),
    ("sample", "generator", "did you mean seed=?"),
    ("matmul", "other", "did you mean b=?"),
    ("rope_frequencies", "rope_theta", "did you mean base=?"),
    ("rope_frequencies", "rope_scaling", "did you mean scaling=?"),
]


@pytest.mark.parametrize(("function", "word", "says"), MEANT)
def test_another_librarys_word_names_ours(function: str, word: str, says: str) -> None:
    given = {p: X for p, v in inspect.signature(getattr(bc, function)).parameters.items() if v.default is v.empty}
    with pytest.raises(UnknownKeywordError) as caught:
        getattr(bc, function)(**given, **{word: 1})
    text = str(caught.value)
    assert text.startswith(f"{function}() got an unexpected keyword argument {word!r}; ") and says in text
    assert " takes " in text


def refused(call: Callable[[], object], error: type[Exception], says: str) -> str | None:
    """What is wrong with a call that must raise so, or None."""
    try:
        call()
    except error as caught:
        return None if re.search(says, str(caught)) else f"{says!r} is not in {caught}"
    except Exception as caught:  # of another type: told with the others
        return f"{type(caught).__name__}: {caught}"
    return f"nothing refuses: {says!r}"


def test_what_is_wrong_with_a_refusal_is_told() -> None:
    assert refused(lambda: [].pop(1, 2), TypeError, "at most 1") is None
    for call in (lambda: None, lambda: [].pop(1, 2), lambda: [].pop()):
        assert refused(call, TypeError, "another text")


def taken_by(name: str) -> Iterator[str | None]:
    """What is wrong with a function's refusal of keywords that it does not take."""
    function = getattr(bc, name)
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        yield "it takes any keyword"
    given = {n: p.annotation == "bool" or X for n, p in parameters.items() if p.default is p.empty}
    own = function.__name__  # which an alias has from the function it is
    said = rf"{own}\(\) got an unexpected keyword argument 'zzz_?q' \({own} takes"
    yield refused(lambda: function(**given, zzz_q=1), UnknownKeywordError, said)
    close = next((n for n in reversed(parameters) if len(n) > 5), "preference")
    word = close[:-1] + "_"
    yield refused(lambda: function(**given, **{word: 1}), UnknownKeywordError, f"did you mean .*{close}=")


def test_every_function_refuses_what_it_does_not_take() -> None:
    assert len(FUNCTIONS) > 1000
    assert not [f"{name}: {why}" for name in FUNCTIONS for why in taken_by(name) if why]


def taken_by_class(name: str) -> Iterator[str | None]:
    """The same of a descriptor or args class."""
    cls = getattr(bc, name)
    fields = [f.name for f in dataclasses.fields(cls)]
    if list(inspect.signature(cls).parameters) != fields:
        yield f"its parameters are not {fields}"
    required = {f.name: 1 for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING}
    said = rf"{name}\(\) got an unexpected keyword argument 'zzz' \({name} takes"
    yield refused(lambda: cls(**required, zzz=1), UnknownKeywordError, said)
    yield refused(lambda: cls(1), TypeError, "positional argument")
    if required:
        yield refused(cls, TypeError, f"missing .* required keyword-only argument.*{next(iter(required))}")


def test_every_descriptor_and_args_class_too() -> None:
    assert len(CLASSES) > 400
    assert not [f"{name}: {why}" for name in CLASSES for why in taken_by_class(name) if why]


def test_plans_called_with_keywords() -> None:
    desc = bc.SoftmaxDescriptor(shape=X.shape, axis=-1, element="float32")
    plan = bc.SoftmaxPlan.select(desc, device="cpu")
    with pytest.raises(
        UnknownKeywordError, match=r"SoftmaxArgs\(\) got an unexpected keyword argument 'input'; .* x=\?"
    ):
        plan(input=X, x=X, y=X)
    with pytest.raises(UnknownKeywordError, match=r"'out'; did you mean y=\?"):
        plan(x=X, y=X, out=X)
    y = np.empty_like(X)
    plan(x=X, y=y)
    assert y[0, 0, 0, 0] == np.float32(1 / 8)
    with pytest.raises(UnknownKeywordError, match=r"SoftmaxDescriptor\(\) got .* 'dim'; did you mean axis=\?"):
        bc.SoftmaxDescriptor(shape=(2,), dim=-1, element="float32")
    with pytest.raises(UnknownKeywordError, match="'dim'"):
        dataclasses.replace(desc, dim=0)
    assert dataclasses.replace(desc, axis=0).axis == 0
    assert pickle.loads(pickle.dumps(desc)) == desc and hash(desc) == hash(dataclasses.replace(desc))
    args = bc.SoftmaxArgs(x=X, y=y)
    assert args.x is X and dataclasses.replace(args, x=y).x is y


def test_the_error_is_pythons_and_ours() -> None:
    with pytest.raises(TypeError) as caught:
        bc.softmax(X, dim=-1, keepdim=True)
    error = caught.value
    assert isinstance(error, (BaracudaError, InvalidProblemError))
    assert "'dim'; did you mean axis=?" in str(error) and "'keepdim'" in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    with pytest.raises(UnknownKeywordError, match=r"did you mean is_causal="):
        bc.flash_sdpa(X, X, X, IS_CAUSAL=True)


def test_a_slip_is_told_before_what_is_missing_for_it() -> None:
    with pytest.raises(UnknownKeywordError, match=r"'elem'; did you mean element="):
        bc.SoftmaxDescriptor(kind="softmax", shape=4, elem="float32")  # type: ignore[call-arg]
    with pytest.raises(
        TypeError, match=r"SoftmaxArgs.__init__\(\) missing 2 required keyword-only arguments: 'x' and 'y'"
    ):
        bc.SoftmaxArgs()


def test_nothing_is_written_before_it() -> None:
    x = X.copy()
    with pytest.raises(UnknownKeywordError):
        bc.fill(x, 7.0, values=3)
    np.testing.assert_array_equal(x, X)


def test_every_word_of_the_table_is_taken_somewhere() -> None:
    known: set[str] = set()
    for name in (*FUNCTIONS, *CLASSES, "rope_frequencies"):
        known |= set(inspect.signature(getattr(bc, name)).parameters)
    named = {name for groups in SYNONYMS.values() for group in groups for name in group.split()}
    assert named - known <= {"keepdims"}  # of reductions to come
    assert all(word == word.lower() for word in (*SYNONYMS, *ADVICE))


def test_near_words_and_words_of_no_likeness() -> None:
    taken = ("x", "axis", "out")
    assert meant("axsi", taken) == "; did you mean axis=?"
    assert meant("qqq", taken) == ""


def test_halves_is_public() -> None:
    gate, up = bc.halves(X)
    assert gate.shape == up.shape == (2, 3, 4, 4) and np.shares_memory(gate, X)
    np.testing.assert_array_equal(bc.swiglu(*bc.halves(X)), bc.gated_activation(X, kind="swiglu"))
