"""Texts that people write: scripts, recipes, pairings, serve commands, chat templates."""

from __future__ import annotations

import functools
import shlex
from typing import TYPE_CHECKING

from memory_tree import MemoryTree
from paired import NAME
from recipe_texts import PASTED, SOUND, SUPERSET
from serve_tree import FILES

from fuzz.contract import Target
from fuzz.parts import joined, taken
from vllm_mods.formats import pairing, pairing_lock
from vllm_mods.formats.receipt import FileHash
from vllm_mods.making import folder
from vllm_mods.recipes import recipe_yaml
from vllm_mods.scripts import command_line
from vllm_mods.serving import check, command
from vllm_mods.serving.shape import KnownFlags
from vllm_mods.serving.template import Serving

if TYPE_CHECKING:
    from vllm_mods.formats.pairing import Pairing

PAIRING = f"""\
schema = 1
name = "{NAME}"
summary = "s"
model = "org/small"
revision = "main"
base = "localhost/x:latest"
vllm = ">=0.19"
mods = ["patching"]
templates = ["small"]
topology = "solo"
command = "vllm serve {{model}} --port {{port}} --chat-template small.jinja # {{{{x}}}}"
[defaults]
port = 8000
[env]
VLLM_X = "1"
"""


def _pairing(data: bytes, _folder: str) -> None:
    _all_of(pairing.parse(data, "x.toml"))


def _all_of(made: Pairing) -> None:
    dumped = pairing.dump(made)  # compared as text: nan is not equal to itself
    assert pairing.dump(pairing.parse(dumped, "again")) == dumped
    pairing.arguments(made)
    pairing.serve_script(made, {name: f"/w/{name}.jinja" for name in made.templates})
    pairing.digest(made)


def _pairing_lock(data: bytes, _folder: str) -> None:
    read = pairing_lock.parse(data, "x.lock")
    again = pairing_lock.parse(pairing_lock.dump(read), "again")
    pairing_lock.differences(read, again)
    pairing_lock.tag(read, data)


def _pairing_lock_seeds() -> tuple[bytes, ...]:
    lock = pairing_lock.PairingLock(
        pairing=NAME,
        pairing_digest="0" * 64,
        model="org/small",
        revision=None,
        base=pairing_lock.LockedBase(
            "x:1", "sha256:" + "1" * 64, ("sha256:" + "2" * 64,), "linux/amd64"
        ),
        vllm=pairing_lock.LockedVllm("0.19.1", "usr/lib", None),
        mods=(
            pairing_lock.LockedMod(
                "m",
                "1",
                "5" * 64,
                "a",
                "applies",
                (FileHash("vllm/x.py", "6" * 64, "7" * 64),),
                "name = 'm'\n",
            ),
        ),
        templates=(pairing_lock.LockedTemplate("/w/small.jinja", "3" * 64),),
        wheels=(pairing_lock.LockedWheel("x", "1", "x-1-py3-none-any.whl", "4" * 64),),
        command="vllm serve org/small",
        image=pairing_lock.LockedImage({"os": "linux"}, ()),
    )
    return (pairing_lock.dump(lock),)


def _recipe(data: bytes, _folder: str) -> None:
    text = data.decode("utf-8", "surrogateescape")
    recipe_yaml.read(text, "x.yaml", known=("patching",))


def _export(data: bytes, _folder: str) -> None:
    """Write what was read, and read that: the same."""
    text = data.decode("utf-8", "surrogateescape")
    made = recipe_yaml.read(text, "x.yaml", known=("patching",)).pairing
    again = recipe_yaml.read(recipe_yaml.write(made), "again", known=("patching",)).pairing
    assert again.command == made.command, (again.command, made.command)


def _shell(data: bytes, _folder: str) -> None:
    command_line.read(data.decode("utf-8", "surrogateescape"))


def _exported(data: bytes, _folder: str) -> None:
    """Four texts of a folder that ``export`` wrote, or says it did."""
    script, manifest, patch, lock = taken(data, 4)
    mod = {"mod.toml": manifest, "fix.patch": patch, "mod.lock": lock}
    files = {f"patches/fix/{name}": text for name, text in mod.items()}
    folder.exported_mod({"run.sh": script, **files})


@functools.cache
def _known() -> KnownFlags:
    return KnownFlags(MemoryTree(dict(FILES)))


def _serve(data: bytes, _folder: str) -> None:
    text = data.decode("utf-8", "surrogateescape")
    try:
        argv = shlex.split(text)
    except ValueError:
        return
    serving = Serving(command.words(["vllm", "serve", *argv]), {"VLLM_LEVEL": text})
    check.check(_known(), serving)


def _serve_source(data: bytes, _folder: str) -> None:
    """Three texts: the files of a vLLM that say what it takes."""
    names = ("vllm/engine/arg_utils.py", "vllm/config/model.py", "vllm/envs.py")
    files = {**FILES, **dict(zip(names, taken(data, 3), strict=True))}
    serving = Serving(("m", "--dtype", "x", "--hf-overrides.a.b", "1"), {"VLLM_LEVEL": "x"})
    check.check(KnownFlags(MemoryTree(files)), serving)


def _template(data: bytes, folder: str) -> None:
    """A chat template is put in place by its bytes, and found in them by nothing else."""
    from mod_making import mod, variant

    from vllm_mods.base.model import TemplateFile
    from vllm_mods.planning import planner

    one = TemplateFile("small", "small.jinja", "templates/small/template.jinja", data)
    made = mod(variant(templates=(one,)))
    planned = planner.plan([made], MemoryTree({"vllm/__init__.py": b""}), workspace=folder)
    assert [change.after for change in planned.changes] == [data]


TARGETS = (
    Target("pairing", _pairing, lambda: (PAIRING.encode(),)),
    Target("pairing-lock", _pairing_lock, _pairing_lock_seeds),
    Target("recipe", _recipe, lambda: (SOUND.encode(), SUPERSET.encode(), PASTED.encode())),
    Target("recipe-export", _export, lambda: (SOUND.encode(), SUPERSET.encode())),
    Target(
        "shell",
        _shell,
        lambda: (b"export A='x' B=\"$C\"; vllm serve m \\\n --x '{\"a\": 1}' ${Y:-z}\n",),
        (command_line.ShellError,),
    ),
    Target(
        "exported-mod", _exported, lambda: (joined(folder.run_script("fix").decode(), "", "", ""),)
    ),
    Target(
        "serve",
        _serve,
        lambda: (
            b"m --max-model-len 1k --hf-overrides '{\"a\": [1]}' --no-share -tp 2 --dtype=auto",
            b"m --hf-overrides.a.b+ 1,2 -O3 --names a b --quantisation fp8 --chat-template x.jinja",
        ),
    ),
    Target(
        "serve-source",
        _serve_source,
        lambda: (
            joined(
                FILES["vllm/engine/arg_utils.py"],
                FILES["vllm/config/model.py"],
                FILES["vllm/envs.py"],
            ),
        ),
    ),
    Target("template", _template, lambda: (b"{% for m in messages %}{{ m.content }}{% endfor %}",)),
)
