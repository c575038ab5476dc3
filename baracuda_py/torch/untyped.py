"""torch, whose functions have types in part only, as a module that type checkers do not look into."""

from __future__ import annotations

from typing import Any

import torch as _torch

torch: Any = _torch
