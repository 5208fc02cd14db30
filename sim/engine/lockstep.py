"""What schedulers ask of sequences that decode in lock-step, whether a token at a time or with drafts to verify."""

from __future__ import annotations

from typing import Protocol

from sim.engine.request import Request


class Lockstep(Protocol):
    """Members that all move on in every step, held as sums that speak of the *next* step.

    Attributes:
        step: steps done.
        window: the model's sliding window, None where attention is full.
    """

    step: int
    window: int | None

    @property
    def size(self) -> int:
        """Members."""
        ...

    @property
    def width(self) -> int:
        """Tokens that a member computes in a step."""
        ...

    @property
    def tokens(self) -> int:
        """Tokens that the next step computes."""
        ...

    @property
    def context(self) -> int:
        """Sum of the tokens attended."""
        ...

    @property
    def windowed(self) -> int:
        """The same with each term cut to the window."""
        ...

    @property
    def below_window(self) -> int:
        """Members whose range still grows."""
        ...

    @property
    def padding(self) -> int:
        """Slots of the members' blocks that hold nothing."""
        ...

    def join(self, request: Request) -> bool | None:
        """Take in a request; false if it cannot be a member now."""
        ...

    def leave(self, request: Request) -> None:
        """Let a member go; its attributes become true again."""
        ...

    def known_after(self, steps: int) -> int:
        """Tokens that the members know ``steps`` steps from now."""
        ...

    def blocks_needed(self) -> int:
        """Blocks that the next step takes."""
        ...

    def blocks_within(self, steps: int) -> int:
        """Blocks that the next ``steps`` steps take together."""
        ...

    def steps_within(self, free_blocks: int, limit: int) -> int:
        """How many of the next ``limit`` steps fit into ``free_blocks`` new blocks."""
        ...

    def steps_to_change(self, limit: int) -> int:
        """Steps until the members change by themselves, at most ``limit``."""
        ...

    def advance(self, steps: int = 1) -> tuple[int, int]:
        """Do steps; return blocks started and blocks filled in them."""
        ...

    def already_full(self) -> int:
        """Blocks that were counted as filled before `advance` counts them."""
        ...

    def ended(self) -> list[Request]:
        """Take out the members whose last step was the last one done, in running order."""
        ...
