"""docs/torch-names.md: which of torch's functions, modules and optimisers are here, and by which name.

Written with the torch that VERSION names, as others have other names; with another one the page is left as it is.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import types
from collections.abc import Iterator
from typing import Any

from ops_reference import folder

import baracuda_py
from baracuda_py._exports import EXPORTS

VERSION = "2.13"
SPACES = ("torch", "torch.nn.functional", "torch.special", "torch.linalg", "torch.fft", "torch.signal.windows")

# theirs → ours, where another name is meant; "" where the same name means something else here
OTHERS = {
    "torch.native_layer_norm": "layer_norm", "torch.native_norm": "norm", "torch.scalar_tensor": "full",
    "torch.alias_copy": "clone", "torch.squeeze_copy": "view_copy", "torch.unsqueeze_copy": "view_copy",
    "torch.t_copy": "transpose_copy", "torch.select_copy": "view_copy", "torch.embedding_renorm_": "embedding_renorm",
    "torch.batch_norm_gather_stats": "batch_norm_gather_stats_with_counts",
    "torch.batch_norm_update_stats": "running_statistics", "torch.nn.functional.swish": "silu",
    "torch.nn.functional.scaled_dot_product_attention": "sdpa", "torch.select": "index_in_dim", "torch.linalg.norm": "",
    "torch.triangular_solve": "solve_triangular",
    "torch.linalg.diagonal": "", "torch.linalg.vander": "", "torch.signal.windows.exponential": "",
    "torch.fft": "",
}  # fmt: skip
NO_FUNCTION = ("Identity",)  # whose name is of another function
OPTIMISERS = {
    "Adam": "adam_step", "AdamW": "adam_step",
    **dict.fromkeys(
        ("ASGD", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop"), "optimizer"
    ),
    "Muon": "orthogonalize",
}  # fmt: skip


def usable() -> bool:
    """Whether the torch is here that the page is written with."""
    try:
        return importlib.metadata.version("torch").startswith(f"{VERSION}.")
    except importlib.metadata.PackageNotFoundError:
        return False


def functions() -> str:
    """A section a namespace: names that are the same, and those that are others."""
    parts = []
    for space in SPACES:
        same, others = [], []
        for name in _public(importlib.import_module(space)):
            ours = OTHERS.get(f"{space}.{name}", name.rstrip("_") if name.rstrip("_") in EXPORTS else "")
            if not ours or inspect.isclass(getattr(baracuda_py, ours)):
                continue
            if ours == name:
                same.append(_link(ours))
            elif ours != name.rstrip("_"):  # what works in place takes `out=` here
                others.append(f"| `{space}.{name}` | {_link(ours)} |")
        parts += [f"### {space}", f"By the same name: {', '.join(same)}."]
        parts += ["\n".join(["| torch | here |", "| --- | --- |", *others])] if others else []
    return "\n\n".join(parts)


def modules() -> str:
    """torch.nn's modules that `baracuda_py.torch.nn` has or that are a function here, and the optimisers."""
    from torch import nn

    ours: Any = importlib.import_module("baracuda_py.torch.nn")
    optim: Any = importlib.import_module("baracuda_py.torch.optim")
    rows = ["| torch | here |", "| --- | --- |"]
    plain = {n.replace("_", ""): n for n in EXPORTS if not inspect.isclass(getattr(baracuda_py, n))}
    for name in sorted(vars(nn)):
        value = getattr(nn, name)
        if not inspect.isclass(value) or not value.__module__.startswith("torch.nn.modules"):
            continue
        if inspect.isclass(getattr(ours, name, None)):
            rows.append(f"| `torch.nn.{name}` | `baracuda_py.torch.nn.{name}` |")
        elif name.lower() in plain and name not in NO_FUNCTION:
            rows.append(f"| `torch.nn.{name}` | {_link(plain[name.lower()])} |")
    for name, function in OPTIMISERS.items():
        module = f"`baracuda_py.torch.optim.{name}`, " if hasattr(optim, name) else ""
        rows.append(f"| `torch.optim.{name}` | {module}{_link(function)} |")
    return "\n".join(rows)


def _public(module: types.ModuleType) -> Iterator[str]:
    for name in sorted(vars(module)):
        value = getattr(module, name)
        kept = callable(value) and not isinstance(value, (type, types.ModuleType)) and not name.startswith("_")
        if kept and not (getattr(value, "__module__", None) or "").startswith(("typing", "torch.jit", "functools")):
            yield name


def _link(name: str) -> str:
    return f"[`{name}`](functions/{folder(name)}.md#{name.lower()})"
