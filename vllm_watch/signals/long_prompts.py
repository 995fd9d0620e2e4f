"""Prompts that are being computed and are not counted yet.

vLLM counts a prompt when its last chunk is done: for the seconds that 30,000 tokens take, steps are long and no
counter says why, and then a heap of tokens seems to take no time. Their pages are taken at once, so the growth of the
KV cache beyond what was counted tells of them.
"""

LONG_TOKENS = 16_384.0
"""So many tokens not counted yet are more than one step computes (--max-num-batched-tokens): a prompt in chunks."""

DONE_SHARE = 0.25
"""It is done when so much of what was under way is left: others finish and free their pages meanwhile."""

LONGEST_SECONDS = 300.0
"""After so long without another one what is left is no prompt: pages leak, or requests were preempted."""


class LongPrompts:
    """Follows one engine's pages and prompts, block by block."""

    def __init__(self) -> None:
        self._gained = 0.0  # tokens in pages taken of late, not counted
        self._under_way = self._most = 0.0  # tokens; 0: none
        self._since_s = 0.0

    def note(self, at_s: float, gained: float, counted: float, finished: float) -> bool:
        """Take in what a block did to the cache (`gained`), what it counted, and what finished; all in tokens.

        Return whether steps of this block computed what it does not count, or the other way round.
        """
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
