"""What a run measures and leaves behind: phases, heartbeats, and the files that rank 0 writes."""
