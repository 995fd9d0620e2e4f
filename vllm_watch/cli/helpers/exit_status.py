"""Exit statuses of every command."""

FINE = 0
FOUND = 1  # it ran and has findings (see each command's help)
WRONG_USAGE = 2  # invalid arguments or configuration, or a named file or server is missing
NO_GO = 3
INTERRUPTED = 130  # 128 + SIGINT
PIPE_CLOSED = 141  # 128 + SIGPIPE
