"""One target in a process of its own, under atheris. Called by ``python -m fuzz``, with its arguments."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import random
import resource
import shutil
import sys
import tempfile
import time

MEMORY = 3 << 30
_RARELY = 64
"""An input that one mutation in so many starts from is a seed, so that none is lost sight of."""


def main() -> None:  # noqa: C901, PLR0915  (nothing of it has a life outside)
    """Run until the time is over; say how many inputs there were, and keep those that broke."""
    import atheris

    name, seconds, findings = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    with atheris.instrument_imports(include=["vllm_mods", "tomllib", "zipfile", "tarfile"]):
        import vllm_mods

        for module in pkgutil.walk_packages(vllm_mods.__path__, "vllm_mods."):
            if not module.name.startswith(
                ("vllm_mods.cli", "vllm_mods._data", "vllm_mods.__main__")
            ):
                importlib.import_module(module.name)
    from fuzz import contract, mutations
    from fuzz.targets import TARGETS

    target = TARGETS[name]
    seeds = target.seeds()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    watch = contract.Watch()
    count = 0
    end = time.monotonic() + seconds
    found: dict[str, str] = {}
    scratch = os.path.realpath(tempfile.mkdtemp(prefix="fuzz-"))
    inner, tempfile.tempdir = (os.path.join(scratch, name) for name in ("input", "tmp"))
    os.mkdir(inner)
    os.mkdir(tempfile.tempdir)

    def one(data: bytes) -> None:
        nonlocal count
        if time.monotonic() > end:
            sys.stdout.write(json.dumps({"count": count, "found": found}) + "\n")
            sys.stdout.flush()
            shutil.rmtree(scratch)
            os._exit(0)  # libFuzzer has no other way to end without saying that something broke
        count += 1
        try:
            contract.hold(target, data, inner, watch, seconds=contract.SECONDS)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            kind = contract.where(error)
            if kind not in found:
                found[kind] = str(error)[:200]
                place = os.path.join(findings, f"{name}-{len(found)}")
                with open(place, "wb") as file:
                    file.write(data)
                with open(f"{place}.txt", "w", encoding="utf-8", errors="replace") as file:
                    file.write(contract.told(error))

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if rng.randrange(_RARELY) == 0:
            data = rng.choice(seeds)
        made = mutations.mutated(data, rng) if rng.randrange(2) else atheris.Mutate(data, most)
        made = mutations.summed(made) if b"ustar" in made else made
        return made if len(made) <= most else data

    corpus = os.path.join(scratch, "corpus")
    os.mkdir(corpus)
    for number, data in enumerate(seeds):
        with open(os.path.join(corpus, str(number)), "wb") as file:
            file.write(data)
    atheris.Setup(
        [
            sys.argv[0], corpus, "-timeout=20", "-max_len=200000",
            "-rss_limit_mb=0", "-print_final_stats=0", "-verbosity=0", "-use_value_profile=0",
            f"-artifact_prefix={findings}/{name}-",
        ],
        one,
        custom_mutator=mutate,
    )  # fmt: skip
    atheris.Fuzz()


if __name__ == "__main__":
    main()
