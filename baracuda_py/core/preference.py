"""`PlanPreference`: what a caller asks of the choice; one that cannot be met is an error."""

from __future__ import annotations

from dataclasses import dataclass

from .sku import ArchSku, BackendKind


@dataclass(frozen=True, kw_only=True)
class PlanPreference:
    """Constraints on the rows a plan may take.

    max_workspace_bytes: rows needing more are refused. prefer_backend: only this backend.
    max_arch: rows of newer designs are refused. deterministic: False lets a faster row that is
    not run-to-run deterministic (atomics) be taken; True, the default, never does.
    """

    max_workspace_bytes: int | None = None
    prefer_backend: BackendKind | None = None
    max_arch: ArchSku | None = None
    deterministic: bool = True


DEFAULT = PlanPreference()
_ORDER = (ArchSku.ANY, ArchSku.SM80, ArchSku.SM89, ArchSku.SM90A)


def arch_allowed(preference: PlanPreference, arch: ArchSku) -> bool:
    """Whether `arch` is no newer than the preference's `max_arch`."""
    return preference.max_arch is None or _ORDER.index(arch) <= _ORDER.index(preference.max_arch)
