"""Philox4x32-10 against Random123's known answers, and the library's convention for elements."""

import numpy as np
import pytest

from baracuda_py.ops.random.philox import philox4x32, philox_bits, philox_uniform

ONES = 0xFFFFFFFF


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)  # fmt: skip
def test_known_answers(counter: tuple[int, ...], key: tuple[int, ...], words: tuple[int, ...]) -> None:
    assert philox4x32(counter, key).tolist() == list(words)


def test_elements_are_words_of_blocks() -> None:
    seed, offset = 0x1234567890ABCDEF, 0x0FEDCBA987654321
    bits = philox_bits(seed, offset, 11)
    for e, word in enumerate(bits):
        block = philox4x32((e // 4, 0, offset & ONES, offset >> 32), (seed & ONES, seed >> 32))
        assert word == block[e % 4]
    assert np.array_equal(philox_bits(seed, offset, 6, start=5), bits[5:])
    assert philox_bits(seed, offset, 0).shape == (0,)


def test_far_elements_use_the_high_word() -> None:
    start = 4 * 2**32 + 2
    assert philox_bits(1, 2, 1, start)[0] == philox4x32((0, 1, 2, 0), (1, 0))[2]


def test_uniforms() -> None:
    u = philox_uniform(7, 0, 4096)
    assert u.dtype == np.float32 and u.min() >= 0 and u.max() < 1
    assert np.array_equal(u * 2**24, np.floor(u * 2**24))
    assert abs(u.mean() - 0.5) < 0.02 and abs(u.var() - 1 / 12) < 0.01


def test_negative_seeds_count_modulo_2_64() -> None:
    assert np.array_equal(philox_bits(-1, -2, 8), philox_bits(2**64 - 1, 2**64 - 2, 8))
