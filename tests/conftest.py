"""How thoroughly hypothesis looks: `make test` in full, `make check` a quarter of it."""

from hypothesis import settings

settings.register_profile("full", max_examples=100)
settings.register_profile("quick", max_examples=25)
settings.load_profile("full")
