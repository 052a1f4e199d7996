"""The emulator (ministack), on a port of this machine that nobody else can reach, with every request that a function
makes going through a gate (gate.py)."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import cli

ACCOUNT = "123456789012"
REGION = "eu-central-1"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Emulator:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.port = free_port()
        self.gate_port = free_port()
        self.log = self.folder / "emulator.log"
        self.process = None
        self.programs, self.aws = cli.install(folder)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def environment(self):
        """What a client of the emulator needs to know."""
        names = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        return names | {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "PATH": f"{self.programs}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
            "TMPDIR": str(self.folder),
        }

    def start(self):
        settings = {
            "BIND_HOST": "127.0.0.1",
            "GATEWAY_PORT": str(self.port),
            "MINISTACK_ACCOUNT_ID": ACCOUNT,
            "MINISTACK_REGION": REGION,
            # Functions may do what their roles grant, and nothing else.
            "AUTH": "true",
            # The functions call AWS here.
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.gate_port}",
            # AWS waits a minute before the second attempt.
            "LAMBDA_ASYNC_RETRY_BASE_SECONDS": "1",
        }
        with self.log.open("wb") as log:
            program = pathlib.Path(sys.executable).with_name("ministack")
            self.process = subprocess.Popen(
                [program], env=self.environment() | settings, stdout=log, stderr=log, cwd=self.folder
            )
        until(self._answers, 60, "the emulator answers")

    def _answers(self):
        if self.process.poll() is not None:
            raise SystemExit(f"the emulator ended by itself:\n{self.log.read_text()[-3000:]}")
        try:
            with urllib.request.urlopen(f"{self.url}/_ministack/health", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def functions(self):
        """The processes of the functions, by id: those whose program was unpacked in our folder."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and pathlib.Path(os.readlink(entry / "exe")).is_relative_to(self.folder):
                    found.append(int(entry.name))
            except OSError:
                continue  # It ended while we looked, or is not ours.
        return found

    def kill_functions(self):
        """Ends every function as a crash does, and tells how many there were."""
        killed = self.functions()
        for process in killed:
            os.kill(process, signal.SIGKILL)
        # Until then the emulator may take one that is ending for one that can be asked.
        until(lambda: all(map(has_ended, killed)), 10, "what was killed has ended")
        return len(killed)

    def stop(self):
        self.aws.terminate()
        self.aws.wait()
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.kill_functions()


def has_ended(process):
    """Whether it is gone, or waits for nothing but that its parent hears of it."""
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def until(condition, seconds, what):
    """Asks `condition` until it gives something true, and returns that. `what` is awaited, or tells it."""
    # A busy machine needs longer, and nothing is proved by it being short.
    seconds = max(seconds, 180)
    end = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(0.2)
