"""The files of a commit by git's objects: what is damaged is named, and how much is listed has an end."""

from __future__ import annotations

import hashlib

import pytest
from lowering import lower

from vllm_mods.base.errors import TreeError
from vllm_mods.sharing import git_objects

BLOB = "b" * 40


class Objects(dict[str, bytes]):
    """Objects by their hashes, as a server sends them."""

    def add(self, kind: str, content: bytes) -> str:
        data = git_objects.with_header(kind, content)
        name = hashlib.sha1(data, usedforsecurity=False).hexdigest()
        self[name] = data
        return name

    def tree(self, *rows: tuple[str, str, str]) -> str:
        content = (f"{mode} {name}".encode() + b"\0" + bytes.fromhex(of) for mode, name, of in rows)
        return self.add("tree", b"".join(content))

    def commit(self, tree: str) -> str:
        return self.add("commit", f"tree {tree}\nauthor me\n".encode())

    def chain(self, *names: str) -> str:
        """Return a commit of folders, each in the one before, with a file in the last."""
        tree = self.tree(("100644", "x", BLOB))
        for name in reversed(names):
            tree = self.tree(("40000", name, tree))
        return self.commit(tree)

    def files(self, commit: str, folder: str = "") -> dict[str, str]:
        return dict(git_objects.library_files(commit, folder, self.__getitem__, "mods"))


def why(objects: Objects, commit: str) -> str:
    with pytest.raises(TreeError) as caught:
        objects.files(commit)
    assert caught.value.hint == "report this to its author"
    return caught.value.message


def test_folders_count_as_files_do(monkeypatch: pytest.MonkeyPatch) -> None:
    objects = Objects()
    head = objects.chain("patches", "fast")
    lower(monkeypatch, "LIBRARY_FILES", 3)
    assert objects.files(head) == {"patches/fast/x": BLOB}
    lower(monkeypatch, "LIBRARY_FILES", 2)
    assert why(objects, head).startswith("mods: has more than 2 files, the limit for ")


def test_the_library_is_in_the_folder_that_is_named() -> None:
    objects = Objects()
    head = objects.chain("deep", "er", "patches")
    assert objects.files(head, "deep/er") == {"patches/x": BLOB}
    assert objects.files(head, "deep/other") == {}
    assert objects.files(head) == {}


def test_an_object_of_another_kind_is_not_the_one_that_is_named() -> None:
    objects = Objects()
    blob = objects.add("blob", b"")
    assert why(objects, objects.commit(blob)) == f"mods: the tree {blob} has another hash"
    head = objects.add("commit", b"parent x\n")
    assert why(objects, head) == f"mods: the commit {head} names no tree"


@pytest.mark.parametrize("content", [b"100644 x", b"100644\0" + b"b" * 20, b"100644 x\0short"])
def test_a_tree_that_is_cut_is_damaged(content: bytes) -> None:
    objects = Objects()
    tree = objects.add("tree", content)
    assert why(objects, objects.commit(tree)) == f"mods: the tree {tree} is damaged"


def test_a_path_is_in_its_tree_once_also_where_an_old_program_wrote_the_mode() -> None:
    objects = Objects()
    twice = objects.tree(("100664", "x", BLOB), ("100644", "x", BLOB))
    head = objects.commit(objects.tree(("040000", "patches", twice)))
    assert why(objects, head) == "mods: 'patches/x' is in its tree twice"
