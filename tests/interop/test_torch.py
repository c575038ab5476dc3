"""torch tensors: lazy bits, autograd and version counters, on the NumPy backend, the recorder and a GPU.

The recorder's tensors are real torch tensors over host memory that say they are on cuda:0, so that requires_grad, the
negative bit and the version counter are torch's own on the generated path, too.
"""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.backends.cuda import direct, hotpath, intake
from baracuda_py.core import Descriptor, ElementKind, element, extents
from baracuda_py.interop.torch_rules import may_be_lazy
from baracuda_py.testing import recording

sys.path.insert(0, str(Path(__file__).parents[1] / "core"))
from frame_toys import AxpyArgs, AxpyDescriptor, AxpyPlan, UpdateArgs, UpdateDescriptor, UpdatePlan

torch = pytest.importorskip("torch")
from recorded_torch import CURRENT, H, Tensor, on_gpu  # noqa: E402


@pytest.fixture(autouse=True)
def streams(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch without a GPU has no current stream."""
    if request.node.get_closest_marker("gpu") is None:
        monkeypatch.setattr(intake, "raw_stream_getter", lambda: lambda ordinal: CURRENT)


def fresh(dtype: Any = torch.float32, n: int = 8) -> Any:
    return on_gpu(torch.zeros(n, dtype=dtype))


def toy(element: str = "float32", n: int = 8) -> Any:
    chosen = AxpyPlan.select(AxpyDescriptor(shape=(n,), element=element), device=H)
    return AxpyPlan(chosen.desc, chosen.preference, H)


# -- lazy bits ------------------------------------------------------------------------------------------------------


def imaginary(n: int = 8) -> tuple[Any, Any]:
    """The imaginary parts of complex numbers and of their conjugates: one memory and layout."""
    z = torch.randn(n, dtype=torch.complex64)
    plain, lazy = on_gpu(z.imag), on_gpu(z.conj().imag)
    assert lazy.is_neg() and (lazy.data_ptr(), lazy.stride()) == (plain.data_ptr(), plain.stride())
    return plain, lazy


@pytest.mark.parametrize("n", [1, 8])
def test_a_negative_bit_is_refused_after_a_plain_tensor_of_the_same_layout(n: int) -> None:
    plan, (x, lazy) = toy(n=n), imaginary(n)
    y, bias = fresh(n=n), on_gpu(torch.zeros(2 * n)[::2])
    with recording() as record:
        plan.run(AxpyArgs(x=x, y=y))
        plan.run(AxpyArgs(x=x, y=bias))
        plan.run(AxpyArgs(x=x, y=y, bias=bias))
        count = len(record.launches)
        for wrong, name in (
            (AxpyArgs(x=lazy, y=y), "x"), (AxpyArgs(x=x, y=lazy), "y"), (AxpyArgs(x=x, y=y, bias=lazy), "bias"),
        ):  # fmt: skip
            assert not plan.can_implement(wrong)
            for act in (plan.run, plan.prepare, plan.bind):
                with pytest.raises(bc.InvalidProblemError, match=rf"{name}: .*resolve_conj\(\)\.resolve_neg\(\)"):
                    act(wrong)
        assert len(record.launches) == count


@hypothesis.given(hypothesis.strategies.data())
def test_no_view_of_a_negative_tensor_hides_its_bit(data: Any) -> None:
    """The layouts that are asked for the bit are all that it can have, whatever views were taken."""
    draw, st = data.draw, hypothesis.strategies
    shape = draw(st.lists(st.integers(1, 4), max_size=3))
    t = draw(st.sampled_from([lambda z: z.conj().imag, lambda z: z.conj().mT.imag if z.ndim > 1 else z.conj().imag]))(
        torch.zeros(shape, dtype=torch.complex64)
    )
    for _ in range(draw(st.integers(0, 5))):
        axis = draw(st.integers(0, max(t.ndim - 1, 0)))
        steps = [lambda t: t.unsqueeze(0), lambda t: t.unsqueeze(-1), lambda t: t.squeeze(), lambda t: t.reshape(-1),
                 lambda t: t.detach(), lambda t: t.expand(2, *t.shape), lambda t: t.view(t.shape)]  # fmt: skip
        if t.ndim and t.shape[axis]:
            steps += [lambda t, a=axis: t.narrow(a, t.shape[a] - 1, 1), lambda t, a=axis: t.select(a, 0),
                      lambda t, a=axis: t.movedim(a, 0), lambda t, a=axis: t.unfold(a, 1, 1),
                      lambda t, a=axis: t.split(2, a)[0], lambda t: t[..., ::3]]  # fmt: skip
        if t.ndim > 1:
            steps += [lambda t: t.diagonal(), lambda t: t.flatten(0, 1), lambda t: t.mT]
        t = draw(st.sampled_from(steps))(t)
    if t.is_neg() and t.numel():
        assert may_be_lazy(tuple(t.shape), t.stride(), ElementKind.F32)


def test_lists_are_looked_at_item_by_item() -> None:
    plan = UpdatePlan.select(UpdateDescriptor(shapes=((1,), (4,)), element="float32"), device=H)
    params, (plain, lazy) = [fresh(n=1), fresh(n=4)], imaginary(1)
    grads = [plain, fresh(n=4)]
    with recording() as record:
        plan.run(UpdateArgs(params=params, grads=grads))
        with pytest.raises(bc.InvalidProblemError, match=r"grads\[0\]: .*resolve_neg"):
            plan.run(UpdateArgs(params=params, grads=[lazy, grads[1]]))
        grown = on_gpu(torch.zeros(4)).requires_grad_()
        with pytest.raises(bc.BaracudaError, match=r"params\[1\]: .*detach"):
            plan.run(UpdateArgs(params=[params[0], grown], grads=grads))
        with torch.no_grad():
            plan.run(UpdateArgs(params=[params[0], grown], grads=grads))
        assert len(record.launches) == 2
    assert grown._version == 1 and [p._version for p in params] == [2, 1] and grads[1]._version == 0


@dataclass(frozen=True, kw_only=True)
class ComplexDescriptor(Descriptor):
    shape: tuple[int, ...] = extents()
    element: ElementKind = element((ElementKind.C64,))


class ComplexPlan(AxpyPlan):
    op = ""  # not registered
    descriptor = ComplexDescriptor
    variants = (dataclasses.replace(AxpyPlan.variants[-1], elements=(ElementKind.C64,)),)


ComplexPlan.op = "test.complex"


def test_a_conjugate_bit_is_refused_after_a_plain_tensor_of_the_same_layout() -> None:
    plan = ComplexPlan.select(ComplexDescriptor(shape=(8,), element="complex64"), device=H)
    x, y = fresh(torch.complex64), fresh(torch.complex64)
    lazy = on_gpu(torch.Tensor.conj(x))
    assert lazy.is_conj() and lazy.data_ptr() == x.data_ptr()
    with recording() as record:
        plan(x=x, y=y)
        for given, name in (({"x": lazy, "y": y}, "x"), ({"x": x, "y": lazy}, "y")):
            with pytest.raises(bc.InvalidProblemError, match=rf"{name}: .*resolve_conj"):
                plan(**given)
        assert len(record.launches) == 2  # the toy's two steps


def test_the_numpy_backend_refuses_lazy_bits() -> None:
    x = torch.randn(4)
    assert bc.exp(x).shape == (4,)
    for lazy in (torch._neg_view(x), torch.randn(4, dtype=torch.complex64).conj().imag):
        with pytest.raises(bc.InvalidProblemError, match="resolve_neg"):
            bc.exp(lazy)
        with pytest.raises(bc.InvalidProblemError, match="resolve_neg"):
            bc.exp(x, out=lazy)


# -- gradients ------------------------------------------------------------------------------------------------------


def test_a_tensor_that_requires_grad_is_refused_where_autograd_is_on() -> None:
    plan, x, y = toy(), fresh(), fresh()
    grown = on_gpu(torch.zeros(8)).requires_grad_()
    alpha = on_gpu(torch.tensor(2.0)).requires_grad_()
    with recording() as record:
        plan.run(AxpyArgs(x=x, y=y))
        for wrong, name in (
            (AxpyArgs(x=grown, y=y), "x"), (AxpyArgs(x=x, y=grown), "y"), (AxpyArgs(x=x, y=y, bias=grown), "bias"),
            (AxpyArgs(x=x, y=y, alpha=alpha), "alpha"),
        ):  # fmt: skip
            for act in (plan.run, plan.prepare, plan.bind):
                with pytest.raises(bc.UnsupportedError, match=rf"{name}: .*detach\(\).*no_grad"):
                    act(wrong)
            for mode in (torch.no_grad, torch.inference_mode):
                with mode():
                    plan.run(wrong)
                    plan.prepare(wrong)
                    plan.bind(wrong)()
            plan.run(AxpyArgs(x=x, y=y))
        assert len(record.launches) == 1 + 4 * 5


def test_a_bound_call_asks_again() -> None:
    plan, x, y = toy(), fresh(), fresh()
    with recording() as record:
        bound = plan.bind(AxpyArgs(x=x, y=y))
        bound()
        x.requires_grad_()
        with pytest.raises(bc.UnsupportedError, match=r"x: .*detach"):
            bound()
        with torch.no_grad():
            bound()
        assert len(record.launches) == 2 and y._version == 2


def test_the_functional_layer_on_the_cpu() -> None:
    x, weight = torch.randn(3, 8), torch.nn.Parameter(torch.ones(8))
    assert bc.rms_norm(x, weight).requires_grad
    with torch.no_grad():
        y = bc.rms_norm(x, weight)
    assert not y.requires_grad and torch.allclose(y, torch.nn.functional.rms_norm(x, (8,), weight.data, 1e-6))
    assert bc.rms_norm(x, weight).requires_grad  # the same entry again
    assert torch.equal(bc.rms_norm(x, weight.detach()), y)
    grown = torch.empty(3, 8, requires_grad=True)
    with pytest.raises(bc.UnsupportedError, match=r"y: .*detach"):
        bc.rms_norm(x, out=grown)
    with torch.no_grad():
        bc.rms_norm(x, out=grown)
    with pytest.raises(bc.UnsupportedError, match=r"alpha: .*detach"):
        bc.affine(x, alpha=torch.tensor(2.0, requires_grad=True))


def test_a_forward_mode_tangent_is_refused() -> None:
    plan, x, y = toy(), fresh(), fresh()
    with torch.autograd.forward_ad.dual_level(), recording() as record:
        plan.run(AxpyArgs(x=x, y=y))
        dual = on_gpu(torch.autograd.forward_ad.make_dual(torch.ones(8), torch.ones(8)))
        with pytest.raises(bc.UnsupportedError, match=r"x: .*tangent.*detach"):
            plan.run(AxpyArgs(x=dual, y=y))
        with pytest.raises(bc.UnsupportedError, match=r"x: .*tangent.*detach"):
            bc.exp(torch.autograd.forward_ad.make_dual(torch.ones(8), torch.ones(8)), out=torch.empty(8))
        assert len(record.launches) == 1


@pytest.mark.parametrize("transform", [torch.func.vmap, torch.func.grad], ids=["vmap", "grad"])
def test_a_plan_takes_no_tensor_of_a_transformation(transform: Any) -> None:
    desc = bc.UnaryDescriptor(shape=(4,), kind="exp", element="float32")
    plan = bc.UnaryPlan.select(desc, device="cpu")
    with pytest.raises(bc.UnsupportedError, match=r"x: .*transformation .*call outside"):
        transform(lambda x: plan.run(bc.UnaryArgs(x=x, y=np.empty(4, np.float32))))(torch.ones(2, 4))


def test_an_item_of_a_list_is_named() -> None:
    x = torch.ones(3)
    with pytest.raises(bc.UnsupportedError, match=r"tensors\[1\]: .*detach"):
        bc.global_norm([x, torch.nn.Parameter(x)])


# -- version counters -----------------------------------------------------------------------------------------------


def saved(out: Any) -> Any:
    """A loss whose backward needs the values that `out` has now."""
    weight = torch.ones(out.shape, requires_grad=True)
    return (weight * out).sum()


def exponential() -> Any:
    return bc.UnaryPlan.select(bc.UnaryDescriptor(shape=4, kind="exp", element="float32"), device="cpu")


@pytest.mark.parametrize(
    "act",
    [
        lambda x, y: bc.exp(x, out=y),
        lambda x, y: exponential()(x=x, y=y),
        lambda x, y: exponential().bind(bc.UnaryArgs(x=x, y=y))(),
    ],
    ids=["functional", "plan", "bind"],
)
def test_backward_through_an_overwritten_tensor_raises(act: Any) -> None:
    x, y = torch.ones(4), torch.ones(4)
    loss = saved(y)
    act(x, y)
    assert torch.allclose(y, torch.full((4,), float(np.e)))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    saved(x).backward()  # an input is no output


def test_in_outs_count_too() -> None:
    cache, x = torch.zeros(2), torch.ones(2)
    loss = saved(cache)
    with torch.no_grad():
        bc.adam_step([cache], [x], [torch.zeros(2)], [torch.zeros(2)], lr=0.1, step=1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize(
    "wrap", [lambda plan: plan.run, lambda plan: lambda args: plan.bind(args)()], ids=["run", "bind"]
)
def test_every_launch_counts(wrap: Any) -> None:
    plan, x, bias = toy(), fresh(), fresh()
    with recording():
        for optional in (False, True, False, True):
            y, total = fresh(), on_gpu(torch.tensor(0.0))
            wrap(plan)(AxpyArgs(x=x, y=y, bias=bias, total=total if optional else None))
            assert (y._version, total._version) == (1, int(optional))
        mixed = fresh()
        other = bc.TensorRef(x.data_ptr(), (8,), None, "float32")
        wrap(plan)(AxpyArgs(x=other, y=mixed))
        assert mixed._version == 1
    assert x._version == bias._version == 0


def test_inference_tensors_have_no_counter() -> None:
    with torch.inference_mode():
        y = torch.empty(4)
        bc.exp(torch.zeros(4), out=y)
    assert y.tolist() == [1.0] * 4
    bc.exp(torch.zeros(4), out=y)


# -- the generated code ---------------------------------------------------------------------------------------------


def test_the_direct_path_misses_what_must_be_refused() -> None:
    """Direct paths serve real devices alone; here their code runs with a launch that counts."""
    x, weight, count = fresh(n=4).view(1, 4).as_subclass(Tensor), fresh(n=4), [0]

    class Prepared:
        @staticmethod
        def call(flat: Any, values: Any, stream: int) -> None:
            assert stream == CURRENT
            count[0] += 1

        lazy, workspace = True, 0

    class Anything(dict):  # type: ignore[type-arg]
        def get(self, key: Any, default: Any = None) -> Any:
            return Prepared

    with recording():
        plan = bc.RMSNormPlan.select(
            bc.RMSNormDescriptor(batch_shape=1, normalized_shape=4, element="float32"), device=H
        )
        makers = (lambda: fresh(n=4), direct.nothing, direct.nothing)
        stand_in = SimpleNamespace(prepared=Anything(), runner=plan.runner)
        call = direct._generated(plan.args, "torch")(stand_in, makers, 0, [0])
        assert call(x, weight, None) is not direct.MISS and count == [1]
        for wrong in (torch._neg_view(weight), torch.zeros(4, requires_grad=True)):
            assert call(x, on_gpu(wrong), None) is direct.MISS
            assert call(on_gpu(wrong.view(1, 4)), weight, None) is direct.MISS
        with torch.no_grad():
            assert call(x, on_gpu(torch.zeros(4, requires_grad=True)), None) is not direct.MISS
        assert count == [2]


def test_cupy_pays_nothing() -> None:
    for cls in (AxpyArgs, UpdateArgs, bc.RMSNormArgs):
        for text in (hotpath.source(cls, "cupy"), direct.source(cls, "cupy")):
            assert not any(word in text for word in ("is_neg", "is_conj", "requires_grad", "INCREMENT", "GRAD", "lazy"))


# -- with a GPU -----------------------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_a_gpu_records_and_refuses_what_the_cpu_does() -> None:
    x, weight = torch.randn(3, 64, device="cuda"), torch.ones(64, device="cuda")
    for _ in range(3):
        y = bc.rms_norm(x, weight)
    parameter = torch.nn.Parameter(weight)
    for call in (lambda w: bc.rms_norm(x, w), lambda w: bc.rms_norm(x, w, out=y)):
        with torch.no_grad():
            for _ in range(3):
                call(parameter)
        for grown in (parameter, weight.clone().requires_grad_()):
            assert bc.rms_norm(x, grown).grad_fn is not None
            with pytest.raises(bc.UnsupportedError, match="out= takes no part in autograd"):
                bc.rms_norm(x, grown, out=y)
        call(weight)
    z = torch.randn(8, dtype=torch.complex64, device="cuda")
    real = torch.empty(8, device="cuda")
    bc.exp(z.imag, out=real)
    with pytest.raises(bc.InvalidProblemError, match=r"x: .*resolve_neg"):
        bc.exp(z.conj().imag, out=real)
    for _ in range(3):
        bc.exp(z.imag)
    with pytest.raises(bc.InvalidProblemError, match=r"x: .*resolve_neg"):
        bc.exp(z.conj().imag)


@pytest.mark.gpu
def test_a_gpu_counts_versions() -> None:
    x, y = torch.ones(4, device="cuda"), torch.ones(4, device="cuda")
    for _ in range(2):
        w = torch.ones(4, device="cuda", requires_grad=True)
        loss = (w * y).sum()
        bc.exp(x, out=y)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


@pytest.mark.gpu
def test_functions_in_transformations() -> None:
    x = torch.randn(3, 4, device="cuda")
    for _ in range(3):
        bc.exp(x[0])
    torch.testing.assert_close(torch.func.vmap(bc.exp)(x), x.exp())
    torch.testing.assert_close(torch.func.jvp(bc.exp, (x[0],), (x[0],))[1], x[0] * x[0].exp())
    torch.testing.assert_close(torch.func.grad(lambda t: bc.exp(t).sum())(x[0]), x[0].exp())
    others = torch.func.grad(lambda t: (t * bc.exp(x[1])).sum())(x[0])  # whose operands are outside of it
    torch.testing.assert_close(others, x[1].exp())
