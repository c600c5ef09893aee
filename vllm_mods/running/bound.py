"""A file that a container reads at a place of its own: its bytes are kept in the cache, by their digest, and bound read-only."""

import os
import tempfile

from vllm_mods.base.cache import cache_folder
from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import refusing_to_write
from vllm_mods.library.writing import check_own
from vllm_mods.running.service import Mount, check_mounts


def bind(data: bytes, target: str, mode: int = 0o644) -> Mount:
    """Keep bytes and return how they are bound, readable whoever the container runs as. Raises ``Refused`` where they cannot be kept."""
    mode = mode & 0o777 | 0o444
    folder = os.path.join(cache_folder(os.environ), "bound")
    mount = Mount(os.path.join(folder, f"{sha256(data)}-{mode:o}"), target, read_only=True)
    named = mount._replace(target=target.replace(",", "_"))  # tuned configurations have commas
    check_mounts((named,), "VLLM_MODS_CACHE=DIR  # another folder for the cache")
    with refusing_to_write(folder):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        check_own(folder)
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            file.write(data)
            os.fchmod(file.fileno(), mode)
        os.replace(file.name, mount.source)  # what another container has bound stays as it is
    return mount
