"""Studies of finished runs: they are read from their folders, held against each other and judged."""
