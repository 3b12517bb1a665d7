"""How much of a program is recorded, and by what an input reaches a recording."""

from enum import Enum, StrEnum


class CaptureMode(Enum):
    """NONE records nothing; FULL whole graphs or nothing; PIECEWISE segments, with attention outside by default.

    FULL_AND_PIECEWISE leaves outside only the nodes that cannot be captured: without one the graph is a single segment.
    """

    NONE = "none"
    FULL = "full"
    PIECEWISE = "piecewise"
    FULL_AND_PIECEWISE = "full_and_piecewise"


class InputPolicy(StrEnum):
    """What happens when an input comes at another address than the one that was recorded.

    COPY copies every input into a static buffer, REPOINT gives the recording the new address, RERECORD records again,
    REFUSE raises `InputError`. AUTO measures what copying and re-pointing cost and takes the cheaper.
    """

    AUTO = "auto"
    COPY = "copy"
    REPOINT = "repoint"
    RERECORD = "rerecord"
    REFUSE = "refuse"

    @property
    def is_in_place(self) -> bool:
        """Whether the input is read where it lies with the caller if that can be done: the arena has none of it."""
        return self in (InputPolicy.REPOINT, InputPolicy.RERECORD, InputPolicy.REFUSE)
