"""A kind of stream: how it is shown, and what other rooms may do with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

    import moderngl

    from splatview_ipc.control.frame import StreamFrame
    from splatview_viewer.core.view import View


@dataclass(frozen=True)
class Link:
    """Streams of one kind that feed the views of another.

    The workspace opens, reads and releases them. `content` is what all views of a
    stream share; those of a kind without it are given nothing.
    """

    kind: str
    """The kind of the streams that feed."""
    over: bool = False
    """They were published over the stream that is shown, and are read frame by frame, to
    host memory unless they come `on_gpu`. Otherwise the link leads to the entry of this kind of the same run,
    whose content is shared (`use`)."""
    plotted: bool = False
    """They are plotted in the panel, and not in the picture."""
    still: bool = False
    """Single pictures (`splatview shot`, `splatview.grab`) show them as well."""
    in_order: bool = False
    """Each frame counts, as an answer to a request does: they are taken one after the
    other, and a view itself says when it has something new to show."""
    on_gpu: bool = False
    """Frames come in GPU memory where this process can open that."""

    def take(self, content: Any, stream: Any, frame: StreamFrame) -> bool:
        """Take the newest frame of a stream, or the next one (`in_order`).

        Returns False when it was overwritten meanwhile. Raises ViewerError for a frame
        that cannot be shown, and SharingError for one whose memory cannot be read.
        """
        raise NotImplementedError

    def tend(self, content: Any, stream: Any, now: float) -> bool:
        """Do what is due with a stream, once a turn.

        Returns whether a frame is going to come soon.
        """
        return False

    def drop(self, content: Any, stream: Any) -> None:
        """Forget a stream. Idempotent."""

    def trouble(self, content: Any, stream: Any) -> str:
        """Return what the publisher of a stream reports to be wrong, or an empty text."""
        return ""

    def use(self, view: Any, content: Any) -> None:
        """Have a view show the content of the linked entry; None: there is none."""


@dataclass(frozen=True)
class Kind:
    """The registration of a kind. `splatview_viewer.kinds.KINDS` lists all of them."""

    name: str
    """As publishers write it."""
    rank: int = 1
    """Streams of a lower rank are shown first where the user chose none."""
    still: Literal["view", "plot"] = "view"
    """A single picture of it is what its view draws, or a plot with words and axes."""
    compared: bool = False
    """Its views have a camera, or a place and a zoom, so that two can be compared and
    tied: two of this kind, or two that are `filmed`."""
    merged: bool = False
    """Several entries of it can be put together in one space and drawn as one
    (`scene.scene.merged`)."""
    recorded: bool = False
    """The recorder takes its versions, and a recording that is opened is an entry of
    it."""
    sharded: bool = False
    """The processes of a training may publish a part each, which are joined to one
    frame (`workspace.join_shards`)."""
    counted: bool = False
    """The first side of its shape is a number that changes and is worth a curve
    (`workspace.counts`)."""
    filmed: bool = False
    """Its picture is taken by a camera in space, which a caller may place, and move
    along a path."""
    paced: bool = False
    """Loading a version costs more GPU time than drawing it, so the governor limits the
    rate of versions."""
    strip: bool = False
    """Belongs to a run, and is plotted in the panel beside other streams of that run.
    """
    of_run: bool = False
    """Belongs to a run as a whole: it is no entry of the list, and its content is beside
    all other streams of that run (`workspace.script_controls`)."""
    controlled: bool = False
    """Its pictures depend on the script's controls: its content is told of each change
    by `note_controls`."""
    plots_counts: bool = False
    """Its content plots the counts of its run's `counted` streams (`content.beside`)
    beside its own curves (`content.curves`)."""
    snapshots: bool = False
    """Its views request full memory snapshots by a function of their content,
    `request_snapshot`, which the workspace sets."""
    selected: bool = False
    """The script reads what its views select by a function of their content,
    `send_selection`, which the workspace sets."""
    holds_many: bool = False
    """The first side of its shape is the number of things that it holds."""
    fed_unseen: bool = False
    """A file of it is given to a view once it is read, whether it is shown or not: others
    are compared with it."""
    fact: Callable[[Any], str] = lambda _: ""
    """Returns what the list of streams says of a content, in a word; "" for nothing."""
    links: tuple[Link, ...] = ()
    """The streams that feed its views, beside the plots of their run."""
    holds: Callable[[Any], bool] = lambda _: False
    """Returns whether the content of a file is of this kind."""
    view: Callable[[moderngl.Context, Any], View[Any, Any]] | None = None
    """Makes a view over new data, given the OpenGL context and the `GpuWork` that times
    what it gives the GPU."""

    @property
    def has_view(self) -> bool:
        """True for an entry of the list, False for what is drawn over other streams."""
        return self.view is not None
