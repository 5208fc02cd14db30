"""Requests in, replicas behind a router, records out: one run of the discrete-event simulation."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

import simpy

from sim.cluster.arrivals import Arrival, ClientPath, Followers, after, request_of, timed_requests, to_ticks
from sim.cluster.handover import Handoff, Handover
from sim.cluster.lifecycle import Change, Lifecycle
from sim.cluster.pool import Pool, PoolPlan
from sim.cluster.router import Router
from sim.cost.shape import StepTimer
from sim.engine.clock import Clock
from sim.engine.config import EngineConfig
from sim.engine.data_parallel import Rank, RankGroup
from sim.engine.log import Line, StepLog
from sim.engine.pipelined import PipelinedReplica
from sim.engine.pipelined_ranks import PipelinedRank, PipelinedRankGroup
from sim.engine.policies import scheduler_for
from sim.engine.recorder import LOST, REJECTED, UNFINISHED, Recorder
from sim.engine.replica import Replica
from sim.engine.request import Request, Tick
from sim.engine.stall import SimulationStalledError
from sim.workload import Workload

__all__ = ["ClientPath", "Fleet"]

Engine = TypeVar("Engine", bound=Replica)


class Fleet:
    """Replicas of one engine behind a router, fed by a workload.

    Args:
        workload: the requests, in id order.
        configs: one engine configuration a replica.
        timer: how long steps take; its ticks are ``tick_s`` seconds.
        router: where each arrival goes.
        report_interval_s: how often replicas report their loads to a router that does not know the truth; 0: never.
        handoff: the replicas above only prefill; where and how requests decode. None: no split.
        present: how many of the replicas are there from the beginning; None: all.
        ranks: data-parallel ranks of each replica.
        together: the ranks of a replica step together; ``timer`` is then a `sim.engine.data_parallel.JointTimer`.
        changes: replicas that start, stop, fail and recover.
        max_retries: how often a request whose replica failed is sent again.
        retry_delay_s: from a failure to the next try.
        jump: time by change (default) or one event a step.
        on_line: called with each step-log line; None = no step log.
        progress: called now and then with the finished share of requests, 0 to 1.
        arrival_steps: step number before which a request arrives, instead of its time (tests of scheduling).

    Attributes:
        notes: what a reader of the records should know.
    """

    def __init__(
        self,
        workload: Workload,
        configs: Sequence[EngineConfig],
        timer: StepTimer,
        router: Router,
        *,
        report_interval_s: float = 0.0,
        handoff: Handoff | None = None,
        present: int | None = None,
        ranks: int = 1,
        together: bool = False,
        changes: Sequence[Change] = (),
        max_retries: int = 0,
        retry_delay_s: float = 0.0,
        tick_s: float = 1.0,
        path: ClientPath | None = None,
        jump: bool = True,
        on_line: Callable[[Line], None] | None = None,
        progress: Callable[[float], None] | None = None,
        arrival_steps: dict[int, int] | None = None,
    ) -> None:
        self.env = Clock()
        self.workload = workload
        path = path or ClientPath()
        self.recorder = Recorder(tick_s, (path.first_token_s, path.last_token_s))
        self._to_queue: Tick = path.to_queue_s / tick_s if path.to_queue_s else 0
        self._tick_s = tick_s
        self._progress = progress
        self._over = 0
        self.notes: tuple[str, ...] = ()
        self._live: dict[int, Request] = {}
        self._due: deque[int] = deque()
        self._followers = Followers(workload)
        self._jump, self._on_line = jump, on_line
        self._scripted = deque(sorted((step, index) for index, step in (arrival_steps or {}).items()))
        self._max_retries, self._retry_delay = max_retries, to_ticks(retry_delay_s, tick_s)
        self._handover = None if handoff is None else Handover(self.env, handoff, tick_s)
        name = "prefill" if handoff else "engine"
        plan = PoolPlan(configs, timer, router, report_interval_s, name, present, ranks, together)
        self._pools = [Pool(plan, 0, self._engines)]
        if self._handover is not None and handoff is not None:
            self._pools.append(Pool(handoff.decode, len(configs) * ranks, self._engines))
            self._handover.prefill, self._handover.decode = self._pools
        self.lifecycle = Lifecycle(self.env, self._pools, changes, self._failed)

    @property
    def replicas(self) -> list[Replica]:
        """Every replica there ever was, the present ones of each pool first."""
        return [replica for pool in self._pools for replica in pool.all()]

    def replicas_of(self, pool: int) -> list[Replica]:
        """Every replica that a pool ever had."""
        return self._pools[pool].all()

    def places(self, pool: int) -> int:
        """Numbers that the replicas of a pool take."""
        return len(self._pools[pool].replicas)

    def _engines(self, plan: PoolPlan, first: int, config: EngineConfig) -> list[Replica]:
        """The engines of one replica, numbered from ``first``."""
        staged = config.pipeline_stages > 1
        if not plan.together:
            process = PipelinedReplica if staged else Replica
            return [self._engine(process, plan, first + rank, config) for rank in range(plan.ranks)]
        timer: Any = plan.timer  # a `JointTimer`, as `together` says
        if staged:
            stacks = [self._engine(PipelinedRank, plan, first + rank, config) for rank in range(plan.ranks)]
            PipelinedRankGroup(self.env, stacks, timer, jump=self._jump)
            return list(stacks)
        ranks = [self._engine(Rank, plan, first + rank, config) for rank in range(plan.ranks)]
        RankGroup(self.env, ranks, timer, jump=self._jump)
        return list(ranks)

    def _engine(self, process: type[Engine], plan: PoolPlan, index: int, config: EngineConfig) -> Engine:
        scheduler = scheduler_for(config, plan.timer.window, self._tick_s)
        replica = process(
            self.env,
            scheduler,
            plan.timer,
            self.recorder,
            self._done,
            index=index,
            jump=self._jump,
            log=StepLog(self._on_line, self._to_us, scheduler) if self._on_line else None,
            scripted=self._scripted if index == 0 else deque(),
            arrive=self._submit_now,
        )
        if self._handover is not None:
            self._handover.connect(replica, decodes=plan.name == "decode")
        return replica

    def run(self) -> None:
        """Run until the last request is over.

        Raises:
            SimulationStalledError: nothing can move although requests wait.
        """
        self.env.process(self._source())
        reporting = [pool for pool in self._pools if pool.plan.report_interval_s]
        for pool in reporting:
            self.env.process(self._report(pool, len(reporting) - 1))
        self.env.run()
        if self._live and all(pool.open for pool in self._pools):
            raise SimulationStalledError(self._stuck())
        if self._live:
            self.notes = (self._abandoned(),)
        for request in self._live.values():  # nobody is left to serve them
            self.recorder.request(request, UNFINISHED)

    @property
    def events(self) -> int:
        """Times that replicas woke up."""
        return sum(replica.events for replica in self.replicas)

    @property
    def engine_steps(self) -> int:
        """Steps that engines ran."""
        return sum(replica.steps - replica.first_step for replica in self.replicas)

    def _report(self, pool: Pool, others: int) -> Generator[simpy.Event, Any, None]:
        """Loads become known from time to time, while anything but the reports of ``others`` is still to come."""
        interval = to_ticks(pool.plan.report_interval_s, self._tick_s) or 1
        while self._over < len(self.workload) and len(self.env._queue) > others:
            pool.plan.router.reports.take(pool.open)
            yield Arrival(self.env, interval)

    def _stuck(self) -> str:
        """What the requests that never ended wait for."""
        where = [f"{pool.plan.name} pool: {pool.state()}" for pool in self._pools]
        return f"deadlock at tick {self.env.now}: {len(self._live)} requests can never end; " + "; ".join(where)

    def _abandoned(self) -> str:
        """Whom the requests that never ended waited for, and how everybody else stood."""
        absent = [pool.plan.name for pool in self._pools if not pool.open]
        what = "no replica accepts requests any more"
        if len(self._pools) > 1:
            what = f"the {' and the '.join(absent)} pool has no replica that accepts requests any more"
        where = "; ".join(f"{pool.plan.name} pool: {pool.state()}" for pool in self._pools)
        return f"{len(self._live)} requests can never end, since {what}. At the end, {where}."

    # -- arrivals -----------------------------------------------------------------------------------------------------

    def _source(self) -> Generator[simpy.Event, Any, None]:
        env = self.env
        for request in timed_requests(self.workload, self._tick_s, self._to_queue):
            if request.queued > env.now:
                yield Arrival(env, request.queued - env.now)
            self._submit(request)

    def _follow(self, index: int, think: Tick) -> Generator[simpy.Event, Any, None]:
        arrival = self.env.now + think
        yield Arrival(self.env, think + self._to_queue)
        self._submit(self._request(index, arrival))

    def _request(self, index: int, arrival: Tick) -> Request:
        return request_of(self.workload, index, arrival, arrival + self._to_queue)

    def _submit(self, request: Request) -> None:
        pool = self._pools[0]
        handover = self._handover if request.output > 1 else None
        reason = (handover or pool).rejects(request)
        if reason is not None:
            self.recorder.request(request, REJECTED, reason)
            self._over_with(request)
            return
        self._send(request)

    def _send(self, request: Request) -> None:
        self._live[request.id] = request
        if self._handover is not None and request.output > 1:
            self._handover.submit(request)
        else:
            self._pools[0].assign(request, lambda replica: replica.submit(request))

    # -- ends ---------------------------------------------------------------------------------------------------------

    def _done(self, request: Request) -> None:
        if request.keeps_kv:
            assert self._handover is not None
            self._handover.prefilled(request)
            return
        self.recorder.request(request)
        del self._live[request.id]
        self._over_with(request)

    def _failed(self, replica: Replica, requests: list[Request]) -> None:
        """A replica failed with ``requests`` in it: they are sent again from their beginning, or are lost."""
        if self._handover is not None:
            requests = self._handover.lost(replica, requests)
        for request in requests:
            if request.attempts > self._max_retries:
                request.finish = -1.0
                if request.first_token >= self.env.now:
                    request.first_token = -1.0  # it was in flight
                self.recorder.request(request, LOST)
                del self._live[request.id]
                self._over_with(request)
            else:
                self._retry(request)

    def _retry(self, request: Request) -> None:
        again = request_of(self.workload, request.id, request.arrival, self.env.now + self._retry_delay)
        again.attempts = request.attempts + 1
        self._live[request.id] = again
        after(self.env, self._retry_delay, lambda: self._send(again))

    def _over_with(self, request: Request) -> None:
        self._over += 1
        if self._progress and not self._over % 256:
            self._progress(self._over / len(self.workload))
        warming = self._followers.warming
        due = self._followers.after(request.id)
        if warming and not self._followers.warming:
            self.recorder.begin(self.env.now)
        for follower in due:
            think = 0.0 if self.workload.think_s is None else float(self.workload.think_s[follower])
            ticks = to_ticks(think, self._tick_s)
            if ticks + self._to_queue > 0:
                self.env.process(self._follow(follower, ticks))
            else:
                self._submit_now(follower)

    def _submit_now(self, index: int) -> None:
        """Submit a follower in this very instant; a loop, since a chain of refused followers may be long."""
        self._due.append(index)
        if len(self._due) == 1:
            while self._due:
                self._submit(self._request(self._due[0], self.env.now))
                self._due.popleft()

    def _to_us(self, tick: Tick) -> int:
        return round(tick * self._tick_s * 1e6)
