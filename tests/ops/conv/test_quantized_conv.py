"""Convolutions of integers of 8 bits: exact beside sums of Python's own, ONNX's and torch's semantics, kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.element import ElementKind
from baracuda_py.testing.emulator import emulated_device, emulating
from baracuda_py.testing.recording import pointer_view

RNG = np.random.default_rng(0)
LIMITS = {"int8": (-128, 128), "uint8": (0, 256)}


def integers(dtype: str, *shape: int) -> np.ndarray:
    return RNG.integers(*LIMITS[dtype], shape).astype(dtype)


def sums(x: np.ndarray, w: np.ndarray, zx: int, zw: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """Place by place, in 64 bits: of two spatial axes."""
    x, w = x.astype(np.int64) - zx, w.astype(np.int64) - np.reshape(zw, (-1, 1, 1, 1))
    (low0, high0), (low1, high1) = padding
    x = np.pad(x, ((0, 0), (0, 0), (low0, high0), (low1, high1)))
    span = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilation, strict=True)]
    out = [(n - s) // t + 1 for n, s, t in zip(x.shape[2:], span, stride, strict=True)]
    each, own = w.shape[0] // groups, w.shape[1]
    y = np.zeros((x.shape[0], w.shape[0], *out), np.int64)
    for o in range(w.shape[0]):
        group = x[:, o // each * own : (o // each + 1) * own]
        for i in range(out[0]):
            for j in range(out[1]):
                a, b = i * stride[0], j * stride[1]
                seen = group[:, :, a : a + span[0] : dilation[0], b : b + span[1] : dilation[1]]
                y[:, o, i, j] = (seen * w[o]).sum((1, 2, 3))
    return y


GIVEN: dict[str, Any] = {"stride": (2, 1), "padding": ((1, 1), (0, 2)), "dilation": (1, 2), "groups": 2}


@pytest.mark.parametrize("xd", LIMITS)
@pytest.mark.parametrize("wd", LIMITS)
@pytest.mark.parametrize("each", [False, True])
def test_conv_integer(xd: str, wd: str, each: bool) -> None:
    x, w = integers(xd, 2, 6, 7, 6), integers(wd, 8, 3, 3, 2)
    zx, zw = integers(xd, 1), integers(wd, *((8,) if each else (1,)))
    got = bc.conv_integer(x, w, zx, zw, **GIVEN)
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, sums(x, w, int(zx[0]), zw, **GIVEN))
    np.testing.assert_array_equal(bc.conv_integer(x, w, **GIVEN), sums(x, w, 0, 0, **GIVEN))
    np.testing.assert_array_equal(
        bc.conv_integer(x[0], w, zx.reshape(()), **GIVEN), sums(x, w, int(zx[0]), 0, **GIVEN)[0]
    )


@pytest.mark.parametrize("yd", LIMITS)
@pytest.mark.parametrize("each", [False, True])
def test_qlinear_conv(yd: str, each: bool) -> None:
    x, w, bias = integers("uint8", 2, 6, 7, 6), integers("int8", 8, 3, 3, 2), RNG.integers(-(10**5), 10**5, 8, np.int32)
    sx, sy, sw = np.array([0.02], np.float32), np.array([3.1], np.float32), RNG.uniform(0.01, 0.1, 8).astype(np.float32)
    sw, zx, zy = sw if each else sw[:1], integers("uint8", 1), integers(yd, 1)
    got = bc.qlinear_conv(x, sx, zx, w, sw, None, sy, zy, bias, **GIVEN)
    s = sums(x, w, int(zx[0]), 0, **GIVEN) + bias[:, None, None]
    real = s * sx.astype(float) * sw.astype(float).reshape(-1, 1, 1) / sy.astype(float)
    limits = np.iinfo(yd)
    want = np.clip(np.rint(real) + int(zy[0]), limits.min, limits.max)
    assert got.dtype == yd
    np.testing.assert_array_equal(got, want)
    out = np.zeros_like(got)
    assert bc.qlinear_conv(x, sx, zx, w, sw, None, sy, zy, bias, **GIVEN, out=out) is out
    np.testing.assert_array_equal(out, want)
    less = bc.qlinear_conv(x, sx, zx, w, sw, None, sy, zy, bias, **GIVEN, activation="relu")
    np.testing.assert_array_equal(less, np.clip(np.rint(np.maximum(real, 0)) + int(zy[0]), limits.min, limits.max))


def test_it_is_torchs_quantized_conv() -> None:
    """torch.ao's conv2d of an engine of the CPU: per channel weights, a float bias."""
    torch = pytest.importorskip("torch")
    engine = torch.backends.quantized.engine
    if engine == "none":
        pytest.skip("no quantised engine")
    x, w, bias = (torch.tensor(RNG.standard_normal(s), dtype=torch.float32) for s in ((2, 8, 7, 6), (4, 8, 3, 3), (4,)))
    sx, zx, sy, zy = 0.03, 61, 0.25, 100
    sw = torch.tensor([0.01, 0.02, 0.03, 0.015], dtype=torch.float64)
    qx = torch.quantize_per_tensor(x, sx, zx, torch.quint8)
    qw = torch.quantize_per_channel(w, sw, torch.zeros(4, dtype=torch.long), 0, torch.qint8)
    wanted = (
        torch.ao.nn.quantized.functional.conv2d(qx, qw, bias, padding=1, scale=sy, zero_point=zy).int_repr().numpy()
    )
    f = np.float32
    got = bc.quantized_conv(
        qx.int_repr().numpy(), qw.int_repr().numpy(), scale_x=np.array(sx, f), scale_w=sw.numpy().astype(f),
        zero_x=np.array(zx, np.uint8), bias=bias.numpy(), scale_y=np.array(sy, f), zero_y=np.array(zy, np.uint8),
        padding=1,
    )  # fmt: skip
    # Its bias is rounded to integers first, which may move a result by one.
    assert np.abs(got.astype(int) - wanted).max() <= 1 and (got != wanted).mean() < 0.02


@pytest.mark.parametrize("out", ["float32", "float16", "bfloat16"])
def test_scaled(out: str) -> None:
    x, w, bias = integers("int8", 1, 4, 5, 5), integers("int8", 3, 4, 3, 3), RNG.standard_normal(3).astype(np.float32)
    sw = RNG.uniform(0.01, 0.1, 3).astype(np.float32)
    got = bc.quantized_conv(x, w, scale_w=sw, bias=bias, out_element=out)
    plain = {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 1}
    want = sums(x, w, 0, 0, **plain) * sw.astype(float)[:, None, None] + bias.astype(float)[:, None, None]
    np.testing.assert_array_equal(
        got.astype(float), want.astype(np.float32).astype(ElementKind.of(out).dtype).astype(float)
    )


def test_wrong_calls_say_what_is_wrong() -> None:
    x, w, one = integers("int8", 1, 4, 5, 5), integers("int8", 3, 4, 3, 3), np.ones((), np.float32)
    for call, said in (
        (lambda: bc.conv_integer(x.astype(np.int32), w), "int8 or uint8"),
        (lambda: bc.conv_integer(x, w[:, :3]), "does not fit"),
        (lambda: bc.conv_integer(x, w, np.zeros(4, np.int8)), "x_zero_point"),
        (lambda: bc.quantized_conv(x, w, one, out_element="int8"), "out_element must be"),
        (lambda: bc.quantized_conv(x, w, scale_w=np.ones(2, np.float32)), "broadcast to"),
        (lambda: bc.quantized_conv(x, w, activation="relu"), "no activation"),
    ):
        with pytest.raises(bc.BaracudaError, match=said):
            call()


# -- kernels -------------------------------------------------------------------------------------------------------


def last(array: np.ndarray) -> np.ndarray:
    """The same numbers, channels last."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1)


def on_row(row: str, desc: Any, sms: int = 132, plan: Any = bc.QuantizedConvPlan, **arrays: Any) -> list[Any]:
    """Emulates it in a row, gives the launches."""
    with emulating() as emulator:
        chosen = plan(desc, bc.PlanPreference(), emulated_device(9.0, sms))
        chosen.rows = tuple(one for one in chosen.rows if one.name == row)
        args = plan.args(**{name: None if x is None else pointer_view(x) for name, x in arrays.items()})
        verdict = chosen.can_implement(args)
        assert verdict, verdict
        _, geometry, _ = chosen.plan_layout(args)
        chosen.run(args)
        assert not emulator.overrun()
    return list(geometry.steps)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("inner", [True, False])
@pytest.mark.parametrize("kind", ["sums", "scaled", "requantized"])
@pytest.mark.parametrize("zero", [True, False])
@pytest.mark.parametrize(
    ("row", "channels", "groups", "xd", "wd"),
    [("wgmma", 16, 2, "uint8", "int8"), ("wgmma", 5, 1, "int8", "int8"),
     ("mma", 16, 1, "uint8", "int8"), ("mma", 5, 1, "int8", "uint8"), ("mma", 16, 2, "int8", "int8"),
     ("simt", 3, 2, "uint8", "uint8"), ("simt", 1, 16, "uint8", "int8")],
)  # fmt: skip
def test_kernels(row: str, channels: int, groups: int, xd: str, wd: str, zero: bool, kind: str, inner: bool) -> None:
    outputs = groups * (1 if channels == 1 else 11)
    given = GIVEN | {"groups": groups}
    x, w = integers(xd, 2, channels * groups, 7, 6), integers(wd, outputs, channels, 3, 2)
    arrays: dict[str, Any] = {"x": last(x) if inner else x, "w": last(w) if inner else w}
    zx = integers(xd, 1)[0] if zero else 0
    zw = integers(wd, outputs) if zero and row == "simt" else 0
    s = sums(x, w, int(zx), zw, **given)
    if zero:
        arrays |= {"zero_x": np.array(zx)} | ({"zero_w": zw} if row == "simt" else {})
    out = {"sums": "int32", "scaled": "bfloat16", "requantized": "int8"}[kind]
    sx, sy = np.array(0.02, np.float32), np.array(3.1, np.float32)
    sw = RNG.uniform(0.01, 0.1, outputs).astype(np.float32)
    bias = RNG.integers(-1000, 1000, outputs).astype(np.int32) if zero else RNG.standard_normal(outputs).astype("f4")
    want: Any = s
    if kind != "sums":
        arrays |= {"scale_x": sx, "scale_w": sw, "bias": bias}
        real, by = (s + bias[:, None, None] if zero else s), sx.astype(float) * sw.astype(float)[:, None, None]
        want = real * by + (0.0 if zero else bias.astype(float)[:, None, None])
    if kind == "requantized":
        arrays |= {"scale_y": sy, "zero_y": np.array(-5, np.int8)}
        want = np.clip(np.rint(np.maximum(want, 0) / sy.astype(float)) - 5, -128, 127)
    dtype = ElementKind.of(out).dtype
    y = np.zeros(s.shape, dtype)
    arrays["y"] = last(y) if inner else y
    desc = bc.QuantizedConvDescriptor(
        shape=x.shape, filter_shape=w.shape, **given, kind=kind, element=xd, w_element=wd, out_element=out,
        bias_element="int32" if zero else "float32", activation="relu" if kind == "requantized" else "none",
    )  # fmt: skip
    steps = on_row(row, desc, **arrays)
    wanted = [] if row == "simt" else ["pack"] * (0 if inner and channels == 16 else 2) + ["filter_sums"] * zero
    assert [step.kernel for step in steps] == [*wanted, "each" if row == "simt" else row]
    np.testing.assert_array_equal(arrays["y"].astype(float), np.asarray(want).astype(dtype).astype(float))


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("row", "axis"), [("mma", "SIZE"), ("wgmma", "COLS")])
def test_large_tiles_and_spread_inputs(row: str, axis: str) -> None:
    """Tiles of 128; the gaps of a transposed convolution, which phases leave out, count as zero points do."""
    x, w = integers("uint8", 1, 16, 9, 11), integers("int8", 16, 131, 3, 2)
    desc = bc.QuantizedConvDescriptor(
        shape=x.shape, filter_shape=w.shape, input_dilation=(2, 1), padding=(2, 1), transposed=True, kind="sums",
        element="uint8", w_element="int8",
    )  # fmt: skip
    zero, y = np.array(77, np.uint8), last(np.zeros((1, *desc.out_shape[1:]), np.int32))
    steps = on_row(row, desc, 2, x=last(x), w=w, zero_x=zero, y=y)
    assert [step.axes for step in steps if step.kernel == row] == [{axis: 128, "W": ElementKind.I8}] * 2
    wide = np.full((1, 16, 17, 11), 77, np.uint8)
    wide[:, :, ::2] = x
    turned = np.ascontiguousarray(np.swapaxes(w, 0, 1)[:, :, ::-1, ::-1])
    plain: dict[str, Any] = {"stride": (1, 1), "padding": ((2, 2), (1, 1)), "dilation": (1, 1), "groups": 1}
    np.testing.assert_array_equal(y, sums(wide, turned, 77, 0, **plain))


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("row", ["mma", "wgmma", "simt"])
@pytest.mark.parametrize("spread", [(3, 2), (9, 8)])
def test_phases(row: str, spread: tuple[int, int]) -> None:
    """Each sums the taps it has; outputs that see nothing are 0, launched once for all where there are many."""
    x, w = integers("int8", 2, 32, 3, 2), integers("int8", 32, 6, 2, 2)
    desc = bc.QuantizedConvDescriptor(
        shape=x.shape, filter_shape=w.shape, input_dilation=spread, padding=((1, -1), (2, 1)), stride=(2, 1), groups=2,
        dilation=(1, 2), transposed=True, kind="sums", element="int8",
    )  # fmt: skip
    zero, y = np.array(-77, np.int8), last(np.zeros((2, *desc.out_shape[1:]), np.int32))
    on_row(row, desc, x=last(x), w=w, zero_x=zero, y=y)
    wide = np.full((2, 32, 2 * spread[0] + 1, spread[1] + 1), -77, np.int8)
    wide[:, :, :: spread[0], :: spread[1]] = x
    turned = np.swapaxes(w.reshape(2, 16, 6, 2, 2), 1, 2)[..., ::-1, ::-1].reshape(12, 16, 2, 2)
    wide = wide[:, :, :-1]  # padding that cuts
    plain: dict[str, Any] = {"stride": (2, 1), "padding": ((1, 0), (2, 1)), "dilation": (1, 2), "groups": 2}
    np.testing.assert_array_equal(y, sums(wide, np.ascontiguousarray(turned), -77, 0, **plain))


SCALES = [1.0, 3.0, 7.0, 1e-3, 64.0, 2.0**-149, 1e-40, 3e38, np.inf, 0.0, np.nan, -5.0]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("row", ["wgmma", "simt"])
def test_results_are_of_the_quotient_that_is_rounded_once(row: str) -> None:
    """1 x 1, one channel of products x w: sums whose quotients are ties, next to ties, huge, and no numbers."""
    x = np.arange(-128, 128, dtype=np.int8).reshape(1, 1, 16, 16)
    w = np.array([1, 3, 127, -128, 0], np.int8).reshape(5, 1, 1, 1)
    s = x.astype(np.float64) * w.reshape(1, 5, 1, 1)
    for scale_x, scale_y in [(1.0, y) for y in SCALES] + [(0.5, 1.0), (2.5, 5.0), (1.5, 3.0), (3e38, 1e-3)]:
        scales = {"scale_x": np.float32(scale_x), "scale_y": np.float32(scale_y)}
        with np.errstate(all="ignore"):
            real = np.rint(s * float(scales["scale_x"]) / float(scales["scale_y"]))
        wanted = np.where(np.isnan(real), 0, np.clip(np.nan_to_num(real, nan=0.0), -128, 127)).astype(np.int8)
        y = np.zeros((1, 5, 16, 16), np.int8)
        desc = bc.QuantizedConvPlan.descriptor(
            kind="requantized", shape=x.shape, filter_shape=w.shape, element="int8", w_element="int8",
            out_element="int8", bias_element="int32",
        )  # fmt: skip
        on_row(row, desc, x=x, w=w, y=y, **{name: np.array(one) for name, one in scales.items()})
        np.testing.assert_array_equal(y, wanted, err_msg=f"{scale_x} {scale_y}")
