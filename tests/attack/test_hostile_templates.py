"""Code that got out of Jinja's sandbox: behind the fence it can compute and write lines, and that is all."""

from __future__ import annotations

import errno
import os
import platform
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from toy_release import toy_release

from vllm_mods.base.errors import NotRendered, TreeError
from vllm_mods.templates import parser_process, rendering
from vllm_mods.templates.conversation import Conversation
from vllm_mods.templates.source import Template

if TYPE_CHECKING:
    from pathlib import Path

HELLO = Conversation("hello", ({"role": "user", "content": "hi"},))
_START = """
import ctypes, os, resource, signal, socket, sys
from vllm_mods.templates import fence
libc = ctypes.CDLL(None)
fence.lock(5, 1 << 30, 1 << 20)
"""
_ATTACKS = (
    "open('/etc/passwd')",
    "os.close(0); open('/etc/passwd')",
    "os.open('{place}/new', os.O_CREAT | os.O_WRONLY)",
    "os.dup(1)",
    "os.dup2(1, 0)",
    "os.pipe()",
    "os.unlink('{place}/secret')",
    "os.rename('{place}/secret', '{place}/other')",
    "os.truncate('{place}/secret', 0)",
    "os.chmod('{place}/secret', 0)",
    "os.mkdir('{place}/new')",
    "os.listdir('{place}')",
    "os.stat('{place}/secret')",
    "os.kill({parent}, signal.SIGTERM)",
    "os.fork()",
    "os.execv('/bin/sh', ['sh', '-c', 'touch {place}/new'])",
    "socket.socket()",
    "socket.socketpair()",
    "resource.setrlimit(resource.RLIMIT_NOFILE, (99, 99)); open('/etc/passwd')",
    "resource.prlimit(0, resource.RLIMIT_CPU, (99, 99))",
    "__import__('xml.dom.minidom')",
    "libc.unlink(b'{place}/secret') and os.unlink('{place}/secret')",
)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("attack", _ATTACKS)
def test_whoever_gets_out_of_the_sandbox_opens_and_changes_nothing(
    attack: str, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("s")
    tried = attack.format(place=tmp_path, parent=os.getpid())
    lines = [f"    {one.strip()}" for one in tried.split(";")]
    program = "\n".join(
        [
            _START,
            "try:",
            *lines,
            "except (OSError, ImportError, ValueError):",
            "    os._exit(7)",
            "os._exit(0)",
        ]
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    assert done.returncode == 7, (done.returncode, done.stderr)
    assert [(name, (tmp_path / name).read_text()) for name in os.listdir(tmp_path)] == [
        ("secret", "s")
    ]


@pytest.mark.slow
def test_what_the_process_had_open_is_closed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    opened = f"file = os.open({str(tmp_path / 'secret')!r}, os.O_RDWR)\nfence.lock("
    program = _START.replace("fence.lock(", opened) + "os.write(file, b'x')"
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    assert b"Bad file descriptor" in done.stderr
    assert (tmp_path / "secret").read_text() == "s"


_AS_32_BITS = """
import ctypes, mmap, os, struct
low = getattr(mmap, "MAP_32BIT", 0x40) | mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
memory = mmap.mmap(-1, 4096, low, mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
place = ctypes.addressof(ctypes.c_char.from_buffer(memory))
name = b"NAME\\0"
# push rbx; mov eax, 39 (mkdir); mov ebx, the name; mov ecx, 0o777; int 0x80; pop rbx; ret
code = struct.pack("<BBIBIBI", 0x53, 0xB8, 39, 0xBB, place + 64, 0xB9, 0o777) + bytes.fromhex("cd805bc3")
memory[: len(code)], memory[64 : 64 + len(name)] = code, name
call = ctypes.CFUNCTYPE(ctypes.c_int)(place)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="it has calls of 32 bits")
def test_calls_by_the_numbers_of_another_architecture_are_none(tmp_path: Path) -> None:
    """39 makes a folder there, and here it is ``getpid``."""
    for name, start, made in (("free", "", True), ("fenced", _START, False)):
        program = _AS_32_BITS.replace("NAME", str(tmp_path / name)) + start + "os._exit(-call())"
        done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
        if made and not (tmp_path / name).exists():
            pytest.skip("this kernel takes no calls of 32 bits")
        assert done.returncode == (0 if made else errno.EPERM), done.stderr
        assert (tmp_path / name).exists() is made


@pytest.mark.parametrize(
    ("attack", "code"),
    [
        ("while True: sys.stdout.write('x' * 9999)", -signal.SIGXFSZ),
        ("while True: sys.stderr.write('x' * 9999)", -signal.SIGXFSZ),
        ("'x' * (2 << 30)", 1),
    ],
)
def test_whoever_gets_out_of_the_sandbox_says_no_more_than_that(
    attack: str, code: int, tmp_path: Path
) -> None:
    with (tmp_path / "out").open("wb") as out:
        done = subprocess.run(
            [sys.executable, "-c", _START + attack], stdout=out, stderr=out, check=False
        )
    assert done.returncode == code
    assert (tmp_path / "out").stat().st_size <= 1 << 20


@pytest.mark.slow
@pytest.mark.started
@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        ("platform.machine = lambda: 'vax'", "no filter of system calls is known for vax"),
        ("fence._SECCOMP = 9999", "[Errno 22] the kernel does not support filters of system calls"),
    ],
)
def test_where_the_kernel_has_no_filter_nothing_is_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kernel: str, why: str
) -> None:
    (tmp_path / "elsewhere.py").write_text(
        "import platform\nfrom vllm_mods.templates import fence, parser_sandbox, sandbox\n"
        f"def main():\n    {kernel}\n    sandbox.main()\n"
    )
    (tmp_path / "elsewhere_too.py").write_text(
        (tmp_path / "elsewhere.py").read_text().replace(" sandbox.main", " parser_sandbox.main")
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(rendering, "SANDBOX", "elsewhere")
    monkeypatch.setattr(parser_process, "SANDBOX", "elsewhere_too")
    with pytest.raises(NotRendered) as caught:
        rendering.render(Template("t", "t.jinja", b"{{ messages }}"), (HELLO,))
    fenced = "templates run only in a sandbox of the kernel, which is not available: "
    assert caught.value.message == f"t.jinja: {fenced}{why}"
    with pytest.raises(TreeError) as refused:
        parser_process.open_release(toy_release())
    assert refused.value.message.endswith(f": its parsers cannot run: {fenced}{why}")


@pytest.mark.started
def test_lines_that_are_no_answer_are_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "lying.py").write_text("def main():\n    print('{')\n    print('x')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(rendering, "SANDBOX", "lying")
    with pytest.raises(NotRendered, match="it ended too early"):
        rendering.render(Template("t", "t.jinja", b"{{ messages }}"), (HELLO,))
