"""A command line against the flags of a tree: which word is a flag, which is whose value.

Words are taken as vLLM's parser takes them: dashes or underscores, ``--flag=value``, short forms,
beginnings of a name that only one flag has, ``--no-flag``, and ``--flag.key value`` for one key of a
JSON value. It goes on where that parser would stop at the first error.
"""

import contextlib
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from vllm_mods.base.errors import UsageError
from vllm_mods.base.untrusted import json_of
from vllm_mods.serving.flags import Flag
from vllm_mods.serving.shape import KnownFlags

_HELP = frozenset({"-h", "--help"})
_NUMBER = re.compile(r"-\d+$|-\d*\.\d+$")
_SERVER = "vllm.entrypoints.openai.api_server"
# What word processors and forums make of `-`.
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"


class Use(NamedTuple):
    """One flag in a command.

    ``typed`` is the flag as it stands there, without a value; ``keys`` are those behind its first dot. ``flag`` is
    ``None`` where there is no such flag, and then ``candidates`` are the names that the word is the beginning of.
    """

    typed: str
    flag: Flag | None
    values: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    negated: bool = False
    attached: bool = False
    shortened: str = ""
    candidates: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the flag, ``""`` if there is none."""
        return self.flag.name if self.flag else ""


class Parsed(NamedTuple):
    """A command taken apart: ``model`` is the first word that is no flag and no value, ``loose`` the others, with the flag before each."""

    uses: tuple[Use, ...]
    model: str | None
    loose: tuple[tuple[str, Use | None], ...]


class _Option(NamedTuple):
    name: str
    flag: Flag
    negated: bool


def words(argv: Sequence[str]) -> tuple[str, ...]:
    """Return what follows ``vllm serve`` or ``python -m …api_server``. Raises ``UsageError``."""
    for i, word in enumerate(argv):
        program = word.rsplit("/", 1)[-1]
        if program == "vllm" and list(argv[i + 1 : i + 2]) == ["serve"]:
            return tuple(argv[i + 2 :])
        if word == _SERVER or program == "api_server.py":
            return tuple(argv[i + 1 :])
    why = f"`{' '.join(argv[:3])}` does not start a server: it has no `vllm serve`"
    raise UsageError(why, hint="vllm-mods serve-check --command 'vllm serve MODEL …' --target TREE")


def parse(argv: Sequence[str], known: KnownFlags) -> Parsed:
    """Take apart what follows ``vllm serve``."""
    return _Parser(known).parse([_with_dashes(word) for word in _expand_optimization(argv)])


def as_object(use: Use) -> dict[str, Any]:
    """Return the JSON object that one ``--flag.key value`` stands for; a value that is no JSON is text."""
    value: Any = use.values[0]
    *above, last = use.keys
    if last.endswith("+"):
        value = value.split(",")
    else:
        with contextlib.suppress(ValueError):
            value = json_of(value)
    result = {last.removesuffix("+"): value}
    for key in reversed(above):
        result = {key: result}
    return result


def looks_like_flag(word: str) -> bool:
    """Tell whether a word was meant as a flag: typographic dashes are no dashes to a parser."""
    return word[:1] in tuple(_DASHES) and not word[1:2].isspace() and len(word) > 1


class _Parser:
    def __init__(self, known: KnownFlags) -> None:
        self.shape_of = known.shape
        on = {name: _Option(name, flag, negated=False) for name, flag in known.by_name.items()}
        off = {
            off: _Option(off, flag, negated=True)
            for flag in known.flags
            for name in flag.names
            if name.startswith("--")
            for off in (f"--no-{name[2:]}", *known.rules.inverted(name))
        }
        self.options = on | {name: option for name, option in off.items() if name not in on}

    def parse(self, argv: list[str]) -> Parsed:
        uses: list[Use] = []
        loose: list[tuple[str, Use | None]] = []
        i = 0
        only_words = False
        while i < len(argv):
            word = argv[i]
            i += 1
            if word == "--" and not only_words:
                only_words = True
            elif only_words or not self.is_flag(word):
                loose.append((word, uses[-1] if uses else None))
            elif word.partition("=")[0] not in _HELP:
                following = itertools.takewhile(lambda after: not self.is_flag(after), argv[i:])
                use, taken = self.use(word, list(following))
                uses.append(use)
                i += taken
        model = loose.pop(0)[0] if loose and not looks_like_flag(loose[0][0]) else None
        return Parsed(tuple(uses), model, tuple(loose))

    def is_flag(self, word: str) -> bool:
        if len(word) < 2 or not word.startswith("-"):
            return False
        if self.find(word.partition("=")[0]):
            return True
        return " " not in word and not _NUMBER.match(word)

    def use(self, word: str, following: list[str]) -> tuple[Use, int]:
        """Read one flag; return it and how many of the words behind it are its values."""
        typed, equals, value = word.partition("=")
        attached = [value] if equals else []
        head, *keys = typed.split(".")
        options = self.find(head)
        if not options and not typed.startswith("--"):
            short = self.options.get(typed[:2])
            if short is not None and len(typed) > 2:  # `-qawq`
                options, head, attached = [short], typed, [word[2:]]
        if len({id(option.flag) for option in options}) != 1:
            # what follows a flag that does not exist was meant for it
            names = tuple(sorted(option.name for option in options))
            meant = tuple(attached or following)
            use = Use(typed, None, meant, tuple(keys), candidates=names)
            return use, 0 if attached else len(following)
        option = options[0]
        use = Use(
            typed=typed,
            flag=option.flag,
            keys=tuple(keys),
            negated=option.negated,
            attached=bool(attached),
            shortened=option.name if head.startswith("--") and option.name != head else "",
        )
        if attached:
            return use._replace(values=tuple(attached)), 0
        shape = self.shape_of(option.flag)
        if not shape.takes_value and not keys:
            following = []
        elif keys or shape.nargs in {None, "?"}:
            following = following[:1]
        return use._replace(values=tuple(following)), len(following)

    def find(self, name: str) -> list[_Option]:
        """Return the options that a word names: one, those it is the beginning of, or none."""
        name = name.partition(".")[0] if name.startswith("-") else name
        exact = self.options.get(name)
        if exact is not None and self.is_there(exact):
            return [exact]
        if not name.startswith("--") or len(name) < 3:
            return []
        begun = (option for full, option in self.options.items() if full.startswith(name))
        return [option for option in begun if self.is_there(option)]

    def is_there(self, option: _Option) -> bool:
        """Tell whether a name is one of a flag: only a switch can be turned off."""
        return not option.negated or self.shape_of(option.flag).kind == "switch"


def _with_dashes(word: str) -> str:
    """Write the name of a long flag with dashes; its keys and value stay as they are."""
    return re.sub(r"\A--[^=.]*", lambda name: name[0].replace("_", "-"), word)


def _expand_optimization(argv: Sequence[str]) -> Iterator[str]:
    """Write ``-O3``, ``-O=3`` and ``-O 3`` as the flag that they stand for."""
    for i, word in enumerate(argv):
        if word == "-O" and list(argv[i + 1 : i + 2]) in (["0"], ["1"], ["2"], ["3"]):
            yield "--optimization-level"
        elif word.startswith("-O") and word != "-O" and "." not in word:
            yield from ("--optimization-level", word[2:].removeprefix("="))
        else:
            yield word
