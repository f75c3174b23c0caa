from hypothesis import settings

# python -m pytest tests/verify --hypothesis-profile=long (as tests/model, whose profile it is)
settings.register_profile("long", max_examples=1_000, stateful_step_count=100, deadline=None)
