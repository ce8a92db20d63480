"""Protection: what lies in the tree is sealed for its place, and opened nowhere else."""
