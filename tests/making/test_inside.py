"""The programs of a recording, called as it calls them: what each answers, and what it notes."""

from __future__ import annotations

import json
import site
import sys
import sysconfig
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest

from vllm_mods.making.inside import pip_stand_in, served, sitecustomize

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which what is asked for is noted, for line 3 of run.sh."""
    monkeypatch.setenv("VLLM_MODS_HOME", str(tmp_path))
    monkeypatch.setenv("VLLM_MODS_LINE", "run.sh:3")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def noted(home: Path) -> list[list[str]]:
    """Return the entries of the log."""
    log = home / "asked"
    rows = log.read_bytes().split(b"\n") if log.exists() else [b""]
    assert rows[-1] == b""
    return [row.decode().removesuffix("\0").split("\0") for row in rows[:-1]]


# --- pip


def pip(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["pip_stand_in.py", *words])
    return pip_stand_in.main()


@pytest.mark.parametrize(
    ("words", "entry"),
    [
        ("pip install -q a==1 b", ["install", "a==1", "b"]),
        ("uv pip install --quiet a", ["install", "a"]),
        ("uv sync", ["sync"]),
        ("pip3 pip", ["pip"]),
        ("pip uninstall -qq -y a", ["uninstall", "-y", "a"]),
        ("pip", []),
        ("pip list", None),
        ("pip --version", None),
        ("uv pip freeze", None),
        ("pip check", None),
    ],
)
def test_what_is_to_be_installed_is_noted_and_a_question_is_not(
    home: Path, monkeypatch: pytest.MonkeyPatch, words: str, entry: list[str] | None
) -> None:
    assert pip(monkeypatch, *words.split()) == 0
    assert noted(home) == ([] if entry is None else [["0", "run.sh:3", "pip", *entry]])


def test_a_file_of_requirements_is_noted_by_its_lines(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "r.txt").write_text("# all of it\na==1  # why\n\n b>=2 \n--pre\nc#d\n")
    assert pip(monkeypatch, "pip", "install", "-r", "r.txt", "x") == 0
    assert pip(monkeypatch, "pip", "install", "--requirement", "r.txt") == 0
    assert pip(monkeypatch, "pip", "install", "-r") == 0
    lines = ["a==1", "b>=2", "--pre", "c#d"]
    assert [entry[3:] for entry in noted(home)] == [
        ["install", *lines, "x"],
        ["install", *lines],
        ["install"],
    ]


def test_what_is_there_is_shown_as_pip_shows_it(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pip(monkeypatch, "pip", "show", "-f", "pytest") == 0
    name, number, place = capsys.readouterr().out.splitlines()
    assert (name, number) == ("Name: pytest", f"Version: {version('pytest')}")
    assert place.startswith("Location: /")
    assert pip(monkeypatch, "uv", "pip", "show", "no-such-package") == 1
    assert capsys.readouterr() == ("", "WARNING: Package(s) not found: no-such-package\n")
    assert noted(home) == []


# --- curl and wget


@pytest.fixture
def fetched(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recording's folder in which one file lies that was fetched."""
    (home / served.FOLDER).mkdir()
    (home / served.FOLDER / served.INDEX).write_text(json.dumps({"https://h/d/a": "0"}))
    (home / served.FOLDER / "0").write_bytes(b"data\xff")
    monkeypatch.setattr(served, "__file__", str(home / "served.py"))
    return home


def serve(monkeypatch: pytest.MonkeyPatch, words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["served.py", *words.split()])
    return served.main()


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ("curl -sO https://h/d/a", "a"),
        ("curl -L --output b https://h/d/a", "b"),
        ("curl --create-dirs -o x/y/b --url https://h/d/a", "x/y/b"),
        ("wget -q https://h/d/a", "a"),
        ("wget -P x/y https://h/d/a", "x/y/a"),
        ("wget --directory-prefix=x https://h/d/a", "x/a"),
        ("wget -O b -P x https://h/d/a", "b"),
        ("wget --output-document=b https://h/d/a", "b"),
    ],
)
def test_what_was_fetched_is_put_where_it_would_be_put(
    fetched: Path, monkeypatch: pytest.MonkeyPatch, words: str, place: str
) -> None:
    assert serve(monkeypatch, words) == 0
    assert (fetched / place).read_bytes() == b"data\xff"
    assert noted(fetched) == []


@pytest.mark.parametrize("words", ["curl https://h/d/a", "wget -qO- https://h/d/a"])
def test_what_was_fetched_is_printed(
    fetched: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
    words: str,
) -> None:
    before = sorted(path.name for path in fetched.iterdir())
    assert serve(monkeypatch, words) == 0
    assert capsysbinary.readouterr().out == b"data\xff"
    assert sorted(path.name for path in fetched.iterdir()) == before


def test_a_folder_that_is_not_there_is_made_for_wget_alone(
    fetched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FileNotFoundError):
        serve(monkeypatch, "curl -o x/b https://h/d/a")
    assert not (fetched / "x").exists()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("curl -s https://h/other", 6),
        ("curl -X POST https://h/d/a", 6),
        ("wget https://h/other", 4),
    ],
)
def test_what_was_not_fetched_is_noted(
    fetched: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    code: int,
) -> None:
    assert serve(monkeypatch, words) == code
    assert noted(fetched) == [[str(code), "run.sh:3", *words.split()]]
    assert capsys.readouterr().err == f"{words.split(maxsplit=1)[0]}: not fetched before\n"


# --- Python


def test_who_asks_for_the_network_is_noted(home: Path) -> None:
    sitecustomize.note_network("socket.getaddrinfo", ("h.example", 443))
    sitecustomize.note_network("socket.connect", (None, ("1.2.3.4", 443)))
    sitecustomize.note_network("socket.connect", (None, "/run/socket"))
    sitecustomize.note_network("open", ("x",))
    assert noted(home) == [
        ["1", "run.sh:3", "network", "h.example"],
        ["1", "run.sh:3", "network", "('1.2.3.4', 443)"],
    ]


def test_a_module_of_vllm_runs_as_far_as_its_imports_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_MODS_VERSION", "0.19.1")
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm/__init__.py").write_text("raise RuntimeError('it needs a GPU')\n")
    (tmp_path / "vllm/version.py").write_text("__version__ = 'dev'\n")
    (tmp_path / "vllm/x.py").write_text("X = 1\nimport torch_is_not_here\nY = 2\n")
    (tmp_path / "vllm/bad.py").write_text("1 / 0\n")
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", [sitecustomize.VllmFinder, *sys.meta_path])
    try:
        import vllm.version  # type: ignore[import-not-found, unused-ignore]
        import vllm.x as module  # type: ignore[import-not-found, unused-ignore]

        whole: Any = vllm
        assert (whole.__version__, whole.version.version) == ("0.19.1", "0.19.1")
        assert (module.X, hasattr(module, "Y"), hasattr(module, "__version__")) == (1, False, False)
        with pytest.raises(ZeroDivisionError):
            import vllm.bad  # type: ignore[import-not-found, unused-ignore]
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
            del sys.modules[name]
    assert sitecustomize.VllmFinder.find_spec("json") is None
    assert sitecustomize.VllmFinder.find_spec("vllm.none", [str(tmp_path / "vllm")]) is None


def test_packages_lie_where_a_launcher_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    hooks: list[Any] = []
    stdlib = sysconfig.get_path("stdlib")
    for module, name in (
        (site, "getsitepackages"),
        (sysconfig, "get_path"),
        (sysconfig, "get_paths"),
    ):
        monkeypatch.setattr(module, name, getattr(module, name))
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setattr(sys, "addaudithook", hooks.append)
    sitecustomize.install("/packages")
    assert (site.getsitepackages(), site.getsitepackages([])) == (["/packages"], ["/packages"])
    names = ("purelib", "platlib", "stdlib")
    assert [sysconfig.get_path(name) for name in names] == ["/packages", "/packages", stdlib]
    paths = sysconfig.get_paths(expand=False)
    assert (paths["purelib"], paths["platlib"]) == ("/packages", "/packages")
    assert (sys.meta_path[0], hooks) == (sitecustomize.VllmFinder, [sitecustomize.note_network])
