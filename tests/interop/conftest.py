"""Without JAX the tests of its bridge, which import it, are not collected; `test_jax.py` says that it is missing."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("jax") else ["test_in_jax.py", "test_jax_*.py"]
