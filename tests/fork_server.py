"""Makes processes of programs of ours that need not import everything anew: ``fork_server.py FD PADDING MODULE…``.

Each request is a line of JSON on the socket: ``{"argv", "cwd", "env", "output"}`` makes a process, ``{"ended": pid}``
asks how one has ended. What is made is a process like any other: in a session of its own, with its own environment and
command line in /proc too, where sweeps look for markers. Only its parent is another, and its imports are paid for.
"""

import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import traceback
from typing import Any

PROGRAMS = ("orchestrator.agents.supervisor", "orchestrator.deploy.runner")  # run as by ``python -m``
# Fields 48 to 51 of /proc/<pid>/stat, counted after the closing parenthesis of the command.
COMMAND_LINE = (45, 46)
ENVIRONMENT = (47, 48)


def main() -> None:
    """Serve until the other end is closed."""
    with socket.socket(fileno=int(sys.argv[1])) as link:
        link.set_inheritable(False)
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake)
        for name in sys.argv[3:]:
            importlib.import_module(name)
        for name in PROGRAMS:
            sys.modules.pop(name, None)  # each runs anew, as ``__main__``
        gc.collect()
        gc.freeze()
        ended: dict[int, int] = {}
        pending = b""
        while True:
            ready, _, _ = select.select([link, woken], [], [])
            if woken in ready:
                os.read(woken, 4096)
            _reap(ended)
            if link not in ready:
                continue
            data = link.recv(1 << 20)
            if not data:
                return
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                request = json.loads(line)
                answer = ended.get(request["ended"]) if "ended" in request else _make(link, request)
                link.sendall(json.dumps(answer).encode() + b"\n")


def _reap(ended: dict[int, int]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        ended[pid] = os.waitstatus_to_exitcode(status)


def _make(link: socket.socket, request: dict[str, Any]) -> int:
    """The new process, as soon as it can be seen for what it is."""
    seen, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(seen)
            link.close()
            code = _be(request, tell)
        except BaseException:  # noqa: BLE001 - the top of a process, which must not go on as the server
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    os.close(tell)
    os.read(seen, 1)
    os.close(seen)
    return pid


def _be(request: dict[str, Any], tell: int) -> int:
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(request["output"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    for number, fd in ((0, nothing), (1, output), (2, output)):
        os.dup2(fd, number)
    os.close(nothing)
    os.close(output)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    _show(COMMAND_LINE, request["argv"])
    _show(ENVIRONMENT, [f"{name}={value}" for name, value in request["env"].items()])
    os.write(tell, b".")
    os.close(tell)
    argv = request["argv"]
    at = argv.index("-m") if "-m" in argv else None
    try:
        if at is None:
            sys.argv = argv[1:]
            runpy.run_path(sys.argv[0], run_name="__main__")
        else:
            sys.argv = argv[at + 1 :]
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def _show(fields: tuple[int, int], words: list[str]) -> None:
    """Write over what the kernel shows of this process; the padding of the server's own start is the room for it."""
    with open("/proc/self/stat", encoding="ascii", errors="replace") as stat:
        told = stat.read().rsplit(")", 1)[1].split()
    begin, end = (int(told[field]) for field in fields)
    text = b"".join(os.fsencode(word) + b"\0" for word in words)
    if len(text) > end - begin:
        raise ValueError(f"{len(text)} bytes do not fit into {end - begin}")
    ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, text, len(text))


if __name__ == "__main__":
    main()
