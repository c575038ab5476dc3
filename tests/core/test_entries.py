"""The generated entries of kernels stand in namespace baracuda, so templates need no prefix."""

from __future__ import annotations

from baracuda_py.core import ElementKind, registry
from baracuda_py.core.warm import jobs


def test_entries_are_in_the_namespace() -> None:
    plan = registry.plan("RMSNormPlan")
    job = next(job for job in jobs([plan]) if job.element is ElementKind.F16)
    before, _, after = job.unit.text.partition('extern "C"')
    assert before.count("namespace baracuda {") == after.count("}  // namespace baracuda") + 1 == 2
    assert job.unit.text.endswith("}  // namespace baracuda\n")
    assert "baracuda::" not in job.unit.text


def test_no_template_has_a_prefix() -> None:
    templates = {
        kernel.template for plan in registry.plans().values() for row in plan.variants for kernel in row.kernels
    }
    assert templates and not [template for template in templates if "baracuda::" in template]
