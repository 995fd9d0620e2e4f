"""What the exit status of every command means."""

FINE = 0
FOUND = 1  # it ran, and found what it looks for (where a command's help says so)
WRONG_USAGE = 2  # arguments, configuration, or a file or server that was named and is not there
NO_GO = 3
INTERRUPTED = 130  # 128 + SIGINT, as shells say it
PIPE_CLOSED = 141  # 128 + SIGPIPE
