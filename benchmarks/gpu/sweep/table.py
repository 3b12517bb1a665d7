"""All models of the sweep."""

from collections.abc import Mapping

from . import diffusion, graphs, media, others, sound, text, vision
from .subject import Subject

_FAMILIES = (vision, text, media, diffusion, sound, graphs, others)

SUBJECTS: Mapping[str, Subject] = {each.name: each for family in _FAMILIES for each in family.subjects()}
"""By name."""
