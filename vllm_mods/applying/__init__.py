"""What is done to an installed vLLM: the plan on what is there, the writer, and what becomes of each mod."""
