"""What the functions behind the door choose where nobody said: releases, files, locks, conversations."""

from __future__ import annotations

import io
import os
import zipfile
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from lone_project import project
from lowering import lower
from memory_tree import MemoryTree
from mod_making import diff_of, write_mod
from small_site import FILES, build

import vllm_mods as vm
from vllm_mods.api import (
    access as access_module,
    export,
    import_mod,
    libraries,
    on_base,
    run,
    serve_check,
)
from vllm_mods.api.access import releases_in
from vllm_mods.api.template_check import render_template
from vllm_mods.base import limits
from vllm_mods.formats import pairing_lock
from vllm_mods.formats.pairing_lock import (
    LockedBase,
    LockedImage,
    LockedPlatform,
    LockedVllm,
    PairingLock,
)
from vllm_mods.library.catalog import Library
from vllm_mods.running.service import StartOptions
from vllm_mods.serving.template import Serving
from vllm_mods.templates.conversation import Conversation
from vllm_mods.templates.source import open_template

if TYPE_CHECKING:
    from pathlib import Path

PATCH = diff_of("vllm/a.py", "A = 1\n", "A = 2\n")
LOCK = PairingLock(
    pairing="pair",
    pairing_digest="0" * 64,
    model="org/m",
    revision=None,
    base=LockedBase("base:1", f"sha256:{'a' * 64}", (), "linux/amd64"),
    vllm=LockedVllm("0.19.1", "site", None),
    mods=(),
    templates=(),
    wheels=(),
    command="vllm serve org/m",
    image=LockedImage({}, ()),
)
ARM = LockedPlatform(
    LOCK.base._replace(platform="linux/arm64/v8"), LOCK.vllm, (), (), (), LOCK.command, LOCK.image
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the current folder: a library with a mod, a pairing and chat templates."""
    folder = project(tmp_path, monkeypatch)
    more = '[serve]\nargs = ["--x", "a b"]\n[env]\nA = "1 2"\n'
    write_mod(folder / "own", "fast", PATCH, more=more)
    (folder / "own/pairings").mkdir()
    (folder / "own/pairings/pair.toml").write_text(
        'schema = 1\nname = "pair"\nsummary = "s"\nmodel = "org/m"\nbase = "base:1"\n'
        'mods = ["fast", "gone"]\ncommand = "vllm serve org/m"\n'
    )
    return folder


# --- releases -----------------------------------------------------------------------------------


def shelved(*files: tuple[str, str, str]) -> vm.Access:
    """Return an access to releases, each a file: version, kind, build tag."""
    named = [
        SimpleNamespace(
            version=version,
            yanked=None,
            kind=kind,
            build=(int(tag), "") if tag else (),
            filename=f"vllm-{version}{'-' + tag if tag else ''}-cp38-abi3-x.whl",
            platforms=["manylinux1_x86_64"],
        )
        for version, kind, tag in files
    ]
    access = vm.Access(offline=True)
    access.__dict__["releases"] = SimpleNamespace(files=lambda: named)
    return access


def test_a_range_has_every_build_and_plainly_each_final_release_once() -> None:
    access = shelved(
        ("0.20.0rc1", "sdist", ""),
        ("0.19.1", "wheel", ""),
        ("0.19.1", "wheel", "1"),
        ("0.19.0", "sdist", ""),
    )
    assert releases_in(access, ">=0.19.0rc1") == (
        "pypi:0.19.0",
        "pypi:vllm-0.19.1-cp38-abi3-x.whl",
        "pypi:0.19.1",
        "pypi:0.20.0rc1",
    )
    assert releases_in(access, ">=0.19.0rc1", plain=True) == ("pypi:0.19.0", "pypi:0.19.1")
    assert releases_in(access, ">=0.20.0rc1", plain=True) == ("pypi:0.20.0rc1",)


def test_what_an_access_opened_is_closed_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Held(MemoryTree):
        closed = 0

        def close(self) -> None:
            self.closed += 1

    trees = Held({}), Held({})
    opened = iter(trees)
    monkeypatch.setattr(access_module, "open_tree", lambda *_, **__: next(opened))
    with vm.Access() as access:
        assert [access.open("site"), access.open("site")] == [*trees]
        assert [tree.closed for tree in trees] == [0, 0]
    assert [tree.closed for tree in trees] == [1, 1]
    access.close()
    assert [tree.closed for tree in trees] == [1, 1]


# --- import -------------------------------------------------------------------------------------


def test_a_folder_and_a_zip_are_mods_and_anything_else_is_a_recipe(tmp_path: Path) -> None:
    full, empty = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(full, "w") as archive:
        archive.writestr("run.sh", "true")
    zipfile.ZipFile(empty, "w").close()
    for name, data in {
        "full": full.getvalue(),
        "empty": empty.getvalue(),
        "text": b"PKx\n",
        "short": b"PK",
    }.items():
        (tmp_path / name).write_bytes(data)
    kinds = {
        name: import_mod.is_mod(str(tmp_path / name)) for name in ("full", "empty", "text", "short")
    }
    assert kinds == {"full": True, "empty": True, "text": False, "short": False}
    assert import_mod.is_mod(str(tmp_path))
    assert not import_mod.is_mod(str(tmp_path / "none"))


def test_the_lines_of_a_recipe_end_as_they_do_here() -> None:
    assert import_mod.recipe_text(b"\xef\xbb\xbfa: 1\r\nb: 2\rc: 3\n", "x") == "a: 1\nb: 2\nc: 3\n"


# --- export -------------------------------------------------------------------------------------


def test_an_exported_mod_says_what_a_recipe_has_to_say_for_it(place: Path) -> None:
    files, notes = export.export_mod(Library("own"), "fast", "out")
    below = [path for path in (place / "out").rglob("*") if path.is_file()]
    assert files == sorted(str(path.relative_to(place / "out")) for path in below)
    assert notes == [
        "fast needs A='1 2': add it to `env` in the recipe",
        "fast needs --x 'a b': add it to the recipe's command",
    ]
    assert os.access("out/run.sh", os.X_OK)


@pytest.mark.usefixtures("place")
def test_an_exported_recipe_says_which_folders_it_needs() -> None:
    text, notes = export.export_recipe(Library("own"), "pair")
    assert "--x" in text
    taken, folders = notes[:-2], notes[-2:]
    assert taken
    assert all(note.startswith("fast ") for note in taken)
    assert folders == [
        f"the recipe names the folder mods/{mod}: write that folder with `vllm-mods export {mod} "
        f"--output mods/{mod}`, or build the mods into the image"
        for mod in ("fast", "gone")
    ]


def test_a_command_is_held_against_a_mod_whose_template_it_names(place: Path) -> None:
    write_mod(place / "own", "chat", PATCH, more="")
    (place / "own/templates/chat").mkdir(parents=True)
    (place / "own/templates/chat/template.jinja").write_text("x")
    manifest = place / "own/patches/chat/mod.toml"
    manifest.write_text(
        f'{manifest.read_text()}templates = [{{ name = "chat", file = "chat.jinja" }}]\n'
    )
    for argument, names in (
        ("--chat-template=/w/chat.jinja", ("chat",)),
        ("fast.jinja", ()),
        ("/w/other.jinja", ()),
    ):
        asked = serve_check.ServeArguments(Serving(("vllm", "serve", "m", argument)))
        held = serve_check._with_template(asked, Library("own"))
        assert tuple(mod.name for mod in held.mods) == names
        assert (held.serving.library is not None) is bool(names)


# --- locks --------------------------------------------------------------------------------------


def test_a_lock_lies_beside_its_pairing_or_where_it_is_named_or_here(place: Path) -> None:
    library = Library("own")
    beside = f"{place}/own/pairings/pair.lock"
    assert on_base.lock_path(library, "pair", None) == beside
    assert on_base.lock_path(library, "pair", "x/y.lock") == f"{place}/x/y.lock"
    (place / "own/pairings/pair.lock").write_bytes(pairing_lock.dump(LOCK))
    locked, files = on_base.find_lock(library, "pair", None)
    assert (locked.path, locked.lock, files) == (beside, LOCK, (beside,))
    named, files = on_base.find_lock(library, "pair", "own/pairings/pair.lock")
    assert (named.path, named.data, files) == (beside, locked.data, ())


def test_the_lock_of_a_pairing_that_came_with_the_tool_lies_here_unless_one_came_with_it(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Library("own")
    monkeypatch.setattr(library, "is_writable", lambda _path: False)
    assert on_base.lock_path(library, "pair", None) == f"{place}/pair.lock"
    (place / "own/pairings/pair.lock").write_bytes(pairing_lock.dump(LOCK))
    assert on_base.lock_path(library, "pair", None) == f"{place}/own/pairings/pair.lock"


def test_a_lock_has_a_part_for_each_platform_or_for_the_one_that_is_named() -> None:
    both = LOCK._replace(platforms=(ARM,))
    parts = on_base.parts_of(both, "registry:base:1", None)
    assert [part.base.platform for part in parts] == ["linux/amd64", "linux/arm64/v8"]
    (arm,) = on_base.parts_of(both, "registry:base:1", "linux/arm64")
    assert arm.base.platform == "linux/arm64/v8"
    (only,) = on_base.parts_of(LOCK, "docker:base:1", None)
    assert only == LOCK


# --- models -------------------------------------------------------------------------------------


def test_a_pairing_that_names_a_folder_reads_it_or_the_one_that_was_chosen(place: Path) -> None:
    for name in ("model", "chosen"):
        (place / name).mkdir()
        (place / name / "config.json").write_text('{"model_type": "llama"}')
    (place / "own/pairings/local.toml").write_text(
        f'schema = 1\nname = "local"\nsummary = "s"\nmodel = "{place}/model"\nbase = "base:1"\n'
        f'command = "vllm serve {place}/model"\n'
    )
    lock = LOCK._replace(pairing="local", model=f"{place}/model")
    (place / "own/pairings/local.lock").write_bytes(pairing_lock.dump(lock))
    notes: list[str] = []
    need = f"the memory that {place}/model needs with this command"
    unknown = f"{need} is unknown and was not checked"

    def folder(chosen: str | None = None, *, elsewhere: bool = False) -> str:
        options = StartOptions(model_folder=chosen)
        notes.clear()
        served = run.plan_service(
            Library("own"), "local", options, note=notes.append, elsewhere=elsewhere
        )
        (source,) = (one for one, target, _ in served.service.mounts if target == lock.model)
        return source

    assert (folder(), notes) == (
        f"{place}/model",
        [f"{place}/model of this machine is mounted into the container as {place}/model", unknown],
    )
    assert (folder("chosen"), notes) == (f"{place}/chosen", [unknown])
    assert (folder("none", elsewhere=True), notes) == (
        f"{place}/none",
        [f"the model folder {place}/none is not on this machine, so it was not checked"],
    )
    with pytest.raises(vm.UsageError, match="none: no such folder"):
        folder("none")


# --- logs ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("place")
def test_of_a_log_that_is_too_long_the_beginning_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notes: list[str] = []
    access = vm.Access(note=notes.append)
    lower(monkeypatch, "LOG", 10)
    for log, expected in (
        (b"x" * 10, []),
        (b"x" * 11, [f"it is too long: only the first {limits.LOG} were searched"]),
    ):
        notes.clear()
        seen = run.of_log(Library("own"), ("fast",), log, "it", access)
        assert ([one.name for one in seen.mods], notes) == (["fast"], expected)


# --- libraries ----------------------------------------------------------------------------------


def test_what_cannot_be_read_of_a_library_is_told_and_the_rest_read(place: Path) -> None:
    write_mod(place / "own", "torn", b"--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n A\n")
    write_mod(place / "own", "broken", b"")
    (place / "own/patches/broken/mod.toml").write_text("schema = 1\n")
    (place / "own/pairings/bad.toml").write_text("schema = 1\n")
    contents = libraries.list_library(Library("own"))
    assert {"fast", "torn"} <= contents.mods.keys()
    assert "broken" not in contents.mods
    assert "pair" in contents.pairings
    where = [os.path.relpath(one.where, place) for one in contents.faults]
    assert where == ["own/patches/broken/mod.toml", "own/patches/torn", "own/pairings/bad.toml"]
    assert contents.faults[1].problems[0].startswith("x.patch:")


@pytest.mark.slow
def test_a_mod_that_no_library_has_is_taken_from_the_tree_that_it_went_into(place: Path) -> None:
    build(place / "site", FILES)
    write_mod(place / "theirs", "away", PATCH)
    vm.apply(Library("theirs").mods("away"), "site")
    chosen = libraries.choose(Library("own"), ("away",), None, target="site")
    assert [(mod.name, mod.variants[0].patches[0].data) for mod in chosen.mods] == [("away", PATCH)]
    with pytest.raises(vm.UsageError, match="there is no mod named `away`"):
        libraries.choose(Library("own"), ("away",), None)
    with pytest.raises(vm.UsageError, match="there is no mod named `away`"):
        libraries.choose(Library("own"), ("away",), None, target="own")


# --- templates ----------------------------------------------------------------------------------

TURNS = "{% for m in messages %}{{ m.role }} {% endfor %}"
BEGIN = "{{ 'go ' if add_generation_prompt }}{{ one }}"


@pytest.mark.slow
def test_a_prompt_is_made_with_what_is_added_to_a_conversation(place: Path) -> None:
    (place / "t.jinja").write_text(TURNS + BEGIN)
    template = open_template(Library("own"), "t.jinja")
    conversation = Conversation(
        "x", ({"role": "user", "content": ""},), kwargs={"one": 1, "two": 2}
    )
    assert render_template(template, conversation, {"one": 3, "three": 3}) == (
        "user go 3",
        ["three", "two"],
    )
    answered = conversation._replace(add_generation_prompt=False)
    assert render_template(template, answered, {}) == ("user 1", ["two"])
    (place / "bad.jinja").write_text("\n{{ raise_exception('no') }}")
    with pytest.raises(vm.NotRendered) as caught:
        render_template(open_template(Library("own"), "bad.jinja"), conversation, {})
    assert str(caught.value).startswith("bad.jinja:2: ")
