"""What is packed unpacks to what went in, and tells nothing of where and when it was packed."""

from __future__ import annotations

import gzip
import random

import pytest

from vllm_mods.building import oci


@pytest.mark.parametrize("data", [b"", b"a", bytes(70_000), random.Random(2).randbytes(140_000)])
def test_what_went_in_comes_out(data: bytes) -> None:
    assert gzip.decompress(oci.gzipped(data)) == data


def test_the_header_has_no_time_no_name_and_no_system() -> None:
    assert oci.gzipped(b"layer")[:10] == bytes.fromhex("1f8b 08 00 00000000 02 ff")
