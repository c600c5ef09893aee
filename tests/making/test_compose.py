"""A mod composed of changes: what each of them becomes, what its manifest says, and what no mod can have."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from typing import Any

import pytest
from lowering import lower
from memory_tree import MemoryTree

from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import Refused, TreeError, UsageError
from vllm_mods.base.model import FileChange
from vllm_mods.making.compose import ModEffect, Wanted, compose, difference, unknown
from vllm_mods.making.fetching import DownloadedFile

OLD = "".join(f"A{n} = {n}\n" for n in range(9)).encode()
NEW = OLD.replace(b"A4 = 4", b"A4 = 5")
FILES = {"vllm/__init__.py": b"", "vllm/a.py": OLD, "vllm/k.bin": b"\0old", "beside/x.py": OLD}
EDIT = FileChange("vllm/a.py", OLD, NEW)
CODE = b"\x7fELF\x02\x01".ljust(18, b"\0") + b"\x3e\0"


@dataclass
class Beside(MemoryTree):
    """A tree that knows whose its files are."""

    owners: dict[str, tuple[str, str]] = field(default_factory=dict)

    def owner(self, path: str) -> tuple[str, str] | None:
        return self.owners.get(path.split("/", maxsplit=1)[0])


def tree(version: str | None = "0.19.1", **owners: tuple[str, str]) -> Beside:
    return Beside(dict(FILES), version=version, owners=owners)


def manifest(
    *changes: FileChange, on: Beside | None = None, wanted: Wanted | None = None, **more: Any
) -> dict[str, Any]:
    """Return what the manifest of a mod of changes says."""
    composed = compose(wanted or Wanted("mine"), ModEffect(changes, **more), on or tree())
    return tomllib.loads(composed.files["mod.toml"].decode())


def test_of_more_than_one_patch_can_hold_the_tree_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    lower(monkeypatch, "HUNKS", 0)
    with pytest.raises(Refused) as caught:
        compose(Wanted("mine"), ModEffect((EDIT,)), tree())
    assert caught.value.message == (
        "the changes to memory cannot be one patch: it has more than 0 hunks"
    )


def test_a_mod_says_what_is_known_and_leaves_the_rest_to_a_person() -> None:
    composed = compose(Wanted("mine"), ModEffect((EDIT,)), tree())
    assert composed.files["mod.toml"].decode() == (
        'schema = 1\nname = "mine"\nversion = "0.1.0"\nsummary = "Changes to vLLM 0.19.1"\n'
        "# The licence was not given: state the terms for passing it on.\n"
        'license = "LicenseRef-unstated"\n\n'
        "# Made on vLLM 0.19.1.\n[[variant]]\n"
        'id = "0.19"\nvllm = "==0.19.1"\npatches = ["0.19/mine.patch"]\n'
    )
    assert [line.partition(":")[0] for line in unknown(Wanted("mine"), "0.19.1")] == [
        *("summary", "license", "vllm", "evidence")
    ]
    assert sorted(composed.files) == ["0.19/mine.patch", "mod.toml"]
    assert composed.planned.verdict == "applies"


def test_what_somebody_said_is_not_asked_for() -> None:
    wanted = Wanted("mine", "Faster", "MIT", ">=0.19", "own")
    stated = manifest(EDIT, wanted=wanted)
    assert (stated["summary"], stated["license"]) == ("Faster", "MIT")
    assert stated["variant"] == [{"id": "own", "vllm": ">=0.19", "patches": ["own/mine.patch"]}]
    assert [line.partition(":")[0] for line in unknown(wanted, "0.19.1")] == ["evidence"]
    assert next(unknown(wanted._replace(vllm=None), "0.19.1")).startswith(
        "vllm: the versions that the mod works on; so far only 0.19.1 "
    )
    assert next(unknown(wanted._replace(vllm=None), None)).startswith(
        "vllm: the versions that the mod works on (`"
    )


@pytest.mark.parametrize(
    ("version", "name"), [("0.19.1+cu129", "0.19"), ("1", "1"), ("0.20rc1+x", "0.20rc1")]
)
def test_a_variant_is_named_by_the_first_two_numbers(version: str, name: str) -> None:
    assert manifest(EDIT, on=tree(version))["variant"][0]["id"] == name


def test_text_becomes_a_patch_and_everything_else_a_file() -> None:
    stated = manifest(
        EDIT,
        FileChange("vllm/new.py", None, b"N = 1\n"),
        FileChange("vllm/k.bin", b"\0old", b"\0new"),
        FileChange("vllm/_k.abi3.so.1", None, CODE),
        FileChange("vllm/code.bin", None, CODE),
        FileChange("vllm/other.so", None, b"\x7fELF\x01\x01"),
    )
    assert stated["variant"][0] == {
        "id": "0.19",
        "vllm": "==0.19.1",
        "patches": ["0.19/mine.patch"],
        "overlay": [
            {"source": "overlay/vllm/code.bin", "path": "vllm/code.bin"},
            {"source": "overlay/vllm/k.bin", "path": "vllm/k.bin", "replaces": [sha256(b"\0old")]},
            {"source": "overlay/vllm/new.py", "path": "vllm/new.py"},
            {"source": "overlay/vllm/other.so", "path": "vllm/other.so"},
        ],
        "binary": [
            {
                "source": "overlay/vllm/_k.abi3.so.1",
                "path": "vllm/_k.abi3.so.1",
                "sha256": sha256(CODE),
                "platform": "linux/amd64",
            }
        ],
    }


def test_text_that_is_removed_is_a_patch_and_bytes_cannot_be() -> None:
    assert manifest(FileChange("vllm/a.py", OLD, None))["variant"][0]["patches"]
    with pytest.raises(Refused, match=r"vllm/k\.bin is a binary file") as caught:
        manifest(FileChange("vllm/k.bin", b"\0old", None))
    assert caught.value.hint == "keep the file, or disable it in another way"


def test_what_else_an_effect_has_is_stated() -> None:
    stated = manifest(
        EDIT,
        templates={"Chat One.jinja": b"{{ messages }}", "chat_one.j2": b"{{ x }}", "--.j2": b""},
        python=("einops==1",),
        env=(("VLLM_A", "1"),),
        fetched=(DownloadedFile("https://h.example/x", b"data", "fetched/x"),),
    )
    (own,) = stated["variant"]
    assert stated["env"] == {"VLLM_A": "1"}
    assert own["python"] == ["einops==1"]
    assert own["templates"] == [
        {"name": "chat-one", "file": "Chat One.jinja"},
        {"name": "chat_one", "file": "chat_one.j2"},
        {"name": "template", "file": "--.j2"},
    ]
    assert own["fetch"] == [
        {"url": "https://h.example/x", "sha256": sha256(b"data"), "file": "fetched/x"}
    ]


def test_templates_of_one_name_are_numbered() -> None:
    files = {"x.jinja": b"1", "x.j2": b"2", "X.jinja2": b"3"}
    stated = manifest(templates=files)
    assert [one["name"] for one in stated["variant"][0]["templates"]] == ["x", "x-1", "x-2"]


def test_a_package_beside_vllm_is_named_with_its_version() -> None:
    beside = FileChange("beside/x.py", OLD, NEW)
    stated = manifest(EDIT, beside, on=tree(beside=("Be_side", "2.0"), vllm=("vllm", "0.19.1")))
    assert stated["outside"] == ["beside/x.py"]
    assert (stated["variant"][0]["package"], stated["variant"][0]["version"]) == (
        "be-side",
        "==2.0",
    )
    assert "package" not in manifest(beside)["variant"][0]


def test_of_two_packages_none_is_stated() -> None:
    new = FileChange("more/y.py", None, b"Y = 1\n")
    on = tree(beside=("b", "2.0"), more=("a", "1.0"))
    composed = compose(Wanted("mine"), ModEffect((FileChange("beside/x.py", OLD, NEW), new)), on)
    text = composed.files["mod.toml"].decode()
    assert "# The variant changes a ==1.0 and b ==2.0, but can state only one `package`.\n" in text
    assert "package" not in tomllib.loads(text)["variant"][0]


@pytest.mark.parametrize(
    ("wanted", "changes", "version", "error", "message"),
    [
        (
            Wanted("Not A Name"),
            (EDIT,),
            "0.19.1",
            UsageError,
            "'Not A Name' is not a valid name for a mod",
        ),
        (
            Wanted("mine"),
            (),
            "0.19.1",
            Refused,
            "nothing differs from memory, so there are no changes to make a mod of",
        ),
        (Wanted("mine"), (EDIT,), None, UsageError, "memory does not state its version"),
        (
            Wanted("mine"),
            (FileChange("vllm/a\n.py", OLD, NEW),),
            "0.19.1",
            Refused,
            "cannot be one patch: the path .* is not a plain relative path",
        ),
        (
            Wanted("mine"),
            (FileChange("vllm/\udcff.py", None, NEW),),
            "0.19.1",
            Refused,
            "a path is not UTF-8, so mod.toml cannot name it:",
        ),
        (
            Wanted("mine"),
            (FileChange("vllm/a.py", OLD.replace(b"A0", b"B0"), NEW),),
            "0.19.1",
            Refused,
            "the mod would have the verdict `conflict` on the tree that it was made from; nothing was written\n  vllm/a.py",
        ),
    ],
)
def test_what_becomes_no_mod_is_refused(
    wanted: Wanted,
    changes: tuple[FileChange, ...],
    version: str | None,
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        compose(wanted, ModEffect(changes), tree(version))


def test_every_reason_why_a_mod_would_not_go_in_is_said() -> None:
    texts = {"vllm/a.py": OLD, "beside/x.py": OLD}
    changes = (FileChange(path, text.replace(b"A0", b"B0"), NEW) for path, text in texts.items())
    with pytest.raises(Refused) as caught:
        manifest(*changes)
    assert [line.partition(",")[0] for line in caught.value.message.splitlines()[1:]] == [
        *("  beside/x.py", "  vllm/a.py")
    ]
    assert caught.value.hint == "fix this, then make the mod again"


def test_a_range_stands_for_a_version_that_nothing_tells() -> None:
    wanted = Wanted("mine", vllm=">=0.19")
    composed = compose(wanted, ModEffect((EDIT,)), tree(None))
    text = composed.files["mod.toml"].decode()
    assert '# Made on vLLM memory.\n[[variant]]\nid = "any"\nvllm = ">=0.19"\n' in text
    assert 'summary = "Changes to vLLM memory"\n' in text


# --- of two trees


def test_two_trees_differ_in_their_files_and_not_in_what_follows_from_them() -> None:
    left_out = {
        "vllm/__pycache__/a.pyc": b"1",
        "vllm/b.pyc": b"1",
        ".git/config": b"1",
        "vllm/.vllm-mods/x": b"1",
        "x.dist-info/RECORD": b"1",
        "x.egg-info/PKG-INFO": b"1",
        "vllm/_version.py": b"1",
        "vllm/commit_id.py": b"1",
    }
    old = Whole({**FILES, **left_out})
    new = Whole({**dict.fromkeys(left_out, b"2"), **FILES, "vllm/a.py": NEW, "vllm/z.py": b"Z\n"})
    del new.files["beside/x.py"]
    effect = difference(old, new)
    assert effect.changes == (
        FileChange("beside/x.py", OLD, None),
        EDIT,
        FileChange("vllm/z.py", None, b"Z\n"),
    )
    assert effect.notes == (
        "left out vllm/_version.py: the build of each release generates this file",
        "left out vllm/commit_id.py: the build of each release generates this file",
        "left out x.dist-info/RECORD: this file describes the distribution, and `apply` updates such files",
        "left out x.egg-info/PKG-INFO: this file describes the distribution, and `apply` updates such files",
    )


class Whole(MemoryTree):
    """A tree that lists all that it has."""

    def paths(self, under: str = "vllm") -> list[str]:
        return [path for path in self.files if path.startswith(f"{under}/" if under else "")]


class OfVllm(MemoryTree):
    """A tree that lists what is below vllm alone."""

    def paths(self, under: str = "vllm") -> list[str]:
        if not under:
            raise TreeError("too much")
        return [path for path in self.files if path.startswith(f"{under}/")]


def test_a_tree_that_cannot_be_listed_whole_is_compared_below_vllm() -> None:
    trees = (OfVllm({**FILES, "vllm/a.py": data, "beside/x.py": data}) for data in (OLD, NEW))
    assert difference(*trees).changes == (EDIT,)
