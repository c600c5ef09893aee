"""What ``list`` and ``show`` answer of mods and pairings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mod_making import write_mod
from small_replies import FAST, PATCH, lines

from vllm_mods.api.libraries import LibraryContents
from vllm_mods.base.errors import ManifestError
from vllm_mods.base.model import ImageFile, Variant, When
from vllm_mods.formats import pairing as pairings
from vllm_mods.formats.pairing import Pairing, Recipe
from vllm_mods.library.catalog import Library, Shared
from vllm_mods.report import library

if TYPE_CHECKING:
    from pathlib import Path

BARE = Pairing("bare", "nothing else", "org/n", "base:2", "vllm serve org/n")
PAIR = Pairing(
    name="pair",
    summary="a pairing",
    model="org/m",
    base="base:1",
    command="vllm serve org/m --port {port}",
    revision="c0",
    vllm=">=0.19",
    mods=("fast", "b"),
    templates=("t", "u"),
    defaults={"port": 8000},
    env={"A": "1"},
    topology="cluster",
    recipe=Recipe("1", "their recipe", {}, {}),
)


def test_show_has_every_field_of_a_mod_that_says_something() -> None:
    when = (When((("model_type", ("q",)),), (("*.w", ("I32",)),), "falls"), When((("z", ()),)))
    files = (ImageFile("/etc/x", "x", b""), ImageFile("/etc/y", "y", b"", 0o755))
    whole = FAST._replace(
        default=True,
        upstream_status="open",
        upstream_issues=("#1", "#2"),
        requires=("r", "s"),
        conflicts=("c", "d"),
        after=("x", "y"),
        evidence=(("log", "it ran"), ("env", "E=1")),
        serve_args=("--x", "a b"),
        env=(("A", "1 2"),),
        compute_capability=("9.0", "10.0"),
        outside=("o", "p"),
        files=files,
        when=when,
        variants=(
            FAST.variants[0],
            Variant("two", ">=0.20", package="flash", package_version=">=1"),
        ),
    )
    reply = library.mod(whole)
    assert lines(reply) == [
        "fast 1.0.0: faster",
        "  licence     MIT",
        "  folder      /lib/patches/fast",
        "  upstream    open #1 #2",
        "  requires    r, s",
        "  conflicts   c, d",
        "  after       x, y",
        "  evidence    log: it ran",
        "  evidence    env: E=1",
        "  serve with  --x 'a b'",
        "  variable    A='1 2'",
        "  GPU         9.0, 10.0",
        "  outside     o, p",
        "  in images   /etc/x, /etc/y",
        "  model has   model_type, *.w",
        "  model has   z",
        "  variant one for vLLM >=0.19",
        "    vllm/x.py",
        "    needs numpy>=2",
        "  variant two for vLLM >=0.20, flash >=1",
    ]
    assert reply.data == {
        "schema": 1,
        "name": "fast",
        "version": "1.0.0",
        "summary": "faster",
        "license": "MIT",
        "default": True,
        "directory": "/lib/patches/fast",
        "digest": "ab" * 32,
        "requires": ("r", "s"),
        "conflicts": ("c", "d"),
        "after": ("x", "y"),
        "upstream": {"status": "open", "issues": ("#1", "#2")},
        "evidence": {"log": "it ran", "env": "E=1"},
        "env": {"A": "1 2"},
        "files": [
            {"path": "/etc/x", "source": "x", "mode": 0o644},
            {"path": "/etc/y", "source": "y", "mode": 0o755},
        ],
        "serve_args": ("--x", "a b"),
        "compute_capability": ("9.0", "10.0"),
        "outside": ("o", "p"),
        "when": [
            {"config": {"model_type": ("q",)}, "tensors": {"*.w": ("I32",)}, "fails": "falls"},
            {"config": {"z": ()}, "tensors": {}, "fails": ""},
        ],
        "variants": [
            {
                "id": "one",
                "vllm": ">=0.19",
                "package": None,
                "package_version": None,
                "files": ["vllm/x.py"],
                "python": ("numpy>=2",),
            },
            {
                "id": "two",
                "vllm": ">=0.20",
                "package": "flash",
                "package_version": ">=1",
                "files": [],
                "python": (),
            },
        ],
    }


def test_show_leaves_out_what_a_mod_does_not_say() -> None:
    assert lines(library.mod(FAST._replace(variants=()))) == [
        "fast 1.0.0: faster",
        "  licence     MIT",
        "  folder      /lib/patches/fast",
        "  upstream    none",
    ]


def test_show_has_every_field_of_a_pairing_and_its_command_filled_in() -> None:
    reply = library.pairing(PAIR, "/l/pair.toml")
    assert lines(reply) == [
        "pair: a pairing",
        "  file        /l/pair.toml",
        "  model       org/m at c0",
        "  image       base:1",
        "  vLLM        >=0.19",
        "  mods        fast, b",
        "  templates   t, u",
        "  nodes       several",
        "  recipe      their recipe",
        "export A=1",
        "vllm serve org/m --port 8000",
    ]
    assert reply.data == {
        "kind": "pairing",
        "name": "pair",
        "summary": "a pairing",
        "file": "/l/pair.toml",
        "digest": pairings.digest(PAIR),
        "model": "org/m",
        "revision": "c0",
        "base": "base:1",
        "vllm": ">=0.19",
        "topology": "cluster",
        "mods": ("fast", "b"),
        "templates": ("t", "u"),
        "defaults": {"port": 8000},
        "env": {"A": "1"},
        "command": "vllm serve org/m --port {port}",
        "rendered": "vllm serve org/m --port 8000",
        "arguments": ("vllm", "serve", "org/m", "--port", "8000"),
        "recipe": "their recipe",
    }


def test_show_leaves_out_what_a_pairing_does_not_say() -> None:
    reply = library.pairing(BARE, "/l/bare.toml")
    assert lines(reply) == [
        "bare: nothing else",
        "  file        /l/bare.toml",
        "  model       org/n",
        "  image       base:2",
        "vllm serve org/n",
    ]
    assert reply.data["recipe"] is None
    solo = lines(library.pairing(BARE._replace(topology="solo"), "/l/bare.toml"))
    assert "  nodes       one" in solo


def test_a_list_says_of_each_mod_and_pairing_whose_it_is(tmp_path: Path) -> None:
    write_mod(tmp_path / "own", "fast", PATCH)
    write_mod(tmp_path / "their", "quick", PATCH)
    for pairing in (PAIR, BARE):
        place = tmp_path / "own/pairings" / f"{pairing.name}.toml"
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(pairings.dump(pairing))
    shared = (Shared("them", str(tmp_path / "their")),)
    opened = Library(tmp_path / "own", shared=shared)
    mods = {name: opened.load(name) for name in ("fast", "them/quick", "hybrid-int4-fp8")}
    bundled = mods["hybrid-int4-fp8"]._replace(summary="hybrid")
    ranges = [variant.vllm for variant in bundled.variants]
    fault = ManifestError("/x/mod.toml", ("version: is required",))
    mods["hybrid-int4-fp8"] = bundled
    reply = library.listed(LibraryContents(mods, {"pair": PAIR, "bare": BARE}, (fault,)), opened)
    first, rest = lines(reply)[:5], lines(reply)[5:]
    assert first == [
        "fast             1.0.0  s",
        f"                 vLLM >=0.19; library {tmp_path}/own",
        "them/quick       1.0.0  s",
        "                 vLLM >=0.19; library them",
        f"hybrid-int4-fp8  {bundled.version}  hybrid [default]",
    ]
    assert rest[0].endswith("; bundled with vllm-mods")
    assert rest[1:] == [
        "",
        "pairings",
        "pair  a pairing",
        "      org/m with fast, b, t, u",
        "bare  nothing else",
        "      org/n with no mods",
    ]
    assert reply.data["mods"][1:] == [
        {
            "name": "quick",
            "version": "1.0.0",
            "summary": "s",
            "default": False,
            "vllm": [">=0.19"],
            "directory": f"{tmp_path}/their/patches/quick",
            "library": "them",
        },
        {
            "name": "hybrid-int4-fp8",
            "version": bundled.version,
            "summary": "hybrid",
            "default": True,
            "vllm": ranges,
            "directory": bundled.directory,
            "library": "vllm-mods",
        },
    ]
    assert reply.data["pairings"][0] == {
        "name": "pair",
        "summary": "a pairing",
        "model": "org/m",
        "base": "base:1",
        "vllm": ">=0.19",
        "mods": ("fast", "b"),
        "templates": ("t", "u"),
        "topology": "cluster",
        "file": f"{tmp_path}/own/pairings/pair.toml",
        "library": None,
    }
    assert reply.data["faulty"] == [{"where": "/x/mod.toml", "problems": ["version: is required"]}]
    assert reply.exit_code == 2
    assert library.listed(LibraryContents({}, {}, ()), opened).words == "there are no mods"
