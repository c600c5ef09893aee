"""A forge whose REST API somebody else wrote: ``emulate`` of npm, which keeps requests as GitHub does. git is served by ``forge_server``.

Used where VLLM_MODS_EMULATE is a folder in which ``npm install emulate@0.12.2 node@24`` was run.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

from forge_server import TOKEN, ForgeServer, Request

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOLDER = os.environ.get("VLLM_MODS_EMULATE", "")
_PULLS = "/repos/us/mods/pulls"
_SEED = {
    "tokens": {TOKEN: {"login": "us", "scopes": ["repo"]}},
    "github": {
        "users": [{"login": "us"}],
        "repos": [{"owner": "us", "name": "mods", "auto_init": True}],
    },
}


class EmulatedForge(ForgeServer):
    """A forge that hands what its API is asked to the emulator at ``emulator``."""

    emulator = ""

    def answer(self, method: str, path: str, data: dict[str, Any]) -> tuple[int, Any]:
        body = json.dumps(data).encode() if data and method != "GET" else None
        fields = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        url = self.emulator + path.removeprefix("/api/v3")
        try:
            sent = urllib.request.Request(url, body, fields, method=method)  # noqa: S310
            with urllib.request.urlopen(sent, timeout=20) as told:  # noqa: S310
                return told.status, json.load(told)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    @property
    def requests(self) -> list[Request]:
        _, listed = self.answer("GET", f"{_PULLS}?state=all&per_page=100", {})
        return [
            _KeptThere(self, record) for record in sorted(listed, key=lambda one: one["number"])
        ]

    @requests.setter
    def requests(self, _: list[Request]) -> None:
        """The emulator has them."""


class _KeptThere(Request):
    """A request of the emulator: one that is given another state has it there."""

    def __init__(self, forge: EmulatedForge, record: dict[str, Any]) -> None:
        head, base, state = record["head"]["ref"], record["base"]["ref"], record["state"]
        state = "merged" if record["merged_at"] else state
        super().__init__(record["number"], head, base, record["title"], record["body"], state)
        self.forge = forge

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "state" and hasattr(self, "forge"):
            at = f"{_PULLS}/{self.number}"
            if value == "merged":
                status, _ = self.forge.answer("PUT", f"{at}/merge", {"merge_method": "merge"})
            else:
                status, _ = self.forge.answer("PATCH", at, {"state": value})
            assert status == 200
        object.__setattr__(self, name, value)


@contextlib.contextmanager
def emulating(forge: EmulatedForge, folder: Path) -> Iterator[None]:
    """Run the emulator for a forge."""
    seed = folder / "seed.json"
    seed.write_text(json.dumps(_SEED))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    modules = f"{FOLDER}/node_modules"
    words = [f"{modules}/.bin/node", f"{modules}/emulate/dist/index.js", "--service", "github"]
    with subprocess.Popen(
        [*words, "--port", str(port), "--seed", str(seed)], stdout=subprocess.DEVNULL
    ) as emulator:
        try:
            forge.emulator = f"http://127.0.0.1:{port}"
            end = time.monotonic() + 60
            while True:
                with contextlib.suppress(OSError):
                    assert forge.answer("GET", _PULLS, {}) == (200, [])
                    break
                assert emulator.poll() is None
                assert time.monotonic() < end
                time.sleep(0.1)
            yield
        finally:
            emulator.kill()
