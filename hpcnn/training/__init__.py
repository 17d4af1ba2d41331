"""What a run does from its start to its last file: the loop, evaluation, checkpoints, prediction."""
