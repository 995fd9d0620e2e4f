"""What holds for all tests."""

from hypothesis import settings

# A time limit on each generated case says more about the machine than about the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
