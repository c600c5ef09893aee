"""The files of an image that lies in layers: a layer covers those below it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from vllm_mods.base.cache import Cache
from vllm_mods.base.errors import TreeError
from vllm_mods.images import layer as layers
from vllm_mods.images import streams
from vllm_mods.images.layer import Layer
from vllm_mods.images.model import DIR, FILE, Base, Blob, ImageEntry, with_ancestors

Progress = Callable[[str, int, int | None], None]
_ROOT = ImageEntry(path="", kind=DIR, mode=0o755, uid=0, gid=0, mtime=0)


class LayeredImage(Base):
    """An image whose layers can be opened. Each is read when it is needed, from the top down.

    That a path is absent is known only when all of them were read.
    """

    def __init__(
        self, reference: str, blobs: tuple[Blob, ...], cache: Cache, progress: Progress | None
    ) -> None:
        self.reference = reference
        self.blobs = blobs
        self._cache = cache
        self._progress = progress
        self._layers: dict[int, Layer] = {}

    def entry(self, path: str) -> ImageEntry | None:
        """Return what lies at a path."""
        located = self._find(path)
        if located is None:
            return _ROOT if not path else None  # A layer need not mention the root.
        return located[1]

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file."""
        located = self._find(path)
        if located is None or located[1].kind != FILE:
            return None
        number, _ = located
        layer = self.layer(number)
        if path in layer.names:
            return self.read(layer.names[path])
        data = layer.content(path)
        if data is None:
            blob = self.blobs[number]
            with blob.open() as file:
                data = layers.extract(file, path, self._name(blob))
        return data

    def paths(self, under: str) -> Iterator[ImageEntry]:
        """Return everything below a folder."""
        seen: set[str] = set()
        covered: set[str] = set()
        top = f"{under}/" if under else ""
        for number in reversed(range(len(self.blobs))):
            layer = self.layer(number)
            covered_here = set(layer.gone) | set(layer.opaque)
            for path, entry in layer.entries.items():
                if entry.kind != DIR:
                    covered_here.add(path)
                if path in seen or not path.startswith(top) or path == under or not path:
                    continue
                if covered.isdisjoint(with_ancestors(path)):
                    seen.add(path)
                    yield entry
            covered |= covered_here
            if not covered.isdisjoint(with_ancestors(under)):
                return  # Nothing further down can show through.

    def close(self) -> None:
        """Do nothing: no layer stays open."""

    def _find(self, path: str) -> tuple[int, ImageEntry] | None:
        parents = with_ancestors(path)[:-1]
        for number in reversed(range(len(self.blobs))):
            layer = self.layer(number)
            if path in layer.entries:
                if any(p in layer.entries and layer.entries[p].kind != DIR for p in parents):
                    return None
                return number, layer.entries[path]
            if path in layer.gone:
                return None
            for parent in parents:
                above_it = layer.entries.get(parent)
                if (
                    parent in layer.gone
                    or parent in layer.opaque
                    or (above_it and above_it.kind != DIR)
                ):
                    return None
        return None

    def layer(self, number: int) -> Layer:
        """Return a layer, counted from the lowest."""
        if number not in self._layers:
            blob = self.blobs[number]
            layer = layers.load(self._cache, blob.digest) or self._read_layer(number)
            if layer.diff_id != blob.diff_id:
                raise TreeError(
                    f"{self._name(blob)}: it unpacks to {layer.diff_id}, and the configuration says "
                    f"{blob.diff_id}: somebody has put another layer in its place",
                    hint="do not use this image: get it again from where it was made",
                )
            self._layers[number] = layer
        return self._layers[number]

    def _read_layer(self, number: int) -> Layer:
        blob = self.blobs[number]
        what = self._name(blob)
        with blob.open() as file:
            checked = streams.CheckedStream(file, blob.digest, blob.size, what, self._tell(number))
            layer = layers.scan(checked, what)
            checked.finish()
        layers.keep(self._cache, blob.digest, layer)
        return layer

    def _name(self, blob: Blob) -> str:
        return f"{self.reference}: layer {blob.digest[:19]}"

    def _tell(self, number: int) -> Callable[[int], None] | None:
        if self._progress is None:
            return None
        show, size = self._progress, self.blobs[number].size
        place = f"reading layer {number + 1} of {len(self.blobs)}"
        return lambda done: show(place, done, size)
