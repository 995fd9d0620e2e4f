"""Exit statuses of every command."""

FINE = 0
FOUND = 1  # see the command's help
WRONG_USAGE = 2  # or an invalid configuration, or no server
NO_GO = 3
INTERRUPTED = 130  # 128 + SIGINT
PIPE_CLOSED = 141  # 128 + SIGPIPE
