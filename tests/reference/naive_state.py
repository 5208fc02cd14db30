"""What the judge keeps: requests, blocks, the free list and the prefix cache, each as a plain object."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

Line = dict[str, Any]


class Block:
    """One KV block. ``key`` names the tokens up to its end once they are in the prefix cache."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.users = 0
        self.key: object | None = None


class BlockPool:
    """Blocks, the free list in order of reuse, and the prefix cache (key -> its blocks, oldest first)."""

    def __init__(self, num_gpu_blocks: int) -> None:
        self.blocks = [Block(index) for index in range(1, num_gpu_blocks)]  # block 0 is the null block
        self.free: OrderedDict[int, Block] = OrderedDict((block.index, block) for block in self.blocks)
        self.cache: dict[object, list[Block]] = {}

    def take(self) -> Block:
        """The block at the front of the free list; what it cached is forgotten."""
        _, block = self.free.popitem(last=False)
        if block.key is not None:
            self.cache[block.key].remove(block)
            if not self.cache[block.key]:
                del self.cache[block.key]
            block.key = None
        block.users = 1
        return block

    def share(self, block: Block) -> None:
        """One more request uses a cached block."""
        if block.users == 0:
            del self.free[block.index]
        block.users += 1

    def release(self, blocks: list[Block]) -> None:
        """A request lets its blocks go: tail first, cached ones to the back of the free list, others to its front."""
        for block in reversed(blocks):
            block.users -= 1
            if block.users == 0:
                self.free[block.index] = block
                self.free.move_to_end(block.index, last=block.key is not None)

    def remember(self, block: Block, key: object) -> None:
        """Put a full block in the prefix cache, behind any others of the same tokens."""
        block.key = key
        self.cache.setdefault(key, []).append(block)

    def check(self) -> None:
        """Every block is either free or used, and every cache entry points to a block that knows it."""
        for block in self.blocks:
            assert (block.index in self.free) == (block.users == 0)
        for key, holders in self.cache.items():
            assert holders
            assert all(block.key == key for block in holders)
        assert sum(len(holders) for holders in self.cache.values()) == sum(b.key is not None for b in self.blocks)


class Request:
    """One request and what became of it."""

    def __init__(self, index: int, line: Line) -> None:
        self.id = index
        self.prompt = int(line["prompt_len"])
        self.output_len = int(line["output_len"])
        self.priority = int(line.get("priority", 0))
        self.after: int | None = line.get("after")
        self.think_us = int(line.get("think_us", 0))
        self.arrival_step: int | None = line.get("arrival_step")
        self.hash_ids: list[int] | None = line.get("hash_ids")
        self.arrival_us = int(line.get("arrival_us", 0))
        self.outputs = 0  # tokens that came out
        self.computed = 0  # tokens whose KV is there once the steps in flight are done
        self.placeholders = 0  # sampled in a step whose output is not in yet
        self.drafts = 0
        self.verified = 0  # speculative verify steps so far
        self.mid_prefill = False  # its last step ended before all known tokens were computed
        self.blocks: list[Block] = []
        self.cached = 0  # leading blocks known to the prefix cache
        self.preemptions = 0
        self.cached_tokens = 0
        self.resume_cached_tokens = 0
        self.admitted_us: int | None = None
        self.first_token_us: int | None = None
        self.finish_us: int | None = None
        self.rejected = ""

    @property
    def known(self) -> int:
        """Prompt and output tokens whose values are known."""
        return self.prompt + self.outputs

    @property
    def order(self) -> tuple[int, int, int]:
        """Place in the priority queue."""
        return self.priority, self.arrival_us, self.id

    def key(self, block: int) -> object:
        """Name of the tokens up to the end of full block ``block``."""
        return self.hash_ids[block] if self.hash_ids is not None else (self.id, block)

    def line(self) -> Line:
        """The request line of the oracle; a rejected request has only its arrival and the reason."""
        if self.rejected:
            return {"id": self.id, "arrival_us": self.arrival_us, "rejected": self.rejected}
        return {
            "id": self.id,
            "arrival_us": self.arrival_us,
            "admitted_us": self.admitted_us,
            "first_token_us": self.first_token_us,
            "finish_us": self.finish_us,
            "preemptions": self.preemptions,
            "cached_tokens": self.cached_tokens,
            "resume_cached_tokens": self.resume_cached_tokens,
            "output_tokens": self.outputs,
        }
