"""What a unified diff says of one file: its hunks, names and modes. Pure."""

from typing import NamedTuple, Self


class Hunk(NamedTuple):
    """One hunk. ``lines`` are (kind, bytes) with kind ``" "``, ``"-"`` or ``"+"``.

    A line keeps its terminator; one without is the last of its file. ``old_start``
    is the stated 1-based line, ``new_start`` follows from it and the hunks before it, whatever
    the patch says; ``number`` counts from 1 in the file's part of the patch.
    """

    number: int
    old_start: int
    new_start: int
    section: str
    lines: tuple[tuple[str, bytes], ...]
    patch_line: int

    @property
    def old(self) -> tuple[bytes, ...]:
        """The lines the hunk expects to find."""
        return tuple(text for kind, text in self.lines if kind != "+")

    @property
    def new(self) -> tuple[bytes, ...]:
        """The lines the hunk leaves in their place."""
        return tuple(text for kind, text in self.lines if kind != "-")

    @property
    def stated(self) -> int:
        """The 1-based line that it is for: a side of length 0 states the one before (POSIX diff)."""
        return self.old_start + (not self.old)

    def reversed(self) -> Self:
        """Return the hunk that takes this one out again."""
        flip = {" ": " ", "-": "+", "+": "-"}
        return self._replace(
            old_start=self.new_start,
            new_start=self.old_start,
            lines=tuple((flip[kind], text) for kind, text in self.lines),
        )


class FileDiff(NamedTuple):
    """What a patch does to one file; ``None`` as a path stands for "no such file".

    ``hunks`` are in the order of the file, also where the patch has them in another. ``mode`` is the permission bits
    that the patch states for the new file, if any. ``old_blob`` and ``new_blob`` are git's names of the two contents,
    from its ``index`` line: lower-case hex, often abbreviated; None where the patch has none, or all zeros for "no
    file". ``may_create`` says that it fills an empty file, or makes it where there is none.
    """

    old_path: str | None
    new_path: str | None
    hunks: tuple[Hunk, ...]
    patch_line: int
    mode: int | None = None
    old_mode: int | None = None
    old_blob: str | None = None
    new_blob: str | None = None
    may_create: bool = False

    @property
    def path(self) -> str:
        """The file that is there before, or the one that comes to be."""
        path = self.old_path if self.old_path is not None else self.new_path
        assert path is not None  # noqa: S101  (the reader refuses a section without paths)
        return path

    def reversed(self) -> Self:
        """Return the diff that takes this one out again."""
        return self._replace(
            old_path=self.new_path,
            new_path=self.old_path,
            mode=self.old_mode,
            old_mode=self.mode,
            old_blob=self.new_blob,
            new_blob=self.old_blob,
            may_create=False,
            hunks=tuple(hunk.reversed() for hunk in self.hunks),
        )
