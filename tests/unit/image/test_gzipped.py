"""gzip of our own: what it writes unpacks to what went in, and is the same bytes for ever."""

from __future__ import annotations

import base64
import gzip
import hashlib
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_mods.image import gzipped


def rows(count: int) -> bytes:
    """Return rows like those of a RECORD: paths that repeat and hashes that do not."""
    noise = random.Random(7)
    digests = (base64.urlsafe_b64encode(noise.randbytes(32)).rstrip(b"=") for _ in range(count))
    return b"".join(
        b"vllm/model_executor/layers/part_%d/file_%d.py,sha256=%s,%d\n" % (n // 9, n, one, n * 37)
        for n, one in enumerate(digests)
    )


@given(st.binary(max_size=2000))
def test_what_went_in_comes_out(data: bytes) -> None:
    assert gzip.decompress(gzipped.pack(data)) == data


@given(
    st.lists(st.sampled_from([b"a", b"ab", b"import os\n", bytes(300), b"\xff\x00"]), max_size=400)
)
def test_what_repeats_comes_out(parts: list[bytes]) -> None:
    data = b"".join(parts)
    assert gzip.decompress(gzipped.pack(data)) == data


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"a",
        bytes(70_000),  # the longest matches, at the distance of one
        b"far" + random.Random(1).randbytes(32_760) + b"farther",  # about the longest distance
        random.Random(2).randbytes(140_000),  # several blocks, no match
        # without a bound the code of the rarest byte would have 20 bits
        bytes(random.Random(3).choices(range(20), [2**n for n in range(20)], k=9000))
        + bytes(range(20)),
        rows(5000),
    ],
    ids=["nothing", "a byte", "zeros", "far", "noise", "skewed", "rows"],
)
def test_corners(data: bytes) -> None:
    packed = gzipped.pack(data)
    assert gzip.decompress(packed) == data
    assert zlib.decompress(packed, wbits=31) == data


def test_the_bytes_never_change() -> None:
    """The digest of every packed layer rests on them."""
    packed = gzipped.pack(rows(500) * 2)
    assert (
        hashlib.sha256(packed).hexdigest()
        == "d095e3cda17130553d72be31aba60db78ff822a8b33c8e32fbcc270cf5309758"
    )


def test_it_packs_nearly_as_zlib_does() -> None:
    data = rows(3000)
    assert len(gzipped.pack(data)) < 1.1 * len(zlib.compress(data, 9))
