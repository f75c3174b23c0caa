from hypothesis import settings

# python -m pytest tests/model/test_machine.py --hypothesis-profile=long
settings.register_profile("long", max_examples=1_000, stateful_step_count=100, deadline=None)
