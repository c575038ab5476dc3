"""Without JAX the tests of its bridge, which import it, are not collected; `test_jax.py` says that it is missing."""

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("jax") else ["test_in_jax.py", "test_jax_*.py"]


@pytest.fixture
def nothing_patched() -> Iterator[None]:
    """Modelling files of transformers with their own functions, whatever models that are gone had of them."""
    from baracuda_py.torch import patch

    def forget() -> None:
        patch._USERS.clear()
        for file in list(patch._FILES):
            patch._restore(file)

    forget()
    yield
    forget()
