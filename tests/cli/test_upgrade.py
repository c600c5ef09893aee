"""`upgrade` on bases in OCI layouts: all of it or nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest
import serve_tree
from paired import NAME, Caller
from test_lock_and_build import base, caller

from vllm_mods.building import outputs
from vllm_mods.formats import pairing_lock

if TYPE_CHECKING:
    from pathlib import Path

OTHER = {"vllm/_version.py": b"__version__ = '0.20.0'\n", "vllm/b.py": b"B = 2\n"}


@pytest.fixture
def call(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Caller:
    """A pairing with words of its author in it, locked on 0.19.1; a base with 0.20.0 lies in `next`."""
    found = caller(tmp_path, capfd, monkeypatch)
    place = found.library / f"pairings/{NAME}.toml"
    text = place.read_text().replace(
        'base = "base:1"',
        "vllm = '>=0.19,<0.20' # mine\nbase  =  \"me/base:v0.19.1-cu129\"  # and mine",
    )
    place.write_text(text)
    found("lock", NAME, "--base", found.base)
    base(tmp_path / "next", more=OTHER)
    return found


def files(call: Caller) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in (call.library / "pairings").iterdir()
        if not path.name.endswith(".json")
    }


def upgrade(call: Caller, folder: Path, *more: object, where: str = "next", code: int = 0) -> str:
    done = call(
        "upgrade", NAME, "--base", f"oci:{folder / where}/layout", "--output", f"oci:{folder}/made", *more,
        code=code,
    )  # fmt: skip
    return done.out if code == 0 else done.err


@pytest.mark.slow
def test_a_pairing_moves_to_another_release(call: Caller, tmp_path: Path) -> None:
    before = files(call)
    said = upgrade(call, tmp_path, "--to", "v0.20.0")
    tag = pairing_lock.tag(pairing_lock.parse(call.lock.read_bytes(), ""), call.lock.read_bytes())
    assert tag.startswith("small:0.20.0-")
    assert f"small: vLLM 0.19.1 → 0.20.0, now {tag} on me/base:v0.20.0-cu129\n" in said
    assert "  patching 1.0.0  applies (variant a)\n" in said
    assert "  vllm.version: 0.19.1 → 0.20.0\n" in said
    assert "old image: small:0.19.1-" in said
    now = files(call)
    assert now[f"{NAME}.toml"] == before[f"{NAME}.toml"].replace(b"v0.19.1", b"v0.20.0").replace(
        b"'>=0.19,<0.20'", b'">=0.20.0,<0.21"'
    )
    assert sorted(now) == sorted(before)
    # What was written is what `lock` says of it, and the image is that lock's.
    new = f"oci:{tmp_path}/next/layout"
    assert call("lock", NAME, "--check", "--base", new).out == f"{call.lock} is up to date\n"
    call("lock", NAME, "--base", new, "--output", tmp_path / "same.lock")
    assert (tmp_path / "same.lock").read_bytes() == call.lock.read_bytes()
    call("image", "verify", f"oci:{tmp_path}/made", "--lock", call.lock)


@pytest.mark.slow
def test_a_base_built_anew_gets_the_layer_anew(call: Caller, tmp_path: Path) -> None:
    before = files(call)
    anew = {**OTHER, "vllm/_version.py": b"__version__ = '0.19.1'\n"}
    base(tmp_path / "anew", more=anew)
    said = json.loads(upgrade(call, tmp_path, "--json", where="anew"))
    assert said["changed"] is True
    assert said["tag"].startswith("small:0.19.1-")
    moved = {one["path"] for one in said["differences"]}
    assert moved >= {"base.diff_ids", "base.config"}
    assert not moved & {"vllm.version", "command", "pairing_digest", "mods"}
    assert files(call)[f"{NAME}.toml"] == before[f"{NAME}.toml"]
    # Once more, and there is nothing to do.
    kept = files(call)
    assert json.loads(upgrade(call, tmp_path, "--json", where="anew"))["changed"] is False
    assert upgrade(call, tmp_path, where="anew").endswith("nothing changed\n")
    assert files(call) == kept


@pytest.mark.slow
@pytest.mark.parametrize(
    ("a", "to", "said"),
    [
        (b"A = 3\n", "0.20.0", "hint: vllm-mods port patching --to pypi:0.20.0\n"),
        (b"A = 3\n", "0.20.0", "pairing small and its lock are unchanged"),
        (b"A = 1\n", "0.22.0", "has vLLM 0.20.0, but --to says 0.22.0; nothing was changed"),
        (b"A = 1\n", None, "has vLLM 0.20.0, but its lock has 0.19.1; nothing was changed"),
    ],
)
def test_a_refusal_leaves_pairing_and_lock_as_they_were(
    call: Caller, tmp_path: Path, a: bytes, to: str | None, said: str
) -> None:
    base(tmp_path / "other", a=a, more=OTHER)
    before = files(call)
    more = () if to is None else ("--to", to)
    assert said in upgrade(call, tmp_path, *more, where="other", code=3)
    assert files(call) == before
    assert not (tmp_path / "made").exists()


@pytest.mark.slow
def test_a_command_that_the_release_would_not_take_moves_nothing(
    call: Caller, tmp_path: Path
) -> None:
    base(tmp_path / "takes", more={**serve_tree.FILES, **OTHER})
    place = call.library / f"pairings/{NAME}.toml"
    place.write_text(place.read_text().replace("small.jinja", "small.jinja --dtyp2 auto"))
    before = files(call)
    refused = upgrade(call, tmp_path, "--to", "0.20.0", where="takes", code=3)
    assert "vLLM 0.20.0 would reject the command of pairing small\n  --dtyp2" in refused
    assert files(call) == before


@pytest.mark.parametrize(
    ("old", "arguments", "said"),
    [
        ("me/base:v0.19.1-cu129", ("--to", "soon"), "--to soon: not a version"),
        ("me/base:nightly", ("--to", "0.20.0"), "hint: vllm-mods upgrade small --to 0.20.0 --base REF"),
        ("me:19/v0.19.1", ("--to", "0.20.0"), "the tag of me:19/v0.19.1 does not contain"),
    ],
)  # fmt: skip
def test_usage(call: Caller, old: str, arguments: tuple[str, ...], said: str) -> None:
    place = call.library / f"pairings/{NAME}.toml"
    place.write_text(place.read_text().replace("me/base:v0.19.1-cu129", old))
    before = files(call)
    assert said in call("upgrade", NAME, *arguments, code=2).err
    assert files(call) == before


def test_a_bundled_pairing_is_not_written_to(call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vllm_mods.library.catalog.is_checkout", lambda: False)
    wrong = call("upgrade", "qwen3.5-122b-hybrid", "--to", "0.22.0", code=2).err
    assert "is not changed; nothing was written" in wrong
    assert 'name = "my-qwen3.5-122b-hybrid"' in wrong


@pytest.mark.slow
def test_a_value_is_changed_however_it_is_written_and_all_else_stays(
    call: Caller, tmp_path: Path
) -> None:
    place = call.library / f"pairings/{NAME}.toml"
    text = place.read_text()
    line = next(line for line in text.splitlines() if line.startswith("base"))
    place.write_text(text.replace(line, '"base" = """\\\n  me/base:v0.19.1"""  # ours'))
    upgrade(call, tmp_path, "--to", "0.20.0")
    changed = place.read_text()
    assert tomllib.loads(changed)["base"] == "me/base:v0.20.0"
    same = [line for line in text.splitlines() if not line.startswith(("base", "vllm"))]
    assert [line for line in changed.splitlines() if line in same] == same
    assert "  # ours\n" in changed


@pytest.mark.slow
def test_a_line_of_the_command_is_not_taken_for_the_base(call: Caller, tmp_path: Path) -> None:
    place = call.library / f"pairings/{NAME}.toml"
    head, _, _ = place.read_text().partition("command =")
    top, _, rest = head.partition("model =")
    command = "command = '''\nvllm serve org/small --chat-template small.jinja \\\n--served-model-name '\nbase = \"x\"\n'\n'''\n"
    place.write_text(f"{top}{command}model ={rest}".replace("'\nbase", "'\nbase"))
    call("lock", NAME, "--base", call.base)
    upgrade(call, tmp_path, "--to", "0.20.0")
    text = place.read_text()
    assert '\nbase = "x"\n' in text
    assert '"me/base:v0.20.0-cu129"  # and mine' in text


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_who_is_killed_around_the_image_has_the_pairing_as_it_was(
    call: Caller, tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The image is the first thing that is seen, and the pairing names it in one step."""
    before = files(call)
    write = outputs.write

    def killed(*arguments: object) -> None:
        if when == "after":
            write(*arguments)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(outputs, "write", killed)
    upgrade(call, tmp_path, "--to", "0.20.0", code=130)
    assert files(call) == before
    monkeypatch.undo()
    monkeypatch.setenv("VLLM_MODS_LIBRARY", str(call.library))
    monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path / "cache"))
    assert "0.19.1 → 0.20.0" in upgrade(call, tmp_path, "--to", "0.20.0")


KILL = """
import os, sys
from vllm_mods.cli import run
at, count, replace = int(sys.argv[1]), 0, os.replace
def dies(*arguments, **more):
    global count
    if os.sep + "pairings" + os.sep in str(arguments[1]):
        count += 1
        if count == at:
            os._exit(9)
    replace(*arguments, **more)
os.replace = dies
sys.exit(run(sys.argv[2:]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 2])
def test_who_is_killed_between_pairing_and_lock_has_both_with_the_next_run(
    call: Caller, tmp_path: Path, at: int
) -> None:
    arguments = ["upgrade", NAME, "--to", "0.20.0", "--base", f"oci:{tmp_path}/next/layout"]
    arguments += ["--output", f"oci:{tmp_path}/made"]
    done = subprocess.run(
        [sys.executable, "-c", KILL, str(at), *arguments], env=os.environ, check=False
    )
    assert done.returncode == 9
    assert "0.19.1 → 0.20.0" not in upgrade(call, tmp_path, "--to", "0.20.0"), "it was done"
    now = files(call)
    assert b"v0.20.0-cu129" in now[f"{NAME}.toml"]
    assert pairing_lock.parse(now[f"{NAME}.lock"], "").vllm.version == "0.20.0"
