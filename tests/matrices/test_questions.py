"""What a plan rests on: nothing else may matter, and all of that has to."""

from __future__ import annotations

import pytest
from memory_tree import MemoryTree

from vllm_mods.base.errors import TreeError
from vllm_mods.matrices import questions
from vllm_mods.matrices.questions import Recorder, pack

FILES = {"vllm/a.py": b"a", "vllm/b.py": b"b", "other/c.py": b"c"}


def asked(tree: MemoryTree) -> dict[str, object]:
    recorder = Recorder(tree)
    recorder.read("vllm/a.py")
    recorder.read("vllm/gone.py")
    recorder.paths("vllm")
    recorder.is_released("vllm/a.py", b"a")
    return pack(recorder.questions())


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        ({}, True),
        ({"vllm/b.py": b"another"}, True),  # nobody read it
        ({"other/d.py": b"new"}, True),  # nobody listed that folder
        ({"vllm/a.py": b"another"}, False),
        ({"vllm/gone.py": b"there"}, False),
        ({"vllm/d.py": b"new"}, False),
    ],
)
def test_a_tree_holds_if_it_answers_alike(change: dict[str, bytes], holds: bool) -> None:  # noqa: FBT001
    assert questions.holds(asked(MemoryTree(FILES)), MemoryTree({**FILES, **change})) is holds


def test_what_a_distribution_shipped_is_a_question() -> None:
    packed = asked(MemoryTree(FILES))
    assert not questions.holds(packed, MemoryTree(FILES, released={"vllm/a.py": b"a"}))


def test_beyond_the_first_questions_one_digest_answers_for_all() -> None:
    files = {f"vllm/{number}.py": str(number).encode() for number in range(300)}
    recorder = Recorder(MemoryTree(files))
    for path in files:
        recorder.read(path)
    packed = pack(recorder.questions())
    assert len(packed["one"]) < 100
    assert questions.holds(packed, MemoryTree(files))
    assert not questions.holds(packed, MemoryTree({**files, "vllm/299.py": b"x"}))


def test_questions_are_asked_in_order_and_no_further_than_they_agree() -> None:
    recorder = Recorder(MemoryTree(FILES))
    recorder.read("vllm/a.py")
    recorder.read("vllm/b.py")
    other = MemoryTree({**FILES, "vllm/a.py": b"another"})
    assert not questions.holds(pack(recorder.questions()), other)
    assert other.reads == {"vllm/a.py": 1}


def test_a_hash_that_is_known_saves_the_reading() -> None:
    class Recorded(MemoryTree):
        def digest(self, path: str) -> str | None:
            return {
                "vllm/a.py": "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
            }.get(path)

    recorder = Recorder(MemoryTree(FILES))
    recorder.read("vllm/a.py")
    tree = Recorded({})
    assert questions.holds(pack(recorder.questions()), tree)
    assert tree.reads == {}


def test_a_failure_is_remembered() -> None:
    class Broken(MemoryTree):
        def read(self, path: str) -> bytes | None:
            raise TreeError(f"no {path}")

    recorder = Recorder(Broken({}))
    with pytest.raises(TreeError):
        recorder.read("vllm/a.py")
    assert recorder.failure is not None
    assert recorder.failure.message == "no vllm/a.py"
    assert not questions.holds(asked(MemoryTree(FILES)), Broken({}))


def test_a_failure_to_say_what_was_released_is_remembered_too() -> None:
    class Broken(MemoryTree):
        def is_released(self, path: str, data: bytes) -> bool | None:
            raise TreeError(f"no record of {path}: {len(data)} bytes")

    recorder = Recorder(Broken({}))
    with pytest.raises(TreeError):
        recorder.is_released("vllm/a.py", b"a")
    assert recorder.failure is not None
