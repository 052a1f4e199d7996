"""The command `aws`, without the second that it needs to load itself: scripts call it hundreds of times. `install` makes
a program `aws` that hands its arguments, environment, folder and streams to a process in which everything is loaded, and
which forks for each call; `cli.py SOCKET` is that process."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import traceback

# Those whose models the scripts of infra/ need most.
SERVICES = ["cloudformation", "lambda", "s3", "ssm", "sts", "dynamodb", "secretsmanager", "scheduler", "events"]

CALL = """#!{python} -SEB
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as call:
    call.connect({place!r})
    said = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
    socket.send_fds(call, [len(said).to_bytes(4, "big")], [0, 1, 2])
    call.sendall(said)
    code = call.recv(1)
if not code:
    print("the call of aws ended without an exit code", file=sys.stderr)
sys.exit(code[0] if code else 255)
"""


def install(folder):
    """Puts the program `aws` into `folder`/bin, and starts what serves it: the folder of the program, and the process."""
    programs = pathlib.Path(folder) / "bin"
    programs.mkdir()
    place = f"{folder}/aws.socket"
    program = programs / "aws"
    program.write_text(CALL.format(python=sys.executable, place=place))
    program.chmod(0o755)
    # Nobody's settings are read as it is loaded; those of a call come with it.
    given = os.environ | {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    process = subprocess.Popen([sys.executable, "-B", __file__, place], env=given, stdout=subprocess.PIPE, text=True)
    if process.stdout.readline() != "ready\n":
        raise SystemExit("the command line of AWS could not be loaded")
    return programs, process


def receive(call):
    """The arguments, the environment, the folder and the streams of a call."""
    length, streams, _, _ = socket.recv_fds(call, 4, 3)
    length, said = int.from_bytes(length, "big"), b""
    while len(said) < length:
        more = call.recv(length - len(said))
        if not more:
            raise EOFError("the call ended before it was made")
        said += more
    return *json.loads(said), streams


def serve(driver, call):
    """Does what a call asks for, as the program would, in this process: its exit code."""
    arguments, environment, folder, streams = receive(call)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    code = driver.main(arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def main(place):
    import awscli.clidriver
    import awscli.customizations.s3.subcommands  # noqa: F401, a part that is loaded when it is called

    driver = awscli.clidriver.create_clidriver()
    for service in SERVICES:
        driver.session.create_client(service, "us-east-1", aws_access_key_id="none", aws_secret_access_key="none")
    # Nobody waits for those that have ended.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place)
        listener.listen(64)
        print("ready", flush=True)
        while True:
            call, _ = listener.accept()
            if os.fork():
                call.close()
                continue
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            code = 255
            try:
                code = serve(driver, call)
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
            except BaseException:
                traceback.print_exc()
            finally:
                call.sendall(bytes([code & 255]))
                os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
