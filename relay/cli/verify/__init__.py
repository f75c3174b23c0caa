"""Define `relay verify`: the runtime verifier, once, deep, or beside production."""
