"""Makes a package of agents with `dormouse new`, outside of the repository, deploys it to an emulator on this machine with
the package's own `make deploy`, has a request for leave approved there, and removes everything with its `make destroy`.
DORMOUSE_BIN is the command line that makes the package."""

import os
import pathlib
import platform
import shutil
import subprocess
import tempfile

import tour
from emulator import Emulator
from gate import Gate
from main import Stack

STAGE = "guest"
REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
ARCHITECTURE = {"aarch64": "arm64"}.get(platform.machine(), platform.machine())


def make(package, target, emulator, goes=True, **variables):
    """What the target of the package's Makefile prints, which comes to its end, or does not where it is not to."""
    given = emulator.environment() | {"STAGE": STAGE, "ARCHITECTURE": ARCHITECTURE} | variables
    done = subprocess.run(
        ["make", target], cwd=package, env=given, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if (done.returncode == 0) != goes:
        raise AssertionError(f"make {target} {'failed' if goes else 'came to its end'}:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def ask_for_leave(stack):
    """HTTP turn of the package's own graph -> asleep -> all processes killed -> approved -> completed"""
    leave = {"state": {"employee": "Ada", "days": 3}}
    pause = tour.begin(stack, "leave", leave)
    done = stack.door.post(pause["callback_url"], {"approved": True, "decided_by": "Grace"})
    tour.same(done.status, 200, f"the approval: {done}")
    state = tour.completed(stack, pause, 10)["state"]
    tour.same(state["result"], "Ada has 3 days of leave, approved by Grace", "the result")


def go(emulator, package):
    subprocess.run([os.environ["DORMOUSE_BIN"], "new", package], check=True, stdout=subprocess.DEVNULL)
    # The same versions: what is compiled already is not compiled again.
    shutil.copy(REPOSITORY / "Cargo.lock", package)
    emulator.start()
    gate = Gate(emulator.gate_port, emulator.port)
    # Those that read parameters cannot start before they are granted what the emulator misjudges, which is told.
    said = make(package, "deploy", emulator, goes=False, LOOK_EVERY="0")
    tour.same(f"no answer of dormouse-{STAGE}-inbound" in said, True, f"who cannot start is told:\n{said}")
    stack = Stack(emulator, gate, STAGE)
    stack.grant_what_the_emulator_misjudges()
    make(package, "deploy", emulator)
    print("ok    a package of dormouse new is deployed by its own Makefile", flush=True)
    ask_for_leave(stack)
    print(f"ok    {ask_for_leave.__doc__}", flush=True)
    make(package, "destroy", emulator, YES="1")
    left = {kind: names for kind, names in stack.what_is_left().items() if names}
    tour.same(left, {}, "what is left")
    print("ok    everything is removed")


def main():
    with tempfile.TemporaryDirectory(prefix="dormouse-guest-") as folder:
        emulator = Emulator(folder)
        try:
            go(emulator, pathlib.Path(folder) / "own-agent")
        except BaseException:
            log = emulator.log.read_text(errors="replace") if emulator.log.exists() else ""
            print(f"\nthe end of the emulator's log:\n{log[-4000:]}")
            raise
        finally:
            emulator.stop()


main()
