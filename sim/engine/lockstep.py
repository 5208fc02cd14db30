"""What schedulers ask of sequences that decode in lock-step, whether a token at a time or with drafts to verify."""

from __future__ import annotations

from abc import ABC, abstractmethod

from mypy_extensions import mypyc_attr

from sim.engine.request import Request


@mypyc_attr(allow_interpreted_subclasses=True)
class Lockstep(ABC):
    """Members that all move on in every step, held as sums that speak of the *next* step.

    Attributes:
        size: members.
        step: steps done.
        window: the model's sliding window, None where attention is full.
        width: tokens that a member computes in a step.
        context: sum of tokens attended in the next step, each member's new tokens included.
        windowed: the same with each term cut to the window.
        below_window: members whose next step still fits the window (all, where there is no window).
        padding: slots of the members' blocks that hold no kept token.
    """

    def __init__(self, block_size: int, window: int | None) -> None:
        self.block_size = block_size
        self.window = window
        self.size = 0
        self.step = 0
        self.width = 1
        self.context = 0
        self.windowed = 0
        self.below_window = 0
        self.padding = 0

    @property
    def tokens(self) -> int:
        """Tokens that the next step computes."""
        return self.size * self.width

    @abstractmethod
    def join(self, request: Request) -> bool | None:
        """Take in a request; false if it cannot be a member now."""

    @abstractmethod
    def leave(self, request: Request) -> None:
        """Let a member go; its attributes become true again."""

    @abstractmethod
    def known_after(self, steps: int) -> int:
        """Tokens that the members know ``steps`` steps from now."""

    @abstractmethod
    def blocks_needed(self) -> int:
        """Blocks that the next step takes."""

    @abstractmethod
    def blocks_within(self, steps: int) -> int:
        """Blocks that the next ``steps`` steps take together."""

    @abstractmethod
    def steps_within(self, free_blocks: int, limit: int) -> int:
        """How many of the next ``limit`` steps fit into ``free_blocks`` new blocks."""

    @abstractmethod
    def steps_to_change(self, limit: int) -> int:
        """Steps until the members change by themselves, at most ``limit``."""

    @abstractmethod
    def advance(self, steps: int = 1) -> tuple[int, int]:
        """Do steps; return blocks started and blocks filled in them."""

    @abstractmethod
    def already_full(self) -> int:
        """Blocks that were counted as filled before `advance` counts them."""

    @abstractmethod
    def ended(self) -> list[Request]:
        """Take out the members whose last step was the last one done, in running order."""
