"""Values and functions to bytes and back. The only importer of dill."""
