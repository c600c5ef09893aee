"""A project of a user who has nothing else: no settings, no logins, no cache; for tests of what is shared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_mods.library import trust

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

_LOGINS = ("REGISTRY_AUTH_FILE", "DOCKER_CONFIG", "XDG_CONFIG_HOME")
_SETTINGS = ("VLLM_MODS_CONFIG", "VLLM_MODS_LIBRARY", "VLLM_MODS_TARGET", "WORKSPACE_DIR")


def without_logins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody's logins in registries be found."""
    for name in ("HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    for name in _LOGINS:
        monkeypatch.delenv(name, raising=False)


def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a project, the current one, on a machine where nothing is kept yet."""
    without_logins(tmp_path, monkeypatch)
    for name in _SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(trust, "OF_THE_MACHINE", str(tmp_path / "etc.toml"))
    for name in ("home", "project"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"
