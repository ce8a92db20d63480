"""Values and functions to signed bytes and back. The only importer of dill."""
