"""Finds long prompts in progress. vLLM allocates all pages of a prompt at once, but counts its
tokens with the last chunk."""

LONG_TOKENS = 16_384.0
"""A prompt is long if at least this many of its tokens are not counted yet. This is more than one step computes (--max-num-batched-tokens)."""

DONE_SHARE = 0.25
"""A prompt is done when its uncounted tokens have fallen to this share of their maximum. The share
is above 0, because other requests free pages."""

LONGEST_SECONDS = 300.0
"""A long prompt takes at most this long. If tokens stay uncounted for longer, the cause is a leak or a preemption."""


class LongPrompts:
    """Follows one engine's pages and prompts."""

    def __init__(self) -> None:
        self._gained = 0.0  # uncounted tokens of recently allocated pages
        self._under_way = self._most = 0.0
        self._since_s = 0.0

    def note(self, at_s: float, gained: float, counted: float, finished: float) -> bool:
        """Add a block's KV growth, counted tokens and finished tokens. Return True during a long prompt."""
        self._gained = max(0.0, self._gained + gained - counted)
        began = self._gained >= LONG_TOKENS
        if not began and not self._under_way:
            return False
        if self._under_way:
            self._under_way += gained - counted + finished
        else:
            self._under_way = self._gained
        if began:
            self._since_s, self._gained = at_s, 0.0
        self._most = max(self._most, self._under_way)
        late = at_s - self._since_s > LONGEST_SECONDS
        if late or self._under_way <= DONE_SHARE * self._most:
            self._under_way = self._most = self._gained = 0.0
        return True
