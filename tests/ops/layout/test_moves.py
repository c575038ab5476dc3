"""Views and copies of views: as torch and NumPy have them, in every package, with torch's gradients."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc

torch = pytest.importorskip("torch")


def numbers(*shape: int, dtype: Any = np.float32) -> Any:
    return torch.from_numpy(np.arange(1, 1 + int(np.prod(shape))).reshape(shape).astype(dtype))


F = torch.nn.functional
COPIES: dict[str, tuple[tuple[int, ...], Any, Any]] = {  # function → shape, ours, torch's
    "copy": ((2, 3), lambda x: bc.copy(x.mT), lambda x: x.mT.clone(memory_format=torch.contiguous_format)),
    "contiguous": ((2, 3), lambda x: bc.contiguous(x.mT), lambda x: x.mT.contiguous()),
    "permute_copy": ((2, 3, 4), lambda x: bc.permute_copy(x, 2, 0, 1), lambda x: x.permute(2, 0, 1)),
    "transpose_copy": ((2, 3, 4), lambda x: bc.transpose_copy(x, 0, -1), lambda x: x.transpose(0, -1)),
    "expand_copy": ((2, 1, 3), lambda x: bc.expand_copy(x, (5, -1, 4, 3)), lambda x: x.expand(5, -1, 4, 3)),
    "flip": ((3, 4, 16), lambda x: bc.flip(x, (0, 2)), lambda x: x.flip(0, 2)),
    "flip all": ((3, 4), bc.flip, lambda x: x.flip(0, 1)),
    "fliplr": ((3, 4), bc.fliplr, torch.fliplr),
    "flipud": ((3, 4), bc.flipud, torch.flipud),
    **{f"rot90 {k}": ((2, 3, 4), lambda x, k=k: bc.rot90(x, k, (2, 0)), lambda x, k=k: x.rot90(k, (2, 0)))
       for k in (-1, 0, 1, 2, 7)},
    "tile": ((2, 3), lambda x: bc.tile(x, (2, 1, 3)), lambda x: x.tile(2, 1, 3)),
    "tile fewer": ((2, 3, 2), lambda x: bc.tile(x, (2,)), lambda x: x.tile(2)),
    "slice_copy": ((7, 3), lambda x: bc.slice_copy(x, 0, 1, -1, 2), lambda x: x[1:-1:2]),
    "slice_copy back": ((7, 3), lambda x: bc.slice_copy(x, 0, None, 0, -2), lambda x: x.flip(0)[:-1:2]),
    "narrow_copy": ((7, 3), lambda x: bc.narrow_copy(x, 0, -4, 3), lambda x: x.narrow(0, -4, 3)),
    "diagonal_copy": ((3, 5, 4), lambda x: bc.diagonal_copy(x, -1, 1, 2), lambda x: x.diagonal(-1, 1, 2)),
    "diagonal_copy outside": ((3, 5), lambda x: bc.diagonal_copy(x, 7), lambda x: x.diagonal(7)),
    "unfold_copy": ((3, 8), lambda x: bc.unfold_copy(x, 1, 3, 2), lambda x: x.unfold(1, 3, 2)),
    "pixel_shuffle": ((2, 12, 3, 5), lambda x: bc.pixel_shuffle(x, 2), lambda x: F.pixel_shuffle(x, 2)),
    "pixel_unshuffle": ((2, 3, 6, 9), lambda x: bc.pixel_unshuffle(x, 3), lambda x: F.pixel_unshuffle(x, 3)),
    "depth_to_space": ((2, 12, 3, 5), lambda x: bc.depth_to_space(x, 2, "CRD"), lambda x: F.pixel_shuffle(x, 2)),
    "space_to_depth": ((2, 3, 6, 9), lambda x: bc.space_to_depth(x, 3, "CRD"), lambda x: F.pixel_unshuffle(x, 3)),
    "channel_shuffle": ((2, 6, 4), lambda x: bc.channel_shuffle(x, 3),
                        lambda x: x.reshape(2, 3, 2, 4).transpose(1, 2).reshape(2, 6, 4)),
}  # fmt: skip
VIEWS: dict[str, tuple[tuple[int, ...], Any, Any]] = {
    "permute": ((2, 3, 4), lambda x: bc.permute(x, (1, 2, 0)), lambda x: x.permute(1, 2, 0)),
    "transpose": ((2, 3, 4), lambda x: bc.transpose(x, 0, 1), lambda x: x.transpose(0, 1)),
    "transpose all": ((2, 3, 4), bc.transpose, lambda x: x.permute(2, 1, 0)),
    "t": ((2, 3), bc.t, torch.t),
    "matrix_transpose": ((2, 3, 4), bc.matrix_transpose, lambda x: x.mT),
    "movedim": ((2, 3, 4, 5), lambda x: bc.movedim(x, (0, 1), (-1, 0)), lambda x: x.movedim((0, 1), (-1, 0))),
    "swapaxes": ((2, 3, 4), lambda x: bc.swapdims(x, 0, -1), lambda x: x.swapdims(0, -1)),
    "rollaxis": ((2, 3, 4), lambda x: bc.rollaxis(x, 2), lambda x: x.permute(2, 0, 1)),
    "unsqueeze": ((2, 3), lambda x: bc.unsqueeze(x, -1), lambda x: x.unsqueeze(-1)),
    "expand_dims": ((2, 3), lambda x: bc.expand_dims(x, (0, 2)), lambda x: x[None, :, None]),
    "squeeze": ((1, 2, 1), bc.squeeze, torch.squeeze),
    "squeeze one": ((1, 2, 1), lambda x: bc.squeeze(x, (0, 1)), lambda x: x.squeeze(0)),
    "reshape": ((2, 6), lambda x: bc.reshape(x, (3, -1)), lambda x: x.reshape(3, -1)),
    "flatten": ((2, 3, 4), lambda x: bc.flatten(x, 1), lambda x: x.flatten(1)),
    "ravel": ((2, 3), lambda x: bc.ravel(x), lambda x: x.ravel()),
    "collapse": ((2, 3, 4), lambda x: bc.collapse(x, 0, 2), lambda x: x.flatten(0, 1)),
    "unflatten": ((2, 6), lambda x: bc.unflatten(x, 1, (2, -1)), lambda x: x.unflatten(1, (2, -1))),
    "expand": ((2, 1), lambda x: bc.expand(x, -1, 3), lambda x: x.expand(-1, 3)),
    "broadcast_to": ((2, 1), lambda x: bc.broadcast_to(x, (4, 2, 3)), lambda x: x.broadcast_to(4, 2, 3)),
    "broadcast_in_dim": ((3,), lambda x: bc.broadcast_in_dim(x, (2, 3, 4), (1,)),
                         lambda x: x[None, :, None].expand(2, 3, 4)),
    "broadcast_to_rank": ((3,), lambda x: bc.broadcast_to_rank(x, 3), lambda x: x[None, None]),
    "narrow": ((5, 3), lambda x: bc.narrow(x, 0, -3, 2), lambda x: x.narrow(0, -3, 2)),
    "index_in_dim": ((5, 3), lambda x: bc.index_in_dim(x, -1, 1, keepdims=False), lambda x: x.select(1, -1)),
    "slice_in_dim": ((5, 3), lambda x: bc.slice_in_dim(x, 1, 5, 2), lambda x: x[1:5:2]),
    "diagonal": ((3, 5, 4), lambda x: bc.diagonal(x, 1, 2, 0), lambda x: x.diagonal(1, 2, 0)),
    "diagonal outside": ((3, 5), lambda x: bc.diagonal(x, 9), lambda x: x.diagonal(5)),
    "unfold": ((3, 8), lambda x: bc.unfold(x, 1, 3, 2), lambda x: x.unfold(1, 3, 2)),
    "atleast_3d": ((3,), bc.atleast_3d, torch.atleast_3d),
    "atleast_3d of 2": ((3, 2), bc.atleast_3d, torch.atleast_3d),
    "atleast_2d of 0": ((), bc.atleast_2d, torch.atleast_2d),
    "atleast_1d": ((), bc.atleast_1d, torch.atleast_1d),
}  # fmt: skip
PARTS: dict[str, tuple[tuple[int, ...], Any, Any]] = {
    "split": ((7, 2), lambda x: bc.split(x, 3), lambda x: x.split(3)),
    "split sizes": ((7, 2), lambda x: bc.split(x, (3, 0, 4)), lambda x: x.split((3, 0, 4))),
    "chunk": ((2, 7), lambda x: bc.chunk(x, 3, 1), lambda x: x.chunk(3, 1)),
    "chunk many": ((2, 7), lambda x: bc.chunk(x, 5, 1), lambda x: x.chunk(5, 1)),
    "tensor_split": ((7,), lambda x: bc.tensor_split(x, 3), lambda x: x.tensor_split(3)),
    "tensor_split at": ((7,), lambda x: bc.tensor_split(x, (1, -2, 9)), lambda x: x.tensor_split((1, -2, 9))),
    "hsplit": ((4, 6), lambda x: bc.hsplit(x, 2), lambda x: x.hsplit(2)),
    "vsplit": ((4, 6), lambda x: bc.vsplit(x, (1, 3)), lambda x: x.vsplit((1, 3))),
    "dsplit": ((1, 2, 6), lambda x: bc.dsplit(x, 3), lambda x: x.dsplit(3)),
    "unbind": ((2, 3), lambda x: bc.unbind(x, 1), lambda x: x.unbind(1)),
}


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_is_torchs(name: str) -> None:
    shape, ours, theirs = COPIES[name]
    for dtype in (np.float64, np.int8, np.complex64):
        x = numbers(*shape, dtype=dtype)
        got, want = ours(x), theirs(x)
        assert got.dtype is want.dtype and got.is_contiguous() and torch.equal(got, want), name
    x = numbers(*shape, dtype=np.float64)
    assert np.array_equal(ours(x.numpy()), theirs(x).numpy())


@pytest.mark.parametrize("name", COPIES)
def test_its_gradient_is_torchs(name: str) -> None:
    pytest.importorskip("baracuda_py.torch")
    shape, ours, theirs = COPIES[name]
    x = numbers(*shape, dtype=np.float64).requires_grad_()
    want = theirs(x)
    dy = torch.randn(want.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    (expected,) = torch.autograd.grad(want, x, dy)
    (got,) = torch.autograd.grad(ours(x), x, dy)
    assert torch.allclose(got, expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_is_torchs(name: str) -> None:
    shape, ours, theirs = VIEWS[name]
    x = numbers(*shape)
    got, want = ours(x), theirs(x)
    assert torch.equal(got, want) and (not got.numel() or got.data_ptr() == want.data_ptr())
    host = x.numpy()
    seen = ours(host)
    assert np.array_equal(seen, want.numpy()) and (not seen.size or np.shares_memory(seen, host))
    ref = bc.TensorRef(x.data_ptr(), shape, element="float32", device=-1)
    seen = ours(ref)
    out = np.empty(want.shape, np.float32)
    bc.copy(seen, out=out)
    assert np.array_equal(out, want.numpy())


@pytest.mark.parametrize("name", PARTS)
def test_parts_are_torchs(name: str) -> None:
    shape, ours, theirs = PARTS[name]
    x = numbers(*shape)
    got, want = ours(x), theirs(x)
    assert len(got) == len(want) and all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
    assert all(np.array_equal(a, b.numpy()) for a, b in zip(ours(x.numpy()), want, strict=True))


def test_other_spellings() -> None:
    x = np.arange(24.0).reshape(2, 3, 4)
    assert np.array_equal(bc.transpose(x, (1, 0, 2)), x.transpose(1, 0, 2))
    assert np.array_equal(bc.rollaxis(x, 0, 3), np.rollaxis(x, 0, 3))
    assert np.array_equal(bc.reshape(x.transpose(2, 0, 1), (3, 8)), x.transpose(2, 0, 1).reshape(3, 8))
    a, b = bc.broadcast_tensors(x[:1], x[:, :1])
    assert a.shape == b.shape == (2, 3, 4)
    assert bc.broadcast_like(x[:1], x).shape == x.shape
    one, two = bc.atleast_2d(x[0, 0], x)
    assert one.shape == (1, 4) and two.shape == x.shape
    c = np.arange(24).reshape(1, 12, 1, 2)
    crd = c.reshape(1, 2, 2, 3, 1, 2).transpose(0, 3, 4, 1, 5, 2).reshape(1, 3, 2, 4)
    assert np.array_equal(bc.depth_to_space(c, 2), crd) and np.array_equal(bc.space_to_depth(crd, 2), c)


def test_wrong_calls() -> None:
    x = np.ones((2, 3, 4), np.float32)
    for call, says in (
        (lambda: bc.permute(x, 0, 1), "each of the 3 axes"),
        (lambda: bc.permute(x, 0, 1, 1), "twice"),
        (lambda: bc.flip(x, 3), r"axis must be an integer in \[-3, 2\]"),
        (lambda: bc.reshape(x, (5, -1)), "24 elements"),
        (lambda: bc.expand(x, 2, 3, 5), "broadcast"),
        (lambda: bc.tile(x, (2, -1)), r"reps must be an integer >= 0"),
        (lambda: bc.pixel_shuffle(x, 2), "must divide the channels"),
        (lambda: bc.narrow(x, 0, 1, 2), "length must be an integer in"),
        (lambda: bc.unfold_copy(x, 0, 3, 1), "size must be an integer in"),
        (lambda: bc.slice_copy(x, 0, step=0), "step must not be 0"),
        (lambda: bc.split(x, (1, 2)), "must be 2 together"),
        (lambda: bc.hsplit(x, 2), "no 2 equal parts"),
        (lambda: bc.t(x), "two axes at most"),
        (lambda: bc.depth_to_space(x, 1, "XYZ"), "mode must be"),
        (lambda: bc.flip(x, dim=0), "did you mean axis="),
    ):
        with pytest.raises((bc.InvalidProblemError, bc.UnknownKeywordError), match=says):
            call()


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn])
def test_eight_bit_floats_move_as_the_bytes_they_are(dtype) -> None:
    x = np.array([[1, 2], [3, 4]], dtype)
    padded = bc.pad(x, [1, 0], value=2)
    assert np.array_equal(padded.view(dtype).astype(np.float32), [[2, 1, 2], [2, 3, 4]])
    assert np.array_equal(bc.flip(x, 0).view(dtype).astype(np.float32), [[3, 4], [1, 2]])


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn, ml_dtypes.bfloat16])
def test_views_of_elements_that_numpy_has_no_name_for(dtype) -> None:
    words = np.arange(1, 13, dtype=f"u{np.dtype(dtype).itemsize}").reshape(3, 4)[::-1]
    x = words.view(dtype)
    for seen, wanted in (
        (bc.diagonal(x, 1), np.diagonal(words, 1)),
        (bc.unfold(x, 1, 3, 1), np.stack([words[:, :3], words[:, 1:]], 1)),
        (bc.put(x, np.array([-1]), x[0, :1]), np.append(words.ravel()[:-1], words[0, 0]).reshape(3, 4)),
    ):
        np.testing.assert_array_equal(np.ascontiguousarray(seen).view(words.dtype), wanted)


@pytest.mark.parametrize("reps", [(0,), (0, 0), (2, 0), (1, 0, 1), (3, 2, 1)])
@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 0, 1), (1, 3), (0, 2)])
def test_copies_of_no_elements(shape: tuple[int, ...], reps: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape)).reshape(shape)
    np.testing.assert_array_equal(bc.tile(x, reps), np.tile(x, reps))
    for axis in range(len(shape)):
        np.testing.assert_array_equal(bc.repeat_interleave(x, reps[-1], axis=axis), np.repeat(x, reps[-1], axis))
        empty = x.take([], axis)
        got = bc.slice_scatter(x, empty, axis=axis, start=1, stop=1)
        np.testing.assert_array_equal(got, x)
    np.testing.assert_array_equal(bc.repeat_interleave(x, 2), np.repeat(x, 2))
