"""What docker's other image store rests on: containerd takes the new layer alone, and it runs.

Debian's docker has the graph driver only. The store that newer ones have asks containerd to import what
it is given to load, and to unpack it over the layers that are there; that is what is done here.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from paired import BASE, Tool, library
from real_engines import SITE, Engine, need, wait

import vllm_mods as vm
from vllm_mods.building.outputs import engine as engine_output

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def containerd(tmp_path: Path) -> Iterator[Engine]:
    """Start a containerd of its own, and return its client."""
    need("containerd", "ctr", "runc")
    address = f"/tmp/vm-ctd-{os.getpid()}.sock"  # noqa: S108  (a socket's path has to be short)
    settings, log = tmp_path / "config.toml", tmp_path / "log"
    settings.write_text(
        f'version = 2\nroot = "{tmp_path}/root"\nstate = "{tmp_path}/state"\n'
        f'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n[grpc]\naddress = "{address}"\n'
    )
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["containerd", "--config", str(settings)], stdout=output, stderr=output
        )
    engine = Engine("ctr", {"CONTAINERD_ADDRESS": address}, log)
    wait(lambda: "Server" in engine("version", check=False), process, log)
    yield engine
    process.terminate()
    process.wait(30)


def test_the_new_layer_is_enough_for_a_store_that_has_the_base(
    containerd: Engine, paired_archive: Path, tmp_path: Path
) -> None:
    need("skopeo")
    base = tmp_path / "base.tar"
    subprocess.run(
        ["skopeo", "copy", "-q", f"docker-archive:{paired_archive}", f"oci-archive:{base}:{BASE}"],
        check=True,
    )
    layout = f"oci:{tmp_path}/base:{BASE}"
    subprocess.run(["skopeo", "copy", "-q", f"oci-archive:{base}", layout], check=True)
    containerd("image", "import", base)
    tool = Tool(library(tmp_path / "library", BASE))
    tool("lock", "small", "--base", layout)
    thin = tmp_path / "thin.tar"
    mods = vm.Library(tool.library)
    made = vm.build(mods, "small", base=layout, output=f"oci:{tmp_path}/layout")
    (image,) = made.images
    thin.write_bytes(engine_output.thin(image.built, made.tag))

    containerd("image", "import", thin)

    name = f"docker.io/library/{made.tag}"
    (listed,) = (line for line in containerd("image", "ls").splitlines() if line.startswith(name))
    assert str(image.built.manifest_digest) in listed
    show = ["python3", "-c", "import vllm.a; print(vllm.a.A)"]
    assert containerd("run", "--rm", name, "patched", *show) == "2"
    receipt = f"/{SITE}/.vllm-mods/receipt.json"
    assert '"patching"' in containerd(
        "run", "--rm", name, "told", "python3", "-c", f"print(open('{receipt}').read())"
    )
