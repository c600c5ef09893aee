"""How much of anything is read, and how long anything is waited for: every limit there is.

Each stands here once, under a name, with its unit and what it holds for. docs/security.md shows this table, and a
test goes over it and provokes each. Limits are looked up when they are needed: ``limits.PAGE``, never ``from … import``.
"""

import sys
from typing import Protocol, Self

from vllm_mods.base.errors import TreeError

_STEPS = ((30, "GiB"), (20, "MiB"), (10, "KiB"))


class Sizable(Protocol):
    """What bytes are read from."""

    def read(self, size: int, /) -> bytes:
        """Return at most ``size`` bytes."""


class Limit(int):
    """The most there may be: a number, with its ``unit`` and ``what`` it is the most of."""

    unit: str
    what: str

    def __new__(cls, value: int, unit: str, what: str) -> Self:
        """Make one; ``unit`` is ``bytes``, ``letters``, ``seconds`` or what is counted."""
        limit = super().__new__(cls, value)
        limit.unit, limit.what = unit, what
        return limit

    def __str__(self) -> str:
        """Return it as people read it: ``64 MiB``, ``5,000 files``."""
        if self.unit == "bytes":
            for bits, name in _STEPS:
                if self >= 1 << bits and not self % (1 << bits):
                    return f"{self >> bits} {name}"
        return f"{int(self):,} {self.unit}"


def bounded(file: Sizable, most: Limit, what: str) -> bytes:
    """Read a file to its end. Raises ``TreeError`` if there is more of it than ``most``."""
    data = file.read(most + 1)
    if len(data) > most:
        why = f"{what} has more than {most}, the limit for {most.what}"
        raise TreeError(why, hint=f"ls -la {what}  # is this the right file?")
    return data


# What comes from a server.
PAGE = Limit(16 << 20, "bytes", "a page of a package index")  # PyPI's of vLLM takes 0.3 MB
LINKS = Limit(50_000, "links", "a page of a package index")
TAG = Limit(64 << 10, "letters", "a tag or a comment in a page of a package index")
SPAN = Limit(512 << 20, "bytes", "one part of a remote file")
DOWNLOAD = Limit(16 << 30, "bytes", "a file that is fetched whole")
ANSWER = Limit(16 << 20, "bytes", "a manifest, a configuration or a token from a registry")
REQUESTS = Limit(10_000, "pull requests", "a repository that `keep` looks through")
REFUSAL = Limit(1 << 20, "bytes", "a refusal or a redirect")
ANSWER_SECONDS = Limit(300, "seconds", "an answer that is not a file; all tries together")
SPAN_SECONDS = Limit(900, "seconds", "one part of a remote file; all tries together")
DOWNLOAD_SECONDS = Limit(6 * 3600, "seconds", "a whole file or a layer; all tries together")
SILENT_SECONDS = Limit(60, "seconds", "silence of a registry")
PAUSE_SECONDS = Limit(10, "seconds", "a pause between tries, even if the server asks for more")
REDIRECTS = Limit(10, "redirects", "one request to a server")
TOOL_SECONDS = Limit(300, "seconds", "one command of docker or podman")
ENGINE_SECONDS = Limit(120, "seconds", "silence of a container engine")

# Archives.
UNPACKED_FILE = Limit(512 << 20, "bytes", "one file of a tree or an archive, unpacked")
ZIP_DIRECTORY = Limit(64 << 20, "bytes", "the directory of a zip")  # of vLLM's wheel: 650 KB
SDIST = Limit(1 << 30, "bytes", "an sdist, unpacked")  # vLLM's takes 60 MiB
WHEEL = Limit(4 << 30, "bytes", "all that a mod's wheel unpacks to")
MOD_BYTES = Limit(512 << 20, "bytes", "a mod, and each of its files")
MOD_FILES = Limit(5_000, "files", "a mod's folder or zip that is imported")
RECORDED_BYTES = Limit(1 << 30, "bytes", "the files of a recorded command, in memory")
RECORDED_FILES = Limit(200_000, "files", "the files of a recorded command")
RECORDED_MEMORY = Limit(8 << 30, "bytes", "memory for all processes of a recorded command")
RECORDED_OUTPUT = Limit(64 << 20, "bytes", "the output of a recorded command")
RECORDED_PROCESSES = Limit(1_000, "processes", "a recorded command, at the same time")
LIBRARY = Limit(512 << 20, "bytes", "someone else's library")
LIBRARY_FILES = Limit(20_000, "files", "someone else's library")
CLONE = Limit(2 << 30, "bytes", "one pack of a git repository that is fetched")
GIT_MEMORY = Limit(4 << 30, "bytes", "memory for one command of git")
CLONE_SECONDS = Limit(900, "seconds", "one command of git, with its server's answer")
GIT_OUTPUT = Limit(64 << 20, "bytes", "what one command of git prints")  # vLLM's files: 0.5 MB
TAR_MEMBERS = Limit(500_000, "members", "an sdist")
# A pattern in older Pythons takes time by the square of a header's length (CVE-2024-6232).
_SQUARE = sys.version_info < (3, 11, 10) or (3, 12) <= sys.version_info < (3, 12, 6)
TAR_HEADER = Limit(8 << 10 if _SQUARE else 1 << 20, "bytes", "an extended header of a tar's member")

# Images.
LAYER = Limit(256 << 30, "bytes", "a layer, unpacked")
LAYER_FILES = Limit(5_000_000, "files", "a layer")
DOCUMENT = Limit(16 << 20, "bytes", "a manifest or configuration of an image")
INDEXES = Limit(4, "indexes", "an image, one inside the other")
LINKS_FOLLOWED = Limit(40, "links", "the path to one file of an image")

# What lies in a tree, and in a library.
RECEIPT = Limit(64 << 20, "bytes", "a receipt, a lock, a journal, a RECORD or a command's answer")
MANIFEST = Limit(1 << 20, "bytes", "a file in TOML")
DOTS = Limit(1_000, "dots", "a line of TOML")  # tomllib takes time by the square of them
LIBRARY_TEXT = Limit(16 << 20, "bytes", "a template or a JSON file of a library")
PLUGIN = Limit(64 << 20, "bytes", "a plugin's Python and metadata")
SIGNATURE = Limit(64 << 10, "bytes", "a signature")
PATCH = Limit(4 << 20, "bytes", "all patches of a variant, or a diff that a mod is made of")
HUNKS = Limit(2_000, "hunks", "all patches of one variant")
NESTING = Limit(100, "levels", "TOML, YAML and conversations")
RECIPE_VALUES = Limit(10_000, "values", "a recipe; an alias counts each time it is used")
RECIPE = Limit(256 << 10, "bytes", "a recipe")
# LibCST has no limit of its own; no file of vLLM is past 30. It nests operands and dotted names too.
PYTHON_NESTING = Limit(100, "levels", "Python that LibCST reads")
PYTHON_OPERANDS = Limit(400, "operands", "one expression with `and` in Python that LibCST reads")
TRIAL_SECONDS = Limit(30, "seconds", "parsing Python in another process")
STDERR = Limit(256 << 10, "bytes", "the output of a failed program, or the notes of a recorded one")
SERVE_COMMAND = Limit(128 << 10, "letters", "a serve command")
TEMPLATE = Limit(1 << 20, "bytes", "a chat template")
PROMPT = Limit(16 << 20, "letters", "all prompts that a chat template makes in one run")
TEMPLATE_SECONDS = Limit(20, "seconds", "computing all prompts of a chat template")
TEMPLATE_MEMORY = Limit(1 << 30, "bytes", "memory for a chat template, or for a release's parsers")
PARSER_SECONDS = Limit(120, "seconds", "one process that runs a release's parsers")
PARSER_OUTPUT = Limit(64 << 20, "bytes", "the answers of a release's parsers")

# Checkpoints.
CHECKPOINT_CONFIG = Limit(4 << 20, "bytes", "the config.json of a model")
CHECKPOINT_INDEX = Limit(64 << 20, "bytes", "the index of a model's safetensors")
SAFETENSORS_HEADER = Limit(100_000_000, "bytes", "the header of a safetensors file")
SHARDS = Limit(2_000, "files", "the safetensors of a model")
TENSORS = Limit(2_000_000, "tensors", "a model")

# What a server said.
LOG = Limit(64 << 20, "bytes", "a server's log, from its beginning")
LOG_LINE = Limit(8 << 10, "letters", "a line of a log")
IMPORT_SECONDS = Limit(60, "seconds", "asking a command's Python which vLLM it imports")
START_SECONDS = Limit(1800, "seconds", "waiting until a container or a server serves")
BENCH_SECONDS = Limit(3600, "seconds", "one pass of `vllm bench serve`")
EVIDENCE_SECONDS = Limit(20, "seconds", "looking for one mod's evidence")

# Work.
PLACES = Limit(1_000, "places", "the text of one hunk; with more, no place is chosen")
EXPLAINED = Limit(50, "hunks", "one patch; for these, the most similar place is looked for")
EQUAL_PAIRS = Limit(100_000, "pairs", "equal lines that a merge or a diff weighs")


def table() -> dict[str, Limit]:
    """Return every limit by its name, in the order above."""
    return {name: one for name, one in globals().items() if isinstance(one, Limit)}
