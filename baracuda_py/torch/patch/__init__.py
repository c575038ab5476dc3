"""One line on models people have: transformers' models on this package's kernels.

    from baracuda_py.torch.patch import patch, unpatch

    model = AutoModelForCausalLM.from_pretrained(name)
    print(patch(model))

Norms, feed-forward units, experts, rotary positions, attention, recurrences and the head's loss of the families in
`FAMILIES` are replaced, by exact class; what is not known stays as it is, and the report says what and why. Parameters,
buffers, state_dict and class names stay; a model may be patched before or after its weights are loaded.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from ..._forking import Mutex
from ...core.checked import shown
from ...core.errors import InvalidProblemError
from ..untyped import torch
from .attention import NAME, takes
from .classes import given, replaced
from .families import FAMILIES, Family
from .norms import LAYER_NORM
from .piece import Piece
from .registered import register
from .report import Entry, Report

__all__ = ["FAMILIES", "Entry", "Report", "patch", "patch_classes", "register", "unpatch", "unpatch_classes"]

_FILES: dict[str, dict[str, Any]] = {}  # a modelling file → its functions that ours stand for
_USERS: dict[str, weakref.WeakSet[Any]] = {}  # a modelling file → the patched modules that come from it
_CLASSES: dict[type, Any] = {}  # classes patched as such → their own forward
_BEFORE = "_attention_before"  # a part's attribute that keeps its attention; copies and pickles have it, too
_LOCK = Mutex()


def patch(model: Any, *, attention: bool = True, loss: bool = True) -> Report:
    """Replace what this package serves in a model of transformers, in place.

    model: a torch.nn.Module, one of transformers or one that holds such (of PEFT, say). attention=False keeps its
    attention function, loss=False its logits. A second call changes nothing. In training with labels the result's
    `logits` is then None; the keyword skip_logits=False of a call keeps them.

    Returns a report of what was replaced and of what was not, and why. `unpatch` takes it all back.
    """
    _checked(model)
    for name, flag in (("attention", attention), ("loss", loss)):
        if not isinstance(flag, bool):
            raise InvalidProblemError(f"{name} must be True or False, got {shown(flag)}")
    with _LOCK():
        entries = [_replace(*known, loss) for known in _known(model)]
        for (file, family), modules in _files(model).items():
            entries += _turned(file, FAMILIES[family])
            _USERS.setdefault(file, weakref.WeakSet()).update(modules)
        return Report((*entries, *(_attended(model) if attention else ())))


def unpatch(model: Any) -> None:
    """Give a model its own forwards, functions and attention back."""
    _checked(model)
    for path, module in model.named_modules():
        if hasattr(type(module), "replaced_class") and not replaced(module):  # as fully_shard and parametrizations do
            raise InvalidProblemError(
                f"{path or 'model'} has a class made from the patched one: unpatch it before that"
            )
    with _LOCK():
        for module in model.modules():
            if replaced(module):
                module.__class__ = type(module).replaced_class
            if _BEFORE in module.__dict__:
                module.config._attn_implementation_internal = module.__dict__.pop(_BEFORE)
        for (file, _), modules in _files(model).items():
            _USERS.setdefault(file, weakref.WeakSet()).difference_update(modules)
            _restore(file)


def patch_classes(family: str) -> Report:
    """Replace the forwards of a family's classes, for models that are made later: patch_classes("llama").

    The attention of a model is its config's: ask for attn_implementation="baracuda" when it is made.
    """
    found, file = _family(family), _file(family)
    modelling, entries = import_module(file), []
    with _LOCK():
        register()
        for name, piece in found.classes.items():
            kind, reason = getattr(modelling, name, None), None
            if piece is LAYER_NORM:
                reason = "a class of torch, which is replaced in models only"
            elif kind is None or kind.__module__ != file:
                reason = "this version of transformers has no such class"
            elif kind not in _CLASSES:
                forward = given(kind, piece).forward  # type: ignore[attr-defined]
                _CLASSES[kind], kind.forward = kind.forward, forward
            entries.append(Entry(name, name, piece.name, reason))
        return Report((*entries, *_turned(file, found)))


def unpatch_classes(family: str) -> None:
    """Give a family's classes and functions their own back."""
    _family(family)
    with _LOCK():
        for kind in [kind for kind in _CLASSES if kind.__module__ == _file(family)]:
            kind.forward = _CLASSES.pop(kind)  # type: ignore[attr-defined]
        _restore(_file(family))


def _checked(model: Any) -> None:
    if not isinstance(model, torch.nn.Module):
        raise InvalidProblemError(f"model must be a torch.nn.Module, got {shown(model)}")


def _family(name: str) -> Family:
    if not isinstance(name, str) or name not in FAMILIES:
        raise InvalidProblemError(f"family must be one of {', '.join(sorted(FAMILIES))}, got {shown(name)}")
    return FAMILIES[name]


def _file(family: str) -> str:
    return f"transformers.models.{family}.modeling_{family}"


def _kind(module: Any) -> type:
    """A module's class, that of transformers where it has a piece."""
    kind: type = type(module).replaced_class if replaced(module) else type(module)
    return kind


def _home(kind: type) -> str | None:
    """The family of a class, if it is of one."""
    family = kind.__module__.rpartition("modeling_")[2]
    return family if family in FAMILIES and kind.__module__ == _file(family) else None


def _known(model: Any) -> Iterator[tuple[str, Any, Piece, str | None]]:
    """Modules whose class has a piece, or is a subclass of one that has, each once: their paths, and why they stay."""
    seen: set[Any] = set()

    def walk(module: Any, path: str, family: str | None) -> Iterator[tuple[str, Any, Piece, str | None]]:
        if module in seen:
            return
        seen.add(module)
        kind = _kind(module)
        family = _home(kind) or family
        if kind is torch.nn.LayerNorm and family is not None and "LayerNorm" in FAMILIES[family].classes:
            yield path, module, FAMILIES[family].classes["LayerNorm"], None
        for base in kind.__mro__:
            piece = FAMILIES[home].classes.get(base.__name__) if (home := _home(base)) is not None else None
            if piece is not None:
                served = base is kind or "replaced_class" in vars(base)
                yield path, module, piece, None if served else _derived(kind, base)
                break
        for name, child in module.named_children():
            yield from walk(child, f"{path}.{name}" if path else name, family)

    return walk(model, "", None)


def _derived(kind: type, base: type) -> str:
    """Why a class that is made from a known one stays."""
    sharded = any(one.__name__ == "FSDPModule" for one in kind.__mro__)
    return f"a subclass of {base.__name__}{', made by fully_shard: patch before it' if sharded else ''}"


def _replace(path: str, module: Any, piece: Piece, reason: str | None, loss: bool) -> Entry:
    kind = type(module)
    if reason is None:
        reason = piece.refusal(module)
    if reason is None and piece.leaves_logits and not loss:
        reason = "loss=False"
    if reason is None and "forward" in module.__dict__:
        reason = "its forward was replaced by another package"
    if reason is None and not hasattr(kind, "replaced_class") and kind not in _CLASSES:
        module.__class__ = given(kind, piece)
    return Entry(path, kind.__name__, piece.name, reason)


def _files(model: Any) -> dict[tuple[str, str], list[Any]]:
    """The modelling files of known families, and their families → a model's modules that come from them."""
    found: dict[tuple[str, str], list[Any]] = {}
    for module in model.modules():
        family = _home(_kind(module))
        if family is not None:
            found.setdefault((_file(family), family), []).append(module)
    return found


def _turned(file: str, family: Family) -> list[Entry]:
    """Put ours in the place of a file's functions."""
    modelling, entries = sys.modules[file], []
    for name, rule in family.functions.items():
        reason = None if hasattr(modelling, name) else "this version of transformers has no such function"
        kept = _FILES.setdefault(file, {})
        if reason is None and name not in kept:
            kept[name] = getattr(modelling, name)
            setattr(modelling, name, rule.make(kept[name]))
        entries.append(Entry(name, file, rule.name, reason))
    return entries


def _restore(file: str) -> None:
    """Give a file its functions back where no patched module or class is left that calls ours."""
    if not _USERS.get(file) and not any(kind.__module__ == file for kind in _CLASSES):
        for name, original in _FILES.pop(file, {}).items():
            setattr(sys.modules[file], name, original)


def _attended(model: Any) -> list[Entry]:
    """Set the attention of a model's parts, one by one, as their configs may differ."""
    try:
        from transformers import PreTrainedModel
    except ImportError:
        return []
    register()
    entries: list[Entry] = []
    for path, part in model.named_modules():
        if not isinstance(part, PreTrainedModel):
            continue
        home = _home(_kind(part))
        if home is not None and not FAMILIES[home].attends:
            continue
        before, reason = part.config._attn_implementation, takes(part)
        if before == NAME and _BEFORE not in part.__dict__:  # by another part that has the same config, or asked for
            continue
        if reason is None and before != NAME:
            part.__dict__[_BEFORE], part.config._attn_implementation_internal = before, NAME
        entries.append(Entry(path, type(part).__name__, "flash_sdpa", reason))
    return entries
