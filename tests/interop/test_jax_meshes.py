"""Arrays over several devices: meshes with explicit axes, and `shard_map`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

jax = pytest.importorskip("jax")


@pytest.mark.skipif(not hasattr(jax, "set_mesh"), reason="a JAX without jax.set_mesh has no explicit axes")
def test_over_eight_devices() -> None:
    flags = "--xla_force_host_platform_device_count=8"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    program = Path(__file__).parent / "jax_meshes.py"
    made = subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True)
    assert made.returncode == 0 and made.stdout.strip() == "right", made.stdout[-6000:] + made.stderr[-3000:]
