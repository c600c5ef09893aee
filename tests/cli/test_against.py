"""``matrix --against``: what a change of vLLM does to mods, in repositories made here and between trees."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from command_line import FILES, LOADER, OTHER, write_tree
from histories import git, grow
from mod_making import diff_of, write_mod

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    Call = Callable[..., Any]

PARTS = "def part(name):\n    return name\n\n\ndef whole(names):\n    return [part(one) for one in names]\n"
BASE: dict[str, str | None] = {
    **{path: data.decode() for path, data in FILES.items()},
    "vllm/gone.py": PARTS,
    "vllm/named.py": f"NAMED = 1\n\n\n{PARTS}",
    "vllm/parts.py": PARTS,
    "vllm/long.py": "".join(f"a{n} = {n}\n" for n in range(20)),
}
# the loader reads from a root, and its saver stands a line further down
LOADED = "# How weights are read.\n" + LOADER.replace('"weights", name', "self.root, name", 1)
HEAD: dict[str, str | None] = {
    "vllm/loader.py": LOADED,
    "vllm/other.py": OTHER.replace("LIMIT = 1", "LIMIT = 5"),
    "vllm/gone.py": None,
    "vllm/named.py": None,
    "vllm/names.py": BASE["vllm/named.py"],
    "vllm/parts.py": PARTS.replace("part(", "piece("),
    "vllm/b.py": "B = 2\n",
    "vllm/long.py": "# Otherwise.\n" + "".join(f"b{n} = {n}\n" for n in range(20)),
}


def changed(path: str, old: str, new: str, text: str | None = None) -> bytes:
    before = text or BASE[path] or ""
    assert old in before
    return diff_of(path, before, before.replace(old, new, 1))


PATCHES = {
    "broken": changed("vllm/loader.py", '"weights"', '"fast"'),
    "shifted": changed("vllm/loader.py", "def save(self, name):", "def save(self, name, /):"),
    "untouched": changed("vllm/a.py", "A = 1", "A = 2"),
    "mended": changed("vllm/other.py", "LIMIT = 5", "LIMIT = 6", HEAD["vllm/other.py"]),
    "carried": changed("vllm/b.py", "B = 1", "B = 2"),
    "renamed": changed("vllm/named.py", "return name", "return name.strip()"),
    "deleted": changed("vllm/gone.py", "return name", "return name.strip()"),
    "unfit": changed("vllm/a.py", "A = 1", "from vllm.parts import part\n\nA = part(1)"),
    "inside": changed("vllm/long.py", "a15 = 15", "a15 = 16"),
    "mended-inside": changed("vllm/long.py", "b15 = 15", "b15 = 16", HEAD["vllm/long.py"]),
    "names-inside": changed("vllm/a.py", "A = 1", "from vllm.long import a9\n\nA = a9"),
    "stale": changed("vllm/a.py", "A = 7", "A = 8", "A = 7\n"),
}


@pytest.fixture(scope="module")
def cloned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a clone of two releases: each mod of ``PATCHES`` is something else between them."""
    folder = tmp_path_factory.mktemp("against") / "clone"
    folder.mkdir()
    grow(folder, ("Release", BASE), ("[Loader] Names from a root (#4711)", HEAD))
    git(folder, "tag", "v0.20.0", "main~1")
    git(folder, "tag", "v0.20.1", "main")
    return folder


@pytest.fixture
def mods(tmp_path: Path) -> Path:
    folder = tmp_path / "mods"
    for name, patch in PATCHES.items():
        write_mod(folder, name, patch)
    ends = 'vllm = "<0.20"\nuntil = "0.20 loads otherwise"'
    write_mod(folder, "unwanted", PATCHES["broken"], more=ends, vllm="<0.20")
    return folder


@pytest.fixture
def against(
    call: Call, cloned: Path, mods: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Call:
    monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("VLLM_MODS_LIBRARY", str(mods))
    monkeypatch.chdir(cloned)

    def do(span: object, *arguments: object) -> Any:
        return call("matrix", "--against", span, "--jobs", 1, *arguments)

    return do


def affected(answer: Any) -> Mapping[str, Any]:
    return {one["after"]["mod"]: one for one in answer.json["affected"]}


@pytest.mark.slow
def test_what_got_worse_and_better_and_nothing_else(against: Call) -> None:
    answer = against("v0.20.0..main", "--json")
    assert (answer.code, answer.err) == (1, "")
    effects = {name: one["effect"] for name, one in affected(answer).items()}
    assert effects == {
        **dict.fromkeys(
            ("broken", "deleted", "inside", "names-inside", "renamed", "unfit"), "worse"
        ),
        **dict.fromkeys(("carried", "mended", "mended-inside"), "better"),
        "stale": "needs-port",
    }
    rest = {key: answer.json[key] for key in ("schema", "ok", "base", "head", "same", "unwanted")}
    assert rest == {
        "schema": 1,
        "ok": False,
        "base": "git:.@v0.20.0",
        "head": "git:.@main",
        "same": ["shifted", "untouched"],
        "unwanted": ["unwanted"],
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mod", "expected"),
    [
        (
            "broken",
            ("hunk 1 of x.patch", "vllm/loader.py", 7, '"weights", name', "self.root, name"),
        ),
        ("mended", ("hunk 1 of x.patch", "vllm/other.py", 1, "LIMIT = 1", "LIMIT = 5")),
        ("carried", ("hunk 1 of x.patch", "vllm/b.py", 1, "B = 1", "B = 2")),
        ("renamed", ("hunk 1 of x.patch", "vllm/names.py", 2, "", "")),
        ("deleted", ("hunk 1 of x.patch", "vllm/gone.py", 1, "def part", "")),
        ("unfit", ("", "vllm/parts.py", 1, "def part(name):", "def piece(name):")),
        ("inside", ("hunk 1 of x.patch", "vllm/long.py", 13, "a12 = 12\na13", "b11 = 11\nb12")),
        (
            "mended-inside",
            ("hunk 1 of x.patch", "vllm/long.py", 14, "a13 = 13\na14", "b12 = 12\nb13"),
        ),
        ("names-inside", ("", "vllm/long.py", 10, "a9 = 9\na10", "b8 = 8\nb9")),
    ],
)
def test_the_lines_that_did_it(against: Call, cloned: Path, mod: str, expected: Any) -> None:
    edit = affected(against("v0.20.0..v0.20.1", mod, "--json"))[mod]["edits"][0]
    assert (edit["hunk"], edit["path"], edit["line"]) == expected[:3]
    for side, text in zip(("removed", "added"), expected[3:], strict=True):
        assert text in "\n".join(edit[side])
        assert bool(text) == bool(edit[side])
    sha = git(cloned, "rev-parse", "main")[:12]
    assert edit["commits"] == [f"{sha} 2023-11-14 [Loader] Names from a root (#4711)"]


@pytest.mark.slow
def test_the_text(against: Call, cloned: Path) -> None:
    answer = against("v0.20.0..v0.20.1", "broken", "mended", "shifted", "stale", "unwanted")
    sha = git(cloned, "rev-parse", "main")[:12]
    commit = f"{sha} 2023-11-14 [Loader] Names from a root (#4711)"
    assert (
        answer.out
        == f"""\
git:.@v0.20.0 to git:.@v0.20.1

got worse
  broken 1.0.0: applies, then conflict
    vllm/loader.py, hunk 1 of x.patch (`Loader`): line 7 is `path = os.path.join(self.root, name)`, but
      the patch has `path = os.path.join("weights", name)` [text]
    vLLM changed vllm/loader.py:7, where hunk 1 of x.patch belongs
      -         path = os.path.join("weights", name)
      +         path = os.path.join(self.root, name)
      commit {commit}

got better
  mended 1.0.0: conflict, then applies
    vLLM changed vllm/other.py:1, where hunk 1 of x.patch belongs
      - LIMIT = 1
      + LIMIT = 5
      commit {commit}

already needed a port before
  stale 1.0.0: conflict, then conflict
    vllm/a.py, hunk 1 of x.patch: line 1 is `A = 1`, but the patch has `A = 7` [text]

1 mod got worse; 1 mod got better; 1 mod already needed a port before; nothing breaks for 1 mod; 1 mod not meant for git:.@v0.20.1.
"""
    )
    assert answer.code == 1


@pytest.mark.slow
def test_the_clone_is_named_by_commits_or_by_the_older_side(
    against: Call, cloned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for span in ((f"git:{cloned}@v0.20.0..v0.20.1",), ("v0.20.0..v0.20.1", "--commits", cloned)):
        answer = against(*span, "broken")
        assert (answer.code, answer.err) == (1, "")
        assert "(#4711)" in answer.out
    monkeypatch.chdir(cloned)
    answer = against("v0.20.0..v0.20.1", "broken", "--commits", "https://builds.example/")
    assert "(#4711)" in answer.out
    answer = against(f"git:{cloned}@v0.20.0..git:../clone@v0.20.1", "broken")
    assert (answer.code, answer.err) == (1, "")


@pytest.mark.slow
def test_what_cannot_be_compared(
    against: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def error(span: str, *arguments: str) -> tuple[str, str]:
        answer = against(span, "broken", *arguments)
        assert (answer.code, answer.out) == (2, "")
        message, _, hint = answer.err.partition("\n\nhint: ")
        return message.removeprefix("error: "), hint.strip()

    forms = "--against 0.32.0..0.33.0; in a clone of vLLM, --against main..HEAD; elsewhere, --against git:REPO@main..HEAD"
    assert error("main") == ("--against main: write two trees with `..` between them", forms)
    assert error("main...v0.20.0")[1] == forms
    assert error("main..")[1] == forms
    assert error("..main")[1] == forms
    assert error("v0.20.0..nowhere") == (
        "git:.: . has no revision nowhere",
        "git -C . fetch --tags",
    )
    assert error("v0.20.1..v0.20.0") == (
        "v0.20.0 has no commits beyond v0.20.1; uncommitted changes do not count",
        "--against v0.20.0..v0.20.1",
    )
    assert "has no commits beyond" in error("main..v0.20.1")[0]
    assert error("main..v0.20.1")[1] == "commit the changes first"
    assert error("0.33.0..0.32.0") == (
        "--against 0.33.0..0.32.0: 0.32.0 is not newer than 0.33.0",
        "--against 0.32.0..0.33.0",
    )
    assert "is not newer" in error("0.33.0..0.33.0")[0]
    for option in (("--strict",), ("--format", "html"), ("--tree", "x"), ("--update-lock",)):
        assert error("v0.20.0..main", *option) == (
            f"these cannot be used with --against: {option[0]}",
            "vllm-mods matrix --tree BASE --tree HEAD  # checks the mods on both trees",
        )
    monkeypatch.chdir(tmp_path)
    assert error("main..HEAD")[0].startswith("git:.: . is not a git repository")
    named = "run this in a clone of vLLM, or name a clone: --against git:REPO@main..HEAD"
    assert error("main..HEAD")[1] == named


def branched(cloned: Path, place: Path) -> Path:
    """Make a clone whose branch `work` parted at v0.20.0, by one commit."""
    git(place.parent, "clone", "-q", str(cloned), place.name)
    git(place, "checkout", "-qb", "work", "v0.20.0")
    (place / "vllm/a.py").write_text("A = 3\n")
    git(place, "commit", "-qam", "Three")
    return place


@pytest.mark.slow
def test_a_revision_that_parted(
    against: Call, cloned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A branch is held against where it began, not against what is newer elsewhere."""
    mine = branched(cloned, tmp_path / "mine")
    monkeypatch.chdir(mine)
    answer = against("main..work", "broken", "untouched", "--json")
    assert {name: one["effect"] for name, one in affected(answer).items()} == {"untouched": "worse"}
    fork = git(mine, "rev-parse", "v0.20.0")[:12]
    parted = f"note: work lacks commits of main; BASE is their common commit {fork}\n"
    assert (answer.err, answer.json["base"]) == (parted, f"git:.@{fork}")
    (mine / "vllm/a.py").write_text("A = 1\n")  # not committed
    before = git(mine, "status", "--porcelain=v2", "--branch")
    assert against("main..work", "untouched").code == 1
    assert git(mine, "status", "--porcelain=v2", "--branch") == before
    assert against("v0.20.0..main", "untouched").err == ""
    git(mine, "checkout", "-q", "--orphan", "alone")
    git(mine, "commit", "-qm", "Alone")
    assert (
        against("main..alone", "broken", "untouched").err == ""
    )  # as they are: they never were one
    assert against("main..alone", "broken").code == 0


@pytest.mark.slow
def test_two_folders_are_compared_without_commits(against: Call, tmp_path: Path) -> None:
    older = write_tree(tmp_path / "old", "0.20.0")
    newer = write_tree(tmp_path / "new", "0.20.1", loader=LOADED, a=None)
    answer = against(f"{older}..{newer}", "broken", "shifted", "untouched", "--json")
    assert answer.code == 1
    assert answer.json["same"] == ["shifted"]
    broken, gone = (affected(answer)[name]["edits"][0] for name in ("broken", "untouched"))
    assert (broken["path"], broken["line"], broken["commits"]) == ("vllm/loader.py", 7, [])
    assert (gone["path"], gone["line"], gone["removed"]) == ("vllm/a.py", 1, ["A = 1"])


def test_a_tree_that_cannot_be_read_is_no_yes(against: Call, site: Path) -> None:
    answer = against(f"{site}..pypi:0.99", "broken", "--offline")
    assert answer.code == 1
    assert "\ncould not be compared\n  broken 1.0.0: " in answer.out
    assert "nothing changes" not in answer.out


@pytest.mark.slow
def test_an_annotation_for_each_broken_mod_in_the_file_that_changed(against: Call) -> None:
    answer = against("v0.20.0..main", "--format", "github")
    *errors, notice = answer.out.splitlines()
    places = [line.partition("::got worse")[0] for line in errors]
    assert places == [
        "::error file=vllm/loader.py,line=7,title=broken 1.0.0%3A conflict",
        "::error file=vllm/gone.py,line=1,title=deleted 1.0.0%3A missing",
        "::error file=vllm/long.py,line=13,title=inside 1.0.0%3A conflict",
        "::error file=vllm/long.py,line=10,title=names-inside 1.0.0%3A unfit",
        "::error file=vllm/names.py,line=2,title=renamed 1.0.0%3A missing",
        "::error file=vllm/parts.py,line=1,title=unfit 1.0.0%3A unfit",
    ]
    assert notice.startswith("::notice title=vllm-mods::6 mods got worse; 3 mods got better; ")
    assert answer.code == 1


@pytest.mark.slow
def test_sarif_and_markdown(against: Call, tmp_path: Path) -> None:
    sarif = against("v0.20.0..main", "broken", "mended", "--format", "sarif")
    (result,) = json.loads(sarif.out)["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "vllm/loader.py"}, "region": {"startLine": 7}}
    assert result["message"]["text"].startswith("broken 1.0.0: got worse: applies, then conflict\n")
    text = against("v0.20.0..main", "broken", "--format", "markdown", "--output", tmp_path / "x")
    written = (tmp_path / "x").read_text()
    assert written == f"**1 mod got worse.**\n\n~~~~text\n{text.out}~~~~\n"


@pytest.mark.slow
def test_a_pull_request_as_ci_has_it(
    against: Call, cloned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two commits deep, without tags: which version it is nobody knows, and every mod counts as meant for it."""
    whole = branched(cloned, tmp_path / "whole")
    git(whole, "checkout", "-q", "main")
    git(whole, "merge", "-q", "--no-edit", "work")
    git(tmp_path, "clone", "-q", "--no-tags", "--depth", "2", f"file://{whole}", "shallow")
    monkeypatch.chdir(tmp_path / "shallow")
    answer = against("HEAD^1..HEAD", "broken", "untouched", "shifted", "unwanted", "--json")
    assert (answer.code, answer.err) == (1, "")
    effects = {name: one["effect"] for name, one in affected(answer).items()}
    assert effects == {"broken": "needs-port", "untouched": "worse", "unwanted": "needs-port"}
    assert answer.json["same"] == ["shifted"]
    assert affected(answer)["untouched"]["edits"][0]["line"] == 1


@pytest.mark.slow
def test_a_mod_of_several_variants_and_what_it_requires(against: Call, mods: Path) -> None:
    """With a variant for each tree nothing changes."""
    folder = write_mod(
        mods, "both", PATCHES["broken"], vllm="<0.20.1", more='requires = ["shifted"]'
    )
    later = changed("vllm/loader.py", "self.root, name", "'fast', name", LOADED)
    (folder / "later.patch").write_bytes(later)
    with (folder / "mod.toml").open("a") as file:
        file.write('[[variant]]\nid = "b"\nvllm = ">=0.20.1"\npatches = ["later.patch"]\n')
    answer = against("v0.20.0..v0.20.1", "both")
    assert (answer.code, answer.out.splitlines()[-1]) == (0, "Nothing breaks for 2 mods.")


@pytest.mark.slow
def test_a_revert_of_what_vllm_carried_is_worse(
    against: Call, cloned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "clone", "-q", str(cloned), "mine")
    mine = tmp_path / "mine"
    (mine / "vllm/b.py").write_text("B = 1\n")
    git(mine, "commit", "-qam", "Back to one")
    monkeypatch.chdir(mine)
    one = affected(against("v0.20.1..main", "carried", "--json"))["carried"]
    verdicts = (one["effect"], one["before"]["verdict"], one["after"]["verdict"])
    assert verdicts == ("worse", "upstream", "applies")
    (edit,) = one["edits"]
    assert (edit["path"], edit["removed"], edit["added"]) == ("vllm/b.py", ["B = 2"], ["B = 1"])


@pytest.mark.slow
def test_a_look_alike_is_under_no_hunk_and_a_link_is_no_text(
    against: Call, cloned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No line of the hunk changed. What is looked for in all changed files is not looked for in a link."""
    git(tmp_path, "clone", "-q", str(cloned), "mine")
    mine = tmp_path / "mine"
    twice = PARTS + PARTS.replace("whole", "all_of")
    (mine / "vllm/parts.py").write_text(PARTS)
    git(mine, "commit", "-qam", "Parts")
    (mine / "vllm/parts.py").write_text(twice)
    (mine / "vllm/link.py").symlink_to("parts.py")
    git(mine, "add", "vllm")
    git(mine, "commit", "-qm", "Twice")
    monkeypatch.chdir(mine)
    write_mod(tmp_path / "mods", "twin", changed("vllm/parts.py", "return name", "return name.x"))
    answer = against("HEAD~1..HEAD", "twin", "--json")
    twin = affected(answer)["twin"]
    assert (answer.code, twin["effect"], twin["edits"]) == (1, "worse", [])
