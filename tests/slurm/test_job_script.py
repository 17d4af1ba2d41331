"""The form of the job scripts, which needs no Slurm to be seen."""

from __future__ import annotations

import re

import pytest

from tests.slurm.cluster import CLONE

SCRIPTS = sorted((CLONE / "jobs").glob("*.slurm"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_job_script_has_the_usual_directives_one_a_line(script) -> None:
    directives = re.findall(r"^#SBATCH (.*)$", script.read_text(), re.MULTILINE)
    assert all(re.fullmatch(r"--[a-z-]+=\S+", directive) for directive in directives)
    names = [directive.split("=")[0] for directive in directives]
    usual = ["--job-name", "--output", "--nodes", "--ntasks-per-node", "--cpus-per-task", "--time"]
    assert [name for name in names if name in usual] == usual
    assert "--output=%x-%j.out" in directives
    assert not {"--account", "--partition", "--qos"} & set(names)  # a site's own: env/site.sh
