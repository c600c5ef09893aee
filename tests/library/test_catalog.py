"""Libraries of mods on disk: stacking, lookup, templates, digests."""

from __future__ import annotations

import shutil
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest
from git_host import write
from lowering import lower

from vllm_mods.base.errors import ManifestError, UsageError
from vllm_mods.library import catalog, mod_folder
from vllm_mods.library.catalog import Library
from vllm_mods.library.mod_folder import data_root, load_mod

if TYPE_CHECKING:
    from pathlib import Path


PATCHES = 'patches = ["x.patch"]'


def write_mod(library: Path, name: str, *, more: str = "", variant: str = "") -> Path:
    folder = library / "patches" / name
    folder.mkdir(parents=True)
    (folder / "mod.toml").write_text(
        f'schema = 1\nname = "{name}"\nversion = "1.0.0"\nsummary = "s"\nlicense = "MIT"\n{more}\n'
        f'[[variant]]\nid = "a"\nvllm = ">=0.1"\n{variant or PATCHES}\n'
    )
    (folder / "x.patch").write_bytes(b"--- a/vllm/x.py\n+++ b/vllm/x.py\n@@ -1 +1 @@\n-a\n+b\n")
    return folder


def test_a_mod_is_read_with_all_its_files(tmp_path: Path) -> None:
    folder = write_mod(tmp_path, "mine")
    mod = Library(str(tmp_path)).load("mine")
    assert mod.directory == str(folder)
    assert mod.variants[0].patches[0].data.startswith(b"--- a/vllm/x.py")


def test_the_digest_covers_every_file_the_manifest_names(tmp_path: Path) -> None:
    folder = write_mod(tmp_path, "mine")
    before = load_mod(str(folder)).digest
    (folder / "notes.txt").write_text("not part of the mod")
    (folder / "mod.lock").write_text("{}")
    assert load_mod(str(folder)).digest == before
    listed = "".join(
        f"{sha256((folder / name).read_bytes()).hexdigest()}  {name}\n"
        for name in ("mod.toml", "x.patch")
    )
    assert before == sha256(listed.encode()).hexdigest()  # as `sha256sum` prints them
    (folder / "x.patch").write_bytes(b"other")
    assert load_mod(str(folder)).digest != before


def test_a_mod_that_is_one_of_several_names_begins_with_what_was_typed(tmp_path: Path) -> None:
    write_mod(tmp_path, "zzz-one")
    with pytest.raises(UsageError) as caught:
        Library(tmp_path).load("zzz")
    roots = f"{data_root()}, {tmp_path}"
    assert caught.value.message == f"there is no mod named `zzz` in {roots}"
    assert caught.value.hint == "did you mean `zzz-one`? `vllm-mods list` shows them all"
    for typed in ("", "qqqqqq"):
        with pytest.raises(UsageError) as caught:
            Library(tmp_path).load(typed)
        assert caught.value.hint == "`vllm-mods list` shows them all"


def test_a_name_in_two_libraries_is_an_error_that_names_both(tmp_path: Path) -> None:
    write_mod(tmp_path / "one", "twice")
    write_mod(tmp_path / "two", "twice")
    with pytest.raises(UsageError) as caught:
        Library(str(tmp_path / "one"), str(tmp_path / "two"))
    assert str(tmp_path / "one") in caught.value.message
    assert str(tmp_path / "two") in caught.value.message
    assert caught.value.hint == "rename one of them, and change `name` in its mod.toml"


def test_the_same_library_twice_is_one(tmp_path: Path) -> None:
    write_mod(tmp_path, "mine")
    assert "mine" in Library(str(tmp_path), str(tmp_path)).names()


def test_requirements_come_along_first(tmp_path: Path) -> None:
    write_mod(tmp_path, "top", more='requires = ["base"]')
    write_mod(tmp_path, "base")
    assert [mod.name for mod in Library(str(tmp_path)).select(["top"])] == ["base", "top"]


def test_a_circle_of_requirements_is_reported(tmp_path: Path) -> None:
    write_mod(tmp_path, "a", more='requires = ["b"]')
    write_mod(tmp_path, "b", more='requires = ["a"]')
    with pytest.raises(UsageError) as caught:
        Library(str(tmp_path)).select(["a"])
    assert caught.value.message == "mods require each other: a → b → a"
    assert caught.value.hint == "remove one `requires`"


@pytest.mark.parametrize(
    ("typed", "meant"), [("hybrid-int8-fp4", "hybrid-int4-fp8"), ("hybrid", "hybrid-int4-fp8")]
)
def test_an_unknown_mod_gets_a_suggestion(typed: str, meant: str) -> None:
    with pytest.raises(UsageError) as caught:
        Library().load(typed)
    assert caught.value.hint is not None
    assert f"did you mean `{meant}`?" in caught.value.hint


def test_every_missing_file_is_named(tmp_path: Path) -> None:
    folder = write_mod(
        tmp_path,
        "mine",
        variant='patches = ["no.patch"]\noverlay = [{ source = "no.py", path = "vllm/no.py" }]\n'
        'templates = [{ name = "no", file = "no.jinja" }]',
    )
    with pytest.raises(ManifestError) as caught:
        load_mod(str(folder))
    assert [problem.split(":")[0] for problem in caught.value.problems] == [
        "variant[0].patches[0]",
        "variant[0].overlay[0].source",
        "variant[0].templates[0].name",
    ]


def test_a_template_is_found_in_its_library(tmp_path: Path) -> None:
    write_mod(tmp_path, "mine", variant='templates = [{ name = "chat", file = "c.jinja" }]')
    (tmp_path / "templates" / "chat").mkdir(parents=True)
    (tmp_path / "templates" / "chat" / "template.jinja").write_text("{{ x }}")
    (file,) = Library(str(tmp_path)).load("mine").variants[0].templates
    assert file.data == b"{{ x }}"


def test_the_folder_and_the_name_must_agree(tmp_path: Path) -> None:
    folder = write_mod(tmp_path, "mine")
    folder.rename(folder.parent / "yours")
    with pytest.raises(ManifestError) as caught:
        load_mod(str(folder.parent / "yours"))
    assert caught.value.problems == ("name is 'mine', but its folder is named 'yours'",)
    (folder.parent / "yours/mod.toml").unlink()
    with pytest.raises(UsageError, match=r"/yours has no mod\.toml$"):
        load_mod(str(folder.parent / "yours"))


def test_a_folder_that_is_no_library(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a folder"):
        Library(str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match="has no patches"):
        Library(str(tmp_path))
    one = write_mod(tmp_path, "mine")
    with pytest.raises(UsageError) as caught:
        Library(str(one))
    hint = "this folder is one mod; a library has it as patches/mine/mod.toml"
    assert caught.value.hint == hint


def test_what_a_folder_lacks_to_be_a_library_is_told_exactly(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        Library(tmp_path / "nowhere")
    assert caught.value.hint == "`--library DIR` needs a folder that contains patches/"
    with pytest.raises(UsageError) as caught:
        Library(tmp_path)
    assert caught.value.message == f"the library {tmp_path} has no patches, templates, pairings"
    assert caught.value.hint == "a library has patches/<mod>/mod.toml"
    for part in ("patches", "templates", "pairings"):
        (tmp_path / part / part).mkdir(parents=True)
        Library(tmp_path / part)


def test_what_is_hidden_or_has_no_file_of_its_kind_is_not_listed(tmp_path: Path) -> None:
    write_mod(tmp_path, "mine")
    write_mod(tmp_path, ".vllm-mods.new")
    (tmp_path / "patches/empty").mkdir()
    (tmp_path / "pairings").mkdir()
    for name in ("mine.toml", "mine.lock", "README"):
        (tmp_path / "pairings" / name).touch()
    template(tmp_path, "text")
    (tmp_path / "templates/none").mkdir()
    library, bundled = Library(tmp_path), Library()
    assert library.own_names() == ("mine",)
    assert set(library.pairing_names()) - set(bundled.pairing_names()) == {"mine"}
    assert set(library.template_names()) - set(bundled.template_names()) == {"t"}
    assert bundled.own_names() == ()


def test_files_without_a_manifest_are_not_passed_over(tmp_path: Path) -> None:
    write_mod(tmp_path, "mine")
    (write_mod(tmp_path, "other") / "mod.toml").unlink()
    (tmp_path / "patches/gone/__pycache__").mkdir(parents=True)  # git leaves what it does not have
    library = Library(tmp_path)
    assert library.own_names() == ("mine", "other")
    with pytest.raises(UsageError, match=r"patches/other has no mod\.toml"):
        library.mods("other")


def test_what_lies_in_a_library_that_was_named_is_written_and_what_lies_beside_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_mod(tmp_path / "library", "mine")
    library = Library(tmp_path / "library")
    assert library.is_writable(f"{tmp_path}/library/patches/mine/mod.toml")
    assert not library.is_writable(f"{tmp_path}/library-2/mod.toml")
    assert library.is_writable(f"{data_root()}/patches/x") is catalog.is_checkout()
    write(tmp_path / "library", {"pyproject.toml": ""})
    monkeypatch.setattr(catalog, "data_root", lambda: str(tmp_path / "library"))
    assert Library().is_writable(f"{tmp_path}/library/patches/mine/mod.toml")
    (tmp_path / "library/pyproject.toml").unlink()
    assert not Library().is_writable(f"{tmp_path}/library/patches/mine/mod.toml")


@pytest.mark.parametrize("kind", ["mod", "pairing", "template"])
def test_what_there_is_not_is_named_by_its_kind(kind: str) -> None:
    library = Library()
    ask = {"mod": library.load, "pairing": library.pairing, "template": library.template_folder}
    with pytest.raises(UsageError, match=f"there is no {kind} named `qwen3.5-e` in ") as caught:
        ask[kind]("qwen3.5-e")
    listing = "template list" if kind == "template" else "list"
    assert f"`vllm-mods {listing}` shows them all" in (caught.value.hint or "")


def template(folder: Path, text: str) -> None:
    (folder / "templates/t").mkdir(parents=True, exist_ok=True)
    (folder / "templates/t/template.jinja").write_text(text)


def test_a_template_of_the_mod_comes_before_its_librarys_and_that_before_all_others(
    tmp_path: Path,
) -> None:
    uses = 'templates = [{ name = "t", file = "t.jinja" }]'
    own, others = tmp_path / "own", [tmp_path / "other", tmp_path / "third"]
    mod = write_mod(own, "mine", variant=uses)
    for folder in (own, *others):
        template(folder, folder.name)
    library = Library(*others, own)

    def text() -> bytes:
        return library.load("mine").variants[0].templates[0].data

    assert text() == b"own"
    assert library.load("mine").variants[0].templates[0].root == str(own)
    template(mod, "mods")
    assert text() == b"mods"
    for folder in (mod, own):
        (folder / "templates/t/template.jinja").unlink()
    with pytest.raises(ManifestError) as caught:
        text()
    first, second = (folder / "templates/t/template.jinja" for folder in others)
    assert caught.value.problems == (
        f"variant[0].templates[0].name: two libraries have a template named 't': {first} and {second}",
    )
    (others[0] / "templates/t/template.jinja").unlink()
    assert text() == b"third"


def test_the_default_mods_are_bundled_ones_alone(tmp_path: Path) -> None:
    write_mod(tmp_path, "mine", more="default = true")
    library = Library(tmp_path)
    marked = [name for name in Library().names() if library.load(name).default]
    assert marked
    assert list(library.defaults()) == marked


def test_a_fetched_file_has_the_hash_that_is_stated(tmp_path: Path) -> None:
    digest = sha256(b"x").hexdigest()
    fetch = f'fetch = [{{ url = "https://x.test/x", sha256 = "{digest}", file = "fetched/x" }}]'
    folder = write_mod(tmp_path, "mine", variant=f"{PATCHES}\n{fetch}")
    (folder / "fetched").mkdir()
    (folder / "fetched/x").write_bytes(b"x")
    assert load_mod(str(folder)).variants[0].fetch[0].data == b"x"
    (folder / "fetched/x").write_bytes(b"y")
    other = sha256(b"y").hexdigest()
    with pytest.raises(ManifestError) as caught:
        load_mod(str(folder))
    (problem,) = caught.value.problems
    assert problem == f"variant[0].fetch[0].file: the sha256 of fetched/x is {other}, not {digest}"


def test_what_a_manifest_names_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_mod(tmp_path, "mine")
    size = (folder / "x.patch").stat().st_size
    lower(monkeypatch, "MOD_BYTES", size)
    assert load_mod(str(folder)).name == "mine"
    lower(monkeypatch, "MOD_BYTES", size - 1)
    with pytest.raises(ManifestError, match="the limit is"):
        load_mod(str(folder))


def test_an_installation_without_its_mods_is_incomplete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.path.isdir", lambda _: False)
    with pytest.raises(UsageError, match="the bundled mods are missing") as caught:
        data_root()
    assert caught.value.hint == "the installation is incomplete; install vllm-mods again"


ELF = b"\x7fELF\x02\x01\x01".ljust(18, b"\0") + b"\x3e\0"  # for x86_64


@pytest.mark.parametrize(
    ("data", "platform", "problem"),
    [
        (ELF, "linux/amd64", None),
        (ELF + b"x", "linux/amd64", "variant[0].binary[0].source: the sha256 of x.so is "),
        (ELF, "linux/arm64", "variant[0].binary[0].platform: x.so is machine code for linux/amd64"),
        (b"no code", "linux/amd64", "x.so is unknown machine code"),
    ],
)
def test_prebuilt_code_is_the_one_that_is_stated(
    tmp_path: Path, data: bytes, platform: str, problem: str | None
) -> None:
    digest = sha256(b"no code" if data == b"no code" else ELF).hexdigest()
    rows = f'source = "x.so", path = "vllm/x.so", sha256 = "{digest}", platform = "{platform}"'
    folder = write_mod(tmp_path, "mine", variant=f"binary = [{{ {rows} }}]")
    (folder / "x.so").write_bytes(data)
    if problem is None:
        assert load_mod(str(folder)).variants[0].binary[0].data == data
    else:
        with pytest.raises(ManifestError) as caught:
            load_mod(str(folder))
        assert problem in " ".join(caught.value.problems)


def test_a_file_for_images_that_is_not_there(tmp_path: Path) -> None:
    folder = write_mod(tmp_path, "mine")
    with (folder / "mod.toml").open("a") as file:
        file.write('[[files]]\nsource = "tool.sh"\npath = "/opt/tool.sh"\n')
    with pytest.raises(ManifestError) as caught:
        load_mod(str(folder))
    assert caught.value.problems == (f"files[0].source: no such file: {folder}/tool.sh",)


def test_all_that_lies_in_a_mods_folder(tmp_path: Path) -> None:
    folder = write_mod(tmp_path, "mine")
    (folder / "deep").mkdir()
    (folder / "deep/notes.txt").write_text("n")
    library = Library(tmp_path)
    files = library.files(library.load("mine"))
    assert files.keys() == {"mod.toml", "x.patch", "deep/notes.txt"}
    assert files["deep/notes.txt"] == b"n"
    (folder / "linked").symlink_to("deep")
    mine = library.load("mine")
    with pytest.raises(ManifestError, match="is a symbolic link"):
        library.files(mine)
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(ManifestError) as caught:
        library.files(mine)
    assert caught.value.problems == ("cannot be read: No such file or directory",)


def test_a_file_of_a_mod_that_is_a_link_is_named_with_its_key(tmp_path: Path) -> None:
    folder = write_mod(tmp_path, "mine")
    (folder / "x.patch").unlink()
    (folder / "x.patch").symlink_to("mod.toml")
    with pytest.raises(ManifestError) as caught:
        load_mod(str(folder))
    (problem,) = caught.value.problems
    assert problem.startswith(f"variant[0].patches[0]: {folder}/x.patch is a symbolic link: ")


def test_a_mod_in_memory_is_read_as_one_in_a_folder(tmp_path: Path) -> None:
    folder = write_mod(tmp_path, "mine")
    files = {name: (folder / name).read_bytes() for name in ("mod.toml", "x.patch")}
    in_memory = mod_folder.load_files("mine", files)
    assert in_memory == load_mod(str(folder))._replace(directory="/mine")


def test_a_pairing_is_suggested_where_a_mod_is_asked_for() -> None:
    with pytest.raises(UsageError) as caught:
        Library().load("qwen3.5-122b")
    assert "did you mean `qwen3.5-122b-hybrid`?" in (caught.value.hint or "")


PAIRING = """schema = 1
name = "pair"
summary = "s"
model = "org/m"
base = "base:1"
mods = []
templates = ["t"]
command = "vllm serve org/m --chat-template t.jinja"
"""


def test_the_mod_that_brings_a_template_is_looked_for_beside_the_pairing_first(
    tmp_path: Path,
) -> None:
    uses = 'templates = [{ name = "t", file = "t.jinja" }]'
    write_mod(tmp_path, "t", variant=uses)
    write_mod(tmp_path, "a", variant=uses)
    template(tmp_path, "text")
    (tmp_path / "pairings").mkdir()
    (tmp_path / "pairings/pair.toml").write_text(PAIRING)
    library = Library(tmp_path)
    assert library.mods_of(library.pairing("pair")) == ("t",)
    shutil.rmtree(tmp_path / "patches/t")
    library = Library(tmp_path)
    assert library.mods_of(library.pairing("pair")) == ("a",)
    shutil.rmtree(tmp_path / "patches/a")
    library = Library(tmp_path)
    with pytest.raises(UsageError) as caught:
        library.mods_of(library.pairing("pair"))
    why = "pairing `pair` names the template `t`, which no mod has"
    assert (caught.value.message, caught.value.hint) == (why, "`vllm-mods list` lists the mods")


def test_templates_are_listed_and_found_by_name(tmp_path: Path) -> None:
    template(tmp_path, "text")
    library = Library(tmp_path)
    assert set(library.template_names()) == {*Library().template_names(), "t"}
    assert library.template_folder("t") == str(tmp_path / "templates/t")
