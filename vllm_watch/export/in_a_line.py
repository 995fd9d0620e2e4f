"""The board in one line, for where there is room for no more: `systemctl status`."""

from vllm_watch.board.board import Board


def in_a_line(board: Board, url: str) -> str:
    """How many targets answer, and what is wrong."""
    entries = board.targets.values()
    looked_at = [entry.signals for entry in entries if entry.signals is not None]
    answer = sum(signals.up for signals in looked_at)
    opened = [i for entry in board.all_entries() for i in entry.incidents.open.values()]
    incidents = [each for each in opened if not each.recovering]
    pages = sum(incident.severity == "page" for incident in incidents)
    parts = [f"{answer} of {_count(len(board.targets), 'target')} answer"]
    if len(looked_at) < len(board.targets):
        parts.append(f"{len(board.targets) - len(looked_at)} not looked at yet")
    parts.append(f"{_count(len(incidents), 'incident')} open" if incidents else "nothing is wrong")
    if pages:
        parts[-1] += f" ({_count(pages, 'page')})"
    if len(opened) > len(incidents):
        parts.append(f"{_count(len(opened) - len(incidents), 'incident')} recovering")
    return f"{', '.join(parts)}; {url}/"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
