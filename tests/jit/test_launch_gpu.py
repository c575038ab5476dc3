"""On a GPU: threads that have called nothing of the CUDA runtime launch, too."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

pytestmark = pytest.mark.gpu


def test_a_bound_call_is_made_by_a_new_thread() -> None:
    """A new thread has no context until it calls the runtime, and a bound call has nothing to ask of it."""
    cupy = pytest.importorskip("cupy")
    x, y = cupy.arange(1000, dtype="float32"), cupy.zeros(1000, dtype="float32")
    plan = bc.UnaryPlan.select(bc.UnaryPlan.descriptor(kind="neg", shape=(1000,), element="float32"))
    call, faults = plan.bind(plan.args(x=x, y=y)), list[Any]()

    def work() -> None:
        try:
            call()
        except Exception as error:
            faults.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert faults == []
    np.testing.assert_array_equal(y.get(), -np.arange(1000, dtype=np.float32))
