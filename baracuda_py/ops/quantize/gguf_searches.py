"""Encoders of GGML's blocks of 256: q2_k to q6_k and iq4_xs, whose scales are searched for, and the ternary ones.

The searches are those of GGML's reference quantisers (make_qkx2_quants, make_q3_quants, make_qx_quants and
quantize_row_iq4_nl_impl of ggml-quants.c): a few inverse scales are tried in turn, and that with the least error is
kept. Sums are taken in the order of the numbers. Every operation is in float32, in the order written here, which is
that of kernels/quantize/encoders/gguf_super.cuh; a NaN counts as 0 before it is rounded. Where a group's scale is
stored as 0, its codes, which then mean nothing, are 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .gguf_formats import IQ4_VALUES
from .gguf_parts import F, away_from_zero, bytes_of, farthest, known, reciprocal

LEAST_SIZE = F(1e-15)
"""A group of smaller numbers is 0 (GROUP_MAX_EPS)."""


def _sum(terms: Any) -> Any:
    """In the order of the last axis."""
    return np.add.accumulate(terms, axis=-1)[..., -1:] + F(0)


def _nearest(y: Any, low: int, high: int) -> Any:
    return np.clip(np.rint(known(y)), F(low), F(high))


def _ratio(a: Any, b: Any) -> Any:
    return np.where(b > 0, known(a / b), F(0)).astype(F)


def _line(x: Any, weight: Any, top: int, first: float, steps: int, *, sizes: bool) -> tuple[Any, Any]:
    """Scale and least value (0 at most) of x ≈ scale · code + least, codes 0 to top, for the least weighted error.

    sizes: errors count by their sizes, else by their squares.
    """
    low, high = np.minimum(x.min(axis=-1, keepdims=True), F(0)), x.max(axis=-1, keepdims=True)
    none = high == low
    sum_w, sum_x = _sum(weight), _sum(weight * x)

    def error(codes: Any, scale: Any, least: Any) -> Any:
        off = scale * codes + least - x
        return _sum(weight * (np.abs(off) if sizes else off * off))

    by = (F(top) / (high - low)).astype(F)
    scale = F(1) / by
    best = error(_nearest(by * (x - low), 0, top), scale, low)
    for step in range(steps):
        by = (F(first) + F(0.1) * F(step) + F(top)) / (high - low)
        codes = _nearest(by * (x - low), 0, top)
        sum_l, sum_l2, sum_xl = _sum(weight * codes), _sum(weight * codes * codes), _sum(weight * codes * x)
        det = sum_w * sum_l2 - sum_l * sum_l
        own, least = (sum_w * sum_xl - sum_x * sum_l) / det, (sum_l2 * sum_x - sum_l * sum_xl) / det
        above = least > 0
        own, least = np.where(above, sum_xl / sum_l2, own), np.where(above, F(0), least)
        off = error(codes, own, least)
        better = (det > 0) & (off < best)
        best, scale, low = np.where(better, off, best), np.where(better, own, scale), np.where(better, least, low)
    return np.where(none, F(0), scale), low


def _scale(x: Any, level: Callable[[Any], Any], first: Any, tries: list[Any]) -> Any:
    """The scale of x ≈ scale · level, by weights x²; inverse scales are `first`, then `tries`, over the farthest."""
    far = farthest(x)

    def sums(by: Any) -> tuple[Any, Any]:
        q = level(by * x)
        weight = x * x
        return _sum(weight * x * q), _sum(weight * q * q)

    sum_x, sum_q = sums(first / far)
    scale = _ratio(sum_x, sum_q)
    best = scale * sum_x
    for one in tries:
        sum_x, sum_q = sums(one / far)
        better = (sum_q > 0) & (sum_x * sum_x > best * sum_q)
        scale = np.where(better, _ratio(sum_x, sum_q), scale)
        best = np.where(better, scale * sum_x, best)
    return np.where(np.abs(far) < LEAST_SIZE, F(0), scale)


def _scale_by_turns(x: Any) -> Any:
    """The scale of x ≈ scale · code, codes -4 to 3; five times each in turn may become that of the others' scale."""
    far = farthest(x)
    codes, weight = _nearest(F(-4) / far * x, -4, 3), x * x
    sum_x, sum_q = _sum(weight * x * codes), _sum(weight * codes * codes)
    for i in [*range(x.shape[-1])] * 5:
        one, w, code = (a[..., i : i + 1] for a in (x, weight, codes))
        rest_x, rest_q = sum_x - w * one * code, sum_q - w * code * code
        new = _nearest(one * rest_q / rest_x, -4, 3)
        next_x, next_q = rest_x + w * one * new, rest_q + w * new * new
        better = (rest_x > 0) & (new != code) & (next_q > 0)
        better &= next_x * next_x * sum_q > sum_x * sum_x * next_q
        sum_x, sum_q = np.where(better, next_x, sum_x), np.where(better, next_q, sum_q)
        codes[..., i : i + 1] = np.where(better, new, code)
    return np.where(np.abs(far) < LEAST_SIZE, F(0), _ratio(sum_x, sum_q))


def _groups(x: Any, size: int) -> Any:
    return x.reshape(*x.shape[:-1], 256 // size, size)


def _held(d: Any) -> Any:
    """As float16 holds it, over groups."""
    return known(d).astype(np.float16).astype(F)[..., None]


def _u8(codes: Any) -> Any:
    return codes.astype(np.int32).astype(np.uint8)


def _quotients(x: Any, d: Any, low: int, high: int) -> Any:
    """Codes from 0 on, uint8 [*, 256]."""
    codes = np.where(d == 0, F(0), _nearest(x / d, low, high) - F(low))
    return _u8(codes).reshape(*codes.shape[:-2], 256)


def _of_lines(scale: Any, least: Any, x: Any, levels: int, top: int) -> tuple[Any, ...]:
    """d, m, codes of scales and minima [*, groups], and codes of numbers [*, 256]."""

    def coded(found: Any) -> tuple[Any, Any]:
        most = np.fmax(found.max(axis=-1, keepdims=True, initial=F(0), where=found > 0), F(0))
        by = np.where(most > 0, F(levels) / most, F(0)).astype(F)
        return (most / F(levels)).astype(F), _nearest(by * found, 0, levels)

    (d, s), (m, t) = coded(scale[..., 0]), coded(-least[..., 0])
    codes = _quotients(x + _held(m) * t[..., None], _held(d) * s[..., None], 0, top)
    return d, m, _u8(s), _u8(t), codes


def _packed(codes: Any, runs: tuple[int, ...], bits: int) -> Any:
    """Runs of 32 in shape `runs`, those along its last axis beside each other in bytes."""
    parts = codes.reshape(*codes.shape[:-1], *runs, 32)
    shifts = np.arange(runs[-1], dtype=np.uint8)[:, None] * np.uint8(bits)
    return np.bitwise_or.reduce(parts << shifts, axis=-2).reshape(*codes.shape[:-1], 256 // runs[-1])


def q2_k(x: Any) -> Any:
    """Groups of 16, weights |x|, 16 tries."""
    parts = _groups(x, 16)
    scale, least = _line(parts, np.abs(parts), 3, -0.5, 16, sizes=True)
    d, m, s, t, codes = _of_lines(scale, least, parts, 15, 3)
    return np.concatenate([s | t << 4, _packed(codes, (2, 4), 2), bytes_of(d), bytes_of(m)], axis=-1)


def _six_bits(s: Any, t: Any) -> Any:
    upper = (s[..., 4:] & 15) | t[..., 4:] << 4
    return np.concatenate([s[..., :4] | s[..., 4:] >> 4 << 6, t[..., :4] | t[..., 4:] >> 4 << 6, upper], axis=-1)


def _q45_k(top: int, first: float, steps: int) -> Callable[[Any], Any]:
    """Groups of 32, weights |x| and the root of their mean square."""

    def made(x: Any) -> Any:
        parts = _groups(x, 32)
        mean = np.sqrt(_sum(parts * parts) / F(32))
        scale, least = _line(parts, mean + np.abs(parts), top, first, steps, sizes=False)
        d, m, s, t, codes = _of_lines(scale, least, parts, 63, top)
        fifth = [_packed(codes >> 4, (8,), 1)] if top == 31 else []
        return np.concatenate(
            [bytes_of(d), bytes_of(m), _six_bits(s, t), *fifth, _packed(codes & 15, (4, 2), 4)], axis=-1
        )

    return made


q4_k, q5_k = _q45_k(15, -1.0, 21), _q45_k(31, -0.5, 16)


def _signed_scales(scale: Any, low: int, high: int) -> tuple[Any, Any]:
    """d, for which the farthest scale has the code `low`, and the codes."""
    far = farthest(scale)
    by = np.where(far == 0, F(0), F(low) / far).astype(F)
    return reciprocal(by), _nearest(by * scale, low, high)


def q3_k(x: Any) -> Any:
    """Groups of 16."""
    parts = _groups(x, 16)
    d, s = _signed_scales(_scale_by_turns(parts)[..., 0], -32, 31)
    codes = _quotients(parts, _held(d) * s[..., None], -4, 3)
    six = np.where(d == 0, np.uint8(0), _u8(s + F(32)))
    low, high = six[..., :8] & 15 | six[..., 8:] << 4, (six >> 4).reshape(*six.shape[:-1], 4, 4)
    high = np.bitwise_or.reduce(high << np.array([0, 2, 4, 6], np.uint8)[:, None], axis=-2)
    parts = [_packed(codes >> 2, (8,), 1), _packed(codes & 3, (2, 4), 2), low, high, bytes_of(d)]
    return np.concatenate(parts, axis=-1)


def q6_k(x: Any) -> Any:
    """Groups of 16; the tries are 32 and within 0.9 of it."""
    parts = _groups(x, 16)
    tries = [-(F(32) + F(0.1) * F(i)) for i in range(-9, 10) if i]
    scale = _scale(parts, lambda y: _nearest(y, -32, 31), F(-32), tries)
    d, s = _signed_scales(scale[..., 0], -128, 127)
    codes = _quotients(parts, _held(d) * s[..., None], -32, 31)
    low = (codes & 15).reshape(*codes.shape[:-1], 2, 2, 64)
    low = (low[..., 0, :] | low[..., 1, :] << 4).reshape(*codes.shape[:-1], 128)
    return np.concatenate([low, _packed(codes >> 4, (2, 4), 2), _u8(s), bytes_of(d)], axis=-1)


def _iq4_code(y: Any) -> Any:
    """The nearest of the table, of two as near the upper."""
    y = known(y)
    at = np.searchsorted(IQ4_VALUES[1:], y, side="right")
    below, above = IQ4_VALUES[at], IQ4_VALUES[np.minimum(at + 1, 15)]
    return np.where((at == 15) | (y - below < above - y), at, at + 1)


def iq4_xs(x: Any) -> Any:
    """Groups of 32; the tries are 127 and within 7 of it."""
    parts = _groups(x, 32)
    scale = _scale(parts, lambda y: IQ4_VALUES[_iq4_code(y)], F(-127), [F(i - 127) for i in range(-7, 8)])[..., 0]
    d = (farthest(scale) / F(-32)).astype(F)
    s = _nearest(reciprocal(d) * scale, -32, 31)
    codes = _iq4_code(reciprocal(d * s)[..., None] * parts).astype(np.uint8)
    six = _u8(s + F(32))
    low = six[..., ::2] & 15 | six[..., 1::2] << 4
    high = (six >> 4).reshape(*six.shape[:-1], 2, 4) << np.array([0, 2, 4, 6], np.uint8)
    halves = (codes[..., :16] | codes[..., 16:] << 4).reshape(*x.shape[:-1], 128)
    return np.concatenate([bytes_of(d), np.bitwise_or.reduce(high, axis=-1), low, halves], axis=-1)


def _ternary(x: Any) -> tuple[Any, Any]:
    """d, the largest size, and codes 0 to 2."""
    d = np.abs(x).max(axis=-1, keepdims=True)
    return d, _u8(away_from_zero(known(x * reciprocal(d)), 1) + F(1))


def tq1_0(x: Any) -> Any:
    """Five digits of base 3 in a byte, as a fraction of 256 that is rounded up."""
    d, codes = _ternary(x)
    parts = codes[..., :160], codes[..., 160:240], codes[..., 240:]
    made = []
    for part, width in zip(parts, (32, 16, 4), strict=True):
        digits = part.reshape(*part.shape[:-1], part.shape[-1] // width, width).astype(np.uint16)
        places = np.array([81, 27, 9, 3, 1], np.uint16)[: digits.shape[-2], None]
        made.append(((digits * places).sum(axis=-2, dtype=np.uint16) * 256 + 242) // 243)
    return np.concatenate([np.concatenate(made, axis=-1).astype(np.uint8), bytes_of(d)], axis=-1)


def tq2_0(x: Any) -> Any:
    """Codes of 2 bits."""
    d, codes = _ternary(x)
    return np.concatenate([_packed(codes, (2, 4), 2), bytes_of(d)], axis=-1)
