"""Programs over segments: who computes what, in which order, what is added across ranks, and the update."""
