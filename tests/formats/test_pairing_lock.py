from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import ManifestError
from vllm_mods.formats import pairing_lock
from vllm_mods.formats.pairing_lock import (
    LockedBase,
    LockedEntry,
    LockedImage,
    LockedMod,
    LockedTemplate,
    LockedVllm,
    LockedWheel,
    PairingLock,
)
from vllm_mods.formats.receipt import FileHash

if TYPE_CHECKING:
    from collections.abc import Callable

A, B, C = ("a" * 64, "b" * 64, "c" * 64)


def locked(name: str, after: str = B) -> LockedMod:
    return LockedMod(
        name=name,
        version="1.0.0",
        digest=C,
        variant="0.20",
        verdict="applies",
        files=(FileHash("vllm/a.py", A, after), FileHash("vllm/new.py", None, B)),
        manifest=f"name = {name!r}\n",
    )


IMAGE = LockedImage(
    config={"os": "linux", "config": {"Entrypoint": ["vllm", "serve"]}},
    layer=(
        LockedEntry("usr", "folder", 0o755, 0, 0, 5),
        LockedEntry("usr/a", "file", 0o644, 0, 0, 5, A),
        LockedEntry("usr/lock", "lock", 0o644, 0, 0, 5),
    ),
)
LOCK = PairingLock(
    pairing="big-model",
    pairing_digest=A,
    model="org/model",
    revision=None,
    base=LockedBase(
        ref="vllm/vllm-openai:v0.21.0",
        config=f"sha256:{A}",
        diff_ids=(f"sha256:{B}", f"sha256:{C}"),
        platform="linux/arm64",
    ),
    vllm=LockedVllm(version="0.21.1.dev3+gabc", site_root="usr/lib/python3", record=B),
    mods=(locked("one"), locked("two")),
    templates=(LockedTemplate("/w/t.jinja", C),),
    wheels=(LockedWheel("tabulate", "0.9", "tabulate-0.9-py3-none-any.whl", A),),
    command="vllm serve „org/model“",
    epoch=5,
    tool="vllm-mods 0.1.0",
    image=IMAGE,
)
# Not to be changed: every image is named by the sha256 of its lock.
GOLDEN = "2d1bf71391a687ab71d08a829cb5cd04d3cee207a98fd0165cd322f1a743b256"


def test_the_bytes_never_change() -> None:
    assert sha256(pairing_lock.dump(LOCK)) == GOLDEN


def test_it_is_read_back_as_it_was_written() -> None:
    data = pairing_lock.dump(LOCK)
    assert pairing_lock.parse(data, "x.lock") == LOCK
    assert data.endswith(b"}\n")
    assert data.isascii()
    assert list(json.loads(data)) == sorted(json.loads(data))


def test_a_command_with_a_token_is_not_read() -> None:
    data = pairing_lock.dump(LOCK._replace(command="vllm serve x --y ghp_" + "aB3dE6gH" * 4))
    with pytest.raises(
        ManifestError, match=r"command: contains what looks like a secret \(ghp_…\)"
    ):
        pairing_lock.parse(data, "x.lock")


def test_the_tag_is_one_that_registries_take() -> None:
    data = pairing_lock.dump(LOCK)
    digest = sha256(data)
    assert pairing_lock.tag(LOCK, data) == f"big-model:0.21.1.dev3_gabc-{digest[:12]}"


def test_every_problem_is_named_with_its_place() -> None:
    raw = json.loads(pairing_lock.dump(LOCK))
    raw["base"]["config"] = "sha256:12"
    del raw["mods"][1]["name"]
    raw["wheels"] = None
    raw["epoch"] = 1.5
    raw["more"] = 1
    with pytest.raises(ManifestError) as error:
        pairing_lock.parse(json.dumps(raw).encode(), "x.lock")
    assert set(error.value.problems) == {
        "base.config: must be a sha256",
        "mods[1].name: is required",
        "wheels: expected an array, found None",
        "epoch: expected an integer, found a number",
        "more: unknown key; did you mean 'model'?",
    }


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{", "not JSON"),
        (b"[]", "expected an object, found an array"),
        (b'{"schema": 2, "tool": "vllm-mods 9.0"}', "schema 1, not 2"),
    ],
)
def test_another_file_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(ManifestError, match=said):
        pairing_lock.parse(data, "x.lock")


def test_a_newer_lock_names_the_version_that_reads_it() -> None:
    for data, hint in (
        (b'{"schema": 2, "tool": "vllm-mods 9.0"}', "vllm-mods 9.0"),
        (b"{}", "a newer vllm-mods"),
    ):
        with pytest.raises(ManifestError) as caught:
            pairing_lock.parse(data, "x.lock")
        assert caught.value.hint == f"use the version that wrote it: {hint}"


def test_the_locks_of_several_platforms_are_one_in_any_order_and_come_apart_again() -> None:
    amd = LOCK._replace(base=LOCK.base._replace(platform="linux/amd64", config=f"sha256:{B}"))
    both = pairing_lock.joined([LOCK, amd])
    assert both == pairing_lock.joined([amd, LOCK])
    assert both.base == amd.base
    assert pairing_lock.by_platform(both) == {"linux/amd64": amd, "linux/arm64": LOCK}
    assert pairing_lock.parse(pairing_lock.dump(both), "x.lock") == both
    twice = both._replace(platforms=both.platforms * 2)
    with pytest.raises(ManifestError, match="platforms: a platform appears twice"):
        pairing_lock.parse(pairing_lock.dump(twice), "x.lock")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lock: lock._replace(epoch=6), [("epoch", "5", "6")]),
        (
            lambda lock: lock._replace(mods=(locked("two"), locked("one"))),
            [("mods", "one two", "two one")],
        ),
        (
            lambda lock: lock._replace(mods=(locked("one"), locked("two", C))),
            [("mods[two].files[vllm/a.py].after", B, C)],
        ),
        (lambda lock: lock._replace(revision="abc"), [("revision", None, "abc")]),
        (
            lambda lock: lock._replace(templates=()),
            [("templates[/w/t.jinja]", "there", None), ("templates[/w/t.jinja].sha256", C, None)],
        ),
    ],
)
def test_differences(
    change: Callable[[PairingLock], PairingLock], said: list[tuple[str, str | None, str | None]]
) -> None:
    assert [tuple(one) for one in pairing_lock.differences(LOCK, change(LOCK))] == said


def test_the_base_under_another_name_has_not_moved() -> None:
    known = LOCK.base._replace(ref="mirror/vllm:1", manifest=f"sha256:{C}")
    assert pairing_lock.moved(LOCK, LOCK._replace(base=known)) == ()
    assert len(pairing_lock.differences(LOCK, LOCK._replace(base=known))) == 2


@pytest.mark.parametrize("field", ["diff_ids", "platform"])
def test_another_base_has_moved(field: str) -> None:
    changed: dict[str, Any] = {field: (f"sha256:{A}",) if field == "diff_ids" else "x"}
    other = LOCK.base._replace(**changed)
    (found,) = pairing_lock.moved(LOCK, LOCK._replace(base=other))
    assert found.path == f"base.{field}"


def test_what_decides_no_byte_has_not_moved() -> None:
    base = LOCK.base._replace(ref="mirror/vllm:1", manifest=f"sha256:{A}", config=f"sha256:{B}")
    other = LOCK._replace(base=base, tool="vllm-mods 9", pairing_digest=B)
    assert pairing_lock.moved(LOCK, other) == ()


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda one: one._replace(epoch=6), "epoch"),
        (lambda one: one._replace(model="org/other"), "model"),
        (
            lambda one: one._replace(mods=(one.mods[0]._replace(digest=A), *one.mods[1:])),
            "mods[one].digest",
        ),
        (
            lambda one: one._replace(image=IMAGE._replace(config={**IMAGE.config, "os": "x"})),
            "image.config.os",
        ),
        (
            lambda one: one._replace(
                image=IMAGE._replace(layer=(IMAGE.layer[0]._replace(mode=0o700), *IMAGE.layer[1:]))
            ),
            "image.layer[usr]",
        ),
    ],
)
def test_what_decides_a_byte_has_moved(
    change: Callable[[PairingLock], PairingLock], path: str
) -> None:
    assert [one.path for one in pairing_lock.moved(LOCK, change(LOCK))] == [path]
