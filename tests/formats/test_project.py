"""A project's file and its lock: what each key may say, and the words for what it may not."""

from __future__ import annotations

import pytest

from vllm_mods.base.errors import ManifestError
from vllm_mods.formats import project, project_lock
from vllm_mods.formats.project import LibrarySource, Policy, SyncTarget
from vllm_mods.formats.project_lock import LockedLibrary

HTTPS = (
    "expected https://HOST/PATH, ssh://HOST/PATH, user@HOST:PATH or a path (/…, ./…), without user "
    "and password: git gets these from its credential helpers"
)
WHOLE = """schema = 1
[libraries.alice]
git = "https://h.org/alice/mods"
rev = "v1.2/x"
subdirectory = "deep/lib/"
allowed_signers = "signers"
[libraries.acme]
package = "Acme.mods-2"
[libraries.ours]
path = "mods"
[targets.default]
mods = ["alice/fast", "slow"]
[targets.other]
pairing = "pair"
path = "../venv"
[trust]
require_hashes = ["sums", "sha256:00"]
bundled = false
"""


def problems(text: str, where: str = "vllm-mods.toml") -> tuple[str, ...]:
    with pytest.raises(ManifestError) as caught:
        project.parse(text.encode(), where)
    assert caught.value.hint == "docs/reference/vllm-mods-toml.md has every key"
    return caught.value.problems


def test_everything_of_a_project_is_read() -> None:
    read = project.parse(WHOLE.encode(), "p/vllm-mods.toml")
    assert read == project.ProjectFile(
        "p/vllm-mods.toml",
        {
            "alice": LibrarySource(
                "git", "https://h.org/alice/mods", "v1.2/x", "deep/lib", "signers"
            ),
            "acme": LibrarySource("package", "Acme.mods-2"),
            "ours": LibrarySource("path", "mods"),
        },
        (
            SyncTarget("default", None, ("alice/fast", "slow"), None),
            SyncTarget("other", "../venv", (), "pair"),
        ),
        Policy("p/vllm-mods.toml", None, ("sums", "sha256:00"), bundled=False, model_roots=()),
    )


def test_the_least_of_a_project_has_no_policy() -> None:
    assert project.parse(b"schema = 1\n", "x") == project.ProjectFile("x", {}, (), None)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("[tool.vllm-mods]\nschema = 1\n", True),
        ("[tool.other]\nschema = 1\n", False),
        ("schema = 1\n", False),
        ('tool = "x"\n', False),
    ],
)
def test_a_pyproject_is_a_project_by_its_table(text: str, *, is_one: bool) -> None:
    assert (project.parse(text.encode(), "a/pyproject.toml") is not None) is is_one


def test_what_is_wrong_in_a_pyproject_is_said_with_the_whole_key() -> None:
    where = "pyproject.toml"
    assert problems("[tool]\nvllm-mods = 1\n", where) == (
        "tool.vllm-mods: expected a table, found an integer",
    )
    assert problems("[tool.vllm-mods]\nschema = 1\nx = 1\n", where) == (
        "tool.vllm-mods.x: unknown key",
    )


@pytest.mark.parametrize(
    "place",
    [
        *("https://h.org/a/b", "https://h.org:8443/a", "https://[::1]:9/a", "ssh://git@h.org/a"),
        *(
            "ssh://h.org/a",
            "git@h.org:a/b",
            "me.two@h-x.org:~a",
            "file:///a",
            "/a/b",
            "./a",
            "../a",
        ),
        *("http://localhost/a", "http://localhost:80/a", "http://127.0.0.1:8/a", "http://[::1]/a"),
    ],
)
def test_an_address_of_git(place: str) -> None:
    text = f'schema = 1\n[libraries.a]\ngit = "{place}"\n'
    read = project.parse(text.encode(), "x")
    assert read is not None
    assert read.libraries["a"] == LibrarySource("git", place)


@pytest.mark.parametrize(
    "place",
    [
        *("https://me:secret@h.org/a", "https://me@h.org/a", "http://h.org/a", "ext::sh -c x"),
        *("git@h.org:-x", "git@h.org:/a", "git@-h.org:a", "https://h.org", "file://a/b", "//h/a"),
        *(
            "https://h.org/a?token=x",
            "https://h.org/a#b",
            "https://h.org/a b",
            "a/b",
            "-x",
            "ftp://h/a",
        ),
        *("https://-h/a", "./a@b", "https://h.org:x/a"),
    ],
)
def test_what_is_no_address_of_git_is_not_repeated(place: str) -> None:
    text = f'schema = 1\n[libraries.a]\ngit = "{place}"\n'
    assert problems(text)[0] == f"libraries.a.git: {HTTPS}"


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ('package = "a b"', "libraries.a.package: expected the name of a distribution"),
        ('package = "-a"', "libraries.a.package: expected the name of a distribution"),
        ('package = "a."', "libraries.a.package: expected the name of a distribution"),
        ('path = ""', "libraries.a.path: is empty"),
        ('path = "a\\u0000b"', "libraries.a.path: expected a folder"),
        ("", "libraries.a: expected one of git, package, path, found none"),
        (
            'path = "a"\npackage = "b"',
            "libraries.a: expected one of git, package, path, found package, path",
        ),
        ('path = "a"\nrev = "v1"', "libraries.a.rev: unknown key"),
    ],
)
def test_what_is_no_source(lines: str, problem: str) -> None:
    assert problem in problems(f"schema = 1\n[libraries.a]\n{lines}\n")


@pytest.mark.parametrize("rev", ["-x", "a..b", "a//b", "a.lock", "a b", "a~1", "@", ".a"])
def test_what_is_no_revision_is_not_repeated(rev: str) -> None:
    text = f'schema = 1\n[libraries.a]\ngit = "./a"\nrev = "{rev}"\n'
    assert problems(text) == ("libraries.a.rev: expected a tag, a branch or a commit",)


@pytest.mark.parametrize(
    "below", ["/", "/a", "..", "../a", "a/..", "a/../b", "a\\\\b", "a?b", "a@b", "\\u0000"]
)
def test_what_is_no_folder_of_the_repository(below: str) -> None:
    text = f'schema = 1\n[libraries.a]\ngit = "./a"\nsubdirectory = "{below}"\n'
    why = "libraries.a.subdirectory: expected a folder of the repository, with '/'"
    assert problems(text) == (why,)


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("[libraries.vllm-mods]\npath = 'x'", "libraries.vllm-mods: is reserved for vllm-mods"),
        (
            "[libraries.Alice]\npath = 'x'",
            "libraries.Alice: expected lower case letters, digits, '.', '_' and '-'",
        ),
        (
            "[targets.a]",
            "targets.a: names neither mods nor a pairing; if no mods are meant, write mods = []",
        ),
        ("[targets.a]\nmods = []\npath = ''", "targets.a.path: is not a path"),
        ("[targets.a]\nmods = []\npath = 'x'\ny = 1", "targets.a.y: unknown key"),
        (
            "[trust]",
            "trust: needs one of allowed_signers, require_hashes and model_roots to trust anything",
        ),
        ("[trust]\nallowed_signers = 'x'\ny = 1", "trust.y: unknown key"),
        (
            "[trust]\nrequire_hashes = ['']",
            "trust.require_hashes[0]: expected a file, or sha256:HEX, found ''",
        ),
        ("[trust]\nmodel_roots = ['']", "trust.model_roots[0]: expected a folder, found ''"),
    ],
)
def test_what_a_project_may_not_say(lines: str, problem: str) -> None:
    assert problem in problems(f"schema = 1\n{lines}\n")


@pytest.mark.parametrize(
    ("lines", "pins"),
    [
        ("allowed_signers = 'x'", True),
        ("require_hashes = ['x']", True),
        ("model_roots = ['x']", False),
    ],
)
def test_a_policy_pins_mods_if_it_names_signers_or_hashes(lines: str, *, pins: bool) -> None:
    read = project.parse(f"schema = 1\n[trust]\n{lines}\n".encode(), "x")
    assert read is not None
    assert read.policy is not None
    assert (read.policy.pins, read.policy.bundled) == (pins, True)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (LibrarySource("git", "./a"), "git+./a"),
        (LibrarySource("git", "./a", "v1", "deep"), "git+./a@v1#subdirectory=deep"),
        (LibrarySource("package", "acme"), "package:acme"),
        (LibrarySource("path", "./mods", allowed_signers="x"), "./mods"),
    ],
)
def test_a_source_is_named_as_it_is_typed(source: LibrarySource, text: str) -> None:
    assert str(source) == text


LOCKED = {
    "zed": LockedLibrary(LibrarySource("path", "./mods"), "", "1" * 64),
    "alice": LockedLibrary(
        LibrarySource("git", "./a", "v1", "deep", "signers"), "a" * 40, "2" * 64
    ),
    "acme": LockedLibrary(LibrarySource("package", "acme"), "1.0+x", "3" * 64),
}
LOCK = f"""\
# What `vllm-mods sync` takes. Written by `vllm-mods add`, `update` and `remove`: keep it beside the project's file.
schema = 1

[libraries.acme]
package = "acme"
version = "1.0+x"
files = "sha256:{"3" * 64}"

[libraries.alice]
git = "./a"
rev = "v1"
subdirectory = "deep"
allowed_signers = "signers"
commit = "{"a" * 40}"
files = "sha256:{"2" * 64}"

[libraries.zed]
path = "./mods"
files = "sha256:{"1" * 64}"
"""


def test_a_lock_has_its_libraries_sorted_and_is_read_back() -> None:
    assert project_lock.dump(LOCKED.items()).decode() == LOCK
    assert project_lock.parse(LOCK.encode(), "x") == LOCKED


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("a" * 40, "a" * 39, f"libraries.alice.commit: expected a commit, found '{'a' * 39}'"),
        ("1.0+x", "1 0", "libraries.acme.version: expected a version, found '1 0'"),
        ('version = "1.0+x"\n', "", "libraries.acme.version: is required"),
        (f"sha256:{'1' * 64}", "x", "libraries.zed.files: expected sha256:HEX, found 'x'"),
        ("schema = 1", "schema = 2", "schema: this version of vllm-mods reads schema 1, not 2"),
    ],
)
def test_a_lock_that_was_edited_is_refused(old: str, new: str, problem: str) -> None:
    with pytest.raises(ManifestError) as caught:
        project_lock.parse(LOCK.replace(old, new).encode(), "x")
    assert caught.value.problems == (problem,)
    assert caught.value.hint == "vllm-mods update  # writes it again"
