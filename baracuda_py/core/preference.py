"""`PlanPreference`: what a caller asks of the choice; one that cannot be met is an error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsIndex

from .checked import Checked, checked, shown
from .descriptor import choice, flag, integer
from .errors import InvalidProblemError
from .sku import ArchSku, BackendKind


def _arch(name: str, value: Any) -> ArchSku | None:
    if value is None or isinstance(value, ArchSku):
        return value
    text = str(value).lower().replace("_", "").replace(".", "").removeprefix("sm") if isinstance(value, str) else ""
    for arch in ArchSku:
        if text and text in (arch.value, arch.value.removeprefix("sm"), arch.value.removeprefix("sm").rstrip("a")):
            return arch
    names = ", ".join(repr(arch.value) for arch in ArchSku)
    raise InvalidProblemError(f"{name} must be one of {names} (or sm_80, 8.0 …) or None, got {shown(value)}")


@dataclass(frozen=True, kw_only=True)
class PlanPreference(Checked):
    """Constraints on the rows a plan may take; checked when made, strings coerced.

    max_workspace_bytes: rows needing more are refused. prefer_backend: only this backend ("bespoke", "cublas", …).
    max_arch: rows of newer designs are refused ("sm80", "sm_89", "9.0" …). deterministic: False lets a faster row
    that is not run-to-run deterministic (atomics) be taken; True, the default, never does. batch_invariant: True takes
    only rows whose bits for an item of the batch do not depend on what else is in it, nor on how much. Operands of one
    layout and alignment take one row. same_bits: True asks for that and, of attention, for rows that give a token the
    same bits in all ops that have them: in training, packed, in a chunk, decoded alone or among drafts
    (`batch_paged_extend`). An op of attention without such rows is refused.
    """

    max_workspace_bytes: int | None = integer(None, minimum=0)
    prefer_backend: BackendKind | None = choice(BackendKind, None)
    max_arch: ArchSku | None = checked(_arch, None, accepts="ArchSku | str | None")
    deterministic: bool = flag(True)
    batch_invariant: bool = flag(False)
    same_bits: bool = flag(False)

    if TYPE_CHECKING:  # what it is made with: the fields' checks take more than they hold

        def __init__(
            self, *, max_workspace_bytes: SupportsIndex | None = None, prefer_backend: BackendKind | str | None = None,
            max_arch: ArchSku | str | None = None, deterministic: bool = True, batch_invariant: bool = False,
            same_bits: bool = False,
        ) -> None: ...  # fmt: skip


DEFAULT = PlanPreference()


def preferred(preference: Any) -> PlanPreference:
    """A preference, the default one for None; raises InvalidProblemError for anything else."""
    if preference is None:
        return DEFAULT
    if not isinstance(preference, PlanPreference):
        raise InvalidProblemError(f"preference must be a PlanPreference or None, got {shown(preference)}")
    return preference


_ORDER = (ArchSku.ANY, ArchSku.SM80, ArchSku.SM89, ArchSku.SM90A)


def arch_allowed(preference: PlanPreference, arch: ArchSku) -> bool:
    """Whether `arch` is no newer than the preference's `max_arch`."""
    return preference.max_arch is None or _ORDER.index(arch) <= _ORDER.index(preference.max_arch)
