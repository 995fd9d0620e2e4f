"""A program that poses as `vllm serve`: its command line, its listening socket, its titled children.

Run through a link named `vllm`: python …/vllm serve --port N [--shared] [--stubborn] [--engines-stay]
"""

import argparse
import os
import signal
import socket
import sys
import time

ENGINE = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("serve")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--shared", action="store_true", help="share the port with another server")
    parser.add_argument(
        "--stubborn", action="store_true", help="ignore SIGTERM, as a hung server does"
    )
    parser.add_argument(
        "--engines-stay", action="store_true", help="leave the engines when it ends"
    )
    arguments = parser.parse_args()
    listening = socket.socket()
    if arguments.shared:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listening.bind(("127.0.0.1", arguments.port))
    listening.listen()
    # An engine, a worker of it in its own session, and a helper that is neither.
    engine = child(
        [
            "VLLM::EngineCore",
            "-c",
            f"import os\nif os.fork() == 0:\n  os.setsid()\n  os.execv({sys.executable!r}, ['VLLM::Worker_TP0', '-c', {ENGINE!r}])\n{ENGINE}",
        ]
    )
    helper = child([sys.executable, "-c", "import time; time.sleep(300) # resource_tracker"])

    def end(*_):
        if not arguments.engines_stay:
            for pid in [engine, *children(engine)]:
                os.kill(pid, signal.SIGKILL)
        os._exit(0)

    signal.signal(signal.SIGTERM, signal.SIG_IGN if arguments.stubborn else end)
    while not children(engine) or not name(children(engine)[0]).startswith("VLLM"):
        time.sleep(0.01)
    print(listening.getsockname()[1], engine, children(engine)[0], helper, flush=True)
    while True:
        time.sleep(60)


def child(argv):
    pid = os.fork()
    if pid == 0:
        os.execv(sys.executable, argv)
    return pid


def name(pid):
    with open(f"/proc/{pid}/cmdline") as file:
        return file.read()


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


if __name__ == "__main__":
    main()
