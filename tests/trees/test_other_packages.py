"""The packages beside a release: which version it took on its day, and what is read of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from mod_making import diff_of, lock_of, mod, variant
from package_server import WHEEL, PackageServer, make_sdist, make_wheel, serving, settings_of_none

from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.base.model import Verdict
from vllm_mods.cli import run
from vllm_mods.planning.planner import plan
from vllm_mods.trees import sources
from vllm_mods.trees.open import open_tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vllm_mods.base.model import Mod, ModPlan
    from vllm_mods.base.tree import Tree

X = "transformers/models/x.py"
REQUIRES = ("transformers!=5.5.0,>=4.56", "flashinfer-python==0.6.8", "torch==2.11.0",
            "flash-linear-attention==0.4.1",
            'other>=1; sys_platform == "win32"', 'nothing>=1; extra == "audio"', "!broken")  # fmt: skip


def package(
    name: str, version: str, files: dict[str, bytes], requires: tuple[str, ...] = ()
) -> bytes:
    return make_wheel(files, version=version, bulk={}, name=name, requires=requires)


def transformers(version: str, text: str = "X = 1\n") -> bytes:
    return package("transformers", version, {"transformers/__init__.py": b"", X: text.encode()})


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageServer]:
    settings_of_none(tmp_path, monkeypatch)
    days = {"4.55.0": "2026-01-01", "5.5.0": "2026-03-01", "5.4.0": "2026-04-01", "5.6.0rc1": "2026-05-01",
            "5.6.0": "2026-06-01", "5.3.9": "2026-05-02"}  # fmt: skip
    texts = {"5.4.0": "X = 1\n", "5.6.0": "Y = 1\n", "5.5.0": "Z = 1\n", "5.3.9": "X = 1\n"}
    files = {
        f"transformers-{version}-py3-none-any.whl": transformers(version, texts.get(version, ""))
        for version in days
    }
    uploaded = {
        f"transformers-{version}-py3-none-any.whl": f"{day}T00:00:00.000001Z"
        for version, day in days.items()
    }
    files |= {
        WHEEL: make_wheel(requires=REQUIRES),
        "flashinfer_python-0.6.8-py3-none-any.whl": package(
            "flashinfer-python", "0.6.8", {"flashinfer/jit/core.py": b"F = 1\n"}
        ),
        "flash_linear_attention-0.4.1-py3-none-any.whl": package(
            "flash-linear-attention", "0.4.1", {"fla/x.py": b"L = 1\n"}
        ),
        "torch-2.11.0-cp312-cp312-manylinux_2_28_x86_64.whl": package(
            "torch", "2.11.0", {"torch/__init__.py": b""}, ("triton==3.6.0",)
        ),
        "triton-3.6.0-cp312-cp312-manylinux_2_28_x86_64.whl": package(
            "triton", "3.6.0", {"triton/__init__.py": b"T = 1\n"}
        ),
    }
    uploaded[WHEEL] = "2026-05-15T08:47:36+00:00"
    with serving(PackageServer(files=files, json=True, uploaded=uploaded)) as running:
        monkeypatch.setenv("PIP_INDEX_URL", running.index)
        yield running


def theirs(path: str = X, text: str = "X = 1\n", **more: str) -> Mod:
    wanted = {"package": "transformers", "package_version": ">=5", **more}
    return mod(variant(diff_of(path, text, text.replace("1", "2")), **wanted), outside=(path,))


def one(found: Mod, tree: Tree, *, strict: bool = False) -> ModPlan:
    return plan([found], tree, strict_version=strict).mods[0]


def codes(planned: ModPlan) -> list[str]:
    return [finding.code for finding in planned.findings]


def test_a_release_is_read_with_the_newest_that_it_took_on_its_day(server: PackageServer) -> None:
    planned = one(theirs(), open_tree("pypi:0.19.1"))
    assert planned.verdict is Verdict.APPLIES
    assert planned.in_range
    assert [change.path for change in planned.changes] == [X]
    assert "transformers 5.4.0 is installed beside this vLLM" in {
        one.message for one in planned.findings
    }
    spans = server.asked("transformers-5.4.0-py3-none-any.whl")
    assert spans
    assert None not in spans
    assert not server.asked("transformers-5.6.0-py3-none-any.whl")


def test_another_version_may_be_named(server: PackageServer) -> None:
    tree = open_tree("pypi:0.19.1", others={"Transformers": "5.6.0"})
    planned = one(theirs(), tree)
    assert planned.verdict is Verdict.CONFLICT  # and not `missing`: the file is there
    assert server.asked("transformers-5.6.0-py3-none-any.whl")
    assert one(theirs(text="Y = 1\n"), tree).verdict is Verdict.APPLIES


def test_its_range_is_advice_as_vllms_is(server: PackageServer) -> None:
    tree = open_tree("pypi:0.19.1")
    planned = one(theirs(package_version="<5"), tree)
    assert (planned.verdict, planned.in_range) == (Verdict.APPLIES, False)
    assert "version-range" in codes(planned)
    strict = one(theirs(package_version="<5"), tree, strict=True)
    assert strict.verdict is Verdict.UNSUPPORTED
    assert "`one` (>=0.19, transformers <5)" in strict.findings[0].message
    assert server.requests


@pytest.mark.parametrize(
    ("path", "text"), [("flashinfer/jit/core.py", "F = 1\n"), ("triton/__init__.py", "T = 1\n")]
)
def test_a_pin_and_what_torch_pins_are_read_too(
    server: PackageServer, path: str, text: str
) -> None:
    name = {"flashinfer/jit/core.py": "flashinfer-python"}.get(path, "triton")
    found = theirs(path, text, package=name, package_version=">=0")
    assert one(found, open_tree("pypi:0.19.1")).verdict is Verdict.APPLIES
    # also where only the path is asked for, as the matrix does it
    assert open_tree("pypi:0.19.1").read(path) == text.encode()
    assert server.requests


def test_what_is_named_otherwise_than_its_folder_is_found_with_a_lock_as_without(
    server: PackageServer,
) -> None:
    found = theirs("fla/x.py", "L = 1\n", package="flash-linear-attention", package_version=">=0")
    planned = one(found, open_tree("pypi:0.19.1"))
    known = one(found._replace(lock=lock_of(planned)), open_tree("pypi:0.19.1"))
    assert (planned.verdict, planned.vouched) == (Verdict.APPLIES, False)
    assert (known.verdict, known.vouched) == (Verdict.APPLIES, True)
    # nor does it matter which mod reads the file first
    wordless = theirs("fla/x.py", "L = 1\n", package="", package_version="")._replace(name="other")
    both = plan([wordless, found], open_tree("pypi:0.19.1")).mods
    assert [each.verdict for each in both] == [Verdict.APPLIES, Verdict.CONFLICT]  # not `missing`
    assert server.requests


def test_where_its_file_is_gone_it_is_missing_and_where_nothing_is_known_nobody_can_tell(
    server: PackageServer,
) -> None:
    tree = open_tree("pypi:0.19.1")
    gone = one(theirs("transformers/gone.py"), tree)
    assert gone.verdict is Verdict.MISSING
    for name in ("other", "nothing", "elsewhere"):
        found = one(theirs(f"{name}/a.py", package=name), tree)
        assert (found.verdict, codes(found)) == (Verdict.UNREADABLE, ["not-in-tree"])
    assert server.requests


def test_an_index_that_states_no_times_wants_a_version(server: PackageServer) -> None:
    server.uploaded.clear()
    planned = one(theirs(), open_tree("pypi:0.19.1"))
    assert planned.verdict is Verdict.UNREADABLE
    assert "--with transformers==VERSION" in planned.findings[0].message
    flash = theirs("flashinfer/jit/core.py", "F = 1\n", package="flashinfer-python")
    assert one(flash, open_tree("pypi:0.19.1")).verdict is Verdict.APPLIES


def test_a_yanked_one_and_one_for_another_python_are_not_what_people_got(
    server: PackageServer,
) -> None:
    server.yanked["transformers-5.4.0-py3-none-any.whl"] = "broken"
    planned = one(theirs(), open_tree("pypi:0.19.1"))
    assert "transformers 5.3.9 is installed beside this vLLM" in {
        one.message for one in planned.findings
    }


def test_a_wheel_is_read_with_what_is_named(server: PackageServer, tmp_path: Path) -> None:
    (tmp_path / WHEEL).write_bytes(make_wheel(requires=REQUIRES))
    spec = f"wheel:{tmp_path / WHEEL}"
    assert codes(one(theirs(), open_tree(spec))) == ["not-in-tree"]
    assert (
        one(theirs(), open_tree(spec, others={"transformers": "5.4.0"})).verdict is Verdict.APPLIES
    )
    (tmp_path / "vllm-0.19.1.tar.gz").write_bytes(make_sdist())
    source = open_tree(f"sdist:{tmp_path}/vllm-0.19.1.tar.gz", others={"transformers": "5.4.0"})
    assert one(theirs(), source).verdict is Verdict.APPLIES
    with pytest.raises(UsageError, match="has its own packages"):
        open_tree(str(tmp_path), others={"transformers": "5.4.0"})
    assert server.requests


def test_offline_nothing_is_read_that_is_not_kept(server: PackageServer) -> None:
    assert one(theirs(), open_tree("pypi:0.19.1")).verdict is Verdict.APPLIES
    before = len(server.requests)
    offline = open_tree("pypi:0.19.1", offline=True)
    assert one(theirs(), offline).verdict is Verdict.APPLIES
    other = open_tree("pypi:0.19.1", offline=True, others={"transformers": "5.6.0"})
    assert one(theirs(), other).verdict is Verdict.UNREADABLE
    assert len(server.requests) == before


def test_no_release_that_is_allowed_is_said(server: PackageServer) -> None:
    with pytest.raises(TreeError, match=r"no release is in ==9\.9"):
        open_tree("pypi:0.19.1", others={"transformers": "9.9"}).read(X)
    assert server.requests


@pytest.mark.slow
@pytest.mark.usefixtures("sandboxed")
def test_a_script_over_releases_states_the_versions_that_these_took(
    server: PackageServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    later = "vllm-0.20.0-cp38-abi3-manylinux_2_31_x86_64.whl"
    server.files[later] = make_wheel(version="0.20.0", requires=REQUIRES)
    server.uploaded[later] = "2026-04-20T00:00:00Z"
    server.yanked["transformers-5.4.0-py3-none-any.whl"] = "broken"
    server.uploaded["transformers-5.3.9-py3-none-any.whl"] = "2026-05-02T00:00:00Z"
    server.files["transformers-5.2.0-py3-none-any.whl"] = transformers("5.2.0")
    server.uploaded["transformers-5.2.0-py3-none-any.whl"] = "2026-02-02T00:00:00Z"
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/x.patch").write_bytes(diff_of(X, "X = 1\n", "X = 2\n"))
    (tmp_path / "theirs/run.sh").write_text(
        "#!/bin/bash\nset -e\npatch -p1 -F0 -d $PYTHON_ROOT < x.patch\n"
    )
    given = ["import", str(tmp_path / "theirs"), "--vllm", ">=0.15"]
    assert run([*given, "--also", "transformers"]) == 0
    out = capfd.readouterr().out
    assert 'vllm = ">=0.19.1,<=0.20.0"' in out
    assert 'package = "transformers"\nversion = ">=5.2.0,<=5.3.9"' in out


MANIFEST = """\
schema = 1
name = "{name}"
version = "1.0.0"
summary = "For {package}"
license = "MIT"
outside = ["{path}"]

[[variant]]
id = "one"
vllm = ">=0.19"
package = "{package}"
version = "{range}"
patches = ["one.patch"]
"""
LATER = "vllm-0.20.0-cp38-abi3-manylinux_2_31_x86_64.whl"


def write_mod(
    library: Path, name: str = "theirs", path: str = X, text: str = "X = 1\n", **more: str
) -> None:
    wanted = {"package": "transformers", "range": ">=5", **more}
    folder = library / "patches" / name
    folder.mkdir(parents=True)
    (folder / "one.patch").write_bytes(diff_of(path, text, text.replace("1", "2")))
    (folder / "mod.toml").write_text(MANIFEST.format(name=name, path=path, **wanted))


Matrix = Callable[..., dict[str, Any]]


def notes(cell: dict[str, Any]) -> set[str]:
    return {one["message"] for one in cell["findings"]}


@pytest.fixture
def matrix(server: PackageServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Matrix:
    """Ask for the cells of the mods in a library, by their trees; a later release took an older package."""
    server.files[LATER] = make_wheel(version="0.20.0", requires=("transformers>=5",))
    server.uploaded[LATER] = "2026-03-15T00:00:00Z"

    def ask(*more: str, code: int = 0) -> dict[str, Any]:
        library = str(tmp_path / "library")
        given = ("matrix", "theirs", "--library", library, "--jobs", "1", "--json", *more)
        capfd.readouterr()
        assert run(given) == code
        answer: dict[str, Any] = json.loads(capfd.readouterr().out)
        return {one["tree"]: one for one in answer.get("cells", ())} | answer

    return ask


def test_a_matrix_reads_the_packages_that_check_reads(matrix: Matrix, tmp_path: Path) -> None:
    write_mod(tmp_path / "library", range="==5.4.*")
    for _ in ("computed", "kept"):
        found = matrix(code=1)  # by the range of vLLM it is meant for both
        first, second = found["pypi:0.19.1"], found["pypi:0.20.0"]
        assert (first["verdict"], first["in_range"]) == ("applies", True)
        assert first["packages"] == {"transformers": "5.4.0"}
        assert (second["verdict"], second["packages"]) == ("unsupported", {"transformers": "5.5.0"})


def test_a_matrix_takes_another_version_and_keeps_its_answers_apart(
    matrix: Matrix, tmp_path: Path
) -> None:
    write_mod(tmp_path / "library")
    wanted = ("--with", "Transformers==5.3.9")
    for with_, version in ((wanted, "5.3.9"), ((), "5.4.0"), (wanted, "5.3.9")):
        cell = matrix("--vllm", "==0.19.1", *with_)["pypi:0.19.1"]
        assert (cell["verdict"], cell["packages"]) == ("applies", {"transformers": version})
        assert f"transformers {version} is installed beside this vLLM" in notes(cell)


@pytest.mark.slow
def test_every_release_is_read_with_the_version_that_was_named(
    matrix: Matrix, tmp_path: Path, server: PackageServer
) -> None:
    write_mod(tmp_path / "library")
    for version in ("5.4.0", "5.3.9"):
        found = matrix("--with", f"transformers=={version}")
        for tree in ("pypi:0.19.1", "pypi:0.20.0"):
            assert found[tree]["packages"] == {"transformers": version}
            assert f"transformers {version} is installed beside this vLLM" in notes(found[tree])
    assert server.requests


def test_a_version_that_no_mod_asks_for_is_refused(matrix: Matrix, tmp_path: Path) -> None:
    write_mod(tmp_path / "library")
    for command in (("matrix",), ("check", "--target", "pypi:0.19.1")):
        given = (*command, "theirs", "--library", str(tmp_path / "library"))
        assert run((*given, "--with", "flashinfer-python==0.6.8")) == 2
    said = matrix("--with", "flashinfer-python==0.6.8", code=2)["error"]
    assert said["message"] == "--with flashinfer-python==0.6.8: none of theirs changes that package"
    assert said["hint"] == "the mods change transformers beside vLLM"


def test_one_mod_whose_package_cannot_be_told_stops_no_other(
    matrix: Matrix, tmp_path: Path, server: PackageServer
) -> None:
    library = tmp_path / "library"
    server.uploaded.clear()
    write_mod(library)
    flash = {"package": "flashinfer-python", "range": ">=0"}
    write_mod(library, "flash", "flashinfer/jit/core.py", "F = 1\n", **flash)
    found = matrix("flash", "--vllm", "==0.19.1", code=1)["cells"]
    assert {one["mod"]: one["verdict"] for one in found} == {
        "theirs": "unreadable",
        "flash": "applies",
    }


@pytest.mark.slow
def test_a_port_to_another_version_of_the_package_states_it(
    server: PackageServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    library = tmp_path / "library"
    write_mod(library)
    server.files["transformers-5.6.0-py3-none-any.whl"] = transformers("5.6.0", "Y = 0\n\nX = 1\n")
    given = (
        "port",
        "theirs",
        "--library",
        str(library),
        "--from",
        "pypi:0.19.1",
        "--to",
        "pypi:0.19.1",
    )
    named = ("--with", "transformers==5.6.0")
    assert run((*given, *named, "--with", "torch==2.11.0")) == 2
    assert "none of theirs changes that package" in capfd.readouterr().err
    assert run((*given, *named)) == 0
    text = (library / "patches/theirs/mod.toml").read_text()
    assert text.count("[[variant]]") == 2
    assert text.endswith('version = "==5.6.0"\n')
    checked = ("check", "theirs", "--library", str(library), "--target", "pypi:0.19.1", *named)
    assert run(checked) == 0
    assert "variant 0.19" in capfd.readouterr().out


@pytest.mark.slow
def test_a_port_that_a_person_finishes_is_of_the_version_that_it_was_begun_for(
    server: PackageServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    library = tmp_path / "library"
    write_mod(library)
    port = ("port", "theirs", "--library", str(library))
    where = ("--from", "pypi:0.19.1", "--to", "pypi:0.19.1", "--with", "transformers==5.6.0")
    assert run((*port, *where)) == 1  # of 5.6.0 it is `Y = 1`
    folder = next((library / "patches/theirs").glob(".port-*"))
    (folder / "files" / X).write_text("Y = 2\n")
    assert run((*port, "--continue")) == 0, capfd.readouterr().err
    text = (library / "patches/theirs/mod.toml").read_text()
    assert text.endswith('version = "==5.6.0"\n')
    assert server.requests


@pytest.mark.slow
@pytest.mark.usefixtures("sandboxed")
def test_an_import_is_read_beside_another_version(
    server: PackageServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "x.patch").write_bytes(diff_of(X, "Y = 1\n", "Y = 2\n"))
    script = "#!/bin/bash\nset -e\npatch -p1 -F0 -d $PYTHON_ROOT < x.patch\n"
    (theirs / "run.sh").write_text(script)
    given = ("import", str(theirs), "--tree", "pypi:0.19.1", "--also", "transformers")
    assert run((*given, "--with", "transformers==5.6.0")) == 0
    assert 'package = "transformers"\nversion = "==5.6.0"\n' in capfd.readouterr().out
    assert run((*given, "--with", "transformers==5.6.0", "--with", "torch==2.11.0")) == 2
    assert "--with torch==2.11.0: none of theirs changes that package" in capfd.readouterr().err
    image = ("--image", "x", "--with", "transformers==5.6.0")
    assert run(("import", str(theirs), *image)) == 2
    assert "--with is for the vLLM of --tree only" in capfd.readouterr().err
    assert server.requests


def test_a_lock_is_of_releases_as_they_were(matrix: Matrix, tmp_path: Path) -> None:
    write_mod(tmp_path / "library")
    said = matrix("--update-lock", "--with", "transformers==5.6.0", code=2)["error"]
    assert "--with" in said["message"]


def test_a_package_that_was_yanked_since_is_not_answered_for(
    matrix: Matrix, server: PackageServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_mod(tmp_path / "library")
    assert matrix("--vllm", "==0.19.1")["pypi:0.19.1"]["packages"] == {"transformers": "5.4.0"}
    server.yanked["transformers-5.4.0-py3-none-any.whl"] = "broken"
    monkeypatch.setattr(sources, "FRESH_SECONDS", 0.0)
    assert matrix("--vllm", "==0.19.1")["pypi:0.19.1"]["packages"] == {"transformers": "5.3.9"}
