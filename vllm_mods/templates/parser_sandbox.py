"""The process in which a release's parsers read answers: its code, behind a fence of the kernel.

``parser_process`` starts it. All that the release's code can do is to compute, and to write lines of its own.
"""

import functools
import importlib
import os
import signal
import warnings
from collections.abc import Iterable, Iterator, Mapping
from types import FrameType
from typing import Any, NoReturn

from vllm_mods.templates import answers, fence, release_code

_END = "<the end of a turn>"
_MOST = 300
_SECONDS = 5
_FIRST = 0x110000
"""Tokens are letters, which have their own numbers, and tags, which get those behind."""


class _Vocabulary(dict[str, int]):
    """A vocabulary that has every tag that it is asked for: that is what a model's tokenizer would.

    But one: which of Mistral's tokenizers it is, only the text that the model writes can tell.
    """

    def __missing__(self, text: str) -> int:
        if len(text) == 1:
            return ord(text)
        if text not in self:
            raise KeyError(text)
        return self.add(text)

    def add(self, text: str) -> int:
        """Make a token of a text, or return the one that it is."""
        return self.setdefault(text, _FIRST + len(self))

    def get(self, text: str, default: Any = None) -> Any:
        return self[text] if text in self else default  # noqa: SIM401  (this is that)

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and (text != "[ARGS]" or super().__contains__(text))


class _LetterTokenizer:
    """A tokenizer of letters and of the tags that parsers ask for, with what any release's parsers ask of one."""

    init_kwargs: Mapping[str, Any] = {}

    def __init__(self) -> None:
        self.vocab = _Vocabulary()
        self.eos_token, self.eos_token_id = _END, self.vocab.add(_END)

    def get_vocab(self) -> dict[str, int]:
        return self.vocab

    def __len__(self) -> int:
        return _FIRST + len(self.vocab)

    @property
    def all_special_tokens(self) -> list[str]:
        return list(self.vocab)

    @property
    def all_special_ids(self) -> list[int]:
        return list(self.vocab.values())

    def encode(self, text: str, *_: Any, **__: Any) -> list[int]:
        return [self.vocab[token] for token in self._split(text)]

    def _split(self, text: str) -> Iterator[str]:
        tags = sorted(self.vocab, key=len, reverse=True)
        at = 0
        while at < len(text):
            token = next((tag for tag in tags if text.startswith(tag, at)), text[at])
            yield token
            at += len(token)

    def decode(self, ids: Any, *_: Any, **__: Any) -> str:
        some = [ids] if isinstance(ids, int) else ids
        return "".join(token for token in map(self._token, some) if token != _END)

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        return self.vocab[tokens] if isinstance(tokens, str) else [self.vocab[t] for t in tokens]

    def _token(self, number: int) -> str:
        return chr(number) if number < _FIRST else list(self.vocab)[number - _FIRST]


class _Harmony(_LetterTokenizer):
    """The one of gpt-oss: its parsers read tokens, and their library has the vocabulary."""

    def __init__(self) -> None:
        super().__init__()
        library = importlib.import_module("openai_harmony")
        self.encoding = library.load_harmony_encoding(library.HarmonyEncodingName.HARMONY_GPT_OSS)
        self.eos_token_id = self.encode("<|return|>")[0]

    def encode(self, text: str, *_: Any, **__: Any) -> list[int]:
        return list(self.encoding.encode(text, allowed_special="all"))

    def decode(self, ids: Any, *_: Any, **__: Any) -> str:
        return str(self.encoding.decode([ids] if isinstance(ids, int) else list(ids)))


_harmony = functools.cache(_Harmony)


def main() -> None:
    """Answer the case on stdin."""
    signal.signal(signal.SIGVTALRM, _stop_answer)
    fence.serve(import_all, _answer)


def _answer(case: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the names of the release's parsers, and what they read of each job."""
    release_code.ReleaseModules(case["sources"]).install()
    try:
        tools, reasoners = answers.names()
    except BaseException as error:  # noqa: BLE001  (whatever it is, the release has it)
        yield {"error": describe(error)}
        return
    yield {"tools": tools, "reasoners": reasoners}
    yield from map(_read, case["jobs"])


def import_all() -> list[str]:
    """Import all that may be imported, and return what is not installed: behind the fence it is too late."""
    warnings.simplefilter("ignore")
    missing = import_named((*release_code.STANDARD, *release_code.NEEDED, *release_code.WANTED))
    if "pydantic" not in missing:
        pydantic = importlib.import_module("pydantic")
        for name in pydantic.__all__:
            getattr(pydantic, name)
        pydantic.create_model("Model", text=(str, ""))  # loads its plugins
    os.environ.clear()
    return missing


def import_named(names: Iterable[str]) -> list[str]:
    """Import modules, and return those that are not installed."""
    missing = []
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            missing.append(name)
    return missing


def _read(job: Mapping[str, Any]) -> dict[str, Any]:
    """Have one pair of parsers read one answer in each way: what each says, or what went wrong."""
    by_way: dict[str, Any] = {}
    for way in job["ways"]:
        signal.setitimer(signal.ITIMER_VIRTUAL, _SECONDS)
        try:
            harmony = answers.is_harmony(job["tool"], job["reasoning"])
            tokenizer = _harmony() if harmony else _LetterTokenizer()
            for tag in job["tags"]:
                tokenizer.vocab.add(tag)
            reader = answers.reader(tokenizer, job["tool"], job["reasoning"], job["tools"], {})
            ids = tokenizer.encode(job["text"])
            if job["ended"]:  # by a token that has no text
                ids.append(tokenizer.eos_token_id)
            prompt = tokenizer.encode(job["prompt"])
            if way == "whole":
                by_way[way] = reader.whole(job["text"], ids, prompt)
            else:
                by_way[way] = answers.read_streamed(reader, tokenizer, ids, prompt, int(way))
        except release_code.StandInAskedError as error:
            by_way[way] = {"error": str(error), "stood_in": True}
        except BaseException as error:  # noqa: BLE001  (a parser may even exit)
            by_way[way] = {"error": describe(error)}
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return by_way


def _stop_answer(number: int, frame: FrameType | None) -> NoReturn:
    del number, frame
    raise TimeoutError(f"more than {_SECONDS} seconds for one answer")


def describe(error: BaseException) -> str:
    """Return an error in words, with what caused it."""
    causes: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(causes) < 3:
        causes.append(f"{type(cause).__name__}: {cause}")
        cause = cause.__cause__
    return " from ".join(causes)[:_MOST]
