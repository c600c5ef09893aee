"""gzip whose bytes follow from the input alone. Pure.

zlib promises that its output unpacks, not that another version, or zlib-ng, writes the same bytes, and
the digest of a packed layer has to be the same on every machine. So this is an encoder of our
own: the nearest earlier match for each place, and a Huffman code for each 64 Ki symbols.

Formats: RFC 1952 (gzip) around RFC 1951 (DEFLATE, whose sections are named below). Code lengths come
from package-merge (Larmore and Hirschberg, "A fast algorithm for optimal length-limited Huffman
codes", 1990).
"""

from __future__ import annotations

import zlib
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # no name, no time, no operating system
_WINDOW, _SHORTEST, _LONGEST = 32768, 4, 258
_BLOCK = 1 << 16  # symbols
_END = 256
_LONGEST_CODE, _LONGEST_META_CODE = 15, 7
_META_ORDER = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15)  # 3.2.7


def pack(data: bytes) -> bytes:
    """Return ``data`` as one gzip member."""
    bits = _Bits()
    symbols = list(_symbols(data))
    for start in range(0, len(symbols) or 1, _BLOCK):
        block = symbols[start : start + _BLOCK]
        _write(bits, block, last=start + _BLOCK >= len(symbols))
    sizes = (zlib.crc32(data), len(data) % (1 << 32))
    return _HEADER + bits.whole() + b"".join(size.to_bytes(4, "little") for size in sizes)


class _Bits:
    """Numbers of so many bits, the lowest first."""

    def __init__(self) -> None:
        self.done = bytearray()
        self.held = 0
        self.size = 0

    def put(self, value: int, size: int) -> None:
        self.held |= value << self.size
        self.size += size
        if self.size >= 512:
            self.done += (self.held & ((1 << 512) - 1)).to_bytes(64, "little")
            self.held >>= 512
            self.size -= 512

    def whole(self) -> bytes:
        return bytes(self.done) + self.held.to_bytes((self.size + 7) // 8, "little")


def _symbols(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield (byte, 0) for a literal and (length, distance) for a match."""
    latest: dict[bytes, int] = {}
    place, end = 0, len(data)
    while place < end:
        key = data[place : place + _SHORTEST]
        earlier = latest.get(key)
        latest[key] = place
        if earlier is None or place - earlier > _WINDOW or len(key) < _SHORTEST:
            yield data[place], 0
            place += 1
            continue
        length = _common(data, earlier, place)
        yield length, place - earlier
        for inner in range(place + 1, place + length):
            latest[data[inner : inner + _SHORTEST]] = inner
        place += length


def _common(data: bytes, earlier: int, place: int) -> int:
    """Return how many bytes are the same at two places, up to the longest match there is."""
    length, longest = _SHORTEST, min(_LONGEST, len(data) - place)
    step = 32
    while step:
        while (
            length + step <= longest
            and data[earlier + length : earlier + length + step]
            == data[place + length : place + length + step]
        ):
            length += step
        step >>= 1
    return length


def _ladder(codes: int, per_step: int, start: int) -> list[tuple[int, int]]:
    """Return (lowest value, extra bits) for each code of a table that doubles its steps (3.2.5)."""
    found, value = [], start
    for code in range(codes):
        extra = max(0, code // per_step - 1)
        found.append((value, extra))
        value += 1 << extra
    return found


_LENGTHS = [*_ladder(28, 4, 3), (258, 0)]
_DISTANCES = _ladder(30, 2, 1)


def _by_value(
    table: Sequence[tuple[int, int]], largest: int, base: int
) -> list[tuple[int, int, int]]:
    """Return for each value its code, its extra bits and how many they are."""
    found = [(0, 0, 0)] * (largest + 1)
    for code, (lowest, extra) in enumerate(table):
        for value in range(lowest, min(lowest + (1 << extra), largest + 1)):
            found[value] = (base + code, value - lowest, extra)
    return found


_LENGTH_CODES = _by_value(_LENGTHS, _LONGEST, 257)
_DISTANCE_CODES = _by_value(_DISTANCES, _WINDOW, 0)


def _write(bits: _Bits, block: Sequence[tuple[int, int]], *, last: bool) -> None:
    """Write a block with Huffman codes of its own (3.2.7)."""
    counts = Counter(_LENGTH_CODES[one][0] if far else one for one, far in block)
    counts[_END] = 1
    distances = Counter(_DISTANCE_CODES[far][0] for _, far in block if far)
    literal_sizes = _code_sizes(counts, _LONGEST_CODE, 286)
    distance_sizes = _code_sizes(distances, _LONGEST_CODE, 30)
    bits.put(int(last), 1)
    bits.put(2, 2)
    _write_sizes(bits, literal_sizes, distance_sizes)
    literals, fars = _codes(literal_sizes), _codes(distance_sizes)
    for one, far in block:
        if not far:
            bits.put(*literals[one])
            continue
        for codes, (code, value, extra) in (
            (literals, _LENGTH_CODES[one]),
            (fars, _DISTANCE_CODES[far]),
        ):
            reverse, size = codes[code]
            bits.put(reverse | value << size, size + extra)
    bits.put(*literals[_END])


def _write_sizes(bits: _Bits, literals: Sequence[int], distances: Sequence[int]) -> None:
    """Write how long each code is, itself in a Huffman code (3.2.7)."""
    literals = _trimmed(literals, 257)
    distances = _trimmed(distances, 1)
    runs = list(_runs([*literals, *distances]))
    sizes = _code_sizes(Counter(code for code, _, _ in runs), _LONGEST_META_CODE, 19)
    ordered = _trimmed([sizes[code] for code in _META_ORDER], 4)
    bits.put(len(literals) - 257, 5)
    bits.put(len(distances) - 1, 5)
    bits.put(len(ordered) - 4, 4)
    for size in ordered:
        bits.put(size, 3)
    codes = _codes(sizes)
    for code, value, extra in runs:
        bits.put(*codes[code])
        bits.put(value, extra)


def _runs(sizes: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield code, extra bits and their number, with runs of equal sizes made short."""
    for size, group in groupby(sizes):
        left = len(list(group))
        if size:
            yield size, 0, 0
            left -= 1
        while left >= 3:
            if size:
                run = min(left, 6)
                yield 16, run - 3, 2
            elif left < 11:
                run = left
                yield 17, run - 3, 3
            else:
                run = min(left, 138)
                yield 18, run - 11, 7
            left -= run
        for _ in range(left):
            yield size, 0, 0


def _trimmed(sizes: Sequence[int], least: int) -> Sequence[int]:
    end = len(sizes)
    while end > least and not sizes[end - 1]:
        end -= 1
    return sizes[:end]


def _code_sizes(counts: Mapping[int, int], longest: int, codes: int) -> list[int]:
    """Return the length in bits of each code, none over ``longest``, 0 for what does not occur."""
    sizes = [0] * codes
    leaves = sorted((count, (symbol,)) for symbol, count in counts.items())
    if len(leaves) == 1:
        sizes[leaves[0][1][0]] = 1  # a code has at least one bit
        return sizes
    packages: list[tuple[int, tuple[int, ...]]] = []
    for _ in range(longest):
        merged = sorted([*leaves, *packages])
        packages = [
            (first[0] + second[0], first[1] + second[1])
            for first, second in zip(merged[::2], merged[1::2], strict=False)
        ]
    for _, symbols in packages[: len(leaves) - 1]:
        for symbol in symbols:
            sizes[symbol] += 1
    return sizes


def _codes(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Return each code, first bit lowest as it is written, and its length (3.2.2)."""
    found = [(0, 0)] * len(sizes)
    code = 0
    for size in range(1, max(sizes, default=0) + 1):
        code <<= 1
        for symbol, own in enumerate(sizes):
            if own == size:
                found[symbol] = (int(f"{code:0{size}b}"[::-1], 2), size)
                code += 1
    return found
