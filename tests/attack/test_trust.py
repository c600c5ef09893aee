"""What nobody vouches for, where ``vllm-mods.toml`` asks for somebody: no door lets it through."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from git_host import mod

import vllm_mods as vm
from vllm_mods.building import resolving
from vllm_mods.cli import run
from vllm_mods.library import trust
from vllm_mods.making import folder as folders

if TYPE_CHECKING:
    from pathlib import Path

needs_ssh_keygen = pytest.mark.skipif(
    shutil.which("ssh-keygen") is None, reason="needs ssh-keygen (OpenSSH)"
)
MOD = (
    mod("tiny")["patches/tiny/mod.toml"]
    + """\
templates = [{ name = "chat", file = "chat.jinja" }]
"""
)
PAIRING = """\
schema = 1
name = "pair"
summary = "s"
model = "org/model"
base = "oci:nowhere"
mods = ["tiny"]
command = "vllm serve org/model"
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project's folder, the current one, with a library and a small vLLM in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VLLM_MODS_CONFIG", raising=False)
    monkeypatch.setattr(trust, "OF_THE_MACHINE", str(tmp_path / "etc.toml"))
    files = {
        "mods/patches/tiny/mod.toml": MOD,
        "mods/patches/tiny/x.py": "X = 1\n",
        "mods/templates/chat/template.jinja": "{{ messages }}",
        "mods/pairings/pair.toml": PAIRING,
        "site/vllm/__init__.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def listed(project: Path) -> str:
    """Write the library's list of hashes, and return its own."""
    library = project / "mods"
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(library)}\n"
        for path in sorted(library.rglob("*"))
        if path.is_file() and not path.name.startswith("SHA256SUMS")
    ]
    (library / "SHA256SUMS").write_text("".join(lines))
    return "sha256:" + hashlib.sha256((library / "SHA256SUMS").read_bytes()).hexdigest()


def key(project: Path, name: str) -> None:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", project / name],
        check=True,
    )
    public = (project / f"{name}.pub").read_text()
    (project / f"{name}.signers").write_text(f'{name} namespaces="vllm-mods" {public}')


def sign(project: Path, name: str) -> None:
    sums = project / "mods/SHA256SUMS"
    sums.with_name("SHA256SUMS.sig").unlink(missing_ok=True)
    command = [
        "ssh-keygen",
        "-q",
        "-Y",
        "sign",
        "-f",
        f"{project}/{name}",
        "-n",
        "vllm-mods",
        f"{sums}",
    ]
    subprocess.run(command, check=True, capture_output=True)


def policy(place: Path, trusted: str) -> None:
    place.write_text(f"schema = 1\n\n[trust]\n{trusted}\n")


def mods() -> tuple[Any, ...]:
    return vm.Library("mods").mods("tiny")


def doors() -> dict[str, object]:
    """Return what each door says: a refusal in words, or what else came out of it."""
    said: dict[str, object] = {}

    def through(name: str, walk: Any) -> None:
        try:
            said[name] = walk()
        except vm.VllmModsError as error:
            said[name] = error.message
        except AttributeError:
            said[name] = "was let in"  # and then found no image

    through("vm.apply", lambda: vm.apply(mods(), "site").changed)
    through("export", lambda: sorted(folders.export(mods())))
    resolve: Any = resolving.resolve
    through("resolve", lambda: resolve(None, mods(), None, epoch=0))
    for name in ("lock", "build", "export", "apply"):
        more = ["--target", "site"] if name == "apply" else []
        named = ["--pairing", "pair"] if name == "apply" else ["pair"]
        said[f"vllm-mods {name}"] = run([name, *named, *more, "--library", "mods"])
    return said


@pytest.mark.usefixtures("project")
def test_without_a_policy_every_door_is_open() -> None:
    said = doors()
    assert said["vm.apply"]
    assert said["vllm-mods export"] == said["vllm-mods apply"] == 0
    assert said["resolve"] == "was let in"


@pytest.mark.parametrize("where", ["vllm-mods.toml", "etc.toml", "named"])
def test_with_one_nothing_goes_through_that_is_not_in_a_list(
    project: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy(project / where, f'require_hashes = ["sha256:{"0" * 64}"]')
    if where == "named":
        monkeypatch.setenv("VLLM_MODS_CONFIG", where)
    for listing in (False, True):
        if listing:
            listed(project)  # which nobody asked for
        for door, said in doors().items():
            if door == "vllm-mods build":
                assert said in {2, 3}  # without a lock there is nothing to build
            elif isinstance(said, int):
                assert said == 3, door
            else:
                assert f"{project}/{where} does not allow this:" in str(said), door
    assert sorted(path.name for path in (project / "site").rglob("*")) == ["__init__.py", "vllm"]
    assert vm.plan(mods(), vm.open_tree("site")).ok  # to look at it is not to take it


@pytest.mark.parametrize(
    "file", ["patches/tiny/mod.toml", "patches/tiny/x.py", "templates/chat/template.jinja"]
)
def test_a_file_that_was_changed_after_it_was_listed_is_refused(project: Path, file: str) -> None:
    policy(project / "vllm-mods.toml", f'require_hashes = ["{listed(project)}"]')
    assert vm.apply(mods(), "site").changed
    vm.revert("site")
    with (project / "mods" / file).open("a") as out:
        out.write("\n")
    with pytest.raises(vm.Refused, match="has the hash"):
        vm.apply(mods(), "site")


def test_a_file_for_images_is_held_to_it_too(project: Path) -> None:
    folder = project / "mods/patches/tiny"
    files = '[[files]]\nsource = "x.conf"\npath = "/opt/x/x.conf"\n\n[[variant]]'
    (folder / "mod.toml").write_text(MOD.replace("[[variant]]", files))
    (folder / "x.conf").write_text("a")
    policy(project / "vllm-mods.toml", f'require_hashes = ["{listed(project)}"]')
    trust.demand(mods())
    (folder / "x.conf").write_text("b")
    with pytest.raises(vm.Refused, match=r"x\.conf has the hash"):
        trust.demand(mods())


def test_what_was_read_before_is_held_to_it_by_its_bytes(project: Path) -> None:
    read = mods()
    policy(project / "vllm-mods.toml", f'require_hashes = ["{listed(project)}"]')
    variant = read[0].variants[0]
    other = variant._replace(overlay=(variant.overlay[0]._replace(data=b"X = 2\n"),))
    with pytest.raises(vm.Refused, match="has the hash"):
        vm.apply([read[0]._replace(variants=(other,))], "site")
    assert vm.apply(read, "site").changed


def test_what_only_a_tree_has_kept_nobody_vouches_for(project: Path) -> None:
    mods = vm.Library("mods").mods("tiny")
    vm.apply(mods, "site")
    (project / "vllm-mods.toml").write_text(
        f'schema = 1\n[trust]\nrequire_hashes = ["{listed(project)}"]\n'
    )
    trust.demand(mods)
    with pytest.raises(vm.Refused, match="tiny is in no library"):
        trust.demand([mods[0]._replace(directory="")])


def test_a_lock_that_lies_in_a_library_is_held_to_it(project: Path) -> None:
    policy(project / "vllm-mods.toml", f'require_hashes = ["{listed(project)}"]')
    place = project / "mods/pairings/pair.lock"
    place.write_text("{}")
    library = vm.Library("mods")
    trust.demand_pairing(library, "pair")
    with pytest.raises(vm.Refused, match=r"pair\.lock is in no hash list"):
        trust.demand_pairing(library, "pair", str(place))


@pytest.mark.slow
@needs_ssh_keygen
def test_a_library_is_taken_when_everybody_who_is_asked_has_signed_it(project: Path) -> None:
    key(project, "ann")
    key(project, "bob")
    policy(project / "vllm-mods.toml", 'allowed_signers = "ann.signers"')
    listed(project)
    with pytest.raises(vm.Refused, match="does not allow this:"):
        vm.apply(mods(), "site")
    sign(project, "bob")
    with pytest.raises(vm.Refused, match="is not a valid signature"):
        vm.apply(mods(), "site")
    sign(project, "ann")
    assert vm.apply(mods(), "site").changed
    vm.revert("site")
    # the machine asks for another: both hold
    policy(project / "etc.toml", 'allowed_signers = "bob.signers"')
    with pytest.raises(vm.Refused, match=r"etc\.toml does not allow this"):
        vm.apply(mods(), "site")


def test_a_policy_of_the_library_is_none(project: Path) -> None:
    policy(project / "vllm-mods.toml", f'require_hashes = ["sha256:{"0" * 64}"]')
    for folder in ("mods", "mods/patches", "mods/patches/tiny"):
        policy(project / folder / "vllm-mods.toml", f'require_hashes = ["{listed(project)}"]')
    with pytest.raises(vm.Refused, match=f"{project}/vllm-mods.toml does not allow this"):
        vm.apply(mods(), "site")


def test_the_mods_that_come_with_the_tool_are_trusted_unless_it_says_otherwise(
    project: Path,
) -> None:
    bundled = vm.Library().mods("hybrid-int4-fp8")
    policy(project / "vllm-mods.toml", f'require_hashes = ["sha256:{"0" * 64}"]')
    trust.demand(bundled)
    policy(project / "etc.toml", f'bundled = false\nrequire_hashes = ["sha256:{"0" * 64}"]')
    with pytest.raises(vm.Refused, match=r"etc\.toml does not allow this"):
        trust.demand(bundled)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[trust]\nrequire_hashes = ['x']\n", "schema: is required"),
        ("schema = 1\n[trust]\n", "needs one of"),
        ("schema = 1\n[trust]\nbundled = true\n", "needs one of"),
        ("schema = 1\n[trust]\nallowed-signers = 'x'\n", "did you mean 'allowed_signers'"),
        ("schema = 1\n[trsut]\n", "did you mean 'trust'"),
        ("schema = 1\n[trust]\nallowed_signers = ['x']\n", "expected a string"),
        ("schema = 1\n[trust]\nrequire_hashes = 'x'\n", "expected an array"),
        ("schema = 1\n[trust]\nrequire_hashes = ['x']\nbundled = 'no'\n", "expected true or false"),
        ("not TOML", "not TOML"),
    ],
)
def test_a_policy_that_cannot_be_read_lets_nothing_in(
    project: Path, text: str, problem: str
) -> None:
    (project / "vllm-mods.toml").write_text(text)
    with pytest.raises(vm.ManifestError, match=problem):
        vm.apply(mods(), "site")


def test_a_policy_or_a_list_that_is_not_there_lets_nothing_in(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_MODS_CONFIG", "elsewhere.toml")
    with pytest.raises(vm.UsageError, match="no such file"):
        vm.apply(mods(), "site")
    policy(project / "elsewhere.toml", 'require_hashes = ["no-such-list"]')
    with pytest.raises(vm.Refused, match="no-such-list"):
        vm.apply(mods(), "site")
    (project / "vllm-mods.toml").symlink_to("nowhere")
    monkeypatch.delenv("VLLM_MODS_CONFIG")
    with pytest.raises(vm.UsageError, match="is not a regular file"):
        vm.apply(mods(), "site")
