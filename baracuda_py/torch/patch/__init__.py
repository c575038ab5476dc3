"""One line on models people have: transformers' models on this package's kernels.

    from baracuda_py.torch.patch import patch, unpatch

    model = AutoModelForCausalLM.from_pretrained(name)
    print(patch(model))

Norms, gated units, rotary positions, attention and the head's loss of the families in `FAMILIES` are replaced, by exact
class; what is not known stays as it is, and the report says what and why. Parameters, buffers, state_dict and class
names stay; a model may be patched before or after its weights are loaded.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from ...core.checked import shown
from ...core.errors import InvalidProblemError
from ..untyped import torch
from . import attention
from .families import FAMILIES, Family
from .piece import Piece, given, replaced
from .report import Entry, Report

__all__ = ["FAMILIES", "Entry", "Report", "patch", "patch_classes", "unpatch", "unpatch_classes"]

_FILES: dict[str, dict[str, Any]] = {}  # a modelling file → its functions that ours stand for
_USERS: dict[str, weakref.WeakSet[Any]] = {}  # a modelling file → the patched models whose functions it has
_BEFORE: weakref.WeakKeyDictionary[Any, list[tuple[Any, str]]] = weakref.WeakKeyDictionary()  # configs' attention
_CLASSES: dict[Any, Any] = {}  # classes patched as such → their own forward


def patch(model: Any, *, attention: bool = True, loss: bool = True) -> Report:
    """Replace what this package serves in a model of transformers, in place.

    model: a torch.nn.Module, one of transformers or one that holds such (of PEFT, say). attention=False keeps its
    attention function, loss=False its logits. A second call changes nothing. In training with labels the result's
    `logits` is then None; the keyword skip_logits=False of a call keeps them.

    Returns a report of what was replaced and of what was not, and why. `unpatch` takes it all back.
    """
    if not isinstance(model, torch.nn.Module):
        raise InvalidProblemError(f"model must be a torch.nn.Module, got {shown(model)}")
    entries = [_replace(name, module, piece, loss) for name, module, piece in _known(model)]
    for file, family in {(file, name) for file, name in _files(model)}:
        entries += _turned(file, FAMILIES[family], model)
    if attention:
        entries += _attended(model)
    return Report(tuple(entries))


def unpatch(model: Any) -> None:
    """Give a model its own forwards, functions and attention back."""
    for module in model.modules():
        if replaced(module):
            module.__class__ = type(module).replaced_class
    for config, name in _BEFORE.pop(model, []):
        config._attn_implementation = name
    for file, users in list(_USERS.items()):
        users.discard(model)
        if not users and not _held(file):
            _restore(file)


def patch_classes(family: str) -> Report:
    """Replace the forwards of a family's classes, for models that are made later: patch_classes("llama").

    The attention of a model is its config's: ask for attn_implementation="baracuda" when it is made.
    """
    found, file = _family(family), f"transformers.models.{family}.modeling_{family}"
    modelling, entries = import_module(file), []
    attention.register()
    for name, piece in found.classes.items():
        kind = getattr(modelling, name, None)
        if kind is None or kind.__module__ != file:
            entries.append(Entry(name, name, piece.name, "this version of transformers has no such class"))
            continue
        if kind not in _CLASSES:
            _CLASSES[kind] = kind.forward
            kind.forward = given(kind, piece).forward  # type: ignore[attr-defined]
        entries.append(Entry(name, name, piece.name, None))
    return Report((*entries, *_turned(file, found, None)))


def unpatch_classes(family: str) -> None:
    """Give a family's classes and functions their own back."""
    _family(family)
    file = f"transformers.models.{family}.modeling_{family}"
    for kind in [kind for kind in _CLASSES if kind.__module__ == file]:
        kind.forward = _CLASSES.pop(kind)
    if not _USERS.get(file):
        _restore(file)


def _family(name: str) -> Family:
    if name not in FAMILIES:
        raise InvalidProblemError(f"family must be one of {', '.join(sorted(FAMILIES))}, got {shown(name)}")
    return FAMILIES[name]


def _home(kind: type) -> tuple[str, str] | None:
    """The modelling file and the family of a class, if it is of one."""
    parts = kind.__module__.split(".")
    if parts[:2] == ["transformers", "models"] and len(parts) == 4 and parts[3] == f"modeling_{parts[2]}":
        return (kind.__module__, parts[2]) if parts[2] in FAMILIES else None
    return None


def _known(model: Any) -> Iterator[tuple[str, Any, Piece]]:
    """Modules that have a piece: their paths, and the piece."""

    def walk(module: Any, path: str, family: str | None) -> Iterator[tuple[str, Any, Piece]]:
        kind = type(module).replaced_class if replaced(module) else type(module)
        home = _home(kind)
        family = home[1] if home else family
        if family is not None and (home or kind is torch.nn.LayerNorm):
            piece = FAMILIES[family].classes.get(kind.__name__)
            if piece is not None:
                yield path, module, piece
        for name, child in module.named_children():
            yield from walk(child, f"{path}.{name}" if path else name, family)

    return walk(model, "", None)


def _replace(path: str, module: Any, piece: Piece, loss: bool) -> Entry:
    kind = type(module).__name__
    reason = piece.refusal(module)
    if reason is None and piece.name.startswith("linear_cross_entropy") and not loss:
        reason = "loss=False"
    if reason is None and "forward" in module.__dict__:
        reason = "its forward was replaced by another package"
    if reason is None and not replaced(module):
        module.__class__ = given(type(module), piece)
    return Entry(path, kind, piece.name, reason)


def _files(model: Any) -> Iterator[tuple[str, str]]:
    """The modelling files of known families whose classes a model has."""
    for module in model.modules():
        home = _home(type(module).replaced_class if replaced(module) else type(module))
        if home is not None:
            yield home


def _turned(file: str, family: Family, model: Any) -> list[Entry]:
    """Put ours in the place of a file's functions, for a model, or for good (None)."""
    modelling, entries = sys.modules[file], []
    users = _USERS.setdefault(file, weakref.WeakSet())
    for name, convention in family.functions.items():
        if not hasattr(modelling, name):
            entries.append(Entry(name, file, "rope", "this version of transformers has no such function"))
            continue
        kept = _FILES.setdefault(file, {})
        if name not in kept:
            kept[name] = getattr(modelling, name)
            setattr(modelling, name, convention.make(kept[name]))
        entries.append(Entry(name, file, f"rope({convention.pairing}, {convention.columns})", None))
    if model is not None:
        users.add(model)
    return entries


def _held(file: str) -> bool:
    """Whether classes of a file are patched as such."""
    return any(kind.__module__ == file for kind in _CLASSES)


def _restore(file: str) -> None:
    for name, original in _FILES.pop(file, {}).items():
        setattr(sys.modules[file], name, original)
    _USERS.pop(file, None)


def _attended(model: Any) -> list[Entry]:
    """Set the attention of a model's parts."""
    try:
        from transformers import PreTrainedModel
    except ImportError:
        return []
    attention.register()
    entries = []
    for path, part in model.named_modules():
        if not isinstance(part, PreTrainedModel):
            continue
        before = part.config._attn_implementation
        if before == attention.NAME:
            continue
        part.set_attn_implementation(attention.NAME)
        reason = None if part.config._attn_implementation == attention.NAME else "it does not ask AttentionInterface"
        if reason is None:
            _BEFORE.setdefault(model, []).append((part.config, before))
        entries.append(Entry(path, type(part).__name__, "flash_sdpa", reason))
    return entries
