"""``vllm-mods bench``, with a stand-in for vLLM: by turns, to the end, and with nothing left behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from mod_making import diff_of, write_mod

from vllm_mods.api import bench as bench_of_sides
from vllm_mods.library.catalog import Library

if TYPE_CHECKING:
    from collections.abc import Callable

    from command_line import Answer

    Bench = Callable[..., Answer]

TOY = Path(__file__).parent.parent / "toy_vllm.py"


@pytest.fixture
def toy(tmp_path: Path, site: Path, library: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the program, mods for what it looks at, and the folder in which it says what it did."""
    folder = tmp_path / "toy"
    folder.mkdir()
    (folder / "vllm").write_text(f"#!{sys.executable}\n{TOY.read_text()}")
    (folder / "vllm").chmod(0o755)
    loader = (site / "vllm/loader.py").read_text()
    for name in ("nothing", "slow", "wrong", "dies"):
        write_mod(library, name, diff_of("vllm/loader.py", loader, f"{loader}# {name}\n"))
    monkeypatch.setenv("TOY_FOLDER", str(folder))
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture
def bench(call: Callable[..., Answer], toy: Path, site: Path) -> Bench:
    def run(*words: object, serve: tuple[str, ...] = ("serve", "m")) -> Answer:
        return call("bench", *words, "--target", site, "--", toy / "vllm", *serve)

    return run


def servers(toy: Path) -> list[list[str]]:
    return [
        (toy / f"server-{i}").read_text().split() for i in range(len(list(toy.glob("server-*"))))
    ]


def assert_nothing_runs(toy: Path) -> None:
    pids = [pid for server in servers(toy) for pid in server[:2]]
    end = time.monotonic() + 5
    while any(is_alive(pid) for pid in pids):
        assert time.monotonic() < end
        time.sleep(0.02)


def is_alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
def test_the_sides_are_started_by_turns_and_asked_the_same_and_a_difference_is_found(
    bench: Bench, toy: Path, site: Path
) -> None:
    answer = bench("plain", "slow", "--starts", 3, "--input-length", 8, "--input-length", 64)
    assert answer.code == 0, answer.err
    assert re.findall(r"start \d of 6: (\w+)", answer.err) == [
        "plain",
        "slow",
        "slow",
        "plain",
        "plain",
        "slow",
    ]
    copied = ["shadow" in paths for _, _, paths in servers(toy)]
    assert copied == [False, True, True, False, False, True]
    asked = [line.split() for line in (toy / "asked").read_text().splitlines()]
    assert [line[:2] for line in asked] == [
        *[["8", "False"]] * 2, *[["64", "False"]] * 2, ["8", "True"], ["64", "True"],
    ] * 6  # fmt: skip
    assert {line[2] for line in asked} == {str(site)}  # the plain one's client
    rows = {re.split(r"  +", line)[0]: line for line in answer.out.splitlines()}
    assert re.search(
        r" 10 +20\.\d+ +(1\.9\d|2) +1\.\d+ to 2\.\d+ +0\.9\d+ to 1\.0",
        rows["time per token at 64, ms"],
    )
    sentence = answer.out.splitlines()[-1]
    assert re.fullmatch(
        r"slow 1.0.0 against plain: \S+ to \S+ times the throughput at 8; \S+ to \S+ times the time per token at 8; "
        r"\S+ to \S+ times the throughput at 64; \S+ to \S+ times the time per token at 64; "
        r"no difference was found in time to first token at 8, time to first token at 64, "
        r"prefix cache hits, memory, start-up; the same outputs\.",
        sentence,
    ), sentence
    page = Path("bench/bench.html").read_text()
    assert (page.count('<circle class="A" cx="'), page.count('<circle class="B" cx="')) == (
        1 + 3 * 9,
        1 + 3 * 9,
    )
    assert sentence in page
    assert_nothing_runs(toy)


@pytest.mark.slow
def test_a_mod_that_does_nothing_is_not_found_and_one_that_computes_something_else_is(
    bench: Bench, toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (toy / "nvidia-smi").write_text(
        '#!/bin/sh\ncase "$1 $3" in *name*) echo H1;; *--id=1) echo 900;; *) echo 70; echo 900;; esac\n'
    )
    (toy / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(toy), prepend=os.pathsep)
    told = [
        json.loads(bench("plain", mod, "--starts", 2, "--json", "--output", mod).out)
        for mod in ("nothing", "wrong")
    ]
    assert all("plain: no difference was found in " in one["sentence"] for one in told)
    assert [one["sentence"].rpartition("; ")[2] for one in told] == [
        "the same outputs.",
        "outputs differ beyond the noise.",
    ]
    assert [(one["apart"], one["noise"]) for one in told] == [(0.0, 0.0), (0.25, 0.0)]
    assert told[0]["starts"] == json.loads(Path("nothing/bench.json").read_text())["starts"]
    assert told[0]["machine"]["memory"] > 0
    assert told[0]["machine"]["gpus"] == ["H1"]
    assert told[0]["numbers"]["GPU memory, MiB"]["means"] == [970.0, 970.0]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    one = json.loads(bench("plain", "nothing", "--starts", 1, "--json", "--output", "one").out)
    assert one["numbers"]["GPU memory, MiB"]["means"] == [900.0, 900.0]
    assert [start["version"] for start in told[0]["starts"]] == ["0.0.toy"] * 4
    assert told[0]["starts"][0]["numbers"]["memory, MiB"] > 5
    assert_nothing_runs(toy)


@pytest.mark.slow
def test_a_stopped_bench_goes_on_where_it_was_and_no_other_takes_its_numbers(
    bench: Bench, toy: Path, library: Path
) -> None:
    with (library / "patches/nothing/mod.toml").open("a") as manifest:
        manifest.write('\n[evidence]\nlog = "sees nothing"\n')
    (toy / "fail-2").touch()
    answer = bench("plain", "nothing", "--starts", 2)
    assert answer.code == 1
    assert (
        "side B could not be measured: it ended before it was ready: ValueError: no layer"
        in answer.err
    )
    assert "hint: less bench/start-3.log" in answer.err
    unseen = re.findall(r"note: nothing in (\S+) shows that the code of nothing ran", answer.err)
    assert unseen == ["bench/start-2.log"]
    (toy / "fail-2").unlink()
    before = json.loads(Path("bench/bench.json").read_text())["starts"]
    assert [start["side"] for start in before] == ["A", "B"]
    for other in (("nothing", "plain"), ("plain", "nothing", "--prompts", 3)):
        answer = bench(*other)
        assert (answer.code, len(servers(toy))) == (3, 3)
        assert re.search(
            r"of another bench command, with another (sides and copies|prompts);", answer.err
        )
    answer = bench("plain", "nothing", "--starts", 2, "--json")
    assert answer.code == 0
    told = json.loads(answer.out)["starts"]
    assert (told[:2], [start["side"] for start in told]) == (before, ["A", "B", "B", "A"])
    assert len(servers(toy)) == 5
    assert bench("plain", "nothing", "--starts", 2, "--json").out == answer.out
    assert len(servers(toy)) == 5
    Path("bench/bench.json").write_text('{"starts": [{"side": 1}]}')
    assert bench("plain", "nothing").code == 3


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_what_is_interrupted_leaves_no_server(sent: signal.Signals, toy: Path, site: Path) -> None:
    words = [sys.executable, "-m", "vllm_mods", "bench", "plain", "plain", "--target", str(site)]
    source = {"PYTHONPATH": os.pathsep.join((str(site), str(TOY.parent.parent)))}
    with subprocess.Popen(
        [*words, "--", str(toy / "vllm"), "serve", "m"],
        env=os.environ | source,
        stderr=subprocess.PIPE,
        # nohup has the one ignored, a shell in the background the other
        preexec_fn=lambda: [  # noqa: PLW1509
            signal.signal(signal.SIGHUP, signal.SIG_IGN),
            signal.signal(signal.SIGINT, signal.SIG_DFL),
        ],
    ) as bench:
        while not (toy / "asked").exists():
            assert bench.poll() is None
            time.sleep(0.02)
        bench.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            bench.wait(1)
        bench.send_signal(sent)
        assert bench.wait(20) == 130
    assert_nothing_runs(toy)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("slower", "passes"), [("4 2", 4), ("1 8 4", 5)], ids=["at first", "in a later pass too"]
)
def test_what_is_sent_while_a_server_still_compiles_kernels_is_not_counted(
    bench: Bench, toy: Path, slower: str, passes: int
) -> None:
    (toy / "cold").write_text(slower)
    answer = bench("plain", "nothing", "--starts", 1, "--json")
    assert answer.code == 0, answer.err
    rates = [
        one["numbers"]["throughput at 512, tokens/s"] for one in json.loads(answer.out)["starts"]
    ]
    assert rates == pytest.approx([100, 100], rel=0.02)
    assert len((toy / "asked").read_text().splitlines()) == 2 * (passes + 1)


@pytest.mark.slow
def test_a_server_that_leaves_prompts_unanswered_is_not_compared(bench: Bench, toy: Path) -> None:
    (toy / "unanswered").touch()
    answer = bench("plain", "dies", "--prompts", 5)
    assert (answer.code, "it answered only 4 of 5 prompts" in answer.err) == (1, True)
    assert_nothing_runs(toy)


def test_what_cannot_be_compared_is_said_before_anything_starts(
    bench: Bench, call: Callable[..., Answer], toy: Path, site: Path
) -> None:
    wrong: dict[Any, str] = {
        bench("plain", "slow", serve=("m",)): "this one has no word `serve`",
        bench("plain", "none"): "no mod named `none`",
        bench("plain", "slow", "--starts", 0): "--starts",
        bench("plain", "slow", serve=("serve", "m", "--hf-token", "hf_" + "a" * 34)): "secret",
        call("bench", "plain", "slow", "--target", site): "without a key; there is none",
        bench("plain", "slow", serve=("serve", "m", "--uds", "x")): "this one has --uds",
        bench("plain", "slow", serve=("serve", "m", "--headless")): "this one has --headless",
        bench("plain", "slow", serve=("serve", "m", "--ssl-keyfile", "k")): "has --ssl-keyfile",
        bench("plain", "slow", serve=("serve", "m", "--ssl_keyfile=k")): "has --ssl_keyfile\n",
        bench("plain", "slow", serve=("serve", "m", "--grpc", "--grpc-port=1")): "has --grpc\n",
        bench("plain", "slow", serve=("serve", "m", "--api-key=k")): "this one has --api-key\n",
    }
    for answer, words in wrong.items():
        assert (answer.code, words in answer.err) == (2, True), answer.err
    assert not servers(toy)
    assert not Path("bench").exists()


def prepared(folder: Path, command: str, *given: str, env: str = "") -> Any:
    """Make the side of a pairing without mods."""
    (folder / "pairings").mkdir()
    (folder / "pairings/one.toml").write_text(
        'schema = 1\nname = "one"\nsummary = "s"\nmodel = "m"\nbase = "b:1"\nmods = []\n'
        f"command = '{command}'\n[env]\n{env}"
    )
    pairing = Library(str(folder)).pairing("one")
    return bench_of_sides._prepared(contextlib.ExitStack(), "", given, (), pairing)


def test_the_own_command_of_a_pairing_may_be_anything_where_another_is_given(
    tmp_path: Path,
) -> None:
    command, own = "vllm serve {model} | tee log", 'VLLM_A = "1"\n'
    side = prepared(tmp_path, command, "vllm", "serve", "x", env=own)
    assert (side.command, side.environ["VLLM_A"]) == (("vllm", "serve", "x"), "1")


def test_what_this_machine_has_instead_of_a_pairings_variable_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_A", "here")
    monkeypatch.setenv("VLLM_B", "same")
    own = 'VLLM_A = "own"\nVLLM_B = "same"\nVLLM_C = "c"\n'
    side = prepared(tmp_path, "vllm serve {model}", env=own)
    assert [side.environ[f"VLLM_{name}"] for name in "ABC"] == ["here", "same", "c"]
    assert side.notes == ["VLLM_A of one is not used: it has another value here"]


@pytest.mark.parametrize("kept", ["[]", '{"starts": [], "asked": []}', '{"starts": 1}'])
def test_a_file_of_results_that_is_none_is_told(bench: Bench, kept: str) -> None:
    Path("bench").mkdir()
    Path("bench/bench.json").write_text(kept)
    assert bench("plain", "slow").code == 3


@pytest.mark.slow
def test_a_pairing_is_a_side_with_its_own_command_environment_and_mods(
    bench: Bench, call: Callable[..., Answer], toy: Path, site: Path, library: Path
) -> None:
    (library / "pairings").mkdir(exist_ok=True)
    for name, mod in (("one", "nothing"), ("two", "slow")):
        (library / f"pairings/{name}.toml").write_text(
            f'schema = 1\nname = "{name}"\nsummary = "s"\nmodel = "m"\nbase = "b:1"\nmods = ["{mod}"]\n'
            f"command = '''\n{toy}/vllm serve {{model}} \\\n  --port 9 --{name}'''\n"
            f'[env]\nVLLM_SIDE = "{name}"\n'
        )
    answer = call("bench", "one", "two", "--starts", 2, "--json", "--target", site)
    assert answer.code == 0, answer.err
    asked = json.loads(answer.out)["asked"]
    assert asked["sides"] == ["one", "two"]
    assert asked["commands"] == [
        [f"{toy}/vllm", "serve", "m", "--port", "9", f"--{name}"] for name in ("one", "two")
    ]
    assert [stated["VLLM_SIDE"] for stated in asked["environments"]] == ["one", "two"]
    assert "times the time per token" in json.loads(answer.out)["sentence"]
    assert all("shadow" in paths for _, _, paths in servers(toy))
    both = bench("one", "plain", "--starts", 1, "--json", "--output", "both", serve=("serve", "x"))
    asked = json.loads(both.out)["asked"]
    assert [words[1:] for words in asked["commands"]] == [["serve", "x"]] * 2
