"""mod.toml as data: dict in, ``Mod`` out, every problem found at once.

Problems carry their key path (``variant[0].overlay[1].path: …``). Nothing here
reads a file: the files of the mod have no bytes until ``library`` has read them.
"""

import re

from vllm_mods.base import limits, model, secrets
from vllm_mods.base.untrusted import toml_of
from vllm_mods.base.versions import has_end
from vllm_mods.formats import image_paths, platforms
from vllm_mods.formats.schema import NAME, NAME_IN_WORDS, Scalar, Table, reading, repeated

SCHEMA = 1
_VERSION = r"v?\d+(\.\d+)*([-_.]?(a|b|rc|post|dev)\d*)*(\+[a-z0-9.]+)?\Z"
_REQUIREMENT = r"[A-Za-z0-9][\w.-]*\s*(\[[\w, .-]*\])?\s*([=<>!~;@(].*)?\Z"
_LIBRARY = r"(?!.*(?:^|/)\.\.(?:/|$))[^/\\\0][^\\\0]*\.so(?:\.\d+)*\Z"
_PACKAGE = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\Z"
_CAPABILITY = r"\d+\.\d\Z"
_URL = r"https://[^\s/@?#]+(?:[/?#]\S*)?\Z"
_SHA256 = (r"[0-9a-f]{64}\Z", "a sha256 in hexadecimal")
_STATUSES = ("open", "merged", "rejected", "none")


def from_toml(data: bytes, where: str) -> model.Mod:
    """Read a manifest. Raises ``ManifestError`` with every problem."""
    with reading(toml_of(data, where), where, SCHEMA) as top:
        return _mod(top)


def _mod(top: Table) -> model.Mod:
    sections = [top.table(key) for key in ("upstream", "evidence", "serve", "hardware")]
    upstream, evidence, serve, hardware = sections
    variants = top.rows("variant", _variant)
    mod = model.Mod(
        name=top.match("name", NAME, NAME_IN_WORDS, required=True),
        version=top.match("version", _VERSION, "a version such as 1.0.0", required=True),
        summary=top.text("summary", required=True),
        license=top.text("license", required=True),
        directory="",
        digest="",
        default=top.get("default", bool) or False,
        vllm=top.specifier("vllm") if "vllm" in top.raw else "",
        until=top.text("until"),
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
        when=top.rows("when", _when),
        files=top.rows("files", _file),
        variants=variants,
    )
    if has_end(mod.vllm) and not mod.until:
        top.problem("vllm", "it has an upper bound: give the reason as until = '…'")
    if mod.until and not has_end(mod.vllm):
        top.problem("until", "gives the reason for the upper bound of `vllm`, but `vllm` has none")
    if not variants and "variant" not in top.bad:
        top.problem("variant", "a mod needs at least one [[variant]]")
    for path in repeated(file.path for file in mod.files):
        top.problem("files", f"two files have the path {path}")
    for name in repeated(variant.id for variant in variants if variant.id):
        top.problem("variant", f"two variants have the id {name!r}")
    for key in ("requires", "conflicts", "after"):
        if mod.name and mod.name in getattr(mod, key):
            top.problem(key, "a mod cannot name itself here")
    for section in sections:
        section.refuse_unknown()
    return mod


def _evidence(table: Table) -> tuple[tuple[str, str], ...]:
    patterns = []
    for key in ("log", "instead", "behaviour"):
        if (text := table.get(key, str)) is not None:
            patterns.append((key, text))
            if key != "behaviour":
                try:
                    re.compile(text)
                except (re.error, RecursionError, OverflowError) as error:
                    table.problem(key, f"not a regular expression: {error}")
    return tuple(patterns)


def _env(table: Table) -> tuple[tuple[str, str], ...]:
    why = "looks like a secret, and mods are published: pass it when the container starts"
    for name in filter(secrets.NAMED.match, table.raw):
        table.problem(name, why)
    return tuple(table.variables().items())


def _file(entry: Table) -> model.ImageFile:
    path = entry.text("path", required=True)
    if path and (why := image_paths.objection(path)):
        entry.problem("path", f"{path!r} {why}")
    mode = entry.match("mode", r"0[0-7]{3}\Z", "permission bits such as '0644'")
    return model.ImageFile(
        path=path,
        source=entry.path("source", required=True),
        data=b"",
        mode=int(mode, 8) if re.fullmatch("[0-7]+", mode) else 0o644,
        replaces=entry.strings("replaces", *_SHA256),
    )


def _when(table: Table) -> model.When:
    config, tensors = table.table("config"), table.table("tensors")
    when = model.When(
        config=tuple((key, _scalars(config, key)) for key in config.raw),
        tensors=tuple((key, tensors.strings(key)) for key in tensors.raw),
        fails=table.text("fails"),
    )
    if not (when.config or when.tensors) and not table.problems:
        table.problem("", "names no key of config.json and no tensor, so it matches every model")
    return when


def _scalars(table: Table, key: str) -> tuple[Scalar, ...]:
    values = table.get(key, list) or []
    return tuple(table.scalar(f"{key}[{i}]", value) for i, value in enumerate(values))


def _replacement(entry: Table) -> model.TextReplacement:
    old, new = (entry.text(key, required=True) for key in ("old", "new"))
    count = entry.get("count", int)
    if not old or old == new:
        entry.problem("old", "expected text that differs from `new`")
    if count is not None and not 0 < count <= limits.HUNKS:
        entry.problem("count", f"expected a number from 1 to {limits.HUNKS}")
    return model.TextReplacement(entry.path("path", required=True), old, new, count or 1)


def _overlay(entry: Table) -> model.OverlayFile:
    return model.OverlayFile(
        source=entry.path("source", required=True),
        path=entry.path("path", required=True),
        data=b"",
        replaces=entry.strings("replaces", *_SHA256),
    )


def _template(entry: Table) -> model.TemplateFile:
    name = entry.match("name", NAME, "the name of a template", required=True)
    file = entry.path("file", required=True)
    if "/" in file:
        entry.problem("file", f"{file!r} is not a plain file name")
    return model.TemplateFile(name, file, source="", data=b"")


def _allowance(entry: Table) -> model.Allowance:
    return model.Allowance(
        code=entry.text("code", required=True),
        scope=entry.text("scope"),
        reason=entry.text("reason", required=True),
    )


def _fetched(entry: Table) -> model.FetchedFile:
    return model.FetchedFile(
        url=entry.match("url", _URL, "an https URL without a login", required=True),
        sha256=entry.match("sha256", *_SHA256, required=True),
        source=entry.path("file", required=True),
        data=b"",
    )


def _binary(entry: Table) -> model.BinaryFile:
    return model.BinaryFile(
        source=entry.path("source", required=True),
        path=entry.match("path", _LIBRARY, "the path of a library, NAME.so", required=True),
        sha256=entry.match("sha256", *_SHA256, required=True),
        platform=entry.choice("platform", platforms.NAMES, "", required=True),
        data=b"",
        replaces=entry.strings("replaces", *_SHA256),
    )


def _variant(table: Table) -> model.Variant:
    patches, optional = table.paths("patches"), table.paths("optional")
    root = table.path("root").strip("/")
    package = table.match("package", _PACKAGE, "the name of a distribution")
    variant = model.Variant(
        id=table.text("id", required=True),
        vllm=table.specifier("vllm"),
        patches=tuple(model.PatchFile(one, b"", root, one in optional) for one in patches),
        overlay=table.rows("overlay", _overlay),
        templates=table.rows("templates", _template),
        python=table.strings("python", _REQUIREMENT, "a PEP 508 requirement"),
        allow=table.rows("allow", _allowance),
        replace=table.rows("replace", _replacement),
        fetch=table.rows("fetch", _fetched),
        binary=table.rows("binary", _binary),
        package=package if package != "vllm" else "",
        package_version=table.specifier("version") if package not in {"", "vllm"} else "",
    )
    if "version" in table.raw and not variant.package:
        table.problem("version", "is the version of another package: name it in `package`")
    for unknown in sorted(set(optional) - set(patches)):
        table.problem("optional", f"{unknown!r} is not one of its patches")
    for path, platform in repeated((one.path, one.platform) for one in variant.binary):
        table.problem("binary", f"two files are named {path} for {platform}")
    brings = (patches, variant.overlay, variant.templates, variant.replace, variant.binary)
    if not any(brings) and not table.problems:
        table.problem("", "a variant needs patches, an overlay, replacements or templates")
    return variant
