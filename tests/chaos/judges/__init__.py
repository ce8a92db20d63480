"""What a run has recorded, and what is checked of it."""
