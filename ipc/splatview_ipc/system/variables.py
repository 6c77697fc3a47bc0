"""The environment variables that splatview reads: one table for help and pages."""

from __future__ import annotations

from typing import NamedTuple


class Variable(NamedTuple):
    """An environment variable that a user may set."""

    name: str
    values: str
    """What may be written behind `=`."""
    default: str
    """What holds while it is not set."""
    summary: str
    """A few words for `splatview --help`."""
    meaning: str
    """Sentences for the page, in Markdown."""


VARIABLES = (
    Variable(
        "SPLATVIEW_RUNTIME_DIR",
        "FOLDER",
        "`/tmp/splatview-UID`",
        "where runs are found",
        "Where the runs of this user are found; a viewer and a training meet only in the "
        "same folder. At most 60 bytes long. Where other users may enter it, runs are in "
        "`splatview-UID` in it; where they may write in it and the sticky bit is not set, "
        "it is refused. Its mode stays as it is.",
    ),
    Variable(
        "SPLATVIEW_NAME",
        "NAME",
        "the script's name",
        "what a run is called",
        "What the run of this process is called in viewers, in `splatview status` and "
        "for `--run`.",
    ),
    Variable(
        "SPLATVIEW_GROUP",
        "WORD",
        "what torchrun, SLURM or mpirun set, else the parent process and the script",
        "which processes share a scene",
        "Which processes publish the parts (`shard`) of one scene: those with the same "
        "word.",
    ),
    Variable(
        "SPLATVIEW_DISABLE",
        "1",
        "not set; 0 is the same",
        "publish does nothing",
        "`publish`, `log`, `annotate`, `publish_cameras`, `publish_memory` and windows "
        "do nothing. Controls keep the values that the script gives them.",
    ),
    Variable(
        "SPLATVIEW_STRICT",
        "1",
        "not set; 0 is the same",
        "faults raise",
        "Faults of the surroundings, such as no shared memory or an unwritable folder, "
        "raise in the trainer. Otherwise they are logged once and counted.",
    ),
    Variable(
        "SPLATVIEW_SHARE",
        "torch",
        "handles of the CUDA driver where they work",
        "how CUDA memory is shared",
        "CUDA tensors are shared in place by the handles of `torch.multiprocessing`, not "
        "by those of the driver.",
    ),
    Variable(
        "SPLATVIEW_RENDERER",
        "gsplat, gl",
        "gsplat where CUDA and gsplat work, else gl",
        "what draws Gaussians",
        "What draws Gaussians in the viewer: CUDA kernels or OpenGL.",
    ),
    Variable(
        "SPLATVIEW_INTEROP",
        "direct, import, host",
        "the first of these that works",
        "how pictures reach OpenGL",
        "How pictures come from CUDA to OpenGL in the viewer and in `splatview.gl`.",
    ),
)
"""All of them, the most needed first."""

INTERNAL_NAMES = ("SPLATVIEW_PARENT",)
"""Variables that splatview sets for programs that it starts itself."""
