"""`python -m baracuda_py`: see `baracuda_py.cli.main`."""

from __future__ import annotations

from .cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
