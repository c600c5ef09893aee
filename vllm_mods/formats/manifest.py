"""mod.toml as data: dict in, ``Mod`` out, every problem found at once.

Problems carry their key path (``variant[0].overlay[1].path: …``). Nothing here
reads a file: the files of the mod have no bytes until ``library`` has read them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from vllm_mods.base import limits
from vllm_mods.base.errors import ManifestError
from vllm_mods.base.model import (
    Allowance,
    BinaryFile,
    Expectation,
    FetchedFile,
    ImageFile,
    Mod,
    OverlayFile,
    PatchFile,
    TemplateFile,
    TextReplacement,
    Variant,
    When,
)
from vllm_mods.base.untrusted import toml_of
from vllm_mods.formats import image_paths, platforms
from vllm_mods.formats.toml_table import NAME, SECRET, Table, in_words

SCHEMA = 1
# Patterns as text: `re` compiles one when a manifest first has that key.
_VERSION = r"v?\d+(\.\d+)*([-_.]?(a|b|rc|post|dev)\d*)*(\+[a-z0-9.]+)?\Z"
_REQUIREMENT = r"[A-Za-z0-9][\w.-]*\s*(\[[\w, .-]*\])?\s*([=<>!~;@(].*)?\Z"
_LIBRARY = r"(?!.*(?:^|/)\.\.(?:/|$))[^/\\\0][^\\\0]*\.so(?:\.\d+)*\Z"
_PACKAGE = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\Z"
_CAPABILITY = r"\d+\.\d\Z"
_URL = r"https://[^\s/@?#]+(?:[/?#]\S*)?\Z"
_SHA256 = r"[0-9a-f]{64}\Z"
_TABLES = ("overlay", "templates", "expects", "allow", "replace", "fetch", "binary")
_STATUSES = ("open", "merged", "rejected", "none")


def from_toml(data: bytes, where: str) -> Mod:
    """Read a manifest. Raises ``ManifestError`` with every problem."""
    read = from_dict(toml_of(data, where), where)
    _check_ranges(read, where)
    return read


def from_dict(table: Mapping[str, Any], where: str, *, checked: bool = False) -> Mod:
    """Read a manifest from a parsed table. Raises ``ManifestError`` with every problem.

    ``checked`` says that it is out of mod.lock, which is written from a manifest whose words were
    held against their patterns: not once more, since compiling these takes longer than the rest.
    """
    top = Table(table, "", [], checked=checked)
    top.check_schema(SCHEMA)
    upstream = top.table("upstream")
    evidence = top.table("evidence")
    serve = top.table("serve")
    hardware = top.table("hardware")
    variants = tuple(_variant(entry) for entry in top.tables("variant"))
    mod = Mod(
        name=top.match("name", NAME, "lower case letters, digits, '.', '_' and '-'", required=True),
        version=top.match("version", _VERSION, "a version such as 1.0.0", required=True),
        summary=top.get("summary", str, required=True) or "",
        license=top.get("license", str, required=True) or "",
        directory="",
        digest="",
        default=top.get("default", bool) or False,
        requires=top.strings("requires", NAME, "the name of a mod"),
        conflicts=top.strings("conflicts", NAME, "the name of a mod"),
        after=top.strings("after", NAME, "the name of a mod"),
        upstream_issues=upstream.strings("issues"),
        upstream_status=upstream.choice("status", _STATUSES, "none"),
        evidence=_evidence(evidence),
        serve_args=serve.strings("args"),
        env=_env(top.table("env")),
        compute_capability=hardware.strings(
            "compute_capability", _CAPABILITY, "a capability such as '9.0'"
        ),
        outside=top.paths("outside"),
        when=tuple(_when(entry) for entry in top.tables("when")),
        files=tuple(_file(entry) for entry in top.tables("files")),
        variants=variants,
    )
    if not variants and "variant" not in top.bad:
        top.problem("variant", "a mod needs at least one [[variant]]")
    paths = [file.path for file in mod.files]
    for repeated in sorted({path for path in paths if paths.count(path) > 1}):
        top.problem("files", f"two files are for {repeated}")
    ids = [variant.id for variant in variants]
    for repeated in sorted({name for name in ids if name and ids.count(name) > 1}):
        top.problem("variant", f"two variants have the id {repeated!r}")
    for key in ("requires", "conflicts", "after"):
        if mod.name and mod.name in getattr(mod, key):
            top.problem(key, "a mod cannot name itself")
    for table_ in (top, upstream, evidence, serve, hardware):
        table_.refuse_unknown()
    if top.problems:
        raise ManifestError(where, tuple(top.problems))
    return mod


def _check_ranges(read: Mod, where: str) -> None:
    """Have packaging read what only looked like a specifier; nothing of it needs doing twice."""
    from vllm_mods.base import versions  # noqa: PLC0415

    problems = []
    for i, variant in enumerate(read.variants):
        for key, spec in (("vllm", variant.vllm), ("version", variant.package_version)):
            try:
                versions.in_range("0", spec)
            except ValueError as error:
                problems.append(f"variant[{i}].{key}: {error}")
    if problems:
        raise ManifestError(where, tuple(problems))


def _evidence(table: Table) -> tuple[tuple[str, str], ...]:
    found = []
    for key in ("log", "instead", "behaviour"):
        if (text := table.get(key, str)) is not None:
            found.append((key, text))
            if key != "behaviour" and not table.checked:
                try:
                    re.compile(text)
                except (re.error, RecursionError, OverflowError) as error:
                    table.problem(key, f"not a regular expression: {error}")
    return tuple(found)


def _env(table: Table) -> tuple[tuple[str, str], ...]:
    for name in table.raw:
        if not table.checked and re.match(SECRET, name):
            table.problem(
                name,
                "looks like a secret, and a mod is passed on: give it when the container is started",
            )
    return tuple(table.variables().items())


def _file(entry: Table) -> ImageFile:
    path = entry.get("path", str, required=True) or ""
    if path and (why := image_paths.objection(path)):
        entry.problem("path", f"{path!r} {why}")
    mode = entry.match("mode", r"0[0-7]{3}\Z", "permission bits such as '0644'")
    found = ImageFile(
        path=path,
        source=entry.path("source", required=True),
        data=b"",
        mode=int(mode, 8) if re.fullmatch("[0-7]+", mode) else 0o644,
        replaces=entry.strings("replaces", _SHA256, "a sha256 in hexadecimal"),
    )
    entry.refuse_unknown()
    return found


def _when(table: Table) -> When:
    config, tensors = table.table("config"), table.table("tensors")
    found = When(
        config=tuple((key, _scalars(config, key)) for key in config.raw),
        tensors=tuple((key, tensors.strings(key)) for key in tensors.raw),
        fails=table.get("fails", str) or "",
    )
    if not (found.config or found.tensors) and not table.problems:
        table.problem(
            "", "names no key of config.json and no tensor: every checkpoint would be meant"
        )
    table.refuse_unknown()
    return found


def _scalars(table: Table, key: str) -> tuple[str | int | float | bool, ...]:
    found = table.get(key, list) or []
    for i, value in enumerate(found):
        if not isinstance(value, (str, int, float, bool)):
            table.problem(
                f"{key}[{i}]", f"expected text, a number, true or false, found {in_words(value)}"
            )
    return tuple(found)


def _replacement(entry: Table) -> TextReplacement:
    old, new = (entry.get(key, str, required=True) or "" for key in ("old", "new"))
    count = entry.get("count", int)
    if not old or old == new:
        entry.problem("old", "expected text, and other text than `new`")
    if count is not None and not 0 < count <= limits.HUNKS:
        entry.problem("count", f"expected a number from 1 to {limits.HUNKS}")
    return TextReplacement(entry.path("path", required=True), old, new, count or 1)


def _variant(table: Table) -> Variant:
    entries = {key: table.tables(key) for key in _TABLES}
    overlay = tuple(
        OverlayFile(
            source=entry.path("source", required=True),
            path=entry.path("path", required=True),
            data=b"",
            replaces=entry.strings("replaces", _SHA256, "a sha256 in hexadecimal"),
        )
        for entry in entries["overlay"]
    )
    templates = tuple(
        TemplateFile(
            name=entry.match("name", NAME, "the name of a template", required=True),
            file=entry.path("file", required=True),
            source="",
            data=b"",
        )
        for entry in entries["templates"]
    )
    expects = tuple(
        Expectation(
            path=entry.path("path", required=True),
            symbol=entry.get("symbol", str, required=True) or "",
            signature=entry.get("signature", str),
            base=entry.get("base", str),
        )
        for entry in entries["expects"]
    )
    allow = tuple(
        Allowance(
            code=entry.get("code", str, required=True) or "",
            scope=entry.get("scope", str) or "",
            reason=entry.get("reason", str, required=True) or "",
        )
        for entry in entries["allow"]
    )
    patches, root, optional = table.paths("patches"), table.path("root"), table.paths("optional")
    package = table.match("package", _PACKAGE, "the name of a distribution")
    variant = Variant(
        id=table.get("id", str, required=True) or "",
        vllm=table.specifier("vllm"),
        patches=tuple(PatchFile(one, b"", root, one in optional) for one in patches),
        overlay=overlay,
        templates=templates,
        python=table.strings("python", _REQUIREMENT, "a PEP 508 requirement"),
        expects=expects,
        allow=allow,
        replace=tuple(map(_replacement, entries["replace"])),
        fetch=tuple(
            FetchedFile(
                url=entry.match("url", _URL, "an https URL without a login", required=True),
                sha256=entry.match("sha256", _SHA256, "a sha256 in hexadecimal", required=True),
                source=entry.path("file", required=True),
                data=b"",
            )
            for entry in entries["fetch"]
        ),
        binary=tuple(
            BinaryFile(
                source=entry.path("source", required=True),
                path=entry.match("path", _LIBRARY, "the path of a library, NAME.so", required=True),
                sha256=entry.match("sha256", _SHA256, "a sha256 in hexadecimal", required=True),
                platform=entry.choice("platform", ("", *platforms.NAMES), ""),
                data=b"",
                replaces=entry.strings("replaces", _SHA256, "a sha256 in hexadecimal"),
            )
            for entry in entries["binary"]
        ),
        package=package if package != "vllm" else "",
        package_version=table.specifier("version") if package not in {"", "vllm"} else "",
    )
    if "version" in table.raw and not variant.package:
        table.problem("version", "is that of another package: say which, `package`")
    for unknown in sorted(set(optional) - set(patches)):
        table.problem("optional", f"{unknown!r} is none of its patches")
    for one, built in zip(variant.binary, entries["binary"], strict=True):
        if not one.platform and "platform" not in built.bad:
            built.problem("platform", "is required")
    builds = [(one.path, one.platform) for one in variant.binary]
    for path, platform in sorted({build for build in builds if builds.count(build) > 1}):
        table.problem("binary", f"two files are {path} for {platform}")
    brings = (patches, overlay, templates, variant.replace, variant.binary)
    if not any(brings) and not table.problems:
        table.problem("", "a variant needs patches, an overlay, replacements or templates")
    for entry in templates:
        if "/" in entry.file:
            table.problem("templates", f"{entry.file!r} is not a plain file name")
    for part in (table, *(entry for group in entries.values() for entry in group)):
        part.refuse_unknown()
    return variant
