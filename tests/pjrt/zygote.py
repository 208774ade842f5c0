"""A process that has imported JAX and forks: what importing costs is paid once.

Run as a script.  It reads requests as lines of JSON on its standard input, forks for
each, and says on a file descriptor (its argument) which child it made and how that
ended.  A child is as a fresh process that has just imported JAX, without backends or
threads: it runs the script as `__main__` and leaves through the interpreter's own end.
"""

import json
import os
import sys


def serve() -> dict[str, object]:
    """Fork for every request; return it in the child."""
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            return request
        os.write(REPLIES, f"{pid}\n".encode())
        _, status = os.waitpid(pid, 0)
        os.write(REPLIES, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def become(request: dict[str, object]) -> str:
    """Make this child what was asked for; return its script."""
    os.setsid()
    os.close(REPLIES)
    for number, key in ((1, "stdout"), (2, "stderr")):
        made = os.open(str(request[key]), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(made, number)
        os.close(made)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    os.environ.clear()
    environment = request["environment"]
    assert isinstance(environment, dict)
    os.environ.update(environment)
    # Read from the environment when JAX is imported.
    jax.config.update("jax_platforms", environment.get("JAX_PLATFORMS"))
    return str(request["script"])


if __name__ == "__main__":
    REPLIES = int(sys.argv.pop())
    import jax
    import jax.numpy
    import numpy  # noqa: F401

    exec(compile(become(serve()), "<string>", "exec"), globals())
