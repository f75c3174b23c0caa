"""Define `relay schema`: row messages of tables, for producers."""
