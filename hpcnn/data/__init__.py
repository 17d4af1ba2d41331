"""CSV rows to batches: row index, parsing, logical shards, batch order and normalisation (design, rule 3).

A communicator comes as an argument wherever ranks must agree; nothing here imports MPI.
"""
