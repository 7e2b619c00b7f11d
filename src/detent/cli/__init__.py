"""The command `detent`: what is typed becomes settings and calls, what comes back becomes lines and a code.

Only what every command needs is imported here; a command imports its heavy parts when it is run, so that
`detent --help` and shell completion answer at once. Whatever goes wrong leaves as one line on stderr and the
exit code of its class in `errors.py`; a traceback is shown only when DETENT_DEBUG is set.
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
        # The reader has gone, such as `head`. What is still buffered would fail once more while Python exits.
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
