"""Every public callable of torch and JAX is here by a name, is listed as not offered with its reason, or is no op.

A release that brings a new function fails here until one of the three is true.
"""

from __future__ import annotations

import fnmatch
import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from scripts import tool

import baracuda_py as bc
from baracuda_py import linalg, nested, signal, sparse
from baracuda_py._not_offered import LIMITED, NOT_OFFERED

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")

OURS = (
    bc, bc.nn.functional, linalg, nested, signal, sparse,
    *map(importlib.import_module, ("baracuda_py.torch.nn", "baracuda_py.torch.optim", "baracuda_py.jax")),
)  # fmt: skip
FUNCTIONS = (
    "torch", "torch.nn.functional", "torch.special", "torch.linalg", "torch.fft", "torch.sparse", "torch.nested",
    "torch.signal.windows", "jax.lax", "jax.lax.linalg", "jax.numpy", "jax.numpy.linalg", "jax.numpy.fft", "jax.nn",
    "jax.ops", "jax.image", "jax.random", "jax.scipy.special", "jax.scipy.linalg", "jax.scipy.signal",
    "jax.scipy.ndimage",
)  # fmt: skip
CLASSES = ("torch.nn", "torch.optim")

NO_OPS: dict[str, str] = {
    "what an array, a type or a process is asked": (
        "is_* numel get_device* typename broadcast_shapes result_type promote_types can_cast isdtype isscalar iterable "
        "issubdtype ndim shape size finfo iinfo get_file_path dtype axis_index axis_size shape_as_value "
        "compiled_with_cxx11_abi cudnn_is_acceptable padtype_to_pads conv_*_shape_tuple conv_shape_tuple "
        "conv_general_permutations conv_dimension_numbers reduce_window_shape_tuple key_data key_dtype key_impl"
    ),
    "settings of a process": (
        "set_* get_* use_deterministic_algorithms are_deterministic_algorithms_enabled init_num_threads autocast_* "
        "clear_autocast_cache printoptions check_sparse_tensor_invariants"
    ),
    "generators and keys": "thread_safe_generator PRNGKey key fold_in wrap_key_data",
    "files and text": (
        "savez fromfile from_file fromstring array_repr array_str import_ir_module import_ir_module_from_buffer"
    ),
    "arrays of other packages": "to_dlpack",
    "compilers, tracing and threads": (
        "compile fork wait parse_* merge_type_from_type_comment unify_type_list prepare_multiprocessing_environment "
        "profiler_allow_* classproperty assert_int_or_pair boolean_dispatch handle_torch_function has_torch_function* "
        "composite dce_sink stage platform_dependent after_all create_token optimization_barrier sym_* map vectorize "
        "frompyfunc fromfunction detach detach_* pcast pbroadcast with_sharding_constraint"
    ),
    "kernels of one backend, by the name of which the op is not called": (
        "cudnn_* miopen_* mkldnn_* fbgemm_* quantized_* empty_quantized q_* int_repr"
    ),
    "storage that is changed behind a view": (
        "*_indices_copy indices_copy values_copy resize_as_ resize_as_sparse_ symeig"
    ),
    "modules that hold others, or wait for their shapes": (
        "Container DataParallel Identity Lazy* Module ModuleDict ModuleList NLLLoss2d CrossMapLRN2d Buffer Parameter "
        "ParameterDict ParameterList RNNBase RNNCellBase Sequential Uninitialized* factory_kwargs Flatten Unflatten "
        "LinearCrossEntropyOptions Optimizer swap_in_optimizer_params_and_state"
    ),
}
"""Why something is no op: names, or patterns of names."""

RENAMED = tool("torch_names").OTHERS
ELSEWHERE = {
    "jax.random.f": "random_f", "torch.nn.LinearCrossEntropyLoss": "FusedLinearCrossEntropyLoss",
    "torch.nn.SyncBatchNorm": "batch_norm_gather_stats_with_counts",
    **{f"torch.view_as_{kind}_copy": f"view_as_{kind}" for kind in ("complex", "real")}, "torch.zero_": "fill",
}  # fmt: skip
"""Theirs → ours, beyond those of docs/torch-names.md."""


def _no_op(name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, one) for names in NO_OPS.values() for one in names.split())


def _is_here(name: str) -> bool:
    return any(getattr(module, name, None) is not None for module in OURS)


def _public(space: str) -> Iterator[str]:
    module = importlib.import_module(space)
    for name in dir(module):
        value: Any = getattr(module, name)
        if name.startswith("_") or not callable(value) or getattr(value, "__module__", "") in ("typing", "builtins"):
            continue
        if space in CLASSES or not (inspect.isclass(value) or hasattr(value, "dtype")):
            yield name


@pytest.mark.parametrize("space", FUNCTIONS + CLASSES)
@pytest.mark.filterwarnings("ignore")
def test_every_name_is_here_or_listed(space: str) -> None:
    names, left = list(_public(space)), []
    for name in names:
        full = f"{space}.{name}"
        known = _is_here(name) or _is_here(name.rstrip("_")) or full in RENAMED or name in NOT_OFFERED
        if not known and not _no_op(name) and not (full in ELSEWHERE and _is_here(ELSEWHERE[full])):
            left.append(name)
    assert names, f"{space} has no names"
    assert left == [], f"{space}: neither here, nor in _not_offered.py, nor in NO_OPS"


def test_a_name_that_nobody_knows_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "frobnicate", lambda x: x, raising=False)
    with pytest.raises(AssertionError, match="frobnicate"):
        test_every_name_is_here_or_listed("torch")


MEANING_ELSE = {
    "jax.image.resize": "resize(image, …)", "torch.select": "select(x, dim, index)",
    "torch.linalg.norm": "norm(matrix)", "jax.numpy.linalg.norm": "norm(matrix)",
    "jax.random.split": "split(key), clone(key)", "jax.random.clone": "split(key), clone(key)",
}  # fmt: skip
"""Names that are here and mean something else → their rows of `LIMITED`."""


@pytest.mark.parametrize("name", MEANING_ELSE)
def test_a_name_that_means_something_else_is_told_apart(name: str) -> None:
    space, _, last = name.rpartition(".")
    assert hasattr(importlib.import_module(space), last) and hasattr(bc, last)
    assert MEANING_ELSE[name] in LIMITED


@pytest.mark.parametrize(
    ("space", "ours"), (("torch.sparse", sparse), ("torch.nested", nested), ("torch.optim", OURS[-2]))
)
def test_modules_of_their_own_have_the_names(space: str, ours: Any) -> None:
    """What the functional layer has by these names, as `sum`, is of other arrays."""
    names = [name for name in _public(space) if not _no_op(name) and name not in NOT_OFFERED]
    assert names and [name for name in names if not hasattr(ours, name)] == []
