"""Exit statuses of every command."""

FINE = 0
FOUND = 1  # findings (see the command's help)
WRONG_USAGE = 2  # invalid arguments or configuration, missing file or server
NO_GO = 3
INTERRUPTED = 130  # 128 + SIGINT
PIPE_CLOSED = 141  # 128 + SIGPIPE
