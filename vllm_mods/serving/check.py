"""A serve command and its environment against one tree: everything that is wrong with them.

Pure but for the tree it reads. What only a run can tell is a note, with its reason.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Level, ModPlan
from vllm_mods.base.untrusted import json_of
from vllm_mods.serving import command, envs, flags, registry, template, values
from vllm_mods.serving.command import Use
from vllm_mods.serving.faults import ServeFault, note, of
from vllm_mods.serving.flags import Flag
from vllm_mods.serving.shape import FlagShape, KnownFlags
from vllm_mods.templates import client_table

# How many flags are named that a word may stand for.
_SHOWN = 4
# The config class that is made for some models only.
_PERHAPS = "MultiModalConfig"
_TOOL_PARSER, _AUTO_CHOICE = "--tool-call-parser", "--enable-auto-tool-choice"
# Harmony's calls (gpt-oss) are read whatever else is given; the others name no parser.
_NEEDS_NO_CHOICE = {"openai", "None", ""}
_DEPRECATED = re.compile(r"\b(?:is|are|was|been) deprecated\b|^\W*deprecated\b", re.IGNORECASE)


class ServeAnswer(NamedTuple):
    """What is wrong with a command, and how many flags it ``used``."""

    faults: tuple[ServeFault, ...]
    used: int

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong; notes do not count."""
        return all(fault.level is Level.NOTE for fault in self.faults)


def check(known: KnownFlags, serving: template.Serving) -> ServeAnswer:
    """Hold a command against a tree with its mods in. Raises ``TreeError`` for one unreadable."""
    checker = _Checker(known, serving)
    return ServeAnswer(tuple(dict.fromkeys(checker.faults())), len(checker.parsed.uses))


class _Checker:
    def __init__(self, known: KnownFlags, serving: template.Serving) -> None:
        self.known = known
        self.sources = known.sources
        self.shape = known.shape
        self.serving = serving
        self.parsed = command.parse(serving.argv, known)
        self.version = known.sources.tree.version or "this version"
        self.chat_template = [u for u in self.parsed.uses if u.name == "--chat-template"]
        self.served = {
            mod: (file.file, opened, opened.about)
            for mod, file in template.served(self.chat_template, serving.mods)
            if (opened := template.open_served(serving.library, file)).about
        }

    def faults(self) -> Iterator[ServeFault]:
        for name, why in self.serving.missing:
            message = f"could not be read, so what it adds is not checked: {why}"
            yield note(FindingCode.MOD_UNREAD, name, message)
        for name, text in self.serving.brought:
            yield note(FindingCode.MOD_BRINGS, name, text)
        for use in self.parsed.uses:
            yield from self.use(use)
        yield from self.repeated()
        yield from self.words()
        yield from self.requirements()
        uses = self.chat_template
        yield from template.faults(self.sources.tree, uses, self.serving)
        for name, _, about in self.served.values():
            yield from template.term_faults(self.parsed.uses, name, about)
        if not self.served:
            named = [u.values[0] for u in self.parsed.uses if u.name == "--model" and u.values]
            model = self.parsed.model or next(iter(named), "")
            own = next((value for use in uses for value in use.values), "")
            yield from template.parser_faults(self.parsed.uses, model, own)
        if envs.renders_with_minijinja(self.sources, self.serving.env):
            yield from template.engine_faults(uses, self.serving)
        for mod in self.serving.mods:
            yield from self.mod(mod)
        yield from envs.faults(self.sources, self.serving)
        for text in dict.fromkeys(self.serving.unknown):
            message = "contains shell syntax, so its value at run time was not checked"
            yield note(FindingCode.SHELL, text, message)
        version, library = self.sources.tree.version, self.serving.library
        for name, opened, _ in self.served.values():
            lost = client_table.notes(library, opened, version) if version and library else ()
            yield from (note(FindingCode.CLIENT_LOSES, name, text) for text in lost)

    def use(self, use: Use) -> Iterator[ServeFault]:
        if use.flag is None:
            yield self.no_flag(use)
            return
        shape = self.shape(use.flag)
        if use.shortened:
            message = f"stands for {use.shortened}: write the full name"
            yield note(FindingCode.FLAG_SHORTENED, use.typed, message)
        yield from self.deprecated(use, use.flag, shape)
        if use.keys:
            yield from self.key(use, shape)
        elif not shape.takes_value:
            if use.attached:
                message = f"takes no value, but has {use.values[0]!r}"
                yield ServeFault(FindingCode.VALUE_UNEXPECTED, use.typed, message)
        elif not use.values and shape.nargs not in {"?", "*"}:
            message = f"takes {_how_many(shape)}; none follows"
            yield ServeFault(FindingCode.VALUE_MISSING, use.typed, message)
        else:
            for value in use.values:
                if not self.serving.fills_in(value):
                    yield from self.value(use, use.flag, shape, value)

    def no_flag(self, use: Use) -> ServeFault:
        if use.candidates:
            names = " or ".join(use.candidates[:_SHOWN])
            if len(use.candidates) > _SHOWN:
                names += f" or {len(use.candidates) - _SHOWN} others"
            message = f"could mean {names}: write the full name"
            return ServeFault(FindingCode.FLAG_AMBIGUOUS, use.typed, message)
        head = use.typed.partition(".")[0]
        is_off = head.startswith("--no-")
        near = values.nearest(f"--{head[5:]}" if is_off else head, self.known.by_name)
        if near and is_off:  # only a switch can be
            is_switch = self.shape(self.known.by_name[near]).kind == "switch"
            near = f"--no-{near.removeprefix('--')}" if is_switch else ""
        meant = f"; did you mean {near}?" if near else ""
        if self.serving.missing:
            meant += f" (unless {', '.join(name for name, _ in self.serving.missing)} adds it)"
        message = f"vLLM {self.version} has no such flag{meant}"
        return ServeFault(FindingCode.FLAG_UNKNOWN, use.typed, message, near)

    def deprecated(self, use: Use, flag: Flag, shape: FlagShape) -> Iterator[ServeFault]:
        given = flag.given
        stated = flags.constant(self.sources, given.get("help"))
        text = stated if isinstance(stated, str) else shape.field.doc if shape.field else ""
        sentences = re.split(r"(?<=[.!])\s+", " ".join(text.split()))
        why = next((one for one in sentences if _DEPRECATED.search(one)), "")
        if why or flags.constant(self.sources, given.get("deprecated")) is True:
            message = f"is deprecated in vLLM {self.version}: {why}".rstrip(": ")
            yield note(FindingCode.FLAG_DEPRECATED, use.typed, message)

    def key(self, use: Use, shape: FlagShape) -> Iterator[ServeFault]:
        """Check ``--flag.key value``."""
        if shape.kind not in {"json", "json-or-text"}:
            message = f"takes {_how_many(shape)}, not keys after a dot"
            yield ServeFault(FindingCode.JSON_VALUE, use.typed, message)
        elif not use.values:
            yield ServeFault(FindingCode.VALUE_MISSING, use.typed, "takes a value; none follows")
        elif shape.config is not None and not self.serving.fills_in(use.values[0]):
            wrong = values.object_problems(self.sources, shape.config, command.as_object(use))
            yield from of(use.typed, wrong)

    def value(self, use: Use, flag: Flag, shape: FlagShape, value: str) -> Iterator[ServeFault]:
        wrong = list(values.problems(self.sources, shape, value))
        if flag.name == "--lora-modules":
            wrong += values.adapter_problems(self.sources, shape, value)
        perhaps = shape.cls is not None and shape.cls.node.name == _PERHAPS
        for fault in of(use.typed, wrong):
            if perhaps and fault.code == FindingCode.VALUE_RANGE:
                why = "vLLM refuses this value for models with images or sound, and ignores it for others"
                yield note(fault.code, fault.subject, f"{fault.message}; {why}")
            else:
                yield fault
        if wrong or (shape.optional and value in {"", "None"}):
            return
        names = registry.offered(self.sources, flag, shape)
        if names is not None and value and not names.has(value):
            yield self.unlisted(use, value, names)
        if keys := registry.keys_read(shape):
            yield from self.unread(use, value, keys)

    def unlisted(self, use: Use, value: str, names: registry.Offered) -> ServeFault:
        plugin = next((u.typed for u in self.parsed.uses if u.name.endswith("-plugin")), "")
        why = names.open or (f"{plugin} may register it" if plugin else "")
        if not why and re.search(r"[A-Za-z_]\w*\.[A-Za-z_]|[/:]", value):
            why = "it names your own code or file"
        shown = list(dict.fromkeys(name for name in names.names if name))
        (fault,) = of(use.typed, values.choice_problems(value, shown, why))
        may_be = "" if fault.level is Level.NOTE else " (unless a plugin adds it)"
        return fault._replace(message=fault.message + may_be)

    def unread(self, use: Use, value: str, keys: tuple[str, ...]) -> Iterator[ServeFault]:
        data = json_of(value)
        for key in data if isinstance(data, dict) else ():
            if key in keys:
                continue
            near = values.nearest(key, keys)
            if key in registry.request_keys(self.sources):
                message = f"{key!r} has no effect here: vLLM reads only {', '.join(keys)}"
                yield note(FindingCode.JSON_KEY_UNUSED, use.typed, message)
            else:
                meant = f"did you mean {near!r}? " if near else ""
                message = f"vLLM does not read {key!r}: {meant}it reads {', '.join(keys)}"
                yield ServeFault(FindingCode.JSON_KEY, use.typed, message, near)

    def repeated(self) -> Iterator[ServeFault]:
        whole = Counter(u.name for u in self.parsed.uses if u.flag and not u.keys)
        by_key = {u.name for u in self.parsed.uses if u.keys}
        for name, count in whole.items():
            if name in by_key:
                message = "is given as one JSON object and also by single keys; vLLM ignores the object and takes only the keys"
                yield ServeFault(FindingCode.FLAG_SHADOWED, name, message)
            elif count > 1 and not self.shape(self.known.by_name[name]).append:
                yield note(FindingCode.FLAG_TWICE, name, f"is given {count} times; the last counts")

    def words(self) -> Iterator[ServeFault]:
        dashed: Use | str | None = ""  # the flag in front of the last word with a wrong dash
        for word, behind in self.parsed.loose:
            if command.looks_like_flag(word):
                message = "begins with a typographic dash, so it is not read as a flag"
                meant = f"--{word.lstrip(word[0]).lstrip('-')}"
                yield ServeFault(FindingCode.DASH, word, message, meant)
                dashed = behind
            elif dashed is behind or self.serving.fills_in(word):
                continue  # meant as the value of that one, or there is a note on it already
            elif not word.strip():
                message = (
                    "is a separate word, because a blank follows the backslash at a line's end"
                )
                yield ServeFault(FindingCode.ARGUMENT_EXTRA, repr(word), message)
            elif behind is None or behind.flag is None or self.shape(behind.flag).takes_value:
                yield ServeFault(FindingCode.ARGUMENT_EXTRA, word, "is neither a flag nor a value")
            else:
                message = f"takes no value, but is followed by {word!r}"
                yield ServeFault(FindingCode.VALUE_UNEXPECTED, behind.typed, message)
        model = any(u.name == "--model" for u in self.parsed.uses)
        if model and self.parsed.model is not None:
            message = f"the model is already {self.parsed.model!r}; vLLM takes only one"
            yield ServeFault(FindingCode.ARGUMENT_EXTRA, "--model", message)
        elif model:
            message = "is deprecated; write the model as the first word after `vllm serve`"
            yield note(FindingCode.FLAG_DEPRECATED, "--model", message)
        if any(u.name == "--config" for u in self.parsed.uses):
            yield note(FindingCode.CONFIG_FILE, "--config", "flags in this file are not checked")

    def given(self, name: str) -> bool:
        """Tell whether a flag is in the command, and not to be turned off."""
        return any(u.name == name and not u.negated for u in self.parsed.uses)

    def requirements(self) -> Iterator[ServeFault]:
        """Find flags that need another one: vLLM says ``if args.a and not args.b: raise``, or does not use them."""
        parser = next((u for u in self.parsed.uses if u.name == _TOOL_PARSER and u.values), None)
        if parser and parser.values[0] not in _NEEDS_NO_CHOICE and not self.given(_AUTO_CHOICE):
            message = f"has no effect without {_AUTO_CHOICE}: vLLM refuses requests with tools whose `tool_choice` is `auto`, the default"
            yield ServeFault(FindingCode.FLAG_UNUSED, parser.typed, message, _AUTO_CHOICE)
        ifs = (n for n in self.sources.nodes(self.known.entry.path) if isinstance(n, ast.If))
        tests = (one.test for one in ifs if any(isinstance(n, ast.Raise) for n in one.body))
        for test in map(ast.unparse, tests):
            if match := re.fullmatch(r"args\.(\w+) and \(?not args\.(\w+)\)?", test):
                first, second = (f"--{name.replace('_', '-')}" for name in match.groups())
                if self.given(first) and not self.given(second):
                    yield ServeFault(FindingCode.FLAG_ALONE, first, f"needs {second}, too")

    def mod(self, mod: ModPlan) -> Iterator[ServeFault]:
        name = mod.mod.name
        if not mod.verdict.ok:
            why = f": {mod.findings[0].message}" if mod.findings else ""
            yield ServeFault(FindingCode.MOD_VERDICT, name, f"does not apply: `{mod.verdict}`{why}")
            return
        wanted = command.parse(mod.mod.serve_args, self.known)
        for want in wanted.uses:
            shown = " ".join((want.typed, *want.values))
            if want.flag is None:
                message = f"needs {shown}, but vLLM {self.version} has no such flag"
                yield ServeFault(FindingCode.MOD_FLAG_UNKNOWN, name, message)
                continue
            same = [u for u in self.parsed.uses if u.flag is want.flag]
            if not same:
                message = f"needs {shown}, which is missing"
                yield ServeFault(FindingCode.MOD_FLAG_ABSENT, name, message, shown)
            elif name in self.served and want.name in template.fitting(self.served[name][2]):
                continue  # held against what its template goes with
            elif (same[-1].values, same[-1].negated) != (want.values, want.negated):
                given = " ".join((same[-1].typed, *same[-1].values))
                message = f"is meant for {shown}, but the command has {given}"
                yield note(FindingCode.MOD_FLAG_DIFFERS, name, message)


def _how_many(shape: FlagShape) -> str:
    if not shape.takes_value:
        return "no value"
    several = {"+": "one value or more", "*": "values", "?": "a value or none"}
    return several.get(shape.nargs or "", "a value")
