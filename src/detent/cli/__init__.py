"""The command `detent`.

Only what every command needs is imported here. A command imports its heavy parts when it runs, so that `detent --help`
and shell completion are fast. Every error becomes one line on stderr and the exit code of its class in `errors.py`; a
traceback is printed only when DETENT_DEBUG is set.
"""

from __future__ import annotations

import io
import os
import sys

INTERRUPTED = 130  # as a shell counts a death by SIGINT
PIPE_CLOSED = 141  # as a shell counts a death by SIGPIPE
COMPLETE = "_DETENT_COMPLETE"


def main() -> int:
    """Run the command line of this process and return its exit code."""
    try:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        code = _run(sys.argv[1:])
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader, such as `head`, has gone. Flushing the rest of the buffer at exit would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return PIPE_CLOSED


def _run(arguments: list[str]) -> int:
    from detent.cli.failures import report

    try:
        from detent.cli.root import root

        instruction = os.environ.get(COMPLETE)
        if instruction:
            from click.shell_completion import shell_complete

            return shell_complete(root, {}, "detent", COMPLETE, instruction)
        with root.make_context("detent", arguments) as context:
            code = root.invoke(context)
        return code if isinstance(code, int) else 0
    except BrokenPipeError:
        raise
    except Exception as error:
        return report(error)
