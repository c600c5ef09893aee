"""``vllm-mods with --record`` and ``evidence --record``: which code of the mods ran, in which process."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Answer
from mod_making import diff_of

import vllm_mods as vm
from vllm_mods.base.cache import cache_folder
from vllm_mods.base.errors import ManifestError, UsageError
from vllm_mods.library import mod_path
from vllm_mods.running import recording

LOADER = "def load(x):\n    return x\n\n\nclass Loader:\n    def other(self):\n        return 1\n\n    def never(self):\n        return 1\n"
FIXED = LOADER.replace("return x", "return x + 1").replace("return 1", "return 2")
PATCH = diff_of("vllm/loader.py", LOADER, FIXED) + diff_of("vllm/alone.py", "X = 1\n", "X = 2\n")
SERVER = """import multiprocessing, sys

def work():
    from vllm.loader import Loader
    print(Loader().other())

if __name__ == "__main__":
    from vllm.loader import load
    print(load(1))
    for method in ("spawn", "fork"):
        worker = multiprocessing.get_context(method).Process(target=work, name=f"Worker-{method}")
        worker.start()
        worker.join()
"""


TELLS = sys.version_info >= (3, 12)
"""Whether this Python tells of functions that start."""
recorded = pytest.mark.skipif(not TELLS, reason="records are written from Python 3.12 on")
Call = Callable[..., Answer]


@pytest.fixture
def vllm(tmp_path: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (site / "vllm/loader.py").write_text(LOADER)
    (site / "vllm/alone.py").write_text("X = 1\n")
    (tmp_path / "fix.patch").write_bytes(PATCH)
    (tmp_path / "serve.py").write_text(SERVER)
    return site


def run(site: Path, *command: str) -> subprocess.CompletedProcess[str]:
    options = ["--record", "run.jsonl", "--target", str(site)]
    words = [sys.executable, "-m", "vllm_mods", "with", "./fix.patch", *options, "--", *command]
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((*filter(None, [os.environ.get("PYTHONPATH")]), "own")),
    }
    return subprocess.run(words, capture_output=True, text=True, check=False, env=environ)


@pytest.mark.slow
@recorded
def test_each_process_tells_what_it_imports_and_enters(
    vllm: Path, tmp_path: Path, call: Call
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own/sitecustomize.py").write_text("print('mine')")
    done = run(vllm, sys.executable, "serve.py")
    assert done.stdout.count("mine") >= 3  # this tool, the command, and what it spawns
    assert done.stdout.count("2") == 3
    answer = call("evidence", "--record", "run.jsonl")
    assert (answer.code, re.sub(r" \(\d+\)", "", answer.out).splitlines()) == (
        0,
        [
            "fix: its code ran",
            "  vllm/alone.py: never imported",
            "  vllm/loader.py: imported in MainProcess, Worker-spawn, Worker-fork",
            "    load: entered in MainProcess",
            "    Loader.other: entered in Worker-spawn, Worker-fork",
            "    Loader.never: never entered",
            "note: a function that torch.compile inlines is never recorded as entered",
        ],
    )


@pytest.mark.slow
@recorded
def test_a_mod_whose_code_does_not_run_is_a_no(vllm: Path, call: Call) -> None:
    assert run(vllm, sys.executable, "-c", "import vllm").returncode == 0
    answer = call("evidence", "--record", "run.jsonl", "--json")
    (mod,) = answer.json["mods"]
    assert (answer.code, mod["ran"], mod["files"][0]["imported"]) == (1, False, [])


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags", [pytest.param((), marks=pytest.mark.skipif(TELLS, reason="it records")), ("-S",)]
)
def test_a_python_that_records_nothing_is_refused_before_it_runs(
    vllm: Path, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    done = run(vllm, sys.executable, *flags, "-c", "print('ran')")
    assert (done.returncode, done.stdout) == (3, "")
    assert "records nothing, because it is older than 3.12" in done.stderr
    assert not (tmp_path / "run.jsonl").exists()


@pytest.mark.slow
def test_a_record_is_not_written_over(vllm: Path, tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_text("mine")
    done = run(vllm, "true")
    assert done.returncode == 2
    assert "the record run.jsonl cannot be created: File exists" in done.stderr
    assert (tmp_path / "run.jsonl").read_text() == "mine"


@pytest.mark.slow
def test_a_command_that_is_refused_leaves_no_record(vllm: Path, tmp_path: Path) -> None:
    for command, code in ((["none-such"], 2), ([sys.executable, "-E", "-c", ""], 3)):
        assert run(vllm, *command).returncode == code
    assert not (tmp_path / "run.jsonl").exists()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not JSON"),
        (b"[]\n", "expected"),
        (b'{"root": "/x", "mods": []}\n', "is empty"),
        (b'{"root": "/x", "mods": []}\n{"pid": 1}\n', "process: is required"),
    ],
)
def test_another_file_is_no_record(data: bytes, why: str) -> None:
    with pytest.raises((ManifestError, UsageError), match=why):
        recording.read_record(data, "run.jsonl")


def test_what_a_killed_process_began_to_write_is_left_out() -> None:
    head = json.dumps({"root": "/x", "mods": [{"title": "m", "files": [{"path": "vllm/a.py"}]}]})
    row = {"pid": 7, "process": "Worker", "path": "/x/vllm/a.py", "line": 0}
    lines = f"{head}\n{json.dumps(row)}\n{json.dumps(row)[:20]}"
    (mod,) = recording.read_record(lines.encode(), "run.jsonl").mods
    assert (mod.ran, mod.files[0].imported) == (True, ("Worker (7)",))


def test_a_record_of_mods_without_python_is_no_yes(tmp_path: Path, call: Call) -> None:
    row = {"pid": 7, "process": "Worker", "path": "/x", "line": 0}
    head = {"root": "/x", "mods": [{"title": "m", "files": []}]}
    (tmp_path / "r.jsonl").write_text(f"{json.dumps(head)}\n{json.dumps(row)}\n")
    answer = call("evidence", "--record", tmp_path / "r.jsonl")
    assert (answer.code, answer.out.splitlines()[0]) == (1, "m: it changes no Python here")


class Monitoring:
    """What ``sys.monitoring`` has from Python 3.12 on, of this module by hand."""

    class events:  # noqa: N801  (as it is called there)
        PY_START = 1

    DISABLE = object()
    told: Callable[..., object]

    def get_tool(self, tool: int) -> str | None:
        return "a debugger" if tool > 3 else None

    def use_tool_id(self, tool: int, _name: str) -> None:
        assert self.get_tool(tool) is None

    def register_callback(self, _tool: int, _event: int, told: Callable[..., object]) -> None:
        self.told = told

    def set_events(self, _tool: int, _event: int) -> None:
        pass

    def restart_events(self) -> None:
        pass


def test_a_function_that_starts_is_recorded_once_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(recording.__file__).with_name("recorder") / "sitecustomize.py"
    spec = importlib.util.spec_from_file_location("recorder", path)
    assert spec is not None
    assert spec.loader is not None
    recorder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recorder)
    monitoring = Monitoring()
    record = tmp_path / "run.jsonl"
    monkeypatch.setattr(recorder, "_MONITORING", monitoring)
    monkeypatch.setattr(recorder, "_RECORD", str(record))
    monkeypatch.setattr("os.register_at_fork", lambda **_: None)
    monkeypatch.setattr("atexit.register", lambda *_: None)
    functions = [{"name": "f", "line": 2}, {"name": "g", "line": 6}]
    file = {"path": "vllm/a.py", "functions": functions}
    header = {"root": "/x", "mods": [{"title": "m", "files": [file]}]}
    record.write_text(json.dumps(header) + "\n")
    recorder.Recorder(header)
    code = compile(
        "\n@wraps(lambda: 0)\ndef f(): ...\n\n\ndef g(): ...\ndef h(): ...", "/x/vllm/a.py", "exec"
    )
    module, (at, f, g, h) = code, [one for one in code.co_consts if hasattr(one, "co_code")]
    assert monitoring.told(at, 0) is monitoring.DISABLE
    assert "a.py" not in record.read_text().splitlines()[-1]
    for started in (module, f, h, compile("1", "/x/vllm/other.py", "exec")):
        assert monitoring.told(started, 0) is monitoring.DISABLE
    (mod,) = recording.read_record(record.read_bytes(), "run.jsonl").mods
    assert [bool(each.entered) for each in mod.files[0].functions] == [True, False]
    assert (g.co_firstlineno, len(mod.files[0].imported), mod.ran) == (6, 1, True)


@pytest.mark.slow
def test_functions_are_where_the_last_mod_has_left_them(vllm: Path, tmp_path: Path) -> None:
    before = LOADER.replace("return x", "return x + 1")
    texts = (LOADER, before, f"import os\nimport sys\n\n\n{before}".replace("return 1", "return 3"))
    for name, old, new in zip("ab", texts, texts[1:], strict=False):
        (tmp_path / f"{name}.patch").write_bytes(diff_of("vllm/loader.py", old, new))
    mods = [mod for name in "ab" for mod in mod_path.load(f"./{name}.patch", vm.Library())]
    with vm.shadow(mods, str(vllm)) as copy:
        vm.begin_record("run.jsonl", copy)
        lines = Path(copy.root, "vllm/loader.py").read_text().splitlines()
    first, second = json.loads((tmp_path / "run.jsonl").read_text())["mods"]
    told = [one for mod in (first, second) for one in mod["files"][0]["functions"]]
    assert [(one["name"], lines[one["line"] - 1].strip()) for one in told] == [
        ("load", "def load(x):"),
        ("Loader.other", "def other(self):"),
        ("Loader.never", "def never(self):"),
    ]


def test_the_cache_has_the_path_that_python_gives_to_its_modules() -> None:
    assert cache_folder({"XDG_CACHE_HOME": "/a//b/../c//"}) == "/a/c/vllm-mods"


def test_a_record_is_read_without_names(call: Call) -> None:
    answer = call("evidence", "fast", "--record", "run.jsonl")
    assert (answer.code, "--record takes no PAIRING or MOD" in answer.err) == (2, True)
