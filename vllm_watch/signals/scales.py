"""Numbers that several judgements share: times, counts, and shares.

A judgement has a number of its own only if recorded engines need it.
"""

BRIEF_SECONDS = 8.0
"""Steps, two polls, and the clocks of one host differ by less, so a shorter state may be an artefact.
Long prefills and host hiccups last a second or two."""

HALF_MINUTE_SECONDS = 30.0
"""A finding is over if it does not return within this time. Retries and drained queues interrupt it
for seconds."""

MOMENT_SECONDS = 15.0
"""A state is real if it lasts this long. A hiccup of host, network or scheduler ends sooner (9 to 14
s)."""

MINUTE_SECONDS = 60.0
"""Rates and means are of the last minute, and events within a minute belong together. The clocks of
two hosts, and two polls of one target, differ by less."""

FIVE_MINUTES_SECONDS = 300.0
"""A state that lasts this long does not pass by itself. Bursts, compiling kernels and long prompts
take less."""

TEN_MINUTES_SECONDS = 600.0
"""No request, pause or planned operation takes longer, and over a longer gap everything may have
changed. OpenAI's clients give up after this time."""

HOUR_SECONDS = 3600.0
"""Usual values are averaged over this time, which covers bursts and gaps."""

DAYTIME_SECONDS = 6 * 3600.0
"""Learnt values are valid for this time, because requests differ by time of day."""

DAY_SECONDS = 86_400.0
"""Older observations are ignored: target lists grow stale, addresses are reused, and periodic causes
recur at least daily."""

CONFIRMED = 2
"""One may be chance; this many of the same kind show a fact."""

FEW = 3
"""Up to two may be odd cases, retries, scrapers or exceptions; this many are not."""

MANY = 10
"""A share or a rate needs this many cases. Chance makes none of ten expected ones happen with a
probability of e^-10."""

KEPT_MAX = 128
"""At most this many entries of one kind are kept, because a hostile server may report any number. A
host with 16 GPUs of 7 slices has 128 devices."""

PAST_KEPT = 16
"""This many past events of one kind are kept: starts, lives, pauses, intervals."""

SHOWN_MAX = 8
"""A text or an incident names at most this many of one kind."""

SMALL_SHARE = 0.1
"""A smaller share does not matter."""

PART_SHARE = 0.2
"""A smaller share may be a measurement error."""

HALF = 0.5
"""A part explains the whole, and a value has fallen, from half on."""

MOST_SHARE = 0.8
"""From this share on, few are missing."""

NEARLY_ALL = 0.9
"""From this share on, all are meant."""

ALIKE = 1.2
"""Values that differ by at most this factor are the same. Mixes of requests and releases of vLLM
cause smaller ratios."""

ODD_TIMES = 1.5
"""A value that is this many times as great as usual is odd. Adapters, grammars and uneven arrivals
cause smaller ratios."""

TWICE = 2.0
"""A value this many times as great as usual, or as the longest so far, is different."""
